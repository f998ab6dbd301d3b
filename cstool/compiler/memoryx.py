"""What MemoryX must hold of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cstool.compiler.program import Program
from cstool.ir import MemoryXNeed
from cstool.models.statistics import FLOAT32_BYTES
from cstool.optimizers import state_numbers

PLACE_BYTES = 4
"""of where a non-zero is"""


def memoryx_need(program: Program) -> MemoryXNeed:
    """Return what MemoryX must hold of a program's weights."""
    kept_bytes = FLOAT32_BYTES * (program.graph.parameter_count - program.zeros)
    memoryx, optimizer = program.request.system.memoryx, program.request.optimizer
    kept: Sequence[Mapping[str, int]] = program.nonzeros or ({},) * len(program.graph.segments)
    state = sum(
        segment.count * state_numbers(optimizer, weight.shape, nonzeros.get(weight.name))
        for segment, nonzeros in zip(program.graph.segments, kept, strict=True)
        for weight in segment.weights
    )
    return MemoryXNeed(
        weights_bytes=kept_bytes + PLACE_BYTES * _nonzeros(program),
        optimizer_bytes=FLOAT32_BYTES * state,
        gradient_bytes=kept_bytes,
        capacity_bytes=None if memoryx is None else memoryx.capacity_bytes,
    )


def _nonzeros(program: Program) -> int:
    """Return the elements of all sparse weights that are not zero."""
    segments = zip(program.graph.segments, program.nonzeros, strict=False)
    return sum(segment.count * sum(found.values()) for segment, found in segments)
