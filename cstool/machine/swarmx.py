"""SwarmX: hands the weight stream of MemoryX to all systems, and sums their gradients on the way back.

The sum has the shape of one fixed binary tree over the grain numbers, whoever computes its parts and in whatever
order they arrive, so its bits never depend on the number of systems or lanes.
"""

import threading
from typing import Protocol

from cstool.ir import Panel
from cstool.kernels.call import Payload, Weights, add_payloads
from cstool.machine.buffers import BufferPool
from cstool.machine.memoryx import MemoryX
from cstool.machine.recorder import LaneTape


class SwarmX(Protocol):
    """A transport between MemoryX and the lanes of the systems."""

    buffers: BufferPool
    """where lanes take the buffers of gradients"""

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""
        ...

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        ...

    def reduce(self, panel: Panel, op: str, leaf: int, payload: Payload, tape: LaneTape) -> None:
        """Hand in the gradient of one grain; SwarmX owns its buffer from now on.

        Args:
            leaf: number of the grain
            tape: takes down what the lane does here
        """
        ...


class InProcess:
    """SwarmX in one process: all lanes read the same array of a panel, which is MemoryX's to change.

    Args:
        grains: leaves of the tree
        memoryx: where panels come from, and where a sum goes when it is complete, by whoever completed it
    """

    def __init__(self, grains: int, memoryx: MemoryX) -> None:
        self.grains = grains
        self.buffers = memoryx.buffers
        self._memoryx = memoryx
        self._waiting: dict[tuple[Panel, str, int, int], Payload] = {}
        """nodes of trees that wait for their sibling, by (panel, op, level, index)"""
        self._lock = threading.Lock()

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""
        return self._memoryx.acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._memoryx.release(panel)

    def reduce(self, panel: Panel, op: str, leaf: int, payload: Payload, tape: LaneTape) -> None:
        """Hand in the gradient of one grain, as `SwarmX.reduce` says; whoever brings the second of a pair adds it."""
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
                with tape.gradient("SwarmX", "reduce", panel, op, level=level):
                    payload = add_payloads(left, right)
                self.buffers.give_back(right)
            index, nodes, level = index >> 1, (nodes + 1) >> 1, level + 1
        with tape.gradient("MemoryX", "receive", panel, op):
            self._memoryx.receive(panel, op, payload)
