"""The engine: one thread that makes the tokens of all requests, pass by pass; requests come and go between passes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cstool.foundation.errors import CstoolError
from cstool.inference.decoding import Decoder
from cstool.inference.model import InferenceModel
from cstool.inference.sequences import Made, TokenRequest

Take = Callable[[Made], None]
"""takes tokens that are certain, in the engine's thread; must be quick, and raise nothing"""


class Full(Exception):
    """The queue is full, or the engine is about to end.

    Args:
        is_ending: whether no request is taken any more
    """

    def __init__(self, *, is_ending: bool) -> None:
        super().__init__("the engine ends" if is_ending else "the queue is full")
        self.is_ending = is_ending


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
    rejected_tokens: int = 0
    error: CstoolError | None = None
    """why it could not go on; its finish_reason is then "error" """
    _engine: Engine | None = field(default=None, repr=False)

    def cancel(self) -> None:
        """Ask for its end; it ends by "interrupted" before the next pass."""
        self.is_cancelled = True
        if self._engine is not None:
            self._engine.wake()


class Engine:
    """Makes the tokens of requests in a thread of its own.

    Args:
        model: a decoder that makes text
        capacity: most tokens of a sequence, its prompt included
        max_batch: most requests whose tokens are made side by side
        max_queue: most requests that wait
        kv_bytes: memory for keys and values [bytes]; None for half of the free memory
    """

    def __init__(
        self,
        model: InferenceModel,
        *,
        capacity: int,
        max_batch: int = 64,
        max_queue: int = 1024,
        kv_bytes: int | None = None,
    ) -> None:
        self.model, self.capacity, self.max_batch, self.max_queue = model, capacity, max_batch, max_queue
        del kv_bytes
        self._walk = model.walk(max_batch, capacity)
        self._decoder = Decoder(self._walk)
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}
        self._next = 0
        self._is_ending = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: TokenRequest, take: Take) -> Ticket:
        """Queue a request; its tokens are given to `take`, the last ones with a finish_reason.

        Finish reasons: those of the request's `finish`, "length", "context", "interrupted" (cancelled, or the engine
        ends), "error" (see `Ticket.error`).

        Raises:
            Full: the queue is full, or the engine ends
        """
        with self._changed:
            if self._is_ending or len(self._waiting) >= self.max_queue:
                raise Full(is_ending=self._is_ending)
            ticket = Ticket(request, take, Times(time.perf_counter()), _engine=self)
            self._waiting.append(ticket)
            self._changed.notify_all()
        return ticket

    def wake(self) -> None:
        """Look at cancelled requests."""
        with self._changed:
            self._changed.notify_all()

    def load(self) -> Load:
        """How busy it is, and what it has done."""
        with self._changed:
            return Load(len(self._running), len(self._waiting), 0, 0, 0, 0, 0, self._walk.passes, 0, 0, 0, 0)

    def close(self, wait_s: float = 0.0) -> None:
        """Take no more requests; let those that are there end, at most so long; then end the rest."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._running, wait_s)
            for ticket in [*self._waiting, *self._running.values()]:
                ticket.is_cancelled = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._running or self._is_ending)
                if self._is_ending and not self._waiting and not self._running:
                    return
                while self._waiting and len(self._running) < self.max_batch:
                    ticket = self._waiting.popleft()
                    self._next += 1
                    self._running[self._next] = ticket
                    ticket.times.began = time.perf_counter()
                    self._decoder.admit(replace(ticket.request, prompt=self._next, draws=ticket.request.draws or 0))
            for made in self._decoder.step():
                ticket = self._running[made.prompt]
                now = time.perf_counter()
                ticket.times.first = ticket.times.first or now
                if made.finish_reason is not None:
                    ticket.times.ended = now
                ticket.take(made)
                if made.finish_reason is not None:
                    with self._changed:
                        del self._running[made.prompt]
                        self._changed.notify_all()
