"""Optimizer updates in place, the same bits however a tensor is cut, and the measurements of gradients they need.

Source: the semantics of PyTorch's `torch.optim.SGD`, `Adam` and `AdamW` (the algorithms in their documentation); what
the vendor's have otherwise is a matter of the corrections given (`machine/memoryx/optimizer.py`).
"""

from __future__ import annotations

import math

import numpy as np

from cstool.kernels._jit import elementwise, reduction

_SEARCH = 1024
"""elements that `first_non_finite` looks at together"""


@elementwise
def _sgd(weight, grad, buffer, lr, momentum, dampening, nesterov, weight_decay, grad_scale, clip_value, first):  # type: ignore[no-untyped-def]
    number = weight.dtype.type
    rate, keep, fresh, decay = number(lr), number(momentum), number(1.0 - dampening), number(weight_decay)
    factor, most = number(grad_scale), number(clip_value)
    has_buffer = buffer.shape[0] > 0
    for i in range(weight.shape[0]):
        g = grad[i] * factor
        g = most if g > most else g
        g = -most if g < -most else g
        g = g + decay * weight[i]
        if has_buffer:
            b = g if first else keep * buffer[i] + fresh * g
            buffer[i] = b
            g = g + keep * b if nesterov else b
        weight[i] = weight[i] - rate * g


@elementwise
def _adam(  # type: ignore[no-untyped-def]
    weight,
    grad,
    exp_avg,
    exp_avg_sq,
    beta1,
    beta2,
    epsilon,
    decay,
    shrink,
    step,
    correction,
    grad_scale,
    clip_value,
):
    number = weight.dtype.type
    keep1, keep2, fresh1, fresh2 = number(beta1), number(beta2), number(1.0 - beta1), number(1.0 - beta2)
    small, pull, remain, stride = number(epsilon), number(decay), number(shrink), number(step)
    root, factor, most = number(correction), number(grad_scale), number(clip_value)
    for i in range(weight.shape[0]):
        g = grad[i] * factor
        g = most if g > most else g
        g = -most if g < -most else g
        w = weight[i] * remain
        g = g + pull * w
        m = keep1 * exp_avg[i] + fresh1 * g
        v = keep2 * exp_avg_sq[i] + fresh2 * g * g
        exp_avg[i] = m
        exp_avg_sq[i] = v
        weight[i] = w - stride * m / (math.sqrt(v) * root + small)


@reduction
def _sum_squares(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(x.shape[0]):
        value = np.float64(x[i])
        total += value * value
    return total


@reduction
def _first_non_finite(x):  # type: ignore[no-untyped-def]
    size = x.shape[0]
    for start in range(0, size, _SEARCH):
        part = x[start : start + _SEARCH]
        total = x.dtype.type(0)
        for i in range(part.shape[0]):
            # 0, or NaN where x is not finite
            total += part[i] * x.dtype.type(0)
        if total != x.dtype.type(0):
            for i in range(part.shape[0]):
                if not math.isfinite(part[i]):
                    return start + i
    return -1


def sgd_update(
    weight: np.ndarray,
    grad: np.ndarray,
    momentum_buffer: np.ndarray | None,
    lr: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    grad_scale: float,
    clip_value: float,
    first: bool,
) -> None:
    """Take one step of stochastic gradient descent.

    Args:
        weight: (n,) float32, updated
        grad: (n,) float32
        momentum_buffer: (n,) float32, updated; None without momentum
        lr: learning rate
        grad_scale: multiplies the gradient before all else
        clip_value: largest magnitude of a scaled gradient's element, infinity for none
        first: whether the gradient is the buffer, as at PyTorch's first step, not added to it
    """
    buffer = weight[:0] if momentum_buffer is None else momentum_buffer
    numbers = float(lr), float(momentum), float(dampening), bool(nesterov), float(weight_decay)
    _sgd(weight, grad, buffer, *numbers, float(grad_scale), float(clip_value), bool(first))


def adam_update(
    weight: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    bias_correction1: float,
    bias_correction2: float,
    grad_scale: float,
    clip_value: float,
) -> None:
    """Take one step of Adam, or of AdamW if the weight decay is decoupled.

    Args:
        weight: (n,) float32, updated
        grad: (n,) float32
        exp_avg, exp_avg_sq: (n,) float32, updated: running means of the gradient and of its square
        lr: learning rate
        decoupled: shrink the weight itself (AdamW) instead of adding the decay to the gradient (Adam)
        bias_correction1: what the mean of the gradient is divided by
        bias_correction2: what that of its square is divided by before epsilon is added to the root
        grad_scale, clip_value: as in `sgd_update`
    """
    decay, shrink = (0.0, 1.0 - lr * weight_decay) if decoupled else (float(weight_decay), 1.0)
    betas = float(beta1), float(beta2)
    corrected = lr / bias_correction1, 1.0 / math.sqrt(bias_correction2)
    last = float(grad_scale), float(clip_value)
    _adam(weight, grad, exp_avg, exp_avg_sq, *betas, float(epsilon), decay, shrink, *corrected, *last)


def sum_squares(x: np.ndarray) -> float:
    """Return the sum of squares in float64.

    Args:
        x: (n,) float32
    """
    return float(_sum_squares(x))


def first_non_finite(x: np.ndarray) -> int:
    """Return the index of the first NaN or infinity, -1 if there is none.

    Args:
        x: (n,) float32
    """
    return int(_first_non_finite(x))
