"""Sequences that are being made: a request for the tokens that follow a prompt, and the tokens so far."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cstool.inference.sampling import Beams, Sampling


class Grammar(Protocol):
    """Says which tokens may follow; one for each sequence."""

    def allowed(self) -> NDArray[np.uint32]:
        """Tokens that may be next: bit t % 32 of word t // 32 is 1 for token t; (ceil(vocabulary / 32),) uint32."""
        ...

    def take(self, token: int) -> None:
        """Go on with a token that is allowed."""
        ...


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
        top: None for no log probabilities; else they come with each token, with those of so many likeliest tokens
        echoes: whether log probabilities of the prompt's tokens come first
        bias: added to the logits of tokens, by token
        frequency_penalty, presence_penalty: taken from the logits of tokens that followed the prompt already: for each
            time, and once
        ends: tokens that end a text; none of them is chosen before `min_tokens`
        min_tokens: that follow at least
        grammar: says which tokens may follow
        prediction: tokens that are expected to follow; they make it faster where they do
    """

    prompt: int
    tokens: Sequence[int]
    max_tokens: int
    choice: Sampling | Beams
    finish: Finish = lambda tokens: None
    source: int = 0
    draws: int | None = None
    adapter: int = 0
    top: int | None = None
    echoes: bool = False
    bias: Mapping[int, float] = field(default_factory=dict)
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    ends: Collection[int] = ()
    min_tokens: int = 0
    grammar: Grammar | None = None
    prediction: Sequence[int] = ()


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


class LogProbability(NamedTuple):
    """Log probability of a token, by the model alone: of the logits at temperature 1, before anything changes them."""

    token: int
    logprob: float | None
    """None for the first token of a prompt, which follows nothing"""
    top: tuple[tuple[int, float], ...] = ()
    """the likeliest tokens with theirs, the likeliest first"""


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
    logprobs: Sequence[LogProbability] = ()
    """of the tokens, where they are asked for"""
    echo: Sequence[LogProbability] | None = None
    """of the prompt's tokens, with the first tokens that follow it, where they are asked for"""
