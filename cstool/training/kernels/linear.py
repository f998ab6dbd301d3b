"""A linear layer, by ranges of the rows of its weight (the panels)."""

import numpy as np

from cstool.training.kernels import elementary
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import BFLOAT16, widen
from cstool.training.kernels.gemm import NUMPY, Gemm, Scratch, quiet


def linear_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray, gemm: Gemm = NUMPY
) -> None:
    """Compute y = x weight^T + bias for a range of outputs.

    Args:
        x: (T, in) float32 or bfloat16
        weight: (rows, in) float32 or bfloat16, as x
        bias: (rows,) float32 or None
        y: (T, rows) float32 or bfloat16, a column slice of the layer's output
        gemm: provider of the product
    """
    gemm.multiply(x, weight.T, y, bias)


def linear_backward_delta(
    delta_y: np.ndarray,
    weight: np.ndarray,
    delta_x: np.ndarray,
    accumulate: bool,
    scratch: Scratch,
    gemm: Gemm = NUMPY,
) -> None:
    """Compute the share of a range of outputs in the delta of x: delta_y weight.

    Args:
        delta_y: (T, rows) float32 or bfloat16
        weight: (rows, in) float32
        delta_x: (T, in) float32 or bfloat16
        accumulate: add to delta_x instead of overwriting it
        scratch: lends (T, in)
        gemm: provider of the product
    """
    if accumulate:
        gemm.multiply_add(delta_y, weight, delta_x, scratch("linear.delta_x", delta_x.shape))
    else:
        gemm.multiply(delta_y, weight, delta_x)


def linear_backward_weight(
    x: np.ndarray, delta_y: np.ndarray, grad_weight: np.ndarray, gemm: Gemm = NUMPY, *, adds: bool = False
) -> None:
    """Compute the gradient of a range of rows: delta_y^T x.

    Args:
        x: (T, in) float32 or bfloat16
        delta_y: (T, rows) float32 or bfloat16, as x
        grad_weight: (rows, in) float32
        gemm: provider of the product
        adds: add to grad_weight instead of overwriting it; only where the provider adds in place
    """
    if adds:
        assert len(x) <= gemm.terms_added_in_place
        gemm.multiply_add(delta_y.T, x, grad_weight, grad_weight)
    else:
        gemm.multiply(delta_y.T, x, grad_weight)


@elementwise
def _column_sum(delta_y, grad_bias):  # type: ignore[no-untyped-def]
    tokens, rows = delta_y.shape
    grad_bias[:] = 0
    for t in range(tokens):
        for j in range(rows):
            grad_bias[j] += widen(delta_y[t, j])


@quiet
def column_sum(delta_y: np.ndarray, grad_bias: np.ndarray) -> None:
    """Sum the rows of delta_y, in their order.

    Args:
        delta_y: (T, rows) float32 or bfloat16
        grad_bias: (rows,) float32
    """
    if delta_y.dtype == BFLOAT16:
        _column_sum(delta_y, grad_bias)
    else:
        elementary.sum_rows(delta_y, grad_bias)
