"""Normalisation of rows: by mean and variance, or by the root mean square alone.

Source: Ba, Kiros, Hinton, "Layer normalization", 2016; Zhang, Sennrich, "Root mean square layer normalization", 2019.
"""

import math

import numpy as np

from cstool.kernels._jit import reduction


@reduction
def _layer_norm_forward(x, weight, bias, epsilon, y, mean, rstd):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    one = x.dtype.type(1)
    share = one / x.dtype.type(width)
    small = x.dtype.type(epsilon)
    for t in range(tokens):
        total = x.dtype.type(0)
        for j in range(width):
            total += x[t, j]
        m = total * share
        squares = x.dtype.type(0)
        for j in range(width):
            squares += (x[t, j] - m) * (x[t, j] - m)
        r = one / math.sqrt(squares * share + small)
        mean[t] = m
        rstd[t] = r
        if bias.shape[0] > 0:
            for j in range(width):
                y[t, j] = (x[t, j] - m) * r * weight[j] + bias[j]
        else:
            for j in range(width):
                y[t, j] = (x[t, j] - m) * r * weight[j]


@reduction
def _layer_norm_backward(x, weight, mean, rstd, delta_y, delta_x, accumulate, grad_weight, grad_bias):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    share = x.dtype.type(1) / x.dtype.type(width)
    grad_weight[:] = 0
    grad_bias[:] = 0
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        m = mean[t]
        r = rstd[t]
        total = x.dtype.type(0)
        projection = x.dtype.type(0)
        for j in range(width):
            normalised = (x[t, j] - m) * r
            delta = delta_y[t, j] * weight[j]
            total += delta
            projection += delta * normalised
        total *= share
        projection *= share
        for j in range(width):
            normalised = (x[t, j] - m) * r
            grad_weight[j] += delta_y[t, j] * normalised
            row[j] = (delta_y[t, j] * weight[j] - total - normalised * projection) * r
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += delta_y[t, j]
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        if accumulate:
            for j in range(width):
                delta_x[t, j] += row[j]
        else:
            for j in range(width):
                delta_x[t, j] = row[j]


@reduction
def _rms_norm_forward(x, weight, epsilon, y, rstd):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    one = x.dtype.type(1)
    share = one / x.dtype.type(width)
    small = x.dtype.type(epsilon)
    for t in range(tokens):
        squares = x.dtype.type(0)
        for j in range(width):
            squares += x[t, j] * x[t, j]
        r = one / math.sqrt(squares * share + small)
        rstd[t] = r
        for j in range(width):
            y[t, j] = x[t, j] * r * weight[j]


@reduction
def _rms_norm_backward(x, weight, rstd, delta_y, delta_x, accumulate, grad_weight):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    share = x.dtype.type(1) / x.dtype.type(width)
    grad_weight[:] = 0
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        r = rstd[t]
        projection = x.dtype.type(0)
        for j in range(width):
            projection += delta_y[t, j] * weight[j] * (x[t, j] * r)
        projection *= share
        for j in range(width):
            normalised = x[t, j] * r
            grad_weight[j] += delta_y[t, j] * normalised
            row[j] = (delta_y[t, j] * weight[j] - normalised * projection) * r
        # Through a row of its own, as above.
        if accumulate:
            for j in range(width):
                delta_x[t, j] += row[j]
        else:
            for j in range(width):
                delta_x[t, j] = row[j]


def layer_norm_forward(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    epsilon: float,
    y: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
) -> None:
    """Normalise each row, then scale and shift it.

    Args:
        x: (T, H) float32
        weight: (H,) float32
        bias: (H,) float32 or None
        epsilon: added to the variance
        y: (T, H) float32, written
        mean: (T,) float32, written
        rstd: (T,) float32, 1 / standard deviation, written
    """
    _layer_norm_forward(x, weight, x[0, :0] if bias is None else bias, float(epsilon), y, mean, rstd)


def layer_norm_backward(
    x: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
    delta_y: np.ndarray,
    delta_x: np.ndarray,
    accumulate: bool,
    grad_weight: np.ndarray,
    grad_bias: np.ndarray | None,
) -> None:
    """Compute the delta of x and the gradients of a layer norm.

    Args:
        x, weight, mean, rstd: as in forward
        delta_y: (T, H) float32
        delta_x: (T, H) float32, may be delta_y
        accumulate: add to delta_x instead of overwriting it
        grad_weight: (H,) float32, written
        grad_bias: (H,) float32, written, or None
    """
    bias = grad_weight[:0] if grad_bias is None else grad_bias
    _layer_norm_backward(x, weight, mean, rstd, delta_y, delta_x, accumulate, grad_weight, bias)


def rms_norm_forward(x: np.ndarray, weight: np.ndarray, epsilon: float, y: np.ndarray, rstd: np.ndarray) -> None:
    """Divide each row by its root mean square, then scale it.

    Args:
        x: (T, H) float32
        weight: (H,) float32
        epsilon: added to the mean square
        y: (T, H) float32, written
        rstd: (T,) float32, 1 / root mean square, written
    """
    _rms_norm_forward(x, weight, float(epsilon), y, rstd)


def rms_norm_backward(
    x: np.ndarray,
    weight: np.ndarray,
    rstd: np.ndarray,
    delta_y: np.ndarray,
    delta_x: np.ndarray,
    accumulate: bool,
    grad_weight: np.ndarray,
) -> None:
    """Compute the delta of x and the gradient of a root mean square norm.

    Args:
        x, weight, rstd: as in forward
        delta_y: (T, H) float32
        delta_x: (T, H) float32, may be delta_y
        accumulate: add to delta_x instead of overwriting it
        grad_weight: (H,) float32, written
    """
    _rms_norm_backward(x, weight, rstd, delta_y, delta_x, accumulate, grad_weight)
