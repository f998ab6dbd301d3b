"""Pass: the backward pass of every kernel, and the lives of activations and deltas.

Backward runs the kernels in reverse. Each computes the delta that flows on and the gradients of its weights, and needs
some activations kept for that: a product its inputs, a norm its input and one or two numbers per token, attention its
inputs, its output and the logarithm of a sum per head and token. What is neither kept nor read by another kernel passes
through its kernel and never lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cstool.compiler.program import Life, Program, outer_reads, segment_tensors
from cstool.ir import FusedKernel, Graph, Op, OpKind, Segment, Tensor


@dataclass(frozen=True)
class Kept:
    """What backward of an op needs.

    Args:
        inputs: whether its inputs
        outputs: whether its output
        statistics: numbers of 32 bits per token; attribute name for as many as it says
        in_place: whether the delta of the first input takes the place of the output's
        shares_all: whether those of the other inputs do, too
    """

    inputs: bool = False
    outputs: bool = False
    statistics: int | str = 0
    in_place: bool = False
    shares_all: bool = False


KEPT: Mapping[OpKind, Kept] = {
    OpKind.EMBEDDING: Kept(),
    OpKind.POSITION_EMBEDDING: Kept(in_place=True),
    OpKind.FIXED_POSITION_EMBEDDING: Kept(in_place=True),
    OpKind.SCALE: Kept(in_place=True),
    OpKind.LAYER_NORM: Kept(inputs=True, statistics=2),
    OpKind.RMS_NORM: Kept(inputs=True, statistics=1),
    OpKind.LINEAR: Kept(inputs=True),
    OpKind.ROTARY: Kept(in_place=True),
    OpKind.ATTENTION: Kept(inputs=True, outputs=True, statistics="heads"),
    OpKind.ACTIVATION: Kept(inputs=True, in_place=True),
    OpKind.GATED_ACTIVATION: Kept(inputs=True, in_place=True),
    OpKind.RESIDUAL: Kept(in_place=True, shares_all=True),
    OpKind.SOFTMAX_LOSS: Kept(inputs=True, statistics=4),
}
"""the loss keeps maximum, sum, logit of the label and count per token; its logits are computed twice"""


@dataclass(frozen=True)
class AddBackward:
    """Say what every kernel keeps for its backward pass, and when activations and deltas begin and end."""

    name: str = "add_backward"

    def __call__(self, program: Program) -> Program:
        """Return the program with what is kept, and with lives."""
        graph = program.graph
        kernels, lives = [], []
        for segment, fused, outer in zip(graph.segments, program.kernels, outer_reads(graph), strict=True):
            by_name = {op.name: op for op in segment.ops}
            kernels.append(tuple(replace(kernel, keeps=_keeps(kernel, by_name, graph)) for kernel in fused))
            lives.append(tuple(_SegmentLives(graph, segment, kernels[-1], outer).lives()))
        return replace(program, kernels=tuple(kernels), lives=tuple(lives))


def _keeps(kernel: FusedKernel, ops: Mapping[str, Op], graph: Graph) -> tuple[str, ...]:
    inputs = {tensor.name for tensor in graph.inputs}
    kept: dict[str, None] = {}
    for name in kernel.ops:
        op = ops[name]
        needed = (*op.inputs * KEPT[op.kind].inputs, *op.outputs * KEPT[op.kind].outputs)
        kept.update(dict.fromkeys(tensor for tensor in needed if tensor not in inputs))
    return tuple(kept)


def statistics_width(op: Op) -> int:
    """Return how many numbers per token the backward pass of an op needs beside tensors."""
    statistics = KEPT[op.kind].statistics
    return int(op.attributes[statistics]) if isinstance(statistics, str) else statistics


class _SegmentLives:
    """The lives of one segment's activations and deltas."""

    def __init__(self, graph: Graph, segment: Segment, kernels: tuple[FusedKernel, ...], outer: frozenset[str]) -> None:
        self.ops = segment.ops
        self.count = len(segment.ops)
        self.inputs = {tensor.name for tensor in graph.inputs}
        self.tensors: Mapping[str, Tensor] = MappingProxyType(segment_tensors(graph, segment))
        self.kept = {name for kernel in kernels for name in kernel.keeps}
        self.stored = self.kept | {name for kernel in kernels for name in kernel.makes}
        self.made = {name: now for now, op in enumerate(self.ops) for name in op.outputs}
        self.readers: dict[str, list[int]] = {}
        for now, op in enumerate(self.ops):
            for name in op.inputs:
                self.readers.setdefault(name, []).append(now)
        self.outputs = outer

    def lives(self) -> list[Life]:
        """Return activations, statistics, then deltas."""
        found = [life for name in self.made if (life := self._activation(name)) is not None]
        for now, op in enumerate(self.ops):
            if width := statistics_width(op):
                name = f"statistics {op.name}"
                found.append(Life(name, width, False, now, self._back(now), name))
        return [*found, *self._deltas()]

    def _back(self, now: int) -> int:
        return 2 * self.count - 1 - now

    def _width(self, name: str) -> int:
        tensor = self.tensors[name]
        loss_rank = len(self.tensors[next(iter(self.inputs & {"labels"}))].shape)
        return math.prod(tensor.shape[loss_rank:])

    def _activation(self, name: str) -> Life | None:
        if name not in self.stored:
            return None
        start = self.made[name]
        stop = max([start, *self.readers.get(name, [])])
        is_output = name in self.outputs
        if is_output:
            # The next segment keeps it until its own backward pass is over.
            stop = max(stop, self.count)
        needed = [
            now
            for now, op in enumerate(self.ops)
            if name in op.inputs * KEPT[op.kind].inputs or name in op.outputs * KEPT[op.kind].outputs
        ]
        if needed:
            stop = max(stop, self._back(min(needed)))
        return Life(name, self._width(name), True, start, stop, name, is_output)

    def _deltas(self) -> list[Life]:
        place: dict[str, str] = {}
        lives: dict[str, Life] = {}

        def use(name: str, moment: int) -> str:
            where = place.setdefault(name, f"delta {name}")
            old = lives.get(where)
            width = self._width(name)
            if old is None:
                lives[where] = Life(where, width, True, moment, moment, where)
            else:
                lives[where] = replace(old, stop=max(old.stop, moment), width=max(old.width, width))
            return where

        for name in self.made:
            if name in self.outputs:
                use(name, self.count)
        for now in reversed(range(self.count)):
            op, moment = self.ops[now], self._back(now)
            rule = KEPT[op.kind]
            output = op.outputs[0]
            has_delta = op.kind is not OpKind.SOFTMAX_LOSS
            where = use(output, moment) if has_delta else None
            for index, name in enumerate(op.inputs):
                if name in self.inputs:
                    continue
                if where is not None and name not in place and rule.in_place and (index == 0 or rule.shares_all):
                    place[name] = where
                use(name, moment)
                if name not in self.made:
                    # It flows on to the segment before, when this one is through.
                    use(name, 2 * self.count - 1)
        return list(lives.values())


def live_at(lives: tuple[Life, ...], moment: int) -> list[Life]:
    """Return what takes memory at a moment, each place once."""
    found: dict[str, Any] = {}
    for life in lives:
        if life.start <= moment <= life.stop:
            found.setdefault(life.place, life)
    return list(found.values())
