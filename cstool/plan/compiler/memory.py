"""Passes: the backward kernels; lives of activations and deltas, and possible savings by recomputation.

A tensor that is neither kept nor read by another kernel passes through its kernel and never lies in memory. A *block*
is one repetition of a repeated segment: a layer, or a pair of layers that differ. With recomputation only the inputs of
some blocks are held; when backward comes to a block, it runs forward again, from its input, which all blocks since the
last one held have to make first. Which inputs are held, and when, is chosen so that as few blocks as can be run again.

Source: Griewank and Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical Software 26 (2000), for the
fewest runs of a chain with so many inputs held.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from cstool.model.ir import (
    Delta,
    FusedKernel,
    Graph,
    Op,
    OpKind,
    Recompute,
    Segment,
    Weight,
    delta_source,
    losses_of,
    read_backward,
    rules_of,
)
from cstool.plan.compiler.program import (
    Life,
    Program,
    op_of,
    outer_reads,
    segment_tensors,
    segment_weights,
    width_per_token,
)


def add_backward(program: Program) -> Program:
    """Say which activations every kernel keeps for its backward pass, which runs the kernels in reverse.

    A product keeps its inputs, a norm its input and one or two numbers per token, attention its inputs, its output and
    the logarithm of a sum per head and token.
    """
    inputs, frozen = {tensor.name for tensor in program.graph.inputs}, program.graph.frozen_ops

    def with_kept(segment: Segment, kernel: FusedKernel, weights: Mapping[str, Weight]) -> FusedKernel:
        backward = [op_of(segment, name) for name in kernel.ops if segment.name_of(name) not in frozen]
        stay = {name for name, weight in weights.items() if weight.frozen}
        read = dict.fromkeys(tensor for op in backward for tensor in read_backward(op, stay))
        return replace(kernel, keeps=tuple(tensor for tensor in read if tensor not in inputs))

    found = []
    for segment, fused in zip(program.graph.segments, program.kernels, strict=True):
        weights = segment_weights(program.graph, segment)
        found.append(tuple(with_kept(segment, kernel, weights) for kernel in fused))
    return replace(program, kernels=tuple(found))


def statistics_width(op: Op) -> int:
    """Numbers of 32 bits per token that the backward pass of an op needs beside tensors."""
    return sum(map(math.prod, rules_of(op).statistics_shapes(op.attributes, tokens=1).values()))


MOST_LEVELS = 6
"""levels of recomputation, at most: beyond it, another forward pass saves next to nothing"""


def plan_memory(program: Program) -> Program:
    """Say when activations, statistics and deltas begin and end."""
    graph = program.graph
    lives = tuple(
        tuple(_SegmentLives(graph, segment, kernels, outer).lives())
        for segment, kernels, outer in zip(graph.segments, program.kernels, outer_reads(graph), strict=True)
    )
    return replace(program, lives=lives)


def recompute_options(blocks: int) -> list[Recompute]:
    """Measures to save memory, cheapest first: nothing, then one forward pass more each time."""
    options = [Recompute(0)]
    for levels in range(1, MOST_LEVELS + 1 if blocks > 1 else 1):
        kept = next(held for held in range(2, blocks + 1) if block_runs(blocks, held) <= levels * blocks)
        if levels == 1 or kept < options[-1].kept_blocks:
            options.append(Recompute(levels, kept))
    return options


def block_runs(blocks: int, held: int) -> int:
    """Least number of forward runs of blocks in a backward pass; a block counts each time that it runs.

    Args:
        blocks: one after the other, all of which ran forward before, and the segments after them
        held: largest number of inputs held at a time, 2 or more; the rest counts as one, unless all are held

    Example: of three blocks, a, b, c, with the inputs of two held. Forward held the inputs of a and of the rest. Then a
    and b run for the input of c, c runs, a for the input of b, b, a: six.

    >>> [block_runs(3, held) for held in (2, 3)]
    [6, 3]
    """
    if held >= blocks:
        return blocks
    steps, snapshots = blocks + 1, held - 1
    times = next(times for times in count(1) if math.comb(snapshots + times, times) >= steps)
    return times * steps - math.comb(snapshots + times, times - 1)


_OF_ALL_TOKENS = frozenset({OpKind.GATHER, OpKind.PREPEND_TOKEN, OpKind.FIRST_TOKEN, OpKind.MEAN_TOKEN})
"""kinds of op that move tokens, or read others than their own"""


def goes_in_parts(segment: Segment) -> bool:
    """Whether tokens can go through a segment in parts, first ones first, each with keys and values of earlier ones."""
    attention = [op for op in segment.ops if op.kind is OpKind.ATTENTION]
    alone = all(op.kind not in _OF_ALL_TOKENS for op in segment.ops)
    # Keys of a second attention would need all tokens to have gone through the first.
    return alone and len(attention) <= 1 and all(op.attributes["causal"] for op in attention)


def keys_and_values(segment: Segment) -> tuple[str, ...]:
    """Names of the tensors of a segment that its attention sees of other tokens, too."""
    return tuple(name for op in segment.ops if op.kind is OpKind.ATTENTION for name in op.inputs[1:3])


class _SegmentLives:
    """The lives of one segment's activations and deltas."""

    def __init__(self, graph: Graph, segment: Segment, kernels: tuple[FusedKernel, ...], outer: frozenset[str]) -> None:
        self.ops = segment.ops
        self.count = len(segment.ops)
        self.inputs = {tensor.name for tensor in graph.inputs}
        integers = {name for name, tensor in segment_tensors(graph, segment).items() if tensor.dtype == "int32"}
        self.without_delta = self.inputs | integers
        self.tokens = graph.tokens
        self.tensors = segment_tensors(graph, segment)
        self.kept = {name for kernel in kernels for name in kernel.keeps}
        self.stored = self.kept | {name for kernel in kernels for name in kernel.makes}
        self.made = {name: now for now, op in enumerate(self.ops) for name in op.outputs}
        self.readers: dict[str, list[int]] = {}
        for now, op in enumerate(self.ops):
            for name in op.inputs:
                self.readers.setdefault(name, []).append(now)
        self.outputs = outer
        stay = {name for name, weight in segment_weights(graph, segment).items() if weight.frozen}
        self.frozen = {op.name for op in segment.ops if segment.name_of(op.name) in graph.frozen_ops}
        self.is_frozen = len(self.frozen) == len(segment.ops)
        self.reads = [() if op.name in self.frozen else read_backward(op, stay) for op in segment.ops]
        """tensors that the backward pass of each op reads"""
        self.without_delta |= {name for name in self.tensors if segment.name_of(name) in graph.frozen_tensors}

    def lives(self) -> list[Life]:
        """Return activations, statistics, then deltas."""
        found = [life for name in self.made if (life := self._activation(name)) is not None]
        for now, op in enumerate(self.ops):
            if width := statistics_width(op):
                name = f"statistics {op.name}"
                stop = now if op.name in self.frozen else self._back(now)
                found.append(Life(name, width, False, now, stop, name))
        return found if self.is_frozen else [*found, *self._deltas()]

    def _back(self, now: int) -> int:
        return 2 * self.count - 1 - now

    def _width(self, name: str) -> int:
        return width_per_token(self.tensors[name], self.tokens)

    def _activation(self, name: str) -> Life | None:
        if name not in self.stored:
            return None
        start = self.made[name]
        stop = max([start, *self.readers.get(name, [])])
        is_output = name in self.outputs
        if self.is_frozen:
            # The next repetition has it among its inputs.
            return Life(name, self._width(name), True, start, self.count - 1 if is_output else stop, name, is_output)
        if is_output:
            # The next segment keeps it until its own backward pass is over.
            stop = max(stop, self.count)
        needed = [now for now, read in enumerate(self.reads) if name in read]
        if needed:
            stop = max(stop, self._back(min(needed)))
        return Life(name, self._width(name), True, start, stop, name, is_output)

    def _deltas(self) -> list[Life]:
        place: dict[str, str] = {}
        lives: dict[str, Life] = {}

        def use(name: str, moment: int) -> str:
            where = place.setdefault(name, f"delta {name}")
            old = lives.get(where)
            if old is None:
                lives[where] = Life(where, self._width(name), True, moment, moment, where)
            else:
                # Deltas of ops in place are as wide as each other.
                lives[where] = replace(old, stop=max(old.stop, moment))
            return where

        for name in self.made:
            if name in self.outputs and name not in self.without_delta:
                use(name, self.count)
        for now in reversed(range(self.count)):
            op, moment = self.ops[now], self._back(now)
            for output in op.outputs:
                if output not in losses_of(op) and output not in self.without_delta:
                    use(output, moment)
            for index, name in enumerate(op.inputs):
                if name in self.without_delta:
                    continue
                if name not in place and rules_of(op).wafer_delta(index) is not Delta.COMPUTED:
                    place[name] = place[delta_source(op, index)]
                use(name, moment)
                if name not in self.made:
                    # It flows on to the segment before, when this one is through.
                    use(name, 2 * self.count - 1)
        return list(lives.values())


def live_at(lives: tuple[Life, ...], moment: int) -> list[Life]:
    """Tensors in memory at a moment, each place once."""
    found: dict[str, Life] = {}
    for life in lives:
        if life.start <= moment <= life.stop:
            found.setdefault(life.place, life)
    return list(found.values())
