"""SwarmX: hands the weight stream of MemoryX to all systems, and sums their gradients on the way back.

In one process, handing a panel to all systems means that all lanes read the same array, which is MemoryX's to change.

The sum has the shape of one fixed binary tree over the grain numbers, whoever computes its parts and in whatever
order they arrive, so its bits never depend on the number of systems or lanes.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from typing import Any, Protocol

import numpy as np

from cstool.ir import Panel
from cstool.kernels.payload import Payload, Weights, add_payloads
from cstool.machine.recorder import LaneTape
from cstool.store import aligned_empty

Array = np.ndarray[Any, Any]
ROUNDING = 2**18
"""buffers above this size have a multiple of it [floats]"""


class BufferPool:
    """Gradient buffers that are used again and again, so that the steady state allocates nothing.

    Sizes are rounded up a little, so that panels of nearly the same size share their buffers.

    Args:
        limit_bytes: beyond it, buffers that nobody uses make room for those of another size; None for no limit
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._free: defaultdict[int, list[Array]] = defaultdict(list)
        self._out: dict[int, Array] = {}
        """buffers that are out, by where they begin"""
        self._lock = threading.Lock()
        self.allocated_bytes = 0

    @property
    def used(self) -> int:
        """How many buffers are out."""
        return len(self._out)

    def take(self, shape: tuple[int, ...], room: int = 0) -> Array:
        """Return a float32 buffer with arbitrary contents.

        Args:
            shape: of the buffer
            room: numbers that whoever asks will want in it at the most, so that it is this buffer then, too
        """
        size = math.prod(shape)
        most = max(size, room)
        rounded = -(-most // ROUNDING) * ROUNDING if most > ROUNDING else most
        with self._lock:
            free = self._free[rounded]
            if free:
                whole = free.pop()
            else:
                self._make_room(4 * rounded)
                whole = aligned_empty(4 * rounded).view(np.float32)
                self.allocated_bytes += whole.nbytes
            self._out[whole.__array_interface__["data"][0]] = whole
        return whole[:size].reshape(shape)

    def _make_room(self, size_bytes: int) -> None:
        while self.limit_bytes is not None and self.allocated_bytes + size_bytes > self.limit_bytes:
            idle = max((free for free in self._free.values() if free), key=lambda free: free[0].nbytes, default=None)
            if idle is None:
                return
            self.allocated_bytes -= idle.pop().nbytes

    def give_back(self, payload: Payload) -> None:
        """Take a buffer back; sparse payloads are not pooled."""
        if isinstance(payload, np.ndarray):
            address = payload.__array_interface__["data"][0]
            with self._lock:
                whole = self._out.pop(address)
                self._free[whole.size].append(whole)


class WeightSource(Protocol):
    """What SwarmX is connected to on the other side: MemoryX."""

    def acquire(self, panel: Panel) -> Weights:
        """Return the weights of a panel, to be read until `release`."""

    def release(self, panel: Panel) -> None:
        """Take a panel back."""

    def receive(self, panel: Panel, op: str, payload: Payload) -> None:
        """Take the sum of a panel's gradient from one op, with its buffer."""


class SwarmX:
    """Streams panels to the systems and reduces their gradients over the grains of a global batch.

    Args:
        grains: leaves of the tree
        buffers: where gradient buffers come from and go when they are used up
        memoryx: where panels come from, and where a sum goes when it is complete, by whoever completed it
    """

    def __init__(self, grains: int, buffers: BufferPool, memoryx: WeightSource) -> None:
        self.grains = grains
        self.buffers = buffers
        self._memoryx = memoryx
        self._waiting: dict[tuple[Panel, str, int, int], Payload] = {}
        """nodes of trees that wait for their sibling, by (panel, op, level, index)"""
        self._lock = threading.Lock()

    def acquire(self, panel: Panel) -> Weights:
        """Return the weights of a panel, to be read until `release`."""
        return self._memoryx.acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._memoryx.release(panel)

    def reduce(self, panel: Panel, op: str, leaf: int, payload: Payload, tape: LaneTape | None = None) -> None:
        """Hand in the gradient of one grain; SwarmX owns its buffer from now on.

        Args:
            panel: whose gradient it is
            op: that it is of
            leaf: number of the grain
            payload: the gradient
            tape: takes down what the lane does here
        """
        if tape is not None:
            tape.count(len(self._waiting), self.buffers.used, self.buffers.allocated_bytes)
        index, nodes, level = leaf, self.grains, 0
        while nodes > 1:
            if index ^ 1 < nodes:
                with self._lock:
                    other = self._waiting.pop((panel, op, level, index ^ 1), None)
                    if other is None:
                        self._waiting[panel, op, level, index] = payload
                        return
                left, right = (other, payload) if index & 1 else (payload, other)
                if tape is None:
                    payload = add_payloads(left, right)
                else:
                    with tape.reduction(panel, op, level):
                        payload = add_payloads(left, right)
                self.buffers.give_back(right)
            index, nodes, level = index >> 1, (nodes + 1) >> 1, level + 1
        if tape is None:
            self._memoryx.receive(panel, op, payload)
        else:
            with tape.receipt(panel, op):
                self._memoryx.receive(panel, op, payload)
