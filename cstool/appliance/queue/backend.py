"""Back ends, which start and end the jobs of an appliance: their protocol, and a table of them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cstool.foundation.errors import ClusterError
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    from cstool.appliance.queue.job import Job, JobOrder
    from cstool.appliance.queue.job_folder import JobFolder
    from cstool.appliance.queue.queue import Queue
    from cstool.appliance.queue.root import Root

LOCAL, SLURM = "local", "slurm"
BACKENDS = (LOCAL, SLURM)
"""names of the back ends; the usual one is the first"""


class Backend(Protocol):
    """A back end starts and ends jobs. All share the queue, which holds their state; a back end changes it."""

    name: str
    """one of `BACKENDS`"""

    def check(self, order: JobOrder) -> None:
        """Check that it can run such a job, before anything is written.

        Raises:
            CstoolError: it cannot
        """

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:
        """Hand in a job that is QUEUED, and return its name in the back end; "" where it has no other name.

        Raises:
            CstoolError: it is not taken; the caller forgets the job
        """

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Bring the queue up to date about jobs that have not ended, where nothing else does."""

    def stop(self, job: Job, what: str) -> None:
        """Have a job stop that the queue knows to have been asked to.

        Args:
            job: as it is after `Queue.ask`
            what: the kind of stop: `CANCEL`, `CANCEL_NOW` or `PREEMPT`
        """


class LocalBackend:
    """Jobs on this host. The supervisor finds them, and requests to them, in the queue. See `Backend`."""

    name = LOCAL

    def __init__(self, root: Root, queue: Queue) -> None:
        self._root, self._queue = root, queue

    def check(self, order: JobOrder) -> None:
        """Check that the job ever fits, where the capacity of the appliance is known."""
        from cstool.appliance.queue.schedule import check_fits

        capacity = self._queue.capacity()
        if capacity is not None:
            check_fits(order.needs, capacity)

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:  # noqa: ARG002
        """Do nothing: the supervisor finds the job in the queue."""
        return ""

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Do nothing: the supervisor brings the queue up to date."""

    def stop(self, job: Job, what: str) -> None:
        """Do nothing: the supervisor finds the request in the queue."""


def make_backend(name: str, root: Root, queue: Queue) -> Backend:
    """Make a back end.

    Raises:
        ClusterError: there is no back end of that name
    """
    if name == LOCAL:
        return LocalBackend(root, queue)
    if name == SLURM:
        from cstool.appliance.queue.slurm import SlurmBackend

        return SlurmBackend(root, queue)
    raise ClusterError(f"--backend: must be {' or '.join(BACKENDS)}, got {name!r}", did_you_mean(name, BACKENDS))
