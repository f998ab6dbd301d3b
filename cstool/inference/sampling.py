"""The choice of tokens by their logits: draws of the next one, or a search for the likeliest of all.

A draw is keyed by the seed, the number of the prompt and the position, so it does not depend on other requests, nor on
their order.

Source: Fan, Lewis, Dauphin, "Hierarchical neural story generation", 2018, section 5.3 (top_k); Holtzman et al., "The
curious case of neural text degeneration", 2020, section 3.1 (top_p); Nguyen et al., "Turning up the heat: min-p
sampling for creative and coherent LLM outputs", 2025, section 3 (min_p); OpenAI, API reference, "Frequency and presence
penalties".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cstool.foundation.errors import InferenceError
from cstool.foundation.random_keys import key_of, philox_block
from cstool.inference.team import Team
from cstool.training.kernels.choosing import NO_TOKEN, Rows, choose_rows

Array = np.ndarray[Any, Any]

MOST_BEAMS = 256
_ALL = 2**31
"""more tokens than a model has"""
_WORK = 16
"""numbers that are read in the time in which a logit is looked at: an exponential takes longer"""


class Changes(NamedTuple):
    """Numbers that are added to the logits of some tokens.

    Args:
        tokens: (n,) int64; a token may be there several times
        amounts: (n,) float64
    """

    tokens: Array
    amounts: Array

    @classmethod
    def of(
        cls,
        biases: Mapping[int, float],
        counts: Mapping[int, int] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
    ) -> "Changes":
        """Make the changes of logits that a request asks for.

        Args:
            biases: added to logits, by token
            counts: of each token so far, by token
            frequency_penalty: taken from the logit of a token, times its count
            presence_penalty: taken from the logit of a token whose count is above 0
        """
        many = counts or {}
        seen = np.fromiter(many.values(), np.float64, len(many))
        penalties = frequency_penalty * seen + presence_penalty * (seen > 0)
        return cls(
            np.fromiter((*biases, *many), np.int64, len(biases) + len(many)),
            np.concatenate([np.fromiter(biases.values(), np.float64, len(biases)), -penalties]),
        )


@dataclass(frozen=True)
class Choice:
    """How the next token of one sequence is chosen.

    Changes and the mask come first, then the temperature, then limits. Where a limit falls between equally likely
    tokens, the tokens with smaller numbers are in.

    Args:
        temperature: logits are divided by it; 0 takes the likeliest token, the first of several
        top_k: only so many of the likeliest tokens are drawn from; None for all
        top_p: only the likeliest tokens that together have this probability; None for all
        min_p: only tokens with at least this share of the probability of the likeliest one; 0 for all
        draw: a uniform number, at least 0 and below 1
        changes: of logits
        allowed: (V / 8, rounded up, or more) uint8: a bit for each token, 1 where it is allowed, the first token the
            lowest bit of the first byte; None where all are
        top_logprobs: likeliest tokens whose log probabilities are wanted beside the chosen one's; None for neither
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float = 0.0
    draw: float = 0.0
    changes: Changes | None = None
    allowed: Array | None = None
    top_logprobs: int | None = None


class Chosen(NamedTuple):
    """Tokens for the rows of logits.

    Log probabilities are of the model: of temperature 1, before changes of logits, masks and limits.

    Args:
        tokens: (N,) int64
        logprobs: (N,) float32: log probability of each token; NaN where it was not asked for
        top_tokens: (N, most) int64: the likeliest tokens of each row, of equal ones the first one first; -1 behind them
        top_logprobs: (N, most) float32: their log probabilities; NaN behind them
    """

    tokens: Array
    logprobs: Array
    top_tokens: Array
    top_logprobs: Array


