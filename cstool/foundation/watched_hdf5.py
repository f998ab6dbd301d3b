"""HDF5 files from anywhere, opened so that damage ends in an error, never in a loop.

HDF5 goes through two of its structures without a look at how far it gets: the objects of a global heap, which are the
texts of attributes, and the free blocks of a local heap, which has the names in a group. Damage there can have HDF5 go
round for ever, or until the memory is full. So each is gone through here first, as soon as HDF5 reads its begin.

Source: HDF5 File Format Specification 3.0, sections II.A, III.D and III.E.
"""

import os
import re
import weakref
from pathlib import Path
from typing import Any

import h5py

_SUPERBLOCK = b"\x89HDF\r\n\x1a\n"
_HEAPS = re.compile(rb"GCOL\x01\0\0\0|HEAP\0\0\0\0")
_HEAD_BYTES = 8
_MOST_BYTES = 64 * 2**10
"""largest read that holds the begin of a heap; HDF5 asks for 4096 at most, longer reads are of values"""
_NO_MORE_BLOCKS = 1


def open_watched(path: Path, **settings: Any) -> h5py.File:
    """Open an HDF5 file to read it, without a lock; a heap that would have HDF5 go round is an OSError when it is read.

    Args:
        path: of a regular file
        settings: of `h5py.File`
    """
    return h5py.File(_Watched(path), "r", locking=False, **settings)


class _Watched:
    """A file as h5py asks for it; it is closed when HDF5 drops it. Raises OSError if it cannot be opened or read."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._position = 0
        self._base, self._number_bytes, self._address_bytes = self._superblock()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read."""
        self._position = offset + (os.fstat(self._descriptor).st_size if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def flush(self) -> None:
        """Do nothing: it is only read."""

    def read(self, size_bytes: int) -> bytes:
        """Read at the position, as `readinto`."""
        found = bytearray(size_bytes)
        self.readinto(memoryview(found))
        return bytes(found)

    def readinto(self, view: memoryview) -> int:
        """Fill a buffer from the position on, zeros behind the end of the file; check the heaps that begin there."""
        # h5py of 2024 hands in a view of Cython, to which no bytes can be assigned.
        view, place, done = memoryview(view), self._position, 0
        while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], place + done)):
            done += count
        view[done:] = bytes(len(view) - done)
        self._position = place + len(view)
        if len(view) <= _MOST_BYTES:
            # What HDF5 read before may end within the head of a heap.
            behind = os.pread(self._descriptor, _HEAD_BYTES - 1, place + len(view))
            for found in _HEAPS.finditer(bytes(view) + behind):
                self._check(place + found.start(), found[0])
        return len(view)

    def _check(self, place: int, head: bytes) -> None:
        (self._check_objects if head.startswith(b"GCOL") else self._check_free_blocks)(place)

    def _check_objects(self, place: int) -> None:
        """Go through the objects of a global heap as HDF5 does: each but the last has to have one behind it."""
        head_bytes = -(-(8 + self._number_bytes) // 8) * 8
        end = place + self._number(place + 8)
        place += head_bytes
        while end - place >= head_bytes:
            is_free = self._number(place, 2) == 0
            size = self._number(place + 8)
            size = size if is_free else head_bytes + -(-size // 8) * 8
            if not 0 < size <= end - place:
                raise OSError("an object of a global heap must end behind its begin, within the heap")
            place += size

    def _check_free_blocks(self, place: int) -> None:
        """Go through the free blocks of a local heap as HDF5 does: each may come once."""
        numbers = place + 8
        size, block = self._number(numbers), self._number(numbers + self._number_bytes)
        values = self._base + self._number(numbers + 2 * self._number_bytes, self._address_bytes)
        seen: set[int] = set()
        while block != _NO_MORE_BLOCKS and block < size:
            if block in seen:
                raise OSError("a free block of a local heap must be in its list once")
            seen.add(block)
            block = self._number(values + block)

    def _number(self, place: int, count: int | None = None) -> int:
        """Return the number in some bytes of the file; `count` is by default the size of the file's lengths [bytes]."""
        if place >= 2**63:
            raise OSError("what is in a file must lie within it")
        return int.from_bytes(os.pread(self._descriptor, count or self._number_bytes, place), "little")

    def _superblock(self) -> tuple[int, int, int]:
        """Return the base of addresses, and the sizes of a length and of an address [bytes]."""
        place, size = 0, os.fstat(self._descriptor).st_size
        while place < size:
            found = os.pread(self._descriptor, 16, place)
            if found.startswith(_SUPERBLOCK) and len(found) == 16:
                addresses = 13 if found[8] < 2 else 9
                return place, found[addresses + 1], found[addresses]
            place = 2 * place or 512
        return 0, 8, 8
