"""Beam search: of each prompt the likeliest continuations are followed side by side.

A hypothesis is a possible continuation of a prompt. In each pass, hypotheses that run have all next tokens as
candidates; the likeliest run on. One that ends is set aside with a score, its log probability divided by a power of its
length. The search of a prompt is over once as many have ended as there are beams, and the best that runs could not
beat the worst of them if it ended now.

Source: Wu et al., "Google's neural machine translation system", 2016, section 7, with the length itself in place of
their (5 + length) / 6, as Hugging Face's library has it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cstool.inference.sampling import Beams, likeliest
from cstool.inference.sequences import Made, TokenRequest, TokenSequence
from cstool.inference.walk import Walk

Array = np.ndarray[Any, Any]


class Search:
    """The search of one prompt.

    A continuation depends on its prompt alone. Among equally likely candidates, the one of the better hypothesis comes
    first, then the one of the smaller token.

    Args:
        request: its choice is `Beams`
        walk: its memory has a slot for each beam
    """

    def __init__(self, request: TokenRequest, walk: Walk) -> None:
        assert isinstance(request.choice, Beams)
        self.request, self._walk, self._beams = request, walk, request.choice
        self.running = [TokenSequence(request, walk.memory.open(request.source), list(request.tokens))]
        """hypotheses, the likeliest first"""
        self._scores: Array = np.zeros(1)
        """(running,) float64: log probabilities"""
        self._ended: list[Made] = []
        """the best first"""

    def go_on(self, logits: Sequence[Array]) -> list[Made]:
        """Take the next token of all hypotheses; return the best one where the search is over."""
        totals = np.concatenate([score + _log_shares(row) for score, row in zip(self._scores, logits, strict=True)])
        # Should half of them end, as many are left to run on as there are beams.
        best = likeliest(totals, 2 * self._beams.count)
        best = best[np.argsort(-totals[best], kind="stable")]
        chosen: list[tuple[TokenSequence, float]] = []
        vocabulary = len(logits[0])
        for rank, (candidate, total) in enumerate(zip(best.tolist(), totals[best].tolist(), strict=True)):
            parent = self.running[candidate // vocabulary]
            tokens = [*parent.tokens, candidate % vocabulary]
            grown = TokenSequence(self.request, parent.slot, tokens, parent.cached)
            reason = grown.reason_to_end(self._walk.capacity)
            if reason is None:
                chosen.append((grown, total))
            elif rank < self._beams.count:
                self._ended.append(Made(self.request.prompt, grown.made, reason, self._score(grown, total)))
        self._ended = sorted(self._ended, key=lambda each: -each.score)[: self._beams.count]
        chosen = chosen[: self._beams.count]
        has_enough = len(self._ended) == self._beams.count
        if not chosen or (has_enough and self._score(*chosen[0]) <= self._ended[-1].score):
            return [self._best()]
        self._settle([sequence for sequence, _ in chosen])
        self._scores = np.array([total for _, total in chosen])
        return []

    def cut_short(self) -> Made:
        """End it here, with the best that ended; where none did, with the likeliest that runs."""
        return self._best()

    def _best(self) -> Made:
        likeliest_now, score = self.running[0], float(self._scores[0])
        self._settle([])
        return self._ended[0] if self._ended else Made(self.request.prompt, likeliest_now.made, "interrupted", score)

    def _score(self, sequence: TokenSequence, total: float) -> float:
        return float(total / len(sequence.made) ** self._beams.length_penalty)

    def _settle(self, chosen: list[TokenSequence]) -> None:
        """Let chosen hypotheses run on, each with a slot that has the tokens of its parent: that one, or a copy."""
        memory, parents, taken = self._walk.memory, {sequence.slot for sequence in chosen}, set()
        for sequence in self.running:
            if sequence.slot not in parents:
                memory.close(sequence.slot)
        for sequence in chosen:
            if sequence.slot in taken:
                sequence.slot = memory.fork(sequence.slot, sequence.cached)
            taken.add(sequence.slot)
        self.running = chosen


def _log_shares(logits: Array) -> Array:
    """Logarithms of the probabilities of all tokens, float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted
