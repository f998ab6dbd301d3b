"""The choice of tokens by their logits: draws of the next one, or a search for the likeliest of all.

A draw is keyed by the seed, the number of the prompt and the position, so it does not depend on other requests, nor on
their order.

Source: Fan, Lewis, Dauphin, "Hierarchical neural story generation", 2018, section 5.3 (top_k); Holtzman et al., "The
curious case of neural text degeneration", 2020, section 3.1 (top_p).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cstool.foundation.errors import InferenceError
from cstool.foundation.random_keys import key_of, philox_block

Array = np.ndarray[Any, Any]

MOST_BEAMS = 256
FEW = 1024
"""likeliest tokens that are looked at first for `top_p`; mostly they suffice, and the others are not sorted"""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Args:
        temperature: logits are divided by it; 0 takes the likeliest token, the first of several
        top_k: only so many of the likeliest tokens are drawn from; None for all
        top_p: only the likeliest tokens that together have this probability; None for all
        seed: of the draws

    Raises:
        InferenceError: a number is out of its range
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise InferenceError(
                f"temperature: must be 0 or more, got {self.temperature:g}", "0 takes the likeliest token every time"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InferenceError(f"top_k: must be at least 1, got {self.top_k}", "leave it out to draw from all tokens")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InferenceError(f"top_p: must be above 0 and at most 1, got {self.top_p:g}", "1 draws from all tokens")

    def choose(self, logits: Array, prompt: int, position: int) -> int:
        """Return the next token.

        Args:
            logits: (V,) float32, finite
            prompt: number of the prompt
            position: of the token, in its sequence
        """
        if self.temperature == 0:
            return int(logits.argmax())
        tokens, shares = self.distribution(logits)
        high, low, *_ = philox_block((position & 0xFFFFFFFF, prompt & 0xFFFFFFFF, 0, 0), self._key)
        draw = ((high << 32 | low) >> 11) * 2.0**-53
        sums = shares.cumsum()
        place = min(int(sums.searchsorted(draw * sums[-1], side="right")), len(sums) - 1)
        return int(tokens[place])

    @cached_property
    def _key(self) -> tuple[int, int]:
        """Of the draws."""
        return key_of(self.seed, "sampling")

    def distribution(self, logits: Array) -> tuple[Array, Array]:
        """Return the tokens that are drawn from, and their weights, which need not add up to 1.

        Where a limit falls between equally likely tokens, the tokens with smaller numbers are in.
        """
        scaled = logits.astype(np.float64)
        scaled -= scaled.max()
        if self.temperature < 1:
            # Of a temperature next to nothing the likeliest token is left, at 0, and all others at minus infinity.
            with np.errstate(over="ignore"):
                scaled /= self.temperature
        elif self.temperature > 1:
            scaled /= self.temperature
        tokens = np.arange(len(scaled))
        if self.top_k is not None:
            tokens = likeliest(scaled, self.top_k)
            scaled = scaled[tokens]
        if self.top_p is None or self.top_p == 1:
            return tokens, np.exp(scaled)
        total = np.exp(scaled).sum()
        for count in (FEW, len(tokens)):
            places = likeliest(scaled, count)
            places = places[np.argsort(-scaled[places], kind="stable")]
            sums = np.cumsum(np.exp(scaled[places]))
            enough = int(np.searchsorted(sums, self.top_p * total)) + 1
            if enough <= len(places):
                break
        return tokens[places[:enough]], np.exp(scaled[places[:enough]])


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
