"""The orders of rank 0, which has MemoryX and runs the run, to the other ranks, and their answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np

from cstool.foundation.errors import CstoolError
from cstool.model.ir import Panel
from cstool.training.data import Sampler
from cstool.training.kernels.call import LossResult
from cstool.training.kernels.sparse.crossover import Crossover
from cstool.training.machine.budgets import update_threads
from cstool.training.machine.cluster import Cluster
from cstool.training.machine.inputs import Share
from cstool.training.machine.layout import Layout
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.elsewhere import NOWHERE
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx_store import Backing
from cstool.training.machine.ranks.exchange import Exchange
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.nodes import OtherNodes
from cstool.training.machine.recorder import Tape
from cstool.training.machine.swarmx import SwarmX

CLOCK_LOOKS = 10
"""number of readings of the clock of another rank"""
BURST = 8
"""arrays of 1 MiB in a row that measure a wire"""

Array = np.ndarray[Any, Any]


class Identify(NamedTuple):
    """Open the data sets of a trainer, and answer with the facts that must be alike on all ranks."""

    trainer: int


class Begin(NamedTuple):
    """Get ready for a model, and answer with the memory for activations [bytes]."""

    kept: KeptModel
    backing: Backing
    """without the store of the first node"""
    seed: int
    apart: int
    """largest lead of the fastest lane over the slowest [panels]"""
    hosts: Sequence[str]
    """by rank"""
    taken_bytes: Sequence[int]
    """memory that MemoryX takes, by rank [bytes]"""

    def taken_beside(self, rank: int) -> int:
        """Memory that MemoryX takes on the host of a rank [bytes]."""
        host = self.hosts[rank]
        return sum(size for size, other in zip(self.taken_bytes, self.hosts, strict=True) if other == host)


class CompileKernels(NamedTuple):
    """Compile the kernels, or load them if this host has them compiled, as rank 0 has its own by now."""

    needs: frozenset[str]


class Prepare(NamedTuple):
    """Lay out the systems for batches of a size."""

    batch_size: int
    layout: Layout


class SetGemm(NamedTuple):
    """Compute matrix products with this provider from now on."""

    precision: str
    name: str


class Read(NamedTuple):
    """Read this rank's samples of a stream of batches, and send the number of their unmasked tokens, batch by batch."""

    stream: int
    where: str
    """the dataloader"""
    trains: bool
    sampler: Sampler
    first: int
    batches: int | None


class StopReading(NamedTuple):
    """Stop reading a stream of batches, and send None in place of a number of tokens."""

    stream: int


class SettleKernels(NamedTuple):
    """Choose the kernels of sparse weights by the measurement of rank 0."""

    crossovers: Mapping[tuple[int, int, float], Crossover]
    """see `KernelChooser`"""


class Go(NamedTuple):
    """Run the next batch of a stream. After each wave forward, wait for a `Next`."""

    stream: int
    step: int
    scales: tuple[float, ...]
    learning_rate: float | None
    """None for an evaluation"""
    loss_scale: float = 1.0
    """in a training step the factor in the scale beside the weight of a token; see `MemoryX.begin_step`"""
    skipped: int = 0
    """in a training step the number of skipped steps before it, which updated nothing"""
    sample: int | None = None
    """in an evaluation which of the masks of DropConnect; None for all weights"""
    wants_to_see: bool = False
    """whether to report the statistics of the step; see `StepStatistics`"""
    with_norms: bool = False

    @property
    def trains(self) -> bool:
        """Whether it is a training step."""
        return self.learning_rate is not None


class BeginPasses(NamedTuple):
    """Send rank 0, which computes alone, its own panels of the body of a pass; then the panels of each `NextPass`.

    So they are on their way before rank 0 comes to the pass.
    """

    body: Sequence[Panel]
    """panels of every pass, in order"""
    head: Sequence[Panel]
    """panels after the body, in a pass whose logits are wanted"""


class NextPass(NamedTuple):
    """Send the head of the pass that begins, if that takes it, and the body of the pass after it."""

    takes_head: bool


class Record(NamedTuple):
    """Record the steps from the first to the last."""

    first: int
    last: int


