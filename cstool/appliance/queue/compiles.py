"""Which compiles start now, and which jobs need none, as another job has compiled the same model already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstool.appliance.queue.job import COMPILE, COMPILED, COMPILING, QUEUED, Job
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted

if TYPE_CHECKING:
    from cstool.appliance.queue.queue import Queue
    from cstool.appliance.queue.root import Root

_LOOKED_AT = 20_000
"""number of newest events that are searched for earlier compiles; a compile finds older results in its folder"""

_Key = tuple[int, str, str]
"""user, compile_key, folder of the artifacts: equal for equal compiles"""


@dataclass(frozen=True)
class CompilePlan:
    """Decisions about jobs that wait to be compiled.

    Args:
        starts: jobs that are compiled now
        shared: jobs that need no compile, each with the job that was compiled for it
        reasons: name -> why it waits
    """

    starts: tuple[Job, ...]
    shared: tuple[tuple[Job, str], ...]
    reasons: Mapping[str, str]


class Compiles:
    """Earlier compiles, by the events.

    Args:
        root: of the appliance
        queue: of the appliance
    """

    def __init__(self, root: Root, queue: Queue) -> None:
        self._root, self._queue = root, queue
        self._done: dict[_Key, str] | None = None
        self._folders: dict[str, str] = {}

    def use(self, queue: Queue) -> None:
        """Go on with the queue as it was opened again."""
        self._queue = queue

    def plan(self, jobs: Iterable[Job], at_most: int) -> CompilePlan:
        """Plan compiles.

        Args:
            jobs: all that have not ended, the most urgent first
            at_most: largest number of compiles at a time
        """
        jobs = [*jobs]
        waiting = [job for job in jobs if job.phase == QUEUED and job.stage == COMPILE]
        done = self._known() if waiting else {}
        going = {self._key(job): job.name for job in jobs if job.phase == COMPILING}
        room = at_most - len(going)
        starts, shared, reasons = [], [], {}
        compile_keys = {key for _, key, _ in (*done, *going)}
        for job in waiting:
            # To know the folder takes reading a file: that of each of thousands of jobs only when its turn has come.
            key = self._key(job) if room > 0 or job.compile_key in compile_keys else None
            if key in done:
                shared.append((job, done[key]))
            elif key in going:
                reasons[job.name] = f"waits for {going[key]}, which compiles the same model"
            elif room > 0:
                starts.append(job)
                room -= 1
                if key is not None:
                    going[key] = job.name
                    compile_keys.add(job.compile_key)
            else:
                reasons[job.name] = f"waits to be compiled, {counted(at_most, 'compile')} at a time"
        return CompilePlan(tuple(starts), tuple(shared), reasons)

    def data_of(self, job: Job) -> dict[str, Any]:
        """Data of the event COMPILED, for later supervisors."""
        user, key, folder = self._key(job)
        return {"by": job.name, "user_id": user, "compile_key": key, "compile_dir": folder}

    def know(self, data: Mapping[str, Any]) -> None:
        """Take in the data of an event COMPILED."""
        key = (data.get("user_id"), data.get("compile_key"), data.get("compile_dir"))
        if self._done is not None and isinstance(key[0], int) and key[1] and key[2]:
            self._done[(key[0], str(key[1]), str(key[2]))] = str(data.get("by", ""))

    def _known(self) -> dict[_Key, str]:
        """Earlier compiles, each with the name of its job; the events are read once."""
        if self._done is None:
            self._done = {}
            for event in self._queue.events(limit=_LOOKED_AT):
                if event.kind == COMPILED:
                    self.know(event.data)
        return self._done

    def _key(self, job: Job) -> _Key:
        """The key that equal compiles share; unique where the order cannot be read: that job fails at its start."""
        if job.name not in self._folders:
            if len(self._folders) > _LOOKED_AT:
                self._folders.clear()
            try:
                self._folders[job.name] = str(self._root.job(job.name).order(job.digest).compile_dir)
            except CstoolError:
                self._folders[job.name] = ""
        folder = self._folders[job.name]
        # Nothing is the same as what has no key, or no folder.
        return (job.user_id, job.compile_key, folder) if job.compile_key and folder else (job.user_id, job.name, "")
