"""Weight streaming: costs of kernels over a layout, or over many at once, for the search of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cstool.model.ir import KernelCycles, Layout
from cstool.plan.compiler.kernel_work import KernelWork
from cstool.plan.compiler.program import Program, first_block
from cstool.plan.compiler.stage import IntArray
from cstool.plan.compiler.stream_memory import StreamMemory
from cstool.plan.timing.pe import Pe, ceil_div
from cstool.plan.timing.phases import Phases
from cstool.plan.timing.streaming import Layouts, hop_latency_cycles, stream_of, streamed_phases

Works = tuple[tuple[KernelWork, ...], ...]
"""work of the kernels, per segment"""


@dataclass(frozen=True)
class Choice:
    """How weights may be streamed.

    Args:
        layout: of the activations of a micro-batch
        memory: of a PE
        micro_batch_size: samples
        seconds: time of a step of one system, as the search estimates it
        fastest: the choice that would be faster, were more computed again
        why_again: why layers are computed again, where they are
    """

    layout: Layout
    memory: StreamMemory
    micro_batch_size: int
    seconds: float
    fastest: Choice | None = None
    why_again: str = ""


@dataclass(frozen=True)
class LayoutCosts:
    """The modelled cycles of many layouts, in arrays of the shape of their fields.

    Args:
        steps: of the kernels of a step on one CSX, one after the other: see `Costs.step`
        least: that a step takes at least: its PEs are at work, its links busy
        phases: per segment and kernel forward, delta and gradient of one micro-batch, as if links onto and off the
            wafer had no limit
    """

    steps: IntArray
    least: IntArray
    phases: list[list[tuple[Any, ...]]]


class Costs:
    """The modelled cycles of kernels, each computed once for a layout."""

    def __init__(self, program: Program, works: Works) -> None:
        self.works, self.request = works, program.request
        self.counts = [segment.count for segment in program.graph.segments]
        self.tokens = program.tokens
        self.first_block = first_block(program.graph)
        self.pe = Pe(program.request.system, program.request.operand_bits)
        self.stream = stream_of(program.request.system, program.request.operand_bits)
        self._kernels: dict[tuple[int, int, Layout, int, int], KernelCycles] = {}
        self._steps: dict[Choice, int] = {}

    def step(self, choice: Choice) -> int:
        """Return the cycles of the kernels of a step on one CSX, one after the other."""
        if choice not in self._steps:
            per_micro_batch = sum(
                count * self.kernel(choice, segment, number).total
                for segment, (count, kernels) in enumerate(zip(self.counts, self.works, strict=True))
                for number in range(len(kernels))
            )
            self._steps[choice] = self.micro_batches(choice.micro_batch_size) * per_micro_batch
        return self._steps[choice]

    def of_layouts(self, layouts: Layouts, memory: StreamMemory, samples: int) -> LayoutCosts:
        """Return the costs of many layouts, with micro-batches of so many samples."""
        per_micro_batch = busy = np.zeros(1, np.int64)
        into = out = 0
        phases: list[list[tuple[Any, ...]]] = []
        shape = np.broadcast_shapes(*(field.shape for field in layouts.fields))
        for segment, (count, kernels) in enumerate(zip(self.counts, self.works, strict=True)):
            levels = self._levels(memory, segment)
            phases.append([])
            for work in kernels:
                limits = self._phases(layouts, samples, work, memory.outputs_in_flight(segment, work, layouts))
                latency = hop_latency_cycles(self.pe, layouts)
                forward, *back = (phase.total(latency) for phase in limits.all)
                on_fabric = [phase.total(latency, on_fabric=True) for phase in limits.all]
                per_micro_batch = per_micro_batch + count * ((1 + levels) * forward + sum(back))
                busy = busy + count * (sum(on_fabric) + levels * on_fabric[0])
                into += count * ((1 + levels) * limits.forward.ingress + limits.delta.ingress)
                out += count * limits.gradient.egress
                phases[-1].append(tuple(np.broadcast_to(each, shape) for each in on_fabric))
        times = self.micro_batches(samples)
        least = times * np.maximum(busy, max(into, out))
        return LayoutCosts(times * per_micro_batch, least, phases)

    def micro_batches(self, samples: int) -> int:
        """Number of micro-batches of so many samples in a step."""
        return int(ceil_div(self.request.samples_per_csx, samples))

    def _levels(self, memory: StreamMemory, segment: int) -> int:
        """Number of times that kernels of a segment run forward once more."""
        is_inner = self.first_block <= segment < len(self.works) - 1
        return memory.recompute.levels if is_inner else 0

    def _phases(self, layout: Layout | Layouts, samples: int, work: KernelWork, in_flight: Any) -> Phases:
        phases = streamed_phases(
            self.pe,
            work.work,
            layout,
            samples,
            self.stream,
            needs_delta=work.needs_delta,
            outputs_in_flight=in_flight,
            tokens=self.tokens,
        )
        return phases.forward_alone() if work.is_frozen else phases

    def fabric(self, choice: Choice) -> int:
        """Return the cycles in which the PEs of a CSX are at work in a step, which takes no less."""
        found = 0
        for segment, (count, kernels) in enumerate(zip(self.counts, self.works, strict=True)):
            for number in range(len(kernels)):
                cycles = self.kernel(choice, segment, number)
                forward = (1 + cycles.recomputes) * cycles.forward.fabric_cycles
                found += count * (forward + cycles.delta.fabric_cycles + cycles.gradient.fabric_cycles)
        return found * self.micro_batches(choice.micro_batch_size)

    def kernel(self, choice: Choice, segment: int, number: int) -> KernelCycles:
        """Return the cycles of a kernel of a segment for one micro-batch."""
        work, memory, samples = self.works[segment][number], choice.memory, choice.micro_batch_size
        in_flight, parts = (
            memory.outputs_in_flight(segment, work, choice.layout),
            memory.parts_in(segment, choice.layout),
        )
        layout = memory.layout_in(segment, choice.layout)
        key = segment, number, layout, samples, in_flight
        if key not in self._kernels:
            phases = self._phases(layout, samples, work, in_flight)
            self._kernels[key] = phases.kernel_cycles(latency_cycles=hop_latency_cycles(self.pe, layout))
        cycles = self._kernels[key]
        forward, delta, gradient = (phase.times(parts) for phase in (cycles.forward, cycles.delta, cycles.gradient))
        return KernelCycles(forward, delta, gradient, self._levels(memory, segment))
