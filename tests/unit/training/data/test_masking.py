"""Masks of masked language models."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.random_keys import key_of, philox4x32
from cstool.training.data.masking import Masking
from tests.examples import examples

MASK_ID = 4
SPECIAL = 5
"""ids below it are excluded: [PAD], [UNK], [CLS], [SEP], [MASK]"""


def masking(vocab_size=50, *, predictions=6, probability=0.15, words=False, seed=1) -> Masking:
    """Of the tokens above the special ones, those divisible by 3 go on with a word."""
    ids = np.arange(vocab_size)
    continues = (ids % 3 == 0) & (ids >= SPECIAL)
    return Masking(predictions, probability, MASK_ID, ids < SPECIAL, continues if words else None, seed)


def slow_twin(how: Masking, tokens: list[int], sample: int, epoch: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Mask one sample, one draw at a time; return its tokens, and (position, label) of each masked one."""

    def draw(position: int) -> list[int]:
        counter = np.array([[sample % 2**32, sample // 2**32, epoch, position]], np.uint32)
        return philox4x32(counter, key_of(how.seed, "masked tokens"))[0].tolist()

    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        if how.excluded[token]:
            continue
        goes_on = how.continues is not None and how.continues[token]
        if goes_on and words and words[-1][-1] == position - 1:
            words[-1].append(position)
        else:
            words.append([position])
    words.sort(key=lambda word: min(draw(position)[0] for position in word))
    wanted = min(how.predictions, max(1, round(len(tokens) * how.probability)))
    chosen: list[int] = []
    for word in words:
        if len(chosen) < wanted and len(chosen) + len(word) <= how.predictions:
            chosen += word
    allowed = [token for token in range(len(how.excluded)) if not how.excluded[token]]
    masked = list(tokens)
    for position in chosen:
        _, kind, which, _ = draw(position)
        if kind < round(0.8 * 2**32):
            masked[position] = MASK_ID
        elif kind < round(0.9 * 2**32):
            masked[position] = allowed[which * len(allowed) // 2**32]
    return masked, [(position, tokens[position]) for position in sorted(chosen)]


def padded(samples: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.zeros((len(samples), length), np.int32)
    for row, tokens in zip(ids, samples, strict=True):
        row[: len(tokens)] = tokens
    return ids, np.array([len(tokens) for tokens in samples])


SAMPLES = st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=24), min_size=1, max_size=5)


@examples()
@given(
    samples=SAMPLES,
    numbers=st.data(),
    epoch=st.integers(0, 3),
    predictions=st.integers(1, 12),
    probability=st.floats(0.01, 1),
    words=st.booleans(),
)
def test_it_is_the_slow_twin_and_keeps_the_rules(samples, numbers, epoch, predictions, probability, words):
    how = masking(predictions=predictions, probability=probability, words=words)
    places = np.array([numbers.draw(st.integers(0, 2**40)) for _ in samples], np.int64)
    ids, lengths = padded(samples, 24)
    positions, labels, mask = how.apply(ids, lengths, places, epoch)
    assert (positions.shape, positions.dtype, labels.dtype, mask.dtype) == (
        (len(samples), predictions), np.int32, np.int32, np.float32
    )  # fmt: skip
    for i, tokens in enumerate(samples):
        expected, found = slow_twin(how, tokens, int(places[i]), epoch)
        count = int(mask[i].sum())
        assert ids[i, : len(tokens)].tolist() == expected
        assert list(zip(positions[i].tolist(), labels[i].tolist(), strict=True))[:count] == found
        assert mask[i].tolist() == [1] * count + [0] * (predictions - count)
        assert not positions[i, count:].any()
        assert not labels[i, count:].any()
        # Rules that need no twin.
        may = sum(token >= SPECIAL for token in tokens)
        wanted = min(predictions, max(1, round(len(tokens) * probability)))
        assert count == min(wanted, may) if not words else count <= min(predictions, may)
        assert all(label == tokens[position] >= SPECIAL for position, label in found)
        changed = np.flatnonzero(ids[i, : len(tokens)] != tokens)
        assert set(changed.tolist()) <= {position for position, _ in found}


def drawn(how: Masking, epoch: int, sample: int = 7) -> list[int]:
    ids, lengths = padded([[5 + i % 40 for i in range(64)]], 64)
    return how.apply(ids, lengths, np.array([sample]), epoch)[0][0].tolist()


def test_masks_are_others_in_every_epoch_sample_and_seed_and_the_same_for_the_same():
    how = masking(predictions=10)
    same = drawn(how, 0)
    assert drawn(how, 0) == same
    others = [drawn(how, 1), drawn(how, 2), drawn(how, 0, sample=8), drawn(how, 0, sample=7 + 2**32)]
    others.append(drawn(masking(predictions=10, seed=2), 0))
    assert len({tuple(found) for found in [same, *others]}) == 6


@pytest.mark.parametrize(
    ("tokens", "expected"),  # words of 5, 1 and 2 tokens between special ones; what follows a special token begins one
    [([2, 7, 9, 12, 15, 18, 8, 10, 12, 3], ([6], [7, 8])), ([2, 9, 3, 12], ([1], [3]))],
)
def test_a_word_is_masked_whole_and_one_that_would_be_too_many_is_left_out(tokens, expected):
    how = masking(predictions=4, probability=0.01, words=True)
    for epoch in range(20):
        ids, lengths = padded([tokens], 12)
        positions, _, mask = how.apply(ids, lengths, np.array([0]), epoch)
        assert positions[0, mask[0] == 1].tolist() in expected


@pytest.mark.parametrize("words", [False, True])
def test_nothing_is_masked_where_all_is_excluded(words):
    ids, lengths = padded([[2, 3]], 4)
    positions, labels, mask = masking(words=words).apply(ids, lengths, np.array([0]), 0)
    assert (positions.any(), labels.any(), mask.any(), ids[0].tolist()) == (False, False, False, [2, 3, 0, 0])


def within(count: int, trials: int, share: float) -> bool:
    """Tell whether a count is that of a binomial, up to five standard deviations."""
    return abs(count - trials * share) < 5 * math.sqrt(trials * share * (1 - share))


def test_eight_of_ten_are_masks_one_is_random_and_one_stays_and_positions_are_even():
    vocab_size, length, samples = 1000, 100, 400
    how = masking(vocab_size, predictions=20, probability=0.2)
    original = np.random.default_rng(0).integers(SPECIAL, vocab_size, (samples, length), dtype=np.int32)
    ids = original.copy()
    positions, labels, mask = how.apply(ids, np.full(samples, length), np.arange(samples), 0)
    assert mask.all()
    found = np.take_along_axis(ids, positions, 1)
    trials = labels.size
    masks, stays = (int(np.count_nonzero(found == other)) for other in (MASK_ID, labels))
    # A random token is the same as before once in as many as there are.
    same = 0.1 / (vocab_size - SPECIAL)
    assert within(masks, trials, 0.8)
    assert within(stays, trials, 0.1 + same)
    assert within(trials - masks - stays, trials, 0.1 - same)
    random = found[(found != MASK_ID) & (found != labels)]
    assert random.min() >= SPECIAL
    assert within(int(np.count_nonzero(random < vocab_size // 2)), len(random), 0.5)
    for half in (slice(0, 50), slice(50, 100)):
        inside = (positions >= half.start) & (positions < half.stop)
        assert within(int(np.count_nonzero(inside)), trials, 0.5)
