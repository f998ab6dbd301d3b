"""Pipelined: the chain of stages, the memory of each, and the number of copies of the model side by side.

All stages run at the same time on successive samples. In the time T of the slowest, each runs one sample forward and
one backward, so stage s of N holds the activations of up to 2 (N - s) - 1 samples. With R replicas a system's part of
the batch, B samples, takes (B / R + 2 N - 2) T: the pipeline fills and drains once per step, sooner by a T for each
stage without a way back. Then every PE updates
its weights, after the replicas have added up their gradients.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cstool.model.ir import FusedKernel, Segment, read_backward
from cstool.model.system import Fabric
from cstool.plan.compiler.kernel_work import KernelWork, kernel_works
from cstool.plan.compiler.memory import statistics_width
from cstool.plan.compiler.program import Program, op_of, segment_tensors
from cstool.plan.compiler.routing import Edge
from cstool.plan.compiler.stage import NEVER, Held, Known, PipelineStage, all_cycles, weights_bytes
from cstool.plan.timing.collectives import READ_CYCLES
from cstool.plan.timing.pe import SUM_BYTES, Pe, ceil_div, input_bytes, input_element_bytes
from cstool.plan.timing.wafer import exchange

_GRID = 26
"""widths and heights that an estimate tries"""


class _Link:
    """A kernel of the chain with its number, names of inputs and outputs written out."""

    def __init__(self, segment: Segment, work: KernelWork, repetition: int) -> None:
        def written(names: Sequence[str]) -> list[str]:
            return [segment.name_of(name, repetition) for name in names]

        self.segment, self.work, self.repetition = segment, work, repetition
        self.name = segment.name_of(work.kernel.name, repetition)
        self.reads, self.makes = written(work.kernel.reads), written(work.kernel.makes)
        self.weights = written(work.kernel.weights)


@dataclass(frozen=True)
class _Part:
    """Elements of a sample that a stage holds: while the sample is in flight, or for so many beats."""

    name: str
    elements: int
    element_bytes: int
    beats: int | None = None


class Chain:
    """The kernels of a program, repetitions written out, as stages of a pipeline."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.request = program.request
        self._works = kernel_works(program)
        self._counts = [segment.count for segment in program.graph.segments]
        self._parts: dict[tuple[int, bool], tuple[_Part, ...]] = {}

    @cached_property
    def links(self) -> list[_Link]:
        """The kernels, one after the other."""
        return [
            _Link(segment, work, repetition)
            for segment, kernels in zip(self.program.graph.segments, self._works, strict=True)
            for repetition in range(segment.count)
            for work in kernels
        ]

    @cached_property
    def _maker(self) -> dict[str, int]:
        return {name: number for number, link in enumerate(self.links) for name in link.makes}

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        readers: dict[str, list[int]] = {}
        for number, link in enumerate(self.links):
            for name in dict.fromkeys(link.reads):
                readers.setdefault(name, []).append(number)
        return readers

    @property
    def length(self) -> int:
        """Number of stages."""
        return sum(count * len(kernels) for count, kernels in zip(self._counts, self._works, strict=True))

    @property
    def filling_beats(self) -> int:
        """Beats in which the pipeline fills and drains: forward through all stages, back through the trained ones."""
        return 2 * self.length - 2 - sum(link.work.is_frozen for link in self.links)

    @property
    def weight_bytes(self) -> int:
        """Of all weights, of trained ones with master copies, optimizer state and gradients."""
        bits, states = self.request.operand_bits, self.request.optimizer_states
        return sum(
            count * weights_bytes(work, bits, states)
            for count, kernels in zip(self._counts, self._works, strict=True)
            for work in kernels
        )

    def samples(self, replicas: tuple[int, int]) -> int:
        """Of a step, for each of (columns, rows) of replicas; some have one less."""
        return int(ceil_div(self.request.samples_per_csx, replicas[0] * replicas[1]))

    def update_cycles(self, replicas: tuple[int, int]) -> int:
        """Cycles of the update of the weights that each PE has, with sums over replicas before it."""
        request, fabric = self.request, self.request.system.fabric
        width, height = fabric.width // replicas[0], fabric.height // replicas[1]
        pe = Pe(request.system, request.operand_bits)
        tile = int(ceil_div(self.program.graph.trained_count, width * height))
        cycles = int(ceil_div(1000 * pe.vector_cycles(tile, request.optimizer.update_ops), pe.efficiency))
        if replicas != (1, 1):
            # Gradients go along the replicas and the sums come back: one wavelet each, and the way there and back. Each
            # replica on the way adds its own: down a ramp, read, up a ramp; the sums have one ramp at each end.
            links = request.system.links
            hops = (replicas[0] - 1) * width + (replicas[1] - 1) * height
            stop = 2 * links.ramp_cycles + READ_CYCLES
            cycles += 2 * (tile + hops * links.hop_cycles) + (sum(replicas) - 1) * stop
        return cycles

    def step_cycles(self, num_csx: int, replicas: tuple[int, int], bottleneck_cycles: int) -> int:
        """Modelled cycles of a step of so many systems, where the slowest stage takes so many per sample."""
        request, system, graph = self.request, self.request.system, self.program.graph
        of_batch = request.samples_per_csx * input_bytes(graph.inputs, request.operand_bits)
        ingress = ceil_div(of_batch * int(system.clock_hz), int(system.io_bytes_per_s))
        exchange_s = sum(exchange(system, graph.trained_count, num_csx))
        update = self.update_cycles(replicas) + round(exchange_s * system.clock_hz)
        return max(bottleneck_cycles * (self.samples(replicas) + self.filling_beats), int(ingress)) + update

    def stages(self, samples: int, is_recomputed: bool, most_repetitions: int | None = None) -> list[PipelineStage]:
        """Return the stages for so many samples per replica and step, of the first few repetitions of blocks or all."""
        return [
            PipelineStage(
                name=link.name,
                work=link.work,
                held=tuple(self._held(number, samples, is_recomputed)),
                in_flight=self._in_flight(number, samples),
                recomputes=int(is_recomputed and not link.work.is_frozen),
                system=self.request.system,
                operand_bits=self.request.operand_bits,
                optimizer_states=self.request.optimizer_states,
            )
            for number, link in enumerate(self.links)
            if most_repetitions is None or link.repetition < most_repetitions
        ]

    def edges(self, samples: int) -> Iterator[Edge]:
        """Edges between stages: activations, their deltas the other way, inputs, tied weights.

        Args:
            samples: per replica and step; the sum of a tied weight moves once for all of them
        """
        graph, wavelet_bytes = self.program.graph, self.request.system.links.wavelet_bytes
        for number, link in enumerate(self.links):
            for name in link.reads:
                if (tensor := graph.tensors[name]) in graph.inputs:
                    count_bytes = input_bytes([tensor], self.request.operand_bits)
                    yield Edge(name, -1, number, "input", int(ceil_div(count_bytes, wavelet_bytes)))
                    continue
                count_bytes = math.prod(tensor.shape) * self.request.operand_bits // 8
                wavelets, source = int(ceil_div(count_bytes, wavelet_bytes)), self._maker[name]
                yield Edge(name, source, number, "activation", wavelets)
                if name not in graph.frozen_tensors:
                    yield Edge(name, number, source, "delta", wavelets)
        users: dict[str, int] = {}
        for number, link in enumerate(self.links):
            for name in link.weights:
                if (user := users.setdefault(name, number)) != number:
                    # While stages between the two drain and fill again, or longer where there are more samples.
                    beats = max(samples, number - user)
                    wavelets = int(ceil_div(graph.weights[name].size * SUM_BYTES, wavelet_bytes * beats))
                    yield Edge(name, number, user, "tie", wavelets)
                    yield Edge(name, user, number, "tie", wavelets)

    def _in_flight(self, number: int, samples: int) -> int:
        # Without a way back a sample is through when the next one comes.
        return 1 if self.links[number].work.is_frozen else min(samples, 2 * (self.length - number) - 1)

    def _held(self, number: int, samples: int, is_recomputed: bool) -> Iterator[Held]:
        """Memory of a stage for the samples between their forward and backward pass."""
        if (number, is_recomputed) not in self._parts:
            self._parts[number, is_recomputed] = tuple(self._parts_of(number, is_recomputed))
        in_flight = self._in_flight(number, samples)
        for part in self._parts[number, is_recomputed]:
            held = in_flight if part.beats is None else min(part.beats, samples)
            yield Held(part.name, part.elements, part.element_bytes, held)

    def _parts_of(self, number: int, is_recomputed: bool) -> Iterator[_Part]:
        link = self.links[number]
        kernel, operand_bytes = link.work.kernel, self.request.operand_bits // 8
        tensors = segment_tensors(self.program.graph, link.segment)
        inputs = {tensor.name for tensor in self.program.graph.inputs}
        kept = self._kept(link, is_recomputed)
        for name in kept:
            yield _Part(name, math.prod(tensors[name].shape), operand_bytes)
        if not is_recomputed and not link.work.is_frozen:
            for name in kernel.ops:
                if width := statistics_width(op_of(link.segment, name)):
                    yield _Part(f"statistics {name}", width * self.program.tokens, SUM_BYTES)
        for name, written in zip(kernel.reads, link.reads, strict=True):
            # Inputs from further back wait until the input that came the long way is here; deltas wait on the way back.
            if name in inputs:
                element_bytes = input_element_bytes(tensors[name], self.request.operand_bits)
                yield _Part(name, math.prod(tensors[name].shape), element_bytes)
                continue
            waits = number - self._maker[written]
            if name not in kept or (is_recomputed and name not in kernel.keeps):
                yield _Part(name, math.prod(tensors[name].shape), operand_bytes, waits)
        for name, written in zip(kernel.makes, (link.segment.name_of(n) for n in kernel.makes), strict=True):
            readers = self._readers.get(written, [])
            if len(readers) > 1 and not link.work.is_frozen:
                elements = math.prod(tensors[name].shape)
                yield _Part(f"delta {name}", elements, operand_bytes, readers[-1] - readers[0])
        if (pairs := link.work.pairs) is not None and not link.work.is_frozen:
            elements = pairs.tokens * pairs.width + 2 * pairs.key_tokens * pairs.kv_width
            yield _Part("deltas of queries, keys and values", elements, SUM_BYTES, 1)

    def _kept(self, link: _Link, is_recomputed: bool) -> tuple[str, ...]:
        """Tensors that backward needs of each sample: kept tensors of ops, or the inputs to recompute them from."""
        kernel = link.work.kernel
        if not is_recomputed or link.work.is_frozen:
            return kernel.keeps
        inputs = {tensor.name for tensor in self.program.graph.inputs}
        first = _needed_again(kernel, link.segment)
        return tuple(name for name in kernel.reads if name not in inputs and name in first)


