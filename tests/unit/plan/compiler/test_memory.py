"""Lives of activations and deltas, and recomputation: against a step executed op by op, all layers written out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest

from cstool.model import ir
from cstool.model.ir import Graph, Layout, Op, OpKind, Recompute, Segment, read_backward
from cstool.plan.compiler.kernel_work import kernel_works
from cstool.plan.compiler.memory import (
    MOST_LEVELS,
    block_runs,
    keys_and_values,
    live_at,
    recompute_options,
    statistics_width,
)
from cstool.plan.compiler.program import Program
from cstool.plan.compiler.stream_memory import StreamMemory
from tests.models import FAMILIES, decoder
from tests.unit.plan.compiler.programs import FAMILY_NAMES, MEMORY_PASSES, compiled, every_family


def read_of_others(op: Op, graph: Graph) -> list[str]:
    """What other ops made of all that an op's backward reads."""
    inputs = {tensor.name for tensor in graph.inputs}
    return [name for name in read_backward(op) if name not in inputs]


def two_repetitions(family: str) -> Graph:
    """Return a graph whose repeated segment is there twice; two layers are one repetition of some."""
    graph = every_family(layers=2)[family]
    if family != "fc_mnist" and max(segment.count for segment in graph.segments) < 2:
        graph = every_family(layers=4)[family]
    return graph


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_lives_of_activations_against_a_step_executed_op_by_op(family):
    """Forward is moments 0 to n - 1 of all n ops, backward n to 2 n - 1: when is each first made, when last needed?"""
    graph = two_repetitions(family)
    program, ops = compiled(graph, MEMORY_PASSES), graph.ops
    made: dict[str, int] = {}
    needed: dict[str, int] = {}
    kernel_of = {
        segment.name_of(name, repetition): (segment.name_of(kernel.name, repetition), repetition)
        for segment, kernels in zip(graph.segments, program.kernels, strict=True)
        for repetition in range(segment.count)
        for kernel in kernels
        for name in kernel.ops
    }
    used: set[str] = {loss.name for loss in graph.losses}
    for now, op in enumerate(ops):
        for name in op.inputs:
            needed[name] = now
            if name in made and kernel_of[ops[made[name]].name] != kernel_of[op.name]:
                used.add(name)
        made |= dict.fromkeys(op.outputs, now)
        needed |= dict.fromkeys(op.outputs, now)
    for now, op in enumerate(reversed(ops), start=len(ops)):
        needed |= dict.fromkeys(read_of_others(op, graph), now)
        used.update(read_of_others(op, graph))
    first = 0
    for segment, lives in zip(graph.segments, program.lives, strict=True):
        n, last = len(segment.ops), segment.count - 1
        first += n * last
        found = {segment.name_of(life.name, last): life for life in lives if life.name in _tensors(segment)}
        assert set(found) == used & {segment.name_of(name, last) for name in _tensors(segment)}
        for name, life in found.items():
            assert life.start == made[name] - first
            if needed[name] < first + n:
                assert life.stop == needed[name] - first
            elif needed[name] < 2 * len(ops) - first - n:
                # What other segments need is there until they are through backward.
                assert (life.stop, life.is_output) == (n, True)
            else:
                assert life.stop == n + needed[name] - (2 * len(ops) - first - n)
        first += n
    for segment, kernels in zip(graph.segments, program.kernels, strict=True):
        own = {op.name: op for op in segment.ops}
        for kernel in kernels:
            assert set(kernel.keeps) == {read for name in kernel.ops for read in read_of_others(own[name], graph)}
            assert len(set(kernel.keeps)) == len(kernel.keeps)


def _tensors(segment: Segment) -> set[str]:
    return {tensor.name for tensor in segment.tensors}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_deltas_that_differ_never_share_memory(family):
    """Backward of one repetition in symbols: a delta is the set of contributions it is the sum of.

    After each op, those deltas that are still to be read need memory, equal ones once.
    """
    graph = two_repetitions(family)
    program = compiled(graph, MEMORY_PASSES)
    inputs = {tensor.name for tensor in graph.inputs}
    inputs |= {tensor.name for s in graph.segments for tensor in s.tensors if tensor.dtype == "int32"}
    widths = {t.name: t.shape[-1] for s in graph.segments for t in s.tensors if t.shape}
    for segment, lives in zip(graph.segments, program.lives, strict=True):
        n = len(segment.ops)
        deltas = tuple(life for life in lives if life.name.startswith("delta "))
        values = {life.name: frozenset({"of other segments"}) for life in lives if life.is_output}
        for moment, op in enumerate(reversed(segment.ops), start=n):
            assert op.kind is OpKind.SOFTMAX_LOSS or op.outputs[0] in values
            flowing = values.pop(op.outputs[0], frozenset())
            for index, name in enumerate(op.inputs):
                if name not in inputs:
                    passed = flowing if op.kind is OpKind.RESIDUAL else frozenset({f"{op.name} {index}"})
                    values[name] = values.get(name, frozenset()) | passed
            # Names of other repetitions: residual.{n} is residual.0.
            distinct = {value: widths.get(name) or widths["residual.0"] for name, value in values.items()}
            after = min(moment + 1, 2 * n - 1)
            assert sum(distinct.values()) <= sum(life.width for life in live_at(deltas, after))
        assert set(values) <= {name for op in segment.ops for name in op.inputs} - _tensors(segment)


