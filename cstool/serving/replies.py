"""The way of one answer from the engine's thread to the loop of the server: tokens in, pieces of text out."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cstool.foundation.errors import InferenceError
from cstool.inference.sequences import LogProbability, Made
from cstool.serving.engine import Ticket
from cstool.serving.grammars import AnswerGrammar
from cstool.serving.spelling import Piece, Spelled, SpelledText

_MOST_WAITING = 4096
"""tokens that wait for a client that does not read"""


class TooSlow(Exception):
    """The client does not read its answer."""


@dataclass(frozen=True)
class News:
    """The news of an answer since the last time.

    Args:
        index: of the answer in its request
        pieces: of its text
        finish_reason: of the engine; None where more follows
    """

    index: int
    pieces: Sequence[Piece]
    finish_reason: str | None


class Mailbox:
    """Takes news of several answers from the engine's thread to a loop.

    Args:
        loop: of the server
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._news = loop, deque[News]()
        self._lock = threading.Lock()
        self._is_told = False
        self._event = asyncio.Event()
        self.waiting_tokens = 0
        """of pieces that were not taken out yet"""

    def put(self, news: News) -> None:
        """Add news; of any thread."""
        with self._lock:
            self._news.append(news)
            self.waiting_tokens += sum(len(piece.tokens) for piece in news.pieces)
            tells, self._is_told = not self._is_told, True
        if tells:
            # The loop has ended where the server was told to stop at once.
            try:
                self._loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:
                return

    async def take(self, wait_s: float | None = None) -> list[News]:
        """Return all news, at least one; none only after so long a time."""
        # News may come without an end: others have their turn in between.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(wait_s):
                await self._event.wait()
        except TimeoutError:
            return []
        with self._lock:
            found = list(self._news)
            self._news.clear()
            self._is_told, self.waiting_tokens = False, 0
            self._event.clear()
        return found


@dataclass
class Reply:
    """An answer of the engine.

    Args:
        index: among the answers of its request
        text: makes the text of tokens
        ends: tokens that end it
        min_tokens: before which none does
        mailbox: takes the news
        grammar: that the text has; None for any text
    """

    index: int
    text: SpelledText
    ends: frozenset[int]
    min_tokens: int
    mailbox: Mailbox
    grammar: AnswerGrammar | None = None
    tokens: list[int] = field(default_factory=list)
    """behind the prompt, and the ones that ended it are among them"""
    logprobs: list[LogProbability] = field(default_factory=list)
    """of `tokens`, where they are asked for"""
    echo: Sequence[LogProbability] = ()
    """of the prompt, where it is asked for"""
    finish_reason: str | None = None
    ticket: Ticket | None = None
    _pieces: list[Piece] = field(default_factory=list)

    def finish(self, tokens: Sequence[int]) -> str | None:
        """Take the tokens that are new, and say why the last of them is the last.

        Raises:
            InferenceError: the grammar could not go on
        """
        if self.grammar is not None and self.grammar.fault is not None:
            raise InferenceError(f"the grammar of the answer: {self.grammar.fault}")
        for token in tokens[len(self.tokens) :]:
            self.tokens.append(token)
            if token in self.ends and len(self.tokens) > self.min_tokens:
                return "end_of_text"
            self._pieces += self.text.add(token)
            if self.text.is_stopped:
                return "stop"
        return "stop" if self.grammar is not None and self.grammar.is_over else None

    def take(self, made: Made) -> None:
        """Take tokens that are certain; in the engine's thread."""
        self.logprobs += made.logprobs
        if made.echo is not None:
            self.echo = made.echo
        if made.finish_reason is not None:
            self.finish_reason = made.finish_reason
            self._pieces += self.text.finish()
            if made.finish_reason == "end_of_text":
                end = Spelled(self.tokens[-1], len(self.tokens) - 1, b"")
                self._pieces.append(Piece("", (end,), is_end=True))
        pieces, self._pieces = self._pieces, []
        if pieces or made.finish_reason is not None or made.echo is not None:
            self.mailbox.put(News(self.index, pieces, made.finish_reason))
        if self.mailbox.waiting_tokens > _MOST_WAITING and self.ticket is not None:
            self.ticket.cancel()

    def piece_logprobs(self, piece: Piece) -> list[tuple[LogProbability, bytes]]:
        """Log probabilities of the tokens of a piece, and their bytes."""
        return [(self.logprobs[each.place], each.content) for each in piece.tokens if each.place < len(self.logprobs)]


async def news_of(mailbox: Mailbox, replies: Sequence[Reply], wait_s: float) -> AsyncIterator[News | None]:
    """Yield news until all answers have ended; None after each time in which there is none.

    Raises:
        TooSlow: the client did not read, and the answers were ended for that
    """
    running = len(replies)
    while running:
        found = await mailbox.take(wait_s)
        if not found:
            yield None
        for news in found:
            running -= news.finish_reason is not None
            yield news


def time_info(replies: Sequence[Reply], created: float, now: float) -> dict[str, Any]:
    """Times of a request, all of its answers together [s]."""
    times = [reply.ticket.times for reply in replies if reply.ticket is not None]
    came = min(each.came for each in times)
    began = min((each.began for each in times if each.began is not None), default=now)
    first = max((each.first for each in times if each.first is not None), default=now)
    return {
        "queue_time": began - came,
        "prompt_time": max(0.0, first - began),
        "completion_time": max(0.0, now - first),
        "total_time": now - came,
        "created": created,
    }
