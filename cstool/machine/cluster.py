"""The systems as they are laid out for one kind of batch: slots, lanes, waves; forward and backward."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from itertools import zip_longest
from statistics import fmean

import numpy as np

from cstool.batch_split import even_parts
from cstool.errors import ClusterError, NonFiniteError
from cstool.ir import Graph, Panel
from cstool.kernels.call import LossResult
from cstool.kernels.gemm import Gemm
from cstool.kernels.magnitudes import first_non_finite
from cstool.kernels.sparse import SparseMatrix
from cstool.machine.csx import Csx, GrainSlot
from cstool.machine.grains import deal_grains
from cstool.machine.inputs import Batch
from cstool.machine.lanes import PHASES, STAGES_APART, Lane, LaneStopped, Pace, stages
from cstool.machine.memoryx.memoryx import MemoryX
from cstool.machine.plan import Plan, make_plan
from cstool.machine.recorder import Recorder
from cstool.machine.swarmx import InProcess


class Cluster:
    """`num_csx` systems that work together on batches of one size.

    The grains of a batch are dealt to the systems in order, some of which may get none; in waves, when the arenas do
    not hold them all at once.

    Args:
        grain: samples of a grain
        grains: grains of a global batch
        memory_bytes: what the arenas of all systems may take together
        recompute: see `Appliance`
        apart: how many panels the fastest lane may be ahead of the slowest

    Raises:
        ClusterError: the activations of one grain do not fit
    """

    def __init__(
        self,
        graph: Graph,
        *,
        grain: int,
        grains: int,
        num_csx: int,
        lanes: int,
        memoryx: MemoryX,
        seed: int,
        trains: bool,
        memory_bytes: int,
        recompute: str = "auto",
        apart: int = STAGES_APART,
    ) -> None:
        self.plan: Plan = make_plan(graph, grain, trains=trains)
        self.whole_slot_bytes = self.plan.slot_bytes
        """what a slot takes, or would take, with the activations of all layers [bytes]"""
        if trains and (recompute == "always" or recompute == "auto" and self.plan.slot_bytes * grains > memory_bytes):
            self.plan = make_plan(graph, grain, trains=True, recomputes=True)
        self.grains = grains
        self.trains = trains
        room = memory_bytes // self.plan.slot_bytes
        if room < 1:
            raise ClusterError(
                f"the activations of one grain ({grain} x {self.plan.sequence} tokens) need "
                f"{self.plan.slot_bytes:,} bytes of memory, {memory_bytes:,} are free for them",
                f"{'activation_checkpointing: auto or ' if trains and recompute == 'never' else ''}"
                "a smaller max_sequence_length needs less",
            )
        self.deal = deal_grains(grains, num_csx, room)
        self.waves = self.deal.waves
        self.csx = [Csx(i, self.plan, slots, seed) for i, slots in enumerate(self.deal.slots)]
        self.slots = [slot for csx in self.csx for slot in csx.slots]
        self.swarmx = InProcess(grains, memoryx)
        lanes = min(lanes, len(self.slots))
        self.lanes = [Lane(i, self.plan, share, self.swarmx) for i, share in enumerate(even_parts(self.slots, lanes))]
        self._memoryx = memoryx
        self._apart = apart
        self._threads = ThreadPoolExecutor(max(1, lanes - 1), thread_name_prefix="lane")

    def multiply_with(self, gemm: Gemm) -> None:
        """Have all products computed by a provider."""
        for slot in self.slots:
            for call in slot.calls:
                call.gemm = gemm

    @property
    def activation_bytes(self) -> int:
        """Memory of the arenas [bytes]."""
        return sum(csx.arena.nbytes for csx in self.csx)

    @property
    def streamed_bytes(self) -> int:
        """What MemoryX sends out for one batch, each panel once per wave and time that its op runs [bytes]."""
        return sum(map(self._memoryx.stream_bytes, self.stream))

    @property
    def dense_streamed_bytes(self) -> int:
        """The same if the zeros of sparse weights were sent, too [bytes]."""
        return sum(4 * panel.size for panel in self.stream)

    @cached_property
    def stream(self) -> tuple[Panel, ...]:
        """The panels that MemoryX sends out for one batch, in order."""
        once: list[Panel] = []
        for position, forward in self.plan.timeline.visits:
            planned = self.plan.ops[position]
            once += [*planned.vector_panels, *planned.matrix_panels[:: 1 if forward else -1]]
        return tuple(once) * self.waves

    @property
    def op_seconds(self) -> dict[str, dict[str, float]]:
        """Time of all lanes in each op so far, by pass: forward, again (where it runs forward twice), backward [s]."""
        again = self.plan.timeline.again
        return {
            planned.op.name: {
                phase: sum(lane.seconds[phase][position] for lane in self.lanes)
                for phase in PHASES
                if phase != "again" or position in again
            }
            for position, planned in enumerate(self.plan.ops)
        }

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Time in ops so far, by pass, of a lane on average [s]."""
        return {phase: fmean(sum(lane.seconds[phase]) for lane in self.lanes) for phase in PHASES}

    @property
    def scratch_bytes(self) -> int:
        """Memory of the lanes' work space [bytes]."""
        return sum(lane.scratch.allocated_bytes for lane in self.lanes)

    def expect_stream(self) -> None:
        """Announce the panels of a batch to MemoryX."""
        self._memoryx.expect(self.stream, self._apart if len(self.lanes) > 1 else 0)

    def load(self, batch: Batch, wave: int, step: int, scale: float) -> None:
        """Hand each slot its grain of a wave, if there is one for it.

        Args:
            batch: its arrays have as many samples as the grains together
            scale: what each token's loss is multiplied by
        """
        samples = self.plan.samples
        for csx, share in zip(self.csx, self.deal.shares(wave), strict=True):
            for slot, grain in zip_longest(csx.slots, share):
                if grain is None:
                    slot.grain = None
                    continue
                part = slice(grain * samples, (grain + 1) * samples)
                arrays = {name: array[part] for name, array in batch.arrays.items()}
                slot.load(grain, arrays, step, scale, dropout=self.trains)

    @property
    def filled_slots(self) -> list[GrainSlot]:
        """The slots that hold a grain."""
        return [slot for slot in self.slots if slot.grain is not None]

    def forward(self, step: int) -> dict[int, LossResult]:
        """Run a wave forward: losses by the number of the grain.

        Raises:
            NonFiniteError: a loss is NaN or infinite; nothing has been updated
        """
        self._on_all_lanes(Lane.forward)
        losses: dict[int, LossResult] = {}
        for slot in self.filled_slots:
            assert slot.grain is not None
            losses[slot.grain] = slot.loss
            if not math.isfinite(slot.loss.total):
                found = first_bad_tensor(self.plan, self.filled_slots, self._memoryx)
                raise NonFiniteError(
                    f"step {step}: the loss is not finite; the first tensor that is not: {found}",
                    "a lower learning rate, max_gradient_norm or a longer warm-up may help" if self.trains else None,
                )
        return losses

    def backward(self) -> None:
        """Run the wave backward; gradients go to SwarmX."""
        self._on_all_lanes(Lane.backward)

    def record(self, recorder: Recorder) -> None:
        """Have all lanes take down what they do from now on, or no longer."""
        for lane in self.lanes:
            systems = sorted({slot.system for slot in lane.slots})
            lane.tape = recorder.lane(lane.index, systems)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _on_all_lanes(self, walk: Callable[[Lane, Pace], None]) -> None:
        pace = Pace(len(self.lanes), self._apart)

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

        futures = [self._threads.submit(guarded, lane) for lane in self.lanes[1:]]
        try:
            errors: Sequence[BaseException | None] = [guarded(self.lanes[0]), *(future.result() for future in futures)]
        except BaseException:
            pace.stop()
            raise
        for error in errors:
            if error is not None and not isinstance(error, LaneStopped):
                raise error


