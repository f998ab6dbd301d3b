"""Free amounts of a machine over time, as far as is known: a staircase that jobs are fitted into."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

Amounts = tuple[int, int, int, int]
"""cores, memory [bytes], disk [bytes], systems"""
NOTHING: Amounts = (0, 0, 0, 0)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Return the sums."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def minus(one: Amounts, other: Amounts) -> Amounts:
    """Return the differences."""
    return one[0] - other[0], one[1] - other[1], one[2] - other[2], one[3] - other[3]


def fits(amounts: Amounts, free: Amounts) -> bool:
    """Whether there is enough of each."""
    return amounts[0] <= free[0] and amounts[1] <= free[1] and amounts[2] <= free[2] and amounts[3] <= free[3]


class Profile:
    """Free amounts from now on; times are readings of the caller's clock [s], `math.inf` is never.

    Args:
        now: its beginning
        free: amounts that are free for ever, before anything is taken
    """

    def __init__(self, now: float, free: Amounts) -> None:
        self._times = [now]
        self._free = [free]  # each from its time until the next one; the last for ever

    def place(self, amounts: Amounts, seconds: float) -> float:
        """Return the earliest time from which amounts are free for a duration; `math.inf` where there is none."""
        cores, memory, disk, systems = amounts  # and not `fits`: this is where planning a long queue takes its time
        last = len(self._times) - 1
        begin: float | None = None
        for index, free in enumerate(self._free):
            if cores > free[0] or memory > free[1] or disk > free[2] or systems > free[3]:
                begin = None
                continue
            if begin is None:
                begin = self._times[index]
            if index == last or self._times[index + 1] >= begin + seconds:
                return begin
        return inf

    def lack(self, amounts: Amounts, seconds: float) -> tuple[float, int] | None:
        """Return time and index of the first amount that is lacking, from now on for a duration; None where none is."""
        end = self._times[0] + seconds
        for time, free in zip(self._times, self._free, strict=True):
            if time >= end:
                break
            for which in range(4):
                if amounts[which] > free[which]:
                    return time, which
        return None

    def take(self, amounts: Amounts, begin: float, end: float) -> None:
        """Take amounts from one time to another, even where they are not free."""
        first, after = self._steps(begin, end)
        for index in range(first, after):
            self._free[index] = minus(self._free[index], amounts)

    def keep(self, amounts: Amounts, begin: float, end: float) -> None:
        """Take up to these amounts from one time to another: no more than is free."""
        first, after = self._steps(begin, end)
        for index in range(first, after):
            cores, memory, disk, systems = self._free[index]
            self._free[index] = (
                cores - max(0, min(cores, amounts[0])),
                memory - max(0, min(memory, amounts[1])),
                disk - max(0, min(disk, amounts[2])),
                systems - max(0, min(systems, amounts[3])),
            )

    def _steps(self, begin: float, end: float) -> tuple[int, int]:
        """Return the number of the first step of a stretch of time, and of the first after it."""
        begin = max(begin, self._times[0])
        if end <= begin:
            return 0, 0
        return self._step(begin), self._step(end)

    def _step(self, time: float) -> int:
        """Return the number of the step that begins at a time; make one where there is none."""
        index = bisect_left(self._times, time)
        if time != inf and (index == len(self._times) or self._times[index] != time):
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1])
        return index
