"""The process of a supervisor: one for an appliance, until it is told to end.

python -m cstool.appliance.queue.supervising ROOT
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from cstool.appliance.queue.holders import hold
from cstool.appliance.queue.job import SUPERVISOR_STARTED, SUPERVISOR_STOPPED
from cstool.appliance.queue.job_folder import JobFolder, is_leftover
from cstool.appliance.queue.names import is_name
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.records import this_boot_id
from cstool.appliance.queue.root import Root, open_root
from cstool.appliance.queue.supervisor import Supervisor
from cstool.appliance.queue.supervisor_log import SupervisorLog
from cstool.foundation.atomic_file import is_named
from cstool.foundation.errors import CstoolError

ROUND_S = 0.1
"""pause between rounds where there is nothing to do [s]"""
TROUBLE_S = 1.0
"""pause where the queue cannot be written, as on a full disk [s]"""
PRUNE_S = 60.0
"""interval of removing jobs and events beyond the limits [s]"""
ORPHAN_S = 3600.0
"""time for which a folder without a job in the queue is left alone: its job may be about to be added [s]"""


class LockGone(CstoolError):
    """The lock of a supervisor was removed: it must end."""


class Ending:
    """Whether a process was told by a signal to end.

    Not a `threading.Event`: a signal that comes while that holds its lock, as for the signal before, waits for it for
    ever. `put` of a `SimpleQueue` may interrupt itself.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[int] = SimpleQueue()

    def tell(self, number: int, _frame: object = None) -> None:
        """Take a signal."""
        self._told.put(number)

    @property
    def is_told(self) -> bool:
        """Whether a signal came."""
        return not self._told.empty()

    def wait(self, seconds: float) -> None:
        """Wait for a signal, for a number of seconds at most."""
        with suppress(Empty):
            self._told.put(self._told.get(timeout=seconds))


def supervise(root: Root) -> None:
    """Supervise an appliance until SIGTERM or SIGINT. Jobs that run go on.

    A queue that cannot be read or written, such as on a full disk, is tried again until it can.

    Raises:
        CstoolError: another one does; or the folder, or the lock in it, is gone
    """
    ending = Ending()
    lock = hold_supervisor(root)
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, ending.tell)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _Supervising(root, lock, ending).run()
    finally:
        os.close(lock)


def hold_supervisor(root: Root) -> int:
    """Hold the lock of the supervisor of an appliance, and return its descriptor.

    Raises:
        CstoolError: another one runs, or the lock cannot be made
    """
    try:
        return hold(root.supervisor_lock)
    except BlockingIOError as error:
        raise runs_already(root, str(error.strerror)) from error
    except OSError as error:
        raise CstoolError(f"{root.supervisor_lock}: cannot be made, got: {error.strerror}") from error


def runs_already(root: Root, holder: str) -> CstoolError:
    """The error of a second supervisor.

    Args:
        holder: the lock's text about its process
    """
    return CstoolError(
        f"{root.folder}: an appliance has one supervisor, one runs already: {holder}",
        "`cstool appliance status` says how it is, `cstool appliance stop` ends it",
    )


class _Supervising:
    """The loop around a supervisor.

    Args:
        root: of the appliance
        lock: descriptor of the lock that is held
        ending: says when it is to end
    """

    def __init__(self, root: Root, lock: int, ending: Ending) -> None:
        self._root, self._lock, self._ending = root, lock, ending
        self._log = SupervisorLog(root.folder)
        self._boot_id = this_boot_id()
        self._noted = False
        self._supervisor: Supervisor | None = None
        self._pruned_s = time.monotonic() - PRUNE_S

    def run(self) -> None:
        """Supervise until told to end; see `supervise`."""
        self._log.say(f"process {os.getpid()} supervises {self._root.folder}")
        while not self._ending.is_told:
            try:
                with Queue(self._root, makes=False) as queue:
                    self._supervise(queue)
            except LockGone:
                raise
            except (CstoolError, OSError) as error:
                self._check_lock()
                self._log.say(f"tried again: {error.message if isinstance(error, CstoolError) else error}")
                self._ending.wait(TROUBLE_S)
        if self._supervisor is not None:
            self._supervisor.forget_children()
        self._log.say(f"process {os.getpid()} supervises no more")

    def _supervise(self, queue: Queue) -> None:
        """Supervise as long as the queue can be read and written."""
        if self._supervisor is None:
            self._supervisor = Supervisor(self._root, queue, boot_id=self._boot_id, say=self._log.say)
        supervisor = self._supervisor
        supervisor.use(queue)
        data = {"pid": os.getpid(), "host": socket.gethostname(), "boot_id": self._boot_id}
        if not self._noted:
            queue.note(SUPERVISOR_STARTED, f"process {os.getpid()} supervises", data)
            self._noted = True
        while not self._ending.is_told:
            self._check_lock()
            if supervisor.turn():
                continue  # what it changed may let it change more
            now_s = time.monotonic()
            if now_s - self._pruned_s > PRUNE_S:
                self._pruned_s = now_s
                _prune(self._root, queue)
            self._ending.wait(ROUND_S)
        queue.note(SUPERVISOR_STOPPED, f"process {os.getpid()} supervises no more", data)

    def _check_lock(self) -> None:
        """Check that the lock is not removed: without it another one could supervise as well.

        Raises:
            LockGone: it is gone
        """
        if not is_named(self._lock, self._root.supervisor_lock):
            self._log.say("its lock is gone")
            raise LockGone(f"{self._root.supervisor_lock}: must be there as long as a supervisor runs, it is gone")


def _prune(root: Root, queue: Queue) -> None:
    """Remove jobs beyond the limit, and folders that no job has."""
    for name in filter(is_name, queue.prune()):
        root.job(name).remove()
    known: set[str] | None = None
    with os.scandir(root.jobs) as entries:
        for entry in entries:
            with suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < ORPHAN_S:
                    continue
            if known is None:
                known = queue.names()
            if is_leftover(entry.name) or (is_name(entry.name) and entry.name not in known):
                JobFolder(root.jobs / entry.name).remove()


def main(arguments: list[str]) -> int:
    """Supervise the appliance in a folder; return 0, or 2 after a message."""
    try:
        supervise(open_root(Path(arguments[0]), makes=False))
    except CstoolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
