"""Sequences that are being made: their tokens, their place in the cache, and the passes that fill it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cstool.foundation.errors import NonFiniteError
from cstool.inference.walk import Walk
from cstool.training.kernels.cached_attention import News

PASS_ROWS = 512
"""most tokens of a pass: enough for products as fast as they get, few enough for activations to stay small"""

Finish = Callable[[int, Sequence[int]], str | None]
"""says for the number of a prompt, and the tokens that followed it so far, why the last of them is the last"""


@dataclass
class TokenSequence:
    """A prompt and the tokens that followed it so far."""

    prompt: int
    """its number"""
    slot: int
    """its place in the cache"""
    tokens: list[int]
    prompt_length: int
    cached: int = 0
    """tokens whose keys and values are in the cache"""

    @property
    def made(self) -> list[int]:
        """The tokens that followed the prompt."""
        return self.tokens[self.prompt_length :]

    def reason_to_end(self, finish: Finish, max_tokens: int, capacity: int) -> str | None:
        """Why its last token is the last; None where more may follow.

        Args:
            finish: asked first
            max_tokens: that follow the prompt at most
            capacity: most tokens of a sequence
        """
        made = self.made
        if (reason := finish(self.prompt, made)) is not None:
            return reason
        if len(made) >= max_tokens:
            return "length"
        return "context" if len(self.tokens) >= capacity else None


def next_logits(walk: Walk, sequences: Sequence[TokenSequence], stopped: Callable[[], bool]) -> list[np.ndarray] | None:
    """Run the tokens of each sequence that are not in the cache.

    Returns:
        the logits of the last token of each, (V,) float32; None where `stopped` said so before a pass

    Raises:
        NonFiniteError: a logit is not finite
    """
    pieces: list[tuple[TokenSequence, int]] = []
    logits: dict[int, np.ndarray] = {}
    room = PASS_ROWS
    for sequence in sequences:
        todo = len(sequence.tokens) - sequence.cached
        while todo:
            count = min(todo, room)
            pieces.append((sequence, count))
            todo, room = todo - count, room - count
            if not room:
                if stopped():
                    return None
                logits.update(_pass(walk, pieces))
                pieces, room = [], PASS_ROWS
    if stopped():
        return None
    if pieces:
        logits.update(_pass(walk, pieces))
    found = [logits[sequence.slot] for sequence in sequences]
    for sequence, row in zip(sequences, found, strict=True):
        if not np.isfinite(row).all():
            raise NonFiniteError(
                f"prompt {sequence.prompt + 1}, token {len(sequence.tokens)}: the logits must be finite, got "
                f"{row[~np.isfinite(row)][0]}",
                "the checkpoint may be of a run that went astray: cstool checkpoint verify, or an earlier one",
            )
    return found


def _pass(walk: Walk, pieces: Sequence[tuple[TokenSequence, int]]) -> dict[int, np.ndarray]:
    """Run so many next tokens of each sequence; return the logits, by slot, of sequences that are at their end."""
    counts = np.array([count for _, count in pieces], np.int64)
    starts = np.cumsum(counts) - counts
    slots = np.array([sequence.slot for sequence, _ in pieces], np.int64)
    news = News(slots, starts, counts, np.array([sequence.cached for sequence, _ in pieces], np.int64))
    parts = [sequence.tokens[sequence.cached : sequence.cached + count] for sequence, count in pieces]
    ids = np.array([token for part in parts for token in part], np.int32)
    for sequence, count in pieces:
        sequence.cached += count
    done = [k for k, (sequence, _) in enumerate(pieces) if sequence.cached == len(sequence.tokens)]
    found = walk.run({walk.ids: ids}, news, (starts + counts - 1)[done])
    return {pieces[k][0].slot: row for k, row in zip(done, found, strict=True)}
