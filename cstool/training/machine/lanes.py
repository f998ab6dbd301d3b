"""Lanes: host threads that take their grains through the stream, op by op, each at its own pace but never far apart."""

import sys
import threading
import time
from collections.abc import Sequence

import numpy as np

from cstool.model.ir import Panel, rules_of
from cstool.training.kernels.call import Call, Payload, Weights
from cstool.training.kernels.mixture import chosen_experts
from cstool.training.kernels.sparse import SparseMatrix
from cstool.training.machine.csx import GrainSlot, Scratch
from cstool.training.machine.plan import Plan, PlannedOp
from cstool.training.machine.recorder import OFF, LaneTape
from cstool.training.machine.stages import PHASES, stages
from cstool.training.machine.swarmx import Node, SwarmX

STAGES_APART = 4
"""largest lead of the fastest lane over the slowest [panels]; bounds the gradients that wait for a sibling"""
NO_WEIGHTS = np.empty((0, 0), np.float32)
"""in the place of a panel that no token needs"""


class Pace:
    """Keeps the lanes of one pass together.

    Args:
        apart: largest lead of the fastest over the slowest [stages]
        feeder_apart: largest lead of one more, last lane, which feeds other ranks; None for no such lane
    """

    def __init__(self, lanes: int, apart: int, feeder_apart: int | None = None) -> None:
        self._apart = [apart] * lanes + ([] if feeder_apart is None else [feeder_apart])
        self._at = [0] * len(self._apart)
        self._moved = threading.Condition()
        self._waiting = 0
        """lanes that wait for others, or are about to"""
        self._broken = False

    def step(self, lane: int) -> None:
        """Begin the next stage of a lane, a panel or an op without one; waits while the lane is too far ahead.

        Raises:
            LaneStopped: another lane failed
        """
        if len(self._at) == 1:
            return
        self._at[lane] += 1
        # Each lane sets its place before it looks for waiting lanes, a waiting lane its flag before it looks at
        # the places of the others: so of two lanes one sees the other, without a lock if no lane has to wait.
        if self._waiting:
            with self._moved:
                self._moved.notify_all()
        if not self._may_go(lane):
            with self._moved:
                self._waiting += 1
                self._moved.wait_for(lambda: self._may_go(lane))
                self._waiting -= 1
        if self._broken:
            raise LaneStopped

    def _may_go(self, lane: int) -> bool:
        return self._broken or self._at[lane] - min(self._at) <= self._apart[lane]

    def leave(self, lane: int) -> None:
        """Note that a lane has finished."""
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
        slots: its share of the slots of all systems
    """

    def __init__(self, index: int, plan: Plan, slots: Sequence[GrainSlot], swarmx: SwarmX) -> None:
        self.index = index
        self.plan = plan
        self.slots = slots
        self.swarmx = swarmx
        self.scratch = Scratch()
        self._chosen: dict[int, frozenset[Panel]] = {}
        """of a wave: panels of the experts that its tokens chose, by the position of their op"""
        self.tape = LaneTape(OFF, index, [])
        """records the work of this lane, if a recording is wanted"""
        self.seconds = {phase: np.zeros(len(plan.ops)) for phase in PHASES}
        """time in each op since the lane was made, waiting for weights included [s]"""
        for slot in slots:
            for call in slot.calls:
                call.scratch = self.scratch

    def forward(self, pace: Pace) -> None:
        """Run the forward pass of the slots that hold a grain."""
        self._chosen.clear()
        for position in range(len(self.plan.ops)):
            self.run_op(position, "forward", pace)
            if position in self.plan.routed and self.swarmx.skips:
                self._choose(position)

    def backward(self, pace: Pace) -> None:
        """Run the backward pass of the same: the stream in reverse, gradients handed in as they are made.

        A layer whose activations are recomputed streams forward once more before it streams back.
        """
        for position, forward in self.plan.timeline.way_back:
            self.run_op(position, "again" if forward else "backward", pace)

    def _choose(self, router: int) -> None:
        """Take note of the experts that the tokens of a wave chose: no panels of others are acquired in it."""
        choices = [slot.calls[router].outputs[1] for slot in self.slots if slot.grain is not None]
        experts = frozenset[int]().union(*map(chosen_experts, choices))
        for position in self.plan.routed[router]:
            panels = self.plan.ops[position].panels_of_experts(experts)
            self._chosen[position] = frozenset(panels)
            self.swarmx.want(panels, self.plan.passes[position])

    def run_op(self, position: int, phase: str, pace: Pace) -> None:
        """Run an op on the grains of this lane, panel by panel.

        Args:
            phase: of `PHASES`
        """
        began = time.perf_counter()
        planned, backward = self.plan.ops[position], phase == "backward"
        kernel = planned.kernel.backward if backward else planned.kernel.forward
        slots = [slot for slot in self.slots if slot.grain is not None]
        chosen = self._chosen.get(position)
        with _Held(self, planned.vector_panels) as vectors:
            owed = planned.trained_vectors if backward else ()
            of_vectors = [[None if p is None else self.swarmx.buffers.take(p.shape) for p in owed] for _ in slots]
            for panel, is_first, is_last in stages(planned.matrix_panels[:: -1 if backward else 1]):
                self.tape.keep(pace.step)
                trains = backward and planned.trains(panel)
                needed = () if panel is None or (chosen is not None and panel not in chosen) else (panel,)
                with _Held(self, needed) as matrix:
                    if panel is not None and not needed:
                        matrix = [NO_WEIGHTS]
                    left: Payload | None = None
                    for number, (slot, vector_gradients) in enumerate(zip(slots, of_vectors, strict=True)):
                        call = slot.calls[position]
                        call.hold(matrix + vectors, panel, is_first, is_last)
                        buffer, call.adds = left, left is not None
                        if buffer is None and trains and needed:
                            buffer = self._matrix_gradient(planned, panel, *matrix)
                        if backward:
                            call.gradients = [*([] if panel is None else [buffer]), *vector_gradients]
                        with self.tape.kernel(planned, phase, slot, panel):
                            kernel(call)
                        left = None
                        if trains and panel is not None:
                            if not call.adds and needed and adds_up(planned, call, slots[number : number + 2]):
                                left = call.gradients[0]
                            else:
                                self._hand_in(panel, planned, slot, call.gradients[0], level=int(call.adds))
                            if buffer is not None and call.gradients[0] is not buffer:
                                self.swarmx.buffers.give_back(buffer)
                        if backward and is_last:
                            self.tape.settle(planned, slot)
                            for vector, gradient in zip(owed, vector_gradients, strict=True):
                                if vector is not None:
                                    self._hand_in(vector, planned, slot, gradient)
                        call.let_go()
        self.seconds[phase][position] += time.perf_counter() - began

    def _matrix_gradient(
        self, planned: PlannedOp, panel: Panel | None, weights: Weights | None = None
    ) -> Payload | None:
        """A buffer for the gradient of a panel; None where the kernel brings the rows that are not zero."""
        if panel is None or rules_of(planned.op).rows_by_data:
            return None
        if isinstance(weights, SparseMatrix):
            return self.swarmx.buffers.take(weights.gradient_shape, weights.room)
        return self.swarmx.buffers.take(panel.shape)

    def _hand_in(
        self, panel: Panel, planned: PlannedOp, slot: GrainSlot, gradient: Payload | None, level: int = 0
    ) -> None:
        assert gradient is not None and slot.grain is not None
        self.swarmx.reduce(panel, planned.op.name, Node(level, slot.grain >> level), gradient, self.tape)


def adds_up(planned: PlannedOp, call: Call, slots: Sequence[GrainSlot]) -> bool:
    """Whether the product that makes the matrix gradient of the second grain adds it to the first's, in the same bits.

    Args:
        call: of the op on the first grain, with its weights
        slots: of the first grain, and of the next of the lane, where there is one
    """
    if not planned.kernel.adds or len(slots) < 2:
        return False
    first, second = slots[0].grain, slots[1].grain
    assert first is not None
    return first % 2 == 0 and second == first + 1 and call.adds_in_place


class _Held:
    """Panels that a lane holds for the length of a context, however it ends: others may wait for their room.

    A class, since a step of a small model enters so many that generators would be a good part of it.
    """

    __slots__ = ("_held", "_lane", "_panels")

    def __init__(self, lane: Lane, panels: Sequence[Panel]) -> None:
        self._lane, self._panels = lane, panels
        self._held = 0

    def __enter__(self) -> list[Weights]:
        lane, weights = self._lane, []
        try:
            for panel in self._panels:
                weights.append(lane.tape.acquire(lane.swarmx.acquire, panel))
                self._held += 1
        except BaseException:
            self.__exit__()
            raise
        return weights

    def __exit__(self, *exc: object) -> None:
        while self._held:
            self._held -= 1
            try:
                self._lane.swarmx.release(self._panels[self._held])
            except BaseException:
                self.__exit__()
                raise
