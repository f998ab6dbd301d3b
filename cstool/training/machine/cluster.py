"""The systems as they are laid out for one kind of batch: slots, lanes, waves; forward and backward."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from itertools import zip_longest
from statistics import fmean
from typing import NamedTuple

import numpy as np

from cstool.model.batch_split import even_parts
from cstool.model.ir import Panel
from cstool.training.kernels.call import LossResult
from cstool.training.kernels.gemm import Gemm
from cstool.training.kernels.magnitudes import first_non_finite
from cstool.training.kernels.recording import NotRecordableError
from cstool.training.kernels.shared_gemm import PARTS, SharedGemm
from cstool.training.kernels.sparse import SparseMatrix
from cstool.training.machine.csx import Csx, GrainSlot
from cstool.training.machine.grains import cores_of_rank, lanes_for
from cstool.training.machine.inputs import Batch
from cstool.training.machine.lanes import STAGES_APART, Lane, LaneStopped, Pace
from cstool.training.machine.layout import Layout
from cstool.training.machine.meeting import Gathered
from cstool.training.machine.plan import Plan
from cstool.training.machine.ranks.exchange import Exchange
from cstool.training.machine.recorder import Recorder
from cstool.training.machine.stages import PHASES, stages
from cstool.training.machine.swarmx import SwarmX, held
from cstool.training.machine.tables import GRADIENT_BYTES, Tables

TABLE, INTERPRETER = EXECUTORS = ("table", "python")
"""who walks over the ops of a plan: a driver of tables, where that can be, or the interpreter; the bits are the same"""


class BadTensor(NamedTuple):
    """A tensor that is not finite everywhere."""

    position: int
    """of the op that reads or makes it"""
    part: int
    """weights, inputs, outputs of the op, in this order"""
    name: str

    def __str__(self) -> str:
        return self.name


class Leg(NamedTuple):
    """A part of the way of a batch."""

    kind: str
    """`forward`; `meet`, where the grains of all waves meet; `again`, forward once more; `backward`"""
    wave: int = 0


class Cluster:
    """The systems of one rank, which work with the systems of the others on batches of one size.

    The grains of a batch are dealt to the systems in order, some of which may get none; in waves, when the arenas do
    not hold them all at once.

    Args:
        layout: of the systems of all ranks
        exchange: with the other ranks, and MemoryX here
        lanes: host threads, at most, or as many that share the products of a grain alone in its batch; None to choose
        apart: largest lead of the fastest lane over the slowest [panels]
        executor: one of `EXECUTORS`
    """

    def __init__(
        self,
        layout: Layout,
        exchange: Exchange,
        *,
        lanes: int | None,
        seed: int,
        apart: int = STAGES_APART,
        executor: str = TABLE,
    ) -> None:
        self.layout = layout
        self.plan, self.trains, self.waves = layout.plan, layout.trains, layout.deal.waves
        self.grains = layout.deal.grains
        """of a global batch, over all ranks"""
        self.rank, ranks = exchange.link.rank, exchange.link.host_ranks
        own, systems = layout.grains(self.rank), layout.systems(self.rank)
        self.csx = [Csx(system, self.plan, layout.deal.slots[system], seed) for system in systems]
        self.slots = [slot for csx in self.csx for slot in csx.slots]
        self.swarmx, feeder = exchange.swarmx(self.grains, own), exchange.feeder
        count = lanes or lanes_for(exchange.graph, self.plan.samples, len(own), ranks)
        count = max(1, min(count, len(self.slots)))
        self.lanes = [Lane(i, self.plan, share, self.swarmx) for i, share in enumerate(even_parts(self.slots, count))]
        self._walkers = [*self.lanes, *([] if feeder is None else [Lane(count, self.plan, [], feeder)])]
        self._apart, self._nodes = apart, exchange.nodes
        self.sharing = min(lanes or cores_of_rank(ranks), PARTS) if self.grains == 1 else 1
        """threads that share the products of a grain"""
        self._shared: SharedGemm | None = None
        self.executor = executor
        self._memoryx = exchange.memoryx
        self._is_alone = ranks == exchange.link.ranks == 1
        self._tables: Tables | None = None
        """of this wave, if it runs by tables"""
        self._made: Tables | None = None
        self._can_have_tables = self._is_alone and self._could_have_tables()
        self._threads = ThreadPoolExecutor(max(1, len(self._walkers) - 1), thread_name_prefix="lane")

    @cached_property
    def own_samples(self) -> list[int]:
        """The samples of a global batch that are for this rank, in order."""
        size = self.plan.samples
        return [sample for grain in self._places for sample in range(grain * size, (grain + 1) * size)]

    @cached_property
    def _places(self) -> dict[int, int]:
        """Grain of this rank -> its place among the grains of this rank."""
        return {grain: place for place, grain in enumerate(self.layout.grains(self.rank))}

    def multiply_with(self, gemm: Gemm) -> None:
        """Have all products computed by a provider; of a lone grain in parts, for any number of threads."""
        self._end_sharing()
        self._take_seconds()
        self._end_tables()
        self._made = self._tables = None
        self._can_have_tables = self._is_alone and self._could_have_tables()
        if self.grains == 1:
            gemm = self._shared = SharedGemm(gemm, self.sharing)
        for slot in self.slots:
            for call in slot.calls:
                call.gemm = gemm

    @property
    def activation_bytes(self) -> int:
        """Memory of the arenas [bytes]."""
        return sum(csx.arena.nbytes for csx in self.csx)

    @cached_property
    def legs(self) -> tuple[Leg, ...]:
        """The way of a batch.

        Without a barrier each wave goes forward and back. With one, all waves go forward first; the last is still there
        when they have met, and goes back at once; each of the others goes forward again before it goes back.
        """
        waves = range(self.waves)
        if not self.plan.gathered:
            kinds = ("forward", "backward") if self.trains else ("forward",)
            return tuple(Leg(kind, wave) for wave in waves for kind in kinds)
        legs = [*(Leg("forward", wave) for wave in waves), Leg("meet")]
        for wave in reversed(waves) if self.trains else ():
            legs += [Leg("again", wave)] * (wave < self.waves - 1) + [Leg("backward", wave)]
        return tuple(legs)

    @cached_property
    def stream(self) -> tuple[Panel, ...]:
        """The panels that MemoryX sends out for one batch, in order."""
        timeline = self.plan.timeline
        forward = self.plan.stream(timeline.visits[: timeline.ops])
        of_leg = {"forward": forward, "again": forward, "meet": (), "backward": self.plan.stream(timeline.way_back)}
        return tuple(panel for leg in self.legs for panel in of_leg[leg.kind])

    @property
    def op_seconds(self) -> dict[str, dict[str, float]]:
        """Time of all lanes in each op so far, by pass: forward, again (where it runs forward twice), backward [s]."""
        again = self.plan.timeline.again
        self._take_seconds()
        return {
            planned.op.name: {
                phase: float(sum(lane.seconds[phase][position] for lane in self.lanes))
                for phase in PHASES
                if phase != "again" or position in again
            }
            for position, planned in enumerate(self.plan.ops)
        }

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Time in ops so far, by pass, of a lane on average [s]."""
        self._take_seconds()
        return {phase: fmean(lane.seconds[phase].sum() for lane in self.lanes) for phase in PHASES}

    @property
    def native_seconds(self) -> list[float]:
        """Time of each lane in tables since they were made, without the interpreter [s]."""
        return [0.0] * len(self.lanes) if self._made is None else self._made.native_seconds

    def _take_seconds(self) -> None:
        if self._made is not None:
            self._made.take_seconds()

    @property
    def scratch_bytes(self) -> int:
        """Memory of the lanes' work space [bytes]."""
        return sum(lane.scratch.allocated_bytes for lane in self.lanes)

    def expect_stream(self) -> None:
        """Announce the panels of a batch."""
        apart = self._apart if len(self._walkers) > 1 else 0
        self.swarmx.expect(self.stream, apart, len(self.lanes))

    def load(self, batch: Batch, wave: int, step: int, scales: Sequence[float]) -> None:
        """Hand each slot its grain of a wave, if there is one for it.

        Args:
            batch: its arrays have the samples of the grains of this rank
            scales: factor on each term of a loss, loss by loss
        """
        # Beyond a barrier there are the losses, too.
        scales = () if self.plan.gathered else scales
        for csx, share in zip(self.csx, self.layout.wave(wave, self.rank), strict=True):
            if share:
                csx.load(batch.arrays, self._places[share[0]] * self.plan.samples, len(share))
            for slot, grain in zip_longest(csx.slots, share):
                slot.grain = None
                if grain is not None:
                    slot.take(grain, step, scales, dropout=self.trains)
        self._choose_executor(step)

    def _could_have_tables(self) -> bool:
        """Whether grains, weights and gradients have the same places in every step."""
        gradient_bytes = sum(4 * weight.size for weight in self._memoryx.arrays.graph.trained_weights.values())
        is_small = not self.trains or gradient_bytes <= GRADIENT_BYTES
        return self.waves == 1 and not self.plan.gathered and is_small and self._memoryx.arrays.store.in_place

    def _choose_executor(self, step: int) -> None:
        """Have the wave walk by tables, if it can and nobody watches the interpreter's walk."""
        watched = self._memoryx.statistics.looks or any(lane.tape.recorder.is_on for lane in self.lanes)
        self._tables = None
        if self.executor == TABLE and self._can_have_tables and self.sharing == 1 and not watched:
            try:
                self._tables = self._made = self._made or self._make_tables()
            except NotRecordableError:
                self._can_have_tables = False
        if self._tables is None:
            self._memoryx.update_beside(None)
        else:
            self._tables.begin(step)

    def _make_tables(self) -> Tables:
        return Tables(self.lanes, self.grains, self._memoryx, self._on_all_lanes)

    @property
    def is_by_table(self) -> bool:
        """Whether the wave goes by tables."""
        return self._tables is not None

    @property
    def gradient_bytes(self) -> int:
        """Memory of the gradients of tables [bytes]."""
        return 0 if self._made is None else self._made.allocated_bytes

    @property
    def filled_slots(self) -> list[GrainSlot]:
        """The slots that hold a grain."""
        return [slot for slot in self.slots if slot.grain is not None]

    def forward(self) -> dict[int, tuple[LossResult, ...]]:
        """Run a wave forward: losses by the number of the grain, each of which may be NaN or infinite."""
        if self._tables is None:
            self._on_all_lanes(Lane.forward)
        else:
            self._tables.forward()
        return {slot.grain: slot.losses for slot in self.filled_slots if slot.grain is not None}

    def gathered(self) -> Gathered:
        """The tensors for the barrier, of the grains of a wave that went forward."""
        slots, names = self.filled_slots, self.plan.gathered
        arrays = [np.concatenate([s.arrays[name].reshape(1, -1) for s in slots]) for name in names] if slots else ()
        return Gathered([slot.grain for slot in slots if slot.grain is not None], arrays)

    def take_deltas(self, gathered: Gathered) -> None:
        """Take the deltas of gathered tensors, of the grains that the slots hold, among others."""
        buffers = [buffer for buffer in self.plan.gathered.values() if buffer is not None]
        slots = {slot.grain: slot for slot in self.filled_slots}
        for place, grain in enumerate(gathered.grains):
            if grain in slots:
                for buffer, rows in zip(buffers, gathered.arrays, strict=True):
                    array = slots[grain].arrays[buffer]
                    array[...] = rows[place].reshape(array.shape)

    def first_bad_tensor(self) -> BadTensor:
        """Run the wave forward once more, to find out where its losses stopped being finite."""
        self.swarmx.expect(self.stream, self._apart, 1)
        feeders = self._walkers[len(self.lanes) :]
        feeding = [self._threads.submit(feeder.forward, Pace(1, self._apart)) for feeder in feeders]
        found = first_bad_tensor(self.plan, self.filled_slots, self.swarmx)
        for future in feeding:
            future.result()
        return found

    def backward(self) -> None:
        """Run the wave backward; gradients go to SwarmX, or stay with the tables."""
        if self._tables is None:
            self._on_all_lanes(Lane.backward)
        else:
            self._tables.backward()

    def record(self, recorder: Recorder) -> None:
        """Have all lanes record from now on, or stop."""
        for lane in self.lanes:
            systems = sorted({slot.system for slot in lane.slots})
            lane.tape = recorder.lane(lane.index, systems)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()
        self._end_tables()
        self._end_sharing()

    def _end_tables(self) -> None:
        if self._made is not None:
            self._made.close()

    def _end_sharing(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _on_all_lanes(self, walk: Callable[[Lane, Pace], None]) -> None:
        feeds = len(self._walkers) > len(self.lanes)
        # About `apart` panels of the feeder's lead are of this node.
        pace = Pace(len(self.lanes), self._apart, self._nodes * self._apart if feeds else None)

        def guarded(lane: Lane) -> BaseException | None:
            lane.tape.begin()
            try:
                # An overflow is for `run` to find in the loss, not for NumPy to warn about.
                with np.errstate(over="ignore", invalid="ignore"):
                    walk(lane, pace)
                pace.leave(lane.index)
            except BaseException as error:
                pace.stop()
                return error
            return None

        futures = [self._threads.submit(guarded, lane) for lane in self._walkers[1:]]
        try:
            errors: Sequence[BaseException | None] = [guarded(self.lanes[0]), *(future.result() for future in futures)]
        except BaseException:
            pace.stop()
            raise
        for error in errors:
            if error is not None and not isinstance(error, LaneStopped):
                raise error


def first_bad_tensor(plan: Plan, slots: Sequence[GrainSlot], swarmx: SwarmX) -> BadTensor:
    """Find the first weight or activation, in the order of the forward pass, that is not finite everywhere.

    All panels are acquired, as in every forward pass.
    """
    bad: list[BadTensor] = []
    for position, planned in enumerate(plan.ops):
        with ExitStack() as stack:
            vectors = [stack.enter_context(held(swarmx, panel)) for panel in planned.vector_panels]
            for panel, is_first, is_last in stages(planned.matrix_panels):
                matrix = [] if panel is None else [stack.enter_context(held(swarmx, panel))]
                for name, weights in zip(planned.op.weights, [*matrix, *vectors], strict=True):
                    array = weights.values if isinstance(weights, SparseMatrix) else weights
                    if not bad and first_non_finite(array.reshape(-1)) >= 0:
                        bad.append(BadTensor(position, 0, f"weight {name}"))
                for slot in slots if not bad else ():
                    slot.calls[position].hold(matrix + vectors, panel, is_first, is_last)
                    planned.kernel.forward(slot.calls[position])
        for slot in slots if not bad else ():
            for name, array in zip(planned.op.inputs, slot.calls[position].inputs, strict=True):
                if array.dtype != np.int32 and first_non_finite(array.reshape(-1)) >= 0:
                    bad.append(BadTensor(position, 1, f"input {name}"))
            for name, array in zip(planned.op.outputs, slot.calls[position].outputs, strict=True):
                if first_non_finite(array.reshape(-1)) >= 0:
                    bad.append(BadTensor(position, 2, f"activation {name}, the output of {planned.op.name}"))
    return bad[0] if bad else BadTensor(len(plan.ops), 0, "the sum of the losses")
