"""Linear layers, and the product of a layer with a panel of its matrix, dense or sparse, as experts have it, too."""

from cstool.training.kernels.bfloat16 import operand
from cstool.training.kernels.call import Array, Call
from cstool.training.kernels.linear import column_sum, linear_backward_delta, linear_backward_weight, linear_forward
from cstool.training.kernels.sparse import SparseMatrix


def multiply(c: Call, x: Array, bias: Array | None, y: Array) -> None:
    """Compute y = x weight^T + bias for the panel that a call holds, with operands in its precision.

    Args:
        x: (n, in) float32 or bfloat16, rows of an input
        bias: (rows,) float32 or None
        y: (n, rows) float32 or bfloat16, a column slice of the same rows of the output
    """
    weight = c.weights[0]
    x, gemm = operand(x, weight.dtype, "linear.x", c.scratch), c.gemm_for(weight)
    if isinstance(weight, SparseMatrix):
        weight.forward(x, bias, y, c.scratch, gemm)
    else:
        linear_forward(x, weight, bias, y, gemm)


def multiply_back(c: Call, x: Array, delta_y: Array, delta_x: Array | None, *, accumulate: bool) -> None:
    """Compute the share of a call's panel in the delta of x, and the gradient of the panel, unless that is frozen.

    Args:
        x: (n, in) float32 or bfloat16, rows of an input
        delta_y: (n, rows) float32 or bfloat16, the outputs of the panel
        delta_x: (n, in) float32 or bfloat16; None: not computed
        accumulate: add to delta_x instead of overwriting it
    """
    weight, grad = c.weights[0], c.gradient(0)
    gemm = c.gemm_for(weight)
    if grad is not None:
        x = operand(x, weight.dtype, "linear.x", c.scratch)
    delta_y = operand(delta_y, weight.dtype, "linear.delta_y", c.scratch)
    if isinstance(weight, SparseMatrix):
        weight.backward(x, delta_y, delta_x, accumulate, grad, c.scratch, gemm)
        return
    if delta_x is not None:
        linear_backward_delta(delta_y, weight, delta_x, accumulate, c.scratch, gemm)
    if grad is not None:
        linear_backward_weight(x, delta_y, grad, gemm, adds=c.adds)


def layer_forward(c: Call) -> None:
    """Compute outputs `start` to `stop` of y = x weight^T + bias, x (T, in), with the panel (rows, in) of the weight.

    The bias (out,) follows the panel, where there is one.
    """
    multiply(c, c.inputs[0], c.of_panel(c.vector(1)), c.outputs[0][:, c.start : c.stop])


def layer_backward(c: Call) -> None:
    """Compute the share of a panel in the delta of x, and its gradients."""
    part, accumulate = c.delta_y[:, c.start : c.stop], c.accumulate[0] or not c.first
    multiply_back(c, c.inputs[0], part, c.delta_inputs[0], accumulate=accumulate)
    grad_bias = c.gradient(1)
    if grad_bias is not None and c.last:
        column_sum(c.delta_y, grad_bias)
