"""The kernels by op kind, as the machine calls them; `ir` names the arrays to be kept for them."""

from collections.abc import Mapping

from cstool.model.ir import OpKind
from cstool.training.kernels.activation import (
    activation_backward,
    activation_forward,
    gated_activation_backward,
    gated_activation_forward,
)
from cstool.training.kernels.attention import attention_backward, attention_forward
from cstool.training.kernels.call import Call, Kernel
from cstool.training.kernels.contrastive import contrastive_loss_backward, contrastive_loss_forward
from cstool.training.kernels.embedding import (
    embedding_backward,
    embedding_forward,
    first_token_backward,
    first_token_forward,
    fixed_position_backward,
    fixed_position_forward,
    gather_backward,
    gather_forward,
    mean_token_backward,
    mean_token_forward,
    position_backward,
    position_forward,
    prepend_token_backward,
    prepend_token_forward,
)
from cstool.training.kernels.linear import column_sum
from cstool.training.kernels.loss import (
    softmax_loss_backward,
    softmax_loss_forward,
    token_loss_backward,
    token_loss_forward,
)
from cstool.training.kernels.mixture import (
    balance_loss_backward,
    balance_loss_forward,
    combine_backward,
    combine_forward,
    dispatch_backward,
    dispatch_forward,
    expert_linear_backward,
    expert_linear_forward,
    router_backward,
    router_forward,
)
from cstool.training.kernels.norm import (
    head_norm_backward,
    head_norm_forward,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from cstool.training.kernels.preference import preference_loss_backward, preference_loss_forward
from cstool.training.kernels.product import multiply, multiply_back
from cstool.training.kernels.residual import (
    residual_backward,
    residual_forward,
    scale_backward,
    scale_forward,
    token_dropout_backward,
    token_dropout_forward,
)
from cstool.training.kernels.rotary import rotary_backward, rotary_forward


def _linear_forward(c: Call) -> None:
    multiply(c, c.inputs[0], c.of_panel(c.vector(1)), c.outputs[0][:, c.start : c.stop])


def _linear_backward(c: Call) -> None:
    part, accumulate = c.delta_y[:, c.start : c.stop], c.accumulate[0] or not c.first
    multiply_back(c, c.inputs[0], part, c.delta_inputs[0], accumulate=accumulate)
    grad_bias = c.gradient(1)
    if grad_bias is not None and c.last:
        column_sum(c.delta_y, grad_bias)


KERNELS: Mapping[OpKind, Kernel] = {
    OpKind.EMBEDDING: Kernel(embedding_forward, embedding_backward),
    OpKind.POSITION_EMBEDDING: Kernel(position_forward, position_backward),
    OpKind.FIXED_POSITION_EMBEDDING: Kernel(fixed_position_forward, fixed_position_backward),
    OpKind.GATHER: Kernel(gather_forward, gather_backward, accumulates=True),
    OpKind.PREPEND_TOKEN: Kernel(prepend_token_forward, prepend_token_backward),
    OpKind.FIRST_TOKEN: Kernel(first_token_forward, first_token_backward, accumulates=True),
    OpKind.MEAN_TOKEN: Kernel(mean_token_forward, mean_token_backward),
    OpKind.SCALE: Kernel(scale_forward, scale_backward),
    OpKind.TOKEN_DROPOUT: Kernel(token_dropout_forward, token_dropout_backward),
    OpKind.LAYER_NORM: Kernel(layer_norm_forward, layer_norm_backward, accumulates=True),
    OpKind.RMS_NORM: Kernel(rms_norm_forward, rms_norm_backward, accumulates=True),
    OpKind.HEAD_NORM: Kernel(head_norm_forward, head_norm_backward, accumulates=True),
    OpKind.LINEAR: Kernel(_linear_forward, _linear_backward, accumulates=True),
    OpKind.ROTARY: Kernel(rotary_forward, rotary_backward),
    OpKind.ATTENTION: Kernel(attention_forward, attention_backward),
    OpKind.ACTIVATION: Kernel(activation_forward, activation_backward),
    OpKind.GATED_ACTIVATION: Kernel(gated_activation_forward, gated_activation_backward),
    OpKind.RESIDUAL: Kernel(residual_forward, residual_backward),
    OpKind.ROUTER: Kernel(router_forward, router_backward, accumulates=True),
    OpKind.DISPATCH: Kernel(dispatch_forward, dispatch_backward, accumulates=True),
    OpKind.EXPERT_LINEAR: Kernel(expert_linear_forward, expert_linear_backward, accumulates=True),
    OpKind.COMBINE: Kernel(combine_forward, combine_backward),
    OpKind.BALANCE_LOSS: Kernel(balance_loss_forward, balance_loss_backward),
    OpKind.SOFTMAX_LOSS: Kernel(softmax_loss_forward, softmax_loss_backward, accumulates=True),
    OpKind.TOKEN_LOSS: Kernel(token_loss_forward, token_loss_backward, accumulates=True),
    OpKind.PREFERENCE_LOSS: Kernel(preference_loss_forward, preference_loss_backward),
    OpKind.CONTRASTIVE_LOSS: Kernel(contrastive_loss_forward, contrastive_loss_backward),
}
