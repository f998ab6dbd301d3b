"""The appliance: MemoryX, SwarmX and the systems as one machine that trains by weight streaming.

A training step, from top to bottom: `Appliance.train_step`; the systems (`cluster.py`) and their lanes (`lanes.py`),
which run ops on grains (`csx.py`) as a plan says (`plan.py`); SwarmX (`swarmx.py`); and MemoryX (`memoryx/`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from cstool.foundation.errors import NonFiniteError
from cstool.training.data import Dataset, Sampler
from cstool.training.kernels.call import LossResult, sum_losses
from cstool.training.kernels.gemm import Gemm
from cstool.training.kernels.gemm_providers import choose_gemm
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.tables import table_bytes
from cstool.training.machine.budgets import activation_budget_bytes
from cstool.training.machine.cluster import INTERPRETER, TABLE, Cluster
from cstool.training.machine.device import Device, on_device
from cstool.training.machine.grains import grain_samples
from cstool.training.machine.inputs import Batch, InputWorker
from cstool.training.machine.lanes import STAGES_APART
from cstool.training.machine.layout import lay_out
from cstool.training.machine.loss_scale import LossScale
from cstool.training.machine.meeting import Gathered, Meeting
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.memoryx_store import Backing
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.ranks.orders import Go, Next, Prepare, Record, SetGemm, spread_memoryx
from cstool.training.machine.recorder import OFF, Recorder

EVALUATION_PART = 4
"""evaluation beside training takes at most this part of the memory (1 / it): its batches go in waves all the sooner"""


class TrainStep(NamedTuple):
    """A training step in two numbers."""

    loss: float
    """the scaled loss, as it is logged [nats]"""
    gradient_norm: float | None
    """before clipping; None: not computed"""

    @property
    def is_skipped(self) -> bool:
        """Whether it updated nothing, since a gradient was not finite."""
        return self.gradient_norm is not None and not math.isfinite(self.gradient_norm)


class Appliance:
    """Trains and evaluates one model. Use as a context manager.

    Args:
        lanes: host threads; None to choose
        memory_bytes: limit of activations; None for a share of the remaining memory
        recompute: whether training recomputes the activations of layers: "always", "never", or "auto", if the
            activations of a batch do not fit otherwise
        link: to other ranks, which wait for orders
        backing: place of MemoryX; None for the main memory of this process
        executor: one of `EXECUTORS`, see `cluster.py`
        device: computes in place of the kernels of this host

    Raises:
        ClusterError: weights, optimizer state and gradients do not fit the memory
    """

    def __init__(
        self,
        kept: KeptModel,
        *,
        seed: int,
        num_csx: int = 1,
        lanes: int | None = None,
        memory_bytes: int | None = None,
        recompute: str = "auto",
        link: Link = ALONE,
        backing: Backing | None = None,
        executor: str = TABLE,
        device: Device | None = None,
    ) -> None:
        self.kept, self.graph, self.precision = kept, kept.graph, kept.precision
        self.seed = seed
        self.num_csx = num_csx
        self.loss_scale = LossScale(kept.loss_scaling)
        """of the step that comes next"""
        self._lanes = lanes
        self._device = device
        self._recompute, self._executor = recompute, executor if device is None else INTERPRETER
        backing = backing or Backing(deal_panels(kept, 1))
        if memory_bytes is None:
            shards = backing.shards
            sizes = enumerate(shards.shard_bytes)
            here_bytes = sum(size for node, size in sizes if link.hosts[node] == link.hosts[0])
            share = here_bytes / max(1, sum(shards.shard_bytes))
            memory_bytes = activation_budget_bytes(kept, share)
        self._apart = STAGES_APART if backing.waiting_bytes is None else 1
        self.link = link
        self.others = spread_memoryx(kept, backing, link=link, lanes=lanes, seed=seed, apart=self._apart)
        self.memoryx = self.others.memoryx
        self._memory_bytes = [memory_bytes // link.host_ranks, *self.others.memory_bytes]
        """for activations, by rank [bytes]"""
        self.gemm = choose_gemm(kept.precision)
        """provider of products"""
        self._clusters: dict[tuple[int, bool], Cluster] = {}
        self._meetings: dict[tuple[int, bool], Meeting] = {}
        """meetings of the samples of a batch, with the keys of `_clusters`; none for a graph without a barrier"""
        self._one_thread = ExitStack()
        self._one_thread.enter_context(one_blas_thread())

    def __enter__(self) -> Appliance:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._one_thread:
            for cluster in self._clusters.values():
                cluster.close()
            self.others.close()

    def train_step(self, batch: Batch, step: int, learning_rate: float) -> TrainStep:
        """Run one step: stream forward, stream backward, reduce, update.

        Args:
            batch: a global batch of a size that has been prepared
            step: from 1

        Raises:
            NonFiniteError: naming the step and the first tensor that is not finite; not for a gradient where the scale
                of the loss may still be made smaller: then the step is skipped
        """
        cluster = self._clusters[batch.size, True]
        scales = [loss.scale(batch.tokens, batch.samples) for loss in self.graph.losses]
        loss_scale, skipped = self.loss_scale.value, self.loss_scale.skipped
        self.memoryx.begin_step(step, learning_rate, loss_scale, skipped)
        go = Go(
            batch.stream,
            step,
            tuple(scale * loss_scale for scale in scales),
            learning_rate,
            loss_scale=loss_scale,
            skipped=skipped,
            wants_to_see=self.memoryx.wants_to_see,
            with_norms=self.memoryx.statistics.with_norms,
        )
        self._begin_batch(cluster, go)
        losses = self._run(cluster, batch, go)
        # Where gradients have waited, updates begin here; the next step waits for them panel by panel.
        loss = sum(found.total * scale for found, scale in zip(sum_losses(losses.values()), scales, strict=True))
        trained = TrainStep(loss, self.memoryx.finish_step())
        self.loss_scale.finish_step(is_skipped=trained.is_skipped)
        return trained

    def evaluate(self, batch: Batch, step: int, sample: int | None = None) -> tuple[LossResult, ...]:
        """Run one batch forward, without dropout, and return its losses.

        Args:
            step: after which it is
            sample: number of the DropConnect mask; None for all weights
        """
        cluster = self._clusters[batch.size, False]
        self.memoryx.begin_evaluation(step, sample)
        scales = (1.0,) * len(self.graph.losses)
        go = Go(batch.stream, step, scales, None, sample=sample)
        self._begin_batch(cluster, go)
        return sum_losses(self._run(cluster, batch, go).values())

    def _run(self, cluster: Cluster, batch: Batch, go: Go) -> dict[int, tuple[LossResult, ...]]:
        """Run a batch through all its steps: losses by the number of the grain, or the losses of the batch."""
        losses: dict[int, tuple[LossResult, ...]] = {}
        meeting = self._meetings.get((batch.size, go.trains))
        for kind, wave in cluster.legs:
            if kind == "meet":
                assert meeting is not None
                losses = self._meet(cluster, meeting, go)
                continue
            if kind != "backward":
                cluster.load(batch, wave, go.step, go.scales)
                # Panels stream from MemoryX through SwarmX to all lanes.
                found = self._forward(cluster, go.step, wave, meeting if kind == "forward" else None)
                # Before a barrier there is no loss yet.
                losses |= {} if meeting is not None else found
                continue
            if meeting is not None:
                cluster.take_deltas(meeting.deltas(cluster.layout.wave_grains(wave, 0)))
            # They stream again in reverse. SwarmX sums gradients, and MemoryX updates a panel once its own is complete.
            cluster.backward()
            self.others.finish_backward(len(cluster.lanes))
        return losses

    def _meet(self, cluster: Cluster, meeting: Meeting, go: Go) -> dict[int, tuple[LossResult, ...]]:
        """Run the ops beyond the barrier, here alone; each rank gets the deltas of its own samples."""
        losses = {0: meeting.run(go.scales)}
        if go.trains:
            for rank in range(1, self.link.ranks):
                self.link.send(rank, "deltas", tuple(meeting.deltas(cluster.layout.grains(rank))))
        self._judge(cluster, go.step, is_finite=all(math.isfinite(loss.total) for loss in losses[0]))
        return losses

    def _begin_batch(self, cluster: Cluster, go: Go) -> None:
        cluster.expect_stream()
        self.others.begin(cluster.swarmx, go)

    def _forward(
        self, cluster: Cluster, step: int, wave: int, meeting: Meeting | None
    ) -> dict[int, tuple[LossResult, ...]]:
        """Run a wave forward at all ranks: losses by the number of the grain.

        Args:
            meeting: gathers the tensors that its grains made; None: no gathering

        Raises:
            NonFiniteError: a loss or a gathered tensor is NaN or infinite; nothing has been updated
        """
        losses = cluster.forward()
        if meeting is not None:
            meeting.take(cluster.gathered())
            for found in self.others.answers("gathered"):
                meeting.take(Gathered(*found))
        losses |= self.others.losses()
        is_finite = all(math.isfinite(loss.total) for found in losses.values() for loss in found)
        if meeting is not None:
            is_finite &= all(
                meeting.is_finite(cluster.layout.wave_grains(wave, rank)) for rank in range(self.link.ranks)
            )
        self._judge(cluster, step, is_finite=is_finite)
        return losses

    def _judge(self, cluster: Cluster, step: int, *, is_finite: bool) -> None:
        """Have all ranks go on, or raise NonFiniteError."""
        if is_finite:
            self.others.say(Next.ON)
            return
        self.others.say(Next.DIAGNOSE)
        found = [cluster.first_bad_tensor(), *self.others.answers("bad tensor")]
        raise NonFiniteError(
            f"step {step}: the loss is not finite; the first tensor that is not: {min(found)}",
            "a lower learning rate, max_gradient_norm or a longer warm-up may help" if cluster.trains else None,
        )

    @property
    def clusters(self) -> list[Cluster]:
        """The systems as they have been prepared, once per batch size and purpose."""
        return list(self._clusters.values())

    @property
    def training_cluster(self) -> Cluster:
        """The systems as they have been prepared to train."""
        (cluster,) = (cluster for cluster in self._clusters.values() if cluster.trains)
        return cluster

    def prepare(self, batch_size: int, *, trains: bool, kinds: int = 1) -> Cluster:
        """Lay out the systems for batches of a size.

        Args:
            kinds: number of batch sizes of evaluations, this one included, which share the memory

        Raises:
            ClusterError: the activations of one grain do not fit the memory
        """
        if (batch_size, trains) in self._clusters:
            return self._clusters[batch_size, trains]
        if self._device is None:
            grain = grain_samples(self.graph, batch_size)
        else:
            grain = self._device.samples or batch_size
        layout = lay_out(
            self.graph,
            grain=grain,
            grains=batch_size // grain,
            num_csx=self.num_csx,
            trains=trains,
            memory_bytes=[self._room_bytes(rank, trains, kinds) for rank in range(len(self._memory_bytes))],
            recompute=self._recompute,
            narrow=self.kept.narrow,
        )
        if self._device is not None:
            layout = on_device(layout, self.graph, self._device)
        found = self._clusters[batch_size, trains] = Cluster(
            layout, self.others.exchange, lanes=self._lanes, seed=self.seed, apart=self._apart, executor=self._executor
        )
        if (barrier := self.graph.barrier) is not None:
            grains = layout.deal.grains
            self._meetings[batch_size, trains] = Meeting(barrier, batch_size, grains, trains=trains, seed=self.seed)
        self.others.order(Prepare(batch_size, layout))
        found.multiply_with(self.gemm)
        return found

    def _room_bytes(self, rank: int, trains: bool, kinds: int) -> int:
        """Memory for the activations of batches of another size at a rank [bytes]."""
        if trains:
            taken_bytes = sum(cluster.layout.activation_bytes(rank) for cluster in self._clusters.values())
            return self._memory_bytes[rank] - taken_bytes
        return self._memory_bytes[rank] // (kinds if self.memoryx.optimizer is None else EVALUATION_PART * kinds)

    def streamed_bytes(self, cluster: Cluster) -> int:
        """Traffic out of MemoryX for one batch, each panel once per wave and time that its op runs [bytes]."""
        return sum(map(self.memoryx.stream_bytes, cluster.stream))

    def dense_streamed_bytes(self, cluster: Cluster) -> int:
        """Traffic out of MemoryX for one batch if sparse weights streamed with their zeros [bytes]."""
        narrow = self.kept.narrow.weights
        return sum((2 if panel.weight in narrow else 4) * panel.size for panel in cluster.stream)

    def multiply_with(self, gemm: Gemm) -> None:
        """Have all products computed by a provider, in prepared systems and in later ones."""
        self.gemm = gemm
        for cluster in self._clusters.values():
            cluster.multiply_with(gemm)
        self.others.order(SetGemm(self.precision, gemm.name))

    @contextmanager
    def reading(
        self,
        where: str,
        samples: Dataset,
        sampler: Sampler,
        first: int,
        count: int | None,
        *,
        trains: bool,
        recorder: Recorder = OFF,
    ) -> Iterator[InputWorker]:
        """Read batches of a size that has been prepared, ahead of need, at each rank the samples of its own grains.

        Args:
            where: the dataloader, as `DataSet` has it
            trains: whether they are for training
            first, count, recorder: see `InputWorker`
        """
        cluster = self._clusters[sampler.batch_size, trains]
        with (
            self.others.reading(where, cluster, sampler, first, count) as (share, others),
            InputWorker(samples, sampler, first, count, recorder, share) as worker,
            others,
        ):
            yield worker

    def record(self, recorder: Recorder) -> None:
        """Record training from now on, or stop recording: work under way is still recorded."""
        if recorder is not OFF:
            self.memoryx.record(recorder)
            self.others.order(Record(recorder.first, recorder.last))
        self.training_cluster.record(recorder)

    def memory_account(self) -> Mapping[str, int]:
        """Memory by purpose [bytes]."""
        of_memoryx = self.memoryx.memory_account()
        in_tables = sum(cluster.gradient_bytes for cluster in self._clusters.values())
        return {
            **of_memoryx,
            "gradients": of_memoryx["gradients"] + in_tables,
            "activations": sum(cluster.activation_bytes for cluster in self._clusters.values())
            + sum(meeting.memory.nbytes for meeting in self._meetings.values()),
            "scratch": sum(cluster.scratch_bytes for cluster in self._clusters.values()),
            "tables": table_bytes(),
        }