def test_a_delta_for_the_segment_before_waits_until_this_one_is_through():
    """A segment that reads two activations of the one before: the delta of the one it reads last is done first."""

    def segment(*ops: tuple[OpKind, str, str, str]) -> Segment:
        made = [
            Op(kind, name, (*reads.split(),), (f"{name}.y",), (*words.split(),)) for kind, name, reads, words in ops
        ]
        tensors = [ir.Tensor(f"{op.name}.y", (3,) if op.kind is OpKind.SOFTMAX_LOSS else (3, 8)) for op in made]
        weights = [ir.Weight(name, (8, 8), ir.Initializer("constant")) for op in made for name in op.weights]
        return Segment(tuple(made), tuple(tensors), tuple(weights))

    first = segment((OpKind.EMBEDDING, "a", "input_ids", "words"), (OpKind.EMBEDDING, "b", "input_ids", "others"))
    middle = segment(
        (OpKind.LINEAR, "c", "a.y", "w"), (OpKind.LINEAR, "d", "b.y", "v"), (OpKind.RESIDUAL, "e", "d.y c.y", "")
    )
    last = segment((OpKind.SOFTMAX_LOSS, "loss", "e.y labels mask", "head"))
    inputs = tuple(ir.Tensor(name, (3,), "int32") for name in ("input_ids", "labels", "mask"))
    program = compiled(Graph("two", inputs, (first, middle, last), (ir.Loss("loss.y"),)), MEMORY_PASSES)
    before, found = ({life.name: (life.start, life.stop) for life in lives} for lives in program.lives[:2])
    # Moments 3, 4, 5 are backward of e, d, c. Deltas of c and d are that of e.
    deltas = {name: span for name, span in found.items() if name.startswith("delta")}
    assert deltas == {"delta e.y": (3, 5), "delta b.y": (4, 5), "delta a.y": (5, 5)}
    assert before == {"a.y": (0, 2), "b.y": (1, 2), "delta a.y": (2, 3), "delta b.y": (2, 2)}


@cache
def runs(blocks: int, held: int, is_swept: bool = False) -> tuple[float, int]:
    """Try all ways to run backward over blocks, of which the input of the first is held; return the fewest runs.

    And where it is cut: so many blocks run for the input of the next, from which backward begins; 0 where none is kept.
    Swept: they have just run forward, and could leave inputs at no cost; what follows them holds one more meanwhile.
    """
    if blocks == 1:
        return (1 if held >= 1 + is_swept else math.inf), 0
    if held < 2:
        return math.inf, 0
    ways = [(runs(blocks, held)[0], 0)] if is_swept else []
    for cut in range(1, blocks):
        again = 0 if is_swept else cut
        ways.append((again + runs(blocks - cut, held - 1, is_swept)[0] + runs(cut, held)[0], cut))
    return min(ways)


def test_as_few_blocks_run_again_as_can_be():
    for blocks in range(2, 26):
        assert block_runs(blocks, blocks) == blocks
        for held in range(2, blocks):
            assert block_runs(blocks, held) == runs(blocks, held, True)[0], (blocks, held)


def test_each_level_of_recomputation_holds_fewer_inputs():
    for blocks in (2, 3, 12, 96, 500, 12_321):
        options = recompute_options(blocks)
        assert options[:2] == [Recompute(0), Recompute(1, blocks)]
        assert [option.levels for option in options] == sorted({option.levels for option in options})
        assert options[-1].levels <= MOST_LEVELS
        kept = [option.kept_blocks for option in options[1:]]
        assert kept == sorted(set(kept), reverse=True)
        for option in options[1:]:
            # A forward pass of all blocks is so many runs; of one input fewer it would take more.
            assert block_runs(blocks, option.kept_blocks) <= option.levels * blocks
            fewer = option.kept_blocks - 1
            assert fewer < 2 or block_runs(blocks, fewer) > option.levels * blocks
    assert recompute_options(1) == [Recompute(0)]


