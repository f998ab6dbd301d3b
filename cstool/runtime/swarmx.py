"""SwarmX: between MemoryX and the systems. On the way back it sums the gradients of all grains.

The sum has the shape of one fixed binary tree over the grain numbers, whoever computes its parts and in whatever
order they arrive, so its bits never depend on the number of systems or lanes.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from cstool.ir import Panel
from cstool.kernels.payload import Payload, add_payloads

Array = np.ndarray[Any, Any]


class BufferPool:
    """Gradient buffers that are used again and again, so that the steady state allocates nothing."""

    def __init__(self) -> None:
        self._free: defaultdict[tuple[int, ...], list[Array]] = defaultdict(list)
        self._lock = threading.Lock()
        self.allocated_bytes = 0

    def take(self, shape: tuple[int, ...]) -> Array:
        """Return a float32 buffer with arbitrary contents."""
        with self._lock:
            if self._free[shape]:
                return self._free[shape].pop()
            self.allocated_bytes += 4 * int(np.prod(shape))
        return np.empty(shape, np.float32)

    def give_back(self, payload: Payload) -> None:
        """Take a buffer back; sparse payloads are not pooled."""
        if isinstance(payload, np.ndarray):
            with self._lock:
                self._free[payload.shape].append(payload)


class SwarmX:
    """Reduces gradients over the grains of a global batch.

    Args:
        grains: leaves of the tree
        buffers: where gradient buffers come from and go when they are used up
        deliver: called with (panel, name of the op, sum) when a sum is complete, by whoever completed it
    """

    def __init__(self, grains: int, buffers: BufferPool, deliver: Callable[[Panel, str, Payload], None]) -> None:
        self.grains = grains
        self.buffers = buffers
        self._deliver = deliver
        self._waiting: dict[tuple[Panel, str, int, int], Payload] = {}
        """nodes of trees that wait for their sibling, by (panel, op, level, index)"""
        self._lock = threading.Lock()

    def reduce(self, panel: Panel, op: str, leaf: int, payload: Payload) -> None:
        """Hand in the gradient of one grain; SwarmX owns its buffer from now on."""
        index, nodes, level = leaf, self.grains, 0
        while nodes > 1:
            if index ^ 1 < nodes:
                with self._lock:
                    other = self._waiting.pop((panel, op, level, index ^ 1), None)
                    if other is None:
                        self._waiting[panel, op, level, index] = payload
                        return
                left, right = (other, payload) if index & 1 else (payload, other)
                payload = add_payloads(left, right)
                self.buffers.give_back(right)
            index, nodes, level = index >> 1, (nodes + 1) >> 1, level + 1
        self._deliver(panel, op, payload)
