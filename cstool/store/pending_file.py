"""A file on its way to its name: it gets there whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.atomic_file import sync_folder
from cstool.store.layout_file import LayoutFile, write_whole

TEMPORARY_NAME = re.compile(r".+\.[0-9a-f]{8}\.tmp")
"""names of files on their way"""

_NO_RESERVATION = (errno.EOPNOTSUPP, errno.EINVAL)
_NO_COPY_WITHIN = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
COPY_BYTES = 8 * 2**20
"""that are in memory at a time where the system cannot copy by itself [bytes]"""
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FileRange(NamedTuple):
    """Bytes of an open file, and their checksum."""

    descriptor: int
    offset: int
    nbytes: int
    crc32: int


class PendingFile(LayoutFile):
    """A temporary file `{path}.{8 hex}.tmp` that `commit` renames and `discard` removes.

    The lock on the file lasts as long as its process: that is how others know a writer lives.

    Args:
        path: where the file goes in the end

    Raises:
        OSError: the temporary file cannot be created
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        super().__init__(os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        # Where locks are not supported nobody can take this one either, and nothing is swept.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def fileno(self) -> int:
        """Return the descriptor, which is closed with this object."""
        return self._descriptor

    def reserve(self, size_bytes: int) -> None:
        """Have the disk set space aside, where it can.

        Raises:
            OSError: there is not enough
        """
        try:
            os.posix_fallocate(self._descriptor, 0, max(1, size_bytes))
        except OSError as error:
            if error.errno not in _NO_RESERVATION:
                raise

    def write_at(self, offset: int, array: NDArray[Any]) -> None:
        """Write the bytes of a C-contiguous array at an offset [bytes].

        Raises:
            OSError: they do not fit
        """
        write_whole(self._descriptor, offset, array.reshape(-1).view(np.uint8).data)
        self.end = max(self.end, offset + array.nbytes)

    def copy_at(self, offset: int, source: FileRange) -> None:
        """Write the bytes of another file at an offset [bytes]: within the system, as one where the disk can.

        Raises:
            OSError: they do not fit, or cannot be read
        """
        done = 0
        while done < source.nbytes:
            try:
                count = os.copy_file_range(
                    source.descriptor, self._descriptor, source.nbytes - done, source.offset + done, offset + done
                )
            except OSError as error:
                if error.errno not in _NO_COPY_WITHIN:
                    raise
                data = os.pread(source.descriptor, min(source.nbytes - done, COPY_BYTES), source.offset + done)
                write_whole(self._descriptor, offset + done, memoryview(data))
                count = len(data)
            if not count:
                raise OSError(errno.EIO, "the source was cut short")
            done += count
        self.end = max(self.end, offset + source.nbytes)

    def sync(self) -> None:
        """Wait until the disk has everything.

        Raises:
            OSError: it does not
        """
        os.fsync(self._descriptor)

    def commit(self) -> None:
        """Give the file its name, durably.

        Raises:
            FileExistsError: the name is taken; the temporary file is still there
            OSError: the disk failed
        """
        os.ftruncate(self._descriptor, self.end)
        os.fsync(self._descriptor)
        _rename_to_free_name(self.temporary, self.path)
        self._close()
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _rename_to_free_name(old: Path, new: Path) -> None:
    """Rename a file. A hard link fails where a rename would overwrite; some file systems have none."""
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from error
        os.rename(old, new)
        return
    os.unlink(old)
