"""Keeps two runs from working on one MemoryX file, or in one folder."""

import contextlib
import errno
import os
from pathlib import Path

from cstool.foundation.atomic_file import NoLocksError, lock_file
from cstool.foundation.errors import StoreError
from cstool.training.store.block_file import cannot

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class StoreLock:
    """The lock of a file, held until `close`, or until the process ends, however it ends.

    Args:
        path: of the lock file, which stays as long as the file does
        shared: exclude writers only; on a file system without locks there are no writers, and it goes without
        rule: that it enforces, for messages
        optional: go without where no lock can be made, for any reason

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
        self._descriptor = -1
        try:
            self._descriptor = lock_file(path, shared=shared)
        except BlockingIOError as error:
            raise StoreError(
                f"{path}: {rule}, it is in use by {error.strerror}",
                "wait for it, stop it, or choose another --model_dir",
            ) from error
        except NoLocksError as error:
            if not optional:
                raise StoreError(error.message, error.hint) from error
        except OSError as error:
            if not (optional or (shared and error.errno in _NOT_WRITABLE)):
                raise cannot(path, "be locked", error) from error

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
