"""A wavelet, and the order of all events."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple


class Wavelet(NamedTuple):
    """32 bits of payload, the color that routes them, and whether routers read them as commands."""

    color: int
    data: int
    control: bool = False


wavelet_of = partial(tuple.__new__, Wavelet)
"""a wavelet of the tuple of its three fields, made without a call of Python code"""

Event = tuple[Callable[..., Any], tuple[Any, ...]]


class Events:
    """Events by cycle. Events of the same cycle happen in the order in which they were asked for.

    One list of events a cycle: most cycles of a busy fabric have many, and a heap of all of them would cost more.
    """

    def __init__(self) -> None:
        self.now = 0
        self.done = 0
        self._cycles: dict[int, list[Event]] = {}
        self._times: list[int] = []
        self._next = 0  # events of the first cycle that have happened

    def at(self, time: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call `action(*arguments)` at `time`, which is not before now."""
        events = self._cycles.get(time)
        if events is None:
            self._cycles[time] = [(action, arguments)]
            heapq.heappush(self._times, time)
        else:
            events.append((action, arguments))

    def put(self, time: int, event: Event) -> None:
        """`at` for an event that is made once, and asked for many times."""
        events = self._cycles.get(time)
        if events is None:
            self._cycles[time] = [event]
            heapq.heappush(self._times, time)
        else:
            events.append(event)

    def first(self, time: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Likewise, at a `time` after now, before all calls of `at` for that time.

        The network moves at the beginning of a cycle, so that PEs see its arrivals in that cycle.
        """
        self.at(time, action, *arguments)
        events = self._cycles[time]
        events.insert(0, events.pop())

    def next_time(self) -> int | None:
        """Time of the next event; None if there is none."""
        while self._times:
            time = self._times[0]
            if time == self.now and self._next >= len(self._cycles[time]):
                heapq.heappop(self._times)
                del self._cycles[time]
                self._next = 0
                continue
            return time
        return None

    def cycle(self) -> bool:
        """Let all events of the next cycle happen; False if there is none."""
        time = self.next_time()
        if time is None:
            return False
        if time != self.now:
            self.now = time
            self._next = 0
        events = self._cycles[time]
        begun = self._next
        # The list grows while it is read: events asked for in this cycle happen in it.
        try:
            for action, arguments in islice(events, begun, None):
                begun += 1
                action(*arguments)
        finally:
            self._next = begun  # right even if an action raises
        self.done += len(events)
        return True
