"""The kernels by op kind, as the machine calls them; `ir` has what must be kept for them."""

from collections.abc import Mapping

from cstool.ir import OpKind
from cstool.kernels.activation import activation_backward, activation_forward
from cstool.kernels.attention import Attention, attention_backward, attention_forward
from cstool.kernels.call import Call, Kernel, LossResult
from cstool.kernels.embedding import (
    embedding_backward,
    embedding_forward,
    fixed_position_backward,
    fixed_position_forward,
    position_backward,
    position_forward,
)
from cstool.kernels.gated import gated_activation_backward, gated_activation_forward
from cstool.kernels.linear import column_sum, linear_backward_delta, linear_backward_weight, linear_forward
from cstool.kernels.loss import softmax_loss_backward, softmax_loss_begin, softmax_loss_end, softmax_loss_forward
from cstool.kernels.norm import layer_norm_backward, layer_norm_forward, rms_norm_backward, rms_norm_forward
from cstool.kernels.payload import Rows
from cstool.kernels.residual import residual_backward, residual_forward, scale_backward, scale_forward
from cstool.kernels.rotary import rotary_backward, rotary_forward
from cstool.kernels.sparse import SparseMatrix


def _embedding_forward(c: Call) -> None:
    embedding_forward(c.inputs[0], c.weight(0), c.start, c.stop, c.outputs[0])


def _embedding_backward(c: Call) -> None:
    c.gradients[0] = Rows(*embedding_backward(c.inputs[0], c.delta_y, c.start, c.stop))


def _position_forward(c: Call) -> None:
    position_forward(c.inputs[0], c.weight(0), c.sequence, c.outputs[0], c.dropout, c.start)


def _position_backward(c: Call) -> None:
    position_backward(c.delta_y, c.sequence, c.delta_x(0), c.grad(0), c.dropout, c.start)


def _fixed_position_forward(c: Call) -> None:
    fixed_position_forward(c.inputs[0], c.sequence, c.outputs[0], c.dropout)


def _fixed_position_backward(c: Call) -> None:
    fixed_position_backward(c.delta_y, c.delta_x(0), c.dropout)


def _scale_forward(c: Call) -> None:
    scale_forward(c.inputs[0], c.attributes["factor"], c.outputs[0], c.dropout)


def _scale_backward(c: Call) -> None:
    scale_backward(c.delta_y, c.attributes["factor"], c.delta_x(0), c.dropout)


def _layer_norm_forward(c: Call) -> None:
    layer_norm_forward(
        c.inputs[0], c.weight(0), c.vector(1), c.attributes["epsilon"], c.outputs[0], c.kept["mean"], c.kept["rstd"]
    )


def _layer_norm_backward(c: Call) -> None:
    layer_norm_backward(
        c.inputs[0],
        c.weight(0),
        c.kept["mean"],
        c.kept["rstd"],
        c.delta_y,
        c.delta_x(0),
        c.accumulate[0],
        c.grad(0),
        c.gradient(1),
    )


def _rms_norm_forward(c: Call) -> None:
    rms_norm_forward(c.inputs[0], c.weight(0), c.attributes["epsilon"], c.outputs[0], c.kept["rstd"])


def _rms_norm_backward(c: Call) -> None:
    rms_norm_backward(c.inputs[0], c.weight(0), c.kept["rstd"], c.delta_y, c.delta_x(0), c.accumulate[0], c.grad(0))


def _linear_forward(c: Call) -> None:
    bias, weight = c.vector(1), c.weights[0]
    rows = slice(c.start, c.stop)
    part = None if bias is None else bias[rows]
    if isinstance(weight, SparseMatrix):
        weight.forward(c.inputs[0], part, c.outputs[0][:, rows], c.scratch)
    else:
        linear_forward(c.inputs[0], weight, part, c.outputs[0][:, rows], c.gemm)


def _linear_backward(c: Call) -> None:
    part, delta_x, weight = c.delta_y[:, c.start : c.stop], c.delta_inputs[0], c.weights[0]
    accumulate = c.accumulate[0] or not c.first
    if isinstance(weight, SparseMatrix):
        weight.backward(c.inputs[0], part, delta_x, accumulate, c.grad(0), c.scratch)
    else:
        if delta_x is not None:
            linear_backward_delta(part, weight, delta_x, accumulate, c.scratch, c.gemm)
        linear_backward_weight(c.inputs[0], part, c.grad(0), c.gemm)
    grad_bias = c.gradient(1)
    if grad_bias is not None and c.last:
        column_sum(c.delta_y, grad_bias)


def _attention_form(c: Call) -> Attention:
    parts = {name: c.attributes[name] for name in Attention._fields if name != "sequence"}
    return Attention(**parts, sequence=c.sequence)


