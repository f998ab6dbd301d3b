"""`/v1/completions`: texts that go on from prompts."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cstool.inference.sequences import LogProbability
from cstool.serving.asking import FEW_TOKENS, FINISH_REASONS, Asked, asked_of, check_ended, check_room, submit
from cstool.serving.refusals import Refused
from cstool.serving.replies import Mailbox, News, Reply, news_of
from cstool.serving.schema import CompletionRequest
from cstool.serving.served import Served
from cstool.serving.shapes import KEEP_ALIVE, closing, event, finite, shown, top_logprobs, usage
from cstool.serving.spelling import SpelledText


@dataclass(frozen=True)
class CompletionPlan:
    """A request that was checked: its prompts are tokens."""

    request: CompletionRequest
    asked: Asked
    prompts: Sequence[Sequence[int]]
    n: int
    best_of: int


def plan(served: Served, request: CompletionRequest) -> CompletionPlan:
    """Check a request, and make tokens of its prompts.

    Raises:
        Refused: it cannot be
    """
    served.needs_engine()
    none = None, ""
    for name, allowed in {"suffix": none, "grammar_root": none, "reasoning_format": (None, "none", "raw")}.items():
        if getattr(request, name) not in allowed:
            raise Refused(400, f"{name}: must be left out, this server does not do it", name, "unsupported")
    n = request.n or 1
    best_of = n if request.best_of is None else request.best_of
    if best_of < n:
        raise Refused(400, f"best_of: must be at least n, {n}, got {best_of}", "best_of", "invalid_value")
    if best_of > n and request.stream:
        raise Refused(400, f"best_of: must be n, {n}, in a stream, got {best_of}", "best_of", "invalid_value")
    # The best of several are those of the largest log probability.
    top = request.logprobs if request.logprobs is not None else 0 if best_of > n else None
    asked = asked_of(
        served,
        request,
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        usual=served.limits.max_tokens or served.section.max_tokens or FEW_TOKENS,
        top=top,
        echoes=bool(request.echo) and request.logprobs is not None,
    )
    return CompletionPlan(request, asked, _prompts(served, request), n, best_of)


def _prompts(served: Served, request: CompletionRequest) -> list[list[int]]:
    given: Any = request.prompt
    many = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    found = []
    for number, prompt in enumerate(many):
        param = f"prompt[{number}]" if many is given else "prompt"
        tokens = served.tokens(prompt, param)
        check_room(served, tokens, param)
        found.append(tokens)
    return found


class Completions:
    """The answers of a request, as they come.

    Args:
        served: the model
        plan: the request
        mailbox: for news of the engine

    Raises:
        Refused: the queue is full
    """

    def __init__(self, served: Served, plan: CompletionPlan, mailbox: Mailbox) -> None:
        self._served, self._plan, self._mailbox = served, plan, mailbox
        self._created = time.time()
        self.replies = submit(served, plan.asked, plan.prompts, plan.best_of, mailbox)
        self._places = [0] * len(self.replies)
        """characters of each answer so far"""
        self._base: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(self._created),
            "model": plan.request.model,
            "system_fingerprint": served.fingerprint,
            "seed": plan.asked.seed,
        }

    async def whole(self) -> dict[str, Any]:
        """Return all of the answer.

        Raises:
            Refused: it ended before its time
        """
        parts: list[list[News]] = [[] for _ in self.replies]
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is not None:
                parts[news.index].append(news)
        check_ended(self.replies)
        choices = [self._choice(reply, parts[reply.index]) for reply in self._best()]
        for index, choice in enumerate(choices):
            choice["index"] = index
        return {**self._base, "choices": choices, **self._end()}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a stream.

        Raises:
            Refused: it ended before its time
        """
        request, is_first = self._plan.request, [True] * len(self.replies)
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is None:
                yield KEEP_ALIVE
                continue
            reply = self.replies[news.index]
            if news.finish_reason is not None:
                check_ended([reply])
            choice = self._choice(reply, [news], is_begin=is_first[news.index])
            is_first[news.index] = False
            yield event({**self._base, "choices": [choice], **({"usage": None} if request.includes_usage else {})})
        if request.includes_usage:
            yield event({**self._base, "choices": [], **self._end()})

    def _end(self) -> dict[str, Any]:
        plan = self._plan
        tokens = sum(len(reply.tokens) for reply in self.replies)
        prompt_tokens = sum(map(len, plan.prompts))
        found = {"usage": usage(prompt_tokens, self.replies, plan.best_of, tokens)}
        return {**found, **closing(self.replies, self._created, plan.request.service_tier)}

    def _best(self) -> list[Reply]:
        """The answers that are wanted of each prompt: of more, the likeliest by token."""
        plan, found = self._plan, []
        for first in range(0, len(self.replies), plan.best_of):
            replies = self.replies[first : first + plan.best_of]
            if plan.best_of > plan.n:
                replies = sorted(replies, key=_mean_logprob, reverse=True)[: plan.n]
            found += replies
        return found

    def _choice(self, reply: Reply, news: Sequence[News], *, is_begin: bool = True) -> dict[str, Any]:
        request = self._plan.request
        pieces = [piece for each in news for piece in each.pieces]
        text = "".join(piece.text for piece in pieces)
        reason = news[-1].finish_reason if news else None
        choice: dict[str, Any] = {"index": reply.index, "text": text, "logprobs": None, "finish_reason": None}
        if reason is not None:
            choice["finish_reason"] = FINISH_REASONS[reason]
        prompt = self._plan.prompts[reply.index // self._plan.best_of]
        echoed: list[tuple[LogProbability, bytes]] = []
        if request.echo and is_begin:
            before = self._echoed(prompt)
            choice["text"] = "".join(each for each, _ in before) + text
            echoed = [
                (each, content) for each, content in zip(reply.echo, (content for _, content in before), strict=False)
            ]
        if request.logprobs is not None:
            found = [*echoed, *chain.from_iterable(map(reply.piece_logprobs, pieces))]
            choice["logprobs"] = self._logprobs(found, self._places[reply.index])
        self._places[reply.index] += len(choice["text"])
        if request.return_raw_tokens:
            made = [token.token for piece in pieces for token in piece.tokens]
            choice["tokens"] = [*(prompt if request.echo and is_begin else ()), *made]
        return choice

    def _echoed(self, prompt: Sequence[int]) -> list[tuple[str, bytes]]:
        """Texts and bytes of the tokens of a prompt; the text of several that make a character is with the last."""
        text = SpelledText(self._served.needs_tokenizer(), self._served.spelling, ())
        pieces = [piece for token in prompt for piece in text.add(token)] + text.finish()
        found = []
        for piece in pieces:
            found += [("", token.content) for token in piece.tokens[:-1]]
            found.append((piece.text, piece.tokens[-1].content))
        return found

    def _logprobs(self, found: Sequence[tuple[LogProbability, bytes]], place: int) -> dict[str, Any]:
        offsets, texts = [], [shown(content) for _, content in found]
        whole = b""
        for _, content in found:
            offsets.append(place + len(whole.decode("utf-8", "ignore")))
            whole += content
        spelling = self._served.spelling
        return {
            "tokens": texts,
            "token_logprobs": [finite(each.logprob) for each, _ in found],
            "top_logprobs": [top_logprobs(each, spelling) for each, _ in found]
            if self._plan.request.logprobs
            else None,
            "text_offset": offsets,
        }


def _mean_logprob(reply: Reply) -> float:
    found = [each.logprob for each in reply.logprobs if each.logprob is not None]
    return sum(found) / len(found) if found else float("-inf")
