"""Where each activation and delta of one grain lives: liveness over the step, then offsets into one slot.

The plan is a function of the graph and the grain alone, so every grain, on every system, meets the same layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from cstool.ir import Graph, Op, Panel, panels_of
from cstool.kernels.call import Delta, Kernel
from cstool.kernels.table import KERNELS

ALIGNMENT_BYTES = 64
"""one cache line, and one 512-bit vector"""


@dataclass(frozen=True)
class Buffer:
    """A place in the slot of a grain."""

    offset_bytes: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Of its contents [bytes]."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class After(Enum):
    """What is done with the delta of an input once the kernel has run."""

    NOTHING = "nothing"
    COPY = "copy"
    ADD = "add"


@dataclass(frozen=True)
class InputDelta:
    """How the delta of one input of an op is made.

    The kernel writes to (or, with `accumulate`, adds to) buffer `written`; then that is copied or added to `target`.
    """

    written: str
    target: str
    accumulate: bool
    after: After


@dataclass(frozen=True)
class PlannedOp:
    """An op with its panels and the names of its buffers."""

    op: Op
    kernel: Kernel
    matrix_panels: tuple[Panel, ...]
    """panels of the streamed matrix, in forward order; empty where the op has none"""
    vector_panels: tuple[Panel, ...]
    """the other weights, one panel each"""
    kept: Mapping[str, str]
    delta_output: str | None = None
    """buffer of the delta of the (only) output; None for the loss, where backward begins"""
    delta_inputs: tuple[InputDelta | None, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a CSX lays out for each of its grains."""

    ops: tuple[PlannedOp, ...]
    buffers: Mapping[str, Buffer]
    slot_bytes: int
    samples: int
    """samples of a grain"""
    sequence: int
    """tokens of a sample"""


@dataclass
class _Life:
    """A buffer while the plan is made: its first and last moment of use."""

    shape: tuple[int, ...]
    dtype: str
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def make_plan(graph: Graph, samples: int, *, trains: bool) -> Plan:
    """Plan the buffers of one grain.

    Args:
        graph: a verified graph
        samples: samples of the grain
        trains: whether there is a backward pass
    """
    per_sample = graph.tensors[graph.loss].shape
    sequence = math.prod(per_sample)
    shapes = {t.name: (samples * sequence, *t.shape[len(per_sample) :]) for t in graph.tensors.values()}
    end = 2 * len(graph.ops) - 1 if trains else len(graph.ops) - 1
    lives = {t.name: _Life(shapes[t.name], t.dtype, 0, end) for t in graph.inputs}
    planned: list[PlannedOp] = []
    for now, op in enumerate(graph.ops):
        kernel = KERNELS[op.kind]
        backward = end - now if trains else now
        for name in op.inputs:
            lives[name].stop = max(lives[name].stop, backward if kernel.reads_inputs else now)
        for name in op.outputs:
            dtype = graph.tensors[name].dtype
            lives[name] = _Life(shapes[name], dtype, now, backward if kernel.reads_outputs else now)
        kept = {}
        for part, shape in kernel.kept(op.attributes, samples * sequence).items():
            kept[part] = f"{op.name}/{part}"
            lives[kept[part]] = _Life(shape, "float32", now, backward)
        panels = [panels_of(graph.weights[name]) for name in op.weights]
        has_matrix = bool(op.weights) and len(graph.weights[op.weights[0]].shape) > 1
        vectors = tuple(p for vector in panels[has_matrix:] for p in vector)
        planned.append(PlannedOp(op, kernel, panels[0] if has_matrix else (), vectors, kept))
    if trains:
        planned = _Backward(graph, planned, lives, shapes).plan()
    buffers, slot_bytes = _place(lives)
    return Plan(tuple(planned), buffers, slot_bytes, samples, sequence)


