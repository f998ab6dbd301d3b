"""Pipelined: the chain of stages, what each holds, and how often the model is laid out side by side.

All stages run at the same time on successive samples. In the time T of the slowest, each runs one sample forward and
one backward, so stage s of N holds the activations of up to 2 (N - s) - 1 samples. With R replicas a system's part of
the batch, B samples, takes (B / R + 2 N - 2) T: the pipeline fills and drains once per step. Then every PE updates
its weights, after the replicas have added up their gradients.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cstool.compiler.kernel_work import KernelWork, kernel_works
from cstool.compiler.memory import statistics_width
from cstool.compiler.placement import NEVER
from cstool.compiler.program import Program, op_of, segment_tensors
from cstool.compiler.stage import Held, PipelineStage, bytes_per_weight
from cstool.compiler.stage_sizes import all_cycles
from cstool.ir import FusedKernel, Segment, read_backward
from cstool.perf.pe import SUM_BYTES, Pe, ceil_div, input_element_bytes

_GRID = 20
"""widths and heights that an estimate tries"""


@dataclass(frozen=True)
class Edge:
    """What one stage sends another.

    Args:
        name: of the tensor
        source: number of the stage; -1 is the west edge of the wafer
        target: number of the stage
        kind: "activation", "delta", "tie" or "input"
        elements: per sample
        element_bytes: of each
    """

    name: str
    source: int
    target: int
    kind: str
    elements: int
    element_bytes: int


@dataclass(frozen=True)
class _Link:
    """A kernel of the chain with its number, what it reads and makes written out."""

    segment: Segment
    work: KernelWork
    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    weights: tuple[str, ...]


class Chain:
    """The kernels of a program, repetitions written out, as stages of a pipeline."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.request = program.request
        works = kernel_works(program)
        self.links = [
            _written_out(segment, work, repetition)
            for segment, kernels in zip(program.graph.segments, works, strict=True)
            for repetition in range(segment.count)
            for work in kernels
        ]
        self._maker = {name: number for number, link in enumerate(self.links) for name in link.makes}
        self._readers: dict[str, list[int]] = {}
        for number, link in enumerate(self.links):
            for name in dict.fromkeys(link.reads):
                self._readers.setdefault(name, []).append(number)

    @property
    def length(self) -> int:
        """Number of stages."""
        return len(self.links)

    @property
    def weight_bytes(self) -> int:
        """Of all weights, with master copies, optimizer state and gradients."""
        per_weight = bytes_per_weight(self.request.operand_bits, self.request.optimizer_states)
        return per_weight * sum(link.work.weight_elements for link in self.links)

    def stages(self, samples: int, is_recomputed: bool) -> list[PipelineStage]:
        """Return the stages for so many samples per replica and step."""
        return [
            PipelineStage(
                name=link.name,
                work=link.work,
                held=tuple(self._held(number, samples, is_recomputed)),
                in_flight=self._in_flight(number, samples),
                recomputes=int(is_recomputed),
                system=self.request.system,
                operand_bits=self.request.operand_bits,
                optimizer_states=self.request.optimizer_states,
            )
            for number, link in enumerate(self.links)
        ]

    def edges(self) -> list[Edge]:
        """Edges between stages: activations, their deltas the other way, inputs, tied weights."""
        graph = self.program.graph
        inputs = {tensor.name: tensor for tensor in graph.inputs}
        operand_bytes = self.request.operand_bits // 8
        edges = []
        for number, link in enumerate(self.links):
            for name, written in zip(link.reads, link.work.kernel.reads, strict=True):
                if name in inputs:
                    edges.append(Edge(name, -1, number, "input", input_bytes(self.program, name), 1))
                    continue
                elements = math.prod(segment_tensors(graph, link.segment)[written].shape)
                source = self._maker[name]
                edges.append(Edge(name, source, number, "activation", elements, operand_bytes))
                edges.append(Edge(name, number, source, "delta", elements, operand_bytes))
        return [*edges, *self._ties()]

    def _ties(self) -> Iterator[Edge]:
        users: dict[str, int] = {}
        for number, link in enumerate(self.links):
            for name in link.weights:
                if name in users:
                    size = self.program.graph.weights[name].size
                    yield Edge(name, number, users[name], "tie", size, SUM_BYTES)
                    yield Edge(name, users[name], number, "tie", size, SUM_BYTES)
                users.setdefault(name, number)

    def _in_flight(self, number: int, samples: int) -> int:
        return min(samples, 2 * (self.length - number) - 1)

    def _held(self, number: int, samples: int, is_recomputed: bool) -> Iterator[Held]:
        """Memory of a stage for the samples between their forward and backward pass."""
        link = self.links[number]
        kernel, operand_bytes = link.work.kernel, self.request.operand_bits // 8
        tensors = segment_tensors(self.program.graph, link.segment)
        inputs = {tensor.name for tensor in self.program.graph.inputs}
        in_flight = self._in_flight(number, samples)
        kept = self._kept(link, is_recomputed)
        for name in kept:
            yield Held(name, math.prod(tensors[name].shape), operand_bytes, in_flight)
        if not is_recomputed:
            for name in kernel.ops:
                if width := statistics_width(op_of(link.segment, name)):
                    yield Held(f"statistics {name}", width * self.program.tokens, SUM_BYTES, in_flight)
        for name, written in zip(kernel.reads, link.reads, strict=True):
            # What comes from further back waits until what came the long way is here; deltas wait on the way back.
            if name in inputs:
                element_bytes = input_element_bytes(tensors[name], self.request.operand_bits)
                yield Held(name, math.prod(tensors[name].shape), element_bytes, in_flight)
                continue
            waits = number - self._maker[written]
            if name not in kept or (is_recomputed and name not in kernel.keeps):
                yield Held(name, math.prod(tensors[name].shape), operand_bytes, min(waits, samples))
        for name, written in zip(kernel.makes, (link.segment.name_of(n) for n in kernel.makes), strict=True):
            readers = self._readers.get(written, [])
            if len(readers) > 1:
                elements = math.prod(tensors[name].shape)
                yield Held(f"delta {name}", elements, operand_bytes, min(samples, readers[-1] - readers[0]))
        if (pairs := link.work.pairs) is not None:
            elements = pairs.tokens * (pairs.width + 2 * pairs.kv_width)
            yield Held("deltas of queries, keys and values", elements, SUM_BYTES, 1)

    def _kept(self, link: _Link, is_recomputed: bool) -> tuple[str, ...]:
        """Tensors that backward needs of each sample: all that ops keep, or the inputs to make them again from."""
        kernel = link.work.kernel
        if not is_recomputed:
            return kernel.keeps
        inputs = {tensor.name for tensor in self.program.graph.inputs}
        first = _needed_again(kernel, link.segment)
        return tuple(name for name in kernel.reads if name not in inputs and name in first)


