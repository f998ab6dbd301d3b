"""Gated linear units: one half of a layer is multiplied by a function of the other.

Source: Shazeer, "GLU variants improve Transformer", 2020.
"""

from typing import Any

import numpy as np

from cstool.activations import ACTIVATIONS
from cstool.kernels._jit import Kernel, elementwise, inlined
from cstool.kernels.activation import FUNCTIONS, by_function, times_value, zero_bias
from cstool.kernels.random import Dropout, draws_of, mask_memory, mask_row

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


def gated_activation_forward(
    function: str,
    x: np.ndarray,
    gate: np.ndarray,
    bias: np.ndarray | None,
    gate_bias: np.ndarray | None,
    y: np.ndarray,
    dropout: Dropout | None,
) -> None:
    """Compute y = dropout((x + bias) * function(gate + gate_bias)).

    Args:
        function: one of `GATES`
        x, gate: (T, F) float32
        bias, gate_bias: (F,) float32 or None
        y: (T, F) float32, written; apart from x and gate in memory
        dropout: None for none

    Raises:
        KeyError: for another function
    """
    zero = zero_bias(x.shape[1], x.dtype)
    offsets = (zero if b is None else b for b in (bias, gate_bias))
    _forward(_NUMBERS[function], x, gate, *offsets, y, draws_of(dropout))


def gated_activation_backward(
    function: str,
    x: np.ndarray,
    gate: np.ndarray,
    bias: np.ndarray | None,
    gate_bias: np.ndarray | None,
    delta_y: np.ndarray,
    delta_x: np.ndarray,
    delta_gate: np.ndarray,
    grad_bias: np.ndarray | None,
    grad_gate_bias: np.ndarray | None,
    dropout: Dropout | None,
) -> None:
    """Compute the deltas of x and gate and the gradients of their biases, which are the sums of the deltas' rows.

    Args:
        function, x, gate, bias, gate_bias, dropout: as in forward
        delta_y: (T, F) float32
        delta_x: (T, F) float32, written; may be delta_y
        delta_gate: (T, F) float32, written; apart from delta_y in memory
        grad_bias, grad_gate_bias: (F,) float32, written, or None

    Raises:
        KeyError: for another function
    """
    zero = zero_bias(x.shape[1], x.dtype)
    offsets = (zero if b is None else b for b in (bias, gate_bias))
    grads = (zero[:0] if g is None else g for g in (grad_bias, grad_gate_bias))
    number = _NUMBERS[function]
    _backward(number, x, gate, *offsets, delta_y, delta_x, delta_gate, *grads, draws_of(dropout))
