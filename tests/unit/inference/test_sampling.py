"""The choice of a token: ranges, limits, ties, and what a draw depends on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import InferenceError
from cstool.inference import sampling
from cstool.inference.sampling import Sampling

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
GREEDY_HINT = "\nhint: 0 takes the likeliest token every time"


def shares(found: tuple[np.ndarray, np.ndarray]) -> dict[int, float]:
    tokens, weights = found
    return {int(t): float(w) for t, w in zip(tokens, weights / weights.sum(), strict=True)}


def test_at_temperature_0_it_is_the_first_of_the_likeliest():
    assert Sampling(0.0).choose(np.array([1.0, 3.0, 3.0], np.float32), 0, 0) == 1


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Sampling(), {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        (Sampling(top_k=2), {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        (Sampling(top_k=9), {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        (Sampling(top_p=0.4), {1: 1.0}),
        (Sampling(top_p=0.5), {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        (Sampling(top_p=1.0), {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        # The share is of those that top_k leaves.
        (Sampling(top_k=3, top_p=0.7), {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        (Sampling(temperature=0.5, top_k=2), {1: 0.16 / 0.2225, 3: 0.0625 / 0.2225}),
    ],
)
def test_what_is_drawn_from(chosen, expected):
    assert shares(chosen.distribution(LOGITS)) == pytest.approx(expected, abs=1e-6)


def test_of_equally_likely_tokens_the_first_are_in():
    level = np.zeros(6, np.float32)
    assert set(shares(Sampling(top_k=2).distribution(level))) == {0, 1}
    assert set(shares(Sampling(top_p=0.49).distribution(level))) == {0, 1, 2}


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=40), st.floats(0.01, 1.0), st.integers(1, 45))
def test_looking_at_the_likeliest_few_first_changes_nothing(levels, top_p, top_k):
    logits = np.array(levels, np.float32)
    chosen = Sampling(top_p=top_p, top_k=top_k)
    whole = chosen.distribution(logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "FEW", 3)
        few = chosen.distribution(logits)
    for a, b in zip(whole, few, strict=True):
        np.testing.assert_array_equal(a, b)


def test_next_to_no_temperature_leaves_the_likeliest():
    assert [Sampling(1e-310).choose(LOGITS, 0, position) for position in range(5)] == [1] * 5


def test_draws_have_the_shares_of_the_distribution():
    chosen = Sampling(top_k=3, seed=5)
    drawn = np.bincount([chosen.choose(LOGITS, 0, position) for position in range(4000)], minlength=5) / 4000
    expected = shares(chosen.distribution(LOGITS))
    # Four standard deviations of a share of 4,000 draws.
    assert drawn == pytest.approx([expected.get(t, 0.0) for t in range(5)], abs=4 * 0.5 / 4000**0.5)


def test_a_draw_depends_on_seed_prompt_and_position_alone():
    def draws(seed: int, prompt: int) -> list[int]:
        return [Sampling(seed=seed).choose(LOGITS, prompt, position) for position in range(30)]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0)[::-1] == [Sampling(seed=1).choose(LOGITS, 0, position) for position in reversed(range(30))]
    assert draws(1, 0) != draws(2, 0)
    assert draws(1, 0) != draws(1, 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"temperature": -0.5}, f"temperature: must be 0 or more, got -0.5{GREEDY_HINT}"),
        ({"temperature": float("nan")}, f"temperature: must be 0 or more, got nan{GREEDY_HINT}"),
        ({"top_k": 0}, "top_k: must be at least 1, got 0\nhint: leave it out to draw from all tokens"),
        ({"top_p": 0.0}, "top_p: must be above 0 and at most 1, got 0\nhint: 1 draws from all tokens"),
        ({"top_p": 1.5}, "top_p: must be above 0 and at most 1, got 1.5\nhint: 1 draws from all tokens"),
    ],
)
def test_a_number_out_of_range_is_refused(keys, message):
    with pytest.raises(InferenceError) as caught:
        Sampling(**keys)  # type: ignore[arg-type]
    assert str(caught.value) == message
