"""Beam search: of each prompt the likeliest continuations are followed side by side.

A hypothesis is a possible continuation of a prompt. In each pass, hypotheses that run have all next tokens as
candidates; the likeliest run on. One that ends is set aside with a score, its log probability divided by a power of its
length. The search of a prompt is over once as many have ended as there are beams, and the best that runs could not
beat the worst of them if it ended now.

Source: Wu et al., "Google's neural machine translation system", 2016, section 7, with the length itself in place of
their (5 + length) / 6, as Hugging Face's library has it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cstool.foundation.errors import InferenceError
from cstool.inference.sampling import likeliest
from cstool.inference.sequences import Finish, TokenSequence, next_logits
from cstool.inference.walk import Walk

Array = np.ndarray[Any, Any]

MOST_BEAMS = 256


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


class Hypothesis(NamedTuple):
    """A continuation that has ended."""

    prompt: int
    """number of its prompt"""
    tokens: list[int]
    """tokens that followed the prompt"""
    finish_reason: str
    score: float
    """log probability by length"""


@dataclass
class _Search:
    """The search of one prompt."""

    prompt: int
    slots: range
    """places in the cache that are its own"""
    running: list[TokenSequence]
    """the likeliest first"""
    scores: Array
    """(running,) float64: log probabilities"""
    ended: list[Hypothesis] = field(default_factory=list)
    """the best first"""
    is_over: bool = False

    def best(self) -> Hypothesis:
        """The best that ended; where none did, the likeliest that runs."""
        if self.ended:
            return self.ended[0]
        return Hypothesis(self.prompt, self.running[0].made, "interrupted", float(self.scores[0]))


def search(
    walk: Walk,
    prompts: Sequence[Sequence[int]],
    *,
    first_prompt: int = 0,
    max_tokens: int,
    beams: Beams,
    finish: Finish = lambda prompt, tokens: None,
    uses_cache: bool = True,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[list[Hypothesis]]:
    """Yield after each pass the best hypotheses of the prompts whose search ended with it; mostly there are none.

    A continuation depends on its prompt alone. Among equally likely candidates, the one of the better hypothesis comes
    first, then the one of the smaller token.

    Args:
        walk: has a cache with a slot for each beam of each prompt
        prompts: tokens, at least one and fewer than the capacity of the walk each
        first_prompt: number of the first
        max_tokens: of a hypothesis, at most; one also ends, by "context", where no position is left
        beams: how wide
        finish: ends hypotheses before that
        uses_cache: False computes every token again for each that follows, for comparison
        stopped: asked before each pass; True ends every search with the best that it has

    Raises:
        NonFiniteError: the logits are not finite
    """
    searches = [
        _Search(
            number := first_prompt + k,
            slots := range(k * beams.count, (k + 1) * beams.count),
            [TokenSequence(number, slots[0], list(tokens), len(tokens))],
            np.zeros(1),
        )
        for k, tokens in enumerate(prompts)
    ]
    while searches:
        running = [sequence for each in searches for sequence in each.running]
        if not uses_cache:
            for sequence in running:
                sequence.cached = 0
        logits = next_logits(walk, running, stopped)
        if logits is None:
            yield [each.best() for each in searches]
            return
        rows = iter(logits)
        for each in searches:
            _go_on(each, [next(rows) for _ in each.running], walk, beams, finish, max_tokens)
        yield [each.best() for each in searches if each.is_over]
        searches = [each for each in searches if not each.is_over]


def _go_on(search: _Search, logits: Sequence[Array], walk: Walk, beams: Beams, finish: Finish, max_tokens: int) -> None:
    """Take the next token of all hypotheses of a prompt."""
    totals = np.concatenate([score + _log_shares(row) for score, row in zip(search.scores, logits, strict=True)])
    # Should half of them end, as many are left to run on as there are beams.
    best = likeliest(totals, 2 * beams.count)
    best = best[np.argsort(-totals[best], kind="stable")]
    chosen: list[tuple[TokenSequence, int, float]] = []
    vocabulary = len(logits[0])
    for rank, (candidate, total) in enumerate(zip(best.tolist(), totals[best].tolist(), strict=True)):
        parent = search.running[candidate // vocabulary]
        grown = TokenSequence(
            search.prompt, parent.slot, [*parent.tokens, candidate % vocabulary], parent.prompt_length
        )
        reason = grown.reason_to_end(finish, max_tokens, walk.capacity)
        if reason is None:
            chosen.append((grown, parent.cached, total))
        elif rank < beams.count:
            score = total / len(grown.made) ** beams.length_penalty
            search.ended.append(Hypothesis(search.prompt, grown.made, reason, score))
    search.ended = sorted(search.ended, key=lambda each: -each.score)[: beams.count]
    chosen = chosen[: beams.count]
    search.is_over = not chosen or (
        len(search.ended) == beams.count
        and chosen[0][2] / len(chosen[0][0].made) ** beams.length_penalty <= search.ended[-1].score
    )
    if not search.is_over:
        _settle(search, [sequence for sequence, _, _ in chosen], [cached for _, cached, _ in chosen], walk)
        search.scores = np.array([total for _, _, total in chosen])


def _settle(search: _Search, chosen: Sequence[TokenSequence], cached: Sequence[int], walk: Walk) -> None:
    """Give each chosen hypothesis a slot with the keys and values of its parent: that one, or a copy of it."""
    parents = {sequence.slot for sequence in chosen}
    free = (slot for slot in search.slots if slot not in parents)
    taken = set()
    for sequence, tokens in zip(chosen, cached, strict=True):
        sequence.cached = tokens
        if sequence.slot in taken:
            slot = next(free)
            if walk.cache is not None:
                walk.cache.copy(sequence.slot, slot, tokens)
            sequence.slot = slot
        taken.add(sequence.slot)
    search.running = list(chosen)


def _log_shares(logits: Array) -> Array:
    """Logarithms of the probabilities of all tokens, float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted
