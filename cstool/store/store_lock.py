"""Keeps two runs from working on one MemoryX file."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from pathlib import Path

from cstool.errors import StoreError
from cstool.store.block_file import cannot


class StoreLock:
    """The lock of a file, held until `close`, or until the process ends, however it ends.

    Args:
        path: of the lock file, which stays: removing it would let two others hold different ones

    Raises:
        StoreError: another process holds it, or it cannot be made
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise cannot(path, "be locked", error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
            self.close()
            if not isinstance(error, BlockingIOError):
                raise cannot(path, "be locked", error) from error
            raise StoreError(
                f"{path}: the MemoryX file must be used by one run at a time, it is in use by {owner}",
                "wait for it, stop it, or choose another --model_dir",
            ) from error
        owner = f"process {os.getpid()} on {socket.gethostname()} since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}\n"
        with contextlib.suppress(OSError):  # a full disk: the lock counts, not what it says
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner.encode(), 0)

    def close(self) -> None:
        """Let others have it. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
