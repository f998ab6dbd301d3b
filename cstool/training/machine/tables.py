"""The walk of lanes written out as tables of records, which run without the interpreter.

A table has the kernel calls of one lane for one pass, in the order of the interpreter's walk (`lanes.py`), so all bits
are the same. It is data: addresses of weights in MemoryX, of activations in the arena, of gradients. Ops that cannot be
written down stay with the interpreter, in between.

Gradients have places of their own here. Each lane adds up those of its own grains as far as the tree of SwarmX goes
within them; at the end of backward the rest of the tree is added, and panels are updated, each lane a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cstool.model.batch_split import even_parts
from cstool.model.ir import OpKind, Panel, rules_of
from cstool.model.optimizers import Step
from cstool.training.kernels import elementary
from cstool.training.kernels.bfloat16 import convert
from cstool.training.kernels.call import Call, Rows
from cstool.training.kernels.driver import NativeError, Table
from cstool.training.kernels.magnitudes import sum_squares
from cstool.training.kernels.mixture import fill_without_rows
from cstool.training.kernels.recording import Cell, NotRecordableError, Numbers, Recording, recorded
from cstool.training.machine.csx import GrainSlot
from cstool.training.machine.row_counts import RowCounts
from cstool.training.machine.stages import PHASES, stages
from cstool.training.machine.swarmx import Node, Tree, meet
from cstool.training.store import aligned_empty

if TYPE_CHECKING:
    from cstool.training.machine.lanes import Lane, Pace
    from cstool.training.machine.memoryx import MemoryX

Array = np.ndarray[Any, Any]
GRADIENT_BYTES = 2**26
"""most memory of the gradients of a lane: a model with more has such long kernel calls that the interpreter costs
nothing"""
CHUNK_NUMBERS = 2**14
"""size from which lanes share the update of a panel"""
SHARED_NUMBERS = 2**20
"""of all panels, from which other lanes are told to update their part: telling one takes as long as updating some
100,000 numbers, and waking it longer"""


class Places:
    """Memory for gradients, laid out once: a place that is given back is lent again."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self.allocated_bytes = 0

    def take(self, shape: tuple[int, ...]) -> Array:
        """Lend (shape) float32."""
        size = int(np.prod(shape))
        free = self._free.setdefault(size, [])
        if free:
            return free.pop().reshape(shape)
        self.allocated_bytes += 4 * size
        return aligned_empty(4 * size).view(np.float32).reshape(shape)

    def give_back(self, place: Array) -> None:
        """Take a place back."""
        self._free[place.size].append(place.reshape(-1))


class Piece(NamedTuple):
    """A part of a pass: records, or an op of the interpreter."""

    start: int
    stop: int
    """words of the table"""
    position: int | None = None
    """of the op that the interpreter runs"""
    phase: str = "forward"
    is_finish: bool = False
    """whether only the rest of the op is left to the interpreter"""


class Walk:
    """One pass of one lane as a table with pieces of the interpreter in between.

    Args:
        visits: (position of an op, phase), in order
        write: writes down an op in a phase; raises NotRecordableError where that cannot be
    """

    def __init__(self, lane: Lane, visits: Sequence[tuple[int, str]], write: Callable[[int, str], None]) -> None:
        self._lane = lane
        recording = Recording()
        self.pieces: list[Piece] = []
        self.native: set[tuple[int, str]] = set()
        """what is written down"""
        for position, phase in visits:
            start, kept = len(recording.words), len(recording.kept)
            recording.number = PHASES.index(phase) * len(lane.plan.ops) + position
            kernel = lane.plan.ops[position].kernel
            try:
                recording.mark()
                with recorded(recording):
                    write(position, phase)
            except NotRecordableError:
                del recording.words[start:], recording.kept[kept:]
                recording.number = -1
                self._close(recording)
                self.pieces.append(Piece(0, 0, position, phase))
                continue
            self.native.add((position, phase))
            if phase != "backward" and kernel.finish is not None:
                self._close(recording)
                self.pieces.append(Piece(0, 0, position, phase, is_finish=True))
        self._close(recording)
        self.table = Table(recording, len(PHASES) * len(lane.plan.ops))

    def _close(self, recording: Recording) -> None:
        """End a piece of records."""
        start = max((piece.stop for piece in self.pieces), default=0)
        if len(recording.words) > start:
            recording.number = -1
            recording.mark()
            self.pieces.append(Piece(start, len(recording.words)))

    def run(self, pace: Pace) -> None:
        """Run the pass."""
        lane = self._lane
        for piece in self.pieces:
            if piece.position is None:
                try:
                    self.table.run(piece.start, piece.stop)
                except NativeError as failed:
                    self._fail(failed.number, pace)
            elif piece.is_finish:
                self._finish(piece.position)
            else:
                lane.run_op(piece.position, piece.phase, pace)

    def take_seconds(self) -> None:
        """Add the time in each op since the last call to the lane's."""
        by_phase = self.table.nanoseconds.reshape(len(PHASES), -1)
        for phase, nanoseconds in zip(PHASES, by_phase, strict=True):
            self._lane.seconds[phase] += 1e-9 * nanoseconds
        by_phase[:] = 0

    def _finish(self, position: int) -> None:
        planned = self._lane.plan.ops[position]
        assert planned.kernel.finish is not None
        for slot in self._lane.slots:
            call = slot.calls[position]
            call.stop = planned.matrix_panels[-1].stop if planned.matrix_panels else 0
            planned.kernel.finish(call)

    def _fail(self, number: int, pace: Pace) -> None:
        """Run an op again in Python after its kernel raised an exception: now with its message."""
        phase, position = divmod(number, len(self._lane.plan.ops))
        self._lane.run_op(position, PHASES[phase], pace)
        name = self._lane.plan.ops[position].op.name
        raise RuntimeError(f"{name}: a kernel raised an exception, and none when it was called again")


class LaneSums:
    """The gradients of a lane, added up along the tree of SwarmX as far as its own grains reach.

    Args:
        grains: of a batch
    """

    def __init__(self, grains: int, own: Sequence[int]) -> None:
        self.places = Places()
        self._tree = Tree(grains, own)
        self.found: dict[Sum, dict[Node, Array]] = {}
        """sums at the end of the pass"""

    def add(self, key: Sum, grain: int, place: Array) -> None:
        """Write down how the gradient of a grain is added; it stands in a place of this lane."""
        waiting = self.found.setdefault(key, {})

        def join(left: Array, right: Array, _level: int) -> Array:
            elementary.add(left, right, left)
            self.places.give_back(right)
            return left

        top = self._tree.climb(Node(0, grain), place, partial(meet, waiting), join)
        if top is not None:
            waiting[top[0]] = top[1]


class Sum(NamedTuple):
    """A sum of gradients: an op has one for each of its panels."""

    panel: Panel
    op: str


class Tables:
    """The passes of all lanes as tables, and the updates that follow them.

    Args:
        lanes: with a grain in each slot in every batch
        memoryx: has all weights in memory
        on_lanes: calls a function on all lanes, with the number of the lane

    Raises:
        NotRecordableError: lanes differ in what can be written down
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        grains: int,
        memoryx: MemoryX,
        on_lanes: Callable[[Callable[[int], None]], None],
    ) -> None:
        self.lanes, self._memoryx = lanes, memoryx
        plan = lanes[0].plan
        self._weights: dict[Panel, Array] = {}
        self._step, self._scales = np.zeros(1, np.int64), [np.zeros(1) for _ in plan.ops]
        """cells: number of the step, and factor on the loss of each op"""
        experts = [op for op in plan.ops if op.op.kind is OpKind.EXPERT_LINEAR]
        self._rows = RowCounts([panel for op in experts for panel in op.matrix_panels], grains)
        self._sums = [LaneSums(grains, [slot_grain(slot) for slot in lane.slots]) for lane in lanes]
        self._forward = [self._walk(lane, [(i, "forward") for i in range(len(plan.ops))]) for lane in lanes]
        back = [(position, "again" if forward else "backward") for position, forward in plan.timeline.way_back]
        self._backward = [self._walk(lane, back) for lane in lanes]
        for walks in (self._forward, self._backward):
            if any(walk.native != walks[0].native for walk in walks):
                raise NotRecordableError("lanes differ in what can be written down")
        self.updates: TableUpdates | None = None
        if plan.timeline.way_back:
            found = [sums.found for sums in self._sums]
            self.updates = TableUpdates(memoryx, grains, found, self._rows, on_lanes)

    @property
    def allocated_bytes(self) -> int:
        """Memory of the gradients [bytes]."""
        return sum(sums.places.allocated_bytes for sums in self._sums)

    def begin(self, step: int) -> None:
        """Begin a batch: the slots have its grains."""
        self._memoryx.settle(self._weights)
        self._memoryx.update_beside(self.updates)
        self._step[0] = step
        for position, call in enumerate(self.lanes[0].slots[0].calls):
            self._scales[position][0] = call.scale

    def forward(self, lane: Lane, pace: Pace) -> None:
        """Run the forward pass of a lane."""
        self._run(self._forward[lane.index], pace)

    def backward(self, lane: Lane, pace: Pace) -> None:
        """Run the backward pass of a lane, all but the sums over lanes and the updates."""
        self._run(self._backward[lane.index], pace)

    def _run(self, walk: Walk, pace: Pace) -> None:
        try:
            walk.run(pace)
        finally:
            walk.take_seconds()

    def _walk(self, lane: Lane, visits: Sequence[tuple[int, str]]) -> Walk:
        calls = [[self._call(slot, position) for position in range(len(lane.plan.ops))] for slot in lane.slots]

        def write(position: int, phase: str) -> None:
            self._write(lane, calls, position, is_backward=phase == "backward")

        return Walk(lane, visits, write)

    def _call(self, slot: GrainSlot, position: int) -> Call:
        """A call of a slot with cells in the place of numbers that change from step to step."""
        call = slot.calls[position]
        step: Any = Cell(self._step)
        scale: Any = Cell(self._scales[position])
        dropout = None if call.dropout is None else call.dropout._replace(step=step)
        return replace(call, dropout=dropout, scale=scale)

    def _weight(self, panel: Panel) -> Array:
        if panel not in self._weights:
            found = self._memoryx.standing(panel)
            if found is None:
                raise NotRecordableError(f"{panel.weight} has no place of its own in memory")
            self._weights[panel] = found
        return self._weights[panel]

    def _write(self, lane: Lane, calls: Sequence[Sequence[Call]], position: int, *, is_backward: bool) -> None:
        """Write down an op on all grains of a lane, panel by panel, as the interpreter runs it."""
        planned, sums = lane.plan.ops[position], self._sums[lane.index]
        if not planned.kernel.native:
            raise NotRecordableError(f"{planned.op.name} does more than to call kernels")
        vectors = [self._weight(panel) for panel in planned.vector_panels]
        owed_vectors = planned.vector_panels if is_backward else ()
        of_vectors = [[sums.places.take(panel.shape) for panel in owed_vectors] for _ in lane.slots]
        try:
            for panel, is_first, is_last in stages(planned.matrix_panels[:: -1 if is_backward else 1]):
                matrix = [] if panel is None else [self._weight(panel)]
                for number, slot in enumerate(lane.slots):
                    call = calls[number][position]
                    call.hold(matrix + vectors, panel, is_first, is_last)
                    if (counts := self._rows.of(panel)) is not None:
                        call.found = counts[slot_grain(slot) :][:1]
                    if not is_backward:
                        planned.kernel.forward(call)
                        continue
                    gradients = [] if panel is None else [sums.places.take(panel.shape)]
                    call.gradients = [*gradients, *of_vectors[number]]
                    planned.kernel.backward(call)
                    owed = [] if panel is None else [(panel, gradients[0])]
                    if is_last:
                        slot.settle(planned)
                        owed += zip(planned.vector_panels, of_vectors[number], strict=True)
                    for each, gradient in owed:
                        sums.add(Sum(each, planned.op.name), slot_grain(slot), gradient)
        except NotRecordableError:
            for panel in (*planned.matrix_panels, *planned.vector_panels):
                sums.found.pop(Sum(panel, planned.op.name), None)
            raise


def slot_grain(slot: GrainSlot) -> int:
    """The grain of a slot that holds one."""
    assert slot.grain is not None
    return slot.grain


class _Like(NamedTuple):
    """Updates that have all numbers in common: they are found anew for each step, with one of them as the example."""

    arrays: tuple[Array, Array, list[Array]]
    rate: float
    """factor on the learning rate"""
    decays: bool
    words: list[list[list[int]]]
    """by lane, for each update, the words of its record that have the numbers"""


class TableUpdates:
    """Sums of gradients over lanes, and updates of panels in memory, as tables: each lane has a part of the work.

    Args:
        found: sums of each lane
        rows: counts of the rows of experts, which are there after backward
        on_lanes: calls a function on all lanes, with the number of the lane
    """

    def __init__(
        self,
        memoryx: MemoryX,
        grains: int,
        found: Sequence[Mapping[Sum, Mapping[Node, Array]]],
        rows: RowCounts,
        on_lanes: Callable[[Callable[[int], None]], None],
    ) -> None:
        self._memoryx, self._kept, self._on_lanes = memoryx, memoryx.arrays.kept, on_lanes
        self._tree = Tree(grains, range(grains))
        self.lanes = len(found)
        tops = {key: [item for of_lane in found for item in of_lane[key].items()] for key in found[0]}
        self._rows = rows
        ops: dict[Panel, list[str]] = {}
        for key in tops:
            ops.setdefault(key.panel, []).append(key.op)
        self.panels = frozenset(panel for panel in ops if self._is_updated(panel, ops[panel]))
        """panels that are updated here"""
        self._sent = [[Sum(panel, op) for op in memoryx.uses(panel.weight)] for panel in ops if panel in self.panels]
        """their sums, in the order in which they are added"""
        self._by_rows = {op.name for op in memoryx.arrays.graph.ops if rules_of(op).rows_by_data}
        self._is_shared = sum(key.panel.size for key in tops) >= SHARED_NUMBERS
        waits = self._kept.gradients_wait
        self._squares = {panel: np.zeros(1) for panel in self.panels} if waits else {}
        self._handed = {key: tops[key] for key in tops if key.panel not in self.panels}
        """sums that MemoryX gets, with the first of their parts, in which they stand in the end"""
        self._totals: dict[Sum, Array] = {}
        sums, changes = ([Recording() for _ in found] for _ in range(2))
        whole = [*([key] for key in self._handed), *(self._sent if waits else ())]
        for lane, together in enumerate(_dealt(whole, self.lanes)):
            with recorded(sums[lane]):
                for keys in together:
                    first = keys[0]
                    self._totals[first] = total = self._gradient(keys, [tops[key] for key in keys])
                    if first.panel in self._squares:
                        sums[lane].kernel(sum_squares, (total.reshape(-1),), self._squares[first.panel])
        self._like: dict[tuple[bool, float], _Like] = {}
        for keys in self._sent:
            parts = [[(Node(0, 0), self._totals[keys[0]])]] if waits else [tops[key] for key in keys]
            self._write(keys, parts, changes, is_total=waits)
        self._sums, self._changes = [Table(r) for r in sums], [Table(r) for r in changes]

    def _is_updated(self, panel: Panel, ops: Sequence[str]) -> bool:
        """Whether a panel is updated here: all its ops have their sums here, and numbers are updated one by one."""
        optimizer = self._kept.optimizer
        return optimizer is not None and optimizer.is_one_loop and {*ops} == {*self._memoryx.uses(panel.weight)}

    def _gradient(self, keys: Sequence[Sum], parts: Sequence[Sequence[tuple[Node, Array]]]) -> Array:
        """Write down the gradient of a panel, or of some rows of it, as MemoryX adds it up.

        It stands in one of the parts. Of numbers that are `NOTHING` in all of them, those of an embedding become 0, and
        those of an expert without any token.

        Args:
            keys: sums of the panel, in the order in which they are added
            parts: of each sum
        """
        first, *others = map(self._total, parts)
        if keys[0].op in self._by_rows:
            elementary.add(first, np.zeros((1, first.shape[-1]), np.float32), first)
        if (counts := self._rows.of(keys[0].panel)) is not None:
            fill_without_rows(counts, first.reshape(-1), np.float32(0))
        for other in others:
            elementary.add(first, other, first)
        return first

    def _total(self, parts: Sequence[tuple[Node, Array]]) -> Array:
        """Write down the rest of the tree: the sum stands in one of the parts."""
        waiting: dict[Node, Array] = {}

        def join(left: Array, right: Array, _level: int) -> Array:
            elementary.add(left, right, left)
            return left

        for node, part in parts:
            top = self._tree.climb(node, part, partial(meet, waiting), join)
        assert top is not None
        return top[1]

    def _write(
        self,
        keys: Sequence[Sum],
        parts: Sequence[Sequence[tuple[Node, Array]]],
        changes: Sequence[Recording],
        *,
        is_total: bool,
    ) -> None:
        """Write down the update of a panel, which the lanes share if it is large; see `_gradient`."""
        panel = keys[0].panel
        weight = self._memoryx.arrays.graph.weights[panel.weight]
        numbers, states, copied = self._memoryx.updated(panel)
        rows = numbers.shape[0]
        shares = even_parts(range(rows), self.lanes) if panel.size >= CHUNK_NUMBERS else [range(rows)]
        rate = self._kept.learning_rate_scales.get(panel.weight, 1.0)
        first = 0 if len(shares) > 1 else int(np.argmin([len(change.words) for change in changes]))
        for lane, share in enumerate(shares, first):
            if not share:
                continue
            part = slice(share[0], share[-1] + 1)
            flat = [array[part].reshape(-1) for array in (numbers, *states)]
            with recorded(changes[lane]):
                cut = [[(node, array.reshape(numbers.shape)[part]) for node, array in of_sum] for of_sum in parts]
                total = (cut[0][0][1] if is_total else self._gradient(keys, cut)).reshape(-1)
                arrays = flat[0], total, flat[1:]
                like = self._like.setdefault(
                    (weight.decays, rate), _Like(arrays, rate, weight.decays, [[] for _ in changes])
                )
                self._update(like, arrays, Step(1, 0.0, 1.0))
                start, scalars = changes[lane].records[-1]
                like.words[lane].append([start + word for word in scalars])
                if copied is not None:
                    convert(np.atleast_2d(numbers[part]), np.atleast_2d(copied[part]))

    def _update(self, like: _Like, arrays: tuple[Array, Array, list[Array]], step: Step) -> None:
        step = step._replace(learning_rate=step.learning_rate * like.rate)
        assert self._kept.optimizer is not None
        self._kept.optimizer.update(*arrays, step, like.decays)

    def add_up(self) -> None:
        """Add up the gradients of all lanes, and update the panels, or give MemoryX all that it needs before that."""
        self._run(self._sums)
        idle = self._rows.idle()
        for key in self._handed:
            if key.panel in idle:
                nothing = np.empty((0, *key.panel.shape[1:]), np.float32)
                self._memoryx.receive(key.panel, key.op, Rows(np.empty(0, np.int32), nothing))
                continue
            buffer = self._memoryx.buffers.take(key.panel.shape)
            np.copyto(buffer, self._totals[key])
            self._memoryx.receive(key.panel, key.op, buffer)
        self._memoryx.take_squares({panel: float(square[0]) for panel, square in self._squares.items()})

        for panel in idle & self.panels:
            self._memoryx.count_idle(panel)
        if (step := self._memoryx.step) is not None:
            self.update(step)

    def update(self, step: Step) -> None:
        """Update the panels."""
        self._prepare(step)
        self._run(self._changes)

    def _run(self, tables: Sequence[Table]) -> None:
        if self._is_shared and any(table.length for table in tables):
            self._on_lanes(lambda lane: tables[lane].run())
            return
        for table in tables:
            table.run()

    def _prepare(self, step: Step) -> None:
        """Write the numbers of a step into the records of its updates."""
        for like in self._like.values():
            numbers = Numbers()
            with recorded(numbers):
                self._update(like, like.arrays, step)
            for table, words in zip(self._changes, like.words, strict=True):
                if words:
                    table.words[np.array(words)] = numbers.words


def _dealt(sums: Sequence[Sequence[Sum]], lanes: int) -> list[list[Sequence[Sum]]]:
    """Deal sums, those of a panel together, to lanes: large ones first, each to the lane with the least."""
    dealt: list[list[Sequence[Sum]]] = [[] for _ in range(lanes)]
    sizes = [0] * lanes
    for keys in sorted(sums, key=lambda keys: -keys[0].panel.size):
        lane = sizes.index(min(sizes))
        dealt[lane].append(keys)
        sizes[lane] += keys[0].panel.size
    return dealt
