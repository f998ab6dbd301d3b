"""The lock of writers to the queue: one at a time, let go of when a process dies, never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from cstool.foundation.atomic_file import is_named, take_lock
from cstool.foundation.errors import CstoolError

PATIENCE_S = 120.0
"""longest wait of a transaction for others; each takes milliseconds, on a slow disk tens of them [s]"""
_PAUSE_S = 0.008


class QueueLock:
    """A lock file, held for one transaction at a time. Its descriptor stays: a signal in between leaves no lock behind.

    Args:
        path: of the file, made where there is none
        mode: permission bits of the file, independent of the umask

    Raises:
        OSError: it cannot be made
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._descriptor = self._open()

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it.

        Raises:
            CstoolError: another process did not let go of it, or its file system has no locks
        """
        deadline = time.monotonic() + PATIENCE_S
        try:
            while not self._take():
                if time.monotonic() > deadline:
                    raise CstoolError(
                        f"{self._path}: who writes to the queue must let go of it, it was held for {PATIENCE_S:g} s",
                        f"it is held by {self._owner()}, which may have been stopped",
                    )
                pause()
            yield
        finally:
            with contextlib.suppress(OSError):  # there are no locks
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _take(self) -> bool:
        try:
            take_lock(self._descriptor, self._path)
        except BlockingIOError:
            return False
        if not is_named(self._descriptor, self._path):  # somebody removed the file: others lock another one
            os.close(self._descriptor)
            self._descriptor = self._open()
            return False
        with contextlib.suppress(OSError):  # a full disk: the lock counts, not what it says
            os.pwrite(self._descriptor, f"{os.getpid():<12}\n".encode(), 0)
        return True

    def _owner(self) -> str:
        said = os.pread(self._descriptor, 13, 0).decode("ascii", "replace").strip()
        return f"process {said}" if said.isdigit() else "another process"

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, self._mode)
                os.fchmod(descriptor, self._mode)
                return descriptor
            with contextlib.suppress(FileNotFoundError):
                return os.open(self._path, flags)


def pause() -> None:
    """Wait a moment, not always the same: processes that wait for one thing should not ask for it at once."""
    time.sleep(random.uniform(0.1, 1.0) * _PAUSE_S)
