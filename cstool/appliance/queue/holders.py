"""The holder of a lock file, and how to hold one that others look at."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

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
