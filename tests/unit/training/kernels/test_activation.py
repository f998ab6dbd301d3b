"""Element-wise functions, with a gate and without, and residuals: beside what holds of all ops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import OpKind
from cstool.training.kernels.activation import FUNCTIONS, GATES
from cstool.training.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import backward, forward

DROPOUT = {"of_call": {"dropout": Dropout(0.25, (1, 2), 3, 4, 4)}}


def _forward(function: str, x: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    return forward(OpKind.ACTIVATION, [x], [bias], function=function)[0]


def _backward(function: str, x: np.ndarray, delta_y: np.ndarray) -> np.ndarray:
    found: np.ndarray = backward(OpKind.ACTIVATION, [x], [], delta_y, function=function)[0]
    return found


def _arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_bits_of_a_column_do_not_depend_on_the_width(function, rng):
    x, bias = _arrays(rng, (8, 77), (77,))
    part = _forward(function, np.ascontiguousarray(x[:, :13]), bias[:13])
    np.testing.assert_array_equal(part, _forward(function, x, bias)[:, :13])


ACCURACY = {"gelu": 7e-7, "silu": 5e-7, "gelu_new": 1.5e-6, "quick_gelu": 8e-7}


@pytest.mark.parametrize("function", ACCURACY)
def test_a_smooth_function_keeps_its_relative_accuracy_near_zero_and_is_a_ramp_far_from_it(function):
    x = np.linspace(-4.0, -1.0, 1000, dtype=np.float32).reshape(1, -1)
    expected = reference.activation(function, x.astype(np.float64))
    assert np.abs(_forward(function, x) / expected - 1.0).max() < ACCURACY[function]
    x = np.array([[-1e6, -1e3, 1e3, 1e6]], np.float32)
    np.testing.assert_array_equal(_forward(function, x), np.maximum(x, 0.0))
    np.testing.assert_array_equal(_backward(function, x, np.ones_like(x)), [[0.0, 0.0, 1.0, 1.0]])


@pytest.mark.parametrize("function", ["relu", *ACCURACY])
@given(u=st.floats(-50.0, 50.0))
def test_what_a_gate_keeps_of_x_and_of_its_opposite_is_x(function, u):
    y = _forward(function, np.array([[u, -u]]))
    np.testing.assert_allclose(y[0, 0] - y[0, 1], u, rtol=1e-14, atol=1e-300)  # halves of the smallest numbers are 0


def test_linear_without_bias_and_dropout_is_the_identity(rng):
    x, delta_y = _arrays(rng, (8, 77), (8, 77))
    np.testing.assert_array_equal(_forward("linear", x), x)
    np.testing.assert_array_equal(_backward("linear", x, delta_y), delta_y)


@pytest.mark.parametrize("function", GATES)
@given(seed=st.integers(0, 99))
def test_of_ones_comes_the_function_of_the_gate(function, seed):
    gate, bias = _arrays(np.random.default_rng(seed), (8, 77), (77,))
    gated = forward(OpKind.GATED_ACTIVATION, [np.ones_like(gate), gate], [None, bias], function=function, **DROPOUT)
    (alone,) = forward(OpKind.ACTIVATION, [gate], [bias], function=function, **DROPOUT)
    np.testing.assert_array_equal(gated[0], alone)


@pytest.mark.parametrize(
    ("kind", "function"),
    [(OpKind.ACTIVATION, "swish"), (OpKind.GATED_ACTIVATION, "swish"), (OpKind.GATED_ACTIVATION, "squared_relu")],
)
def test_an_unknown_function_or_one_that_is_no_gate_is_refused(kind, function, rng):
    inputs = _arrays(rng, (8, 77), (8, 77))[: 1 + (kind is OpKind.GATED_ACTIVATION)]
    with pytest.raises(KeyError, match=f"^'{function}'$"):
        forward(kind, inputs, function=function)


def test_backward_drops_what_forward_dropped(rng):
    x, residual, delta_y = _arrays(rng, (8, 77), (8, 77), (8, 77))
    (y,) = forward(OpKind.RESIDUAL, [x, residual], **DROPOUT)
    delta_x, _ = backward(OpKind.RESIDUAL, [x, residual], [], delta_y, **DROPOUT)
    np.testing.assert_array_equal(delta_x != 0.0, y != residual)


def test_without_dropout_the_delta_of_a_residual_branch_may_be_left_out(rng):
    x, bias, delta_y = _arrays(rng, (8, 77), (77,), (8, 77))
    nowhere: dict[str, Any] = {"of_call": {"delta_inputs": (None, None)}}
    gradients = [backward(OpKind.RESIDUAL, [x, x], [bias], delta_y, **more)[2] for more in ({}, nowhere)]
    np.testing.assert_array_equal(*gradients)


def test_scaling_is_exact_and_infinity_stays_where_it_is(rng):
    (x,) = _arrays(rng, (8, 77))
    x[3, 50] = np.inf
    for factor in (-1.0, 1.0):
        np.testing.assert_array_equal(forward(OpKind.SCALE, [x], factor=factor)[0], factor * x)
    for array in (forward(OpKind.SCALE, [x], factor=3.0)[0], backward(OpKind.SCALE, [x], [], x, factor=3.0)[0]):
        np.testing.assert_array_equal(np.argwhere(~np.isfinite(array)), [[3, 50]])
