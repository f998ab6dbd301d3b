"""What the rank of MemoryX, which runs the run, has the other ranks do, and what they answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np

from cstool.data import Sampler
from cstool.errors import CstoolError
from cstool.ir import Graph
from cstool.kernels.call import LossResult
from cstool.machine.cluster import Cluster
from cstool.machine.inputs import Share
from cstool.machine.layout import Layout
from cstool.machine.memoryx import MemoryX
from cstool.machine.ranks.link import Link
from cstool.machine.ranks.sending import ArrivingSums, Broadcast
from cstool.machine.recorder import Tape
from cstool.machine.swarmx import SwarmX

CLOCK_LOOKS = 10
"""how often the clock of another rank is looked at"""

Array = np.ndarray[Any, Any]


class Identify(NamedTuple):
    """Open the data sets of a trainer, and say what all ranks must have alike."""

    trainer: int


class Begin(NamedTuple):
    """Get ready for a model, and say how much memory there is for activations [bytes]."""

    graph: Graph
    seed: int
    apart: int
    host: str
    """of MemoryX"""
    taken_bytes: int
    """what it takes there [bytes]"""


class CompileKernels(NamedTuple):
    """Have all kernels ready: on the host of rank 0 they are compiled already."""


class Prepare(NamedTuple):
    """Lay out the systems for batches of a size."""

    batch_size: int
    layout: Layout


class SetGemm(NamedTuple):
    """Multiply with this provider from now on."""

    name: str


class Read(NamedTuple):
    """Read the share of this rank of batches, which are numbered, and say how many tokens each has."""

    stream: int
    where: str
    """the dataloader"""
    trains: bool
    sampler: Sampler
    first: int
    batches: int | None


class StopReading(NamedTuple):
    """Let go of a stream of batches; None in place of a number of tokens says that it has ended."""

    stream: int


class Go(NamedTuple):
    """Run the next batch of a stream. After each wave forward comes a `Next`."""

    stream: int
    step: int
    scale: float
    trains: bool


class Record(NamedTuple):
    """Take down what happens in the steps from the first to the last."""

    first: int
    last: int


class TellTime(NamedTuple):
    """Say what time it is on the clock of spans [s]."""


class HandOver(NamedTuple):
    """Hand over what was taken down."""


class Next(Enum):
    """What comes after a wave went forward."""

    ON = "on"
    """backward, where it trains, then the next wave"""
    DIAGNOSE = "diagnose"
    """a loss is not finite: where did that begin?"""


@dataclass
class RankUse:
    """What a rank did in training so far."""

    rank: int
    host: str
    waited_s: float = 0.0
    """that a lane waited, on average, for panels or for other ranks [s]"""
    sent_bytes: int = 0
    """weights or gradients that left it [bytes]"""


class EndOfStream(Exception):
    """Another rank reads no more batches of a stream."""


class OtherRanks:
    """The other ranks as the rank of MemoryX sees them; where there are none, whatever they are told is nothing."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self.link = link
        self.broadcast = Broadcast(link, memoryx)
        self.sums = ArrivingSums(link, memoryx)
        self._ranks = range(1, link.ranks)
        self.used = [RankUse(0, socket.gethostname())]
        """by rank"""
        self._waited_s, self._sent_before = 0.0, 0
        self._streams: set[int] = set()
        """of batches that are read"""

    def order(self, order: Any) -> None:
        """Have all of them do something."""
        for rank in self._ranks:
            self.link.send(rank, "order", order)

    def begin_model(self, begin: Begin) -> list[int]:
        """Have them get ready for a model; gives what memory each has for activations [bytes]."""
        self.order(begin)
        answers = self.answers("ready")
        self.used[1:] = [RankUse(rank, host) for rank, (host, _) in zip(self._ranks, answers, strict=True)]
        return [memory_bytes for _, memory_bytes in answers]

    def answers(self, kind: str) -> list[Any]:
        """Wait for an answer of each, by rank."""
        return [self.link.receive(rank, kind) for rank in self._ranks]

    @contextmanager
    def reading(
        self, where: str, cluster: Cluster, sampler: Sampler, first: int, count: int | None
    ) -> Iterator[tuple[Share, ExitStack]]:
        """Have them read their shares of batches; give that of this rank, and what to close before its reader."""
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
        # What they had read ahead is no longer wanted.
        for rank in self._ranks:
            with suppress(EndOfStream, CstoolError):
                while rank in open_ranks:
                    tokens_at(rank)
        self._streams.remove(stream)

    def begin(self, swarmx: SwarmX, go: Go) -> None:
        """Have them run the next batch of a stream, and take their gradients to a SwarmX."""
        self._waited_s, self._sent_before = 0.0, self.link.sent_bytes
        self.sums.begin(swarmx)
        self.order(go)

    def say(self, what: Next) -> None:
        """Say what comes after a wave went forward."""
        for rank in self._ranks:
            self.link.send(rank, "next", what)

    def losses(self) -> dict[int, LossResult]:
        """Losses of a wave, by the number of the grain."""
        found: dict[int, LossResult] = {}
        began = time.perf_counter()
        for losses in self.answers("losses"):
            found |= losses
        self._waited_s += time.perf_counter() - began
        return found

    def finish_backward(self) -> None:
        """Wait until all gradients of a wave have come, and have been taken.

        Raises:
            BaseException: what went wrong with one
        """
        began = time.perf_counter()
        for use, (waited_s, sent_bytes) in zip(self.used[1:], self.answers("backward"), strict=True):
            use.waited_s += waited_s
            use.sent_bytes += sent_bytes
        self.sums.finish()
        self.used[0].waited_s += self._waited_s + time.perf_counter() - began
        self.used[0].sent_bytes += self.link.sent_bytes - self._sent_before
        self._waited_s, self._sent_before = 0.0, self.link.sent_bytes

    def tapes(self) -> list[Tape]:
        """What they took down, on the clock of this rank."""
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

    def _clock_ahead_s(self, rank: int) -> float:
        """By how much the clock of a rank is ahead of this one's [s]: as the fastest of some answers says."""
        looks: list[tuple[float, float]] = []
        for _ in range(CLOCK_LOOKS):
            asked_s = time.perf_counter()
            self.link.send(rank, "order", TellTime())
            there_s = self.link.receive(rank, "time")
            here_s = time.perf_counter()
            looks.append((here_s - asked_s, there_s - (asked_s + here_s) / 2))
        return min(looks)[1]

    def close(self) -> None:
        """End the threads."""
        self.sums.close()