class _Backward:
    """Gives every delta a buffer, in the order of backward; lets it share one where nothing is lost by it."""

    def __init__(
        self,
        graph: Graph,
        planned: list[PlannedOp],
        lives: dict[str, _Life],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.graph, self.planned, self.lives, self.shapes = graph, planned, lives, shapes
        self.end = 2 * len(planned) - 1
        self.graph_inputs = {tensor.name for tensor in graph.inputs}
        self.maker = {name: now for now, p in enumerate(planned) for name in p.op.outputs}
        self.readers: dict[str, list[int]] = {}
        for now, p in enumerate(planned):
            for name in p.op.inputs:
                self.readers.setdefault(name, []).append(now)
        self.place: dict[str, str] = {}
        """tensor -> buffer of its delta, once its first consumer (the last in order) has been reached"""

    def plan(self) -> list[PlannedOp]:
        result = []
        for now in reversed(range(len(self.planned))):
            p = self.planned[now]
            output = None if p.op.outputs[0] == self.graph.loss else self.place[p.op.outputs[0]]
            self._use(output, now)
            deltas = tuple(self._input_delta(now, index, output) for index in range(len(p.op.inputs)))
            result.append(replace(p, delta_output=output, delta_inputs=deltas))
        return result[::-1]

    def _use(self, buffer: str | None, now: int) -> None:
        if buffer is not None:
            self.lives[buffer].stop = max(self.lives[buffer].stop, self.end - now)

    def _new(self, buffer: str, tensor: str, now: int) -> str:
        self.lives[buffer] = _Life(self.shapes[tensor], "float32", self.end - now, self.end - now)
        return buffer

    def _input_delta(self, now: int, index: int, output: str | None) -> InputDelta | None:
        p = self.planned[now]
        name = p.op.inputs[index]
        if name in self.graph_inputs:
            return None
        how = p.kernel.delta(p.op.attributes, index)
        arrived = name in self.place
        if not arrived and how is not Delta.COMPUTED and output is not None and self._may_share(now, index):
            self.place[name] = output
            return InputDelta(output, output, accumulate=False, after=After.NOTHING)
        if not arrived:
            self.place[name] = self._new(f"delta/{name}", name, now)
        target = self.place[name]
        self._use(target, now)
        if how is Delta.SAME:
            assert output is not None
            return InputDelta(output, target, accumulate=False, after=After.ADD if arrived else After.COPY)
        if arrived and not p.kernel.accumulates:
            own = self._new(f"delta/{p.op.name}/{index}", name, now)
            return InputDelta(own, target, accumulate=False, after=After.ADD)
        return InputDelta(target, target, accumulate=arrived, after=After.NOTHING)

    def _may_share(self, now: int, index: int) -> bool:
        """Say whether input `index` may have its delta in the buffer of the output's delta.

        Other inputs of the op may share the same buffer. Whoever comes later in backward and writes there (another
        consumer of such an input, or its maker, in place) must come after all readers of this delta, and the
        other way round.
        """
        p = self.planned[now]
        sharing = [i for i in range(len(p.op.inputs)) if p.kernel.delta(p.op.attributes, i) is not Delta.COMPUTED]
        if len(sharing) == 1:
            return True
        # The delta of the input that is made last is read first, by its maker alone, which must not write to it.
        first = max(sharing, key=lambda i: self.maker.get(p.op.inputs[i], -1))
        if index != first:
            return True
        name = p.op.inputs[first]
        maker = self.planned[self.maker[name]]
        only_read = self.readers[name] == [now] and all(
            maker.kernel.delta(maker.op.attributes, i) is Delta.COMPUTED for i in range(len(maker.op.inputs))
        )
        others_write_later = all(
            reader < self.maker[name]
            for i in sharing
            if i != first
            for reader in self.readers[p.op.inputs[i]]
            if reader != now
        )
        return only_read and others_write_later


def _place(lives: Mapping[str, _Life]) -> tuple[dict[str, Buffer], int]:
    """Give every buffer an offset so that those alive together do not overlap: first fit, in order of birth."""
    buffers: dict[str, Buffer] = {}
    alive: list[tuple[int, int, int]] = []
    """(offset, end, last moment), by offset"""
    slot_bytes = 0
    for name, life in sorted(lives.items(), key=lambda item: (item[1].start, -item[1].stop)):
        alive = [place for place in alive if place[2] >= life.start]
        offset = 0
        for other, other_end, _ in alive:
            if other - offset >= life.size_bytes:
                break
            offset = max(offset, other_end)
        alive.append((offset, offset + life.size_bytes, life.stop))
        alive.sort()
        buffers[name] = Buffer(offset, life.shape, life.dtype)
        slot_bytes = max(slot_bytes, offset + life.size_bytes)
    return buffers, slot_bytes
