"""Element-wise functions, with the bias before and the dropout after them, alone and as gates of another activation.

Source: Shazeer, "GLU variants improve Transformer", 2020, for gates.
"""

import functools
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cstool.model.activations import ACTIVATIONS
from cstool.training.kernels import exponential  # noqa: F401  (has the compiled forms of the formulas' functions)
from cstool.training.kernels._jit import Kernel, elementwise, inlined
from cstool.training.kernels.bfloat16 import finish, narrow, numbers, target, widen
from cstool.training.kernels.call import Call
from cstool.training.kernels.random import mask_memory, mask_row

FUNCTIONS = tuple(ACTIVATIONS)
"""the functions by name"""
GATES = tuple(name for name, row in ACTIVATIONS.items() if row.gate is not None)
"""the functions that a gate may have"""
_FORMULAS: dict[str, Any] = {name: inlined(row.formula) for name, row in ACTIVATIONS.items()}
_GATE_FORMULAS = {name: _FORMULAS[name] for name in GATES}


class _Pair(NamedTuple):
    """The kernels of one function: a run compiles those of its own functions alone."""

    forward: Kernel
    backward: Kernel


@functools.cache
def _kernels(function: str) -> _Pair:
    formula = _FORMULAS[function]

    @partial(elementwise, of=function)
    def activation_forward(x, bias, y, draws):  # type: ignore[no-untyped-def]
        tokens, width = x.shape
        memory = mask_memory(width, bias)
        x_memory, y_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
        for t in range(tokens):
            mask, x_row, row = mask_row(memory, draws, t, width), numbers(x, t, x_memory), target(y, t, y_memory)
            for j in range(width):
                row[j] = mask[j] * formula(x_row[j] + bias[j], x_row)[0]
            finish(y_memory, y, t)

    @partial(elementwise, of=function)
    def activation_backward(x, bias, delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
        tokens, width = x.shape
        grad_bias[:] = 0
        memory = mask_memory(width, bias)
        row = np.empty(width, bias.dtype)
        x_memory, delta_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
        for t in range(tokens):
            mask = mask_row(memory, draws, t, width)
            x_row, delta = numbers(x, t, x_memory), numbers(delta_y, t, delta_memory)
            # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
            for j in range(width):
                row[j] = mask[j] * delta[j] * formula(x_row[j] + bias[j], x_row)[1]
            if grad_bias.shape[0] > 0:
                for j in range(width):
                    grad_bias[j] += row[j]
            for j in range(width):
                delta_x[t, j] = narrow(row[j], delta_x)

    return _Pair(activation_forward, activation_backward)


def activation_forward(c: Call) -> None:
    """Compute y = dropout(function(x + bias)), bias (F,) or none; y is apart from x in memory.

    Raises:
        KeyError: for a function that is not in `FUNCTIONS`
    """
    _kernels(c.attributes["function"]).forward(c.inputs[0], c.bias(0), c.outputs[0], c.draws)


def activation_backward(c: Call) -> None:
    """Compute the delta of x and the gradient of the bias, which is the sum of the former's rows."""
    backward, gradient = _kernels(c.attributes["function"]).backward, c.gradient_or_empty(0)
    backward(c.inputs[0], c.bias(0), c.delta_y, c.delta_x(0), gradient, c.draws)


@functools.cache
def _gated_kernels(function: str) -> _Pair:
    formula = _GATE_FORMULAS[function]

    @partial(elementwise, of=function)
    def gated_activation_forward(x, gate, bias, gate_bias, y, draws):  # type: ignore[no-untyped-def]
        tokens, width = x.shape
        memory = mask_memory(width, bias)
        row = np.empty(width, bias.dtype)
        gate_memory, y_memory = np.empty(width, bias.dtype), np.empty(width, bias.dtype)
        for t in range(tokens):
            mask, gate_row, y_row = (
                mask_row(memory, draws, t, width),
                numbers(gate, t, gate_memory),
                target(y, t, y_memory),
            )
            for j in range(width):
                row[j] = mask[j] * (widen(x[t, j]) + bias[j])
            for j in range(width):
                y_row[j] = row[j] * formula(gate_row[j] + gate_bias[j], gate_row)[0]
            finish(y_memory, y, t)

    @partial(elementwise, of=function)
    def gated_activation_backward(  # type: ignore[no-untyped-def]
        x, gate, bias, gate_bias, delta_y, delta_x, delta_gate, grad_bias, grad_gate_bias, draws
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
            for j in range(width):
                value, slope = formula(gate_row[j] + gate_bias[j], x_row)
                x_delta[j] = row[j] * value
                gate_delta[j] = row[j] * (x_row[j] + bias[j]) * slope
            if grad_bias.shape[0] > 0:
                for j in range(width):
                    grad_bias[j] += x_delta[j]
            if grad_gate_bias.shape[0] > 0:
                for j in range(width):
                    grad_gate_bias[j] += gate_delta[j]
            finish(delta_memory, delta_x, t)
            finish(delta_gate_memory, delta_gate, t)

    return _Pair(gated_activation_forward, gated_activation_backward)


def gated_activation_forward(c: Call) -> None:
    """Compute y = dropout((x + bias) * function(gate + gate_bias)), both biases (F,) or none.

    x and gate are the inputs; y is apart from them in memory.

    Raises:
        KeyError: for a function that is not one of `GATES`
    """
    forward = _gated_kernels(c.attributes["function"]).forward
    forward(*c.inputs, c.bias(0), c.bias(1), c.outputs[0], c.draws)


def gated_activation_backward(c: Call) -> None:
    """Compute the deltas of x and gate and the gradients of their biases, which are the sums of the deltas' rows.

    The delta of the gate must not overlap the delta of y in memory.
    """
    known = *c.inputs, c.bias(0), c.bias(1), c.delta_y, c.delta_x(0), c.delta_x(1)
    gradients = c.gradient_or_empty(0), c.gradient_or_empty(1)
    _gated_kernels(c.attributes["function"]).backward(*known, *gradients, c.draws)
