"""Element-wise functions, with the bias before and the dropout after them, alone and as gates of another activation.

Source: Shazeer, "GLU variants improve Transformer", 2020, for gates.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cstool.model.activations import ACTIVATIONS
from cstool.training.kernels import exponential  # noqa: F401  (has the compiled forms of the formulas' functions)
from cstool.training.kernels._jit import Kernel, elementwise, inlined, pasted
from cstool.training.kernels.bfloat16 import finish, narrow, numbers, target, widen
from cstool.training.kernels.call import Call
from cstool.training.kernels.random import draws_of, mask_memory, mask_row

FUNCTIONS = {name: number for number, name in enumerate(ACTIVATIONS)}
"""the functions by name, with the number by which the kernels know them"""
GATES = tuple(name for name, row in ACTIVATIONS.items() if row.gate is not None)
"""the functions that a gate may have"""
_GATE_NUMBERS = {name: FUNCTIONS[name] for name in GATES}
_FORMULAS = {name: inlined(row.formula) for name, row in ACTIVATIONS.items()}


def by_function(part: Callable[[int, Kernel, Kernel], Kernel], names: Iterable[str]) -> Kernel:
    """One part of a kernel for several functions, to be told by number at each call which of them is meant.

    Args:
        part: makes the part of one function from its number, its formula and the part of the functions after it
        names: of the functions
    """
    found: Kernel = _no_function
    for name in reversed(tuple(names)):
        found = part(FUNCTIONS[name], _FORMULAS[name], found)
    return found


@inlined
def _no_function(*_arguments):  # type: ignore[no-untyped-def]
    """End the chain: names become numbers where a name that is none is found."""


def _value_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @pasted
    def value_part(function, x, bias, factor, y):  # type: ignore[no-untyped-def]
        if function == number:
            for j in range(x.shape[0]):
                y[j] = factor[j] * formula(x[j] + bias[j], x)[0]
        else:
            others(function, x, bias, factor, y)

    return value_part


def _slope_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @pasted
    def slope_part(function, x, bias, factor, delta, y):  # type: ignore[no-untyped-def]
        if function == number:
            for j in range(x.shape[0]):
                y[j] = factor[j] * delta[j] * formula(x[j] + bias[j], x)[1]
        else:
            others(function, x, bias, factor, delta, y)

    return slope_part


_values: Any = by_function(_value_part, FUNCTIONS)
_slopes: Any = by_function(_slope_part, FUNCTIONS)


@elementwise
def times_value(function, x, bias, factor, y):  # type: ignore[no-untyped-def]
    """Write factor * function(x + bias) to y, apart from the others; all are rows. To be called from kernels."""
    _values(function, x, bias, factor, y)


@elementwise
def _times_slope(function, x, bias, factor, delta, y):  # type: ignore[no-untyped-def]
    """Write factor * delta * (slope of function at x + bias) to y, apart from the others; all are rows."""
    _slopes(function, x, bias, factor, delta, y)


@elementwise
def _forward(function, x, bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, bias)
    x_memory, y_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
    for t in range(tokens):
        row = target(y, t, y_memory)
        times_value(function, numbers(x, t, x_memory), bias, mask_row(memory, draws, t, width), row)
        finish(y_memory, y, t)


@elementwise
def _backward(function, x, bias, delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    grad_bias[:] = 0
    memory = mask_memory(width, bias)
    row = np.empty(width, bias.dtype)
    x_memory, delta_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        _times_slope(function, numbers(x, t, x_memory), bias, mask, numbers(delta_y, t, delta_memory), row)
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += row[j]
        for j in range(width):
            delta_x[t, j] = narrow(row[j], delta_x)


def activation_forward(c: Call) -> None:
    """Compute y = dropout(function(x + bias)), bias (F,) or none; y is apart from x in memory.

    Raises:
        KeyError: for a function that is not in `FUNCTIONS`
    """
    _forward(FUNCTIONS[c.attributes["function"]], c.inputs[0], c.bias(0), c.outputs[0], draws_of(c.dropout))


def activation_backward(c: Call) -> None:
    """Compute the delta of x and the gradient of the bias, which is the sum of the former's rows."""
    known = FUNCTIONS[c.attributes["function"]], c.inputs[0], c.bias(0)
    _backward(*known, c.delta_y, c.delta_x(0), c.gradient_or_empty(0), draws_of(c.dropout))


@elementwise
def _gated_forward(function, x, gate, bias, gate_bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, bias)
    row = np.empty(width, bias.dtype)
    gate_memory, y_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = mask[j] * (widen(x[t, j]) + bias[j])
        times_value(function, numbers(gate, t, gate_memory), gate_bias, row, target(y, t, y_memory))
        finish(y_memory, y, t)


def _deltas_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @pasted
    def deltas_part(function, x, gate, bias, gate_bias, delta, delta_x, delta_gate):  # type: ignore[no-untyped-def]
        if function == number:
            for j in range(x.shape[0]):
                value, slope = formula(gate[j] + gate_bias[j], x)
                delta_x[j] = delta[j] * value
                delta_gate[j] = delta[j] * (x[j] + bias[j]) * slope
        else:
            others(function, x, gate, bias, gate_bias, delta, delta_x, delta_gate)

    return deltas_part


_deltas_of: Any = by_function(_deltas_part, GATES)


@elementwise
def _deltas(function, x, gate, bias, gate_bias, delta, delta_x, delta_gate):  # type: ignore[no-untyped-def]
    """Write the deltas of a row of x and of the gate, both apart from the others."""
    _deltas_of(function, x, gate, bias, gate_bias, delta, delta_x, delta_gate)


@elementwise
def _gated_backward(  # type: ignore[no-untyped-def]
    function, x, gate, bias, gate_bias, delta_y, delta_x, delta_gate, grad_bias, grad_gate_bias, draws
):
    tokens, width = x.shape
    grad_bias[:] = 0
    grad_gate_bias[:] = 0
    memory = mask_memory(width, bias)
    row = np.empty(width, bias.dtype)
    x_memory, gate_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
    delta_memory, delta_gate_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        for j in range(width):
            row[j] = mask[j] * widen(delta_y[t, j])
        x_row, gate_row = numbers(x, t, x_memory), numbers(gate, t, gate_memory)
        x_delta, gate_delta = target(delta_x, t, delta_memory), target(delta_gate, t, delta_gate_memory)
        _deltas(function, x_row, gate_row, bias, gate_bias, row, x_delta, gate_delta)
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += x_delta[j]
        if grad_gate_bias.shape[0] > 0:
            for j in range(width):
                grad_gate_bias[j] += gate_delta[j]
        finish(delta_memory, delta_x, t)
        finish(delta_gate_memory, delta_gate, t)


def gated_activation_forward(c: Call) -> None:
    """Compute y = dropout((x + bias) * function(gate + gate_bias)), both biases (F,) or none.

    x and gate are the inputs; y is apart from them in memory.

    Raises:
        KeyError: for a function that is not one of `GATES`
    """
    known = _GATE_NUMBERS[c.attributes["function"]], *c.inputs, c.bias(0), c.bias(1)
    _gated_forward(*known, c.outputs[0], draws_of(c.dropout))


def gated_activation_backward(c: Call) -> None:
    """Compute the deltas of x and gate and the gradients of their biases, which are the sums of the deltas' rows.

    The delta of the gate must not overlap the delta of y in memory.
    """
    known = _GATE_NUMBERS[c.attributes["function"]], *c.inputs, c.bias(0), c.bias(1)
    gradients = c.gradient_or_empty(0), c.gradient_or_empty(1)
    _gated_backward(*known, c.delta_y, c.delta_x(0), c.delta_x(1), *gradients, draws_of(c.dropout))
