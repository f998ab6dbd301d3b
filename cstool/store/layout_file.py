"""A file as h5py asks for it, for HDF5 to lay out: it never fails."""

from __future__ import annotations

import os


class LayoutFile:
    """An open file with the methods that h5py asks of a file object.

    HDF5 cannot cope with a write that fails (closing such a file may end the process), so it is never told: the first
    error is kept in `first_error`, for whoever has the file laid out to look at.

    Args:
        descriptor: of the file, open for reading and writing
    """

    def __init__(self, descriptor: int) -> None:
        self.first_error: OSError | None = None
        self.end = os.fstat(descriptor).st_size
        """how long the file is to be [bytes]"""
        self._descriptor = descriptor
        self._position = 0

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
            write_whole(self._descriptor, self._position, memoryview(data))
        except OSError as error:
            self.first_error = self.first_error or error
        self.end = max(self.end, self._position + len(data))
        return len(data)

    def truncate(self, size_bytes: int) -> int:
        """Note how long the file is to be; cutting it now would give reserved space back."""
        self.end = size_bytes
        return size_bytes

    def flush(self) -> None:
        """Do nothing: every write goes to the system at once."""


def write_whole(descriptor: int, offset: int, data: memoryview) -> None:
    """Write bytes at an offset [bytes], in as many requests as it takes.

    Raises:
        OSError: they do not fit
    """
    while data:
        written = os.pwrite(descriptor, data, offset)
        offset, data = offset + written, data[written:]
