"""Multiplication by one number, with the dropout after it."""

from __future__ import annotations

import numpy as np

from cstool.kernels._jit import elementwise
from cstool.kernels.random import Dropout, draws_of, mask_memory, mask_row


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