def choose_tokens(logits: Array, choices: Sequence[Choice], team: Team | None = None) -> Chosen:
    """Choose a token for each row. A result depends on its own row and choice alone.

    Args:
        logits: (N, V) float32, finite, rows contiguous
        choices: N
        team: threads that share the rows; None for the caller alone

    Raises:
        InferenceError: masks or changes leave no token in a row
        IndexError: a change is of a token that the model has not
    """
    count, classes = logits.shape
    rows = _rows(choices, classes)
    most = max((choice.top_logprobs or 0 for choice in choices), default=0)
    chosen = Chosen(
        np.empty(count, np.int64),
        np.full(count, np.nan, np.float32),
        np.full((count, min(most, classes)), NO_TOKEN, np.int64),
        np.full((count, min(most, classes)), np.nan, np.float32),
    )

    def work(member: int, members: int) -> None:
        choose_rows(logits, count * member // members, count * (member + 1) // members, rows, *chosen)

    if team is None:
        work(0, 1)
    else:
        team.run(work, _WORK * logits.size if count > 1 else 0)
    if (chosen.tokens == NO_TOKEN).any():
        row = int(chosen.tokens.argmin())
        raise InferenceError(f"row {row}: must have a token that is allowed, got none")
    return chosen


def _rows(choices: Sequence[Choice], classes: int) -> Rows:
    """Settings as the kernel takes them.

    Raises:
        IndexError: a change is of a token that the model has not
    """
    many = [(c.temperature, 1.0 if c.top_p is None else c.top_p, c.min_p, c.draw) for c in choices]
    floats = np.array(many, np.float64).reshape(-1, 4).T.copy()
    top_ks = np.array([c.top_k or _ALL for c in choices], np.int64)
    tops = np.array([-1 if c.top_logprobs is None else c.top_logprobs for c in choices], np.int64)
    starts = np.zeros(len(choices) + 1, np.int64)
    changes = [c.changes for c in choices if c.changes is not None]
    if changes:
        np.cumsum([0 if c.changes is None else len(c.changes.tokens) for c in choices], out=starts[1:])
    tokens = np.concatenate([change.tokens for change in changes]) if changes else np.zeros(0, np.int64)
    amounts = np.concatenate([change.amounts for change in changes]) if changes else np.zeros(0)
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < classes:
        outside = int(tokens[(tokens < 0) | (tokens >= classes)][0])
        raise IndexError(f"token: must be below {classes} and not negative, got {outside}")
    masked = [(k, choice.allowed) for k, choice in enumerate(choices) if choice.allowed is not None]
    mask_rows = np.full(len(choices), -1, np.int64)
    masks = np.zeros((len(masked), -(-classes // 8)), np.uint8)
    for number, (k, allowed) in enumerate(masked):
        mask_rows[k], masks[number] = number, allowed[: masks.shape[1]]
    return Rows(floats[0], floats[1], floats[2], floats[3], top_ks, tops, starts, tokens, amounts, mask_rows, masks)


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Args:
        temperature, top_k, top_p, min_p: as of `Choice`
        seed: of the draws

    Raises:
        InferenceError: a number is out of its range
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise InferenceError(
                f"temperature: must be 0 or more, got {self.temperature:g}", "0 takes the likeliest token every time"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InferenceError(f"top_k: must be at least 1, got {self.top_k}", "leave it out to draw from all tokens")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InferenceError(f"top_p: must be above 0 and at most 1, got {self.top_p:g}", "1 draws from all tokens")
        if not 0 <= self.min_p <= 1:
            raise InferenceError(f"min_p: must be 0 to 1, got {self.min_p:g}", "0 draws from all tokens")

    def choice(self, prompt: int, position: int) -> Choice:
        """The choice of a token.

        Args:
            prompt: number of the prompt
            position: of the token, in its sequence
        """
        if self.temperature == 0:
            return self._without_draw
        high, low, *_ = philox_block((position & 0xFFFFFFFF, prompt & 0xFFFFFFFF, 0, 0), self._key)
        return replace(self._without_draw, draw=((high << 32 | low) >> 11) * 2.0**-53)

    @cached_property
    def _without_draw(self) -> Choice:
        return Choice(self.temperature, self.top_k, self.top_p, self.min_p)

    @cached_property
    def _key(self) -> tuple[int, int]:
        """Of the draws."""
        return key_of(self.seed, "sampling")


@dataclass(frozen=True)
class Beams:
    """How wide a search is.

    Args:
        count: hypotheses that run side by side; 1 searches nothing
        length_penalty: the power of the length that log probabilities are divided by: more is for longer texts, 0
            compares the probabilities themselves

    Raises:
        InferenceError: a number is out of its range
    """

    count: int = 1
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_BEAMS:
            raise InferenceError(f"num_beams: must be 1 to {MOST_BEAMS}, got {self.count}")
        if not np.isfinite(self.length_penalty):
            raise InferenceError(f"length_penalty: must be a finite number, got {self.length_penalty:g}")


def likeliest(scaled: Array, count: int) -> Array:
    """Return the positions of so many largest numbers, ascending; of equal ones, the first."""
    if count >= len(scaled):
        return np.arange(len(scaled))
    least = np.partition(scaled, len(scaled) - count)[len(scaled) - count]
    above = np.flatnonzero(scaled > least)
    level = np.flatnonzero(scaled == least)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))