def _needed_again(kernel: FusedKernel, segment: Segment) -> set[str]:
    """Return the inputs of a kernel from which what its ops keep can be made."""
    ops = [op_of(segment, name) for name in kernel.ops]
    needed = {name for op in ops for name in read_backward(op)}
    for op in reversed(ops):
        if needed.intersection(op.outputs):
            needed.update(op.inputs)
    return needed


def _written_out(segment: Segment, work: KernelWork, repetition: int) -> _Link:
    kernel = work.kernel

    def written(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(segment.name_of(name, repetition) for name in names)

    name = segment.name_of(kernel.name, repetition)
    return _Link(segment, work, name, written(kernel.reads), written(kernel.makes), written(kernel.weights))


def input_bytes(program: Program, name: str) -> int:
    """Size of an input of one sample on its way onto the wafer: numbers as operands, ids of 32 bits."""
    tensor = program.graph.tensors[name]
    return input_element_bytes(tensor, program.request.operand_bits) * math.prod(tensor.shape)


def step_cycles(program: Program, stages: int, bottleneck_cycles: int, samples: int, update: int) -> int:
    """Return the modelled cycles of a step.

    Args:
        program: what runs
        stages: how many
        bottleneck_cycles: of the slowest, per sample
        samples: of the replica that has most
        update: cycles of all that comes after the last sample
    """
    system = program.request.system
    sample_bytes = sum(input_bytes(program, name) for name in (tensor.name for tensor in program.graph.inputs))
    of_batch = program.request.samples_per_csx * sample_bytes
    ingress = ceil_div(of_batch * int(system.clock_hz), int(system.io_bytes_per_s))
    return max(bottleneck_cycles * (samples + 2 * stages - 2), int(ingress)) + update


def update_cycles(
    pe: Pe, weights: int, pes: int, replicas: tuple[int, int], size: tuple[int, int], update_ops: int
) -> int:
    """Return the cycles of the update of the weights that each PE has, with sums over replicas before it.

    Args:
        pe: of the wafer
        weights: of the model
        pes: of a replica
        replicas: (columns, rows)
        size: (width, height) of a replica
        update_ops: operations of the update of a weight
    """
    tile = int(ceil_div(weights, pes))
    cycles = int(ceil_div(1000 * pe.vector_cycles(tile, update_ops), pe.efficiency))
    if replicas != (1, 1):
        # Gradients go along the replicas and the sums come back: one wavelet each, and the way there and back.
        hops = (replicas[0] - 1) * size[0] + (replicas[1] - 1) * size[1]
        cycles += 2 * (tile + hops * pe.system.links.hop_cycles)
    return cycles


def estimate_bottleneck(stages: Sequence[PipelineStage], width: int, height: int) -> int | None:
    """Return about how many cycles the slowest stage takes in a rectangle; None if the stages do not fit.

    A stage may have any of some sizes, of whatever shape; the areas must go into the rectangle.
    """
    widths = np.unique(np.geomspace(1, width, _GRID).astype(np.int64))
    heights = np.unique(np.geomspace(1, height, _GRID).astype(np.int64))
    w, h = (side.ravel() for side in np.meshgrid(widths, heights))
    order = np.argsort(w * h, kind="stable")
    w, h = w[order], h[order]
    areas = w * h
    # The fewest cycles that any shape of at most this area takes.
    least = np.minimum.accumulate(all_cycles(stages, w, h), axis=1)
    if (least[:, -1] >= NEVER).any():
        return None
    low, high = 0, int(least[least < NEVER].max())
    for _ in range(64):
        if high - low <= max(1, low // 200):
            break
        middle = (low + high) // 2
        fitting = least <= middle
        first = fitting.argmax(axis=1)
        if fitting.any(axis=1).all() and areas[first].sum() <= width * height:
            high = middle
        else:
            low = middle
    fitting = least <= high
    if not fitting.any(axis=1).all() or areas[fitting.argmax(axis=1)].sum() > width * height:
        return None
    return high
