"""What travels: a wavelet, and the order of everything that happens."""

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple


class Wavelet(NamedTuple):
    """32 bits of payload, the color that routes them, and whether routers read them as commands."""

    color: int
    data: int
    control: bool = False


_FIRST = 1 << 62
"""more than there will ever be events"""


class Events:
    """What happens when, in cycles. What happens in the same cycle happens in the order in which it was asked for.

    `first` comes before all that: the network moves at the beginning of a cycle, so PEs see what has come in it.
    """

    def __init__(self) -> None:
        self.now = 0
        self.done = 0
        self._number = 0
        self._heap: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []

    def at(self, time: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call `action(*arguments)` at `time`, which is not before now."""
        self._number += 1
        heapq.heappush(self._heap, (time, self._number, action, arguments))

    def first(self, time: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Likewise, but before everything that `at` was asked for at that time."""
        self._number += 1
        heapq.heappush(self._heap, (time, self._number - _FIRST, action, arguments))

    def next_time(self) -> int | None:
        """When the next event is; None if nothing is left to happen."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Let one event happen; False if there is none."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heapq.heappop(self._heap)
        self.done += 1
        action(*arguments)
        return True
