"""From prompts to tokens: the prompts in a few wide passes, then one token of every sequence in each pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cstool.errors import NonFiniteError
from cstool.inference.sampling import Sampling
from cstool.inference.walk import Walk
from cstool.kernels.cached_attention import News

PASS_ROWS = 512
"""most tokens of a pass: enough for products as fast as they get, few enough for activations to stay small"""

Finish = Callable[[int, Sequence[int]], str | None]
"""says for the number of a prompt, and the tokens that followed it so far, why the last of them is the last"""


class NewToken(NamedTuple):
    """A token that was chosen."""

    prompt: int
    """number of its prompt"""
    token: int
    finish_reason: str | None
    """why it is the last of its sequence; None where more follow"""


@dataclass
class _Sequence:
    """A prompt and what followed it so far."""

    prompt: int
    slot: int
    """its place in the cache"""
    tokens: list[int]
    prompt_length: int
    cached: int = 0
    """tokens whose keys and values are in the cache"""


def generate(
    walk: Walk,
    prompts: Sequence[Sequence[int]],
    *,
    first_prompt: int = 0,
    max_tokens: int,
    sampling: Sampling,
    finish: Finish = lambda prompt, tokens: None,
    uses_cache: bool = True,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[NewToken]:
    """Yield the tokens that follow prompts, those of all prompts by turns.

    What follows a prompt depends on it and its number, and on nothing else: not on the prompts beside it, nor on the
    cache or the number of threads.

    Args:
        walk: has a cache with a slot for each prompt
        prompts: tokens, at least one and fewer than the capacity of the walk each
        first_prompt: number of the first
        max_tokens: that follow each, at most; a sequence also ends, by "context", where no position is left
        sampling: how tokens are chosen
        finish: ends sequences before that
        uses_cache: False computes every token again for each that follows, for comparison
        stopped: asked before each pass; True ends everything

    Raises:
        NonFiniteError: the logits are not finite
    """
    running = [_Sequence(first_prompt + slot, slot, list(tokens), len(tokens)) for slot, tokens in enumerate(prompts)]
    while running:
        if not uses_cache:
            for sequence in running:
                sequence.cached = 0
        logits = _advance(walk, running, stopped)
        if logits is None:
            return
        still_running = []
        for sequence, row in zip(running, logits, strict=True):
            if not np.isfinite(row).all():
                raise NonFiniteError(
                    f"prompt {sequence.prompt + 1}, token {len(sequence.tokens)}: the logits must be finite, got "
                    f"{row[~np.isfinite(row)][0]}",
                    "the checkpoint may be of a run that went astray: cstool checkpoint verify, or an earlier one",
                )
            token = sampling.choose(row, sequence.prompt, len(sequence.tokens))
            sequence.tokens.append(token)
            made = sequence.tokens[sequence.prompt_length :]
            reason = finish(sequence.prompt, made)
            if reason is None and len(made) >= max_tokens:
                reason = "length"
            if reason is None and len(sequence.tokens) >= walk.capacity:
                reason = "context"
            yield NewToken(sequence.prompt, token, reason)
            if reason is None:
                still_running.append(sequence)
        running = still_running


def _advance(walk: Walk, sequences: Sequence[_Sequence], stopped: Callable[[], bool]) -> list[np.ndarray] | None:
    """Run what each sequence has that is not in the cache; return the logits of its last token, None if it gave up."""
    pieces: list[tuple[_Sequence, int]] = []
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
    return [logits[sequence.slot] for sequence in sequences]


def _pass(walk: Walk, pieces: Sequence[tuple[_Sequence, int]]) -> dict[int, np.ndarray]:
    """Run so many next tokens of each sequence; return the logits, by slot, of those that are at their end."""
    counts = np.array([count for _, count in pieces], np.int64)
    starts = np.cumsum(counts) - counts
    slots = np.array([sequence.slot for sequence, _ in pieces], np.int64)
    news = News(slots, starts, counts, np.array([sequence.cached for sequence, _ in pieces], np.int64))
    parts = [sequence.tokens[sequence.cached : sequence.cached + count] for sequence, count in pieces]
    ids = np.array([token for part in parts for token in part], np.int32)
    for sequence, count in pieces:
        sequence.cached += count
    done = [k for k, (sequence, _) in enumerate(pieces) if sequence.cached == len(sequence.tokens)]
    found = walk.run({"input_ids": ids}, news, (starts + counts - 1)[done])
    return {pieces[k][0].slot: row for k, row in zip(done, found, strict=True)}
