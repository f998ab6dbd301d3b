"""Placement: a rectangle of the wafer for every stage of a chain, so that the slowest is as fast as can be.

Consecutive stages fill a column of the wafer from its top down, the next from its bottom up, and so on: each region
touches the next. With a bound T on the cycles of every stage, how far the chain gets in columns of given widths is
found exactly: the farther, the better, so R(x), the farthest stage within the first x columns of PEs, is the best
over the width w of the last column, which begins where R(x - w) ended. T is bisected; of the solutions within a
percent or two of the least T the one with the fewest columns is taken, since the way along the chain goes up or down
every one of them. All of it is done for the wafer lying on its side as well.

Widths and heights are tried on a grid of some hundred sizes; then, with the cuts known, PEs that are left over are
handed out and rows are dealt exactly, one breakpoint of the slowest stage after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cstool.ir import Region

NEVER = np.iinfo(np.int64).max // 4
"""cycles of a stage in a region that is too small for it"""
WAYS = (0, 1)
"""a kernel lies in its region one way round, or the other"""
SLOWER = 64
"""a placement may be slower than the fastest found by one part in so many, if its wires are shorter"""
_STEP = {100: 1.02, 1000: 1.05}
"""ratio of neighbouring sizes of the grid, for chains up to so many stages"""
_EXACT = 32
"""sizes up to this are all tried"""
IntArray = npt.NDArray[np.int64]


class Stage(Protocol):
    """What is to be placed. Sizes are numbers or integer arrays that broadcast."""

    @property
    def alike(self) -> Hashable:
        """Equal for stages whose `cycles` and `fixed_bytes` are the same."""
        ...

    @property
    def room_bytes(self) -> int:
        """SRAM of a PE."""
        ...

    def cycles(self, way: int, width: Any, height: Any) -> Any:
        """Return the cycles per sample in such a region, whether or not it fits; more rows are never slower."""
        ...

    def fixed_bytes(self, way: int, width: Any, height: Any) -> Any:
        """Return what the fullest PE holds, without `held_bytes`."""
        ...

    def held_bytes(self, pes: Any) -> Any:
        """Return what each PE holds of the samples in flight, in a region of so many PEs."""
        ...


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
        memory_bound: numbers of the stages whose regions would be smaller, if only their time counted
    """

    regions: tuple[Region, ...]
    bottleneck_cycles: int
    memory_bound: frozenset[int]

    @property
    def wire_pes(self) -> int:
        """Manhattan distances of the centres of consecutive regions, added up and rounded down [PEs]."""
        return wire_length(self.regions)


def wire_length(regions: Sequence[Region]) -> int:
    """Return the Manhattan distances of the centres of consecutive regions, added up and rounded down [PEs]."""
    centres = [(2 * r.x + r.width, 2 * r.y + r.height) for r in regions]
    pairs = zip(centres, centres[1:], strict=False)
    return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in pairs) // 2


def place(stages: Sequence[Stage], width: int, height: int) -> Placement:
    """Give every stage of a chain its region.

    Args:
        stages: in the order of the chain, at least one
        width: of the wafer [PEs]
        height: of the wafer [PEs]

    Raises:
        NoPlacement: they do not fit
    """
    step = next((ratio for most, ratio in _STEP.items() if len(stages) <= most), max(_STEP.values()))
    widths, heights = grid_sizes(width, step), grid_sizes(height, step)
    cycles = _grid_cycles(stages, widths, heights)
    for number, table in enumerate(cycles):
        if table.min() >= NEVER:
            raise NoPlacement(number)
    found = []
    for turned in (False, True):
        floor = _Floor(height, width) if turned else _Floor(width, height)
        tables = cycles.transpose(0, 2, 1) if turned else cycles
        sizes = (heights, widths) if turned else (widths, heights)
        cuts = _cut(tables, *sizes, floor)
        if cuts is not None:
            found.append(_deal(stages, cuts, floor, turned))
    if not found:
        raise NoPlacement(None)
    fastest = min(placement.bottleneck_cycles for placement in found)
    good = [p for p in found if p.bottleneck_cycles <= fastest + fastest // SLOWER]
    return min(good, key=lambda placement: (placement.wire_pes, placement.bottleneck_cycles))


def grid_sizes(most: int, step: float) -> IntArray:
    """Return sizes from 1 to `most`: the small ones all, the others a ratio of `step` apart."""
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, int(sizes[-1] * step)) if sizes[-1] >= _EXACT else sizes[-1] + 1))
    return np.array(sizes, np.int64)


