"""The engine: one thread that makes the tokens of all requests, pass by pass; requests come and go between passes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cstool.foundation.errors import ClusterError, CstoolError
from cstool.foundation.host_memory import available_memory_bytes
from cstool.inference.decoding import Decoder
from cstool.inference.drafts import Drafts
from cstool.inference.memory import KvCache, cache_bytes
from cstool.inference.model import CACHE_SHARE
from cstool.inference.pages import PAGE_TOKENS
from cstool.inference.sequences import Made, TokenRequest
from cstool.inference.walk import Walks

log = logging.getLogger("cstool")

ROWS_BESIDE = 64
"""most tokens of prompts in a pass beside next tokens: so a long prompt makes others wait for a fraction of a second"""
RECENT_SHARE = 0.1
"""weight of the last request in the mean time of recent ones: some ten of them count"""
Take = Callable[[Made], None]
"""takes tokens that are certain, in the engine's thread; must be quick. Of max_tokens 0 there may be none"""


class Full(Exception):
    """The queue is full, or the engine is about to end.

    Args:
        is_ending: whether no request is taken any more
        half_s: else the time until half of the queue will have had its turn, by recent requests [s]
    """

    def __init__(self, *, is_ending: bool, half_s: float = 0.0) -> None:
        super().__init__("the engine ends" if is_ending else "the queue is full")
        self.is_ending, self.half_s = is_ending, half_s


class Load(NamedTuple):
    """Measured on this host, since the engine began."""

    running: int
    """requests whose tokens are being made"""
    waiting: int
    prompt_tokens: int
    """of all requests that began"""
    cached_tokens: int
    """prompt tokens that were in memory from requests before"""
    tokens: int
    """that followed prompts"""
    drafted_tokens: int
    accepted_tokens: int
    """drafted tokens that were right"""
    passes: int
    preemptions: int
    streamed_bytes: int
    """weights that passes took, from a file again and again, from memory once"""
    kv_pages: int
    """pages of keys and values in use by requests"""
    kv_pages_cached: int
    """pages that are kept for prompts that begin alike"""
    kv_pages_total: int


@dataclass
class Times:
    """Of one request [s], by `time.perf_counter`; None where it is not there yet."""

    came: float
    began: float | None = None
    """its first pass"""
    first: float | None = None
    """its first token"""
    ended: float | None = None


@dataclass
class Ticket:
    """A request in the engine."""

    request: TokenRequest
    take: Take
    times: Times
    is_cancelled: bool = False
    cached_tokens: int = 0
    """prompt tokens that were in memory from requests before"""
    accepted_tokens: int = 0
    """tokens of its prediction that came true"""
    rejected_tokens: int = 0
    """tokens of its prediction that were tried in vain"""
    error: CstoolError | None = None
    """why it could not go on; its finish_reason is then "error" """
    _engine: Engine | None = field(default=None, repr=False)

    def cancel(self) -> None:
        """Ask for its end; it ends by "interrupted" before the next pass."""
        self.is_cancelled = True
        if self._engine is not None:
            self._engine.wake()

    def numbered(self, number: int) -> TokenRequest:
        """The request under a number; a fault in its own code ends this request alone."""

        def finish(tokens: Sequence[int]) -> str | None:
            try:
                return self.request.finish(tokens)
            except Exception as error:
                self._blame(error)
                return "error"

        return replace(self.request, prompt=number, draws=self.request.draws or 0, finish=finish)

    def give(self, made: Made) -> None:
        """Give tokens to the client."""
        try:
            self.take(made)
        except Exception as error:
            self._blame(error)
            self.is_cancelled = True

    def _blame(self, error: Exception) -> None:
        log.exception("A request failed.")
        self.error = error if isinstance(error, CstoolError) else CstoolError(f"the request failed: {error!r}")


