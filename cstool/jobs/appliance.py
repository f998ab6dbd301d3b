"""An appliance as a whole: start it, stop it, say how it is, let it drain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cstool.jobs.job import Capacity
    from cstool.jobs.root import Root


@dataclass(frozen=True)
class ApplianceStatus:
    """How an appliance is.

    Args:
        supervisor: "process N on HOST since DATE TIME" of the supervisor; None where none runs
        supervisor_pid: None where none runs on this host
        drained: whether nothing new is started
        capacity: what there is; None where it was never started
        used: what running jobs have of it; its cpus are those that are taken
        phases: how many jobs there are in each phase
        backend: of jobs that are submitted without a word about it
    """

    supervisor: str | None
    supervisor_pid: int | None
    drained: bool
    capacity: Capacity | None
    used: Capacity
    phases: dict[str, int]
    backend: str


def start_appliance(root: Root, capacity: Capacity, *, foreground: bool = False) -> int:
    """Start the supervisor of an appliance, and return once it supervises; in the foreground once it has ended.

    Returns:
        The process id of the guard that starts it again; in the foreground, of the supervisor, this process

    Raises:
        CstoolError: one runs already, or it cannot start
    """
    raise NotImplementedError


def stop_appliance(root: Root, *, cancel_jobs: bool = False) -> bool:
    """Stop the supervisor, and return once it has ended; jobs that run go on, and the next supervisor finds them.

    Args:
        cancel_jobs: have all jobs that have not ended cancelled first, and wait until they have ended

    Returns:
        Whether one ran

    Raises:
        CstoolError: it runs on another host, or does not end
    """
    raise NotImplementedError


def appliance_status(root: Root) -> ApplianceStatus:
    """Say how an appliance is.

    Raises:
        CstoolError: its queue cannot be read
    """
    raise NotImplementedError


def drain_appliance(root: Root, *, drained: bool = True, wait_s: float | None = 0.0) -> bool:
    """Have an appliance start nothing new, or again do so; running jobs go on.

    Args:
        wait_s: how long to wait until nothing runs [s]; None for as long as it takes

    Returns:
        Whether nothing runs
    """
    raise NotImplementedError
