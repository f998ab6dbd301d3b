"""The holders of lock files: of an appliance, held so that others may look; of a job, whose keeper may be gone."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cstool.appliance.queue import records
from cstool.foundation.atomic_file import lock_file, take_lock
from cstool.foundation.errors import CstoolError

LOOKED_AT_S = 1.0
"""time for which `hold` tries [s]: a process that looks at a lock holds it for a moment"""
_OWNER = re.compile(r"process ([1-9]\d{0,9}) on (\S+) since .*")


class Holder(NamedTuple):
    """The process that holds a lock file."""

    text: str
    """as the file has it, such as "process 12 on host since 2026-11-25 14:00:00"; see `atomic_file.lock_file`"""
    pid: int | None
    """None for a process of another host, or where the file names another process than the holder"""


def hold(path: Path) -> int:
    """Hold a lock file, and return its descriptor, as `lock_file` does; wait for processes that only look at it.

    Raises:
        BlockingIOError: another process holds it; `strerror` says which
        NoLocksError: its file system has no locks
        OSError: it cannot be made
    """
    deadline = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            return lock_file(path)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def holder_of(path: Path) -> Holder | None:
    """Return the holder of a lock file; None where it is free.

    The lock is held for a moment, shared, to find out: a process that wants it meanwhile has to try again.

    Raises:
        CstoolError: it cannot be looked at
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CstoolError(f"{path}: cannot be read, got: {error.strerror}") from error
    try:
        take_lock(descriptor, path, shared=True)
    except BlockingIOError:
        text = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
        found = _OWNER.fullmatch(text)
        if found is None or found[2] != socket.gethostname() or not _has_open(int(found[1]), descriptor):
            return Holder(text or "another process", None)
        return Holder(text, int(found[1]))
    finally:
        os.close(descriptor)
    return None


def _has_open(pid: int, descriptor: int) -> bool:
    """Say whether a process has a file open, as far as this process may know; the text of a lock file is no proof."""
    wanted = os.fstat(descriptor)
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                if os.path.samestat(os.stat(f"{folder}/{name}"), wanted):
                    return True
            except OSError:
                continue  # it was closed
    except PermissionError:
        return True  # another user's process: only root could do it any harm, and root may look
    except OSError:
        return False
    return False


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
                if os.stat(f"/proc/{number}").st_uid == owner and _has_lock(number, lock):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    killed.append(number)
            finally:
                os.close(process)
    return killed


def _has_lock(number: int, lock: os.stat_result) -> bool:
    """Say whether a process has a file with this lock; see fdinfo in proc(5)."""
    for name in os.listdir(f"/proc/{number}/fdinfo"):
        with suppress(OSError):  # it was closed
            with open(f"/proc/{number}/fdinfo/{name}", "rb") as file:
                is_locked = any(line.startswith(b"lock:") and b"OFDLCK" in line for line in file)
            if is_locked and os.path.samestat(os.stat(f"/proc/{number}/fd/{name}"), lock):
                return True
    return False
