"""What MemoryX must hold of a program."""

from __future__ import annotations

from cstool.compiler.program import Program
from cstool.ir import MemoryXNeed
from cstool.models.statistics import FLOAT32_BYTES

PLACE_BYTES = 4
"""of where a non-zero is"""


def memoryx_need(program: Program) -> MemoryXNeed:
    """Return what MemoryX must hold of a program's weights."""
    kept_bytes = FLOAT32_BYTES * (program.graph.parameter_count - program.zeros)
    memoryx = program.request.system.memoryx
    return MemoryXNeed(
        weights_bytes=kept_bytes + PLACE_BYTES * _nonzeros(program),
        optimizer_bytes=kept_bytes * program.request.optimizer_states,
        gradient_bytes=kept_bytes,
        capacity_bytes=None if memoryx is None else memoryx.capacity_bytes,
    )


def _nonzeros(program: Program) -> int:
    """Return the elements of all sparse weights that are not zero."""
    segments = zip(program.graph.segments, program.nonzeros, strict=False)
    return sum(segment.count * sum(found.values()) for segment, found in segments)
