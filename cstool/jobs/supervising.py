"""The process of a supervisor: one for an appliance, until it is told to end.

python -m cstool.jobs.supervising ROOT
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

from cstool.atomic_file import lock_file
from cstool.errors import CstoolError
from cstool.jobs.job import SUPERVISOR_STARTED, SUPERVISOR_STOPPED
from cstool.jobs.keeping import this_boot_id
from cstool.jobs.queue import Queue
from cstool.jobs.root import Root, open_root
from cstool.jobs.supervisor import Supervisor
from cstool.jobs.supervisor_log import SupervisorLog

ROUND_S = 0.1
"""how long it waits between looks at what runs and at whether the queue changed [s]"""
LOOKED_AT_S = 1.0
"""how long it tries to get its lock [s]"""
PLAN_S = 2.0
"""it plans anew after so long even where nothing changed: time has passed [s]"""
TROUBLE_S = 1.0
"""how long it waits where the queue cannot be written, as on a full disk [s]"""
PRUNE_S = 60.0
"""how often it removes what is beyond the limits [s]"""
ORPHAN_S = 3600.0
"""a folder that no job of the queue has is left alone for so long: its job may be about to be added [s]"""


def supervise(root: Root, *, ended: threading.Event | None = None) -> None:
    """Supervise an appliance until SIGTERM or SIGINT, or until `ended` is set. Jobs that run go on.

    Raises:
        CstoolError: another one does, or the queue cannot be opened
    """
    ended = threading.Event() if ended is None else ended
    log = SupervisorLog(root.folder)
    lock = hold_supervisor(root)
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: ended.set())
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with Queue(root) as queue:
            _supervise(root, queue, ended, log)
    finally:
        os.close(lock)


def hold_supervisor(root: Root) -> int:
    """Hold the lock of the supervisor of an appliance, and return its descriptor.

    Raises:
        CstoolError: another one runs, or the lock cannot be made
    """
    deadline = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            return lock_file(root.supervisor_lock)
        except BlockingIOError as error:
            # Whoever only looks whether one runs holds the lock for a moment.
            if time.monotonic() < deadline:
                time.sleep(ROUND_S / 10)
                continue
            raise runs_already(root, str(error.strerror)) from error
        except OSError as error:
            raise CstoolError(f"{root.supervisor_lock}: cannot be made, got: {error.strerror}") from error


def runs_already(root: Root, holder: str) -> CstoolError:
    """The error of who starts a supervisor where there is one.

    Args:
        holder: what the lock says of its process
    """
    return CstoolError(
        f"{root.folder}: an appliance has one supervisor, one runs already: {holder}",
        "`cstool appliance status` says how it is, `cstool appliance stop` ends it",
    )


def _supervise(root: Root, queue: Queue, ended: threading.Event, log: SupervisorLog) -> None:
    boot_id = this_boot_id()
    supervisor = Supervisor(root, queue, boot_id=boot_id, say=log.say)
    data = {"pid": os.getpid(), "host": socket.gethostname(), "boot_id": boot_id}
    log.say(f"process {os.getpid()} supervises {root.folder}")
    noted, version, planned_s, pruned_s = False, -1, -PLAN_S, time.monotonic() - PRUNE_S
    while not ended.is_set():
        try:
            if not noted:
                queue.note(SUPERVISOR_STARTED, f"process {os.getpid()} supervises", data)
                noted = True
            now_s, now_version = time.monotonic(), queue.version()
            if supervisor.has_running() or now_version != version or now_s - planned_s > PLAN_S:
                version, planned_s = now_version, now_s
                # What it changed may let it change more.
                if supervisor.turn():
                    planned_s = -PLAN_S
                    continue
            if now_s - pruned_s > PRUNE_S:
                pruned_s = now_s
                _prune(root, queue)
            ended.wait(ROUND_S)
        except (CstoolError, OSError) as error:
            log.say(f"tried again: {error.message if isinstance(error, CstoolError) else error}")
            ended.wait(TROUBLE_S)
    supervisor.forget_children()
    log.say(f"process {os.getpid()} supervises no more")
    with suppress(CstoolError):
        queue.note(SUPERVISOR_STOPPED, f"process {os.getpid()} supervises no more", data)


def _prune(root: Root, queue: Queue) -> None:
    """Remove jobs beyond the limit, and folders that no job has."""
    for name in queue.prune():
        root.job(name).remove()
    known: set[str] | None = None
    with os.scandir(root.jobs) as entries:
        for entry in entries:
            with suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < ORPHAN_S:
                    continue
            known = {job.name for job in queue.jobs()} if known is None else known
            if entry.name not in known:
                with suppress(CstoolError):  # what has no name of a job is not ours
                    root.job(entry.name).remove()


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
