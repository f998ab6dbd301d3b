"""The residual connection, with bias and dropout of the branch that it joins; multiplication by one number."""

import numpy as np

from cstool.kernels._jit import elementwise
from cstool.kernels.activation import zero_bias
from cstool.kernels.linear import column_sum
from cstool.kernels.random import Dropout, draws_of, dropout_apply, mask_memory, mask_row


@elementwise
def _forward(x, residual, bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = residual[t, j] + mask[j] * (x[t, j] + bias[j])
        for j in range(width):
            y[t, j] = row[j]


def residual_forward(
    x: np.ndarray, residual: np.ndarray, bias: np.ndarray | None, y: np.ndarray, dropout: Dropout | None
) -> None:
    """Compute y = residual + dropout(x + bias).

    Args:
        x: (T, H) float32
        residual: (T, H) float32
        bias: (H,) float32 or None
        y: (T, H) float32, written; may be x or residual
        dropout: None for none
    """
    _forward(x, residual, zero_bias(x.shape[1], x.dtype) if bias is None else bias, y, draws_of(dropout))


def residual_backward(
    delta_y: np.ndarray, delta_x: np.ndarray | None, grad_bias: np.ndarray | None, dropout: Dropout | None
) -> None:
    """Compute the delta of x and the gradient of the bias; the delta of the residual is delta_y itself.

    Args:
        delta_y: (T, H) float32
        delta_x: (T, H) float32, written; may be delta_y. None without dropout: it equals delta_y then
        grad_bias: (H,) float32, written, or None
        dropout: as in forward

    Raises:
        ValueError: with dropout but no delta_x
    """
    if dropout is not None:
        if delta_x is None:
            raise ValueError("residual_backward with dropout needs delta_x")
        dropout_apply(dropout, delta_y, delta_x)
    elif delta_x is not None and delta_x is not delta_y:
        np.copyto(delta_x, delta_y)
    if grad_bias is not None:
        column_sum(delta_y if delta_x is None else delta_x, grad_bias)


@elementwise
def _scale(x, factor, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    number = x.dtype.type(factor)
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        for j in range(width):
            row[j] = mask[j] * (x[t, j] * number)
        for j in range(width):
            y[t, j] = row[j]


def scale_forward(x: np.ndarray, factor: float, y: np.ndarray, dropout: Dropout | None) -> None:
    """Compute y = dropout(x * factor).

    Args:
        x: (T, H) float32
        factor: a number
        y: (T, H) float32, written; may be x
        dropout: None for none
    """
    _scale(x, float(factor), y, draws_of(dropout))


def scale_backward(delta_y: np.ndarray, factor: float, delta_x: np.ndarray, dropout: Dropout | None) -> None:
    """Compute the delta of x, which comes from that of y as y from x.

    Args:
        delta_y: (T, H) float32
        factor, dropout: as in forward
        delta_x: (T, H) float32, written; may be delta_y
    """
    scale_forward(delta_y, factor, delta_x, dropout)
