"""The rows of attention pair by pair, in vectors; `test_attention.py` has the whole."""

import numpy as np
import pytest
from numba import njit

from cstool.training.kernels.attention_pairs import _at, _back_summed, _bend, _clear, _exponentials, _narrowed

Array = np.ndarray
COUNTS = [0, 1, 15, 16, 17, 48, 100]


@njit
def exponentials(row, count, unit, peak):
    return _exponentials(_at(row), count, unit, peak)


@njit
def bend(row, count, bias, segments, segment, factor):
    return _bend(_at(row), count, _at(bias), _at(segments), segment, factor)


@njit
def back(row, count, delta, bias, segments, segment, sums, factor, total, dot):
    _back_summed(_at(row), count, _at(delta), _at(bias), _at(segments), segment, _at(sums), factor, total, dot)


@njit
def clear(row, count):
    _clear(_at(row), count)


def numbers(rng: np.random.Generator) -> Array:
    return rng.standard_normal(128).astype(np.float32)


def test_exponentials_have_a_small_relative_error():
    x = np.linspace(-86.5, 0.5, 100_001).astype(np.float32)
    found = x.copy()
    total = exponentials(found, len(x), np.float32(1), np.float32(0))
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(found / exact - 1)) < 2e-7
    assert total == pytest.approx(exact.sum(), rel=1e-5)


def test_exponentials_of_what_is_hidden_and_of_nan():
    found = np.array([-np.inf, -90.0, np.nan, 0.0], np.float32)
    exponentials(found, 4, np.float32(1), np.float32(0))
    np.testing.assert_array_equal(found, np.array([0, 0, np.nan, 1], np.float32))


@pytest.mark.parametrize("count", COUNTS)
def test_no_row_goes_beyond_its_end(count, rng):
    row, delta, bias, sums = (numbers(rng) for _ in range(4))
    segments = rng.integers(0, 2, 128).astype(np.int32)
    before = [x.copy() for x in (row, delta, sums)]
    factor, total, dot = map(np.float32, (0.5, 3.0, 0.25))
    products, deltas = row[:count].copy(), delta[:count].copy()

    bent = row.copy()
    peak = bend(bent, count, bias, segments, 1, factor)
    scores = np.where(segments == 1, row * factor + bias, -np.inf)[:count]
    np.testing.assert_allclose(bent[:count], scores, rtol=1e-6, atol=1e-6)
    assert peak == max(bent[:count], default=-np.inf)

    back(row, count, delta, bias, segments, 1, sums, factor, total, dot)
    expected = np.exp(products * factor + bias[:count] - total) * (segments[:count] == 1)
    of_scores = expected * (deltas - dot)
    np.testing.assert_allclose(row[:count], expected, rtol=1e-5)
    np.testing.assert_allclose(delta[:count], of_scores * factor, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(sums[:count], before[2][:count] + of_scores, rtol=1e-5, atol=1e-6)

    clear(bent, count)
    assert not bent[:count].any()
    for x, old in zip((bent, row, delta, sums), (before[0], *before), strict=True):
        np.testing.assert_array_equal(x[count:], old[count:])


@pytest.mark.parametrize(
    ("own", "seen", "expected"),
    [
        ([1], [*range(20, 41)], (16, 48)),
        ([1, 1], [99], (96, 100)),
        ([2], [5], (0, 0)),
        ([-1], [5], (0, 0)),
        ([-1, 1], [5], (0, 16)),
    ],
    ids=str,
)
def test_what_no_segment_sees_is_cut_off_by_vectors(own, seen, expected):
    others = np.full(100, -1, np.int32)
    others[seen] = 1
    assert _narrowed(0, 100, np.array(own, np.int32), others) == expected