def first_bad_tensor(plan: Plan, slots: Sequence[GrainSlot], memoryx: MemoryX) -> str:
    """Name the first weight or activation, in the order of the forward pass, that is not finite everywhere."""
    for position, planned in enumerate(plan.ops):
        with ExitStack() as stack:
            vectors = [stack.enter_context(memoryx.held(panel)) for panel in planned.vector_panels]
            for panel, is_first, is_last in stages(planned.matrix_panels):
                matrix = [] if panel is None else [stack.enter_context(memoryx.held(panel))]
                for name, weights in zip(planned.op.weights, [*matrix, *vectors], strict=True):
                    array = weights.values if isinstance(weights, SparseMatrix) else weights
                    if first_non_finite(array.reshape(-1)) >= 0:
                        return f"weight {name}"
                for slot in slots:
                    slot.calls[position].hold(matrix + vectors, panel, is_first, is_last)
                    planned.kernel.forward(slot.calls[position])
        for slot in slots:
            for name, array in zip(planned.op.inputs, slot.calls[position].inputs, strict=True):
                if array.dtype == np.float32 and first_non_finite(array.reshape(-1)) >= 0:
                    return f"input {name}"
            for name, array in zip(planned.op.outputs, slot.calls[position].outputs, strict=True):
                if first_non_finite(array.reshape(-1)) >= 0:
                    return f"activation {name}, the output of {planned.op.name}"
    return "the sum of the losses"
