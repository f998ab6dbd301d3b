"""The Slurm back end: a job is a batch job of a cluster's scheduler, which alone decides when and where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cstool.jobs.backend import SLURM

if TYPE_CHECKING:
    from cstool.jobs.job import Job, JobOrder
    from cstool.jobs.job_folder import JobFolder
    from cstool.jobs.queue import Queue
    from cstool.jobs.root import Root


class SlurmBackend:
    """Jobs as batch jobs of Slurm. See `Backend`."""

    name = SLURM

    def __init__(self, root: Root, queue: Queue) -> None:
        self._root, self._queue = root, queue

    def check(self, order: JobOrder) -> None:
        """Check that Slurm is there, and that it can do what is asked for.

        Raises:
            ClusterError: it cannot
        """
        raise NotImplementedError

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:
        """Write the batch script into the job's folder, hand it in, and return the number that Slurm gives it.

        Raises:
            ClusterError: sbatch refuses it
        """
        raise NotImplementedError

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Bring the queue up to date from what jobs wrote into their folders, and from what Slurm says.

        Raises:
            ClusterError: Slurm is not there, or does not answer; what the jobs wrote is in the queue by then
        """
        raise NotImplementedError

    def stop(self, job: Job, what: str) -> None:
        """Cancel a batch job that waits; have one that runs finish its step and save, or end at once."""
        raise NotImplementedError