class TellTime(NamedTuple):
    """Answer with the time on the clock of recordings [s]."""


class HandOver(NamedTuple):
    """Answer with the recording."""


class Next(Enum):
    """The next step after a wave went forward."""

    ON = "on"
    """backward, where it trains, then the next wave"""
    DIAGNOSE = "diagnose"
    """a loss is not finite: where did that begin?"""


@dataclass
class RankUse:
    """Work and traffic of a rank in training so far."""

    rank: int
    host: str
    waited_s: float = 0.0
    """a lane waiting for panels of other ranks, on average; at rank 0 also for their computing [s]"""
    sent_bytes: int = 0
    """size of the arrays that left it, weights and gradients [bytes]"""


class Wire(NamedTuple):
    """The measured connection of two hosts."""

    bytes_per_s: float
    """one way [B/s]"""
    latency_s: float
    """of a message, one way, including the time of the link at both ends [s]"""


class EndOfStream(Exception):
    """Another rank reads no more batches of a stream."""


class OtherRanks:
    """The other ranks, as rank 0 sees them. In a run in one process there are none, and nothing is sent."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self.link, self.memoryx = link, memoryx
        """the node of MemoryX that is here"""
        self.memory_bytes: Sequence[int] = ()
        """memory of each of them for activations [bytes]"""
        self.exchange = Exchange(link, memoryx)
        self._ranks = range(1, link.ranks)
        self.used = [RankUse(rank, link.hosts[rank]) for rank in range(link.ranks)]
        """by rank"""
        self._waited_s = 0.0
        self._streams: set[int] = set()
        """numbers of the streams of batches that are being read"""

    def order(self, order: Any) -> None:
        """Give an order to all of them."""
        self._tell("order", order)

    def _tell(self, kind: str, body: Any) -> None:
        for rank in self._ranks:
            self.link.send(rank, kind, body)

    def answers(self, kind: str) -> list[Any]:
        """Wait for an answer of each; in the order of the ranks."""
        return [self.link.receive(rank, kind) for rank in self._ranks]

    @contextmanager
    def reading(
        self, where: str, cluster: Cluster, sampler: Sampler, first: int, count: int | None
    ) -> Iterator[tuple[Share, ExitStack]]:
        """Have them read their samples of batches.

        Yields:
            the samples for rank 0, and a function to close before their reader: it has the others stop
        """
        stream = next(number for number in count_from(1) if number not in self._streams)
        self._streams.add(stream)
        self.order(Read(stream, where, cluster.trains, sampler, first, count))
        open_ranks = set(self._ranks)

        def tokens_at(rank: int) -> int:
            tokens: int | None = self.link.receive(rank, f"tokens {stream}")
            if tokens is None:
                open_ranks.remove(rank)
                raise EndOfStream
            return tokens

        with ExitStack() as stack:
            stack.callback(self.order, StopReading(stream))
            yield Share(stream, cluster.own_samples, lambda _, own: own + sum(map(tokens_at, self._ranks))), stack
        # Batches read ahead are no longer wanted.
        for rank in self._ranks:
            with suppress(EndOfStream, CstoolError):
                while rank in open_ranks:
                    tokens_at(rank)
        self._streams.remove(stream)

    def begin(self, swarmx: SwarmX, go: Go) -> None:
        """Have them run the next batch of a stream, with this SwarmX here."""
        self.link.activity.step = go.step
        self.link.activity.passed.clear()
        self._waited_s = 0.0
        self.exchange.begin(swarmx)
        self.order(go)

    def say(self, what: Next) -> None:
        """Tell them the next step after a wave went forward."""
        self._tell("next", what)

    def losses(self) -> dict[int, tuple[LossResult, ...]]:
        """Wait for their losses of a wave; by the number of the grain."""
        found: dict[int, tuple[LossResult, ...]] = {}
        began = time.perf_counter()
        for losses in self.answers("losses"):
            found |= losses
        self._waited_s += time.perf_counter() - began
        return found

    def finish_backward(self, lanes: int) -> None:
        """Wait until all sums of a wave that come here have come and have been added.

        Raises:
            BaseException: the error with which the addition of a gradient failed
        """
        began = time.perf_counter()
        for rank, use in self.exchange.end_wave(lanes).items():
            self.used[rank].waited_s += use.waited_s
            self.used[rank].sent_bytes += use.sent_bytes
        self.used[0].waited_s += self._waited_s + time.perf_counter() - began
        self._waited_s = 0.0

    def tapes(self) -> list[Tape]:
        """The recordings of the other ranks, on the clock of this rank."""
        found = []
        for rank in self._ranks:
            ahead_s = self._clock_ahead_s(rank)
            self.link.send(rank, "order", HandOver())
            for thread, spans in self.link.receive(rank, "tapes"):
                tape = Tape(f"rank {rank} {thread}")
                times = ((span, span.start_s - ahead_s, span.end_s - ahead_s) for span in spans)
                tape.spans = [span._replace(start_s=start_s, end_s=end_s) for span, start_s, end_s in times]
                found.append(tape)
        return found

    def measure_wire(self) -> Wire | None:
        """Measure the connection from here to the first rank on another host; None without another host.

        At 1 Gbit/s that takes 0.2 s.
        """
        away = next((use.rank for use in self.used if use.host != self.used[0].host), None)
        if away is None:
            return None
        back_s = min(self._ask_time(away)[1] for _ in range(CLOCK_LOOKS))
        burst = [np.zeros(2**20, np.uint8)] * BURST
        # TCP begins slowly, so the first one does not count.
        burst_s = [self._ask_time(away, burst)[1] - back_s for _ in range(2)][1]
        return Wire(sum(array.nbytes for array in burst) / max(burst_s, 1e-6), back_s / 2)

    def _clock_ahead_s(self, rank: int) -> float:
        """Lead of the clock of a rank over this one's [s], by the fastest of some answers."""
        return min((took_s, ahead_s) for ahead_s, took_s in (self._ask_time(rank) for _ in range(CLOCK_LOOKS)))[1]

    def _ask_time(self, rank: int, arrays: Sequence[Array] = ()) -> tuple[float, float]:
        """Ask a rank for the time, behind arrays that it throws away.

        Returns:
            lead of the clock there over the time halfway to the answer here, and duration of the answer [s]
        """
        asked_s = time.perf_counter()
        for array in arrays:
            self.link.send(rank, "burst", None, [array])
        self.link.send(rank, "order", TellTime())
        there_s = self.link.receive(rank, "time")
        here_s = time.perf_counter()
        return there_s - (asked_s + here_s) / 2, here_s - asked_s

    def close(self) -> None:
        """End the threads, close the store."""
        self.exchange.close()
        self.memoryx.close()


