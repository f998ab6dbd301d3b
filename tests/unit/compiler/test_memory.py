"""Lives of activations and deltas, and recomputation: against a step executed op by op, all layers written out."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from cstool.compiler.kernel_work import kernel_works
from cstool.compiler.memory import MOST_LEVELS, live_at, recompute_options, statistics_width
from cstool.compiler.program import Life, Program
from cstool.compiler.stream_memory import StreamMemory
from cstool.ir import Graph, Initializer, Loss, Op, OpKind, Recompute, Segment, Tensor, Weight, read_backward
from tests.models import FAMILIES, decoder
from tests.unit.compiler.programs import FAMILY_NAMES, MEMORY_PASSES, compiled, every_family


def backward_reads(op: Op, graph: Graph) -> list[str]:
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
    program = compiled(graph, MEMORY_PASSES)
    ops = graph.ops
    made: dict[str, int] = {}
    needed: dict[str, int] = {}
    kernel_of = _kernel_of(program)
    crossing: set[str] = {loss.name for loss in graph.losses}
    for now, op in enumerate(ops):
        for name in op.inputs:
            needed[name] = now
            if name in made and kernel_of[ops[made[name]].name] != kernel_of[op.name]:
                crossing.add(name)
        for name in op.outputs:
            made[name] = needed[name] = now
    kept = set()
    for now, op in zip(range(len(ops), 2 * len(ops)), reversed(ops), strict=True):
        for name in backward_reads(op, graph):
            needed[name] = now
            kept.add(name)
    first = 0
    for segment, lives in zip(graph.segments, program.lives, strict=True):
        n = len(segment.ops)
        first += n * (segment.count - 1)
        last = segment.count - 1
        found = {segment.name_of(life.name, last): life for life in lives if life.name in _tensors(segment)}
        own = {segment.name_of(name, last) for name in _tensors(segment)}
        assert set(found) == {name for name in own if name in crossing | kept}
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


def _tensors(segment: Segment) -> set[str]:
    return {tensor.name for tensor in segment.tensors}


def _kernel_of(program: Program) -> dict[str, tuple[str, int]]:
    """Return which kernel of which repetition an op belongs to."""
    return {
        segment.name_of(name, repetition): (segment.name_of(kernel.name, repetition), repetition)
        for segment, kernels in zip(program.graph.segments, program.kernels, strict=True)
        for repetition in range(segment.count)
        for kernel in kernels
        for name in kernel.ops
    }


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_kernels_keep_what_their_backward_reads(family):
    graph = two_repetitions(family)
    program = compiled(graph, MEMORY_PASSES)
    for segment, kernels in zip(graph.segments, program.kernels, strict=True):
        ops = {op.name: op for op in segment.ops}
        for kernel in kernels:
            assert set(kernel.keeps) == {read for name in kernel.ops for read in backward_reads(ops[name], graph)}
            assert len(set(kernel.keeps)) == len(kernel.keeps)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_deltas_that_differ_never_share_memory(family):
    """Backward of one repetition in symbols: a delta is the set of contributions it is the sum of.

    After each op, those deltas that are still to be read need memory, equal ones once.
    """
    graph = two_repetitions(family)
    program = compiled(graph, MEMORY_PASSES)
    inputs = {tensor.name for tensor in graph.inputs}
    inputs |= {tensor.name for s in graph.segments for tensor in s.tensors if tensor.dtype == "int32"}
    for segment, lives in zip(graph.segments, program.lives, strict=True):
        n = len(segment.ops)
        widths = {t.name: t.shape[-1] for s in graph.segments for t in s.tensors if t.shape}
        deltas = tuple(life for life in lives if life.name.startswith("delta "))
        values = {life.name: frozenset({"of other segments"}) for life in lives if life.is_output}
        for moment, op in zip(range(n, 2 * n), reversed(segment.ops), strict=True):
            assert op.kind is OpKind.SOFTMAX_LOSS or op.outputs[0] in values
            flowing = values.pop(op.outputs[0], frozenset())
            for index, name in enumerate(op.inputs):
                if name not in inputs:
                    passed = flowing if op.kind is OpKind.RESIDUAL else frozenset({f"{op.name} {index}"})
                    values[name] = values.get(name, frozenset()) | passed
            distinct = {value: _width(widths, name) for name, value in values.items()}
            after = min(moment + 1, 2 * n - 1)
            assert sum(distinct.values()) <= sum(life.width for life in live_at(deltas, after))
        assert set(values) <= {name for op in segment.ops for name in op.inputs} - _tensors(segment)


def _width(widths: dict[str, int], name: str) -> int:
    # Names of other repetitions: residual.{n} is residual.0.
    return widths.get(name) or widths["residual.0"]


def test_a_delta_for_the_segment_before_waits_until_this_one_is_through():
    """A segment that reads two activations of the one before: the delta of the one it reads last is done first."""

    def op(kind: OpKind, name: str, inputs: tuple[str, ...], weights: tuple[str, ...] = ()) -> Op:
        return Op(kind, name, inputs, (f"{name}.y",), weights)

    def segment(*ops: Op) -> Segment:
        tensors = tuple(Tensor(f"{op.name}.y", (3, 8) if op.kind is not OpKind.SOFTMAX_LOSS else (3,)) for op in ops)
        names = [name for op in ops for name in op.weights]
        return Segment(ops, tensors, tuple(Weight(name, (8, 8), Initializer("constant")) for name in names))

    first = segment(
        op(OpKind.EMBEDDING, "a", ("input_ids",), ("words",)), op(OpKind.EMBEDDING, "b", ("input_ids",), ("others",))
    )
    middle = segment(
        op(OpKind.LINEAR, "c", ("a.y",), ("w",)),
        op(OpKind.LINEAR, "d", ("b.y",), ("v",)),
        op(OpKind.RESIDUAL, "e", ("d.y", "c.y")),
    )
    last = segment(op(OpKind.SOFTMAX_LOSS, "loss", ("e.y", "labels", "mask"), ("head",)))
    inputs = tuple(Tensor(name, (3,), "int32") for name in ("input_ids", "labels", "mask"))
    program = compiled(Graph("two", inputs, (first, middle, last), (Loss("loss.y"),)), MEMORY_PASSES)
    deltas = {life.name: (life.start, life.stop) for life in program.lives[1] if life.name.startswith("delta")}
    # Moments 3, 4, 5 are backward of e, d, c. Deltas of c and d are that of e.
    assert deltas == {"delta e.y": (3, 5), "delta b.y": (4, 5), "delta a.y": (5, 5)}
    assert {life.name: (life.start, life.stop) for life in program.lives[0]} == {
        "a.y": (0, 2),
        "b.y": (1, 2),
        "delta a.y": (2, 3),
        "delta b.y": (2, 2),
    }


def held_inputs(first: int, stop: int, spans: tuple[int, ...], held: set[int]) -> int:
    """Run backward over blocks, with the input of the first at hand; return how many inputs were held at the most."""
    if stop - first == 1 or not spans:
        return len(held)
    starts = range(first, stop, spans[0])
    held = held | set(starts)
    most = len(held)
    for start in reversed(starts):
        most = max(most, held_inputs(start, min(start + spans[0], stop), spans[1:], held))
        held = held - {start}
    return most


def all_spans(blocks: int, levels: int) -> Iterator[tuple[int, ...]]:
    if levels == 1:
        yield (1,)
        return
    for span in range(1, blocks + 1):
        for inner in all_spans(span, levels - 1):
            yield (span, *inner)


@pytest.mark.parametrize("blocks", range(2, 21))
def test_no_spans_hold_fewer_inputs(blocks):
    options = recompute_options(blocks)
    assert options[0] == Recompute(0)
    assert options[1] == Recompute(1, (1,), blocks)
    for option in options[1:]:
        most = held_inputs(0, blocks, option.spans, {0})
        best = min(held_inputs(0, blocks, spans, {0}) for spans in all_spans(blocks, option.levels))
        assert option.spans[-1] == 1
        assert len(option.spans) == option.levels
        assert option.kept_blocks == most <= best + 1


def test_each_level_of_recomputation_holds_fewer_inputs():
    for blocks in (1, 2, 3, 12, 96, 500, 12_321):
        options = recompute_options(blocks)
        assert [option.levels for option in options] == list(range(len(options)))
        assert len(options) <= MOST_LEVELS + 1
        kept = [option.kept_blocks for option in options[1:]]
        assert kept == sorted(set(kept), reverse=True)
    assert recompute_options(1) == [Recompute(0)]


@dataclass
class Step:
    """A step executed op by op, with blocks run again as asked: who makes what when, and who needs it last."""

    program: Program
    memory: StreamMemory
    moments: list[tuple[int, int]] = field(default_factory=list)
    """segment, and moment of its ops"""
    made: list[int] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    """name -> the instance that was made last"""

    def __post_init__(self) -> None:
        self.blocks = [
            (number, repetition)
            for number, segment in enumerate(self.program.graph.segments[1:-1], start=1)
            for repetition in range(segment.count)
        ]

    def run(self, recompute: Recompute) -> None:
        last = len(self.program.graph.segments) - 1
        self.forward(0, 0)
        for block in self.blocks:
            self.forward(*block)
        self.forward(last, 0)
        self.backward(last, 0)
        if recompute.levels:
            self.again(0, len(self.blocks), recompute.spans, are_inputs_made=True)
        else:
            for block in reversed(self.blocks):
                self.backward(*block)
        self.backward(0, 0)

    def again(self, first: int, stop: int, spans: tuple[int, ...], are_inputs_made: bool = False) -> None:
        """Run backward over blocks, with the input of the first at hand."""
        starts = range(first, stop, spans[0])
        if not are_inputs_made:
            for block in self.blocks[first : starts[-1]]:
                self.forward(*block)
        for start in reversed(starts):
            if spans[0] > 1:
                self.again(start, min(start + spans[0], stop), spans[1:])
            else:
                self.forward(*self.blocks[start])
                self.backward(*self.blocks[start])

    def forward(self, number: int, repetition: int) -> None:
        segment = self.program.graph.segments[number]
        lives = {life.name: life for life in self.program.lives[number]}
        for moment, op in enumerate(segment.ops):
            now = len(self.moments)
            self.moments.append((number, moment))
            self.need([segment.name_of(name, repetition) for name in op.inputs])
            names = list(op.outputs)
            if statistics_width(op):
                names.append(f"statistics {op.name}")
            for name in names:
                if name in lives:
                    self.latest[segment.name_of(name, repetition)] = len(self.made)
                    self.made.append(now)
                    self.needed.append(now)
                    self.sizes.append(self.memory.tile_bytes(lives[name]))

    def backward(self, number: int, repetition: int) -> None:
        segment = self.program.graph.segments[number]
        for moment, op in enumerate(reversed(segment.ops)):
            self.moments.append((number, len(segment.ops) + moment))
            names = [*backward_reads(op, self.program.graph), f"statistics {op.name}" * bool(statistics_width(op))]
            self.need([segment.name_of(name, repetition) for name in names])

    def need(self, names: list[str]) -> None:
        for name in names:
            if name in self.latest:
                self.needed[self.latest[name]] = len(self.moments) - 1

    def bytes_at(self) -> list[int]:
        """Return what is alive at each moment, with the deltas of the op's own segment."""
        found = []
        backward = False
        for now, (number, moment) in enumerate(self.moments):
            lives = self.program.lives[number]
            backward = backward or moment >= len(self.program.graph.segments[number].ops)
            alive = sum(
                size
                for size, made, needed in zip(self.sizes, self.made, self.needed, strict=True)
                if made <= now <= needed
            )
            deltas = [life for life in live_at(lives, moment) if life.name.startswith("delta ")]
            if backward and not deltas:
                # A block that runs again while the delta of its output waits.
                deltas = [life for life in lives if life.name.startswith("delta residual")][:1]
            found.append(alive + sum(self.memory.tile_bytes(life) for life in deltas))
        return found


