"""From fields of a request to requests of the engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cstool.foundation.errors import CheckpointError
from cstool.inference.sampling import Sampling
from cstool.inference.sequences import TokenRequest
from cstool.serving.engine import Full
from cstool.serving.grammars import AnswerGrammar
from cstool.serving.refusals import Refused, busy, changed
from cstool.serving.replies import Mailbox, Reply
from cstool.serving.schema import Generation
from cstool.serving.served import Served
from cstool.serving.spelling import SpelledText

MOST_ANSWERS = 128
"""of one request"""
FEW_TOKENS = 16
"""of a completion without a number of tokens, as of OpenAI"""


@dataclass(frozen=True)
class Asked:
    """Fields that both kinds of requests have, checked against the model.

    Args:
        adapter: number of the adapter
        sampling: of the draws
        max_tokens, min_tokens: that follow; None for the rest of the context
        top: as of `TokenRequest`
    """

    adapter: int
    sampling: Sampling
    max_tokens: int | None
    min_tokens: int
    stops: tuple[str, ...]
    bias: dict[int, float]
    frequency_penalty: float
    presence_penalty: float
    top: int | None = None
    echoes: bool = False
    grammar: Callable[[], AnswerGrammar] | None = None
    """makes the grammar of an answer; None for any text"""
    prediction: Sequence[int] = ()
    ends: frozenset[int] = field(default_factory=frozenset)

    @property
    def seed(self) -> int:
        """Of the draws."""
        return self.sampling.seed


def asked_of(
    served: Served,
    request: Generation,
    *,
    max_tokens: int | None,
    min_tokens: int | None,
    usual: int | None,
    top: int | None,
    echoes: bool = False,
) -> Asked:
    """Check fields of a request against the model.

    Args:
        max_tokens, min_tokens: as the request has them, by one name or another
        usual: `max_tokens` where it has none
        top, echoes: see `Asked`

    Raises:
        Refused: one cannot be
    """
    served.needs_engine()
    section = served.section
    temperature = section.temperature if request.temperature is None else request.temperature
    top_p = section.top_p if request.top_p is None else request.top_p
    if top_p == 0:
        # Of no probability there is still one token, the likeliest.
        temperature, top_p = 0.0, None
    seed = secrets.randbits(53) if request.seed is None else request.seed
    if request.stream_options is not None and not request.stream:
        raise Refused(400, "stream_options: must go with stream, got no stream", "stream_options", "invalid_value")
    max_tokens = usual if max_tokens is None else None if max_tokens == -1 else max_tokens
    if min_tokens == -1:
        min_tokens = served.context if max_tokens is None else max_tokens
    if min_tokens and max_tokens is not None and min_tokens > max_tokens:
        rule = f"must be at most max_tokens, {max_tokens:,}, got {min_tokens:,}"
        raise Refused(400, f"min_tokens: {rule}", "min_tokens", "invalid_value")
    return Asked(
        served.adapter(request.model),
        Sampling(1.0 if temperature is None else temperature, section.top_k, top_p, seed),
        max_tokens,
        min_tokens or 0,
        request.stops,
        _bias(served, request.logit_bias or {}),
        request.frequency_penalty or 0.0,
        request.presence_penalty or 0.0,
        top,
        echoes,
        ends=served.ends,
    )


def _bias(served: Served, given: dict[str, float]) -> dict[int, float]:
    found = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < served.vocab_size):
            rule = f"keys must be tokens, 0 to {served.vocab_size - 1}, got {key[:40]!r}"
            raise Refused(400, f"logit_bias: {rule}", "logit_bias", "invalid_value")
        found[int(key)] = value
    return found


def check_room(served: Served, tokens: Sequence[int], param: str) -> None:
    """Check that a prompt leaves room in the context, or raise Refused."""
    if not tokens:
        raise Refused(400, f"{param}: must have at least one token, got none", param, "invalid_value")
    if len(tokens) >= served.context:
        rule = f"must have fewer tokens than the context of the model, {served.context:,}, got {len(tokens):,}"
        raise Refused(400, f"{param}: {rule}", param, "context_length_exceeded")


def submit(served: Served, asked: Asked, prompts: Sequence[Sequence[int]], each: int, mailbox: Mailbox) -> list[Reply]:
    """Queue requests of the engine: so many answers for each prompt.

    The draws of an answer are keyed by its number in the request, so they are the same in any company.

    Raises:
        Refused: the queue is full, or there are too many answers
    """
    if len(prompts) * each > MOST_ANSWERS:
        rule = f"must be at most {MOST_ANSWERS} answers in all, got {len(prompts)} prompts of {each}"
        raise Refused(400, f"n: {rule}", "n", "invalid_value")
    engine = served.needs_engine()
    replies: list[Reply] = []
    try:
        for tokens in prompts:
            for _ in range(each):
                replies.append(_reply(served, asked, tokens, len(replies), mailbox))
                replies[-1].ticket = engine.submit(_request(served, asked, tokens, replies[-1]), replies[-1].take)
    except Full as full:
        cancel(replies)
        raise busy(is_ending=full.is_ending, half_s=full.half_s) from None
    return replies


def _reply(served: Served, asked: Asked, tokens: Sequence[int], index: int, mailbox: Mailbox) -> Reply:
    text = SpelledText(served.needs_tokenizer(), served.spelling, tokens, asked.stops, asked.min_tokens)
    grammar = None if asked.grammar is None else asked.grammar()
    return Reply(index, text, asked.ends, asked.min_tokens, mailbox, grammar)


def _request(served: Served, asked: Asked, tokens: Sequence[int], reply: Reply) -> TokenRequest:
    room = served.context - len(tokens)
    most = room if asked.max_tokens is None else min(asked.max_tokens, room)
    return TokenRequest(
        0,
        tokens,
        most,
        asked.sampling,
        reply.finish,
        draws=reply.index,
        adapter=asked.adapter,
        top=asked.top,
        echoes=asked.echoes,
        bias=asked.bias,
        frequency_penalty=asked.frequency_penalty,
        presence_penalty=asked.presence_penalty,
        ends=asked.ends,
        min_tokens=asked.min_tokens,
        grammar=reply.grammar,
        prediction=asked.prediction,
    )


def cancel(replies: Sequence[Reply]) -> None:
    """Ask for the end of answers."""
    for reply in replies:
        if reply.ticket is not None and reply.finish_reason is None:
            reply.ticket.cancel()


FINISH_REASONS = {"end_of_text": "stop", "stop": "stop", "length": "length", "context": "length"}
"""as clients are told them"""


def check_ended(replies: Sequence[Reply]) -> None:
    """Check that answers ended as they should, or raise Refused."""
    for reply in replies:
        if reply.finish_reason == "error":
            error = reply.ticket.error if reply.ticket is not None else None
            if isinstance(error, CheckpointError):
                raise changed(error)
            if reply.grammar is not None and reply.grammar.fault is not None:
                rule = f"must be one that llguidance can follow to its end, got: {reply.grammar.fault}"
                raise Refused(400, f"the form of the answer: {rule}", code="invalid_schema")
            raise Refused(500, "the model failed" if error is None else error.message, code="engine_error")
        if reply.finish_reason not in FINISH_REASONS:
            raise Refused(503, "the answer was ended before its time", code="interrupted")
