"""The appliance: MemoryX, SwarmX and the systems as one machine that trains by weight streaming."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import MappingProxyType
from typing import NamedTuple

from cstool.errors import ClusterError
from cstool.ir import Graph, Weight, panels_of
from cstool.kernels.call import LossResult
from cstool.kernels.one_thread import one_blas_thread
from cstool.kernels.tables import table_bytes
from cstool.machine.buffers import BufferPool
from cstool.machine.grains import available_cores, check_systems, grain_samples, lanes_for
from cstool.machine.host_memory import available_memory_bytes
from cstool.machine.inputs import Batch
from cstool.machine.lanes import STAGES_APART
from cstool.machine.memoryx.memoryx import DENSE, MemoryX
from cstool.machine.memoryx.optimizer import Optimizer
from cstool.machine.memoryx.sparse_weights import SparsityRules
from cstool.machine.recorder import OFF, Recorder
from cstool.machine.systems import Systems
from cstool.sparsity import most_kept
from cstool.store import RamStore, Store

ACTIVATION_SHARE = 0.8
"""of the memory that weights, optimizer state and gradients leave, what activations may take; beyond it those of layers
are recomputed, and beyond that a batch goes in waves"""
EVALUATION_PART = 4
"""evaluation beside training takes at most one part in so many of that: its batches go in waves all the sooner"""


PANELS_IN_FLIGHT = 4
"""gradients that lanes and SwarmX have at a time, beside those that wait, in panels of the largest size"""


class TrainStep(NamedTuple):
    """What a training step comes to."""

    loss: float
    """the scaled loss, as it is logged [nats]"""
    gradient_norm: float | None
    """before clipping; None where no norm was asked for"""


class Appliance:
    """Trains and evaluates one model. Use as a context manager.

    Args:
        graph: the model
        optimizer: None for a run that only evaluates
        max_gradient_norm: None for no clipping by norm
        loss_scaling: what the loss is divided by: "num_tokens" or "batch_size"
        loss_weight: what it is multiplied by
        seed: weights and dropout come from it
        learning_rate_scales: what the learning rate is multiplied by, for weights where that is not 1
        sparsity: which weights are sparse
        num_csx: number of systems
        lanes: host threads; None to choose
        store: where MemoryX keeps its arrays; None for memory
        waiting_bytes: what gradients that wait for their update may take, where the store is a file; None for no limit
        memory_bytes: what activations may take; None for a share of what the rest leaves
        recompute: whether training recomputes the activations of layers: "always", "never", or "auto", where those of
            a batch do not fit otherwise

    Raises:
        ClusterError: weights, optimizer state and gradients do not fit the memory
    """

    def __init__(
        self,
        graph: Graph,
        *,
        optimizer: Optimizer | None,
        max_gradient_norm: float | None,
        loss_scaling: str,
        loss_weight: float,
        seed: int,
        learning_rate_scales: Mapping[str, float] = MappingProxyType({}),
        sparsity: SparsityRules = DENSE,
        num_csx: int = 1,
        lanes: int | None = None,
        store: Store | None = None,
        waiting_bytes: int | None = None,
        memory_bytes: int | None = None,
        recompute: str = "auto",
    ) -> None:
        if memory_bytes is None:
            memory_bytes = activation_budget_bytes(graph, optimizer, sparsity)
        self.graph = graph
        self.seed = seed
        self.num_csx = num_csx
        self.loss_scaling = loss_scaling
        self.loss_weight = loss_weight
        self._lanes = lanes
        self._memory_bytes = memory_bytes
        self._recompute = recompute
        self._waiting_bytes = waiting_bytes
        self.store = RamStore() if store is None else store
        self.buffers = BufferPool(None if waiting_bytes is None else waiting_bytes + in_flight_bytes(graph))
        self._workers = ThreadPoolExecutor(update_threads(lanes), thread_name_prefix="memoryx")
        self.memoryx = MemoryX(
            graph,
            self.store,
            optimizer,
            max_gradient_norm,
            learning_rate_scales,
            self.buffers,
            self._workers,
            sparsity,
            waiting_bytes,
        )
        self._systems: dict[tuple[int, bool], Systems] = {}
        self._one_thread = ExitStack()
        self._one_thread.enter_context(one_blas_thread())

    def __enter__(self) -> Appliance:
        return self

    def __exit__(self, *exc: object) -> None:
        for systems in self._systems.values():
            systems.close()
        self.memoryx.close()
        # What is left is of a step that will not be finished.
        self._workers.shutdown(cancel_futures=True)
        self._one_thread.close()
        self.store.close()

    @property
    def systems(self) -> list[Systems]:
        """The systems that have been prepared, one entry per batch size and purpose."""
        return list(self._systems.values())

    def prepare(self, batch_size: int, *, trains: bool, where: str, kinds: int = 1) -> Systems:
        """Lay out the systems for batches of a size.

        Args:
            batch_size: of the global batch
            trains: whether there is a backward pass
            where: the dataloader that an error names
            kinds: of batches that are evaluated, this one included: they share the memory for that

        Raises:
            ClusterError: the grains do not divide over the systems, or one does not fit the memory
        """
        found = self._systems.get((batch_size, trains))
        if found is None:
            grain = grain_samples(self.graph, batch_size)
            check_systems(self.num_csx, batch_size, grain, where)
            grains = batch_size // grain
            found = self._systems[batch_size, trains] = Systems(
                self.graph,
                grain=grain,
                grains=grains,
                num_csx=self.num_csx,
                lanes=self._lanes or lanes_for(self.graph, grain, grains),
                memoryx=self.memoryx,
                seed=self.seed,
                trains=trains,
                memory_bytes=self._room_bytes(trains, kinds),
                recompute=self._recompute,
                apart=STAGES_APART if self._waiting_bytes is None else 1,
            )
        return found

    def _room_bytes(self, trains: bool, kinds: int) -> int:
        """Return what the activations of one more kind of batch may take [bytes]."""
        if not trains:
            return self._memory_bytes // (kinds if self.memoryx.optimizer is None else EVALUATION_PART * kinds)
        return self._memory_bytes - sum(other.activation_bytes for other in self._systems.values())

    def train_step(self, batch: Batch, step: int, learning_rate: float) -> TrainStep:
        """Run one step: stream forward, stream backward, reduce, update.

        Args:
            batch: a global batch of a size that has been prepared
            step: from 1
            learning_rate: of this step

        Raises:
            NonFiniteError: naming the step and the first tensor that is not finite
        """
        divisor = batch.tokens if self.loss_scaling == "num_tokens" else batch.samples
        scale = self.loss_weight / max(1, divisor)
        self.memoryx.begin_step(step, learning_rate)
        loss = self._systems[len(batch.arrays["mask"]), True].run(batch, step=step, scale=scale)
        return TrainStep(loss.total * scale, self.memoryx.finish_step())

    def evaluate(self, batch: Batch, step: int, sample: int | None = None) -> LossResult:
        """Run one batch forward, without dropout.

        Args:
            batch: of a size that has been prepared
            step: after which it is
            sample: which of the masks of DropConnect; None for all weights
        """
        self.memoryx.begin_evaluation(step, sample)
        return self._systems[len(batch.arrays["mask"]), False].run(batch, step=step, scale=1.0)

    def record(self, recorder: Recorder) -> None:
        """Have what happens in training taken down from now on, or no longer: then what is under way still is."""
        if recorder is not OFF:
            self.memoryx.record(recorder)
        for systems in self._systems.values():
            if systems.trains:
                systems.record(recorder)

    def memory_account(self) -> Mapping[str, int]:
        """Say what memory is for what [bytes]."""
        weights = 4 * sum(map(self.memoryx.arrays.room, self.graph.weights))
        states = len(self.memoryx.optimizer.states) if self.memoryx.optimizer else 0
        patterns = sum(sparse.pattern_bytes for sparse in self.memoryx.arrays.sparse.values())
        in_memory = {"weights": weights, "optimizer_state": states * weights}
        if (file := self.memoryx.arrays.file) is not None:
            in_memory = {"memoryx_buffers": file.allocated_bytes}
        return {
            **in_memory,
            **({"sparse_patterns": patterns} if self.memoryx.arrays.sparse else {}),
            "gradients": self.buffers.allocated_bytes,
            "activations": sum(s.activation_bytes for s in self._systems.values()),
            "scratch": sum(s.scratch_bytes for s in self._systems.values()),
            "tables": table_bytes(),
        }


def update_threads(lanes: int | None) -> int:
    """Return how many threads apply updates beside so many lanes: at least two, one computes while one waits."""
    return max(2, lanes or available_cores())


def in_flight_bytes(graph: Graph) -> int:
    """Return what gradients that lanes and SwarmX have at a time may take, about [bytes]."""
    return PANELS_IN_FLIGHT * max(4 * panel.size for weight in graph.weights.values() for panel in panels_of(weight))


def activation_budget_bytes(graph: Graph, optimizer: Optimizer | None, sparsity: SparsityRules = DENSE) -> int:
    """Return what activations may take once everything else has its memory [bytes].

    Raises:
        ClusterError: everything else does not fit
    """
    free_bytes = available_memory_bytes()
    need_bytes = state_bytes(graph, optimizer, sparsity)
    if optimizer is not None:
        # All gradients, where a global norm makes them wait, those of RigL with the zeros, too; a quarter in flight.
        rigl = [name for name, group in sparsity.groups.items() if group.algorithm == "rigl"]
        gradients_bytes = state_bytes(graph, None, sparsity) + sum(4 * graph.weights[name].size for name in rigl)
        need_bytes += gradients_bytes + gradients_bytes // 4
    if need_bytes > free_bytes:
        what = "its weights" if optimizer is None else "its weights, optimizer state and gradients"
        raise ClusterError(
            f"the model: {what} must fit the memory ({free_bytes:,} bytes are free), got {need_bytes:,} bytes",
            "--memoryx file keeps them on disk; a narrower model, a smaller vocabulary or fewer layers need less",
        )
    return int((free_bytes - need_bytes) * ACTIVATION_SHARE)


def state_bytes(graph: Graph, optimizer: Optimizer | None, sparsity: SparsityRules = DENSE) -> int:
    """Return what weights and optimizer state take [bytes]."""
    weights_bytes = sum(_kept_bytes(weight, sparsity) for weight in graph.weights.values())
    return weights_bytes * (1 + (len(optimizer.states) if optimizer else 0))


def _kept_bytes(weight: Weight, sparsity: SparsityRules) -> int:
    """Return what the numbers of a weight take, once: its non-zeros at the most [bytes]."""
    group = sparsity.groups.get(weight.name)
    if group is None:
        return 4 * weight.size
    return 4 * most_kept(group, weight.matrix_shape, sparsity.last_step)