@pytest.mark.parametrize("family", [*FAMILIES])
def test_no_moment_of_a_step_takes_more_than_its_kernel_was_given(family):
    layers = 10
    program = compiled(decoder(layers=layers, **FAMILIES[family]), MEMORY_PASSES)
    works = kernel_works(program)
    blocks = sum(segment.count for segment in program.graph.segments[1:-1])
    for recompute in recompute_options(blocks):
        memory = StreamMemory(program, works, 3, recompute)
        step = Step(program, memory)
        step.run(recompute)
        given = {}
        for need in memory.needs:
            ops = [op.name for op in program.graph.segments[need.segment].ops]
            for name in need.work.kernel.ops:
                beside = ("accumulators", *(tensor.name for tensor in program.graph.inputs))
                size = need.token_bytes - sum(need.growing.get(name, (0, ""))[0] for name in beside)
                given[need.segment, ops.index(name)] = given[need.segment, 2 * len(ops) - 1 - ops.index(name)] = size
        taken = step.bytes_at()
        over = [
            (where, size, given[where]) for where, size in zip(step.moments, taken, strict=True) if size > given[where]
        ]
        assert not over
        # Inputs of blocks are held a little longer than need be where spans lie within spans.
        spare = 2 * (recompute.levels - 1) * memory.tile_bytes(_residual(program)) if recompute.levels else 0
        assert max(taken) <= max(given.values()) <= max(taken) + spare


def _residual(program: Program) -> Life:
    return next(life for life in program.lives[1] if life.is_output)