def _needed_again(kernel: FusedKernel, segment: Segment) -> set[str]:
    """Return the inputs of a kernel from which the tensors that its ops keep can be made."""
    ops = [op_of(segment, name) for name in kernel.ops]
    needed = {name for op in ops for name in read_backward(op)}
    for op in reversed(ops):
        if needed.intersection(op.outputs):
            needed.update(op.inputs)
    return needed


class Bottlenecks:
    """Estimates of the slowest stage, in any rectangle of a wafer.

    Args:
        fabric: of the wafer
    """

    def __init__(self, fabric: Fabric) -> None:
        self._widths, self._heights = (
            np.unique(np.geomspace(1, side, _GRID).astype(np.int64)) for side in (fabric.width, fabric.height)
        )
        self._known: Known = {}

    def estimate(self, stages: Sequence[PipelineStage], width: int, height: int) -> int | None:
        """Return the estimated cycles of the slowest stage in a rectangle; None if the stages do not fit.

        A stage may have any of some sizes, of any shape; the areas must go into the rectangle.
        """
        tables = all_cycles(stages, self._widths, self._heights, self._known)
        within = int((self._widths <= width).sum()), int((self._heights <= height).sum())
        areas = np.outer(self._widths[: within[0]], self._heights[: within[1]]).ravel()
        order = np.argsort(areas, kind="stable")
        areas = areas[order]
        # The fewest cycles that any shape of at most this area takes.
        inside = tables[:, : within[0], : within[1]].reshape(len(stages), -1)
        least = np.minimum.accumulate(inside[:, order], axis=1)
        if (least[:, -1] >= NEVER).any():
            return None

        def has_room(bound: int) -> bool:
            fitting = least <= bound
            return bool(fitting.any(axis=1).all() and areas[fitting.argmax(axis=1)].sum() <= width * height)

        low, high = 0, int(least[least < NEVER].max())
        for _ in range(64):
            if high - low <= max(1, low // 200):
                break
            middle = (low + high) // 2
            if has_room(middle):
                high = middle
            else:
                low = middle
        return high if has_room(high) else None
