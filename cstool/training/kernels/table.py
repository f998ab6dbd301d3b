"""The kernels by op kind, as the machine calls them; `ir` names the arrays to be kept for them."""

from collections.abc import Mapping

from cstool.model.ir import OpKind
from cstool.training.kernels import (
    activation,
    attention,
    contrastive,
    embedding,
    loss,
    mixture,
    norm,
    preference,
    product,
    residual,
    rotary,
)
from cstool.training.kernels.call import Kernel

KERNELS: Mapping[OpKind, Kernel] = {
    OpKind.EMBEDDING: Kernel(embedding.embedding_forward, embedding.embedding_backward, native=True),
    OpKind.POSITION_EMBEDDING: Kernel(embedding.position_forward, embedding.position_backward, native=True),
    OpKind.FIXED_POSITION_EMBEDDING: Kernel(
        embedding.fixed_position_forward, embedding.fixed_position_backward, native=True
    ),
    OpKind.GATHER: Kernel(embedding.gather_forward, embedding.gather_backward, accumulates=True),
    OpKind.PREPEND_TOKEN: Kernel(embedding.prepend_token_forward, embedding.prepend_token_backward, native=True),
    OpKind.FIRST_TOKEN: Kernel(
        embedding.first_token_forward, embedding.first_token_backward, accumulates=True, native=True
    ),
    OpKind.MEAN_TOKEN: Kernel(embedding.mean_token_forward, embedding.mean_token_backward),
    OpKind.SCALE: Kernel(residual.scale_forward, residual.scale_backward, native=True),
    OpKind.TOKEN_DROPOUT: Kernel(residual.token_dropout_forward, residual.token_dropout_backward),
    OpKind.LAYER_NORM: Kernel(norm.layer_norm_forward, norm.layer_norm_backward, accumulates=True, native=True),
    OpKind.RMS_NORM: Kernel(norm.rms_norm_forward, norm.rms_norm_backward, accumulates=True, native=True),
    OpKind.HEAD_NORM: Kernel(norm.head_norm_forward, norm.head_norm_backward, accumulates=True, native=True),
    OpKind.LINEAR: Kernel(product.layer_forward, product.layer_backward, accumulates=True, adds=True, native=True),
    OpKind.ROTARY: Kernel(rotary.rotary_forward, rotary.rotary_backward, native=True),
    OpKind.ATTENTION: Kernel(attention.attention_forward, attention.attention_backward, native=True),
    OpKind.ACTIVATION: Kernel(activation.activation_forward, activation.activation_backward, native=True),
    OpKind.GATED_ACTIVATION: Kernel(
        activation.gated_activation_forward, activation.gated_activation_backward, native=True
    ),
    OpKind.RESIDUAL: Kernel(residual.residual_forward, residual.residual_backward, native=True),
    OpKind.ROUTER: Kernel(mixture.router_forward, mixture.router_backward, accumulates=True, native=True),
    OpKind.DISPATCH: Kernel(mixture.dispatch_forward, mixture.dispatch_backward, accumulates=True, native=True),
    OpKind.EXPERT_LINEAR: Kernel(
        mixture.expert_linear_forward, mixture.expert_linear_backward, accumulates=True, native=True
    ),
    OpKind.COMBINE: Kernel(mixture.combine_forward, mixture.combine_backward, native=True),
    OpKind.BALANCE_LOSS: Kernel(mixture.balance_loss_forward, mixture.balance_loss_backward, native=True),
    OpKind.SOFTMAX_LOSS: Kernel(
        loss.softmax_loss_forward, loss.softmax_loss_backward, accumulates=True, adds=True, native=True
    ),
    OpKind.TOKEN_LOSS: Kernel(loss.token_loss_forward, loss.token_loss_backward, accumulates=True, adds=True),
    OpKind.MASKED_LOSS: Kernel(preference.masked_loss_forward, preference.masked_loss_backward),
    OpKind.PREFERENCE_LOSS: Kernel(preference.preference_loss_forward, preference.preference_loss_backward),
    OpKind.UNPAIRED_LOSS: Kernel(preference.unpaired_loss_forward, preference.unpaired_loss_backward),
    OpKind.CONTRASTIVE_LOSS: Kernel(contrastive.contrastive_loss_forward, contrastive.contrastive_loss_backward),
}
