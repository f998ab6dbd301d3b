"""What people do with jobs, whichever back end runs them: submit, look, wait, cancel, label."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cstool.jobs.backend import Backend
    from cstool.jobs.job import Event, Job, JobOrder
    from cstool.jobs.job_folder import JobFolder
    from cstool.jobs.queue import Queue
    from cstool.jobs.root import Root


class Jobs:
    """The jobs of an appliance. A context manager, which closes the queue.

    Args:
        root: of the appliance
        queue: of it
        backend: of jobs that are submitted; others are asked by the back end that they have
    """

    def __init__(self, root: Root, queue: Queue, backend: Backend) -> None:
        self.root, self.queue, self.backend = root, queue, backend

    def __enter__(self) -> Jobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def submit(self, order: JobOrder) -> Job:
        """Submit a job; where that fails, nothing is left of it.

        Raises:
            CstoolError: the back end refuses it, or it cannot be written
        """
        raise NotImplementedError

    def jobs(
        self,
        *,
        active: bool = False,
        phases: Collection[str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """List jobs, the newest last; see `Queue.jobs`."""
        raise NotImplementedError

    def job(self, name: str) -> Job:
        """Return a job by its name, or by an unambiguous beginning of it.

        Raises:
            CstoolError: there is none, or there are several
        """
        raise NotImplementedError

    def events(self, name: str | None = None, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return what happened to a job, or to all and to the appliance, the oldest first; see `Queue.events`."""
        raise NotImplementedError

    def cancel(self, name: str, *, at_once: bool = False) -> Job:
        """Cancel a job: a running one finishes its step and saves, unless it is to end at once.

        Raises:
            CstoolError: there is no such job, it has ended already, or it is somebody else's
        """
        raise NotImplementedError

    def label(self, name: str, changes: Mapping[str, str | None]) -> Job:
        """Set labels of a job, or remove those that are None, and return it.

        Raises:
            CstoolError: there is no such job, or it is somebody else's
        """
        raise NotImplementedError

    def wait(self, names: Sequence[str], timeout_s: float | None = None) -> list[Job]:
        """Wait until all these jobs have ended, or for so long [s], and return them, in this order, as they are then.

        Raises:
            CstoolError: there is no such job
        """
        raise NotImplementedError

    def folder(self, name: str) -> JobFolder:
        """Return the folder of a job.

        Raises:
            CstoolError: there is no such job
        """
        raise NotImplementedError

    def position(self, name: str) -> int | None:
        """Return which of the waiting jobs it is, from 1; None where it does not wait."""
        raise NotImplementedError


def open_jobs(root: Path | None, backend: str | None = None, *, makes: bool = False) -> Jobs:
    """Open the jobs of an appliance, for a `with`.

    Args:
        root: its folder; None for the usual one
        backend: of jobs that are submitted; None for that which the appliance was made with, or else "local"
        makes: whether to make the appliance where there is none

    Raises:
        CstoolError: there is no such appliance, or it may not be used
    """
    raise NotImplementedError
