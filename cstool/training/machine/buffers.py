"""Gradient buffers that are used again and again, so that the steady state allocates nothing."""

import math
import threading
from collections import defaultdict
from typing import Any

import numpy as np

from cstool.model.ir import Graph, panel_sizes
from cstool.training.kernels.call import Payload
from cstool.training.store import aligned_empty

Array = np.ndarray[Any, Any]
FLOAT32 = np.dtype(np.float32)
ROUNDING = 2**18
"""buffers above this size have a multiple of it [floats]"""
PANELS_IN_FLIGHT = 4
"""gradients of lanes and SwarmX at a time, beside waiting gradients, in panels of the largest size"""


class BufferPool:
    """Lends buffers. Sizes are rounded up a little, so that panels of nearly the same size share theirs.

    Args:
        limit_bytes: beyond it, unused buffers make room for buffers of another size; None for no limit
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._free: defaultdict[int, list[Array]] = defaultdict(list)
        self._out: dict[int, Array] = {}
        """buffers that are out, by the identity of the array that owns their memory, which all its views share"""
        self._lock = threading.Lock()
        self.allocated_bytes = 0

    @property
    def used(self) -> int:
        """Number of buffers that are out."""
        return len(self._out)

    def take(self, shape: tuple[int, ...], room: int = 0, dtype: np.dtype = FLOAT32) -> Array:
        """Lend a buffer with arbitrary contents.

        Args:
            room: largest number of elements that the caller will ever want in it, so that it is this buffer then, too
            dtype: float32 or bfloat16
        """
        size = math.prod(shape)
        most = -(-max(size, room) * dtype.itemsize // 4)
        rounded = -(-most // ROUNDING) * ROUNDING if most > ROUNDING else most
        with self._lock:
            free = self._free[rounded]
            if free:
                whole = free.pop()
            else:
                self._make_room(4 * rounded)
                whole = aligned_empty(4 * rounded).view(np.float32)
                self.allocated_bytes += whole.nbytes
            self._out[id(whole.base)] = whole
        return whole.view(dtype)[:size].reshape(shape)

    def _make_room(self, size_bytes: int) -> None:
        while self.limit_bytes is not None and self.allocated_bytes + size_bytes > self.limit_bytes:
            idle = max((free for free in self._free.values() if free), key=lambda free: free[0].nbytes, default=None)
            if idle is None:
                return
            self.allocated_bytes -= idle.pop().nbytes

    def give_back(self, payload: Payload) -> None:
        """Take a buffer back; sparse payloads are not pooled."""
        if isinstance(payload, np.ndarray):
            with self._lock:
                whole = self._out.pop(id(payload.base))
                self._free[whole.size].append(whole)


def in_flight_bytes(graph: Graph) -> int:
    """Size of the gradients that lanes and SwarmX have at a time, about [bytes]."""
    return PANELS_IN_FLIGHT * 4 * max(panel_sizes(graph.weights.values()))


def most_in_flight_bytes(graph: Graph, panels: int) -> int:
    """Largest size of the buffers of gradients on their way, for a number of panels of each size [bytes].

    A pool without a limit keeps as many buffers of each size as were ever out at a time.
    """
    sizes = panel_sizes(graph.trained_weights.values())
    rounded = {-(-size // ROUNDING) * ROUNDING if size > ROUNDING else size for size in sizes}
    return panels * 4 * sum(rounded)
