"""What starts and ends the jobs of an appliance: the protocol, and the back ends that there are by name."""

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
    """What starts and ends jobs. The queue, which all share, says what there is; a back end changes it."""

    name: str
    """one of `BACKENDS`"""

    def check(self, order: JobOrder) -> None:
        """Check that it can do what is asked for, before anything is written.

        Raises:
            CstoolError: it cannot
        """

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:
        """Hand in a job that is QUEUED, and return what the back end calls it; "" where it has no other name.

        Raises:
            CstoolError: it is not taken; whoever called forgets the job
        """

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Bring the queue up to date about jobs that have not ended, where nobody else does."""

    def stop(self, job: Job, what: str) -> None:
        """Have a job stop that the queue knows to have been asked to.

        Args:
            job: as it is after `Queue.ask`
            what: `CANCEL`, `CANCEL_NOW` or `PREEMPT`
        """


def make_backend(name: str, root: Root, queue: Queue) -> Backend:
    """Make a back end.

    Raises:
        ClusterError: there is none of that name
    """
    if name == LOCAL:
        from cstool.appliance.queue.local import LocalBackend

        return LocalBackend(root, queue)
    if name == SLURM:
        from cstool.appliance.queue.slurm import SlurmBackend

        return SlurmBackend(root, queue)
    raise ClusterError(f"--backend: must be {' or '.join(BACKENDS)}, got {name!r}", did_you_mean(name, BACKENDS))
