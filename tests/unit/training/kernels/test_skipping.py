"""Products that skip zeros, beside `rowwise`, their slow twin: the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.bfloat16 import convert
from cstool.training.kernels.rowwise import linear
from cstool.training.kernels.skipping import pack, skipping_linear, skipping_linear_by_turns
from tests.examples import examples


def bfloat16(x: np.ndarray) -> np.ndarray:
    found = np.empty(x.shape, np.uint16)
    convert(x, found)
    return found


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    tokens=st.integers(1, 9),
    rows=st.sampled_from([1, 7, 128, 130, 300]),
    width=st.sampled_from([16, 48, 256]),
    share=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    narrow=st.booleans(),
    has_bias=st.booleans(),
)
def test_bits_are_those_without_skipping(seed, tokens, rows, width, share, narrow, has_bias):
    numbers, width = np.random.default_rng(seed), 2 * width if narrow else width
    x = numbers.standard_normal((tokens, width)).astype(np.float32)
    x[numbers.random(x.shape) < share] = 0
    weight = numbers.standard_normal((rows, width)).astype(np.float32)
    weight = bfloat16(weight) if narrow else weight
    bias = numbers.standard_normal(rows).astype(np.float32) if has_bias else None
    expected, y, shared = (np.full((tokens, rows), np.nan, np.float32) for _ in range(3))
    linear(x, weight, bias, expected)
    packed, tallies, taken = pack(weight), np.zeros(2, np.int64), np.zeros(1, np.int64)
    assert packed is not None
    skipping_linear(x, weight, packed, bias, y, tallies)
    skipping_linear_by_turns(x, weight, packed, bias, shared, tallies, taken, 0, is_first=False)
    np.testing.assert_array_equal(y.view(np.int32), expected.view(np.int32))
    np.testing.assert_array_equal(shared.view(np.int32), expected.view(np.int32))
    assert tallies.tolist() == [(x == 0).sum(), x.size]
    assert taken[0] > 0


def test_sums_that_vanish_have_the_sign_that_they_have_without_skipping():
    # Of the least magnitude, a product becomes minus zero; added to that, zeros give zero.
    x = np.zeros((2, 32), np.float32)
    x[:, 0] = x[1, 16] = 1e-30
    weight = np.full((3, 32), -1e-30, np.float32)
    weight[1, 1:] = 1
    y, expected = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    packed = pack(weight)
    assert packed is not None
    skipping_linear(x, weight, packed, None, y, np.zeros(2, np.int64))
    linear(x, weight, None, expected)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(expected))


def test_infinities_and_nan_in_x_go_everywhere():
    x = np.zeros((3, 16), np.float32)
    x[0, 3], x[1, 5] = np.inf, np.nan
    weight = np.ones((130, 16), np.float32)
    packed, y = pack(weight), np.empty((3, 130), np.float32)
    assert packed is not None
    skipping_linear(x, weight, packed, None, y, np.zeros(2, np.int64))
    assert np.isposinf(y[0]).all()
    assert np.isnan(y[1]).all()
    assert (y[2] == 0).all()


@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("narrow", [False, True])
def test_weights_that_are_not_finite_are_not_packed(number, narrow):
    weight = np.ones((2, 32), np.float32)
    weight[1, 3] = number
    assert pack(bfloat16(weight) if narrow else weight) is None


def test_rows_of_no_whole_vectors_are_not_packed():
    assert pack(np.ones((2, 24), np.float32)) is None
    assert pack(bfloat16(np.ones((2, 48), np.float32))) is None
