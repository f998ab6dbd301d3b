"""Placement: what is to be placed, and its cycles by the size of its region."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from cstool.compiler.columns import IntArray
from cstool.compiler.stage import WAYS, PipelineStage

NEVER = np.iinfo(np.int64).max // 4
"""cycles of a stage in a region that is too small for it"""
_EXACT = 32
"""sizes up to this are all tried"""

Known = dict[Hashable, list[tuple[IntArray, IntArray]]]
"""cycles and fixed bytes, either way round, of stages that are alike"""


def grid_sizes(most: int, step: float) -> IntArray:
    """Return sizes from 1 to `most`: the small ones all, the others a ratio of `step` apart."""
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, int(sizes[-1] * step)) if sizes[-1] >= _EXACT else sizes[-1] + 1))
    return np.array(sizes, np.int64)


def stage_cycles(stage: PipelineStage, width: Any, height: Any) -> Any:
    """Return the cycles per sample in regions of these sizes, the better way round; NEVER where it does not fit."""
    ways = [(stage.cycles(way, width, height), stage.fixed_bytes(way, width, height)) for way in WAYS]
    return fitting_cycles(stage, ways, width * height)


def fitting_cycles(stage: PipelineStage, ways: Sequence[tuple[Any, Any]], pes: Any) -> Any:
    """Return the lesser of the cycles of both ways; NEVER where a way's bytes leave no room for what is in flight."""
    free = stage.room_bytes - stage.held_bytes(pes)
    either = [np.where(fixed <= free, cycles, NEVER) for cycles, fixed in ways]
    return np.minimum(either[0], either[1])


def grid_cycles(stages: Sequence[PipelineStage], widths: IntArray, heights: IntArray) -> IntArray:
    """Return the cycles of (stage, width, height); more rows never take longer."""
    return all_cycles(stages, *np.meshgrid(widths, heights, indexing="ij"))


def all_cycles(stages: Sequence[PipelineStage], width: IntArray, height: IntArray) -> IntArray:
    """Return the cycles of (stage, *sizes), as `stage_cycles` does; what is alike is computed once."""
    pes = width * height
    known: Known = {}
    tables = np.empty((len(stages), *pes.shape), np.int64)
    for number, stage in enumerate(stages):
        if (alike := known.get(stage.alike)) is None:
            alike = [(stage.cycles(way, width, height), stage.fixed_bytes(way, width, height)) for way in WAYS]
            known[stage.alike] = alike
        tables[number] = fitting_cycles(stage, alike, pes)
    return tables
