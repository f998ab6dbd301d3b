"""Work of people with jobs, on any back end: submit, look, wait, cancel, label."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cstool.appliance.queue.backend import LOCAL, make_backend
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, PHASES
from cstool.appliance.queue.names import new_name
from cstool.appliance.queue.queue import BACKEND, Queue
from cstool.appliance.queue.root import open_root, user_name
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.backend import Backend
    from cstool.appliance.queue.job import Event, Job, JobOrder
    from cstool.appliance.queue.job_folder import JobFolder
    from cstool.appliance.queue.queue_tables import Conditions
    from cstool.appliance.queue.root import Root

LOOK_S = 0.05
"""interval at which `Jobs.wait` looks for changes [s]"""
REFRESH_S = 2.0
"""interval at which it has back ends bring the queue up to date [s]"""


class Jobs:
    """The jobs of an appliance. A context manager, which closes the queue.

    Args:
        root: of the appliance
        queue: of the appliance
        backend: of jobs that are submitted; others are asked by the back end that they have
    """

    def __init__(self, root: Root, queue: Queue, backend: Backend) -> None:
        self.root, self.queue, self.backend = root, queue, backend
        self._backends = {backend.name: backend}

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queue; more than once does no harm."""
        self.queue.close()

    def submit(self, order: JobOrder) -> Job:
        """Submit a job; where that fails, nothing is left of it.

        Raises:
            CstoolError: the back end refuses it, or it cannot be written
        """
        self.backend.check(order)
        name = new_name()
        folder = self.root.job(name)
        digest = folder.make(order)
        user_id = os.geteuid()
        try:
            job = self.queue.add(name, order, digest, self.backend.name, user=user_name(user_id), user_id=user_id)
        except CstoolError:
            folder.remove()
            raise
        try:
            backend_id = self.backend.accept(job, folder, order)
        except CstoolError:
            self.queue.forget(name)
            folder.remove()
            raise
        return (self.queue.change(name, PHASES, backend_id=backend_id) or job) if backend_id else job

    def jobs(self, *, limit: int | None = None, **wanted: Unpack[Conditions]) -> list[Job]:
        """List jobs, the newest last; see `Queue.jobs`."""
        self._refresh(self.queue.jobs(active=True))
        return self.queue.jobs(limit=limit, **wanted)

    def newest(self, *, most_ended: int, **wanted: Unpack[Conditions]) -> tuple[list[Job], int]:
        """List all active jobs and the newest ended ones, and count the rest; see `Queue.newest`."""
        self._refresh(self.queue.jobs(active=True))
        return self.queue.newest(most_ended=most_ended, **wanted)

    def job(self, name: str) -> Job:
        """Return a job by its name, or by an unambiguous beginning of it.

        Raises:
            CstoolError: there is none, or there are several
        """
        job = self.queue.job(name)
        if self._refresh([job]):
            job = self.queue.job(job.name)
        return job

    def events(self, name: str | None = None, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events of a job, or of all and of the appliance, the oldest first; see `Queue.events`."""
        return self.queue.events(None if name is None else self.queue.job(name).name, after=after, limit=limit)

    def cancel(self, name: str, *, at_once: bool = False) -> Job:
        """Cancel a job: a running one finishes its step and saves, unless it is to end at once.

        Raises:
            CstoolError: there is no such job, it has ended already, or it belongs to another user
        """
        job = self.job(name)
        self._check_owner(job, "cancel")
        what = CANCEL_NOW if at_once else CANCEL
        job = self.queue.ask(job.name, what)
        if job.has_ended:  # it waited
            self.root.job(job.name).mark_ended()
        self._backend(job.backend).stop(job, what)
        return job

    def label(self, name: str, changes: Mapping[str, str | None]) -> Job:
        """Set labels of a job, remove each label whose value is None, and return the job.

        Raises:
            CstoolError: there is no such job, or it belongs to another user
        """
        job = self.queue.job(name)
        self._check_owner(job, "label")
        return self.queue.label(job.name, changes)

    def wait(self, names: Sequence[str], timeout_s: float | None = None) -> list[Job]:
        """Wait until all these jobs have ended, or for a time limit [s], and return their states then, in this order.

        Raises:
            CstoolError: there is no such job
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        refreshed_s = -REFRESH_S
        while True:
            now, version = time.monotonic(), self.queue.version()
            found = [self.queue.job(name) for name in names]
            if now - refreshed_s > REFRESH_S and self._refresh(found):
                refreshed_s = now
                found = [self.queue.job(name) for name in names]
            if all(job.has_ended for job in found):
                return found
            # What another process wrote changes the version; time alone changes what a scheduler elsewhere knows.
            while self.queue.version() == version and time.monotonic() - now < REFRESH_S:
                if deadline is not None and time.monotonic() >= deadline:
                    return found
                time.sleep(LOOK_S)
            if deadline is not None and time.monotonic() >= deadline:
                return [self.queue.job(name) for name in names]

    def folder(self, name: str) -> JobFolder:
        """Return the folder of a job.

        Raises:
            CstoolError: there is no such job
        """
        return self.root.job(self.queue.job(name).name)

    def position(self, name: str) -> int | None:
        """Return the position of a job among waiting jobs, from 1; None where it does not wait."""
        return self.queue.position(self.queue.job(name).name)

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = make_backend(name, self.root, self.queue)
        return self._backends[name]

    def _refresh(self, jobs: Sequence[Job]) -> bool:
        """Have back ends bring the queue up to date about jobs; return whether there was work."""
        elsewhere: dict[str, list[Job]] = {}
        for job in jobs:
            if job.backend != LOCAL and not job.has_ended:
                elsewhere.setdefault(job.backend, []).append(job)
        for name, found in elsewhere.items():
            self._backend(name).refresh(found)
        return bool(elsewhere)

    def _check_owner(self, job: Job, doing: str) -> None:
        """Check that this user may change a job.

        Raises:
            CstoolError: it belongs to another user
        """
        user_id = os.geteuid()
        if user_id not in (0, job.user_id):
            who = "root" if job.user_id == 0 else f"{job.user} or root"
            raise CstoolError(f"job {job.name}: only {who} may {doing} it, this is {user_name(user_id)}")


def open_jobs(root: Path | None, backend: str | None = None, *, makes: bool = False) -> Jobs:
    """Open the jobs of an appliance, for a `with`.

    Args:
        root: its folder; None for the usual one
        backend: default for new jobs; None for the default of the appliance, or else "local"
        makes: whether to make the appliance where there is none

    Raises:
        CstoolError: there is no such appliance, or it may not be used
    """
    opened = open_root(root, makes=makes)
    queue = Queue(opened, makes=makes)
    try:
        usual = queue.get(BACKEND)
        chosen = make_backend(backend or usual or LOCAL, opened, queue)
        if makes and usual is None and backend is not None:
            queue.put(BACKEND, backend)
        return Jobs(opened, queue, chosen)
    except BaseException:
        queue.close()
        raise
