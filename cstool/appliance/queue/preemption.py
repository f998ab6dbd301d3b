"""Choice of running jobs to stop for a waiting one: the fewest, and of these the least important."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from cstool.appliance.queue.profile import NOTHING, Amounts, fits, minus

Suffices = Callable[[Sequence[int]], bool]
MOST_STEPS, MOST_TRIES = 5_000, 50
"""limits of the search for the fewest, in steps of its own and in questions; then it is content with few"""


def fewest(lacking: Amounts, gains: Sequence[Amounts], suffices: Suffices) -> tuple[int, ...]:
    """Choose as few as possible; of choices of that size, take the one whose last member comes first.

    It is exact while that is a matter of milliseconds: `MOST_STEPS`, `MOST_TRIES`. Beyond, no member of the choice can
    be spared, but there may be a smaller one.

    Args:
        lacking: amounts that the chosen must have together
        gains: amounts of each candidate; preferred candidates come first
        suffices: whether a choice is enough; more of them are never worse

    Returns:
        numbers of the chosen candidates, in order; empty where all together are not enough
    """
    everyone = range(len(gains))
    if not gains or not suffices(everyone):
        return ()
    search = _Search(gains)
    for size in range(1, len(gains) + 1):
        for chosen in search.sets(size, len(gains), lacking):
            search.tries += 1
            if suffices(chosen):
                return chosen
            if search.is_over:
                break
        if search.is_over:
            break
    return _few(len(gains), suffices)


class _Search:
    """A search through sets of gains, until it took too long."""

    def __init__(self, gains: Sequence[Amounts]) -> None:
        self._gains = gains
        self._most = list(accumulate(gains, _larger, initial=NOTHING))  # of each, among the first 0, 1, 2, ...
        self._steps = 0
        self.tries = 0

    @property
    def is_over(self) -> bool:
        return self._steps >= MOST_STEPS or self.tries >= MOST_TRIES

    def sets(self, size: int, below: int, lacking: Amounts) -> Iterator[tuple[int, ...]]:
        """Yield sets among the first gains that cover the lack: by their last number, then by the one before."""
        if size == 0:
            if fits(lacking, NOTHING):
                yield ()
            return
        cores, memory, disk, systems = self._most[below]
        if not fits(lacking, (size * cores, size * memory, size * disk, size * systems)):
            return
        for last in range(size - 1, below):
            self._steps += 1
            if self.is_over:
                return
            for others in self.sets(size - 1, last, minus(lacking, self._gains[last])):
                yield (*others, last)


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _few(count: int, suffices: Suffices) -> tuple[int, ...]:
    """Choose the first ones, as many as needed, without superfluous ones, the last one first."""
    chosen = list(range(bisect_left(range(count), True, key=lambda most: suffices(range(most)))))
    for number in reversed(tuple(chosen)):
        others = [each for each in chosen if each != number]
        if suffices(others):
            chosen = others
    return tuple(chosen)
