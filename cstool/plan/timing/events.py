"""A discrete-event simulation: tasks that wait for each other and for resources.

A resource serves one task at a time, in the order in which they become ready. A task becomes ready when all that it
waits for has come so far:

- `after` another task: that one has ended, and a lag has passed. A negative lag allows work ahead; no task is
  ready before the other has begun.
- `along` another task: data flows from it while it runs. This one may begin a lag after the other has begun, and cannot
  end before a lag after the other's end. A resource that waits for data is occupied, not busy.

Since no lag leads back in time, tasks become ready in the order in which they are looked at, and one pass over a heap
is exact.

The time of a span is explained by going back from its end, each time to the latest cause: the work of
the task itself, or the event it waited for. So every moment counts once, and the parts add up.

Example: a reader takes 2 s, a sender that begins 1 s after it takes 1 s and waits for the last byte; then comes a task
of 5 s on the reader.

>>> simulation = Simulation()
>>> read = simulation.add("reader", 2.0)
>>> send = simulation.add("link", 1.0, along=[(read, 1.0)])
>>> last = simulation.add("reader", 5.0, after=[(send, 0.0)])
>>> timeline = simulation.run()
>>> [timeline.span(task) for task in (read, send, last)]
[(0.0, 2.0), (1.0, 3.0), (3.0, 8.0)]

The link ends 1 s after the reader, so of the 8 s it is the reader that 7 were spent on:

>>> simulation.spent(timeline, last)
{'reader': 7.0, 'lag': 1.0}
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Edges = Iterable[tuple[int, float]]
"""(task, lag [s])"""
LAG = "lag"
"""name of the time that passes between two tasks"""


class _Cause(NamedTuple):
    """The cause of a moment: another task, `lag` seconds after its end, or after its start."""

    task: int
    lag: float
    is_end: bool


_NOTHING = _Cause(-1, 0.0, is_end=False)


@dataclass(frozen=True)
class Timeline:
    """Times of tasks, by their numbers [s], and the last event that each waited for."""

    starts: list[float]
    ends: list[float]
    start_causes: list[_Cause] = field(repr=False)
    end_causes: list[_Cause] = field(repr=False)
    """causes of the ends of tasks that ended later than their work took"""

    def span(self, task: int) -> tuple[float, float]:
        """Return start and end of a task."""
        return self.starts[task], self.ends[task]


@dataclass
class Simulation:
    """Tasks that are added in any order that names only earlier ones, then run once.

    Durations may be arrays, of many simulations that differ in nothing else: see `ends_of_lanes`.
    """

    resources: list[str] = field(default_factory=list)
    """resources of the tasks, by their numbers"""
    durations: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _after: list[list[tuple[int, float]]] = field(default_factory=list, repr=False)
    _along: list[list[tuple[int, float]]] = field(default_factory=list, repr=False)
    _missing: list[int] = field(default_factory=list, repr=False)

    def add(self, resource: str, seconds: Any, name: str = "", *, after: Edges = (), along: Edges = ()) -> int:
        """Add a task, and return its number.

        Args:
            resource: that does it, and nothing else meanwhile
            seconds: of work; a number, or an array (lanes,)
            name: for drawings
            after: tasks that must have ended, with lags
            along: tasks that data flows from, with lags

        Raises:
            ValueError: a duration or a flow's lag is negative
        """
        number, edges = len(self.durations), 0
        if isinstance(seconds, (int, float)) and seconds < 0:
            raise ValueError(f"a task of {seconds} s")
        for other, lag in after:
            self._after[other].append((number, lag))
            edges += 1
        for other, lag in along:
            if lag < 0:
                raise ValueError(f"a flow that arrives {-lag} s before it leaves")
            self._along[other].append((number, lag))
            edges += 1
        self.resources.append(resource)
        self.durations.append(seconds)
        self.names.append(name)
        self._after.append([])
        self._along.append([])
        self._missing.append(edges)
        return number

    def run(self) -> Timeline:
        """Return when every task ran."""
        count = len(self.durations)
        missing = self._missing.copy()
        ready, least_end = [0.0] * count, [0.0] * count
        ready_for, least_end_for = [_NOTHING] * count, [_NOTHING] * count
        starts, ends = [0.0] * count, [0.0] * count
        free: dict[str, tuple[float, _Cause]] = dict.fromkeys(self.resources, (0.0, _NOTHING))
        heap = [(0.0, number) for number in range(count) if not missing[number]]

        def arrived(other: int) -> None:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(heap, (ready[other], other))

        while heap:
            when, number = heapq.heappop(heap)
            resource = self.resources[number]
            is_free, since = free[resource]
            if is_free > when:
                ready_for[number] = since
                when = is_free
            worked = when + self.durations[number]
            end = least_end[number]
            if end <= worked:
                end, least_end_for[number] = worked, _NOTHING
            starts[number], ends[number] = when, end
            free[resource] = end, _Cause(number, 0.0, is_end=True)
            for other, lag in self._after[number]:
                moment = end + lag
                if moment > when:
                    if moment > ready[other]:
                        ready[other], ready_for[other] = moment, _Cause(number, lag, is_end=True)
                elif when > ready[other]:
                    ready[other], ready_for[other] = when, _Cause(number, 0.0, is_end=False)
                arrived(other)
            for other, lag in self._along[number]:
                if (moment := end + lag) > least_end[other]:
                    least_end[other], least_end_for[other] = moment, _Cause(number, lag, is_end=True)
                if (moment := when + lag) > ready[other]:
                    ready[other], ready_for[other] = moment, _Cause(number, lag, is_end=False)
                arrived(other)
        return Timeline(starts, ends, ready_for, least_end_for)

    def ends_of_lanes(self) -> list[Any]:
        """Return when every task ended, for many simulations at once, which differ in durations alone.

        A resource serves the tasks of all lanes in the order that the first lane has. Another lane may have another
        one, if it were run alone.

        Returns:
            By the numbers of tasks, numbers or arrays (lanes,) [s]
        """
        count = len(self.durations)
        missing = self._missing.copy()
        ready: list[Any] = [0.0] * count
        least_end: list[Any] = [0.0] * count
        ends: list[Any] = [0.0] * count
        free: dict[str, Any] = dict.fromkeys(self.resources, 0.0)
        heap = [(0.0, number) for number in range(count) if not missing[number]]

        def arrived(other: int) -> None:
            missing[other] -= 1
            if not missing[other]:
                when = ready[other]
                heapq.heappush(heap, (when if isinstance(when, float) else float(when[0]), other))

        while heap:
            _, number = heapq.heappop(heap)
            resource = self.resources[number]
            when = _later(ready[number], free[resource])
            end = _later(when + self.durations[number], least_end[number])
            ends[number] = free[resource] = end
            for other, lag in self._after[number]:
                if lag < 0:
                    moment = when if lag == -math.inf else np.maximum(end + lag, when)
                else:
                    moment = end + lag if lag else end
                ready[other] = _later(ready[other], moment)
                arrived(other)
            for other, lag in self._along[number]:
                least_end[other] = _later(least_end[other], end + lag if lag else end)
                ready[other] = _later(ready[other], when + lag if lag else when)
                arrived(other)
        return ends

    def spent(self, timeline: Timeline, last: int, since: float = 0.0) -> dict[str, float]:
        """Time up to the end of a task by cause: resource, or `LAG` -> seconds; they add up.

        Args:
            timeline: of these tasks
            last: the task
            since: from when on [s]
        """
        found: dict[str, float] = {}
        moment, task = timeline.ends[last], last

        def back_to(earlier: float, what: str) -> float:
            if (seconds := moment - max(earlier, since)) > 0:
                found[what] = found.get(what, 0.0) + seconds
            return min(moment, max(earlier, since))

        while moment > since and task >= 0:
            cause = timeline.end_causes[task]
            if cause.task < 0 or moment <= timeline.starts[task]:
                moment = back_to(timeline.starts[task], self.resources[task])
                cause = timeline.start_causes[task]
            task = cause.task
            if task >= 0:
                # With a negative lag, the cause lies in the middle of the other task: no time lies between.
                moment = back_to(moment - max(cause.lag, 0.0) if cause.is_end else timeline.starts[task], LAG)
        return found

    def busy_s(self) -> dict[str, float]:
        """Return the work of each resource, waiting left out [s]."""
        found: dict[str, float] = {}
        for resource, seconds in zip(self.resources, self.durations, strict=True):
            found[resource] = found.get(resource, 0.0) + seconds
        return found


def _later(one: Any, other: Any) -> Any:
    """Return the later of two moments, numbers or arrays, none before 0."""
    if isinstance(one, float):
        if isinstance(other, float):
            return max(one, other)
        return np.maximum(one, other) if one else other
    return np.maximum(one, other) if not isinstance(other, float) or other else one
