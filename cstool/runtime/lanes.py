"""Lanes: host threads that take their grains through the stream, op by op, each at its own pace but never far apart."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence

from cstool.ir import Panel
from cstool.kernels.payload import Payload, Weights
from cstool.kernels.sparse import SparseMatrix
from cstool.runtime.csx import GrainSlot, Scratch
from cstool.runtime.plan import Plan, PlannedOp
from cstool.runtime.swarmx import SwarmX

OPS_APART = 4
"""how many ops the fastest lane may be ahead of the slowest; bounds the gradients that wait for a sibling"""


class Pace:
    """Keeps the lanes of one pass within `OPS_APART` of each other."""

    def __init__(self, lanes: int) -> None:
        self._at = [0] * lanes
        self._moved = threading.Condition()
        self._broken = False

    def reach(self, lane: int, op: int) -> None:
        """Say that a lane is about to begin an op; waits while it is too far ahead."""
        if len(self._at) == 1:
            return
        with self._moved:
            self._at[lane] = op
            self._moved.notify_all()
            self._moved.wait_for(lambda: self._broken or op - min(self._at) <= OPS_APART)
            if self._broken:
                raise LaneStopped

    def leave(self, lane: int) -> None:
        """Say that a lane is through."""
        with self._moved:
            self._at[lane] = sys.maxsize
            self._moved.notify_all()

    def stop(self) -> None:
        """Release all lanes: one of them has failed."""
        with self._moved:
            self._broken = True
            self._moved.notify_all()


class LaneStopped(Exception):
    """Another lane failed; its error is the one that counts."""


class Lane:
    """One lane: the walk over the ops of a plan, forward and backward, for the slots that are its share.

    Args:
        index: number of the lane
        plan: the ops
        slots: its share of the slots of all systems
        swarmx: where panels come from and gradients go
    """

    def __init__(self, index: int, plan: Plan, slots: Sequence[GrainSlot], swarmx: SwarmX) -> None:
        self.index = index
        self.plan = plan
        self.slots = slots
        self.swarmx = swarmx
        self.scratch = Scratch()
        self.forward_s = [0.0] * len(plan.ops)
        """time in each op since the lane was made, waiting for weights included [s]"""
        self.backward_s = [0.0] * len(plan.ops)
        for slot in slots:
            for call in slot.calls:
                call.scratch = self.scratch

    def forward(self, pace: Pace) -> None:
        """Run the forward pass of the slots that hold a grain."""
        for position, planned in enumerate(self.plan.ops):
            pace.reach(self.index, position)
            began = time.perf_counter()
            calls = [slot.calls[position] for slot in self.slots if slot.grain is not None]
            vectors = [self.swarmx.acquire(panel) for panel in planned.vector_panels]
            for panel, is_first, is_last in stages(planned.matrix_panels):
                matrix = [] if panel is None else [self.swarmx.acquire(panel)]
                for call in calls:
                    call.hold(matrix + vectors, panel, is_first, is_last)
                    planned.kernel.forward(call)
                if panel is not None:
                    self.swarmx.release(panel)
            for vector in planned.vector_panels:
                self.swarmx.release(vector)
            self.forward_s[position] += time.perf_counter() - began

    def backward(self, pace: Pace) -> None:
        """Run the backward pass of the same: the stream in reverse, gradients handed in as they are made."""
        for position in reversed(range(len(self.plan.ops))):
            pace.reach(self.index, len(self.plan.ops) - 1 - position)
            began = time.perf_counter()
            planned = self.plan.ops[position]
            slots = [slot for slot in self.slots if slot.grain is not None]
            vectors = [self.swarmx.acquire(panel) for panel in planned.vector_panels]
            of_vectors = [[self.swarmx.buffers.take(panel.shape) for panel in planned.vector_panels] for _ in slots]
            for panel, is_first, is_last in stages(planned.matrix_panels[::-1]):
                matrix = [] if panel is None else [self.swarmx.acquire(panel)]
                for slot, vector_gradients in zip(slots, of_vectors, strict=True):
                    call = slot.calls[position]
                    call.hold(matrix + vectors, panel, is_first, is_last)
                    call.gradients = [*self._matrix_gradient(planned, panel, *matrix), *vector_gradients]
                    planned.kernel.backward(call)
                    if panel is not None:
                        self._hand_in(panel, planned, slot, call.gradients[0])
                    if is_last:
                        slot.settle(planned)
                        for vector, gradient in zip(planned.vector_panels, vector_gradients, strict=True):
                            self._hand_in(vector, planned, slot, gradient)
                if panel is not None:
                    self.swarmx.release(panel)
            for vector in planned.vector_panels:
                self.swarmx.release(vector)
            self.backward_s[position] += time.perf_counter() - began

    def _matrix_gradient(
        self, planned: PlannedOp, panel: Panel | None, weights: Weights | None = None
    ) -> list[Payload | None]:
        if panel is None:
            return []
        if isinstance(weights, SparseMatrix):
            return [self.swarmx.buffers.take(weights.gradient_shape, weights.room)]
        return [None if planned.kernel.sparse_gradient else self.swarmx.buffers.take(panel.shape)]

    def _hand_in(self, panel: Panel, planned: PlannedOp, slot: GrainSlot, gradient: Payload | None) -> None:
        assert gradient is not None and slot.grain is not None
        self.swarmx.reduce(panel, planned.op.name, slot.grain, gradient)


def stages(panels: Sequence[Panel]) -> Iterator[tuple[Panel | None, bool, bool]]:
    """Yield (panel, is first, is last); once with no panel for an op without a matrix."""
    if not panels:
        yield None, True, True
    for k, panel in enumerate(panels):
        yield panel, k == 0, k == len(panels) - 1
