"""Where each activation and delta of one grain lives: liveness over the step, then offsets into one slot.

The plan is a function of the graph, the grain and whether layers are recomputed, so every grain, on every system, meets
the same layout. A buffer has one place, even if its contents are made several times.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from cstool.model.ir import (
    Delta,
    Graph,
    Op,
    Panel,
    delta_source,
    losses_of,
    matrices_of,
    panels_of,
    read_backward,
    rules_of,
    vectors_of,
)
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.call import Kernel
from cstool.training.kernels.table import KERNELS
from cstool.training.machine.precision import ALL_FLOAT32, Narrow
from cstool.training.machine.timeline import Timeline, Visit, make_timeline

ALIGNMENT_BYTES = 64
"""one cache line, and one 512-bit vector"""


@dataclass(frozen=True)
class Buffer:
    """A place in the slot of a grain."""

    offset_bytes: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Of its contents [bytes]."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class After(Enum):
    """The use of the delta of an input once the kernel has run."""

    NOTHING = "nothing"
    COPY = "copy"
    ADD = "add"


@dataclass(frozen=True)
class InputDelta:
    """The making of the delta of one input of an op.

    The kernel writes to (or, with `accumulate`, adds to) buffer `written`; then that is copied or added to `target`.
    """

    written: str
    target: str
    accumulate: bool
    after: After


@dataclass(frozen=True)
class PlannedOp:
    """An op with its panels and the names of its buffers."""

    op: Op
    kernel: Kernel
    matrix_panels: tuple[Panel, ...]
    """panels of the streamed matrix, or of one after the other, in forward order; empty where the op has none"""
    vector_panels: tuple[Panel, ...]
    """the other weights, one panel each"""
    kept: Mapping[str, str]
    frozen: frozenset[str] = frozenset()
    """names of the weights that get no gradient"""
    delta_outputs: tuple[str | None, ...] = ()
    """buffers of the deltas of the outputs; None for a loss, where backward begins, and for outputs without readers"""
    delta_inputs: tuple[InputDelta | None, ...] = ()

    def panels_of_experts(self, experts: Collection[int]) -> tuple[Panel, ...]:
        """Panels of the matrices of some experts, of an op that has one for each."""
        matrices = matrices_of(self.op)
        names = {matrices[expert] for expert in experts}
        return tuple(panel for panel in self.matrix_panels if panel.weight in names)

    @cached_property
    def trained_vectors(self) -> tuple[Panel | None, ...]:
        """The vectors, None in the place of a frozen one."""
        return tuple(None if panel.weight in self.frozen else panel for panel in self.vector_panels)

    def trains(self, panel: Panel | None) -> bool:
        """Whether there is a panel, and it gets a gradient."""
        return panel is not None and panel.weight not in self.frozen

    @cached_property
    def settles(self) -> bool:
        """Whether a delta is copied or added once the kernel has run."""
        return any(delta is not None and delta.after is not After.NOTHING for delta in self.delta_inputs)


@dataclass(frozen=True)
class Plan:
    """The memory layout of a CSX for each of its grains."""

    ops: tuple[PlannedOp, ...]
    timeline: Timeline
    buffers: Mapping[str, Buffer]
    slot_bytes: int
    samples: int
    """samples of a grain"""
    tokens: int
    """most rows that a tensor has for a sample"""
    keeps: bool = False
    """whether ops keep all that they can, so that nothing is computed twice"""
    gathered: Mapping[str, str | None] = field(default_factory=dict)
    """tensor that crosses the barrier of the graph -> buffer of its delta; None without a delta"""

    @cached_property
    def routed(self) -> Mapping[int, tuple[int, ...]]:
        """Ops that have a matrix for each expert, by the router that chooses the experts: positions."""
        makers = {name: position for position, planned in enumerate(self.ops) for name in planned.op.outputs}
        found: dict[int, tuple[int, ...]] = {}
        for position, planned in enumerate(self.ops):
            if rules_of(planned.op).matrix_per_expert:
                router = makers[planned.op.inputs[1]]
                found[router] = (*found.get(router, ()), position)
        return found

    @cached_property
    def passes(self) -> Counter[int]:
        """Number of runs of each op, by position."""
        return Counter(visit.position for visit in self.timeline.visits)

    def stream(self, visits: Iterable[Visit]) -> tuple[Panel, ...]:
        """The panels that stream for some visits to ops, in order; on the way back a matrix from its last panel."""
        found: list[Panel] = []
        for position, forward in visits:
            planned = self.ops[position]
            found += [*planned.vector_panels, *planned.matrix_panels[:: 1 if forward else -1]]
        return tuple(found)


@dataclass
class _Life:
    """A buffer while the plan is made, and the spans of time in which its contents count: first and last moment."""

    shape: tuple[int, ...]
    dtype: str
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    @property
    def moments(self) -> int:
        """Duration for which its contents count [moments]."""
        return sum(stop - start + 1 for start, stop in self.spans)

    @property
    def born(self) -> int:
        """When its contents count first."""
        return self.spans[0][0]

    def begin(self, moment: int) -> None:
        """Begin a span."""
        self.spans.append((moment, moment))

    def use(self, moment: int) -> None:
        """Make the latest span last until a moment at least."""
        start, stop = self.spans[-1]
        self.spans[-1] = start, max(stop, moment)


def make_plan(
    graph: Graph,
    samples: int,
    *,
    trains: bool,
    keeps: bool = False,
    recomputes: bool = False,
    narrow: Narrow = ALL_FLOAT32,
    is_beyond: bool = False,
) -> Plan:
    """Plan the buffers of one grain, as far as a grain is computed by itself: to the barrier, where the graph has one.

    Args:
        keeps: whether ops keep their `keepable` buffers, as the logits
        recomputes: whether layers keep only tensors at their boundaries, and run forward again before their backward
        narrow: names that are bfloat16
        is_beyond: whether it is the graph of the ops beyond a barrier, for all samples of a batch; see `Barrier.beyond`
    """
    barrier, tokens = None if is_beyond else graph.barrier, graph.tokens
    crossing: tuple[str, ...] = ()
    if barrier is not None:
        # They count until the end of forward, their deltas from the begin of backward.
        graph, crossing = barrier.before, tuple(tensor.name for tensor in barrier.gathered)
    shapes = {t.name: (samples * t.tokens, *t.shape[1:]) for t in graph.tensors.values()}
    weight_shapes = {name: weight.shape for name, weight in graph.weights.items()}
    timeline = make_timeline(graph, trains=trains, recomputes=recomputes)
    lives = {t.name: _Life(shapes[t.name], t.dtype, [(0, len(timeline.visits) - 1)]) for t in graph.inputs}
    planned: list[PlannedOp] = []
    for op in graph.ops:
        kernel = KERNELS[op.kind]
        kept = {}
        for name in op.outputs:
            lives[name] = _Life(shapes[name], _dtype(name in narrow.tensors, graph.tensors[name].dtype))
        rules = rules_of(op)
        keepable = rules.keepable(op, weight_shapes) if keeps else {}
        rows = shapes[op.outputs[0]][0]
        left = {part: (*shape, rows) for part, shape in keepable.items()}
        for part, shape in (rules.statistics_shapes(op.attributes, rows) | left).items():
            kept[part] = f"{op.name}/{part}"
            lives[kept[part]] = _Life(shape, "float32")
        panels = tuple(panel for name in matrices_of(op) for panel in panels_of(graph.weights[name]))
        vectors = tuple(panel for name in vectors_of(op) for panel in panels_of(graph.weights[name]))
        frozen = frozenset(name for name in op.weights if graph.weights[name].frozen)
        planned.append(PlannedOp(op, kernel, panels, vectors, kept, frozen))
    _follow(planned, timeline, lives)
    for name in crossing:
        lives[name].use(len(planned) - 1)
    gathered: dict[str, str | None] = dict.fromkeys(crossing)
    if trains:
        backward = _Backward(graph, planned, timeline, lives, shapes, narrow.deltas)
        gathered |= backward.begin(crossing)
        planned = backward.plan()
    buffers, slot_bytes = _place(lives)
    return Plan(tuple(planned), timeline, buffers, slot_bytes, samples, tokens, keeps, gathered)


def _dtype(is_narrow: bool, otherwise: str = "float32") -> str:
    """Of a buffer. bfloat16 is stored as its bits."""
    return BFLOAT16.name if is_narrow else otherwise


def _follow(planned: Sequence[PlannedOp], timeline: Timeline, lives: Mapping[str, _Life]) -> None:
    """Follow a step from its first moment to its last, and note when each output or kept array of ops counts."""
    for moment, (position, forward) in enumerate(timeline.visits):
        p = planned[position]
        made = (*p.op.outputs, *p.kept.values())
        if forward:
            for name in made:
                lives[name].begin(moment)
        for name in p.op.inputs if forward else (*read_backward(p.op, p.frozen), *p.kept.values()):
            lives[name].use(moment)


class _Backward:
    """Gives every delta a buffer, in the order of backward; lets it share one where nothing is lost by it."""

    def __init__(
        self,
        graph: Graph,
        planned: list[PlannedOp],
        timeline: Timeline,
        lives: dict[str, _Life],
        shapes: Mapping[str, tuple[int, ...]],
        narrow: Collection[str],
    ) -> None:
        self.planned, self.lives, self.shapes, self.narrow = planned, lives, shapes, narrow
        self.moments = timeline.backward
        outer = {p.op.inputs[index] for p in planned for index in rules_of(p.op).outer_inputs}
        self.without_delta = {tensor.name for tensor in graph.inputs} - outer
        self.without_delta |= {tensor.name for tensor in graph.tensors.values() if tensor.dtype == "int32"}
        self.frozen = graph.frozen_ops
        self.without_delta |= graph.frozen_tensors
        self.maker = {name: now for now, p in enumerate(planned) for name in p.op.outputs}
        self.readers: dict[str, list[int]] = {}
        for now, p in enumerate(planned):
            for name in p.op.inputs:
                self.readers.setdefault(name, []).append(now)
        self.place: dict[str, str] = {}
        """tensor -> buffer of its delta, once its first consumer (the last in order) has been reached"""

    def begin(self, crossing: Iterable[str]) -> dict[str, str]:
        """Give tensors that cross a barrier buffers for the deltas from beyond, if weights before are trained."""
        for name in crossing:
            if name in self.maker and name not in self.without_delta:
                self.place[name] = f"delta/{name}"
                self.lives[self.place[name]] = life = _Life(self.shapes[name], "float32")
                life.begin(len(self.planned))
        return dict(self.place)

    def plan(self) -> list[PlannedOp]:
        result = []
        for now in reversed(range(len(self.planned))):
            p = self.planned[now]
            if p.op.name in self.frozen:
                nothing = (None,) * len(p.op.outputs), (None,) * len(p.op.inputs)
                result.append(replace(p, delta_outputs=nothing[0], delta_inputs=nothing[1]))
                continue
            outputs = tuple(None if name in losses_of(p.op) else self.place.get(name) for name in p.op.outputs)
            for output in outputs:
                self._use(output, now)
            deltas = tuple(self._input_delta(now, index) for index in range(len(p.op.inputs)))
            result.append(replace(p, delta_outputs=outputs, delta_inputs=deltas))
        return result[::-1]

    def _delta(self, op: Op, index: int) -> Delta:
        """The way the delta of an input is made: computed if its precision differs from the delta of the output."""
        how = rules_of(op).delta(op.attributes, index)
        if how is Delta.COMPUTED or (op.inputs[index] in self.narrow) == (delta_source(op, index) in self.narrow):
            return how
        return Delta.COMPUTED

    def _use(self, buffer: str | None, now: int) -> None:
        if buffer is not None:
            self.lives[buffer].use(self.moments[now])

    def _new(self, buffer: str, tensor: str, now: int) -> str:
        self.lives[buffer] = _Life(self.shapes[tensor], _dtype(tensor in self.narrow))
        self.lives[buffer].begin(self.moments[now])
        return buffer

    def _input_delta(self, now: int, index: int) -> InputDelta | None:
        p = self.planned[now]
        name = p.op.inputs[index]
        if name in self.without_delta:
            return None
        how = self._delta(p.op, index)
        output = self.place.get(delta_source(p.op, index))
        arrived = name in self.place
        if not arrived and how is not Delta.COMPUTED and output is not None and self._may_share(now, index):
            self.place[name] = output
            return InputDelta(output, output, accumulate=False, after=After.NOTHING)
        if not arrived:
            self.place[name] = self._new(f"delta/{name}", name, now)
        target = self.place[name]
        self._use(target, now)
        if how is Delta.SAME:
            assert output is not None
            return InputDelta(output, target, accumulate=False, after=After.ADD if arrived else After.COPY)
        if arrived and not p.kernel.accumulates:
            own = self._new(f"delta/{p.op.name}/{index}", name, now)
            return InputDelta(own, target, accumulate=False, after=After.ADD)
        return InputDelta(target, target, accumulate=arrived, after=After.NOTHING)

    def _may_share(self, now: int, index: int) -> bool:
        """Return whether input `index` may have its delta in the buffer of the output's delta.

        Other inputs of the op may share the same buffer. Any op that comes later in backward and writes there (another
        consumer of such an input, or its maker, in place) must come after all readers of this delta, and the
        other way round.
        """
        p = self.planned[now]
        sharing = [
            i
            for i in range(len(p.op.inputs))
            if self._delta(p.op, i) is not Delta.COMPUTED and delta_source(p.op, i) == delta_source(p.op, index)
        ]
        if len(sharing) == 1:
            return True
        # The delta of the input that is made last is read first, by its maker alone, which must not write to it.
        first = max(sharing, key=lambda i: self.maker.get(p.op.inputs[i], -1))
        if index != first:
            return True
        name = p.op.inputs[first]
        maker = self.planned[self.maker[name]]
        only_read = self.readers[name] == [now] and all(
            self._delta(maker.op, i) is Delta.COMPUTED for i in range(len(maker.op.inputs))
        )
        others_write_later = all(
            reader < self.maker[name]
            for i in sharing
            if i != first
            for reader in self.readers[p.op.inputs[i]]
            if reader != now
        )
        return only_read and others_write_later


def _place(lives: Mapping[str, _Life]) -> tuple[dict[str, Buffer], int]:
    """Give every buffer an offset so that buffers alive together do not overlap: longest-lived first, or largest first.

    The former wastes nothing where all tokens of a model are in most buffers, the latter where few tokens are read.
    """
    by_life = _place_in_order(lives, lambda life: (-life.moments, life.born))
    if by_life[1] == _most_alive_bytes(lives):
        return by_life
    by_size = _place_in_order(lives, lambda life: (-life.size_bytes, life.born))
    return min(by_life, by_size, key=lambda placed: placed[1])


def _most_alive_bytes(lives: Mapping[str, _Life]) -> int:
    """Size of all buffers whose contents count at the same moment, at the most [bytes]."""
    changes = np.zeros(2 + max(stop for life in lives.values() for _, stop in life.spans), np.int64)
    for life in lives.values():
        for start, stop in life.spans:
            changes[start] += life.size_bytes
            changes[stop + 1] -= life.size_bytes
    return int(np.cumsum(changes).max())


def _place_in_order(
    lives: Mapping[str, _Life], order: Callable[[_Life], tuple[int, int]]
) -> tuple[dict[str, Buffer], int]:
    """Give every buffer the first offset where it fits, in an order; among equals the first born comes first."""
    buffers: dict[str, Buffer] = {}
    spans = np.array([(*span, i) for i, life in enumerate(lives.values()) for span in life.spans])
    places = np.zeros((len(lives), 2), np.int64)
    """offset and end of the buffers placed so far"""
    for i, (name, life) in sorted(enumerate(lives.items()), key=lambda item: order(item[1][1])):
        meets = np.zeros(len(lives), bool)
        for start, stop in life.spans:
            meets[spans[(spans[:, 0] <= stop) & (spans[:, 1] >= start), 2]] = True
        others = places[meets & (places[:, 1] > 0)]
        others = others[np.argsort(others[:, 0])]
        gaps_begin = np.append(0, np.maximum.accumulate(others[:, 1]))
        gaps_end = np.append(others[:, 0], np.iinfo(np.int64).max)
        offset = int(gaps_begin[np.argmax(gaps_end - gaps_begin >= life.size_bytes)])
        places[i] = offset, offset + life.size_bytes
        buffers[name] = Buffer(offset, life.shape, life.dtype)
    return buffers, int(places[:, 1].max())
