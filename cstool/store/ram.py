"""The store in main memory."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.store.protocol import check_rows, check_shape

ALIGNMENT_BYTES = 64
"""where an array begins: a cache line, and the widest vector register"""

Loan = tuple[str, int, int]


class RamStore:
    """A `Store` whose arrays are in main memory: borrowing hands out a view."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: dict[str, NDArray[Any]] = {}
        self._loans: Counter[Loan] = Counter()
        self._closed = False

    def create(self, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        """Create an array of zeros, as `Store.create` says."""
        array = _aligned_zeros(check_shape(name, shape), np.dtype(dtype))
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

    def borrow(self, name: str, start: int, stop: int) -> NDArray[Any]:
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
            if self._loans[name, start, stop] == 0 or not _same_memory(own, array):
                raise ValueError(f"{name}: rows {start}:{stop} must be given back as they were borrowed, they were not")
            self._loans[name, start, stop] -= 1

    def close(self) -> None:
        """Let go of all arrays; what is still borrowed stays valid."""
        with self._lock:
            self._closed = True
            self._arrays.clear()
            self._loans.clear()

    def _array(self, name: str) -> NDArray[Any]:
        self._check_open()
        if name not in self._arrays:
            raise KeyError(f"{name}: there is no such array in the store")
        return self._arrays[name]

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store must be open, it was closed")


def _aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size_bytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[begin : begin + size_bytes].view(dtype).reshape(shape)


def _same_memory(own: NDArray[Any], other: NDArray[Any]) -> bool:
    return own.shape == other.shape and own.dtype == other.dtype and own.ctypes.data == other.ctypes.data