def stage_cycles(stage: Stage, width: Any, height: Any) -> Any:
    """Return the cycles per sample in regions of these sizes, the better way round; NEVER where it does not fit."""
    held = stage.held_bytes(width * height)
    ways = []
    for way in WAYS:
        fits = stage.fixed_bytes(way, width, height) + held <= stage.room_bytes
        ways.append(np.where(fits, stage.cycles(way, width, height), NEVER))
    return np.minimum(ways[0], ways[1])


@dataclass(frozen=True)
class _Floor:
    """What is to be cut into columns."""

    width: int
    height: int


@dataclass(frozen=True)
class _Column:
    """Stages `first` to `last` - 1, one above the other."""

    first: int
    last: int
    width: int


def _grid_cycles(stages: Sequence[Stage], widths: IntArray, heights: IntArray) -> IntArray:
    """Return the cycles of (stage, width, height); more rows never take longer."""
    w, h = np.meshgrid(widths, heights, indexing="ij")
    pes = w * h
    known: dict[Hashable, list[tuple[IntArray, IntArray]]] = {}
    tables = np.empty((len(stages), len(widths), len(heights)), np.int64)
    for number, stage in enumerate(stages):
        if (alike := known.get(stage.alike)) is None:
            alike = [(stage.cycles(way, w, h), stage.fixed_bytes(way, w, h)) for way in WAYS]
            known[stage.alike] = alike
        free = stage.room_bytes - stage.held_bytes(pes)
        ways = [np.where(fixed <= free, cycles, NEVER) for cycles, fixed in alike]
        tables[number] = np.minimum(ways[0], ways[1])
    return tables


