"""A rank other than rank 0: it follows orders, on the systems that are its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, NoReturn

from cstool.foundation.errors import NonFiniteError
from cstool.foundation.host_memory import available_memory_bytes
from cstool.foundation.progress import Silent
from cstool.training.data import Dataset
from cstool.training.kernels.gemm_providers import choose_gemm
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.machine.budgets import ACTIVATION_SHARE, update_threads
from cstool.training.machine.buffers import in_flight_bytes
from cstool.training.machine.cluster import Cluster
from cstool.training.machine.committed import LookForShards, TellRows, rows_of, shards_in
from cstool.training.machine.inputs import InputWorker, Share
from cstool.training.machine.meeting import Gathered
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.prepare import prepare_kernels
from cstool.training.machine.ranks.exchange import Exchange
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.node import Node, sparse_sizes
from cstool.training.machine.ranks.nodes import AnotherNode, Drain, ExpectCommit
from cstool.training.machine.ranks.orders import (
    Begin,
    BeginPasses,
    CompileKernels,
    Go,
    HandOver,
    Identify,
    Next,
    NextPass,
    Prepare,
    Read,
    Record,
    SetGemm,
    SettleKernels,
    StopReading,
    TellTime,
)
from cstool.training.machine.ranks.sending import WINDOW_BYTES
from cstool.training.machine.recorder import OFF, Recorder
from cstool.training.machine.sparsity import KernelChooser
from cstool.training.machine.state import environment


class Opened(NamedTuple):
    """The data sets of a trainer."""

    samples: Mapping[str, Dataset]
    """by the dataloader that names them"""
    identity: Mapping[str, str]
    """see `Identify`"""


class Worker:
    """Follows the orders of rank 0. Use as a context manager.

    Args:
        open_trainer: opens the data sets of a trainer, by its number; the stack closes them
        lanes: host threads; None to choose
    """

    def __init__(self, link: Link, open_trainer: Callable[[int, ExitStack], Opened], lanes: int | None) -> None:
        self._link, self._open_trainer, self._lanes = link, open_trainer, lanes
        self._opened = ExitStack()
        self._begun = ExitStack()
        """closes the objects of a model"""
        self._gemm = choose_gemm()
        self._clusters: dict[tuple[int, bool], Cluster] = {}
        self._inputs: dict[int, InputWorker] = {}
        self._recorder = OFF
        self._stack = ExitStack()
        self._stack.enter_context(one_blas_thread())

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        # Rank 0 may be gone: nothing is said to it any more.
        with self._stack, self._opened, self._begun:
            for worker in self._inputs.values():
                worker.__exit__()

    def serve(self) -> NoReturn:
        """Follow orders until the run is over.

        Raises:
            ToldElsewhere: the run is over
            ClusterError: the link is broken
        """
        follow: dict[type, Callable[[Any], None]] = {
            Identify: self._identify,
            Begin: self._begin,
            # Ranks of a host do this at once: a second process of each would only be in their way.
            CompileKernels: lambda order: prepare_kernels(Silent(), order.needs, alone=True),
            Prepare: self._prepare,
            SetGemm: self._multiply_with,
            SettleKernels: self._settle_kernels,
            Read: self._read,
            StopReading: self._stop_reading,
            Go: self._go,
            BeginPasses: self._begin_passes,
            NextPass: self._next_pass,
            Record: self._record,
            TellTime: lambda _: self._answer("time", time.perf_counter()),
            HandOver: lambda _: self._answer("tapes", [(t.thread, t.spans) for t in self._recorder.tapes if t.spans]),
            LookForShards: lambda order: self._answer("shards", shards_in(order.folder)),
            TellRows: lambda order: self._answer("rows", rows_of(order.path)),
            ExpectCommit: lambda _: self._memoryx.expect_commit(),
            Drain: self._drain,
        }
        while True:
            order = self._link.receive(0, "order")
            follow[type(order)](order)

    def _answer(self, kind: str, body: Any) -> None:
        self._link.send(0, kind, body)

    def _identify(self, order: Identify) -> None:
        self._opened.close()
        self._data, identity = self._open_trainer(order.trainer, self._opened)
        self._answer("identity", (dict(identity), environment()))

    def _begin(self, begin: Begin) -> None:
        self._begun.close()
        self._clusters.clear()
        self._model, link = begin, self._link
        shards, file = begin.backing.shards, begin.backing.file
        with ExitStack() as stack:
            store = None
            if file is not None and link.rank < shards.nodes:
                store = file.open(link.rank, shards)
                stack.callback(store.close)
            self._memoryx = memoryx = stack.enter_context(
                MemoryX(
                    begin.kept,
                    store=store,
                    threads=update_threads(self._lanes),
                    waiting_bytes=begin.backing.waiting_bytes,
                    shards=shards,
                    node=link.rank,
                    elsewhere=AnotherNode(link),
                )
            )
            self._exchange = Exchange(link, memoryx)
            stack.callback(self._exchange.close)
            stack.callback(Node(link, memoryx).close)
            stack.callback(self._close_clusters)
            self._begun = stack.pop_all()
        free_bytes = available_memory_bytes() - begin.taken_beside(link.rank)
        per_rank = free_bytes // link.host_ranks - WINDOW_BYTES - in_flight_bytes(begin.kept.graph)
        self._answer("ready", max(0, int(per_rank * ACTIVATION_SHARE)))

    def _close_clusters(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()

    def _settle_kernels(self, settle: SettleKernels) -> None:
        choose = self._model.kept.sparsity.choose
        assert isinstance(choose, KernelChooser), "who settles what is chosen has asked for a choice"
        choose.crossovers = dict(settle.crossovers)

    def _prepare(self, prepare: Prepare) -> None:
        cluster = self._clusters[prepare.batch_size, prepare.layout.trains] = Cluster(
            prepare.layout, self._exchange, lanes=self._lanes, seed=self._model.seed, apart=self._model.apart
        )
        cluster.multiply_with(self._gemm)

    def _multiply_with(self, gemm: SetGemm) -> None:
        self._gemm = choose_gemm(gemm.precision, gemm.name)
        for cluster in self._clusters.values():
            cluster.multiply_with(self._gemm)

    def _read(self, read: Read) -> None:
        cluster = self._clusters[read.sampler.batch_size, read.trains]

        def count(_: int, tokens: int) -> int:
            self._answer(f"tokens {read.stream}", tokens)
            return tokens

        share = Share(read.stream, cluster.own_samples, count)
        worker = InputWorker(self._data[read.where], read.sampler, read.first, read.batches, share=share)
        self._inputs[read.stream] = worker.__enter__()

    def _stop_reading(self, stop: StopReading) -> None:
        self._inputs.pop(stop.stream).__exit__()
        self._answer(f"tokens {stop.stream}", None)

    def _go(self, go: Go) -> None:
        self._link.activity.step = go.step
        batch = self._inputs[go.stream].next()
        cluster, memoryx = self._clusters[batch.size, go.trains], self._memoryx
        memoryx.statistics.begin_step(looks=go.wants_to_see)
        memoryx.statistics.with_norms = go.with_norms
        if go.learning_rate is None:
            memoryx.begin_evaluation(go.step, go.sample)
        else:
            memoryx.begin_step(go.step, go.learning_rate, go.loss_scale, go.skipped)
            self._recorder.is_on = self._recorder.covers(go.step)
            self._recorder.step = go.step
        self._exchange.begin(cluster.swarmx)
        cluster.expect_stream()
        deltas = Gathered((), ())
        for kind, wave in cluster.legs:
            if kind == "backward":
                cluster.take_deltas(deltas)
                cluster.backward()
                self._exchange.end_wave(len(cluster.lanes))
                continue
            if kind == "meet":
                if go.trains:
                    deltas = Gathered(*self._link.receive(0, "deltas"))
            else:
                cluster.load(batch, wave, go.step, go.scales)
                losses = cluster.forward()
                if kind == "forward" and cluster.plan.gathered:
                    self._answer("gathered", tuple(cluster.gathered()))
                self._answer("losses", losses)
            if self._link.receive(0, "next") is Next.DIAGNOSE:
                self._answer("bad tensor", cluster.first_bad_tensor())
                return
        if go.trains and memoryx.arrays.keeps_any:
            # Rank 0 finds the same, and says it.
            with suppress(NonFiniteError):
                memoryx.finish_step()
            if go.wants_to_see:
                self._answer("seen", memoryx.statistics.seen)

    def _drain(self, _: Drain) -> None:
        self._memoryx.drain()
        self._answer("drained", sparse_sizes(self._memoryx))

    def _begin_passes(self, passes: BeginPasses) -> None:
        self._passes = passes
        self._exchange.send_to_first(passes.body)

    def _next_pass(self, order: NextPass) -> None:
        head = self._passes.head if order.takes_head else ()
        self._exchange.send_to_first([*head, *self._passes.body])

    def _record(self, record: Record) -> None:
        self._recorder = Recorder.of(record.first, record.last)
        for (_, trains), cluster in self._clusters.items():
            if trains:
                cluster.record(self._recorder)