@dataclass
class Step:
    """A step executed op by op, with blocks run again as asked: who makes what when, and who needs it last.

    Args:
        layout: of the tokens; blocks take them part by part
    """

    program: Program
    memory: StreamMemory
    layout: Layout
    moments: list[tuple[int, int]] = field(default_factory=list)
    """segment, and moment of its ops"""
    made: list[int] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    latest: dict[tuple[str, int], int] = field(default_factory=dict)
    """name, part -> the instance that was made last"""
    backward_from: int = 0
    """moment at which the first op runs backward"""

    def __post_init__(self) -> None:
        self.blocks = [
            (number, repetition)
            for number, segment in enumerate(self.program.graph.segments[1:-1], start=1)
            for repetition in range(segment.count)
        ]
        self.parts = range(self.layout.parts)
        self.lives = [{life.name: life for life in lives} for lives in self.program.lives]

    def run(self, recompute: Recompute) -> None:
        last = len(self.program.graph.segments) - 1
        self.forward(0, 0)
        for block in self.blocks:
            self.forward(*block)
        self.forward(last, 0)
        self.backward_from = len(self.moments)
        self.backward(last, 0)
        if not recompute.levels:
            for block in reversed(self.blocks):
                self.backward(*block)
        elif recompute.kept_blocks == len(self.blocks):
            for block in reversed(self.blocks):
                self.run_backward(*block)
        else:
            self.again(0, len(self.blocks), recompute.kept_blocks, is_swept=True)
        self.backward(0, 0)

    def again(self, first: int, count: int, held: int, is_swept: bool = False) -> None:
        """Run backward over so many blocks, with the input of the first at hand."""
        if count == 1:
            self.run_backward(*self.blocks[first])
            return
        _, cut = runs(count, held, is_swept)
        if not cut:
            self.again(first, count, held)
            return
        for block in () if is_swept else self.blocks[first : first + cut]:
            self.forward(*block)
        self.again(first + cut, count - cut, held - 1, is_swept)
        self.again(first, cut, held)

    def run_backward(self, number: int, repetition: int) -> None:
        """Run a block forward again and backward: keys and values first, then part by part, the last ones first."""
        segment = self.program.graph.segments[number]
        ops = segment.ops
        if self.layout.parts > 1:
            wanted = set(keys_and_values(segment))
            behind = []
            for op in reversed(ops):
                if wanted & set(op.outputs):
                    wanted |= set(op.inputs)
                    behind.append(op)
            for part in self.parts:
                for op in reversed(behind):
                    self.forward_op(number, repetition, op, [part])
        for part in reversed(self.parts):
            for op in ops:
                if self.layout.parts == 1 or not set(op.outputs) & set(keys_and_values(segment)):
                    self.forward_op(number, repetition, op, [part])
            for op in reversed(ops):
                self.backward_op(number, repetition, op, [part])

    def forward(self, number: int, repetition: int) -> None:
        ops, is_parted = self.program.graph.segments[number].ops, 0 < number < len(self.program.graph.segments) - 1
        for parts in [[part] for part in self.parts] if is_parted else [list(self.parts)]:
            for op in ops:
                self.forward_op(number, repetition, op, parts)

    def backward(self, number: int, repetition: int) -> None:
        for op in reversed(self.program.graph.segments[number].ops):
            self.backward_op(number, repetition, op, list(self.parts))

    def forward_op(self, number: int, repetition: int, op: Op, parts: list[int]) -> None:
        segment = self.program.graph.segments[number]
        lives, now = self.lives[number], len(self.moments)
        self.moments.append((number, segment.ops.index(op)))
        self.need(segment, repetition, op, op.inputs, parts)
        for name in [*op.outputs, *[f"statistics {op.name}"] * bool(statistics_width(op))]:
            for part in parts if name in lives else ():
                self.latest[segment.name_of(name, repetition), part] = len(self.made)
                self.made.append(now)
                self.needed.append(now)
                self.sizes.append(self.memory.tile_bytes(lives[name]))

    def backward_op(self, number: int, repetition: int, op: Op, parts: list[int]) -> None:
        segment = self.program.graph.segments[number]
        self.moments.append((number, 2 * len(segment.ops) - 1 - segment.ops.index(op)))
        names = [*read_of_others(op, self.program.graph), *[f"statistics {op.name}"] * bool(statistics_width(op))]
        self.need(segment, repetition, op, names, parts)

    def need(self, segment: Segment, repetition: int, op: Op, names: Sequence[str], parts: list[int]) -> None:
        seen = op.inputs[1:3] if op.kind is OpKind.ATTENTION else ()
        for name in names:
            for part in range(parts[-1] + 1) if name in seen else parts:
                instance = segment.name_of(name, repetition), part
                if instance in self.latest:
                    self.needed[self.latest[instance]] = len(self.moments) - 1

    def bytes_at(self) -> list[int]:
        """Return what is alive at each moment, with the deltas of the op's own segment."""
        alive = np.zeros(len(self.moments) + 1, int)
        np.add.at(alive, self.made, self.sizes)
        np.subtract.at(alive, np.array(self.needed) + 1, self.sizes)
        kept = (self.layout.part.tokens_per_pe * np.cumsum(alive[:-1])).tolist()
        backward = self.moments[self.backward_from :]
        deltas = {moment: self.delta_bytes(*moment) for moment in {*backward}}
        return [*kept[: -len(backward)], *(kept[n - len(backward)] + deltas[at] for n, at in enumerate(backward))]

    def delta_bytes(self, number: int, moment: int) -> int:
        """Size of the deltas at a moment, once backward has begun."""
        segment, lives = self.program.graph.segments[number], self.program.lives[number]
        tokens, part, size = self.layout.tokens_per_pe, self.layout.part.tokens_per_pe, self.memory.tile_bytes
        deltas = [life for life in live_at(lives, moment) if life.name.startswith("delta ")]
        waiting = [life for life in lives if life.name.startswith("delta residual")][:1]
        if number not in self.memory.parted:
            # A block that runs again while the delta of its output waits.
            return tokens * sum(map(size, deltas or waiting))
        sums = [life for life in lives if life.name.removeprefix("delta ") in keys_and_values(segment)]
        sums = [replace(life, is_operand=False) for life in sums if life.name.startswith("delta ")]
        whole = {life.name for life in (*waiting, *sums)}
        passing = [life for life in deltas if life.name not in whole]
        return tokens * sum(map(size, (*waiting, *sums))) + part * sum(map(size, passing))


