"""The page's view of jobs and of the appliance: rows of plain values, for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from cstool.appliance.queue.job import QUEUED, Event, Job
from cstool.foundation.plain_text import one_line

MOST_ACTIVE, MOST_ENDED = 1000, 200
"""jobs that the page lists"""


def job_rows(active: Sequence[Job], ended: Sequence[Job], *, tells_why: bool = True) -> list[dict[str, Any]]:
    """Return the rows of the table: running jobs, then waiting jobs in their order, then the latest ended ones.

    Args:
        tells_why: see `job_row`
    """
    waiting = sorted((job for job in active if job.phase == QUEUED), key=lambda job: (job.priority, job.number))
    others = sorted((job for job in active if job.phase != QUEUED), key=lambda job: job.number)
    rows = [job_row(job, None, tells_why=tells_why) for job in others]
    rows += [job_row(job, position, tells_why=tells_why) for position, job in enumerate(waiting, 1)]
    rows = rows[:MOST_ACTIVE]
    latest = sorted(ended, key=lambda job: (job.ended_at or 0.0, job.number), reverse=True)
    return rows + [job_row(job, None, tells_why=tells_why) for job in latest[:MOST_ENDED]]


def job_row(job: Job, position: int | None, *, tells_why: bool = True) -> dict[str, Any]:
    """Return a row of the table, which all viewers may see.

    Args:
        position: among the waiting jobs; None for others
        tells_why: whether to say why a job ended, which may be a line of its log
    """
    return {
        "name": job.name,
        "position": position,
        "phase": job.phase,
        "stage": job.stage,
        "priority": job.priority,
        "systems": job.needs.systems,
        "cores": job.needs.cores,
        "user": one_line(job.user),
        "model": one_line(job.model),
        "mode": job.mode,
        "labels": {one_line(key): one_line(value) for key, value in job.labels.items()},
        "note": one_line(job.note),
        "reason": one_line(job.reason) if tells_why or job.phase == QUEUED else "",
        "asked": job.asked,
        "cpus": list(job.cpus),
        "restarts": job.restarts,
        "submitted_at": _time(job.submitted_at),
        "started_at": _time(job.started_at),
        "ended_at": _time(job.ended_at),
        "expected_start": _time(job.expected_start),
        "expected_end": _time(job.expected_end),
    }


def needs_rows(job: Job) -> dict[str, Any]:
    """Return the needs of a job, their sources, and its peak memory."""
    return {**dataclasses.asdict(job.needs), "peak_bytes": job.peak_bytes}


def event_rows(events: Iterable[Event], *, tells_why: bool = True) -> list[dict[str, Any]]:
    """Return events for a list, the oldest first.

    Args:
        tells_why: whether to give their texts; see `job_row`
    """
    return [
        {"number": e.number, "at": _time(e.at), "kind": e.kind, "text": one_line(e.text) if tells_why else ""}
        for e in events
    ]


def _time(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
