"""Normalisation of rows against its slow twins and its own slopes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.kernels.norm import layer_norm_backward, layer_norm_forward, rms_norm_backward, rms_norm_forward
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

EPSILON = 1e-3
WIDTHS = [1, 10, 768]


def _arrays(width: int, dtype: np.dtype, rng: np.random.Generator) -> list[np.ndarray]:
    """Return x, weight, bias and delta_y; rows of x far from 0, as activations may be."""
    x, weight, bias, delta_y = (rng.standard_normal(shape) for shape in ((9, width), (width,), (width,), (9, width)))
    return [array.astype(dtype) for array in (3.0 * x + 1.0, weight, bias, delta_y)]


def _forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> list[np.ndarray]:
    y, mean, rstd = (np.full(shape, np.nan, x.dtype) for shape in (x.shape, len(x), len(x)))
    layer_norm_forward(x, weight, bias, EPSILON, y, mean, rstd)
    return [y, mean, rstd]


def _backward(x: np.ndarray, weight: np.ndarray, delta_y: np.ndarray) -> list[np.ndarray]:
    _, mean, rstd = _forward(x, weight, None)
    delta_x, grad_weight, grad_bias = (np.full(shape, np.nan, x.dtype) for shape in (x.shape, x.shape[1], x.shape[1]))
    layer_norm_backward(x, weight, mean, rstd, delta_y, delta_x, False, grad_weight, grad_bias)
    return [delta_x, grad_weight, grad_bias]


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_forward(width, with_bias, dtype, rng):
    x, weight, bias, _ = _arrays(width, dtype, rng)
    y, _, _ = _forward(x, weight, bias if with_bias else None)
    wide = x.astype(np.float64), weight.astype(np.float64), bias if with_bias else None
    assert_close(y, reference.layer_norm(*wide, EPSILON))


def test_a_row_of_one_element_becomes_the_bias(dtype, rng):
    x, weight, bias, _ = _arrays(1, dtype, rng)
    np.testing.assert_array_equal(_forward(x, weight, bias)[0], np.broadcast_to(bias, (9, 1)))


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_backward(width, dtype, rng):
    x, weight, _, delta_y = _arrays(width, dtype, rng)
    wide = (array.astype(np.float64) for array in (x, weight))
    expected = reference.layer_norm_deltas(*wide, EPSILON, delta_y.astype(np.float64))
    for actual, array in zip(_backward(x, weight, delta_y), expected, strict=True):
        assert_close(actual, array)


def test_backward_is_the_slope_of_forward(rng):
    x, weight, bias, delta_y = _arrays(10, np.dtype(np.float64), rng)
    delta_x, grad_weight, grad_bias = _backward(x, weight, delta_y)
    assert_derivative(lambda at: _forward(at, weight, bias)[0], x, delta_x, delta_y)
    assert_derivative(lambda at: _forward(x, at, bias)[0], weight, grad_weight, delta_y)
    assert_derivative(lambda at: _forward(x, weight, at)[0], bias, grad_bias, delta_y)


def test_backward_adds_to_a_delta_when_asked(rng):
    x, weight, _, delta_y = _arrays(10, np.dtype(np.float32), rng)
    delta_x, grad, _ = _backward(x, weight, delta_y)
    _, mean, rstd = _forward(x, weight, None)
    added = np.ones_like(x)
    layer_norm_backward(x, weight, mean, rstd, delta_y, added, True, grad, None)
    np.testing.assert_array_equal(added, 1.0 + delta_x)


def test_backward_in_place_has_the_same_bits(rng):
    x, weight, _, delta_y = _arrays(100, np.dtype(np.float32), rng)
    apart = _backward(x, weight, delta_y)
    _, mean, rstd = _forward(x, weight, None)
    grads = np.empty_like(weight), np.empty_like(weight)
    layer_norm_backward(x, weight, mean, rstd, delta_y, delta_y, False, *grads)
    for actual, expected in zip((delta_y, *grads), apart, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_x_spoils_its_row_and_no_other(value, rng):
    x, weight, bias, _ = _arrays(100, np.dtype(np.float32), rng)
    x[3, 50] = value
    y, _, _ = _forward(x, weight, bias)
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), np.arange(9) == 3)
    assert np.isfinite(y[np.arange(9) != 3]).all()


def test_nan_in_a_delta_spoils_its_row_and_column(rng):
    x, weight, _, delta_y = _arrays(100, np.dtype(np.float32), rng)
    delta_y[3, 50] = np.nan
    delta_x, grad_weight, grad_bias = _backward(x, weight, delta_y)
    assert np.isnan(delta_x[3]).all()
    assert np.isnan([grad_weight[50], grad_bias[50]]).all()


def _rms_forward(x: np.ndarray, weight: np.ndarray, epsilon: float = EPSILON) -> list[np.ndarray]:
    y, rstd = np.full_like(x, np.nan), np.full(len(x), np.nan, x.dtype)
    rms_norm_forward(x, weight, epsilon, y, rstd)
    return [y, rstd]


def _rms_backward(x: np.ndarray, weight: np.ndarray, delta_y: np.ndarray) -> list[np.ndarray]:
    _, rstd = _rms_forward(x, weight)
    delta_x, grad_weight = np.full_like(x, np.nan), np.full_like(weight, np.nan)
    rms_norm_backward(x, weight, rstd, delta_y, delta_x, False, grad_weight)
    return [delta_x, grad_weight]


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_forward(width, dtype, rng):
    x, weight, _, _ = _arrays(width, dtype, rng)
    y, rstd = _rms_forward(x, weight)
    wide = x.astype(np.float64)
    assert_close(y, reference.rms_norm(wide, weight.astype(np.float64), EPSILON))
    assert_close(rstd, 1.0 / np.sqrt((wide**2).mean(axis=1) + EPSILON))


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_rms_backward(width, dtype, rng):
    x, weight, _, delta_y = _arrays(width, dtype, rng)
    wide = (array.astype(np.float64) for array in (x, weight))
    expected = reference.rms_norm_deltas(*wide, EPSILON, delta_y.astype(np.float64))
    for actual, array in zip(_rms_backward(x, weight, delta_y), expected, strict=True):
        assert_close(actual, array)


def test_rms_backward_is_the_slope_of_forward(rng):
    x, weight, _, delta_y = _arrays(10, np.dtype(np.float64), rng)
    delta_x, grad_weight = _rms_backward(x, weight, delta_y)
    assert_derivative(lambda at: _rms_forward(at, weight)[0], x, delta_x, delta_y)
    assert_derivative(lambda at: _rms_forward(x, at)[0], weight, grad_weight, delta_y)


def test_rms_backward_adds_to_a_delta_when_asked(rng):
    x, weight, _, delta_y = _arrays(10, np.dtype(np.float32), rng)
    delta_x, grad = _rms_backward(x, weight, delta_y)
    added = np.ones_like(x)
    rms_norm_backward(x, weight, _rms_forward(x, weight)[1], delta_y, added, True, grad)
    np.testing.assert_array_equal(added, 1.0 + delta_x)


def test_rms_backward_in_place_has_the_same_bits(rng):
    x, weight, _, delta_y = _arrays(100, np.dtype(np.float32), rng)
    delta_x, grad_weight = _rms_backward(x, weight, delta_y)
    grad = np.empty_like(weight)
    rms_norm_backward(x, weight, _rms_forward(x, weight)[1], delta_y, delta_y, False, grad)
    np.testing.assert_array_equal(delta_y, delta_x)
    np.testing.assert_array_equal(grad, grad_weight)


def test_rms_of_a_row_does_not_depend_on_the_others(rng):
    x, weight, _, _ = _arrays(100, np.dtype(np.float32), rng)
    for part, whole in zip(_rms_forward(x[4:], weight), _rms_forward(x, weight), strict=True):
        np.testing.assert_array_equal(part, whole[4:])


@given(exponent=st.integers(-40, 40), seed=st.integers(0, 99))
def test_rms_does_not_see_the_size_of_a_row(exponent, seed):
    x, weight, _, _ = _arrays(10, np.dtype(np.float32), np.random.default_rng(seed))
    y, _ = _rms_forward(x, weight, 0.0)
    scaled, _ = _rms_forward(np.ldexp(x, exponent), weight, 0.0)
    np.testing.assert_array_equal(scaled, y)


@pytest.mark.parametrize(("value", "places"), [(np.nan, range(100)), (np.inf, [50])])
def test_rms_of_a_row_with_nan_or_infinity_is_spoilt(value, places, rng):
    x, weight, _, delta_y = _arrays(100, np.dtype(np.float32), rng)
    x[3, 50] = value
    for array in (_rms_forward(x, weight)[0], _rms_backward(x, weight, delta_y)[0]):
        assert np.isnan(array[3, places]).all()
        assert np.isfinite(array[np.arange(9) != 3]).all()


def test_nan_in_a_delta_of_rms_spoils_its_row_and_column(rng):
    x, weight, _, delta_y = _arrays(100, np.dtype(np.float32), rng)
    delta_y[3, 50] = np.nan
    delta_x, grad_weight = _rms_backward(x, weight, delta_y)
    assert np.isnan(delta_x[3]).all()
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(grad_weight)), [50])
