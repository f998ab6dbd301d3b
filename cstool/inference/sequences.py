"""Sequences that are being made: a request for the tokens that follow a prompt, and the tokens so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cstool.inference.sampling import Beams, Sampling

Finish = Callable[[Sequence[int]], str | None]
"""says for the tokens that followed a prompt so far why the last of them is the last"""


@dataclass(frozen=True)
class TokenRequest:
    """A request for the tokens that follow a prompt.

    Args:
        prompt: its number
        tokens: of the prompt, at least one and fewer than the capacity of the walk
        max_tokens: that follow, at most; a sequence also ends, by "context", where no position is left
        choice: how tokens are drawn, or how wide a search for them is
        finish: ends sequences before that
        source: of an encoder-decoder, the number of the source that it goes on from
        draws: key of its draws; None for its number
        adapter: number of its adapter, where there are any
    """

    prompt: int
    tokens: Sequence[int]
    max_tokens: int
    choice: Sampling | Beams
    finish: Finish = lambda tokens: None
    source: int = 0
    draws: int | None = None
    adapter: int = 0


@dataclass
class TokenSequence:
    """A prompt and the tokens that followed it so far."""

    request: TokenRequest
    slot: int
    """its place in the memory of the walk"""
    tokens: list[int]
    cached: int = 0
    """tokens that are in the memory"""

    @property
    def made(self) -> list[int]:
        """The tokens that followed the prompt."""
        return self.tokens[len(self.request.tokens) :]

    def reason_to_end(self, capacity: int) -> str | None:
        """Why its last token is the last; None where more may follow.

        Args:
            capacity: most tokens of a sequence
        """
        made = self.made
        if (reason := self.request.finish(made)) is not None:
            return reason
        if len(made) >= self.request.max_tokens:
            return "length"
        return "context" if len(self.tokens) >= capacity else None


class Made(NamedTuple):
    """Tokens that are certain to follow a prompt: one that was drawn, or all that a search found."""

    prompt: int
    """number of the prompt"""
    tokens: list[int]
    """behind the tokens before"""
    finish_reason: str | None
    """why the last of them is the last of the sequence; None where more follow"""
    score: float = 0.0
    """of a search: log probability by length"""
