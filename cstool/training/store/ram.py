"""The store in main memory."""

import contextlib
import math
import mmap
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.training.store.protocol import check_like, check_rows, check_shape

ALIGNMENT_BYTES = 64
"""alignment of arrays: a cache line, and the widest vector register"""

MAPPED_BYTES = 2**20
"""size from which a buffer is mapped [bytes]"""

Loan = tuple[str, int, int]


class RamStore:
    """A `Store` whose arrays are in main memory: borrowing hands out a view."""

    outlives = False
    in_place = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: dict[str, NDArray[Any]] = {}
        self._loans: Counter[Loan] = Counter()
        self._closed = False

    def create(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scratch: bool = False,  # noqa: ARG002
        fixed: bool = False,  # noqa: ARG002
    ) -> None:
        """Create an array of zeros, as `Store.create` says."""
        checked, kind = check_shape(name, shape), np.dtype(dtype)
        size_bytes = math.prod(checked) * kind.itemsize
        array = _aligned_zeros(size_bytes).view(kind).reshape(checked)
        with self._lock:
            self._check_open()
            if name in self._arrays:
                raise ValueError(f"{name}: an array must be created once, it exists already")
            self._arrays[name] = array

    def names(self) -> list[str]:
        """Return the names of all arrays in the order of their creation."""
        with self._lock:
            self._check_open()
            return list(self._arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        with self._lock:
            return self._array(name).shape

    def dtype(self, name: str) -> str:
        """Return the name of an array's dtype."""
        with self._lock:
            return self._array(name).dtype.name

    def borrow(self, name: str, start: int, stop: int, *, fresh: bool = False) -> NDArray[Any]:  # noqa: ARG002
        """Return a view of rows, as `Store.borrow` says."""
        with self._lock:
            array = self._array(name)
            check_rows(name, array.shape[0], start, stop)
            self._loans[name, start, stop] += 1
            return array[start:stop]

    def give_back(self, name: str, start: int, stop: int, array: NDArray[Any], *, changed: bool) -> None:  # noqa: ARG002
        """Give borrowed rows back, as `Store.give_back` says; a view needs no writing back, whether changed or not."""
        with self._lock:
            own = self._array(name)[start:stop]
            is_same = (own.shape, own.dtype, own.ctypes.data) == (array.shape, array.dtype, array.ctypes.data)
            if self._loans[name, start, stop] == 0 or not is_same:
                raise ValueError(f"{name}: rows {start}:{stop} must be given back as they were borrowed, they were not")
            self._loans[name, start, stop] -= 1

    def read(self, name: str, start: int, out: NDArray[Any]) -> None:
        """Copy rows, as `Store.read` says."""
        np.copyto(out, self._rows_like(name, start, out))

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Copy rows, as `Store.write` says."""
        np.copyto(self._rows_like(name, start, rows), rows)

    def rewrite(
        self,
        names: Sequence[str],
        start: int,
        stop: int,
        change: Callable[[list[NDArray[Any]], int, int], None],
        reads: Sequence[str] = (),
    ) -> None:
        """Change rows in place, all at once."""
        with self._lock:
            arrays = [self._array(name) for name in (*names, *reads)]
        for name, array in zip((*names, *reads), arrays, strict=True):
            check_rows(name, array.shape[0], start, stop)
        change([array[start:stop] for array in arrays], start, stop)

    def expect(
        self, order: Sequence[tuple[str, int, int]], apart: int, doubtful: Collection[str] = frozenset()
    ) -> None:
        """Do nothing: all is here."""

    def want(self, rows: Sequence[tuple[str, int, int]], times: int) -> None:
        """Do nothing: all is here."""

    def drop(self, name: str) -> None:
        """Let go of an array; loans stay valid."""
        with self._lock:
            self._array(name)
            del self._arrays[name]

    def close(self) -> None:
        """Let go of all arrays; loans stay valid."""
        with self._lock:
            self._closed = True
            self._arrays.clear()
            self._loans.clear()

    def _rows_like(self, name: str, start: int, rows: NDArray[Any]) -> NDArray[Any]:
        with self._lock:
            array = self._array(name)
        check_like(name, array.shape, array.dtype.name, rows)
        check_rows(name, array.shape[0], start, start + len(rows))
        return array[start : start + len(rows)]

    def _array(self, name: str) -> NDArray[Any]:
        self._check_open()
        if name not in self._arrays:
            raise KeyError(f"{name}: there is no such array in the store")
        return self._arrays[name]

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store must be open, it was closed")


def aligned_empty(size_bytes: int) -> NDArray[Any]:
    """Return (size_bytes,) uint8 with arbitrary contents, aligned.

    Large ones are mapped: malloc keeps freed memory, in holes of all sizes, but a mapping goes back to the system.
    """
    if size_bytes < MAPPED_BYTES:
        return _aligned(np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8), size_bytes)
    return _mapped(size_bytes)


def _aligned_zeros(size_bytes: int) -> NDArray[Any]:
    if size_bytes < MAPPED_BYTES:
        return _aligned(np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8), size_bytes)
    return _mapped(size_bytes)


def _mapped(size_bytes: int) -> NDArray[Any]:
    """Return (size_bytes,) uint8, zeros, in large pages where the system has them."""
    mapped = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)


def _aligned(memory: NDArray[Any], size_bytes: int) -> NDArray[Any]:
    begin = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[begin : begin + size_bytes]
