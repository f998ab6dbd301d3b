"""Placement: left-over columns are handed out, and rows are dealt exactly, the slowest stage first."""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from cstool.plan.compiler.columns import Column
from cstool.plan.compiler.stage import NEVER, WAYS, IntArray, Known, PipelineStage, either_way, fitting_cycles

BLOCK = 8
"""widths that are computed at a time: when a width is asked for, its neighbours often are"""


class Dealer:
    """Deals the rows of a column to its stages, for every width that is asked for."""

    def __init__(self, stages: Sequence[PipelineStage], height: int, columns: Known) -> None:
        self.stages, self.height, self._columns = stages, height, columns
        self._rows = np.arange(1, height + 1)
        self._known: dict[tuple[int, int], IntArray] = {}

    def cycles(self, stage: int, width: int) -> IntArray:
        """Return the cycles of a stage by its rows, from 1 up; more rows never take longer."""
        if (stage, width) not in self._known:
            each = self.stages[stage]
            block, place = divmod(width, BLOCK)
            alike = each.alike, block, len(self._rows)
            if alike not in self._columns:
                widths = np.arange(max(1, block * BLOCK), (block + 1) * BLOCK)
                self._columns[alike] = either_way(each, widths[:, None], self._rows)
            place -= block == 0
            ways = [tuple(_row(size, place) for size in way) for way in self._columns[alike]]
            self._known[stage, width] = np.minimum.accumulate(fitting_cycles(each, ways, width * self._rows))
        return self._known[stage, width]

    def least_rows(self, stage: int, width: int, bound: int) -> int:
        """Return the rows with which a stage takes no more than `bound` cycles, which some number of rows does."""
        return int((self.cycles(stage, width) <= bound).argmax()) + 1

    def waits(self, stage: int, width: int, rows: int, bound: int) -> bool:
        """Say whether a stage has more rows than its time asks for."""
        return rows > 1 and min(int(self.stages[stage].cycles(way, width, rows - 1)) for way in WAYS) <= bound

    def deal(self, column: Column) -> list[int] | None:
        """Return the rows of each stage such that the slowest is fastest; None if they do not fit."""
        tables = [self.cycles(number, column.width) for number in range(column.first, column.last)]
        rows = [int((table < NEVER).argmax()) + 1 for table in tables]
        if any(table[-1] >= NEVER for table in tables) or sum(rows) > self.height:
            return None
        free = self.height - sum(rows)
        # Negated, they rise.
        rising = [-table for table in tables]
        slowest = [(int(table[count - 1]), n) for n, (table, count) in enumerate(zip(rising, rows, strict=True))]
        heapq.heapify(slowest)
        while slowest:
            cycles, number = slowest[0]
            table = rising[number]
            # The fewest rows with which it is faster than now.
            more = int(table.searchsorted(cycles, side="right")) + 1 - rows[number]
            if more > free or rows[number] + more > self.height:
                break
            rows[number] += more
            free -= more
            heapq.heapreplace(slowest, (int(table[rows[number] - 1]), number))
        return rows

    def slowest(self, column: Column) -> int:
        """Return the cycles of the slowest stage of a column."""
        rows = self.deal(column)
        if rows is None:
            return NEVER
        return max(int(self.cycles(column.first + n, column.width)[count - 1]) for n, count in enumerate(rows))


def _row(table: Any, number: int) -> Any:
    """Return one row of a table, whose rows may be one for all, or a number."""
    return table[min(number, len(table) - 1)] if isinstance(table, np.ndarray) and table.ndim == 2 else table


def widen(dealer: Dealer, columns: Sequence[Column], free: int) -> list[Column]:
    """Hand out columns of PEs, then move some, as long as the slowest stage gains."""
    columns = list(columns)
    slowest = [dealer.slowest(column) for column in columns]

    def wider(index: int, by: int) -> Column:
        column = columns[index]
        return Column(column.first, column.last, column.width + by)

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


def fill_rows(rows: list[int], tables: Sequence[IntArray], height: int) -> None:
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
