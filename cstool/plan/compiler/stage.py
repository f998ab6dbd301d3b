"""Pipelined: cycles and memory of a kernel in a region of any size, for the placement."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cstool.model.ir import KernelCycles, Lookup, MatMul, Pairs, SramEntry
from cstool.model.system import System
from cstool.plan.compiler.kernel_work import KernelWork
from cstool.plan.timing.pe import SUM_BYTES, Pe, ceil_div
from cstool.plan.timing.phases import Phases
from cstool.plan.timing.region import key_block, key_bytes, region_phases

MASTER_BYTES = 4
"""size of a weight as the optimizer sees it, of each of its states, and of its gradient"""
WAYS = (0, 1)
"""a kernel lies in its region one way round, or the other: with width and height exchanged"""
ORIENTATIONS = ("inputs over columns", "inputs over rows")
NEVER = np.iinfo(np.int64).max // 4
"""cycles of a stage in a region that is too small for it"""
IntArray = npt.NDArray[np.int64]
Ways = list[tuple[Any, Any]]
"""cycles and fixed bytes, either way round"""
Known = dict[Hashable, Ways]
"""results of stages that are alike"""


@dataclass(frozen=True)
class Held:
    """Elements of a sample that a stage holds.

    Args:
        name: of the activation, statistic or delta
        elements: of a sample
        element_bytes: of each
        samples: at a time
    """

    name: str
    elements: int
    element_bytes: int
    samples: int


def bytes_per_weight(operand_bits: int, optimizer_states: int, *, is_frozen: bool = False) -> int:
    """Size of a weight on the wafer [bytes]: operand, and of a trained one master copy, gradient, optimizer state."""
    if is_frozen:
        return operand_bits // 8
    return operand_bits // 8 + MASTER_BYTES * (2 + optimizer_states)


def weights_bytes(work: KernelWork, operand_bits: int, optimizer_states: int) -> int:
    """Size of the weights of a kernel on the wafer, nothing rounded up [bytes]; see `bytes_per_weight`."""
    trained = bytes_per_weight(operand_bits, optimizer_states)
    frozen = bytes_per_weight(operand_bits, optimizer_states, is_frozen=True)
    return frozen * work.weight_elements + (trained - frozen) * work.trained_elements


@dataclass(frozen=True)
class PipelineStage:
    """A kernel as a stage of the pipeline. Sizes of regions are numbers, or integer arrays that broadcast.

    Args:
        name: of the kernel, its number written out
        work: for one sample
        held: activations, statistics and deltas
        in_flight: samples between its forward and its backward pass, at most
        recomputes: number of extra forward passes
        system: the machine
        operand_bits: of activations
        optimizer_states: arrays beside each weight
    """

    name: str
    work: KernelWork
    held: tuple[Held, ...]
    in_flight: int
    recomputes: int
    system: System
    operand_bits: int
    optimizer_states: int

    @property
    def alike(self) -> Hashable:
        """Equal for stages that do the same work with weights of the same shapes."""
        work = self.work
        return work.work, work.vectors, work.needs_delta, work.is_frozen, work.frozen_vectors, self.recomputes

    @property
    def room_bytes(self) -> int:
        """SRAM of a PE."""
        return self.system.pe.sram_bytes

    def cycles(self, way: int, width: Any, height: Any) -> Any:
        """Return the modelled cycles per sample in such a region, whether or not it fits; larger is never slower."""
        return self._phases(*_turned(way, width, height)).total(self.recomputes)

    def fixed_bytes(self, way: int, width: Any, height: Any) -> Any:
        """Memory of the fullest PE, samples in flight left out."""
        return sum(size for _, size, _ in self._fixed_entries(*_turned(way, width, height)))

    def held_bytes(self, pes: Any) -> Any:
        """Memory of each of so many PEs for the samples in flight."""
        return sum(ceil_div(elements, pes) * size for elements, size in self._held_sizes.items())

    @cached_property
    def _held_sizes(self) -> dict[int, int]:
        """Elements -> bytes of one of each of the activations that have as many."""
        sizes: Counter[int] = Counter()
        for held in self.held:
            sizes[held.elements] += held.element_bytes * held.samples
        return sizes

    def orientation(self, width: int, height: int) -> int:
        """Return the better way round."""
        held = self.held_bytes(width * height)

        def rank(way: int) -> tuple[bool, int]:
            misfits = self.fixed_bytes(way, width, height) + held > self.room_bytes
            return misfits, int(self.cycles(way, width, height))

        return min(WAYS, key=rank)

    def kernel_cycles(self, width: int, height: int) -> KernelCycles:
        """Return the cycles per sample, phase by phase."""
        return self._phases(*self._sides(width, height)).kernel_cycles(self.recomputes)

    def account(self, width: int, height: int) -> tuple[SramEntry, ...]:
        """Return the account of the fullest PE."""
        entries, pes = self._fixed_entries(*self._sides(width, height)), width * height
        for held in self.held:
            size = int(ceil_div(held.elements, pes)) * held.element_bytes * held.samples
            times = f"{held.samples} {'sample' if held.samples == 1 else 'samples'}"
            entries.append((held.name, size, f"{times} x ceil({held.elements:,} / {pes}) x {held.element_bytes} B"))
        return tuple(SramEntry(name, int(size), arithmetic) for name, size, arithmetic in entries)

    @property
    def smallest_bytes(self) -> int:
        """Memory of all its PEs together, without rounding up [bytes]."""
        weights = weights_bytes(self.work, self.operand_bits, self.optimizer_states)
        return weights + sum(held.elements * held.element_bytes * held.samples for held in self.held)

    def _sides(self, width: int, height: int) -> tuple[int, int]:
        return _turned(self.orientation(width, height), width, height)

    @property
    def _weight_bytes(self) -> int:
        return bytes_per_weight(self.operand_bits, self.optimizer_states, is_frozen=self.work.is_frozen)

    @cached_property
    def _pe(self) -> Pe:
        return Pe(self.system, self.operand_bits)

    def _phases(self, width: Any, height: Any) -> Phases:
        phases = region_phases(self._pe, self.work.work, width, height, self.work.needs_delta)
        return phases.forward_alone() if self.work.is_frozen else phases

    def _fixed_entries(self, width: Any, height: Any) -> list[tuple[str, Any, str]]:
        """Return (name, bytes, arithmetic) of a PE's memory without samples in flight, inputs over `width`.

        The texts are for plain numbers.
        """
        pe, operand = self.system.pe, self.operand_bits // 8
        area, written = width * height, isinstance(width, int) and isinstance(height, int)
        entries: list[tuple[str, Any, str]] = [
            ("code", pe.code_bytes, "as the system file says"),
            ("stack", pe.stack_bytes, "as the system file says"),
        ]
        per_weight = f"({operand} + {MASTER_BYTES} x {2 + self.optimizer_states}) B"
        with_weights = ", master copy, optimizer state, gradient"
        if self.work.is_frozen:
            per_weight, with_weights = f"{operand} B", ""
        for item in self.work.work:
            if isinstance(item, MatMul):
                i, o = ceil_div(item.inputs, width), ceil_div(item.outputs, height)
                across, down = (
                    f"ceil({size:,} / {pes})" if written else ""
                    for size, pes in ((item.inputs, width), (item.outputs, height))
                )
                text = f"{across} x {down} x {per_weight}"
                size = i * o * self._weight_bytes
                if item.trained is not None and not self.work.is_frozen:
                    own, spared = ceil_div(item.trained, height), self._weight_bytes - operand
                    size = i * (o * operand + own * spared)
                    text = f"{across} x ({o} x {operand} B + {own} x {spared} B)" if written else ""
                entries.append((f"weights{with_weights}", size, text))
                text = f"2 x ({across} + {down}) x {SUM_BYTES} B"
                entries.append(("a token's inputs and sums", 2 * (i + o) * SUM_BYTES, text))
            elif isinstance(item, Lookup):
                each, what = self._weight_bytes, per_weight
                if item.is_frozen:
                    each, what = operand, f"{operand} B"
                size = ceil_div(item.rows * item.width, area) * each
                text = f"ceil({item.rows:,} x {item.width:,} / {area}) x {what}" if written else ""
                entries.append((f"table{with_weights}", size, text))
            elif isinstance(item, Pairs):
                d = ceil_div(item.kv_width, width)
                keys = key_block(self._pe, item.key_tokens, d)
                text = (
                    f"{keys} keys x {key_bytes(self._pe, d)} B + 2 x {keys} scores x {SUM_BYTES} B" if written else ""
                )
                size = keys * key_bytes(self._pe, d) + 2 * keys * SUM_BYTES
                entries.append(("keys and values passing by", size, text))
        if self.work.vectors:
            count = sum(self.work.vectors)
            size = ceil_div(count, area) * self._weight_bytes
            text = f"ceil({count:,} / {area}) x {per_weight}" if written else ""
            if (frozen := self.work.frozen_vectors) and not self.work.is_frozen:
                spared, trained = self._weight_bytes - operand, ceil_div(count - frozen, area)
                size = ceil_div(count, area) * operand + trained * spared
                text = f"ceil({count:,} / {area}) x {operand} B + {trained} x {spared} B" if written else ""
            entries.append(("biases and norms", size, text))
        return entries


def _turned(way: int, width: Any, height: Any) -> tuple[Any, Any]:
    """Numbers of PEs over which inputs and outputs lie."""
    return (width, height) if way == 0 else (height, width)


def either_way(stage: PipelineStage, width: Any, height: Any) -> Ways:
    """Return the cycles and fixed bytes in regions of these sizes, either way round."""
    return [(stage.cycles(way, width, height), stage.fixed_bytes(way, width, height)) for way in WAYS]


def fitting_cycles(stage: PipelineStage, ways: Ways, pes: Any) -> Any:
    """Return the lesser of the cycles of both ways; NEVER where a way's bytes leave no room for samples in flight."""
    free = stage.room_bytes - stage.held_bytes(pes)
    either = [np.where(fixed <= free, cycles, NEVER) for cycles, fixed in ways]
    return np.minimum(either[0], either[1])


def stage_cycles(stage: PipelineStage, width: Any, height: Any) -> Any:
    """Return the cycles per sample in regions of these sizes, the better way round; NEVER where it does not fit."""
    return fitting_cycles(stage, either_way(stage, width, height), width * height)


def all_cycles(
    stages: Sequence[PipelineStage], widths: IntArray, heights: IntArray, known: Known | None = None
) -> IntArray:
    """Return the cycles of (stage, width, height), as `stage_cycles` does; equal stages are computed once.

    Args:
        known: results for these widths and heights; None to begin anew
    """
    known = {} if known is None else known
    tables = np.empty((len(stages), len(widths), len(heights)), np.int64)
    # One side of a tile follows from the width and one from the height: most of the work is on these alone.
    width, height = widths[:, None], heights[None, :]
    for number, stage in enumerate(stages):
        if stage.alike not in known:
            known[stage.alike] = either_way(stage, width, height)
        tables[number] = fitting_cycles(stage, known[stage.alike], width * height)
    return tables
