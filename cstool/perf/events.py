"""A discrete-event simulation: tasks that wait for each other and for resources.

A resource serves one task at a time, in the order in which they become ready. A task becomes ready when all that it
waits for has come so far:

- `after` another task: that one has ended, and a lag has passed. A negative lag is what can be done ahead; nobody is
  ready before the other has begun.
- `along` another task: data flows from it while it runs. This one may begin a lag after the other has begun, and cannot
  end before a lag after the other's end. A resource that waits for data is occupied, not busy.

Since no lag leads back in time, tasks become ready in the order in which they are looked at, and one pass over a heap
is exact.

Example: a reader takes 2 s, a sender that begins 1 s after it takes 1 s and waits for the last byte; then comes a task
of 5 s on the reader.

>>> simulation = Simulation()
>>> read = simulation.add("reader", 2.0)
>>> send = simulation.add("link", 1.0, along=[(read, 1.0)])
>>> last = simulation.add("reader", 5.0, after=[(send, 0.0)])
>>> timeline = simulation.run()
>>> [timeline.span(task) for task in (read, send, last)]
[(0.0, 2.0), (1.0, 3.0), (3.0, 8.0)]
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

Edges = Iterable[tuple[int, float]]
"""(task, lag [s])"""


@dataclass(frozen=True)
class Timeline:
    """When tasks ran, by their numbers [s]."""

    starts: list[float]
    ends: list[float]

    def span(self, task: int) -> tuple[float, float]:
        """Return start and end of a task."""
        return self.starts[task], self.ends[task]


@dataclass
class Simulation:
    """Tasks that are added in any order that names only earlier ones, then run once."""

    resources: list[str] = field(default_factory=list)
    """of the tasks, by their numbers"""
    durations: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _after: list[list[tuple[int, float]]] = field(default_factory=list, repr=False)
    _along: list[list[tuple[int, float]]] = field(default_factory=list, repr=False)
    _missing: list[int] = field(default_factory=list, repr=False)

    def add(self, resource: str, seconds: float, name: str = "", *, after: Edges = (), along: Edges = ()) -> int:
        """Add a task, and return its number.

        Args:
            resource: that does it, and nothing else meanwhile
            seconds: of work
            name: for whoever draws it
            after: tasks that must have ended, with lags
            along: tasks that data flows from, with lags

        Raises:
            ValueError: a duration or a flow's lag is negative
        """
        number, edges = len(self.durations), 0
        if seconds < 0:
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
        starts, ends = [0.0] * count, [0.0] * count
        free: dict[str, float] = dict.fromkeys(self.resources, 0.0)
        heap = [(0.0, number) for number in range(count) if not missing[number]]
        while heap:
            when, number = heapq.heappop(heap)
            resource = self.resources[number]
            start = max(when, free[resource])
            end = max(start + self.durations[number], least_end[number])
            starts[number], ends[number], free[resource] = start, end, end
            for other, lag in self._after[number]:
                ready[other] = max(ready[other], start, end + lag)
                missing[other] -= 1
                if not missing[other]:
                    heapq.heappush(heap, (ready[other], other))
            for other, lag in self._along[number]:
                ready[other] = max(ready[other], start + lag)
                least_end[other] = max(least_end[other], end + lag)
                missing[other] -= 1
                if not missing[other]:
                    heapq.heappush(heap, (ready[other], other))
        return Timeline(starts, ends)

    def busy_s(self) -> dict[str, float]:
        """Return the work of each resource, waiting left out [s]."""
        found: dict[str, float] = {}
        for resource, seconds in zip(self.resources, self.durations, strict=True):
            found[resource] = found.get(resource, 0.0) + seconds
        return found
