"""The kernels by op kind: what the runtime calls, and what it must keep for them.

A `Call` is all that a kernel sees: the arrays of one op and one grain. Where the op has a matrix it is called once
per panel of that matrix, in order, with rows `start` to `stop` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from cstool.ir import OpKind, Panel
from cstool.kernels.activation import activation_backward, activation_forward
from cstool.kernels.attention import Attention, attention_backward, attention_forward
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
from cstool.kernels.payload import Payload, Rows
from cstool.kernels.random import Dropout
from cstool.kernels.residual import residual_backward, residual_forward
from cstool.kernels.rotary import rotary_backward, rotary_forward
from cstool.kernels.scale import scale_backward, scale_forward

Array = np.ndarray[Any, Any]
Scratch = Callable[[str, tuple[int, ...]], Array]


class LossResult(NamedTuple):
    """What the loss of a grain, or of a whole batch, comes to."""

    total: float
    """sum of the losses of the unmasked tokens [nats]"""
    correct: int
    """unmasked tokens whose label is the likeliest class"""


@dataclass(slots=True)
class Call:
    """One op on one grain. T is the tokens of the grain; every activation is (T, width) or (T,)."""

    attributes: Mapping[str, Any]
    sequence: int
    """tokens per sample"""
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    kept: Mapping[str, Array]
    """what forward leaves for backward beside its outputs"""
    scratch: Scratch = lambda name, shape: np.empty(shape, np.float32)
    """work space by name and shape; a lane gives its own, which it keeps"""
    delta_output: Array | None = None
    """None for the loss, where backward begins"""
    delta_inputs: tuple[Array | None, ...] = ()
    """where the deltas go; None where nobody wants one"""
    accumulate: tuple[bool, ...] = ()
    """whether a delta is added to what another consumer of the same input left there"""
    dropout: Dropout | None = None
    weights: list[Array] = field(default_factory=list)
    gradients: list[Payload | None] = field(default_factory=list)
    """buffers to fill, in the order of the weights; a kernel may put sparse `Rows` in their place"""
    start: int = 0
    stop: int = 0
    first: bool = True
    last: bool = True
    """whether this is the first or last panel of the op, in the direction of travel"""
    scale: float = 1.0
    """what each token's loss is multiplied by"""
    loss: LossResult | None = None

    def hold(self, weights: list[Array], panel: Panel | None, is_first: bool, is_last: bool) -> None:
        """Set the weights of the next kernel call: all vectors, and one panel of the matrix if there is one."""
        self.weights = weights
        self.first, self.last = is_first, is_last
        if panel is not None:
            self.start, self.stop = panel.start, panel.stop

    @property
    def delta_y(self) -> Array:
        """The delta of the output."""
        return _given(self.delta_output)

    def delta_x(self, index: int) -> Array:
        """Return where the delta of an input goes that wants one."""
        return _given(self.delta_inputs[index])

    def grad(self, index: int) -> Array:
        """Return the gradient buffer of a weight that the op always has."""
        return _given(self.gradient(index))

    def vector(self, index: int) -> Array | None:
        """Return weight `index`, or None where the op has none (no bias)."""
        return self.weights[index] if index < len(self.weights) else None

    def gradient(self, index: int) -> Array | None:
        """Return the gradient buffer of weight `index`, or None where the op has none."""
        found = self.gradients[index] if index < len(self.gradients) else None
        return found if isinstance(found, np.ndarray) else None


def _given(array: Array | None) -> Array:
    assert array is not None
    return array


class Delta(Enum):
    """How the delta of an input comes from the delta of the output."""

    COMPUTED = "computed"
    """the kernel writes it into a buffer of its own"""
    IN_PLACE = "in place"
    """the kernel can write it over the delta of the output"""
    SAME = "same"
    """it is the delta of the output"""


@dataclass(frozen=True)
class Kernel:
    """A forward/backward pair and what it needs kept."""

    forward: Callable[[Call], None]
    backward: Callable[[Call], None]
    kept: Callable[[Mapping[str, Any], int], dict[str, tuple[int, ...]]] = lambda attributes, tokens: {}
    """shapes of what forward leaves for backward, from the op's attributes and T"""
    reads_inputs: bool = False
    """whether backward reads the inputs"""
    reads_outputs: bool = False
    delta: Callable[[Mapping[str, Any], int], Delta] = lambda attributes, index: Delta.COMPUTED
    """how the delta of an input comes from that of the output"""
    accumulates: bool = False
    """whether backward can add to a delta; the runtime adds for the others"""
    sparse_gradient: bool = False
    """whether backward makes its own `Rows` for weight 0 instead of filling a buffer"""


def _embedding_forward(c: Call) -> None:
    embedding_forward(c.inputs[0], c.weights[0], c.start, c.stop, c.outputs[0])


def _embedding_backward(c: Call) -> None:
    c.gradients[0] = Rows(*embedding_backward(c.inputs[0], c.delta_y, c.start, c.stop))


def _position_forward(c: Call) -> None:
    position_forward(c.inputs[0], c.weights[0], c.sequence, c.outputs[0], c.dropout, c.start)


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
        c.inputs[0], c.weights[0], c.vector(1), c.attributes["epsilon"], c.outputs[0], c.kept["mean"], c.kept["rstd"]
    )


