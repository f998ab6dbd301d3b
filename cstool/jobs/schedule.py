"""Which jobs start now, on which cores, which are stopped for others, and when the rest is expected to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cstool.jobs.job import Capacity, Needs


@dataclass(frozen=True)
class Waiting:
    """A job that is ready to execute.

    Args:
        name: of the job
        priority: one of `job.PRIORITIES`
        number: counts up; of two with the same priority the smaller one is first
        needs: what it takes while it executes
        preempts: whether running jobs of a lower priority may be stopped for it
    """

    name: str
    priority: str
    number: int
    needs: Needs
    preempts: bool = False


@dataclass(frozen=True)
class Holding:
    """A job that executes.

    Args:
        name, priority, number, needs: as of `Waiting`
        cpus: numbers of the cores that it is pinned to
        expected_end: when it ends, as far as anybody knows [s, by the clock of `plan`'s now]; None where nobody does
        preemptible: whether it may be stopped for another job: it goes on later from where it was
        is_stopping: whether it was asked to end, for whatever reason
    """

    name: str
    priority: str
    number: int
    needs: Needs
    cpus: tuple[int, ...]
    expected_end: float | None = None
    preemptible: bool = True
    is_stopping: bool = False


@dataclass(frozen=True)
class Plan:
    """What `plan` found.

    Args:
        starts: (name, cores that it is pinned to) of each job that starts now, first things first
        preempts: names of running jobs to stop
        expected: name of each waiting job -> when it starts, when it ends [s]; None where nobody knows
        reasons: name of each waiting job that does not start now -> why not, in a line
    """

    starts: tuple[tuple[str, tuple[int, ...]], ...]
    preempts: tuple[str, ...]
    expected: Mapping[str, tuple[float | None, float | None]]
    reasons: Mapping[str, str]


def plan(now: float, capacity: Capacity, running: Sequence[Holding], waiting: Sequence[Waiting]) -> Plan:
    """Plan what happens now; the order of the lists does not matter."""
    raise NotImplementedError


def check_fits(needs: Needs, capacity: Capacity) -> None:
    """Refuse what an appliance of that capacity could never start.

    Raises:
        CstoolError: with all that is too much
    """
    raise NotImplementedError
