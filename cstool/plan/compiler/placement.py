"""Placement: a rectangle of the wafer for every stage of a chain, so that the slowest is as fast as can be.

Consecutive stages fill a column of the wafer from its top down, the next from its bottom up, and so on: each region
touches the next. The first few stages may lie across the top of the columns instead, or the last across their bottom.
With a bound T on the cycles of every stage, whether the chain goes into columns is found exactly, and T is bisected.
Of the solutions within a percent or two of the least T the one with the shortest wires is taken, one within three
percent if that makes them shorter by a fifth, and one within five if by a third: the way along the chain goes up or
down every column, and wider columns are fewer. All of it is done for the wafer lying on its side as well.

Widths and heights are tried on a grid of some hundred sizes; then, with the cuts known, PEs that are left over are
handed out and rows are dealt exactly, one breakpoint of the slowest stage after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cstool.model.ir import Region
from cstool.plan.compiler.columns import Column, LeastRows
from cstool.plan.compiler.dealing import Dealer, fill_rows, widen
from cstool.plan.compiler.stage import NEVER, IntArray, Known, PipelineStage, all_cycles, stage_cycles

SLOWER = ((64, 1.0), (32, 0.8), (20, 0.66))
"""a placement may be slower by one part in so many than the fastest, if its wires are this part of the last at most"""
_EXACT = 32
"""sizes of the grid up to this are all tried"""
_STEP = {100: 1.02, 1000: 1.05}
"""ratio of neighbouring sizes of the grid, for chains up to so many stages"""
BANDS = ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 1))
"""numbers of stages that are tried across the top of the columns and across their bottom"""
DEALT = 2
"""cuts that are dealt exactly, shortest wires first, until one fits"""


class NoPlacement(Exception):
    """The stages do not fit side by side.

    Args:
        stage: number of one that does not fit even alone; None if it is all of them together
    """

    def __init__(self, stage: int | None) -> None:
        super().__init__("the stages together" if stage is None else f"stage {stage}")
        self.stage = stage


@dataclass(frozen=True)
class Placement:
    """Where the stages are.

    Args:
        regions: one per stage
        bottleneck_cycles: of the slowest stage
        memory_bound: numbers of the stages that have memory to thank for their size: with one row less (a row of its
            column, before left-over rows are handed out) each would still be as fast as the slowest
    """

    regions: tuple[Region, ...]
    bottleneck_cycles: int
    memory_bound: frozenset[int]


def wire_length(regions: Sequence[Region]) -> int:
    """Return the Manhattan distances of the centres of consecutive regions, added up and rounded down [PEs]."""
    centres = [(2 * r.x + r.width, 2 * r.y + r.height) for r in regions]
    pairs = zip(centres, centres[1:], strict=False)
    return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in pairs) // 2


def place(stages: Sequence[PipelineStage], width: int, height: int, known: Known | None = None) -> Placement:
    """Give every stage of a chain its region on so many PEs.

    Args:
        stages: of the chain
        width, height: of the rectangle [PEs]
        known: results for other rectangles, to which new ones are added; None to begin anew

    Raises:
        NoPlacement: they do not fit
    """
    step = next((ratio for most, ratio in _STEP.items() if len(stages) <= most), max(_STEP.values()))
    widths, heights = _grid_sizes(width, step), _grid_sizes(height, step)
    # More rows never take longer.
    cycles = all_cycles(stages, widths, heights)
    for number, table in enumerate(cycles):
        if table.min() >= NEVER:
            raise NoPlacement(number)
    lying = (
        (False, Floor(width, height), cycles, (widths, heights)),
        (True, Floor(height, width), np.ascontiguousarray(cycles.transpose(0, 2, 1)), (heights, widths)),
    )
    bounds = [_least_bound(tables, sizes, floor) for _, floor, tables, sizes in lying]
    if (fastest := min((bound for bound in bounds if bound is not None), default=None)) is None:
        raise NoPlacement(None)
    best: Placement | None = None
    known = {} if known is None else known
    for part, shorter in SLOWER:
        bound = fastest + fastest // part
        found: list[tuple[int, int, Cut, Floor, bool]] = []
        for turned, floor, tables, sizes in lying:
            for wire_pes, cut in _cuts(tables, sizes, floor, bound):
                found.append((wire_pes, len(found), cut, floor, turned))
        for wire_pes, _, cut, floor, turned in sorted(found, key=lambda each: each[:2])[:DEALT]:
            if best is not None and wire_pes > wire_length(best.regions) * shorter:
                break
            placement = _deal(stages, cut, floor, bound, known)
            if placement is not None:
                best = placement
                if turned:
                    best = replace(placement, regions=tuple(region.turned() for region in placement.regions))
                break
    if best is None:
        raise NoPlacement(None)
    return best


def _grid_sizes(most: int, step: float) -> IntArray:
    """Return sizes from 1 to `most`: the small ones all, the others a ratio of `step` apart."""
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, int(sizes[-1] * step)) if sizes[-1] >= _EXACT else sizes[-1] + 1))
    return np.array(sizes, np.int64)


@dataclass(frozen=True)
class Floor:
    """The area that is to be cut into columns."""

    width: int
    height: int


@dataclass(frozen=True)
class Cut:
    """Stages in columns; stages before `first` lie across the top, stages from `last` on across the bottom."""

    first: int
    last: int
    columns: tuple[Column, ...]

    def regions(self, rows: Sequence[int], floor: Floor) -> tuple[Region, ...]:
        """Return the regions of stages with so many rows, which fill each column."""
        inner = floor.height - sum(rows[: self.first]) - sum(rows[self.last :])
        regions: list[Region] = []
        y = 0
        for count in rows[: self.first]:
            regions.append(Region(0, y, floor.width, count))
            y += count
        # Down the first column, unless the way would then end at the top, far from the stages across the bottom.
        is_down = self.last == len(rows) or len(self.columns) % 2 == 1
        x = 0
        for column in self.columns:
            at = y if is_down else y + inner
            for count in rows[column.first : column.last]:
                regions.append(Region(x, at if is_down else at - count, column.width, count))
                at += count if is_down else -count
            x += column.width
            is_down = not is_down
        y += inner
        for count in rows[self.last :]:
            regions.append(Region(0, y, floor.width, count))
            y += count
        return tuple(regions)


def _least_bound(cycles: IntArray, sizes: tuple[IntArray, IntArray], floor: Floor) -> int | None:
    """Return the cycles of the slowest stage, about as few as columns allow; None if there is no room."""
    count = len(cycles)

    def has_room(bound: int) -> bool:
        return LeastRows(cycles, *sizes, bound).columns(0, count, floor.width, floor.height) is not None

    # None is faster than it is alone.
    low, high = int(cycles.min(axis=(1, 2)).max()), int(cycles[cycles < NEVER].max())
    if not has_room(high):
        return None
    if has_room(low):
        return low
    while high - low > max(1, low // 256):
        middle = (low + high) // 2 if high < 4 * low else 2 * low
        if has_room(middle):
            high = middle
        else:
            low = middle
    return high


def _cuts(cycles: IntArray, sizes: tuple[IntArray, IntArray], floor: Floor, bound: int) -> Iterator[tuple[int, Cut]]:
    """Return the cuts that are tried for a bound, each with about its length of wires."""
    count = len(cycles)
    rows = LeastRows(cycles, *sizes, bound)
    across = rows.rows[:, -1]
    for before, after in BANDS:
        if before + after >= count and before + after > 0:
            continue
        height = floor.height - int(across[:before].sum()) - int(across[count - after :].sum())
        if height < 1:
            continue
        columns = rows.columns(before, count - after, floor.width, height)
        # The way must end where the last stages are.
        if columns is not None and not (before and after and len(columns) % 2 == 0):
            cut = Cut(before, count - after, tuple(columns))
            least = across.copy()
            for column in columns:
                index = int(np.searchsorted(sizes[0], column.width))
                least[column.first : column.last] = rows.rows[column.first : column.last, index]
            yield wire_length(cut.regions(least.tolist(), floor)), cut


def _deal(stages: Sequence[PipelineStage], cut: Cut, floor: Floor, bound: int, known: Known) -> Placement | None:
    """Hand out the columns that a cut leaves over, and deal the rows; None if they fit on the grid, but not exactly."""
    rows = [0] * len(stages)
    dealer = Dealer(stages, floor.height, known)
    bands = [*range(cut.first), *range(cut.last, len(stages))]
    for number in bands:
        rows[number] = dealer.least_rows(number, floor.width, bound)
    dealer.height -= sum(rows)
    columns = widen(dealer, cut.columns, floor.width - sum(column.width for column in cut.columns))
    slowest = max(dealer.slowest(column) for column in columns)
    if slowest >= NEVER:
        return None
    slowest = max([slowest, *(int(dealer.cycles(number, floor.width)[rows[number] - 1]) for number in bands)])
    memory_bound = {number for number in bands if dealer.waits(number, floor.width, rows[number], slowest)}
    for column in columns:
        numbers = range(column.first, column.last)
        least = [dealer.least_rows(number, column.width, slowest) for number in numbers]
        memory_bound |= {n for n, r in zip(numbers, least, strict=True) if dealer.waits(n, column.width, r, slowest)}
        fill_rows(least, [dealer.cycles(number, column.width) for number in numbers], dealer.height)
        rows[column.first : column.last] = least
    regions = Cut(cut.first, cut.last, tuple(columns)).regions(rows, floor)
    taken = max(int(stage_cycles(stage, r.width, r.height)) for stage, r in zip(stages, regions, strict=True))
    return Placement(regions, taken, frozenset(memory_bound)) if taken < NEVER else None