@dataclass
class _Sums:
    """Since the engine began."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    accepted_tokens: int = 0
    rejected_tokens: int = 0


class Engine:
    """Makes the tokens of requests in a thread of its own.

    Args:
        model: a decoder that makes text
        capacity: most tokens of a sequence, its prompt included
        max_batch: most requests whose tokens are made side by side
        max_queue: most requests that wait
        kv_bytes: memory for keys and values [bytes]; None for the need of all requests, up to half of the free memory
        drafts: tokens that may follow

    Raises:
        ClusterError: the memory does not suffice for one sequence of `capacity` tokens
    """

    def __init__(
        self,
        model: Walks,
        *,
        capacity: int,
        max_batch: int = 64,
        max_queue: int = 1024,
        kv_bytes: int | None = None,
        drafts: Drafts | None = None,
    ) -> None:
        self.capacity, self.max_batch, self.max_queue = capacity, max_batch, max_queue
        pages = _pages(model, capacity, max_batch, kv_bytes)
        self._walk = model.walk(max_batch, capacity, pages=pages)
        assert isinstance(self._walk.memory, KvCache)
        self._pool = self._walk.memory.pool
        self.kv_tokens = pages * PAGE_TOKENS
        """room for keys and values, in tokens of all requests"""
        self.kv_bytes = cache_bytes(model.graph, pages, PAGE_TOKENS)
        """memory for these"""
        self._decoder = Decoder(self._walk, rows_beside=ROWS_BESIDE, drafts=drafts)
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}
        self._next = 0
        self._sums = _Sums()
        self._took_s = 0.0
        """of recent requests, from the first pass to the last [s]"""
        self._is_ending = False
        self.failure: BaseException | None = None
        """why the engine has ended by itself; None while it has not"""
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: TokenRequest, take: Take) -> Ticket:
        """Queue a request; its tokens are given to `take`, the last ones with a finish_reason.

        Finish reasons: any of the request's `finish`, "length", "context", "interrupted" (cancelled, or the engine
        ends), "error" (see `Ticket.error`).

        Raises:
            Full: the queue is full, or the engine ends
        """
        with self._changed:
            # Those that came during a pass wait for its end even where there is a place for them.
            is_full = len(self._running) + len(self._waiting) >= self.max_batch + self.max_queue
            if self._is_ending or is_full:
                raise Full(is_ending=self._is_ending, half_s=self._half_s())
            ticket = Ticket(request, take, Times(time.perf_counter()), _engine=self)
            self._waiting.append(ticket)
            self._changed.notify_all()
        return ticket

    def _half_s(self) -> float:
        """Time until half of a full queue, and one more, will have begun, if requests take as long as of late [s].

        Requests under way count with their time so far, where that is longer.
        """
        now = time.perf_counter()
        ages = [now - ticket.times.began for ticket in self._running.values() if ticket.times.began is not None]
        if not ages:
            return 0.0
        return (len(self._waiting) / 2 + 1) * max(self._took_s, sum(ages) / len(ages)) / len(ages)

    def wake(self) -> None:
        """Look at cancelled requests."""
        with self._changed:
            self._changed.notify_all()

    def load(self) -> Load:
        """Its load now, and its work so far."""
        with self._changed:
            sums, pool = self._sums, self._pool
            return Load(
                len(self._running),
                len(self._waiting),
                sums.prompt_tokens,
                sums.cached_tokens,
                sums.tokens,
                sums.accepted_tokens + sums.rejected_tokens,
                sums.accepted_tokens,
                self._walk.passes,
                self._decoder.preemptions,
                self._walk.stream.streamed_bytes,
                pool.pages - pool.available,
                pool.idle,
                pool.pages,
            )

    def close(self, wait_s: float = 0.0) -> None:
        """Take no more requests; wait for the ones under way, at most so long; then end the rest."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._running, wait_s)
            for ticket in [*self._waiting, *self._running.values()]:
                ticket.is_cancelled = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._admit():
                for made in self._decoder.step():
                    self._give(made)
        except BaseException as error:
            self.failure = error
            log.exception("The engine ends: no request can be answered any more.")
            self._fail(error)

    def _admit(self) -> bool:
        """Let requests in, and cancelled ones out; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._running or self._is_ending)
            cancelled = [number for number, ticket in self._running.items() if ticket.is_cancelled]
            for number in cancelled:
                self._decoder.cancel(number)
            gone = [ticket for ticket in self._waiting if ticket.is_cancelled]
            for ticket in gone:
                self._waiting.remove(ticket)
            while self._waiting and len(self._running) - len(cancelled) < self.max_batch:
                ticket = self._waiting.popleft()
                self._next += 1
                self._running[self._next] = ticket
                ticket.times.began = time.perf_counter()
                self._sums.prompt_tokens += len(ticket.request.tokens)
                self._decoder.admit(ticket.numbered(self._next))
        for number in cancelled:
            self._give(Made(number, [], "interrupted"))
        for ticket in gone:
            _end(ticket, Made(0, [], "interrupted"))
        with self._changed:
            self._changed.notify_all()
            return bool(self._running or self._waiting or not self._is_ending)

    def _give(self, made: Made) -> None:
        """Give tokens to their client."""
        ticket, sums = self._running[made.prompt], self._sums
        ticket.times.first = ticket.times.first or time.perf_counter()
        if made.predicted:
            ticket.accepted_tokens += made.accepted
            ticket.rejected_tokens += made.rejected
        with self._changed:
            sums.tokens += len(made.tokens)
            sums.accepted_tokens += made.accepted
            sums.rejected_tokens += made.rejected
            sums.cached_tokens += max(0, made.reused - ticket.cached_tokens)
            if made.finish_reason is not None:
                took_s = time.perf_counter() - (ticket.times.began or 0.0)
                self._took_s += RECENT_SHARE * (took_s - self._took_s) if self._took_s else took_s
                del self._running[made.prompt]
                self._changed.notify_all()
        ticket.cached_tokens = max(made.reused, ticket.cached_tokens)
        if made.finish_reason is None:
            ticket.give(made)
        else:
            _end(ticket, made if ticket.error is None else made._replace(finish_reason="error"))

    def _fail(self, error: BaseException) -> None:
        """End all requests by an error, and take none any more."""
        with self._changed:
            self._is_ending = True
            left = [*self._running.values(), *self._waiting]
            self._running.clear()
            self._waiting.clear()
            self._changed.notify_all()
        for ticket in left:
            ticket.error = error if isinstance(error, CstoolError) else CstoolError(f"the engine failed: {error!r}")
            _end(ticket, Made(0, [], "error"))


def _end(ticket: Ticket, made: Made) -> None:
    ticket.times.ended = time.perf_counter()
    ticket.give(made)


def _pages(model: Walks, capacity: int, sequences: int, kv_bytes: int | None) -> int:
    """Number of pages of keys and values.

    Raises:
        ClusterError: they do not suffice for one sequence
    """
    page_bytes = max(1, cache_bytes(model.graph, 1, PAGE_TOKENS))
    needed = -(-capacity // PAGE_TOKENS)
    room = int(CACHE_SHARE * available_memory_bytes()) if kv_bytes is None else kv_bytes
    if room < needed * page_bytes:
        which = "half of the free memory" if kv_bytes is None else "--kv_memory"
        raise ClusterError(
            f"keys and values of one sequence of {capacity:,} tokens must fit {which} ({room:,} bytes), got "
            f"{needed * page_bytes:,} bytes",
            "a smaller --context needs less",
        )
    pages = room // page_bytes
    return pages if kv_bytes is not None else min(pages, needed * sequences)
