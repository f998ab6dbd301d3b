"""Gated linear units with biases and dropout, against their slow twins and their own slopes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.kernels.activation import activation_forward
from cstool.kernels.gated import GATES, gated_activation_backward, gated_activation_forward
from cstool.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

DROPOUT = Dropout(0.25, (1, 2), 3, 4, 4)
every_function = pytest.mark.parametrize("function", GATES)
with_and_without_bias = pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


class Case:
    """Inputs of a gated unit, and the unit."""

    def __init__(self, dtype: type | np.dtype, with_bias: bool, rng: np.random.Generator) -> None:
        self.x, self.gate, self.delta_y = rng.standard_normal((3, 8, 77)).astype(dtype)
        self.bias, self.gate_bias = rng.standard_normal((2, 77)).astype(dtype) if with_bias else (None, None)

    def forward(self, function: str, dropout: Dropout | None) -> np.ndarray:
        y = np.full_like(self.x, np.nan)
        gated_activation_forward(function, self.x, self.gate, self.bias, self.gate_bias, y, dropout)
        return y

    def backward(
        self, function: str, dropout: Dropout | None, delta_x: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Return the deltas of x and gate and the gradients of both biases, by name."""
        delta_x = np.full_like(self.x, np.nan) if delta_x is None else delta_x
        delta_gate, grads = np.full_like(self.x, np.nan), np.full((2, 77), np.nan, self.x.dtype)
        arguments = self.x, self.gate, self.bias, self.gate_bias, self.delta_y, delta_x, delta_gate, *grads, dropout
        gated_activation_backward(function, *arguments)
        return {"x": delta_x, "gate": delta_gate, "bias": grads[0], "gate_bias": grads[1]}

    def wide(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x and gate with their biases, float64."""
        pairs = (self.x, self.bias), (self.gate, self.gate_bias)
        x, gate = (array.astype(np.float64) + (0.0 if bias is None else bias) for array, bias in pairs)
        return x, gate


@every_function
@with_and_without_bias
@with_and_without_dropout
def test_forward(function, with_bias, dropout, dtype, rng):
    case = Case(dtype, with_bias, rng)
    x, gate = case.wide()
    expected = x * reference.activation(function, gate) * reference.dropout_mask(dropout, *x.shape)
    assert_close(case.forward(function, dropout), expected)


@every_function
@with_and_without_bias
@with_and_without_dropout
def test_backward(function, with_bias, dropout, dtype, rng):
    case = Case(dtype, with_bias, rng)
    x, gate = case.wide()
    delta = case.delta_y * reference.dropout_mask(dropout, *x.shape)
    delta_x = delta * reference.activation(function, gate)
    delta_gate = delta * x * reference.activation_derivative(function, gate)
    actual = case.backward(function, dropout)
    assert_close(actual["x"], delta_x)
    assert_close(actual["gate"], delta_gate)
    assert_close(actual["bias"], delta_x.sum(axis=0))
    assert_close(actual["gate_bias"], delta_gate.sum(axis=0))


@every_function
@with_and_without_bias
@with_and_without_dropout
def test_backward_is_the_slope_of_forward(function, with_bias, dropout, rng):
    case = Case(np.float64, with_bias, rng)
    for name, derivative in case.backward(function, dropout).items():
        before = getattr(case, name)
        if before is None:
            continue

        def forward(at: np.ndarray, name: str = name) -> np.ndarray:
            setattr(case, name, at)
            return case.forward(function, dropout)

        assert_derivative(forward, before, derivative, case.delta_y)
        setattr(case, name, before)


@every_function
@with_and_without_dropout
def test_backward_in_place_has_the_same_bits(function, dropout, rng):
    case = Case(np.float32, True, rng)
    apart = case.backward(function, dropout)
    in_place = case.backward(function, dropout, case.delta_y)
    for name, expected in apart.items():
        np.testing.assert_array_equal(in_place[name], expected)


def test_gradients_of_biases_may_be_left_out(rng):
    case = Case(np.float32, False, rng)
    expected = case.backward("silu", None)
    delta_x, delta_gate = np.full_like(case.x, np.nan), np.full_like(case.x, np.nan)
    arguments = case.x, case.gate, None, None, case.delta_y, delta_x, delta_gate, None, None, None
    gated_activation_backward("silu", *arguments)
    np.testing.assert_array_equal(delta_x, expected["x"])
    np.testing.assert_array_equal(delta_gate, expected["gate"])


@every_function
def test_the_bits_of_a_row_do_not_depend_on_the_others(function, rng):
    whole = Case(np.float32, True, rng)
    part = Case(np.float32, True, rng)
    part.x, part.gate, part.delta_y = whole.x[4:], whole.gate[4:], whole.delta_y[4:]
    part.bias, part.gate_bias = whole.bias, whole.gate_bias
    np.testing.assert_array_equal(part.forward(function, None), whole.forward(function, None)[4:])
    deltas = part.backward(function, None), whole.backward(function, None)
    for name in ("x", "gate"):
        np.testing.assert_array_equal(deltas[0][name], deltas[1][name][4:])


@every_function
@given(seed=st.integers(0, 99))
def test_of_ones_comes_the_function_of_the_gate(function, seed):
    case = Case(np.float32, True, np.random.default_rng(seed))
    case.x[:], case.bias = 1.0, None
    y = np.full_like(case.gate, np.nan)
    activation_forward(function, case.gate, case.gate_bias, y, DROPOUT)
    np.testing.assert_array_equal(case.forward(function, DROPOUT), y)


@every_function
@pytest.mark.parametrize("spoilt", ["x", "gate"])
def test_nan_comes_out_forward(function, spoilt, rng):
    case = Case(np.float32, True, rng)
    getattr(case, spoilt)[3, 50] = np.nan
    np.testing.assert_array_equal(np.argwhere(np.isnan(case.forward(function, DROPOUT))), [[3, 50]])


@every_function
@pytest.mark.parametrize(("spoilt", "reached"), [("x", {"gate"}), ("gate", {"x", "gate"}), ("delta_y", {"x", "gate"})])
def test_nan_comes_out_backward(function, spoilt, reached, rng):
    if (function, spoilt) == ("linear", "gate"):
        reached = {"x"}  # the slope of the linear function knows no gate
    case = Case(np.float32, True, rng)
    getattr(case, spoilt)[3, 50] = np.nan
    deltas = case.backward(function, None)
    for name in ("x", "gate"):
        expected = [[3, 50]] if name in reached else np.empty((0, 2))
        np.testing.assert_array_equal(np.argwhere(np.isnan(deltas[name])), expected)
    for name, of in (("bias", "x"), ("gate_bias", "gate")):
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(deltas[name])), [50] if of in reached else [])


@pytest.mark.parametrize("function", ["swish", "squared_relu"])
def test_a_function_that_is_no_gate_is_refused(function, rng):
    case = Case(np.float32, False, rng)
    with pytest.raises(KeyError, match=f"^'{function}'$"):
        case.forward(function, None)
    with pytest.raises(KeyError, match=f"^'{function}'$"):
        case.backward(function, None)