def _layer_norm_backward(c: Call) -> None:
    layer_norm_backward(
        c.inputs[0],
        c.weights[0],
        c.kept["mean"],
        c.kept["rstd"],
        c.delta_y,
        c.delta_x(0),
        c.accumulate[0],
        c.grad(0),
        c.gradient(1),
    )


def _rms_norm_forward(c: Call) -> None:
    rms_norm_forward(c.inputs[0], c.weights[0], c.attributes["epsilon"], c.outputs[0], c.kept["rstd"])


def _rms_norm_backward(c: Call) -> None:
    rms_norm_backward(c.inputs[0], c.weights[0], c.kept["rstd"], c.delta_y, c.delta_x(0), c.accumulate[0], c.grad(0))


def _linear_forward(c: Call) -> None:
    bias = c.vector(1)
    rows = slice(c.start, c.stop)
    linear_forward(c.inputs[0], c.weights[0], None if bias is None else bias[rows], c.outputs[0][:, rows])


def _linear_backward(c: Call) -> None:
    part = c.delta_y[:, c.start : c.stop]
    if c.delta_inputs[0] is not None:
        accumulate = c.accumulate[0] or not c.first
        linear_backward_delta(part, c.weights[0], c.delta_inputs[0], accumulate, c.scratch)
    linear_backward_weight(c.inputs[0], part, c.grad(0))
    grad_bias = c.gradient(1)
    if grad_bias is not None and c.last:
        column_sum(c.delta_y, grad_bias)


def _attention_form(c: Call) -> Attention:
    parts = {name: c.attributes[name] for name in Attention._fields if name != "sequence"}
    return Attention(**parts, sequence=c.sequence)


def _attention_forward(c: Call) -> None:
    q, k, v = c.inputs
    attention_forward(q, k, v, _attention_form(c), c.outputs[0], c.kept["logsumexp"], c.dropout, c.scratch)


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
        c.weights[0],
        None if bias is None else bias[c.start : c.stop],
        c.start,
        labels,
        state,
        c.scratch,
        c.attributes["logits_scale"],
        c.attributes["logits_softcap"],
    )
    if c.last:
        c.loss = LossResult(*softmax_loss_end(labels, mask, state, c.outputs[0]))


def _softmax_loss_backward(c: Call) -> None:
    x, labels, mask = c.inputs
    bias, grad_bias = c.vector(1), c.gradient(1)
    rows = slice(c.start, c.stop)
    softmax_loss_backward(
        x,
        c.weights[0],
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
    )


def _residual_delta(attributes: Mapping[str, Any], index: int) -> Delta:
    return Delta.COMPUTED if index == 0 and attributes["dropout"] else Delta.SAME


KERNELS: Mapping[OpKind, Kernel] = {
    OpKind.EMBEDDING: Kernel(_embedding_forward, _embedding_backward, reads_inputs=True, sparse_gradient=True),
    OpKind.POSITION_EMBEDDING: Kernel(
        _position_forward, _position_backward, delta=lambda attributes, index: Delta.IN_PLACE
    ),
    OpKind.FIXED_POSITION_EMBEDDING: Kernel(
        _fixed_position_forward,
        _fixed_position_backward,
        delta=lambda attributes, index: Delta.IN_PLACE if attributes["dropout"] else Delta.SAME,
    ),
    OpKind.SCALE: Kernel(_scale_forward, _scale_backward, delta=lambda attributes, index: Delta.IN_PLACE),
    OpKind.LAYER_NORM: Kernel(
        _layer_norm_forward,
        _layer_norm_backward,
        kept=lambda attributes, tokens: {"mean": (tokens,), "rstd": (tokens,)},
        reads_inputs=True,
        accumulates=True,
    ),
    OpKind.RMS_NORM: Kernel(
        _rms_norm_forward,
        _rms_norm_backward,
        kept=lambda attributes, tokens: {"rstd": (tokens,)},
        reads_inputs=True,
        accumulates=True,
    ),
    OpKind.LINEAR: Kernel(_linear_forward, _linear_backward, reads_inputs=True, accumulates=True),
    OpKind.ROTARY: Kernel(_rotary_forward, _rotary_backward, delta=lambda attributes, index: Delta.IN_PLACE),
    OpKind.ATTENTION: Kernel(
        _attention_forward,
        _attention_backward,
        kept=lambda attributes, tokens: {"logsumexp": (attributes["heads"], tokens)},
        reads_inputs=True,
        reads_outputs=True,
    ),
    OpKind.ACTIVATION: Kernel(
        _activation_forward, _activation_backward, reads_inputs=True, delta=lambda attributes, index: Delta.IN_PLACE
    ),
    OpKind.GATED_ACTIVATION: Kernel(
        _gated_activation_forward,
        _gated_activation_backward,
        reads_inputs=True,
        delta=lambda attributes, index: Delta.IN_PLACE if index == 0 else Delta.COMPUTED,
    ),
    OpKind.RESIDUAL: Kernel(_residual_forward, _residual_backward, delta=_residual_delta),
    OpKind.SOFTMAX_LOSS: Kernel(
        _softmax_loss_forward,
        _softmax_loss_backward,
        kept=lambda attributes, tokens: {"state": (4, tokens)},
        reads_inputs=True,
        accumulates=True,
    ),
}
