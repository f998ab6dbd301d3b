"""Gated linear units: one half of a layer is multiplied by a function of the other.

Source: Shazeer, "GLU variants improve Transformer", 2020.
"""

from typing import Any

import numpy as np

from cstool.activations import ACTIVATIONS
from cstool.kernels._jit import Kernel, elementwise, inlined
from cstool.kernels.activation import FUNCTIONS, by_function, times_value
from cstool.kernels.call import Call
from cstool.kernels.random import draws_of, mask_memory, mask_row

GATES = tuple(name for name, row in ACTIVATIONS.items() if row.gate is not None)
"""the functions that a gate may have"""

_NUMBERS = {name: FUNCTIONS[name] for name in GATES}


@elementwise
def _forward(function, x, gate, bias, gate_bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = mask[j] * (x[t, j] + bias[j])
        times_value(function, gate[t], gate_bias, row, y[t])


def _deltas_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @inlined
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
def _backward(  # type: ignore[no-untyped-def]
    function, x, gate, bias, gate_bias, delta_y, delta_x, delta_gate, grad_bias, grad_gate_bias, draws
):
    tokens, width = x.shape
    grad_bias[:] = 0
    grad_gate_bias[:] = 0
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        for j in range(width):
            row[j] = mask[j] * delta_y[t, j]
        _deltas(function, x[t], gate[t], bias, gate_bias, row, delta_x[t], delta_gate[t])
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += delta_x[t, j]
        if grad_gate_bias.shape[0] > 0:
            for j in range(width):
                grad_gate_bias[j] += delta_gate[t, j]


def gated_activation_forward(c: Call) -> None:
    """Compute y = dropout((x + bias) * function(gate + gate_bias)), both biases (F,) or none.

    x and gate are the inputs; y is apart from them in memory.

    Raises:
        KeyError: for a function that is not one of `GATES`
    """
    known = _NUMBERS[c.attributes["function"]], *c.inputs, c.bias(0), c.bias(1)
    _forward(*known, c.outputs[0], draws_of(c.dropout))


def gated_activation_backward(c: Call) -> None:
    """Compute the deltas of x and gate and the gradients of their biases, which are the sums of the deltas' rows.

    The delta of the gate is apart from that of y in memory.
    """
    known = _NUMBERS[c.attributes["function"]], *c.inputs, c.bias(0), c.bias(1)
    gradients = c.gradient_or_empty(0), c.gradient_or_empty(1)
    _backward(*known, c.delta_y, c.delta_x(0), c.delta_x(1), *gradients, draws_of(c.dropout))
