"""Element-wise functions with bias and dropout, against their slow twins and their own slopes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.kernels.activation import FUNCTIONS, activation_backward, activation_forward
from cstool.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

DROPOUT = Dropout(0.25, (1, 2), 3, 4, 4)
every_function = pytest.mark.parametrize("function", FUNCTIONS)
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


def _forward(function: str, x: np.ndarray, bias: np.ndarray | None, dropout: Dropout | None) -> np.ndarray:
    y = np.full_like(x, np.nan)
    activation_forward(function, x, bias, y, dropout)
    return y


def _backward(
    function: str, x: np.ndarray, bias: np.ndarray | None, delta_y: np.ndarray, dropout: Dropout | None
) -> tuple[np.ndarray, np.ndarray]:
    delta_x, grad_bias = np.full_like(x, np.nan), np.full(x.shape[1], np.nan, x.dtype)
    activation_backward(function, x, bias, delta_y, delta_x, grad_bias, dropout)
    return delta_x, grad_bias


def _arrays(dtype: np.dtype, rng: np.random.Generator, width: int = 77) -> list[np.ndarray]:
    """Return x, bias and delta_y."""
    return [rng.standard_normal(shape).astype(dtype) for shape in ((8, width), (width,), (8, width))]


@every_function
@with_and_without_dropout
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_forward(
    function: str, with_bias: bool, dropout: Dropout | None, dtype: np.dtype, rng: np.random.Generator
) -> None:
    x, bias, _ = _arrays(dtype, rng)
    y = _forward(function, x, bias if with_bias else None, dropout)
    u = x.astype(np.float64) + (bias if with_bias else 0.0)
    assert_close(y, reference.activation(function, u) * reference.dropout_mask(dropout, *x.shape))


@every_function
@with_and_without_dropout
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_backward(
    function: str, with_bias: bool, dropout: Dropout | None, dtype: np.dtype, rng: np.random.Generator
) -> None:
    x, bias, delta_y = _arrays(dtype, rng)
    delta_x, grad_bias = _backward(function, x, bias if with_bias else None, delta_y, dropout)
    u = x.astype(np.float64) + (bias if with_bias else 0.0)
    expected = delta_y * reference.activation_derivative(function, u) * reference.dropout_mask(dropout, *x.shape)
    assert_close(delta_x, expected)
    assert_close(grad_bias, expected.sum(axis=0))


@every_function
@with_and_without_dropout
def test_backward_is_the_slope_of_forward(function: str, dropout: Dropout | None, rng: np.random.Generator) -> None:
    x, bias, delta_y = _arrays(np.dtype(np.float64), rng)
    delta_x, grad_bias = _backward(function, x, bias, delta_y, dropout)
    assert_derivative(lambda at: _forward(function, at, bias, dropout), x, delta_x, delta_y)
    assert_derivative(lambda at: _forward(function, x, at, dropout), bias, grad_bias, delta_y)


@every_function
@with_and_without_dropout
def test_backward_in_place_has_the_same_bits(function: str, dropout: Dropout | None, rng: np.random.Generator) -> None:
    x, bias, delta_y = _arrays(np.dtype(np.float32), rng)
    delta_x, grad_bias = _backward(function, x, bias, delta_y, dropout)
    grad = np.empty_like(bias)
    activation_backward(function, x, bias, delta_y, delta_y, grad, dropout)
    np.testing.assert_array_equal(delta_y, delta_x)
    np.testing.assert_array_equal(grad, grad_bias)


@every_function
def test_the_bits_of_a_column_do_not_depend_on_the_width(function: str, rng: np.random.Generator) -> None:
    x, bias, _ = _arrays(np.dtype(np.float32), rng)
    part = _forward(function, np.ascontiguousarray(x[:, :13]), bias[:13], None)
    np.testing.assert_array_equal(part, _forward(function, x, bias, None)[:, :13])


@every_function
def test_the_bits_of_a_row_do_not_depend_on_the_others(function: str, rng: np.random.Generator) -> None:
    x, bias, delta_y = _arrays(np.dtype(np.float32), rng)
    np.testing.assert_array_equal(_forward(function, x[4:], bias, None), _forward(function, x, bias, None)[4:])
    part, whole = (_backward(function, x[rows], bias, delta_y[rows], None)[0] for rows in (slice(4, 8), slice(0, 8)))
    np.testing.assert_array_equal(part, whole[4:])


@pytest.mark.parametrize(
    ("function", "largest"), [("gelu", 7e-7), ("silu", 5e-7), ("gelu_new", 1.5e-6), ("quick_gelu", 8e-7)]
)
def test_a_function_keeps_its_relative_accuracy_where_it_is_nearly_zero(function: str, largest: float) -> None:
    x = np.linspace(-4.0, -1.0, 1000, dtype=np.float32).reshape(1, -1)
    y = _forward(function, x, None, None)
    expected = reference.activation(function, x.astype(np.float64))
    assert np.abs(y / expected - 1.0).max() < largest


@pytest.mark.parametrize("function", ["gelu", "silu", "gelu_new", "quick_gelu"])
def test_far_from_zero_a_smooth_function_is_that_of_a_ramp(function: str) -> None:
    x = np.array([[-1e6, -1e3, 1e3, 1e6]], np.float32)
    delta_x, _ = _backward(function, x, None, np.ones_like(x), None)
    np.testing.assert_array_equal(_forward(function, x, None, None), np.maximum(x, 0.0))
    np.testing.assert_array_equal(delta_x, [[0.0, 0.0, 1.0, 1.0]])


@pytest.mark.parametrize("function", ["relu", "gelu", "silu", "gelu_new", "quick_gelu"])
@given(u=st.floats(-50.0, 50.0))
def test_what_a_gate_keeps_of_x_and_of_its_opposite_is_x(function: str, u: float) -> None:
    x = np.array([[u, -u]])
    y = _forward(function, x, None, None)
    np.testing.assert_allclose(y[0, 0] - y[0, 1], u, rtol=1e-14, atol=1e-300)  # halves of the smallest numbers are 0


def test_linear_without_bias_and_dropout_is_the_identity(rng: np.random.Generator) -> None:
    x, _, delta_y = _arrays(np.dtype(np.float32), rng)
    np.testing.assert_array_equal(_forward("linear", x, None, None), x)
    np.testing.assert_array_equal(_backward("linear", x, None, delta_y, None)[0], delta_y)


@every_function
def test_nan_in_x_comes_out_forward(function: str, rng: np.random.Generator) -> None:
    x, bias, _ = _arrays(np.dtype(np.float32), rng)
    x[3, 50] = np.nan
    y = _forward(function, x, bias, DROPOUT)
    np.testing.assert_array_equal(np.argwhere(np.isnan(y)), [[3, 50]])


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name != "linear"])  # its slope knows no x
def test_nan_in_x_comes_out_backward(function: str, rng: np.random.Generator) -> None:
    x, bias, delta_y = _arrays(np.dtype(np.float32), rng)
    x[3, 50] = np.nan
    delta_x, grad_bias = _backward(function, x, bias, delta_y, None)
    np.testing.assert_array_equal(np.argwhere(np.isnan(delta_x)), [[3, 50]])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(grad_bias)), [50])


@every_function
@pytest.mark.parametrize("x_there", [1.0, -1.0])
def test_nan_in_a_delta_comes_out_backward(function: str, x_there: float, rng: np.random.Generator) -> None:
    x, bias, delta_y = _arrays(np.dtype(np.float32), rng)
    x[3, 50], delta_y[3, 50] = x_there, np.nan
    delta_x, grad_bias = _backward(function, x, bias, delta_y, None)
    np.testing.assert_array_equal(np.argwhere(np.isnan(delta_x)), [[3, 50]])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(grad_bias)), [50])


def test_an_unknown_function_is_refused(rng: np.random.Generator) -> None:
    x, bias, _ = _arrays(np.dtype(np.float32), rng)
    with pytest.raises(KeyError, match="^'swish'$"):
        _forward("swish", x, bias, None)
