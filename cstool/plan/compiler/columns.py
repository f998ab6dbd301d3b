"""Placement: how few columns of the wafer a chain of stages takes, one above the other in each.

Sizes are tried on a grid. With a bound on the cycles of every stage, each needs some least rows for every width. So a
column of a width holds the stages i to j if their rows add up to no more than its height; the least width that does is
found for all i and j, and the least sum of widths of k columns that hold the stages up to j from the sum for k - 1.
"""

from dataclasses import dataclass

import numpy as np

from cstool.plan.compiler.stage import IntArray


@dataclass(frozen=True)
class Column:
    """Stages `first` to `last` - 1, one above the other."""

    first: int
    last: int
    width: int


class LeastRows:
    """The rows that stages need to be within a bound.

    Args:
        cycles: of every (stage, width, height) of the grid; more of either never makes them more
    """

    def __init__(self, cycles: IntArray, widths: IntArray, heights: IntArray, bound_cycles: int) -> None:
        self.widths = widths
        within = cycles <= bound_cycles
        self.rows = np.where(within.any(axis=2), heights[within.argmax(axis=2)], heights[-1] + 1)
        self._sums = np.zeros((len(widths), len(cycles) + 1), np.int64)
        np.cumsum(self.rows.T, axis=1, out=self._sums[:, 1:])

    def columns(self, first: int, last: int, width: int, height: int) -> list[Column] | None:
        """Return the fewest columns of a rectangle that hold stages `first` to `last` - 1; None if there is no room."""
        least = self._least_widths(first, last, width, height)
        count = last - first
        narrowest = np.full(count + 1, width + 1, np.int64)
        narrowest[0] = 0
        choices: list[IntArray] = []
        while narrowest[count] > width:
            sums = narrowest[:, None] + least
            choice = sums.argmin(axis=0)
            found = np.minimum(sums[choice, np.arange(count + 1)], width + 1)
            found = np.minimum(found, narrowest)
            if (found == narrowest).all():
                return None
            choices.append(choice)
            narrowest = found
        columns = []
        for choice in reversed(choices):
            start = int(choice[count])
            columns.append(Column(first + start, first + count, int(least[start, count])))
            count = start
        return columns[::-1]

    def _least_widths(self, first: int, last: int, width: int, height: int) -> IntArray:
        """Return the least width of a column that holds stages i to j - 1, more than there is if none does."""
        count = last - first
        sums = self._sums[:, first : last + 1]
        usable = int(np.searchsorted(self.widths, width, side="right"))
        # Sums of all widths one after the other, in one sorted array: a single search finds where columns end.
        apart = np.arange(usable)[:, None] * (int(sums[:usable].max(initial=0)) + height + 1)
        stacked = sums[:usable] + apart
        ends = np.searchsorted(stacked.ravel(), (stacked + height).ravel(), side="right").reshape(stacked.shape)
        ends -= np.arange(usable)[:, None] * (count + 1) + 1
        ends = np.maximum.accumulate(ends, axis=0)
        stages = np.arange(count + 1)
        keys = (ends + stages * (count + 2)).T.ravel()
        found = np.searchsorted(keys, (stages[:, None] * (count + 2) + stages).ravel(), side="left")
        index = found.reshape(count + 1, count + 1) - stages[:, None] * usable
        padded = np.append(self.widths[:usable], width + 1)
        least: IntArray = padded[np.minimum(index, usable)]
        least[np.tril_indices(count + 1)] = width + 1
        return least
