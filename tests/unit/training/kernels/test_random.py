"""Random numbers in kernels against their definition in `cstool.foundation.random_keys`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import kstest, truncnorm

from cstool.foundation.random_keys import philox4x32
from cstool.model.ir import Initializer
from cstool.training.kernels.random import Dropout, draws_of, dropout_apply, fill, mask_elements
from tests.examples import examples
from tests.reference.kernels import dropout_mask

KEY = (0xDEADBEEF, 0x12345678)


def _words(start: int, count: int, sample: int = 0, step: int = 0) -> np.ndarray:
    blocks = np.arange(start // 4, (start + count) // 4 + 1, dtype=np.uint64)
    counter = np.zeros((len(blocks), 4), np.uint32)
    counter[:, 0], counter[:, 1] = blocks & np.uint64(0xFFFFFFFF), blocks >> np.uint64(32)
    counter[:, 2:] = sample, step
    return philox4x32(counter, KEY).reshape(-1)[start % 4 :][:count]


def _filled(name: str, start: int, count: int, low: float = -0.04, high: float = 0.04) -> np.ndarray:
    out = np.full(count, np.nan, np.float32)
    fill(Initializer(name, 0.01, 0.02, low, high), KEY, start, out)
    return out


@examples(50)
@given(
    samples=st.integers(1, 3),
    tokens=st.integers(1, 5),
    width=st.integers(1, 40),
    rate=st.sampled_from([1e-9, 0.1, 0.5, 0.999]),
    step=st.integers(0, 2**32 - 1),
    first=st.integers(0, 2**31),
    key=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
def test_dropout_is_the_definition(samples, tokens, width, rate, step, first, key):
    dropout = Dropout(rate, key, step, first, tokens)
    out = np.empty((samples * tokens, width), np.float32)
    dropout_apply(dropout, np.ones_like(out), out)
    np.testing.assert_array_equal(out, dropout_mask(dropout, *out.shape).astype(np.float32))


@pytest.mark.parametrize("first", [0, 2**34 - 6, 2**34, 131071 * 131072 + 3, 2**40 + 1])
def test_no_element_of_a_large_sample_has_the_mask_of_another(first):
    draws = draws_of(Dropout(0.5, KEY, 7, 5, 1))
    memory = np.ones(4 * (64 // 4 + 2), np.float32)
    words = _words(first, 64, 5 + 2, 7)
    np.testing.assert_array_equal(mask_elements(memory, draws, 2, first, 64), np.where(words >= 2**31, 2.0, 0.0))


def test_dropout_in_place_has_the_same_bits_keeps_nan_and_none_keeps_everything(rng):
    x = rng.standard_normal((6, 77)).astype(np.float32)
    x[5] = np.nan
    out, dropout = np.empty_like(x), Dropout(0.3, KEY, 1, 2, 3)
    for none in (None, Dropout(0.0, KEY, 1, 2, 3)):
        dropout_apply(none, x, out)
        np.testing.assert_array_equal(out, x)
    dropout_apply(dropout, x, out)
    dropout_apply(dropout, x, x)
    np.testing.assert_array_equal(x, out)
    assert np.isnan(x[5]).all()


@pytest.mark.parametrize("start", [0, 3, 2**34 + 5])
def test_uniform_is_the_definition(start):
    expected = -0.04 + 0.08 * (_words(start, 3000).astype(np.float64) + 0.5) / 2**32
    np.testing.assert_array_equal(_filled("uniform", start, 3000), expected.astype(np.float32))


def test_normal_is_the_quantile_of_the_words():
    expected = 0.01 + 0.02 * ndtri((_words(0, 50_000).astype(np.float64) + 0.5) / 2**32)
    assert np.abs(_filled("normal", 0, 50_000) - expected).max() < 0.02 * 1e-6


def test_quantile_holds_in_the_far_tails():
    # The word 0 and the word 2^32 - 1 are rare: bounds push the probabilities outwards instead.
    low, high = -6.2, -5.9
    out = np.empty(1000, np.float32)
    fill(Initializer("truncated_normal", 0.0, 1.0, low, high), KEY, 0, out)
    expected = truncnorm.ppf((_words(0, 1000).astype(np.float64) + 0.5) / 2**32, low, high)
    assert np.abs(out - expected).max() < 1e-6


def test_truncated_normal_has_the_distribution_and_stays_within_its_bounds():
    out = _filled("truncated_normal", 0, 20_000, low=-0.01, high=0.06)
    assert kstest(out, truncnorm(-1.0, 2.5, loc=0.01, scale=0.02).cdf).pvalue > 0.01
    out = _filled("truncated_normal", 0, 20_000, low=0.0099, high=0.0101)
    assert (out.min(), out.max()) >= (np.float32(0.0099), np.float32(0.01))
    assert out.max() <= np.float32(0.0101)


def test_constant_is_the_mean_and_an_unknown_initializer_is_refused():
    np.testing.assert_array_equal(_filled("constant", 5, 3), np.full(3, 0.01, np.float32))
    with pytest.raises(ValueError, match="^no initializer of this name: xavier$"):
        _filled("xavier", 0, 1)


@examples(30)
@given(name=st.sampled_from(["uniform", "normal", "truncated_normal"]), cuts=st.lists(st.integers(0, 3000), max_size=4))
def test_a_weight_filled_in_any_parts_has_the_same_bits(name, cuts):
    edges = [0, *sorted(cuts), 3000]
    parts = [_filled(name, start, stop - start) for start, stop in zip(edges, edges[1:], strict=False)]
    np.testing.assert_array_equal(np.concatenate(parts), _filled(name, 0, 3000))
