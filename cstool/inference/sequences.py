"""Sequences that are being made: a request for the tokens that follow a prompt, and the tokens so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cstool.inference.sampling import Beams, Choice, Chosen, Sampling, choose_tokens
from cstool.inference.team import Team

Array = NDArray[np.float32]
GRAM_TOKENS = 3
"""tokens that must be alike for what followed them to be a draft"""


class GramIndex:
    """Where each few tokens of a text stand last; it grows with the text."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], tuple[int, int]] = {}
        """the last place behind them, and the one before that"""
        self._done = 0

    def follows(self, text: Sequence[int], gram: Sequence[int], skip: int) -> int | None:
        """Return the place behind the last occurrence of some tokens, where others follow them.

        Args:
            text: the same as before, or longer
            gram: `GRAM_TOKENS` tokens
            skip: occurrences from the end on that do not count: 1 where the text ends with the tokens
        """
        for end in range(max(self._done + 1, GRAM_TOKENS), len(text) + 1):
            key = tuple(text[end - GRAM_TOKENS : end])
            self._places[key] = end, self._places.get(key, (-1, -1))[0]
        self._done = max(self._done, len(text))
        place = self._places.get(tuple(gram), (-1, -1))[skip]
        return None if place < 0 or place >= len(text) else place


class Grammar(Protocol):
    """Says which tokens may follow; one for each sequence."""

    def allowed(self, drafts: Sequence[int]) -> Sequence[NDArray[np.uint32]]:
        """Tokens that may be next, and behind each draft, up to the first draft that may not follow.

        Returns:
            At least one mask, (ceil(vocabulary / 32),) uint32: bit t % 32 of word t // 32 is 1 for token t
        """
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

    @property
    def draw_key(self) -> int:
        """Key of its draws, beside the seed and the position."""
        return self.prompt if self.draws is None else self.draws


@dataclass
class TokenSequence:
    """A prompt and the tokens that followed it so far."""

    request: TokenRequest
    slot: int
    """its place in the memory of the walk"""
    tokens: list[int]
    cached: int = 0
    """tokens that are in the memory"""
    drafts: list[int] = field(default_factory=list)
    """tokens that may follow, and go through the next pass"""
    drafts_predicted: bool = False
    """whether they are of the request's prediction"""
    logits: Array | None = None
    """(1 + drafts, V) float32: of the next token and of the ones behind drafts; None until they are there"""
    reused: int = 0
    """tokens of the prompt that were in the memory before"""
    draft_reach: int = 1
    """tokens to draft at most: more after right ones, fewer after wrong ones"""
    _echo: list[LogProbability] = field(default_factory=list)
    _indices: tuple[GramIndex, GramIndex] = field(default_factory=lambda: (GramIndex(), GramIndex()))

    @property
    def made(self) -> list[int]:
        """The tokens that followed the prompt."""
        return self.tokens[len(self.request.tokens) :]

    @property
    def rows_left(self) -> int:
        """Tokens, with drafts, that are not in the memory."""
        return len(self.tokens) + len(self.drafts) - self.cached

    @property
    def goes_on(self) -> bool:
        """Whether all tokens but the last are in the memory."""
        return self.slot >= 0 and self.cached == len(self.tokens) - 1

    @property
    def wants_echo(self) -> bool:
        """Whether log probabilities of the prompt are still to come."""
        return self.request.echoes and len(self._echo) < len(self.request.tokens)

    @property
    def first_wanted(self) -> int:
        """First token whose logits are wanted."""
        return 0 if self.wants_echo else len(self.tokens) - 1

    @property
    def draft_limit(self) -> int:
        """Most tokens that may be drafted: none behind the last token that may follow."""
        if not isinstance(self.request.choice, Sampling):
            return 0
        return min(self.draft_reach, self.request.max_tokens - len(self.made) - 1)

    def part(self, start: int) -> list[int]:
        """The tokens of a pass, from `start` on: up to `cached`, with drafts."""
        if self.cached <= len(self.tokens):
            return self.tokens[start : self.cached]
        return [*self.tokens, *self.drafts][start : self.cached]

    def take_logits(self) -> Array:
        """Return the logits, once."""
        found, self.logits = self.logits, None
        assert found is not None
        return found

    def add_echo(self, logits: Array, team: Team) -> None:
        """Take the logits of tokens of the prompt, the last of which is the last one in the memory.

        Args:
            logits: (n, V) float32
        """
        first = self.cached - len(logits)
        if first == 0:
            self._echo = [LogProbability(self.tokens[0], None)]
        following = self.request.tokens[first + 1 : self.cached + 1]
        if following:
            choices = [_only(token, logits.shape[1], self.request.top) for token in following]
            self._echo += log_probabilities(choose_tokens(logits[: len(following)], choices, team))

    def take_echo(self) -> list[LogProbability] | None:
        """Return the log probabilities of the prompt's tokens, once, where they are asked for."""
        if not self.request.echoes or self.made:
            return None
        return self._echo

    def grams(self, *, of_prediction: bool) -> GramIndex:
        """Where tokens stand in the text so far, or in the prediction."""
        return self._indices[of_prediction]

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
    accepted: int = 0
    """tokens of them that were drafted"""
    rejected: int = 0
    """drafts that were wrong, or behind the last token"""
    predicted: bool = False
    """whether these drafts were of the request's prediction"""
    reused: int = 0
    """tokens of the prompt that were in the memory from others"""


def log_probabilities(chosen: Chosen) -> list[LogProbability]:
    """Return the log probabilities of tokens for which they are asked for."""
    found = []
    for token, own, tops, values in zip(*(array.tolist() for array in chosen), strict=True):
        top = tuple((each, value) for each, value in zip(tops, values, strict=True) if each >= 0)
        found.append(LogProbability(token, own, top))
    return found


def _only(token: int, classes: int, top: int | None) -> Choice:
    """The choice of a token that is known, for its log probability."""
    allowed = np.zeros(-(-classes // 8), np.uint8)
    allowed[token // 8] = 1 << token % 8
    return Choice(0.0, allowed=allowed, top_logprobs=top or 0)
