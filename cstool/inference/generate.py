"""From prompts to tokens: the prompts in a few wide passes, then one token of every sequence in each pass."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cstool.inference.sampling import Sampling
from cstool.inference.sequences import Finish, TokenSequence, next_logits
from cstool.inference.walk import Walk


class NewToken(NamedTuple):
    """A token that was chosen."""

    prompt: int
    """number of its prompt"""
    token: int
    finish_reason: str | None
    """why it is the last of its sequence; None where more follow"""


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
    """Yield the tokens that follow prompts, of all prompts by turns.

    A continuation depends on its prompt and the prompt's number alone: not on the prompts beside it, nor on the
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
    running = [
        TokenSequence(first_prompt + slot, slot, list(tokens), len(tokens)) for slot, tokens in enumerate(prompts)
    ]
    while running:
        if not uses_cache:
            for sequence in running:
                sequence.cached = 0
        logits = next_logits(walk, running, stopped)
        if logits is None:
            return
        still_running = []
        for sequence, row in zip(running, logits, strict=True):
            token = sampling.choose(row, sequence.prompt, len(sequence.tokens))
            sequence.tokens.append(token)
            reason = sequence.reason_to_end(finish, max_tokens, walk.capacity)
            yield NewToken(sequence.prompt, token, reason)
            if reason is None:
                still_running.append(sequence)
        running = still_running
