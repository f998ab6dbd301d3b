"""Weight streaming: memory of the fullest PE, kernel by kernel, to the byte.

A PE holds t tokens of ceil(width / columns) elements of every activation that is alive. So its need is a fixed part and
one that grows with t, and the most tokens that fit follow by division.

Where the tokens of one sample are too many, a layer takes them in parts, first ones first, for each token sees earlier
ones alone. Backward takes them last ones first, and runs each part forward again before it. Of all tokens a PE then
holds the activations at the boundaries of the layer, and its keys and values with the sums of their deltas; of all
else, a part at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cstool.model.ir import Layout, Pairs, Recompute, Segment, SramEntry
from cstool.model.system import System
from cstool.plan.compiler.kernel_work import KernelWork
from cstool.plan.compiler.memory import goes_in_parts, keys_and_values, live_at
from cstool.plan.compiler.program import Life, Program, first_block, frozen_segments, width_per_token
from cstool.plan.timing.pe import SUM_BYTES, Pe, ceil_div, input_element_bytes, maximum, minimum
from cstool.plan.timing.region import key_block
from cstool.plan.timing.streaming import LEAST_OUTPUTS, Layouts

Entry = tuple[Any, Callable[[], str]]
"""bytes, and the arithmetic behind them: written on demand, for a search needs the bytes of many alone"""


@dataclass(frozen=True)
class Moment:
    """Activations and deltas that are alive at a moment of a kernel.

    Args:
        whole: of all tokens
        passing: of the tokens of a part, where tokens go through the segment in parts
        whole_bytes: of them, per token on the PE
        passing_bytes: the same
    """

    whole: tuple[Life, ...]
    passing: tuple[Life, ...]
    whole_bytes: Any
    passing_bytes: Any


@dataclass(frozen=True)
class Need:
    """Memory that one kernel needs on a PE; bytes are numbers, or arrays where columns are.

    Args:
        segment: number of its segment
        work: of the kernel
        fixed: name -> (bytes, arithmetic), for any number of tokens
        whole: name -> (bytes per token, arithmetic), of all tokens at every moment
        passing: the same of the tokens of a part
        moments: that may be the fullest
    """

    segment: int
    work: KernelWork
    fixed: dict[str, Entry]
    whole: dict[str, Entry]
    passing: dict[str, Entry]
    moments: tuple[Moment, ...]

    @cached_property
    def sizes(self) -> tuple[tuple[Any, Any, Any], ...]:
        """Bytes at each moment: fixed, per token, and per token of a part."""
        fixed, whole, passing = (
            sum(size for size, _ in held.values()) for held in (self.fixed, self.whole, self.passing)
        )
        return tuple((fixed, whole + each.whole_bytes, passing + each.passing_bytes) for each in self.moments)

    def total_bytes(self, layout: Layout | Layouts) -> Any:
        """Of a PE with the tokens of a layout."""
        tokens, part = layout.tokens_per_pe, layout.part.tokens_per_pe
        return maximum(*(fixed + tokens * whole + part * passing for fixed, whole, passing in self.sizes))

    def most_tokens(self, sram_bytes: int) -> Any:
        """Number of tokens that a PE can hold, none of them in parts; negative or 0 if none."""
        return minimum(*((sram_bytes - fixed) // (whole + passing) for fixed, whole, passing in self.sizes))

    def fewest_parts(self, sram_bytes: int, tokens: int) -> int | None:
        """Number of parts in which so many tokens on a PE fit it; None if they do not, one by one."""
        most = tokens
        for fixed, whole, passing in self.sizes:
            free = sram_bytes - fixed - tokens * whole
            most = min(most, free // passing if passing else tokens * (free >= 0))
        return int(ceil_div(tokens, most)) if most > 0 else None


Alive = list[list[list[list[Life]]]]
"""per segment and kernel, the activations alive at each moment that may be the fullest, for any number of columns"""


def alive_at_kernels(program: Program, works: tuple[tuple[KernelWork, ...], ...], is_again: bool) -> Alive:
    """Live tensors, forward or backward, with recomputation or without."""
    # Segments that run forward alone do not run again, nor does the one that makes the first activations, nor the last.
    blocks = range(first_block(program.graph), len(works) - 1) if is_again else range(0)
    found: Alive = []
    for number, (segment, kernels) in enumerate(zip(program.graph.segments, works, strict=True)):
        shared: list[Life] = []
        if number in blocks and goes_in_parts(segment):
            shared = _of_all_tokens(segment, program.lives[number])
        places = {life.place for life in shared}
        found.append([_alive_at(program, number, work, number in blocks, places) for work in kernels])
    return found


def _alive_at(
    program: Program, segment: int, work: KernelWork, is_again: bool, shared: AbstractSet[str]
) -> list[list[Life]]:
    ops = program.graph.segments[segment].ops
    lives = program.lives[segment]
    names = set(work.kernel.ops)
    moments = [now for now, op in enumerate(ops) if op.name in names]
    moments += [2 * len(ops) - 1 - now for now in moments]
    alive = [live_at(lives, moment) for moment in moments]
    if is_again:
        # When a block runs again, the delta of its output is there already.
        waiting = {f"delta {life.name}" for life in lives if life.is_output}
        again = [life for life in lives if life.name in waiting]
        alive = [found + again * (moment < len(ops)) for found, moment in zip(alive, moments, strict=True)]
    fullest: list[tuple[Counter[tuple[int, bool, bool]], list[Life]]] = []
    for found in alive:
        sizes = Counter((life.width, life.is_operand, life.place in shared) for life in found)
        # Tensors that are no more than at another moment take no more, over any columns.
        if not any(sizes <= other for other, _ in fullest):
            fullest = [(other, there) for other, there in fullest if not other <= sizes]
            fullest.append((sizes, found))
    return [found for _, found in fullest]


class StreamMemory:
    """The needs of all kernels with activations over so many columns.

    Args:
        columns: of PEs; a number, or an array of many
        alive: at the moments of the kernels; None to find out
        in_parts: whether tokens go through layers in parts, where they can
    """

    def __init__(
        self,
        program: Program,
        works: tuple[tuple[KernelWork, ...], ...],
        columns: Any,
        recompute: Recompute,
        alive: Alive | None = None,
        in_parts: bool = False,
    ) -> None:
        alive = alive or alive_at_kernels(program, works, is_again=recompute.levels > 0)
        self.program, self.columns, self.recompute = program, columns, recompute
        self._tiles: dict[int, Any] = {}
        self._pe = Pe(program.request.system, program.request.operand_bits)
        self.operand_bytes = program.request.operand_bits // 8
        self.system: System = program.request.system
        kept = [self._kept_bytes(number) for number in range(len(works))]
        outputs = [sum(self.tile_bytes(life) for life in lives if life.is_output) for lives in program.lives]
        counts = [segment.count for segment in program.graph.segments]
        first, last, block = frozen_segments(program.graph), len(works) - 1, first_block(program.graph)
        self.parted = {
            number: tuple(_of_all_tokens(program.graph.segments[number], program.lives[number]))
            for number in range(block, last)
            if in_parts and recompute.levels and goes_in_parts(program.graph.segments[number])
        }
        """segments through which tokens go in parts, each with the lives of all tokens"""
        carried = self._carried_bytes(first)
        block_bytes = maximum(0, *outputs[first:last])
        blocks = sum(counts[block:last])
        self.needs: list[Need] = []
        for number, kernels in enumerate(works):
            if number < first:
                others: Entry = maximum(*outputs[:first]), lambda: "the input of a block that runs forward alone"
            elif recompute.levels and number >= block:
                # The segments after the blocks are held as one more where the inputs of all blocks are.
                held = recompute.kept_blocks + (number == last and recompute.kept_blocks == blocks)
                # Where the first block follows segments that run forward alone, their output is the input of the block.
                before = kept[first] - outputs[first] + carried
                if block <= first:
                    before = maximum(0, carried - block_bytes)
                others = held * block_bytes + before, partial(_inputs_text, held, block_bytes, before)
            else:
                left = [
                    *((counts[i], kept[i]) for i in range(first, number)),
                    (counts[number] - 1, kept[number]),
                    (1, carried),
                ]
                others = sum(count * size for count, size in left), partial(_kept_text, left)
            for work, moments in zip(kernels, alive[number], strict=True):
                self.needs.append(self._need(number, work, moments, others))

    def most_tokens(self) -> Any:
        """Upper bound of the tokens that a PE can hold."""
        return minimum(*(need.most_tokens(self.system.pe.sram_bytes) for need in self.needs))

    def fewest_parts(self, tokens: int) -> int | None:
        """Number of parts in which so many tokens on a PE go through layers; None where that does not make them fit."""
        parts = [need.fewest_parts(self.system.pe.sram_bytes, tokens) for need in self.needs]
        return None if None in parts else max(found for found in parts if found is not None)

    def outputs_in_flight(self, segment: int, work: KernelWork, layout: Layout | Layouts) -> Any:
        """Accumulators per token of a kernel; where weights are sparse, as many as fit."""
        if not work.is_sparse:
            return LEAST_OUTPUTS
        (need,) = (need for need in self.needs if need.segment == segment and need.work is work)
        free = self.system.pe.sram_bytes - need.total_bytes(layout)
        tokens = (layout.part if segment in self.parted else layout).tokens_per_pe
        return LEAST_OUTPUTS + maximum(0, free) // (SUM_BYTES * tokens)

    def layout_in(self, segment: int, layout: Layout) -> Layout:
        """Layout of the tokens that kernels of a segment take at a time."""
        return layout.part if segment in self.parted else layout

    def parts_in(self, segment: int, layout: Layout) -> int:
        """Number of parts in which kernels of a segment take tokens."""
        return layout.parts if segment in self.parted else 1

    def fullest(self, layout: Layout) -> Need:
        """Return the need of the kernel that needs most."""
        return max(self.needs, key=lambda need: need.total_bytes(layout))

    def account(self, need: Need, layout: Layout) -> tuple[SramEntry, ...]:
        """Return the account of a PE with the tokens of a layout, at the fullest moment of a kernel."""
        tokens, part = layout.tokens_per_pe, layout.part.tokens_per_pe
        totals = [tokens * whole + part * passing for _, whole, passing in need.sizes]
        moment = need.moments[totals.index(max(totals))]
        all_of = f"{tokens} {'token' if tokens == 1 else 'tokens'}"
        some_of = f"{part} of {all_of}" if layout.parts > 1 else all_of
        held = [
            *((part, some_of, *each) for each in need.passing.items()),
            *((tokens, all_of, *each) for each in need.whole.items()),
            *((tokens, all_of, life.name, self._entry(life)) for life in moment.whole),
            *((part, some_of, life.name, self._entry(life)) for life in moment.passing),
        ]
        fixed = [SramEntry(name, size, text()) for name, (size, text) in need.fixed.items()]
        return (*fixed, *(SramEntry(name, n * size, f"{of} x {text()}") for n, of, name, (size, text) in held))

    def _entry(self, life: Life) -> Entry:
        element = self.operand_bytes if life.is_operand else SUM_BYTES
        return self.tile_bytes(life), partial(self._text, life.width, element)

    def _text(self, elements: int, element_bytes: int) -> str:
        return f"{self._spread(elements)} x {element_bytes} B"

    def _spread(self, elements: int) -> str:
        """Return in words the share of the fullest PE in so many elements."""
        return f"ceil({elements:,} / {self.columns})"

    def tile_bytes(self, life: Life) -> Any:
        """Memory of a PE for a token of an activation."""
        size = self.operand_bytes if life.is_operand else SUM_BYTES
        return size * self._tile(life.width)

    def _tile(self, elements: int) -> Any:
        """Return the share of the fullest PE in so many elements."""
        if elements not in self._tiles:
            self._tiles[elements] = ceil_div(elements, self.columns)
        return self._tiles[elements]

    def _carried_bytes(self, first: int) -> Any:
        """Memory per token of the activations that segments that run forward alone leave for the others, to the end."""
        graph = self.program.graph
        if not first:
            return 0  # as for most models, whose ops need not be gone through for every layout that is tried
        carried = (
            life
            for segment, lives in zip(graph.segments[:first], self.program.lives, strict=False)
            for life in lives
            if life.is_output and segment.name_of(life.name, segment.count - 1) in graph.read_behind
        )
        return sum(map(self.tile_bytes, carried))

    def _kept_bytes(self, segment: int) -> Any:
        """Memory that a repetition of a segment keeps for backward, per token."""
        middle = len(self.program.graph.segments[segment].ops)
        lives = self.program.lives[segment]
        return sum(self.tile_bytes(life) for life in lives if life.start < middle <= life.stop)

    def _need(self, segment: int, work: KernelWork, moments: list[list[Life]], others: Entry) -> Need:
        pe, graph = self.system.pe, self.program.graph
        fixed: dict[str, Entry] = {
            "code": (pe.code_bytes, lambda: "as the system file says"),
            "stack": (pe.stack_bytes, lambda: "as the system file says"),
        }
        whole: dict[str, Entry] = {}
        passing: dict[str, Entry] = {}
        if work.inputs:
            # Weights on their way in, or sums of gradients on their way out: never both.
            size = 2 * self._tile(work.inputs) * SUM_BYTES
            fixed["weights or gradients in flight"] = (
                size,
                lambda: f"2 rows x {self._spread(work.inputs)} x {SUM_BYTES} B",
            )
            held = passing if segment in self.parted else whole
            held["accumulators"] = (LEAST_OUTPUTS * SUM_BYTES, lambda: f"{LEAST_OUTPUTS} outputs x {SUM_BYTES} B")
        if work.vectors:
            size = SUM_BYTES * sum(self._tile(elements) for elements in work.vectors)
            fixed["biases and norms"] = size, lambda: f"({' + '.join(map(self._spread, work.vectors))}) x {SUM_BYTES} B"
        if (pairs := work.pairs) is not None:
            fixed.update(self._attention_buffers(pairs))
        # The model's inputs stay for the whole micro-batch.
        for tensor in graph.inputs:
            width = width_per_token(tensor, graph.tokens)
            element = input_element_bytes(tensor, self.program.request.operand_bits)
            whole[tensor.name] = self._tile(width) * element, partial(self._text, width, element)
        if np.any(others[0]):
            whole["kept of other layers"] = others
        return Need(segment, work, fixed, whole, passing, tuple(self._moment(segment, alive) for alive in moments))

    def _moment(self, segment: int, alive: list[Life]) -> Moment:
        whole, passing = tuple(alive), tuple[Life, ...]()
        if segment in self.parted:
            whole = self.parted[segment]
            places = {life.place for life in whole}
            passing = tuple(life for life in alive if life.place not in places)
        return Moment(whole, passing, *(sum(map(self.tile_bytes, lives)) for lives in (whole, passing)))

    def _attention_buffers(self, pairs: Pairs) -> Iterator[tuple[str, Entry]]:
        d, operand = self._tile(pairs.kv_width), self.operand_bytes
        keys = key_block(self._pe, pairs.key_tokens, d)

        def tile() -> str:
            return f"{keys} keys x {self._spread(pairs.kv_width)}"

        yield (
            "keys and values passing by",
            (2 * 2 * keys * d * operand, lambda: f"2 blocks x 2 x {tile()} x {operand} B"),
        )
        yield "their deltas", (2 * keys * d * SUM_BYTES, lambda: f"2 x {tile()} x {SUM_BYTES} B")
        yield "scores", (2 * keys * SUM_BYTES, lambda: f"2 x {keys} keys x {SUM_BYTES} B")


def _inputs_text(held: int, block_bytes: int, before: int) -> str:
    text = f"inputs of {held:,} blocks x {block_bytes} B"
    # The first segment does not run again: the tensors that it keeps for itself stay.
    return f"({text} + {before} B), what backward needs" if before else text


def _kept_text(left: list[tuple[int, int]]) -> str:
    layers = " + ".join(f"{count} x {size} B" for count, size in left if count * size)
    return f"({layers or '0 B'}), what backward needs"


def _of_all_tokens(segment: Segment, lives: tuple[Life, ...]) -> list[Life]:
    """Lives of all tokens while backward takes a segment in parts, each run forward again before it.

    Keys and values, which later tokens see; the sums of their deltas, to which each part adds; and deltas that cross
    the boundaries of the segment. Outputs for other segments are not made as a whole the second time.
    """
    keys, places = keys_and_values(segment), {life.place: life for life in lives}
    made = {name for op in segment.ops for name in op.outputs}
    crossing = [life.name for life in lives if life.is_output]
    crossing += dict.fromkeys(name for op in segment.ops for name in op.inputs if name not in made)
    return [
        *(places[name] for name in keys),
        *(replace(places[delta], is_operand=False) for name in keys if (delta := f"delta {name}") in places),
        *(places[delta] for name in crossing if (delta := f"delta {name}") in places),
    ]