def spread_memoryx(
    kept: KeptModel, backing: Backing, *, link: Link, lanes: int | None, seed: int, apart: int
) -> OtherRanks:
    """Open MemoryX, the first node here, the others at the ranks of their numbers; all ranks get ready for the model.

    Args:
        link: to these
        lanes: host threads; None to choose
        seed: of the run
        apart: largest lead of the fastest lane over the slowest [panels]

    Raises:
        ClusterError: something is wrong at another rank
    """
    shards = backing.shards
    memoryx = MemoryX(
        kept,
        store=backing.store,
        threads=update_threads(lanes),
        waiting_bytes=backing.waiting_bytes,
        shards=shards,
        elsewhere=OtherNodes(link, shards.nodes) if link.ranks > 1 else NOWHERE,
    )
    memoryx.commits.outdated = backing.outdated
    others = OtherRanks(link, memoryx)
    taken = [kept.memoryx_bytes * size // max(1, sum(shards.shard_bytes)) for size in shards.shard_bytes]
    if memoryx.arrays.file is not None:
        taken = [memoryx.arrays.file.cache.limit_bytes + (backing.waiting_bytes or 0)] * shards.nodes
    taken += [0] * (link.ranks - shards.nodes)
    hosts = [link.hosts[rank] for rank in range(link.ranks)]
    others.order(Begin(kept, backing._replace(store=None), seed, apart, hosts, taken))
    others.memory_bytes = others.answers("ready")
    return others
