"""The choice of tokens: beside a slow twin, ranges, limits, ties, changes of logits, log probabilities, and draws."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import InferenceError
from cstool.inference.sampling import Changes, Choice, Chosen, Sampling, choose_tokens, likeliest
from cstool.inference.team import Team
from tests.examples import examples

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
GREEDY_HINT = "\nhint: 0 takes the likeliest token every time"


def changed(logits: np.ndarray, choice: Choice) -> np.ndarray:
    """Logits with changes and mask, the slow way."""
    found = logits.copy()
    for token, amount in zip(*(choice.changes or ([], [])), strict=True):
        found[token] = np.float32(np.float64(found[token]) + amount)
    if choice.allowed is not None:
        found[~np.unpackbits(choice.allowed, count=len(found), bitorder="little").astype(bool)] = -np.inf
    return found


def distribution(logits: np.ndarray, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that are drawn from in the order of draws, and their weights: a slow twin of the kernel."""
    scaled = changed(logits, choice).astype(np.float64)
    with np.errstate(over="ignore"):
        scaled = (scaled - scaled.max()) / choice.temperature
    tokens = np.arange(len(scaled)) if choice.top_k is None else likeliest(scaled, choice.top_k)
    weights = np.exp(scaled[tokens])
    if choice.top_p is not None and choice.top_p < 1:
        order = np.argsort(-scaled[tokens], kind="stable")
        enough = int(np.searchsorted(np.cumsum(weights[order]), choice.top_p * weights.sum())) + 1
        tokens, weights = tokens[order[:enough]], weights[order[:enough]]
    return tokens, np.where(weights >= choice.min_p, weights, 0)


def slow_choice(logits: np.ndarray, choice: Choice) -> set[int]:
    """The token; of a draw next to the border of two tokens, both."""
    if choice.temperature == 0:
        return {int(changed(logits, choice).argmax())}
    tokens, weights = distribution(logits, choice)
    sums = weights.cumsum()
    aims = choice.draw * sums[-1] * (1 + np.array([-1e-12, 1e-12])) + np.array([-1e-300, 1e-300])
    return {int(tokens[min(int(sums.searchsorted(aim, side="right")), np.flatnonzero(weights)[-1])]) for aim in aims}


def chosen_alone(logits: np.ndarray, choice: Choice) -> int:
    return int(choose_tokens(logits[None], [choice]).tokens[0])


@st.composite
def choices(draw: Callable[..., Any], classes: int) -> Choice:
    """Any choice among so many tokens."""
    changes = draw(st.lists(st.tuples(st.integers(0, classes - 1), st.floats(-9, 9)), max_size=4))
    amounts = Changes(np.array([t for t, _ in changes], np.int64), np.array([a for _, a in changes], np.float64))
    mask = draw(st.lists(st.booleans(), min_size=classes, max_size=classes))
    mask[draw(st.integers(0, classes - 1))] = True
    return Choice(
        temperature=draw(st.sampled_from([0.0, 1e-310, 0.3, 1.0, 1.7])),
        top_k=draw(st.none() | st.integers(1, classes + 2)),
        top_p=draw(st.none() | st.floats(0.01, 1.0)),
        min_p=draw(st.sampled_from([0.0, 0.2, 1.0])),
        draw=draw(st.floats(0, 1, exclude_max=True)),
        changes=draw(st.sampled_from([None, amounts])),
        allowed=draw(st.sampled_from([None, np.packbits(mask, bitorder="little")])),
        top_logprobs=draw(st.sampled_from([None, 0, 1, 5])),
    )


@st.composite
def batches(draw: Callable[..., Any]) -> tuple[np.ndarray, list[Choice]]:
    """Rows of logits with many equal ones, and their choices."""
    classes = draw(st.sampled_from([1, 5, 31, 64, 200, 700]))
    seed, levels = draw(st.integers(0, 2**32)), draw(st.sampled_from([2, 30, 10**6]))
    found = draw(st.lists(choices(classes), min_size=1, max_size=4))
    integers = np.random.default_rng(seed).integers(-levels, levels, (len(found), classes))
    return (integers / np.float32(levels / 6)).astype(np.float32), found


@examples(150)
@given(batch=batches())
def test_tokens_are_the_slow_twins(batch):
    logits, asked = batch
    found = choose_tokens(logits, asked)
    for token, row, choice in zip(found.tokens, logits, asked, strict=True):
        assert int(token) in slow_choice(row, choice)


@examples(40)
@given(batch=batches())
def test_a_row_alone_has_the_bits_that_it_has_beside_others(batch):
    logits, asked = batch
    whole = choose_tokens(logits, asked)
    for k, choice in enumerate(asked):
        alone = choose_tokens(logits[k : k + 1], [choice])
        most = alone.top_tokens.shape[1]
        np.testing.assert_array_equal(alone.tokens, whole.tokens[k : k + 1])
        np.testing.assert_array_equal(alone.logprobs, whole.logprobs[k : k + 1])
        np.testing.assert_array_equal(alone.top_tokens, whole.top_tokens[k : k + 1, :most])
        np.testing.assert_array_equal(alone.top_logprobs, whole.top_logprobs[k : k + 1, :most])


def test_threads_share_rows_and_change_none():
    logits = np.random.default_rng(1).standard_normal((5, 9000), np.float32)
    asked = [Choice(0.5 + 0.1 * k, top_p=0.9, draw=0.17 * k, top_logprobs=k) for k in range(5)]
    team = Team(2)
    try:
        shared = choose_tokens(logits, asked, team)
    finally:
        team.close()
    for one, two in zip(shared, choose_tokens(logits, asked), strict=True):
        np.testing.assert_array_equal(one, two)


def draws(choice: Callable[[int], Choice], count: int) -> np.ndarray:
    """The share of each of the tokens of `LOGITS` among so many draws."""
    found = choose_tokens(np.tile(LOGITS, (count, 1)), [choice(k) for k in range(count)])
    return np.bincount(found.tokens, minlength=len(LOGITS)) / count


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        ({"top_k": 2}, {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        ({"top_k": 9}, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        ({"top_p": 0.4}, {1: 1.0}),
        ({"top_p": 0.5}, {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        ({"top_p": 1.0}, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}),
        # The share is of those that top_k leaves.
        ({"top_k": 3, "top_p": 0.7}, {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        ({"temperature": 0.5, "top_k": 2}, {1: 0.16 / 0.2225, 3: 0.0625 / 0.2225}),
        ({"min_p": 0.55}, {1: 0.4 / 0.65, 3: 0.25 / 0.65}),
        ({"min_p": 0.3, "top_p": 0.7}, {1: 0.4 / 0.85, 3: 0.25 / 0.85, 4: 0.2 / 0.85}),
    ],
)
def test_what_is_drawn_from(keys, expected):
    found = draws(lambda k: Choice(draw=(k + 0.5) / 1000, **keys), 1000)
    assert found == pytest.approx([expected.get(t, 0.0) for t in range(5)], abs=0.0011)


def test_of_equally_likely_tokens_the_first_are_in():
    level = np.zeros((50, 6), np.float32)
    steps = [k / 50 for k in range(50)]
    assert set(choose_tokens(level, [Choice(top_k=2, draw=draw) for draw in steps]).tokens.tolist()) == {0, 1}
    assert set(choose_tokens(level, [Choice(top_p=0.49, draw=draw) for draw in steps]).tokens.tolist()) == {0, 1, 2}


def test_at_temperature_0_it_is_the_first_of_the_likeliest_and_of_the_list():
    logits = np.array([[-0.0, 1.0, 3.0, 3.0], [-2.0, -0.0, 0.0, -1.0]], np.float32)
    found = choose_tokens(logits, [Choice(0.0, top_logprobs=3)] * 2)
    assert found.tokens.tolist() == [2, 1]
    assert found.top_tokens.tolist() == [[2, 3, 1], [1, 2, 3]]
    np.testing.assert_array_equal(found.logprobs, found.top_logprobs[:, 0])


@examples(30)
@given(batch=batches())
def test_log_probabilities_are_of_the_model_alone(batch):
    logits, asked = batch
    found: Chosen = choose_tokens(logits, asked)
    for k, choice in enumerate(asked):
        exact = logits[k].astype(np.float64)
        exact -= exact.max() + np.log(np.exp(exact - exact.max()).sum())
        if choice.top_logprobs is None:
            assert np.isnan(found.logprobs[k])
        else:
            assert found.logprobs[k] == pytest.approx(exact[found.tokens[k]], rel=1e-6, abs=1e-6)
        count = min(choice.top_logprobs or 0, len(exact))
        best = np.argsort(-exact, kind="stable")[:count]
        assert found.top_tokens[k].tolist() == [*best.tolist(), *[-1] * (found.top_tokens.shape[1] - count)]
        assert np.isnan(found.top_logprobs[k, count:]).all()
        assert found.top_logprobs[k, :count] == pytest.approx(exact[best], rel=1e-6, abs=1e-6)
        at = np.flatnonzero(found.top_tokens[k] == found.tokens[k])
        np.testing.assert_array_equal(found.top_logprobs[k, at], [found.logprobs[k]] * len(at))


def test_penalties_and_biases_change_logits_as_openai_has_it():
    changes = Changes.of({4: 2.0, 1: -1.0}, {1: 3, 2: 0, 3: 1}, frequency_penalty=0.5, presence_penalty=0.25)
    logits = changed(np.zeros(5, np.float32), Choice(changes=changes))
    assert logits.tolist() == [0.0, -1.0 - 3 * 0.5 - 0.25, 0.0, -0.5 - 0.25, 2.0]
    assert chosen_alone(np.zeros(5, np.float32), Choice(0.0, changes=changes)) == 4


def test_a_mask_leaves_its_tokens():
    allowed = np.packbits([0, 0, 1, 0, 1], bitorder="little")
    assert draws(lambda k: Choice(draw=(k + 0.5) / 1000, allowed=allowed), 1000) == pytest.approx(
        [0, 0, 0.2, 0, 0.8], abs=0.0011
    )


def test_without_a_token_it_is_an_error():
    with pytest.raises(InferenceError) as caught:
        choose_tokens(np.stack([LOGITS] * 2), [Choice(), Choice(0.0, allowed=np.zeros(1, np.uint8))])
    assert str(caught.value) == "row 1: must have a token that is allowed, got none"


@pytest.mark.parametrize("token", [5, -1])
def test_a_change_of_no_token_is_an_error(token):
    with pytest.raises(IndexError) as caught:
        choose_tokens(LOGITS[None], [Choice(changes=Changes.of({1: 0.5, token: 1.0}))])
    assert str(caught.value) == f"token: must be below 5 and not negative, got {token}"


def test_next_to_no_temperature_leaves_the_likeliest():
    assert [chosen_alone(LOGITS, Choice(1e-310, draw=0.2 * k)) for k in range(5)] == [1] * 5


def test_draws_have_the_shares_of_the_distribution():
    sampling = Sampling(top_k=3, seed=5)
    tokens, weights = distribution(LOGITS, Choice(top_k=3))
    expected = dict(zip(tokens.tolist(), weights / weights.sum(), strict=True))
    # Four standard deviations of a share of 4,000 draws.
    drawn = draws(lambda k: sampling.choice(0, k), 4000)
    assert drawn == pytest.approx([expected.get(t, 0.0) for t in range(5)], abs=4 * 0.5 / 4000**0.5)


def test_a_draw_depends_on_seed_prompt_and_position_alone():
    def drawn(seed: int, prompt: int) -> list[float]:
        return [Sampling(seed=seed).choice(prompt, position).draw for position in range(30)]

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0)[::-1] == [Sampling(seed=1).choice(0, position).draw for position in reversed(range(30))]
    assert drawn(1, 0) != drawn(2, 0)
    assert drawn(1, 0) != drawn(1, 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"temperature": -0.5}, f"temperature: must be 0 or more, got -0.5{GREEDY_HINT}"),
        ({"temperature": float("nan")}, f"temperature: must be 0 or more, got nan{GREEDY_HINT}"),
        ({"top_k": 0}, "top_k: must be at least 1, got 0\nhint: leave it out to draw from all tokens"),
        ({"top_p": 0.0}, "top_p: must be above 0 and at most 1, got 0\nhint: 1 draws from all tokens"),
        ({"top_p": 1.5}, "top_p: must be above 0 and at most 1, got 1.5\nhint: 1 draws from all tokens"),
        ({"min_p": 1.5}, "min_p: must be 0 to 1, got 1.5\nhint: 0 draws from all tokens"),
    ],
)
def test_a_number_out_of_range_is_refused(keys, message):
    with pytest.raises(InferenceError) as caught:
        Sampling(**keys)  # type: ignore[arg-type]
    assert str(caught.value) == message
