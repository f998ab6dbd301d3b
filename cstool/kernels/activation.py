"""Element-wise functions, with the bias before and the dropout after them.

Source: Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016; the exact form with the error function.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cstool.kernels._jit import elementwise
from cstool.kernels.exponential import normal
from cstool.kernels.random import Dropout, draws_of, mask_memory, mask_row

FUNCTIONS = {"relu": 0, "gelu": 1}
"""the functions by name, with the number by which the kernel knows them"""

_RELU = FUNCTIONS["relu"]


@lru_cache(maxsize=64)
def zero_bias(width: int, dtype: np.dtype) -> np.ndarray:
    """Return the bias of a layer without one, only to be read: kernels add zeros rather than exist twice."""
    return np.zeros(width, dtype)


@elementwise
def _forward(function, x, bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    zero = x.dtype.type(0)
    memory = mask_memory(width, x)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        if function == _RELU:
            for j in range(width):
                u = x[t, j] + bias[j]
                y[t, j] = mask[j] * (zero if u < zero else u)
        else:
            for j in range(width):
                u = x[t, j] + bias[j]
                below, _ = normal(u)
                y[t, j] = mask[j] * u * below


@elementwise
def _backward(function, x, bias, delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    zero = x.dtype.type(0)
    grad_bias[:] = zero
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        if function == _RELU:
            for j in range(width):
                u = x[t, j] + bias[j]
                # u - u: 0, or NaN where u is not finite
                row[j] = mask[j] * (delta_y[t, j] if u > zero else u - u)
        else:
            for j in range(width):
                u = x[t, j] + bias[j]
                below, density = normal(u)
                row[j] = mask[j] * delta_y[t, j] * (below + u * density)
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
