"""Jobs of the queue as the schedule sees them."""

from __future__ import annotations

from collections.abc import Iterable

from cstool.appliance.queue.job import EXECUTE, QUEUED, RUNNING, Capacity, Job
from cstool.appliance.queue.schedule import Holding, Plan, Waiting, plan

PLANNED_AT_MOST = 300
"""number of jobs that are planned for; the start of jobs behind them is too uncertain"""


def plan_jobs(now: float, capacity: Capacity, jobs: Iterable[Job]) -> Plan:
    """Plan the jobs that execute and the jobs that wait to execute.

    Args:
        now: by the clock [s since 1970]
        capacity: of the appliance
        jobs: all that have not ended, the most urgent first
    """
    jobs = [*jobs]
    running = [_holding(job) for job in jobs if job.phase == RUNNING]
    waiting = [_waiting(job) for job in jobs if job.phase == QUEUED and job.stage == EXECUTE]
    return plan(now, capacity, running, waiting[:PLANNED_AT_MOST])


def _holding(job: Job) -> Holding:
    """A job that runs, as the schedule sees it."""
    return Holding(
        name=job.name,
        priority=job.priority,
        number=job.number,
        needs=job.needs,
        cpus=job.cpus,
        expected_end=job.expected_end,
        preemptible=job.preemptible,
        is_stopping=bool(job.asked),
    )


def _waiting(job: Job) -> Waiting:
    """A job that waits, as the schedule sees it."""
    return Waiting(name=job.name, priority=job.priority, number=job.number, needs=job.needs, preempts=job.preempts)
