"""Multiplication by one number, with dropout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.kernels.random import Dropout
from cstool.kernels.residual import scale_backward, scale_forward
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

DROPOUT = Dropout(0.25, (1, 2), 3, 4, 4)
FACTOR = 27.7128
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


def _forward(x: np.ndarray, factor: float, dropout: Dropout | None) -> np.ndarray:
    y = np.full_like(x, np.nan)
    scale_forward(x, factor, y, dropout)
    return y


def _backward(delta_y: np.ndarray, factor: float, dropout: Dropout | None) -> np.ndarray:
    delta_x = np.full_like(delta_y, np.nan)
    scale_backward(delta_y, factor, delta_x, dropout)
    return delta_x


@with_and_without_dropout
def test_forward_and_backward(dropout, dtype, rng):
    x = rng.standard_normal((8, 77)).astype(dtype)
    expected = x.astype(np.float64) * FACTOR * reference.dropout_mask(dropout, 8, 77)
    assert_close(_forward(x, FACTOR, dropout), expected)
    assert_close(_backward(x, FACTOR, dropout), expected)


@with_and_without_dropout
def test_backward_is_the_slope_of_forward(dropout, rng):
    x, delta_y = rng.standard_normal((2, 8, 77))
    delta_x = _backward(delta_y, FACTOR, dropout)
    assert_derivative(lambda at: _forward(at, FACTOR, dropout), x, delta_x, delta_y)


@with_and_without_dropout
def test_in_place_has_the_same_bits(dropout, rng):
    x = rng.standard_normal((8, 77)).astype(np.float32)
    apart = _forward(x, FACTOR, dropout)
    scale_forward(x, FACTOR, x, dropout)
    np.testing.assert_array_equal(x, apart)


@given(seed=st.integers(0, 99), factor=st.sampled_from([-1.0, 1.0]))
def test_scaling_by_one_is_the_identity_and_by_minus_one_the_opposite(seed, factor):
    x = np.random.default_rng(seed).standard_normal((8, 77)).astype(np.float32)
    np.testing.assert_array_equal(_forward(x, factor, None), factor * x)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_stay_where_they_are(value, rng):
    x = rng.standard_normal((8, 77)).astype(np.float32)
    x[3, 50] = value
    for array in (_forward(x, FACTOR, DROPOUT), _backward(x, FACTOR, DROPOUT)):
        np.testing.assert_array_equal(np.argwhere(~np.isfinite(array)), [[3, 50]])
