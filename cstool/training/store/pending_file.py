"""A file on its way to its name: it gets there whole, or not at all."""

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.atomic_file import NoLocksError, sync_folder, take_lock

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


class PendingFile:
    """A temporary file `{path}.{8 hex}.tmp` that `commit` renames and `discard` removes.

    It has the methods that h5py asks of a file object. HDF5 cannot cope with a write that fails (closing such
    a file may end the process), so it is never told: the first error is kept in `first_error`, for the
    writer to look at. The lock on the file lasts as long as its process: that is how others know a writer lives.

    Args:
        path: where the file goes in the end

    Raises:
        OSError: the temporary file cannot be created
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        self.first_error: OSError | None = None
        self._descriptor = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._position = 0
        self.end = 0
        """length that it is to have [bytes]"""
        # Where locks are not supported no sweeper can take this one either, and nothing is swept.
        with contextlib.suppress(OSError, NoLocksError):
            take_lock(self._descriptor, self.temporary)

    def fileno(self) -> int:
        """Return the descriptor, which is closed with this object."""
        return self._descriptor

    def reserve(self, size_bytes: int) -> None:
        """Have the disk set space aside, where it can; raise OSError where there is not enough."""
        try:
            os.posix_fallocate(self._descriptor, 0, max(1, size_bytes))
        except OSError as error:
            if error.errno not in _NO_RESERVATION:
                raise

    def write_at(self, offset: int, array: NDArray[Any]) -> None:
        """Write the bytes of a C-contiguous array at an offset [bytes], or raise OSError."""
        self._write(offset, array.reshape(-1).view(np.uint8).data)
        self.end = max(self.end, offset + array.nbytes)

    def copy_at(self, offset: int, source: FileRange) -> None:
        """Write bytes of another file at an offset [bytes], by the system where the disk can, or raise OSError."""
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
                self._write(offset + done, memoryview(data))
                count = len(data)
            if not count:
                raise OSError(errno.EIO, "the source was cut short")
            done += count
        self.end = max(self.end, offset + source.nbytes)

    def sync(self) -> None:
        """Wait until the disk has everything, or raise OSError."""
        os.fsync(self._descriptor)

    def commit(self) -> None:
        """Give the file its name, durably.

        Raises:
            FileExistsError: the name is taken; the temporary file is still there
            OSError: the disk failed
        """
        os.ftruncate(self._descriptor, self.end)
        os.fsync(self._descriptor)
        rename_to_free_name(self.temporary, self.path)
        self._close()
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)
        self._close()

    # Methods that h5py calls. The docstring of the class says why `read` and `write` never fail.

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read or write."""
        self._position = offset + (self.end if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read or write."""
        return self._position

    def read(self, size_bytes: int) -> bytes:
        """Read at the position, zeros where there is nothing."""
        found = b""
        try:
            found = os.pread(self._descriptor, size_bytes, self._position)
        except OSError as error:
            self.first_error = self.first_error or error
        return found.ljust(size_bytes, b"\0")

    def write(self, data: bytes) -> int:
        """Write at the position, or keep the error."""
        try:
            self._write(self._position, memoryview(data))
        except OSError as error:
            self.first_error = self.first_error or error
        self.end = max(self.end, self._position + len(data))
        return len(data)

    def truncate(self, size_bytes: int) -> int:
        """Note the length that the file is to have; cutting it now would give reserved space back."""
        self.end = size_bytes
        return size_bytes

    def flush(self) -> None:
        """Do nothing: every write goes to the system at once."""

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, offset: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + written, data[written:]


def rename_to_free_name(old: Path, new: Path) -> None:
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
