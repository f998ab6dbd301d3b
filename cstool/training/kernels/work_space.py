"""Memory that a thread keeps between calls, for providers of products, which get no scratch memory."""

import math
import threading

import numpy as np

_ALIGNMENT_BYTES = 64


class WorkSpace(threading.local):
    """Work space of each thread, by name; grows to the largest array asked for under it."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def lend(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Lend a float32 array with arbitrary contents, which begins at a cache line."""
        size = math.prod(shape)
        found = self._arrays.get(name)
        if found is None or found.size < size:
            memory = np.empty(4 * size + _ALIGNMENT_BYTES, np.uint8)
            first = -memory.ctypes.data % _ALIGNMENT_BYTES
            found = self._arrays[name] = memory[first : first + 4 * size].view(np.float32)
        return found[:size].reshape(shape)
