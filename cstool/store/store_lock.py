"""Keeps two runs from working on one MemoryX file, or in one folder."""

import contextlib
import datetime
import errno
import fcntl
import os
import socket
from pathlib import Path

from cstool.errors import StoreError
from cstool.store.block_file import cannot

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class StoreLock:
    """The lock of a file, held until `close`, or until the process ends, however it ends.

    Args:
        path: of the lock file, which stays as long as the file does
        shared: only against those who write; where no lock can be made, nobody writes, and it does without
        rule: what it is for
        optional: do without where no lock can be made, for whatever reason

    Raises:
        StoreError: another process holds it, or it cannot be made
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool = False,
        rule: str = "the MemoryX file must be used by one run at a time",
        optional: bool = False,
    ) -> None:
        self.path = path
        self._rule = rule
        self._descriptor = -1
        try:
            # Whoever removed the file may have held the lock of one that nobody finds any more.
            while self._descriptor < 0 or not self._is_found():
                self.close()
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
                self._lock(shared)
        except OSError as error:
            self.close()
            if optional or (shared and error.errno in _NOT_WRITABLE):
                return
            raise cannot(path, "be locked", error) from error
        owner = f"process {os.getpid()} on {socket.gethostname()} since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}\n"
        with contextlib.suppress(OSError):  # a full disk: the lock counts, not what it says
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, owner.encode(), 0)

    def remove(self) -> None:
        """Remove the lock file, and let others make another one; the file that it is for must be gone."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.close()

    def close(self) -> None:
        """Let others have it. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _lock(self, shared: bool) -> None:
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
            self.close()
            raise StoreError(
                f"{self.path}: {self._rule}, it is in use by {owner}",
                "wait for it, stop it, or choose another --model_dir",
            ) from error

    def _is_found(self) -> bool:
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._descriptor))
