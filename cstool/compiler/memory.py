"""Passes: the backward kernels; when activations and deltas begin and end, and what recomputation could save.

What is neither kept nor read by another kernel passes through its kernel and never lies in memory. A *block* is one
repetition of a repeated segment: a layer, or a pair of layers that differ. With recomputation only the inputs of
blocks are kept, of every `span`-th block; when backward comes to a span, its blocks run forward again. With spans
within spans a deep model needs little memory and one more forward pass per level.

Source of the idea: Chen et al., "Training deep nets with sublinear memory cost", 2016, section 4, applied
recursively.
"""

import math
from dataclasses import replace
from functools import cache

from cstool.compiler.program import Life, Program, op_of, outer_reads, segment_tensors, width_per_token
from cstool.ir import (
    Delta,
    FusedKernel,
    Graph,
    Op,
    Recompute,
    Segment,
    delta_source,
    losses_of,
    read_backward,
    rules_of,
)


def add_backward(program: Program) -> Program:
    """Say which activations every kernel keeps for its backward pass, which runs the kernels in reverse.

    A product keeps its inputs, a norm its input and one or two numbers per token, attention its inputs, its output and
    the logarithm of a sum per head and token.
    """
    inputs, frozen = {tensor.name for tensor in program.graph.inputs}, program.graph.frozen_ops

    def with_kept(segment: Segment, kernel: FusedKernel) -> FusedKernel:
        backward = [op_of(segment, name) for name in kernel.ops if segment.name_of(name) not in frozen]
        read = dict.fromkeys(tensor for op in backward for tensor in read_backward(op))
        return replace(kernel, keeps=tuple(tensor for tensor in read if tensor not in inputs))

    kernels = tuple(
        tuple(with_kept(segment, kernel) for kernel in fused)
        for segment, fused in zip(program.graph.segments, program.kernels, strict=True)
    )
    return replace(program, kernels=kernels)


def statistics_width(op: Op) -> int:
    """Numbers of 32 bits per token that the backward pass of an op needs beside tensors."""
    return sum(map(math.prod, rules_of(op).statistics_shapes(op.attributes, tokens=1).values()))


MOST_LEVELS = 4
"""of recomputation: beyond it, another forward pass saves next to nothing"""


def plan_memory(program: Program) -> Program:
    """Say when activations, statistics and deltas begin and end."""
    graph = program.graph
    lives = tuple(
        tuple(_SegmentLives(graph, segment, kernels, outer).lives())
        for segment, kernels, outer in zip(graph.segments, program.kernels, outer_reads(graph), strict=True)
    )
    return replace(program, lives=lives)


def recompute_options(blocks: int) -> list[Recompute]:
    """Measures to save memory, cheapest first: nothing, then one level more each time."""
    options = [Recompute(0)]
    if blocks > 1:
        for levels in range(1, MOST_LEVELS + 1):
            kept, spans = _fewest_kept(blocks, levels)
            if levels == 1 or kept < options[-1].kept_blocks:
                options.append(Recompute(levels, spans, kept))
    return options


@cache
def _fewest_kept(blocks: int, levels: int) -> tuple[int, tuple[int, ...]]:
    """Return of how many blocks inputs are held at the most, and the spans that make it fewest.

    Every span-th input is kept, and within the span that backward is at, the same again.
    """
    if levels == 1:
        return blocks, (1,)
    # Other spans keep as many outside, and all but the last are longer.
    spans = sorted({math.ceil(blocks / kept) for kept in range(1, blocks + 1)})
    best: tuple[int, tuple[int, ...]] = _fewest_kept(blocks, levels - 1)
    for span in spans:
        _, inner_spans = _fewest_kept(span, levels - 1)
        if (kept := _held_inputs(blocks, (span, *inner_spans))) < best[0]:
            best = kept, (span, *inner_spans)
    return best


@cache
def _held_inputs(blocks: int, spans: tuple[int, ...]) -> int:
    """Return of how many blocks inputs are held at the most: while backward is at the last span, or the one before.

    The first input of a span is both kept outside and the first one inside.
    """
    span, *inner = spans
    if not inner:
        return blocks
    count = math.ceil(blocks / span)
    last = _held_inputs(blocks - (count - 1) * span, tuple(inner))
    return max(count - 1 + last, count - 2 + _held_inputs(span, tuple(inner)) if count > 1 else 0)


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
        # Of a segment all ops run backward, or none.
        self.is_frozen = segment.name_of(segment.ops[0].name) in graph.frozen_ops
        self.without_delta |= {name for name in self.tensors if segment.name_of(name) in graph.frozen_tensors}

    def lives(self) -> list[Life]:
        """Return activations, statistics, then deltas."""
        found = [life for name in self.made if (life := self._activation(name)) is not None]
        for now, op in enumerate(self.ops):
            if width := statistics_width(op):
                name = f"statistics {op.name}"
                stop = now if self.is_frozen else self._back(now)
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
            # The next one has it in what it reads.
            return Life(name, self._width(name), True, start, self.count - 1 if is_output else stop, name, is_output)
        if is_output:
            # The next segment keeps it until its own backward pass is over.
            stop = max(stop, self.count)
        needed = [now for now, op in enumerate(self.ops) if name in read_backward(op)]
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