@pytest.mark.parametrize(
    ("family", "parts"),
    [
        pytest.param(family, parts, marks=[] if number % 4 == parts // 2 else pytest.mark.lab)
        for number, family in enumerate(FAMILIES)
        for parts in (1, 4)
    ],
)
def test_no_moment_of_a_step_takes_more_than_its_kernel_was_given(family, parts):
    program = compiled(decoder(layers=10, **FAMILIES[family]), MEMORY_PASSES)
    works, layout = kernel_works(program), Layout(1, 3, 2, 4, parts)
    blocks = sum(segment.count for segment in program.graph.segments[1:-1])
    for recompute in recompute_options(blocks)[parts > 1 :]:
        memory = StreamMemory(program, works, 3, recompute, in_parts=parts > 1)
        if parts > 1 and not memory.parted:
            # Two layers of different attention are a block.
            assert family in ("gemma2", "fixed sparse")
            return
        step = Step(program, memory, layout)
        step.run(recompute)
        given = {}
        beside = ("accumulators", *(tensor.name for tensor in program.graph.inputs))
        for need in memory.needs:
            ops = [op.name for op in program.graph.segments[need.segment].ops]
            account = [entry for entry in memory.account(need, layout) if "token" in entry.arithmetic]
            size = sum(entry.bytes for entry in account if entry.name not in beside)
            for at in map(ops.index, need.work.kernel.ops):
                given[need.segment, at] = given[need.segment, 2 * len(ops) - 1 - at] = size
        taken = step.bytes_at()
        over = [(at, size, given[at]) for at, size in zip(step.moments, taken, strict=True) if size > given[at]]
        assert not over
        # Blocks of a cut that is not the deepest hold fewer inputs than may be.
        residual = next(life for life in program.lives[1] if life.is_output)
        spare = 2 * recompute.levels * layout.tokens_per_pe * memory.tile_bytes(residual)
        assert max(taken) <= max(given.values()) <= max(taken) + spare


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if f in ("gpt2", "gemma2") else pytest.mark.lab) for f in FAMILIES]
)
def test_many_numbers_of_columns_at_once_are_what_each_is(family):
    program = compiled(decoder(layers=5, **FAMILIES[family]), MEMORY_PASSES)
    works, columns, size = kernel_works(program), [1, 2, 3, 7, 40], 5
    for recompute in recompute_options(sum(segment.count for segment in program.graph.segments[1:-1])):
        many = StreamMemory(program, works, np.array(columns), recompute)
        most = np.broadcast_to(many.most_tokens(), size)
        for number, count in enumerate(columns):
            alone, layout = StreamMemory(program, works, count, recompute), Layout(2, count, 3, 4)
            assert most[number] == alone.most_tokens()
            for need, expected in zip(many.needs, alone.needs, strict=True):
                assert np.broadcast_to(need.total_bytes(layout), size)[number] == expected.total_bytes(layout)