def _cut(cycles: IntArray, widths: IntArray, heights: IntArray, floor: _Floor) -> list[_Column] | None:
    """Return the columns: the fewest with which the slowest stage is all but as fast as it can be."""
    # The rows that the grid leaves out count as the next size that it has.
    low, high = 0, int(cycles[cycles < NEVER].max())
    best = _columns(cycles, widths, heights, floor, high)
    if best is None:
        return None
    while high - low > max(1, low // 256):
        middle = (low + high) // 2 if high < 4 * low else max(1, high // 4)
        if low >= middle:
            middle = (low + high) // 2
        found = _columns(cycles, widths, heights, floor, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return _columns(cycles, widths, heights, floor, high + high // SLOWER) or best


def _columns(cycles: IntArray, widths: IntArray, heights: IntArray, floor: _Floor, bound: int) -> list[_Column] | None:
    """Return the fewest columns in which no stage takes more than `bound` cycles; None if there is no room."""
    count = len(cycles)
    fast = cycles <= bound
    first = fast.argmax(axis=2)
    rows = np.where(fast.any(axis=2), heights[first], floor.height + 1)
    # reach[w, i] is the stage after the last in a column of width w that begins with stage i.
    sums = np.concatenate([np.zeros((1, len(widths)), np.int64), np.cumsum(rows, axis=0)])
    reach = np.stack(
        [np.searchsorted(sums[:, n], sums[:, n] + floor.height, side="right") - 1 for n in range(len(widths))]
    )
    farthest = [np.zeros(floor.width + 1, np.int64)]
    chosen: list[IntArray] = []
    while farthest[-1][-1] < count:
        before, after = farthest[-1], farthest[-1].copy()
        choice = np.zeros(floor.width + 1, np.int64)
        for number, width in enumerate(widths):
            got = reach[number, before[: floor.width + 1 - width]]
            better = got > after[width:]
            after[width:][better] = got[better]
            choice[width:][better] = width
        if (after == before).all():
            return None
        farthest.append(after)
        chosen.append(choice)
    # The narrowest that takes all; what is left is handed out afterwards.
    x, last = int((farthest[-1] >= count).argmax()), count
    columns: list[_Column] = []
    for before, choice in zip(reversed(farthest[:-1]), reversed(chosen), strict=True):
        if not (width := int(choice[x])):
            continue
        x -= width
        columns.append(_Column(int(before[x]), last, width))
        last = int(before[x])
    return columns[::-1]


class _Dealer:
    """Deals the rows of a column to its stages, for every width that is asked for."""

    def __init__(self, stages: Sequence[Stage], floor: _Floor) -> None:
        self.stages, self.floor = stages, floor
        self._rows = np.arange(1, floor.height + 1)
        self._known: dict[tuple[int, int], IntArray] = {}

    def cycles(self, stage: int, width: int) -> IntArray:
        """Return the cycles of a stage by its rows, from 1 up; more rows never take longer."""
        if (stage, width) not in self._known:
            exact = stage_cycles(self.stages[stage], np.int64(width), self._rows)
            self._known[stage, width] = np.minimum.accumulate(exact)
        return self._known[stage, width]

    def deal(self, column: _Column) -> list[int] | None:
        """Return the rows of each stage such that the slowest is fastest; None if they do not fit."""
        tables = [self.cycles(number, column.width) for number in range(column.first, column.last)]
        rows = [int((table < NEVER).argmax()) + 1 for table in tables]
        if any(table[-1] >= NEVER for table in tables) or sum(rows) > self.floor.height:
            return None
        free = self.floor.height - sum(rows)
        slowest = [(-int(table[count - 1]), n) for n, (table, count) in enumerate(zip(tables, rows, strict=True))]
        heapq.heapify(slowest)
        while slowest:
            cycles, number = slowest[0]
            table = tables[number]
            # The fewest rows with which it is faster than now.
            more = int(np.searchsorted(-table, cycles, side="right")) + 1 - rows[number]
            if more > free or rows[number] + more > self.floor.height:
                break
            rows[number] += more
            free -= more
            heapq.heapreplace(slowest, (-int(table[rows[number] - 1]), number))
        return rows

    def slowest(self, column: _Column) -> int:
        """Return the cycles of the slowest stage of a column."""
        rows = self.deal(column)
        if rows is None:
            return NEVER
        return max(int(self.cycles(column.first + n, column.width)[count - 1]) for n, count in enumerate(rows))


def _deal(stages: Sequence[Stage], columns: Sequence[_Column], floor: _Floor, turned: bool) -> Placement:
    """Hand out what the cut leaves over, and deal the rows."""
    dealer = _Dealer(stages, floor)
    columns = _widen(dealer, columns, floor.width - sum(column.width for column in columns))
    bound = max(dealer.slowest(column) for column in columns)
    regions: list[Region] = []
    memory_bound = set()
    x = 0
    for index, column in enumerate(columns):
        rows = []
        for number in range(column.first, column.last):
            table = dealer.cycles(number, column.width)
            rows.append(int((table <= bound).argmax()) + 1)
            if rows[-1] > 1 and table[rows[-1] - 2] >= NEVER:
                memory_bound.add(number)
        _fill(rows, [dealer.cycles(n, column.width) for n in range(column.first, column.last)], floor.height)
        y = 0
        stacked = []
        for count in rows if index % 2 == 0 else reversed(rows):
            stacked.append(Region(x, y, column.width, count))
            y += count
        regions += stacked if index % 2 == 0 else reversed(stacked)
        x += column.width
    if turned:
        regions = [Region(r.y, r.x, r.height, r.width) for r in regions]
    return Placement(tuple(regions), bound, frozenset(memory_bound))


def _widen(dealer: _Dealer, columns: Sequence[_Column], free: int) -> list[_Column]:
    """Hand out columns of PEs, then move some, as long as the slowest stage gains."""
    columns = list(columns)
    slowest = [dealer.slowest(column) for column in columns]

    def wider(index: int, by: int) -> _Column:
        column = columns[index]
        return _Column(column.first, column.last, column.width + by)

    while free:
        index = max(range(len(columns)), key=lambda n: slowest[n])
        by = max(1, free // (2 * len(columns)))
        columns[index] = wider(index, by)
        slowest[index] = dealer.slowest(columns[index])
        free -= by
    for _ in range(8 * len(columns)):
        index, giver = (choose(range(len(columns)), key=lambda n: slowest[n]) for choose in (max, min))
        if columns[giver].width == 1:
            break
        taken, given = wider(index, 1), wider(giver, -1)
        times = dealer.slowest(taken), dealer.slowest(given)
        if max(times) >= slowest[index]:
            break
        columns[index], columns[giver] = taken, given
        slowest[index], slowest[giver] = times
    return columns


def _fill(rows: list[int], tables: Sequence[IntArray], height: int) -> None:
    """Give every row that is left to a stage: first where it changes nothing, then evenly."""
    free = height - sum(rows)
    for index, table in enumerate(tables):
        same = int(np.searchsorted(-table, -table[rows[index] - 1], side="right"))
        more = min(free, same - rows[index])
        rows[index] += more
        free -= more
    for index in range(len(rows)):
        more = -(-free // (len(rows) - index))
        rows[index] += more
        free -= more
