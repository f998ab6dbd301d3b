"""Beam search beside a slow obvious one, and beside all texts there are."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import InferenceError
from cstool.inference.sampling import Beams
from cstool.inference.sequences import Finish, Made
from cstool.inference.walk import Walk
from tests.examples import examples
from tests.models import FAMILIES
from tests.unit.inference.machines import PROMPTS, decoded, logits_of, made, one_token, walking

PENALTIES = (-1.0, 0.0, 0.5, 0.8, 2.0)
END = 5


def at_end(tokens: Sequence[int]) -> str | None:
    return "end" if tokens[-1] % 4 == END % 4 else None


def found(walk: Walk, prompts: Sequence[Sequence[int]], count: int, beams: Beams, **keys: Any) -> list[Made]:
    return sorted(decoded(walk, prompts, count, beams, **keys), key=lambda each: each.prompt)


def log_shares(walk: Walk, tokens: Sequence[int]) -> np.ndarray:
    """Log probabilities of the token after each of these."""
    exact = logits_of(walk, tokens).astype(np.float64)
    return exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))


def slow_search(
    walk: Walk, prompt: Sequence[int], count: int, beams: Beams, finish: Finish = lambda tokens: None
) -> tuple[list[int], float]:
    """The tokens and the score of the best hypothesis; every probability is computed from the whole text."""
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    while running:
        candidates = [
            (total + share, [*text, token])
            for total, text in running
            for token, share in enumerate(log_shares(walk, [*prompt, *text])[-1])
        ]
        candidates.sort(key=lambda each: -each[0])
        running = []
        for rank, (total, text) in enumerate(candidates[: 2 * beams.count]):
            if finish(text) is None and len(text) < count:
                running.append((total, text))
            elif rank < beams.count:
                ended.append((total / len(text) ** beams.length_penalty, text))
        running = running[: beams.count]
        ended = sorted(ended, key=lambda each: -each[0])[: beams.count]
        if len(ended) == beams.count and running:
            total, text = running[0]
            if total / len(text) ** beams.length_penalty <= ended[-1][0]:
                break
    return ended[0][1], ended[0][0]


@pytest.mark.parametrize(("number", "name"), [*enumerate(FAMILIES)])
def test_it_finds_what_the_slow_search_finds(number, name):
    beams = Beams(2 + number % 4, PENALTIES[number % 5])
    with walking(one_token(layers=2, sequence=16, **FAMILIES[name]), sequences=15, capacity=16) as (walk, _):
        best = found(walk, PROMPTS, 5, beams, finish=at_end)
        slow = [slow_search(walk, prompt, 5, beams, at_end) for prompt in PROMPTS]
        assert best == found(walk, PROMPTS, 5, beams, finish=at_end, uses_cache=False)
    assert [each.tokens for each in best] == [tokens for tokens, _ in slow]
    np.testing.assert_allclose([each.score for each in best], [score for _, score in slow], rtol=1e-12)


@examples(50)
@given(count=st.integers(2, 6), penalty=st.sampled_from(PENALTIES), order=st.permutations(range(3)))
def test_prompts_beside_it_change_nothing(walk, count, penalty, order):
    beams = Beams(count, penalty)
    together = found(walk, [PROMPTS[k] for k in order], 6, beams, finish=at_end)
    for k, each in zip(order, together, strict=True):
        (alone,) = found(walk, [PROMPTS[k]], 6, beams, finish=at_end)
        assert alone[1:] == each[1:]


def test_with_as_many_beams_as_tokens_it_finds_the_likeliest_of_all_texts(walk):
    vocabulary = walk.classes
    (best,) = found(walk, [[1, 2]], 2, Beams(vocabulary))
    shares = {
        (a, b): first[a] + second
        for first in [log_shares(walk, [1, 2])[-1]]
        for a in range(vocabulary)
        for b, second in enumerate(log_shares(walk, [1, 2, a])[-1])
    }
    assert set(shares) == set(product(range(vocabulary), repeat=2))
    assert tuple(best.tokens) == max(shares, key=shares.__getitem__)
    assert best.score == pytest.approx(max(shares.values()) / 2, rel=1e-12)


def test_one_beam_is_the_likeliest_token_every_time(walk):
    assert [each.tokens for each in found(walk, PROMPTS, 6, Beams(1))] == made(walk, PROMPTS, 6)


def test_why_hypotheses_end():
    with walking(one_token(sequence=16), sequences=6, capacity=8) as (walk, _):
        reasons = [each.finish_reason for each in found(walk, [[1], [1] * 6], 4, Beams(2))]
        assert reasons == ["length", "context"]
        (ended,) = found(walk, [[1]], 4, Beams(2), finish=lambda tokens: "stop")
        assert (ended.finish_reason, len(ended.tokens)) == ("stop", 1)
        asked = iter([False, False, True])
        (cut,) = found(walk, [[1]], 4, Beams(2), stopped=lambda: next(asked))
        assert (cut.finish_reason, len(cut.tokens)) == ("interrupted", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "num_beams: must be 1 to 256, got 0"),
        ((257,), "num_beams: must be 1 to 256, got 257"),
        ((2, float("nan")), "length_penalty: must be a finite number, got nan"),
    ],
)
def test_what_cannot_be_searched(arguments, message):
    with pytest.raises(InferenceError) as refused:
        Beams(*arguments)
    assert str(refused.value) == message
