"""Use of the cores by jobs over time: from the events of the queue, and from expected times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from cstool.appliance.queue.job import (
    COMPILE,
    COMPILE_STARTED,
    EXECUTE,
    PHASE_AFTER,
    QUEUED,
    RUNNING,
    STARTED,
    Event,
    Job,
)

MOST_SPANS = 1000

_BEGINS = {STARTED: EXECUTE, COMPILE_STARTED: COMPILE}
"""kinds of events that begin a stage; the next one that tells a phase ends it"""


@dataclass
class Span:
    """A job had a part of the machine, or is expected to.

    Args:
        job: its name
        stage: `COMPILE` or `EXECUTE`
        begin, end: [s since 1970]; end: None while it goes on, or where unknown
        cpus: the cores
        memory_bytes: that were set aside for it
        how: kind of the event that ended it; "" while it goes on; "expected"
    """

    job: str
    stage: str
    begin: float
    end: float | None
    cpus: tuple[int, ...]
    memory_bytes: int
    how: str = ""


class Timeline:
    """Spans of all jobs, the latest `MOST_SPANS` of them, from events in their order."""

    def __init__(self) -> None:
        self.last = 0
        """number of the last event that was seen"""
        self._open: dict[str, Span] = {}
        self._spans: list[Span] = []

    def add(self, events: Iterable[Event]) -> None:
        """Add events, all later than the earlier ones."""
        for event in events:
            self.last = max(self.last, event.number)
            if event.kind in PHASE_AFTER:
                if (span := self._open.pop(event.job, None)) is not None:
                    span.end, span.how = event.at, event.kind
                if event.kind in _BEGINS:
                    self._begin(event)
        del self._spans[:-MOST_SPANS]

    def spans(self) -> list[Span]:
        """Return them, in the order in which they began."""
        return list(self._spans)

    def _begin(self, event: Event) -> None:
        cpus, memory = event.data.get("cpus"), event.data.get("memory_bytes")
        span = Span(
            event.job,
            _BEGINS[event.kind],
            event.at,
            None,
            tuple(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list | tuple) else (),
            memory if isinstance(memory, int) else 0,
        )
        self._open[event.job] = span
        self._spans.append(span)


def expected_spans(jobs: Sequence[Job], cpus: Sequence[int], most: int = MOST_SPANS) -> list[Span]:
    """Return where jobs that wait are expected to run.

    Their cores are unknown before the start: each job is shown on the cores that are free the longest by then.

    Args:
        jobs: all jobs that have not ended
        cpus: all cores of the appliance
        most: spans; the first ones count
    """
    free_at = dict.fromkeys(cpus, 0.0)
    for job in jobs:
        if job.phase == RUNNING:
            free_at |= dict.fromkeys(job.cpus, inf if job.expected_end is None else job.expected_end)
    found = []
    waiting = [(job.expected_start, job.number, job) for job in jobs if job.phase == QUEUED and job.expected_start]
    for begin, _, job in sorted(waiting)[:most]:
        by_time = sorted(free_at, key=lambda cpu: (free_at[cpu] > begin + 1.0, free_at[cpu], cpu))
        chosen, end = tuple(sorted(by_time[: job.needs.cores])), job.expected_end
        found.append(Span(job.name, EXECUTE, begin, end, chosen, job.needs.memory_bytes, "expected"))
        free_at |= dict.fromkeys(chosen, inf if end is None else end)
    return found


def span_row(span: Span) -> dict[str, Any]:
    """Return a span for the page; its times are rounded."""
    end = None if span.end is None else round(span.end, 2)
    return {**asdict(span), "begin": round(span.begin, 2), "end": end}
