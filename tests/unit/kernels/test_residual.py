"""The residual connection with bias and dropout."""

import numpy as np
import pytest

from cstool.kernels.random import Dropout
from cstool.kernels.residual import residual_backward, residual_forward
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

DROPOUT = Dropout(0.25, (1, 2), 3, 4, 4)
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


def _forward(x: np.ndarray, residual: np.ndarray, bias: np.ndarray | None, dropout: Dropout | None) -> np.ndarray:
    y = np.full_like(x, np.nan)
    residual_forward(x, residual, bias, y, dropout)
    return y


def _backward(delta_y: np.ndarray, dropout: Dropout | None) -> tuple[np.ndarray, np.ndarray]:
    delta_x, grad_bias = np.full_like(delta_y, np.nan), np.full(delta_y.shape[1], np.nan, delta_y.dtype)
    residual_backward(delta_y, delta_x, grad_bias, dropout)
    return delta_x, grad_bias


def _arrays(dtype: np.dtype, rng: np.random.Generator) -> list[np.ndarray]:
    """Return x, residual, bias and delta_y."""
    return [rng.standard_normal(shape).astype(dtype) for shape in ((8, 77), (8, 77), (77,), (8, 77))]


@with_and_without_dropout
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_forward(with_bias, dropout, dtype, rng):
    x, residual, bias, _ = _arrays(dtype, rng)
    y = _forward(x, residual, bias if with_bias else None, dropout)
    u = x.astype(np.float64) + (bias if with_bias else 0.0)
    assert_close(y, residual + u * reference.dropout_mask(dropout, *x.shape))


@pytest.mark.parametrize("target", ["x", "residual"])
def test_forward_in_place_has_the_same_bits(target, rng):
    x, residual, bias, _ = _arrays(np.dtype(np.float32), rng)
    apart = _forward(x, residual, bias, DROPOUT)
    y = x if target == "x" else residual
    residual_forward(x, residual, bias, y, DROPOUT)
    np.testing.assert_array_equal(y, apart)


@with_and_without_dropout
def test_backward_is_the_slope_of_forward(dropout, rng):
    x, residual, bias, delta_y = _arrays(np.dtype(np.float64), rng)
    delta_x, grad_bias = _backward(delta_y, dropout)
    assert_derivative(lambda at: _forward(at, residual, bias, dropout), x, delta_x, delta_y)
    assert_derivative(lambda at: _forward(x, at, bias, dropout), residual, delta_y, delta_y)
    assert_derivative(lambda at: _forward(x, residual, at, dropout), bias, grad_bias, delta_y)


def test_backward_drops_what_forward_dropped(rng):
    x, residual, bias, delta_y = _arrays(np.dtype(np.float32), rng)
    kept = _forward(x, residual, bias, DROPOUT) != residual
    np.testing.assert_array_equal(_backward(delta_y, DROPOUT)[0] != 0.0, kept)


def test_without_dropout_the_delta_of_x_may_be_left_out(rng):
    delta_y = _arrays(np.dtype(np.float32), rng)[3]
    grad_bias = np.empty(77, np.float32)
    residual_backward(delta_y, None, grad_bias, None)
    np.testing.assert_array_equal(grad_bias, _backward(delta_y, None)[1])


def test_with_dropout_the_delta_of_x_may_not_be_left_out(rng):
    delta_y = _arrays(np.dtype(np.float32), rng)[3]
    with pytest.raises(ValueError, match="^residual_backward with dropout needs delta_x$"):
        residual_backward(delta_y, None, None, DROPOUT)


@pytest.mark.parametrize("spoilt", [0, 1, 2], ids=["x", "residual", "bias"])
def test_nan_comes_out_forward(spoilt, rng):
    x, residual, bias, _ = _arrays(np.dtype(np.float32), rng)
    (x, residual, bias)[spoilt][..., 50] = np.nan
    np.testing.assert_array_equal(np.isnan(_forward(x, residual, bias, DROPOUT)).all(axis=0), np.arange(77) == 50)


def test_nan_comes_out_backward(rng):
    delta_y = _arrays(np.dtype(np.float32), rng)[3]
    delta_y[3, 50] = np.nan
    delta_x, grad_bias = _backward(delta_y, DROPOUT)
    np.testing.assert_array_equal(np.argwhere(np.isnan(delta_x)), [[3, 50]])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(grad_bias)), [50])