def _attention_forward(c: Call) -> None:
    q, k, v = c.inputs
    attention_forward(q, k, v, _attention_form(c), c.outputs[0], c.kept["logsumexp"], c.dropout, c.scratch, c.gemm)


def _attention_backward(c: Call) -> None:
    q, k, v = c.inputs
    attention_backward(
        q,
        k,
        v,
        c.outputs[0],
        c.kept["logsumexp"],
        c.delta_y,
        _attention_form(c),
        c.delta_x(0),
        c.delta_x(1),
        c.delta_x(2),
        c.dropout,
        c.scratch,
        c.gemm,
    )


def _rotary_forward(c: Call) -> None:
    a = c.attributes
    rotary_forward(c.inputs[0], a["head_width"], c.sequence, a["frequencies"], a["amplitude"], c.outputs[0])


def _rotary_backward(c: Call) -> None:
    a = c.attributes
    rotary_backward(c.delta_y, a["head_width"], c.sequence, a["frequencies"], a["amplitude"], c.delta_x(0))


def _activation_forward(c: Call) -> None:
    activation_forward(c.attributes["function"], c.inputs[0], c.vector(0), c.outputs[0], c.dropout)


def _activation_backward(c: Call) -> None:
    activation_backward(
        c.attributes["function"],
        c.inputs[0],
        c.vector(0),
        c.delta_y,
        c.delta_x(0),
        c.gradient(0),
        c.dropout,
    )


def _gated_activation_forward(c: Call) -> None:
    x, gate = c.inputs
    gated_activation_forward(c.attributes["function"], x, gate, c.vector(0), c.vector(1), c.outputs[0], c.dropout)


def _gated_activation_backward(c: Call) -> None:
    x, gate = c.inputs
    gated_activation_backward(
        c.attributes["function"],
        x,
        gate,
        c.vector(0),
        c.vector(1),
        c.delta_y,
        c.delta_x(0),
        c.delta_x(1),
        c.gradient(0),
        c.gradient(1),
        c.dropout,
    )


def _residual_forward(c: Call) -> None:
    residual_forward(c.inputs[0], c.inputs[1], c.vector(0), c.outputs[0], c.dropout)


def _residual_backward(c: Call) -> None:
    residual_backward(c.delta_y, c.delta_inputs[0], c.gradient(0), c.dropout)


def _softmax_loss_forward(c: Call) -> None:
    x, labels, mask = c.inputs
    state = c.kept["state"]
    if c.first:
        softmax_loss_begin(state)
    bias = c.vector(1)
    softmax_loss_forward(
        x,
        c.weight(0),
        None if bias is None else bias[c.start : c.stop],
        c.start,
        labels,
        state,
        c.scratch,
        c.attributes["logits_scale"],
        c.attributes["logits_softcap"],
        c.gemm,
    )
    if c.last:
        c.loss = LossResult(*softmax_loss_end(labels, mask, state, c.outputs[0]))


def _softmax_loss_backward(c: Call) -> None:
    x, labels, mask = c.inputs
    bias, grad_bias = c.vector(1), c.gradient(1)
    rows = slice(c.start, c.stop)
    softmax_loss_backward(
        x,
        c.weight(0),
        None if bias is None else bias[rows],
        c.start,
        labels,
        mask,
        c.scale,
        c.kept["state"],
        c.delta_x(0),
        c.accumulate[0] or not c.first,
        c.grad(0),
        None if grad_bias is None else grad_bias[rows],
        c.scratch,
        c.attributes["logits_scale"],
        c.attributes["logits_softcap"],
        c.gemm,
    )


KERNELS: Mapping[OpKind, Kernel] = {
    OpKind.EMBEDDING: Kernel(_embedding_forward, _embedding_backward),
    OpKind.POSITION_EMBEDDING: Kernel(_position_forward, _position_backward),
    OpKind.FIXED_POSITION_EMBEDDING: Kernel(_fixed_position_forward, _fixed_position_backward),
    OpKind.SCALE: Kernel(_scale_forward, _scale_backward),
    OpKind.LAYER_NORM: Kernel(_layer_norm_forward, _layer_norm_backward, accumulates=True),
    OpKind.RMS_NORM: Kernel(_rms_norm_forward, _rms_norm_backward, accumulates=True),
    OpKind.LINEAR: Kernel(_linear_forward, _linear_backward, accumulates=True),
    OpKind.ROTARY: Kernel(_rotary_forward, _rotary_backward),
    OpKind.ATTENTION: Kernel(_attention_forward, _attention_backward),
    OpKind.ACTIVATION: Kernel(_activation_forward, _activation_backward),
    OpKind.GATED_ACTIVATION: Kernel(_gated_activation_forward, _gated_activation_backward),
    OpKind.RESIDUAL: Kernel(_residual_forward, _residual_backward),
    OpKind.SOFTMAX_LOSS: Kernel(_softmax_loss_forward, _softmax_loss_backward, accumulates=True),
}
