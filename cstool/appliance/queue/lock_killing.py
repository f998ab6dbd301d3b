"""The holders of a job's lock, and their end, where the keeper, which would end them, is gone."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Collection
from contextlib import suppress

from cstool.appliance.queue import records


def kill_holders(job: int, spared: Collection[int] = ()) -> list[int]:
    """Kill the processes that hold the lock of a job, and return their numbers.

    A number may get another process at any time, so each process is held on to before it is looked at, see
    pidfd_open(2). A process that merely has the file open is left alone, and so is a process of another user than the
    job's owner: the folder is the owner's, and may have a link to another user's lock.

    Args:
        job: descriptor of its folder
        spared: numbers of processes that are left alone as well

    Raises:
        OSError: there is no such lock, or no list of processes
    """
    owner = os.fstat(job).st_uid
    lock = os.stat(records.LOCK, dir_fd=job, follow_symlinks=False)
    if not stat.S_ISREG(lock.st_mode) or lock.st_uid != owner or lock.st_nlink != 1:
        return []
    killed = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        number = int(name)
        if number == os.getpid() or number in spared:
            continue
        with suppress(OSError):  # it has ended
            process = os.pidfd_open(number)
            try:
                if os.stat(f"/proc/{number}").st_uid == owner and _holds(number, lock):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    killed.append(number)
            finally:
                os.close(process)
    return killed


def _holds(number: int, lock: os.stat_result) -> bool:
    """Say whether a process has a file with this lock; see fdinfo in proc(5)."""
    for name in os.listdir(f"/proc/{number}/fdinfo"):
        with suppress(OSError):  # it was closed
            with open(f"/proc/{number}/fdinfo/{name}", "rb") as file:
                is_locked = any(line.startswith(b"lock:") and b"OFDLCK" in line for line in file)
            if is_locked and os.path.samestat(os.stat(f"/proc/{number}/fd/{name}"), lock):
                return True
    return False
