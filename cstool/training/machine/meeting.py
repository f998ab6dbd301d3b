"""The meeting of all samples of a batch: the tensors of their grains are gathered, and deltas go back to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Barrier
from cstool.training.kernels.call import LossResult
from cstool.training.machine.csx import GrainSlot
from cstool.training.machine.plan import make_plan
from cstool.training.store import aligned_empty

Array = np.ndarray[Any, Any]


class Gathered(NamedTuple):
    """Tensors of some grains, as they come to the meeting or as their deltas come from it."""

    grains: Sequence[int]
    """their numbers"""
    arrays: Sequence[Array]
    """by tensor: (grains * samples * rows, ...), grain by grain"""


class Meeting:
    """The whole batch as one grain, which runs the ops beyond a barrier. Rank 0 has it.

    Rows are in the order of the samples, in any order of arrival: so the bits depend on nothing else.

    Args:
        batch_size: places of a batch
        grains: number of grains of a batch
    """

    def __init__(self, barrier: Barrier, batch_size: int, grains: int, *, trains: bool, seed: int) -> None:
        self.plan = make_plan(barrier.beyond, batch_size, trains=trains, is_beyond=True)
        self.memory = aligned_empty(self.plan.slot_bytes)
        self._slot = GrainSlot(self.plan, self.memory, seed)
        self._slot.grain = 0
        self._grains, self._trains = grains, trains
        self._names = [tensor.name for tensor in barrier.gathered]
        deltas = {
            name: delta.target
            for planned in self.plan.ops
            for name, delta in zip(planned.op.inputs, planned.delta_inputs, strict=False)
            if delta is not None
        }
        self._deltas = [deltas[name] for name in self._names if name in deltas]

    def take(self, gathered: Gathered) -> None:
        """Take the tensors of some grains."""
        if not gathered.grains:
            return
        for name, rows in zip(self._names, gathered.arrays, strict=True):
            self._of_grains(name)[list(gathered.grains)] = rows.reshape(len(gathered.grains), -1)

    def is_finite(self, grains: Sequence[int]) -> bool:
        """Whether the tensors of some grains are finite throughout."""
        return all(bool(np.isfinite(self._of_grains(name)[list(grains)]).all()) for name in self._names)

    def run(self, scales: Sequence[float]) -> tuple[LossResult, ...]:
        """Run the ops beyond the barrier, forward and, where it trains, backward: the losses of the batch.

        Args:
            scales: factor on each term of a loss, loss by loss
        """
        self._slot.take(0, 0, scales, dropout=False)
        for planned, call in zip(self.plan.ops, self._slot.calls, strict=True):
            planned.kernel.forward(call)
        for planned, call in reversed(list(zip(self.plan.ops, self._slot.calls, strict=True))):
            if self._trains:
                planned.kernel.backward(call)
                self._slot.settle(planned)
        return self._slot.losses

    def deltas(self, grains: Sequence[int]) -> Gathered:
        """Hand out the deltas for some grains."""
        return Gathered(grains, [self._of_grains(name)[list(grains)] for name in self._deltas])

    def _of_grains(self, buffer: str) -> Array:
        """(grains, numbers of a grain)."""
        found: Array = self._slot.arrays[buffer].reshape(self._grains, -1)
        return found
