"""Normalisation of rows: by mean and variance, or by the root mean square alone.

Source: Ba, Kiros, Hinton, "Layer normalization", 2016; Zhang, Sennrich, "Root mean square layer normalization", 2019.
"""

import math

import numpy as np

from cstool.training.kernels._jit import reduction
from cstool.training.kernels.bfloat16 import finish, target
from cstool.training.kernels.call import Call


@reduction
def _layer_norm_forward(x, weight, bias, epsilon, y, mean, rstd):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    one = x.dtype.type(1)
    share = one / x.dtype.type(width)
    small = x.dtype.type(epsilon)
    memory = np.empty(width, x.dtype)
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
        row = target(y, t, memory)
        if bias.shape[0] > 0:
            for j in range(width):
                row[j] = (x[t, j] - m) * r * weight[j] + bias[j]
        else:
            for j in range(width):
                row[j] = (x[t, j] - m) * r * weight[j]
        finish(memory, y, t)


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
    memory = np.empty(width, x.dtype)
    for t in range(tokens):
        squares = x.dtype.type(0)
        for j in range(width):
            squares += x[t, j] * x[t, j]
        r = one / math.sqrt(squares * share + small)
        rstd[t] = r
        row = target(y, t, memory)
        for j in range(width):
            row[j] = x[t, j] * r * weight[j]
        finish(memory, y, t)


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


def layer_norm_forward(c: Call) -> None:
    """Normalise each row, then scale and shift it: weight (H,), and bias (H,) or none.

    Kept are the mean and the rstd, 1 / sqrt(variance + epsilon), of each row.
    """
    weight, bias = c.weight(0), c.vector(1)
    bias, kept = weight[:0] if bias is None else bias, (c.kept["mean"], c.kept["rstd"])
    _layer_norm_forward(c.inputs[0], weight, bias, float(c.attributes["epsilon"]), c.outputs[0], *kept)


def layer_norm_backward(c: Call) -> None:
    """Compute the delta of x and the gradients of a layer norm."""
    known = c.inputs[0], c.weight(0), c.kept["mean"], c.kept["rstd"]
    gradients = c.grad(0), c.gradient_or_empty(1)
    _layer_norm_backward(*known, c.delta_y, c.delta_x(0), c.accumulate[0], *gradients)


def rms_norm_forward(c: Call) -> None:
    """Divide each row by its root mean square, then scale it by weight (H,).

    Kept is the rstd, 1 / sqrt(mean square + epsilon), of each row.
    """
    _rms_norm_forward(c.inputs[0], c.weight(0), float(c.attributes["epsilon"]), c.outputs[0], c.kept["rstd"])


def rms_norm_backward(c: Call) -> None:
    """Compute the delta of x and the gradient of a root mean square norm."""
    known = c.inputs[0], c.weight(0), c.kept["rstd"]
    _rms_norm_backward(*known, c.delta_y, c.delta_x(0), c.accumulate[0], c.grad(0))


def head_norm_forward(c: Call) -> None:
    """Divide each head of a row, (T, heads * D), by its root mean square, then scale it by weight (D,).

    Kept is the rstd of each head of each row, heads x T numbers, row by row.
    """
    width, rstd = len(c.weight(0)), c.kept["rstd"].reshape(-1)
    x, y = (array.reshape(-1, width) for array in (c.inputs[0], c.outputs[0]))
    _rms_norm_forward(x, c.weight(0), float(c.attributes["epsilon"]), y, rstd)


def head_norm_backward(c: Call) -> None:
    """Compute the delta of x and the gradient of a norm of heads."""
    width, rstd = len(c.weight(0)), c.kept["rstd"].reshape(-1)
    x, delta_y, delta_x = (array.reshape(-1, width) for array in (c.inputs[0], c.delta_y, c.delta_x(0)))
    _rms_norm_backward(x, c.weight(0), rstd, delta_y, delta_x, c.accumulate[0], c.grad(0))
