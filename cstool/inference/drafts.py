"""Drafts: tokens that may follow, at no or little cost. A pass verifies several, and the tokens stay the same.

A pass over a few rows reads the weights once, as a pass over one does; so a right draft saves a pass where memory
bounds it.

Source: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", 2023, for the idea;
Saxena, "Prompt lookup decoding", 2023, for drafts out of the text itself. Acceptance is by equality: the draw of a
token depends on its position and the logits alone, so it is made as without drafts, and then compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cstool.inference.sequences import GRAM_TOKENS, TokenSequence

PASS_TOKENS = 8
"""tokens of a pass, drafts included, up to which a pass takes about as long as with one"""
MOST_DRAFTS = 7
"""tokens that are drafted at once for a sequence"""


class Drafts(Protocol):
    """A source of drafts."""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """Set the drafts of sequences whose next token is to be made; they may be none."""
        ...


class NoDrafts:
    """Drafts nothing."""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """See `Drafts.propose`."""


class LookedUp:
    """Drafts what followed the last tokens before: in the prediction of the request, or in the text so far."""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """See `Drafts.propose`."""
        room = PASS_TOKENS - len(sequences)
        for sequence in sequences:
            if (most := min(room, MOST_DRAFTS, sequence.draft_limit)) > 0:
                sequence.drafts = looked_up(sequence, most)
                room -= len(sequence.drafts)


def looked_up(sequence: TokenSequence, most: int) -> list[int]:
    """Return up to so many tokens that may follow, by what followed the last ones before."""
    prediction = list(sequence.request.prediction)
    made = sequence.made
    if prediction and prediction[: len(made)] == made:
        return prediction[len(made) : len(made) + most]
    for text, skip in ((prediction, 0), (sequence.tokens, 1)):
        index = sequence.grams(of_prediction=text is prediction)
        place = index.follows(text, sequence.tokens[-GRAM_TOKENS:], skip)
        if place is not None:
            return text[place : place + most]
    return []
