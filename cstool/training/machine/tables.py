"""The walk of lanes written out as tables of records, which run without the interpreter.

A table has the kernel calls of one lane for one pass, in the order of the interpreter's walk (`lanes.py`), so all bits
are the same. It is data: addresses of weights in MemoryX, of activations in the arena, of gradients. Ops that cannot be
written down stay with the interpreter, in between.

Gradients have places of their own here. Each lane adds up those of its own grains as far as the tree of SwarmX goes
within them; at the end of backward the rest of the tree is added, and panels are updated, each lane a part of them
(`table_updates.py`). Where nothing is left to the interpreter, all of a step is one program of the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cstool.model.ir import OpKind, Panel, losses_of
from cstool.training.kernels import elementary
from cstool.training.kernels.call import Call, LossResult
from cstool.training.kernels.crew import Crew, Part, Program
from cstool.training.kernels.driver import NativeError, Table
from cstool.training.kernels.gemm import quiet
from cstool.training.kernels.magnitudes import check_finite
from cstool.training.kernels.recording import Cell, NotRecordableError, Recording, recorded
from cstool.training.machine.csx import GrainSlot
from cstool.training.machine.lanes import Lane, Pace, adds_up
from cstool.training.machine.row_counts import RowCounts
from cstool.training.machine.stages import PHASES, stages
from cstool.training.machine.swarmx import Node, Tree, meet
from cstool.training.machine.table_updates import Sum, TableUpdates
from cstool.training.store import aligned_empty

if TYPE_CHECKING:
    from cstool.training.machine.memoryx import MemoryX

Array = np.ndarray[Any, Any]
GRADIENT_BYTES = 2**26
"""most memory of the gradients of a lane: a model with more has such long kernel calls that the interpreter costs
nothing"""
_FORWARD = 0
"""first leg of a step's program; others follow: backward, the rest of the sums, updates"""
_CHECK = -1
"""number of the record that fails where a loss is not finite"""


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
    """A part of a pass: records, or work of the interpreter."""

    start: int
    stop: int
    """words of the table"""
    position: int | None = None
    """of an op that the interpreter runs"""
    phase: str = "forward"
    rest: tuple[Callable[[], None], ...] = ()
    """of an op that is written down but for this"""

    @property
    def is_native(self) -> bool:
        """Whether it has records."""
        return self.position is None and not self.rest


class Walk:
    """One pass of one lane as a table with pieces of the interpreter in between.

    Args:
        visits: (position of an op, phase), in order
        write: writes down an op in a phase; raises NotRecordableError where that cannot be
        check: writes down a last record, which is part of no piece
    """

    def __init__(
        self,
        lane: Lane,
        visits: Sequence[tuple[int, str]],
        write: Callable[[int, str], None],
        check: Callable[[], None],
    ) -> None:
        self._lane = lane
        self.seconds = 0.0
        """time in records, up to the last call of `take_seconds` [s]"""
        recording = Recording()
        self.pieces: list[Piece] = []
        self.native: set[tuple[int, str]] = set()
        """what is written down"""
        for position, phase in visits:
            start, kept = len(recording.words), len(recording.kept)
            recording.number = PHASES.index(phase) * len(lane.plan.ops) + position
            try:
                recording.mark()
                with recorded(recording):
                    write(position, phase)
            except NotRecordableError:
                del recording.words[start:], recording.kept[kept:], recording.left[:]
                recording.number = -1
                self._close(recording)
                self.pieces.append(Piece(0, 0, position, phase))
                continue
            self.native.add((position, phase))
            if recording.left:
                self._close(recording)
                self.pieces.append(Piece(0, 0, rest=tuple(recording.left)))
                recording.left.clear()
        self._close(recording)
        self.stop = max((piece.stop for piece in self.pieces), default=0)
        """end of the pieces"""
        with recorded(recording):
            check()
        self.table = Table(recording, len(PHASES) * len(lane.plan.ops))

    def _close(self, recording: Recording) -> None:
        """End a piece of records."""
        start = max((piece.stop for piece in self.pieces), default=0)
        if len(recording.words) > start:
            recording.number = -1
            recording.mark()
            self.pieces.append(Piece(start, len(recording.words)))

    @property
    def is_native(self) -> bool:
        """Whether nothing is left to the interpreter."""
        return all(piece.is_native for piece in self.pieces)

    def run(self, pace: Pace) -> None:
        """Run the pass."""
        for piece in self.pieces:
            if piece.position is not None:
                self._lane.run_op(piece.position, piece.phase, pace)
                continue
            for work in piece.rest:
                work()
            try:
                self.table.run(piece.start, piece.stop)
            except NativeError as failed:
                self.fail(failed, pace)

    def take_seconds(self) -> None:
        """Add the time in each op since the last call to the lane's."""
        by_phase = self.table.nanoseconds.reshape(len(PHASES), -1)
        self.seconds += 1e-9 * float(by_phase.sum())
        for phase, nanoseconds in zip(PHASES, by_phase, strict=True):
            self._lane.seconds[phase] += 1e-9 * nanoseconds
        by_phase[:] = 0

    def fail(self, failed: NativeError, pace: Pace) -> None:
        """Run an op again in Python after its kernel raised an exception: now with its message."""
        phase, position = divmod(failed.number, len(self._lane.plan.ops))
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

    def add(self, key: Sum, node: Node, place: Array) -> None:
        """Write down how the sum below a node is added to others; it stands in a place of this lane."""
        waiting = self.found.setdefault(key, {})

        def join(left: Array, right: Array, _level: int) -> Array:
            elementary.add(left, right, left)
            self.places.give_back(right)
            return left

        top = self._tree.climb(node, place, partial(meet, waiting), join)
        if top is not None:
            waiting[top[0]] = top[1]


class Tables:
    """The passes of all lanes as tables, and the updates that follow them.

    Args:
        lanes: with a grain in each slot in every batch
        memoryx: has all weights in memory
        on_lanes: runs passes that are left to the interpreter in part, each lane in a thread of its own

    Raises:
        NotRecordableError: lanes differ in what can be written down
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        grains: int,
        memoryx: MemoryX,
        on_lanes: Callable[[Callable[[Lane, Pace], None]], None],
    ) -> None:
        self.lanes, self._memoryx, self._on_lanes = lanes, memoryx, on_lanes
        plan = lanes[0].plan
        self._weights: dict[Panel, Array] = {}
        experts = [op for op in plan.ops if op.op.kind is OpKind.EXPERT_LINEAR]
        self._rows = RowCounts([panel for op in experts for panel in op.matrix_panels], grains)
        losses = [position for position, planned in enumerate(plan.ops) if losses_of(planned.op)]
        self._step, self._scales = np.zeros(1, np.int64), {position: np.zeros(1) for position in losses}
        """cells: number of the step, and factor on each loss"""
        self._figures = [np.zeros((len(lane.slots) * len(losses), 2)) for lane in lanes]
        """see `Call.figures`"""
        for lane, of_lane in zip(lanes, self._figures, strict=True):
            for number, figures in enumerate(of_lane):
                slot, loss = divmod(number, len(losses))
                lane.slots[slot].calls[losses[loss]].figures = figures
        self._written = [[[self._call(slot, i) for i in range(len(plan.ops))] for slot in lane.slots] for lane in lanes]
        """calls as records have them, by lane and slot"""
        self._sums = [LaneSums(grains, [slot_grain(slot) for slot in lane.slots]) for lane in lanes]
        self._forward = [self._walk(lane, [(i, "forward") for i in range(len(plan.ops))]) for lane in lanes]
        back = [(position, "again" if forward else "backward") for position, forward in plan.timeline.way_back]
        self._backward = [self._walk(lane, back) for lane in lanes]
        self._losses = [
            (slot.calls[position], calls[position])
            for lane in lanes
            for slot, calls in zip(lane.slots, self._written[lane.index], strict=True)
            for position in losses
            if (position, "forward") in self._forward[0].native
        ]
        """calls of losses that are written down, as slots have them and as records do"""
        for walks in (self._forward, self._backward):
            if any(walk.native != walks[0].native for walk in walks):
                raise NotRecordableError("lanes differ in what can be written down")
        self.updates: TableUpdates | None = None
        self._program: Program | None = None
        """a step"""
        self._is_back = False
        """whether the program went all the way"""
        if plan.timeline.way_back:
            found = [sums.found for sums in self._sums]
            self.updates = TableUpdates(memoryx, grains, found, self._rows, self._run)
            if all(walk.is_native for walk in (*self._forward, *self._backward)):
                forward = [Part(walk.table, 0, walk.table.length) for walk in self._forward]
                self._program = Program([forward, _leg(self._backward), *self.updates.legs])
        threads = {context for walk in (*self._forward, *self._backward) for context in walk.table.threads}
        self._crew = Crew(len(lanes), threads)

    @property
    def allocated_bytes(self) -> int:
        """Memory of the gradients [bytes]."""
        return sum(sums.places.allocated_bytes for sums in self._sums)

    def begin(self, step: int) -> None:
        """Begin a batch: the slots have its grains."""
        self._memoryx.settle(self._weights)
        self._memoryx.update_beside(self.updates)
        self._step[0] = step
        for position, scale in self._scales.items():
            scale[0] = self.lanes[0].slots[0].calls[position].scale

    def forward(self) -> None:
        """Run all lanes forward.

        Where nothing is left to the interpreter, and all losses are finite, they go back and update, too; then
        `backward` has less to do.
        """
        self._is_back = False
        if self._program is None:
            self._pass(self._forward)
        else:
            assert self.updates is not None, "who goes back trains"
            self.updates.prepare()
            failures = self._crew.run(self._program)
            self._is_back = not failures
            for leg, lane, error in failures:
                if error.number != _CHECK:
                    self._fail((self._forward if leg == _FORWARD else self._backward)[lane], error)
        for call, written in self._losses:
            total, correct = call.figures.tolist()
            call.loss = written.loss or LossResult(total, int(correct))

    def backward(self) -> None:
        """Run all lanes backward, add up gradients, and update panels."""
        assert self.updates is not None, "who goes back trains"
        if not self._is_back:
            self._pass(self._backward)
            self.updates.add_up()
        self.updates.hand_in()

    def take_seconds(self) -> None:
        """Add the time in each op since the last call to that of its lane."""
        for walk in (*self._forward, *self._backward):
            walk.take_seconds()

    @property
    def native_seconds(self) -> list[float]:
        """Time of each lane in records so far, without the interpreter [s]."""
        self.take_seconds()
        of_updates = [0.0] * len(self.lanes) if self.updates is None else self.updates.seconds
        passes = zip(self._forward, self._backward, of_updates, strict=True)
        return [forward.seconds + backward.seconds + updates for forward, backward, updates in passes]

    def close(self) -> None:
        """End the threads."""
        self._crew.close()

    def _pass(self, walks: Sequence[Walk]) -> None:
        if not all(walk.is_native for walk in walks):
            self._on_lanes(lambda lane, pace: walks[lane.index].run(pace))
            return
        for _, lane, error in self._crew.run(Program([_leg(walks)])):
            self._fail(walks[lane], error)

    def _run(self, program: Program) -> None:
        for failure in self._crew.run(program):
            raise failure.error

    @staticmethod
    @quiet
    def _fail(walk: Walk, error: NativeError) -> None:
        walk.fail(error, Pace(1, 0))

    def _walk(self, lane: Lane, visits: Sequence[tuple[int, str]]) -> Walk:
        calls = self._written[lane.index]

        def write(position: int, phase: str) -> None:
            self._write(lane, calls, position, is_backward=phase == "backward")

        def check() -> None:
            check_finite(self._figures[lane.index])

        return Walk(lane, visits, write, check)

    def _call(self, slot: GrainSlot, position: int) -> Call:
        """A call of a slot with cells in the place of numbers that change from step to step."""
        call = slot.calls[position]
        step: Any = Cell(self._step)
        scale: Any = Cell(self._scales[position]) if position in self._scales else call.scale
        dropout = None if call.dropout is None else call.dropout._replace(step=step)
        return replace(call, dropout=dropout, scale=scale, loss=None)

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
        owed = planned.trained_vectors if is_backward else ()
        of_vectors = [[None if p is None else sums.places.take(p.shape) for p in owed] for _ in lane.slots]
        try:
            for panel, is_first, is_last in stages(planned.matrix_panels[:: -1 if is_backward else 1]):
                matrix = [] if panel is None else [self._weight(panel)]
                left: Array | None = None
                for number, slot in enumerate(lane.slots):
                    call = calls[number][position]
                    call.hold(matrix + vectors, panel, is_first, is_last)
                    if (counts := self._rows.of(panel)) is not None:
                        call.found = counts[slot_grain(slot) :][:1]
                    if not is_backward:
                        planned.kernel.forward(call)
                        continue
                    call.adds = left is not None
                    place = left
                    if panel is not None and left is None and planned.trains(panel):
                        place = sums.places.take(panel.shape)
                    call.gradients = [*([] if panel is None else [place]), *of_vectors[number]]
                    planned.kernel.backward(call)
                    left = None
                    if panel is not None and place is not None:
                        if not call.adds and adds_up(planned, call, lane.slots[number : number + 2]):
                            left = place
                        else:
                            grain = Node(int(call.adds), slot_grain(slot) >> call.adds)
                            sums.add(Sum(panel, planned.op.name), grain, place)
                    if is_last:
                        slot.settle(planned)
                        for vector, gradient in zip(owed, of_vectors[number], strict=True):
                            if vector is not None and gradient is not None:
                                sums.add(Sum(vector, planned.op.name), Node(0, slot_grain(slot)), gradient)
        except NotRecordableError:
            for panel in (*planned.matrix_panels, *planned.vector_panels):
                sums.found.pop(Sum(panel, planned.op.name), None)
            raise


def _leg(walks: Sequence[Walk]) -> list[Part]:
    """A pass of all lanes, of which nothing is left to the interpreter."""
    return [Part(walk.table, 0, walk.stop) for walk in walks]


def slot_grain(slot: GrainSlot) -> int:
    """The grain of a slot that holds one."""
    assert slot.grain is not None
    return slot.grain
