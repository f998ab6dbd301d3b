"""The residual connection, with bias and dropout of the branch that it joins; multiplication by one number."""

import numpy as np

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import narrow
from cstool.training.kernels.call import Call
from cstool.training.kernels.linear import column_sum
from cstool.training.kernels.random import dropout_apply, mask_memory, mask_row


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


def residual_forward(c: Call) -> None:
    """Compute y = residual + dropout(x + bias), bias (H,) or none; y may be x or residual, the inputs."""
    _forward(*c.inputs, c.bias(0), c.outputs[0], c.draws)


@elementwise
def _backward(delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
    """Write the delta of x, in another precision than the delta of y, and the gradient of the bias, if there is one."""
    tokens, width = delta_y.shape
    grad_bias[:] = 0
    memory = mask_memory(width, delta_y)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        for j in range(grad_bias.shape[0]):
            grad_bias[j] += mask[j] * delta_y[t, j]
        for j in range(width):
            delta_x[t, j] = narrow(mask[j] * delta_y[t, j], delta_x)


def residual_backward(c: Call) -> None:
    """Compute the delta of x and the gradient of the bias; the delta of the residual is the delta of y itself.

    So is the delta of x without dropout and in the same precision; then it is not computed.
    """
    delta_x = c.delta_y
    if c.delta_inputs[0] is not None and c.delta_x(0).dtype != c.delta_y.dtype:
        _backward(c.delta_y, c.delta_x(0), c.gradient_or_empty(0), c.draws)
        return
    if c.dropout is not None or c.delta_inputs[0] is not None:
        delta_x = c.delta_x(0)
        dropout_apply(c.dropout, c.delta_y, delta_x)
    if (grad_bias := c.gradient(0)) is not None:
        column_sum(delta_x, grad_bias)


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


def scale_forward(c: Call) -> None:
    """Compute y = dropout(x * factor); y may be x."""
    _scale(c.inputs[0], float(c.attributes["factor"]), c.outputs[0], c.draws)


def scale_backward(c: Call) -> None:
    """Compute the delta of x from the delta of y, by the same scale and dropout as y from x."""
    _scale(c.delta_y, float(c.attributes["factor"]), c.delta_x(0), c.draws)


def token_factors(ids: np.ndarray, mask: np.ndarray, mask_token: int, kept: float) -> np.ndarray:
    """Factors on tokens, (samples, S) float64.

    Args:
        ids: (samples, S)
        mask: (samples, S), 1 for the tokens that are none of padding
        mask_token: the id of masked tokens
        kept: share of tokens that are not masked in training
    """
    is_masked = ids == mask_token
    share = is_masked.sum(axis=1, keepdims=True) / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    # Where all of a sample is masked, there is nothing to make larger.
    factors: np.ndarray = np.where(is_masked, 0, kept / np.where(share < 1, 1 - share, 1))
    return factors


def _token_factors(c: Call) -> np.ndarray:
    x, *rest = c.inputs
    ids, mask = (part.reshape(-1, c.sequence) for part in rest)
    return token_factors(ids, mask, c.attributes["mask_token"], c.attributes["kept"]).astype(x.dtype).reshape(-1, 1)


def token_dropout_forward(c: Call) -> None:
    """Compute y = x * kept / (1 - share of masked tokens), and 0 for these; y may be x.

    Inputs are x, (T, H), the ids, (T,) int32, and the mask of the tokens that are none of padding, (T,) int32.

    Source: Lin et al., "Evolutionary-scale prediction of atomic-level protein structure", 2023, as released.
    """
    np.multiply(c.inputs[0], _token_factors(c), out=c.outputs[0])


def token_dropout_backward(c: Call) -> None:
    """Compute the delta of x, perhaps in place."""
    np.multiply(c.delta_y, _token_factors(c), out=c.delta_x(0))
