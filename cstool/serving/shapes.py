"""Answers as JSON: parts that chats and completions have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cstool.inference.sequences import LogProbability
from cstool.serving.refusals import encoded
from cstool.serving.replies import Reply, time_info
from cstool.serving.spelling import Spelling

KEEP_ALIVE = b": still at work\n\n"
"""a comment, which clients skip"""


def event(document: Any) -> bytes:
    """An event of a stream."""
    return b"data: " + encoded(document) + b"\n\n"


def usage(prompt_tokens: int, replies: Sequence[Reply], each: int, tokens: int, reasoning: int = 0) -> dict[str, Any]:
    """The number of tokens of a request.

    Args:
        prompt_tokens: of all prompts
        each: answers of a prompt
        tokens: of all answers
        reasoning: of these, tokens of thoughts
    """
    tickets = [reply.ticket for reply in replies if reply.ticket is not None]
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": prompt_tokens + tokens,
        # Of the answers of one prompt, the first is the one that may have found it in memory.
        "prompt_tokens_details": {"cached_tokens": sum(ticket.cached_tokens for ticket in tickets[::each])},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(ticket.accepted_tokens for ticket in tickets),
            "rejected_prediction_tokens": sum(ticket.rejected_tokens for ticket in tickets),
            "reasoning_tokens": reasoning,
        },
    }


def closing(replies: Sequence[Reply], created: float, tier: str | None) -> dict[str, Any]:
    """The part of an answer that is known at its end."""
    found: dict[str, Any] = {"time_info": time_info(replies, created, time.perf_counter())}
    if tier is not None:
        found["service_tier"] = tier
        found["service_tier_used"] = "default"
    return found


def shown(content: bytes) -> str:
    """Bytes of a token as a text; a part of a character is U+FFFD."""
    return content.decode("utf-8", "replace")


def chat_logprobs(found: Sequence[tuple[LogProbability, bytes]], spelling: Spelling) -> list[dict[str, Any]]:
    """Log probabilities as chats have them."""

    def entry(content: bytes, logprob: float | None) -> dict[str, Any]:
        return {"token": shown(content), "logprob": finite(logprob), "bytes": list(content)}

    return [
        {
            **entry(content, each.logprob),
            "top_logprobs": [entry(spelling.alone(token), logprob) for token, logprob in each.top],
        }
        for each, content in found
    ]


def finite(logprob: float | None) -> float | None:
    """A log probability as JSON has it: of nothing, -9999."""
    return None if logprob is None else max(float(logprob), -9999.0)


def top_logprobs(each: LogProbability, spelling: Spelling) -> Mapping[str, float] | None:
    """The likeliest tokens by their texts, as completions have them; of tokens of one text, the likeliest."""
    if each.logprob is None:
        return None
    found: dict[str, float] = {}
    for token, logprob in each.top:
        found.setdefault(shown(spelling.alone(token)), max(float(logprob), -9999.0))
    return found
