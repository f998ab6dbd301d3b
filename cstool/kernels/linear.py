"""A linear layer, by ranges of the rows of its weight (the panels)."""

import numpy as np

from cstool.kernels.gemm import NUMPY, Gemm, Scratch, quiet


@quiet
def linear_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray, gemm: Gemm = NUMPY
) -> None:
    """Compute y = x weight^T + bias for a range of outputs.

    Args:
        x: (T, in) float32
        weight: (rows, in) float32
        bias: (rows,) float32 or None
        y: (T, rows) float32, a column slice of the layer's output
        gemm: provider of the product
    """
    gemm.multiply(x, weight.T, y)
    if bias is not None:
        np.add(y, bias, out=y)


def linear_backward_delta(
    delta_y: np.ndarray,
    weight: np.ndarray,
    delta_x: np.ndarray,
    accumulate: bool,
    scratch: Scratch,
    gemm: Gemm = NUMPY,
) -> None:
    """Compute what a range of outputs contributes to the delta of x: delta_y weight.

    Args:
        delta_y: (T, rows) float32
        weight: (rows, in) float32
        delta_x: (T, in) float32
        accumulate: add to delta_x instead of overwriting it
        scratch: lends (T, in)
        gemm: provider of the product
    """
    if accumulate:
        gemm.multiply_add(delta_y, weight, delta_x, scratch("linear.delta_x", delta_x.shape))
    else:
        gemm.multiply(delta_y, weight, delta_x)


def linear_backward_weight(x: np.ndarray, delta_y: np.ndarray, grad_weight: np.ndarray, gemm: Gemm = NUMPY) -> None:
    """Compute the gradient of a range of rows: delta_y^T x.

    Args:
        x: (T, in) float32
        delta_y: (T, rows) float32
        grad_weight: (rows, in) float32
        gemm: provider of the product
    """
    gemm.multiply(delta_y.T, x, grad_weight)


@quiet
def column_sum(delta_y: np.ndarray, grad_bias: np.ndarray) -> None:
    """Sum the rows of delta_y, in their order.

    Args:
        delta_y: (T, rows) float32
        grad_bias: (rows,) float32
    """
    np.add.reduce(delta_y, axis=0, out=grad_bias)
