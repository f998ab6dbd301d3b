"""CSX: one system. It holds the activations of its grains, runs the ops on them, and never holds a weight."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cstool.foundation.random_keys import key_of
from cstool.model.ir import losses_of, matrices_of, texts_of
from cstool.training.kernels import elementary
from cstool.training.kernels.call import Call, LossResult
from cstool.training.kernels.random import Dropout
from cstool.training.machine.plan import After, Plan, PlannedOp
from cstool.training.store import aligned_empty

Array = np.ndarray[Any, Any]


class Scratch:
    """Work space of one lane: memory by name, which grows to the largest array asked for under it."""

    def __init__(self) -> None:
        self._memory: dict[str, Array] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Array:
        """Lend a float32 array with arbitrary contents."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = aligned_empty(4 * size).view(np.float32)
        return memory[:size].reshape(shape)

    @property
    def allocated_bytes(self) -> int:
        """Memory of all arrays [bytes]."""
        return sum(memory.nbytes for memory in self._memory.values())


class GrainSlot:
    """The memory of one grain, and a ready-made `Call` per op that points into it."""

    def __init__(self, plan: Plan, memory: Array, seed: int, system: int = 0) -> None:
        self.plan = plan
        self.system = system
        """number of the system whose memory it is"""
        self.arrays: dict[str, Array] = {}
        for name, buffer in plan.buffers.items():
            part = memory[buffer.offset_bytes : buffer.offset_bytes + buffer.size_bytes]
            self.arrays[name] = part.view(buffer.dtype).reshape(buffer.shape)
        self.calls = [self._call(planned) for planned in plan.ops]
        self._dropouts = [
            (call, planned.op, key_of(seed, planned.op.name))
            for call, planned in zip(self.calls, plan.ops, strict=True)
            if planned.op.attributes.get("dropout")
        ]
        self._loss_calls = [call for call, planned in zip(self.calls, plan.ops, strict=True) if losses_of(planned.op)]
        self.grain: int | None = None
        """number of the grain in the global batch; None while the slot is empty"""

    def _call(self, planned: PlannedOp) -> Call:
        deltas = planned.delta_inputs
        return Call(
            attributes=planned.op.attributes,
            sequence=len(self.arrays[planned.op.inputs[0]]) // (self.plan.samples * texts_of(planned.op)),
            inputs=tuple(self.arrays[name] for name in planned.op.inputs),
            outputs=tuple(self.arrays[name] for name in planned.op.outputs),
            kept={part: self.arrays[name] for part, name in planned.kept.items()},
            delta_outputs=tuple(None if name is None else self.arrays[name] for name in planned.delta_outputs),
            delta_inputs=tuple(None if d is None else self.arrays[d.written] for d in deltas),
            accumulate=tuple(d is not None and d.accumulate for d in deltas),
            matrices=matrices_of(planned.op),
        )

    def take(self, grain: int, step: int, scales: Sequence[float], dropout: bool) -> None:
        """Take a grain; its samples come with `Csx.load`.

        Args:
            scales: factor on each term of a loss, loss by loss
            dropout: False for evaluation
        """
        self.grain = grain
        sample = grain * self.plan.samples
        for call, op, key in self._dropouts:
            rate, first = op.attributes["dropout"], sample * texts_of(op)
            call.dropout = Dropout(rate, key, step, first, call.sequence) if dropout else None
        for call, scale in zip(self._loss_calls, scales, strict=True):
            call.scale, call.evaluates = scale, not dropout

    @property
    def losses(self) -> tuple[LossResult, ...]:
        """The losses of the grain, once its forward pass is over."""
        return tuple(call.loss for call in self._loss_calls if call.loss is not None)

    def settle(self, planned: PlannedOp) -> None:
        """Copy or add the deltas that an op's kernel wrote to where they belong."""
        for delta in planned.delta_inputs:
            if delta is None or delta.after is After.NOTHING:
                continue
            source, target = self.arrays[delta.written], self.arrays[delta.target]
            if delta.after is After.COPY:
                elementary.copy(source, target)
            else:
                elementary.add(target, source, target)


class Csx:
    """One system: an arena with a slot for each grain that it works on at a time, which may be none."""

    def __init__(self, index: int, plan: Plan, slots: int, seed: int) -> None:
        self.index, self._samples = index, plan.samples
        self.arena = aligned_empty(plan.slot_bytes * slots)
        self.slots = [
            GrainSlot(plan, self.arena[i * plan.slot_bytes : (i + 1) * plan.slot_bytes], seed, index)
            for i in range(slots)
        ]
        rows = self.arena.reshape(slots, plan.slot_bytes)
        self._across = {
            name: rows[:, b.offset_bytes : b.offset_bytes + b.size_bytes].view(b.dtype).reshape(slots, *b.shape)
            for name, b in plan.buffers.items()
        }
        """by name, the arrays of all slots, (slots, ...)"""

    def load(self, inputs: Mapping[str, Array], first: int, count: int) -> None:
        """Copy samples to the first of the slots.

        Args:
            inputs: by name, (samples, ...); inputs that the model does not read are ignored
            first: sample of the first slot
            count: number of slots
        """
        size = self._samples
        for name, value in inputs.items():
            if name in self._across:
                arrays = self._across[name][:count]
                np.copyto(arrays, value[first : first + count * size].reshape(arrays.shape))
