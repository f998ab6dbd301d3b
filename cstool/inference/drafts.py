"""Drafts: tokens that may follow, at no or little cost. A pass verifies several, and the tokens stay the same.

A pass over a few rows reads the weights once, as a pass over one does; so a right draft saves a pass where memory
bounds it.

Source: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", 2023, for the idea;
Saxena, "Prompt lookup decoding", 2023, for drafts out of the text itself. Acceptance is by equality: the draw of a
token depends on its position and the logits alone, so it is made as without drafts, and then compared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cstool.inference.passes import PASS_ROWS
from cstool.inference.sampling import Sampling, choose_tokens
from cstool.inference.sequences import GRAM_TOKENS, TokenSequence
from cstool.inference.walk import Walk
from cstool.training.kernels.cached_attention import News

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
                sequence.drafts, sequence.drafts_predicted = looked_up(sequence, most)
                room -= len(sequence.drafts)


class Predicted(LookedUp):
    """Drafts for requests with a prediction alone: others pay nothing."""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """See `Drafts.propose`."""
        super().propose([sequence for sequence in sequences if sequence.request.prediction])


def looked_up(sequence: TokenSequence, most: int) -> tuple[list[int], bool]:
    """Return up to so many tokens that may follow, as they followed the last ones before.

    Returns:
        They, and whether the request's prediction has them
    """
    prediction = list(sequence.request.prediction)
    made = sequence.made
    if prediction and prediction[: len(made)] == made:
        return prediction[len(made) : len(made) + most], True
    for text, skip in ((prediction, 0), (sequence.tokens, 1)):
        index = sequence.grams(of_prediction=text is prediction)
        place = index.follows(text, sequence.tokens[-GRAM_TOKENS:], skip)
        if place is not None:
            return text[place : place + most], text is prediction
    return [], False


@dataclass
class _Guess:
    """A text in the memory of the small model."""

    slot: int
    tokens: list[int]
    """whose keys and values are there"""


class Guessed:
    """Drafts the tokens that a smaller model of the same tokenizer would take, with the same random numbers.

    Where a text repeats itself, or is predicted, nothing is guessed.

    Args:
        walk: over the smaller model, of `PASS_TOKENS` sequences
    """

    def __init__(self, walk: Walk) -> None:
        self._walk, self._looked_up = walk, LookedUp()
        self._guesses: OrderedDict[int, _Guess] = OrderedDict()
        """by number of the prompt; the one that was used last is the last"""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """See `Drafts.propose`."""
        self._looked_up.propose(sequences)
        room = PASS_TOKENS - sum(1 + len(sequence.drafts) for sequence in sequences)
        left = [each for each in sequences if not each.drafts and each.draft_limit > 0][: max(0, room)]
        if not left:
            return
        most = room // len(left)
        for ahead in range(most):
            left = [each for each in left if len(each.drafts) == ahead < each.draft_limit]
            self._go_on([each for each in left if len(each.tokens) + ahead < self._walk.capacity])

    def _go_on(self, sequences: Sequence[TokenSequence]) -> None:
        """Add a draft to each."""
        for sequence in sequences:
            guess, text = self._guess(sequence), [*sequence.tokens, *sequence.drafts]
            # All but a few tokens are there; what a prompt has more goes through passes of its own.
            for begin in range(len(guess.tokens), len(text) - 1, PASS_ROWS):
                self._run([(guess, text[begin : min(begin + PASS_ROWS, len(text) - 1)])], [])
        if sequences:
            pieces = [(self._guess(each), [*each.tokens, *each.drafts][-1:]) for each in sequences]
            logits = self._run(pieces, range(len(pieces)))
            choices = []
            for each in sequences:
                assert isinstance(each.request.choice, Sampling)
                choices.append(each.request.choice.choice(each.request.draw_key, len(each.tokens) + len(each.drafts)))
            for each, token in zip(sequences, choose_tokens(logits, choices).tokens.tolist(), strict=True):
                each.drafts.append(token)

    def _run(self, pieces: Sequence[tuple[_Guess, list[int]]], wanted: Sequence[int]) -> np.ndarray:
        """Run next tokens of texts; return the logits of some rows."""
        slots, before = [guess.slot for guess, _ in pieces], [len(guess.tokens) for guess, _ in pieces]
        counts = [len(tokens) for _, tokens in pieces]
        ids = [token for _, tokens in pieces for token in tokens]
        for guess, tokens in pieces:
            guess.tokens += tokens
        if len(wanted) == len(ids):
            return self._walk.next(ids, slots, before)
        inputs = {self._walk.ids: np.array(ids, np.int32)}
        return self._walk.run(inputs, News.of(slots, counts, before), np.array(wanted, np.int64))

    def _guess(self, sequence: TokenSequence) -> _Guess:
        """The memory of a sequence, as far as it has its tokens."""
        number = sequence.request.prompt
        if (guess := self._guesses.get(number)) is None:
            if len(self._guesses) == PASS_TOKENS:
                _, last = self._guesses.popitem(last=False)
                self._walk.memory.close(last.slot)
            guess = self._guesses[number] = _Guess(self._walk.memory.open(), [])
        self._guesses.move_to_end(number)
        text = [*sequence.tokens, *sequence.drafts]
        # The last token is run anew in any case.
        same = min(len(guess.tokens), len(text) - 1)
        while guess.tokens[:same] != text[:same]:
            same -= 1
        del guess.tokens[same:]
        return guess
