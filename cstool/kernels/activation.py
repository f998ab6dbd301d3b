"""Element-wise functions, with the bias before and the dropout after them.

Source: Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016: gelu is the exact form with the error function,
gelu_new that with tanh, quick_gelu that with the logistic function, and silu the plain one of the latter; So et al.,
"Primer: searching for efficient transformers for language modeling", 2021: squared_relu.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from cstool.kernels._jit import elementwise, inlined
from cstool.kernels.exponential import normal, sigmoid
from cstool.kernels.random import Dropout, draws_of, mask_memory, mask_row

FUNCTIONS = {"relu": 0, "gelu": 1, "silu": 2, "squared_relu": 3, "gelu_new": 4, "quick_gelu": 5, "linear": 6}
"""the functions by name, with the number by which the kernels know them"""

RELU, GELU, SILU, _SQUARED_RELU, _GELU_NEW, _QUICK_GELU, _ = FUNCTIONS.values()

_TANH_LINEAR, _TANH_CUBIC = 2.0 * math.sqrt(2.0 / math.pi), 0.044715
"""gelu_new: (1 + tanh(z)) / 2 is the logistic function of 2 z; 2 z = linear * (u + cubic * u^3)"""

_QUICK = 1.702


@lru_cache(maxsize=64)
def zero_bias(width: int, dtype: np.dtype) -> np.ndarray:
    """Return the bias of a layer without one, only to be read: kernels add zeros rather than exist twice."""
    return np.zeros(width, dtype)


@inlined
def relu(u, like):  # type: ignore[no-untyped-def]
    """Return value and slope at u, as all functions here do; `like` is an array of the type of u."""
    zero = like.dtype.type(0)
    # u - u: 0, or NaN where u is not finite
    return (zero if u < zero else u), (like.dtype.type(1) if u > zero else u - u)


@inlined
def gelu(u, _like):  # type: ignore[no-untyped-def]
    """Return value and slope of u Phi(u)."""
    below, density = normal(u)
    return u * below, below + u * density


@inlined
def silu(u, like):  # type: ignore[no-untyped-def]
    """Return value and slope of u sigmoid(u)."""
    one = like.dtype.type(1)
    s = sigmoid(u)
    return u * s, s * (one + u * (one - s))


@inlined
def _squared_relu(u, like):  # type: ignore[no-untyped-def]
    zero = like.dtype.type(0)
    positive = zero if u < zero else u
    return positive * positive, positive + positive


@inlined
def _gelu_new(u, like):  # type: ignore[no-untyped-def]
    one = like.dtype.type(1)
    linear = like.dtype.type(_TANH_LINEAR)
    cubic = like.dtype.type(_TANH_LINEAR * _TANH_CUBIC)
    square = u * u
    s = sigmoid(u * (linear + cubic * square))
    return u * s, s * (one + u * (one - s) * (linear + like.dtype.type(3) * cubic * square))


@inlined
def _quick_gelu(u, like):  # type: ignore[no-untyped-def]
    one = like.dtype.type(1)
    steep = like.dtype.type(_QUICK) * u
    s = sigmoid(steep)
    return u * s, s * (one + steep * (one - s))


@elementwise
def times_value(function, x, bias, factor, y):  # type: ignore[no-untyped-def]
    """Write factor * function(x + bias) to y, apart from the others; all are rows. To be called from kernels."""
    width = x.shape[0]
    if function == RELU:
        for j in range(width):
            y[j] = factor[j] * relu(x[j] + bias[j], x)[0]
    elif function == GELU:
        for j in range(width):
            y[j] = factor[j] * gelu(x[j] + bias[j], x)[0]
    elif function == SILU:
        for j in range(width):
            y[j] = factor[j] * silu(x[j] + bias[j], x)[0]
    elif function == _SQUARED_RELU:
        for j in range(width):
            y[j] = factor[j] * _squared_relu(x[j] + bias[j], x)[0]
    elif function == _GELU_NEW:
        for j in range(width):
            y[j] = factor[j] * _gelu_new(x[j] + bias[j], x)[0]
    elif function == _QUICK_GELU:
        for j in range(width):
            y[j] = factor[j] * _quick_gelu(x[j] + bias[j], x)[0]
    else:
        for j in range(width):
            y[j] = factor[j] * (x[j] + bias[j])


@elementwise
def _times_slope(function, x, bias, factor, delta, y):  # type: ignore[no-untyped-def]
    """Write factor * delta * (slope of function at x + bias) to y, apart from the others; all are rows."""
    width = x.shape[0]
    if function == RELU:
        for j in range(width):
            y[j] = factor[j] * delta[j] * relu(x[j] + bias[j], x)[1]
    elif function == GELU:
        for j in range(width):
            y[j] = factor[j] * delta[j] * gelu(x[j] + bias[j], x)[1]
    elif function == SILU:
        for j in range(width):
            y[j] = factor[j] * delta[j] * silu(x[j] + bias[j], x)[1]
    elif function == _SQUARED_RELU:
        for j in range(width):
            y[j] = factor[j] * delta[j] * _squared_relu(x[j] + bias[j], x)[1]
    elif function == _GELU_NEW:
        for j in range(width):
            y[j] = factor[j] * delta[j] * _gelu_new(x[j] + bias[j], x)[1]
    elif function == _QUICK_GELU:
        for j in range(width):
            y[j] = factor[j] * delta[j] * _quick_gelu(x[j] + bias[j], x)[1]
    else:
        for j in range(width):
            y[j] = factor[j] * delta[j]


@elementwise
def _forward(function, x, bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    for t in range(tokens):
        times_value(function, x[t], bias, mask_row(memory, draws, t, width), y[t])


@elementwise
def _backward(function, x, bias, delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    grad_bias[:] = 0
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        _times_slope(function, x[t], bias, mask, delta_y[t], row)
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += row[j]
        for j in range(width):
            delta_x[t, j] = row[j]


def activation_forward(
    function: str, x: np.ndarray, bias: np.ndarray | None, y: np.ndarray, dropout: Dropout | None
) -> None:
    """Compute y = dropout(function(x + bias)).

    Args:
        function: a key of `FUNCTIONS`
        x: (T, F) float32
        bias: (F,) float32 or None
        y: (T, F) float32, written; apart from x in memory
        dropout: None for none

    Raises:
        KeyError: for an unknown function
    """
    width = x.shape[1]
    _forward(FUNCTIONS[function], x, zero_bias(width, x.dtype) if bias is None else bias, y, draws_of(dropout))


def activation_backward(
    function: str,
    x: np.ndarray,
    bias: np.ndarray | None,
    delta_y: np.ndarray,
    delta_x: np.ndarray,
    grad_bias: np.ndarray | None,
    dropout: Dropout | None,
) -> None:
    """Compute the delta of x and the gradient of the bias, which is the sum of the former's rows.

    Args:
        function, x, bias, dropout: as in forward
        delta_y: (T, F) float32
        delta_x: (T, F) float32, written; may be delta_y
        grad_bias: (F,) float32, written, or None

    Raises:
        KeyError: for an unknown function
    """
    width = x.shape[1]
    offset = zero_bias(width, x.dtype) if bias is None else bias
    grad = np.empty(0, x.dtype) if grad_bias is None else grad_bias
    _backward(FUNCTIONS[function], x, offset, delta_y, delta_x, grad, draws_of(dropout))
