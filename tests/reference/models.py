"""A whole model once more, slow and obvious: the graph op by op on the whole batch, in float64 NumPy.

There are no grains, lanes, panels or buffers here, and no backward pass: derivatives are taken by differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cstool.foundation.random_keys import key_of
from cstool.model.ir import Graph, Op, OpKind, texts_of
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.random import Dropout
from tests.reference import kernels, mixture

Array = np.ndarray

STEP = 1e-5
"""of the central differences: the series cut off leaves about 1e-10 of the derivative, rounding 1e-11"""


def loss(
    graph: Graph,
    weights: Mapping[str, Array],
    batch: Mapping[str, Array],
    seed: int,
    step: int | None,
    scales: Sequence[float] = (1.0,),
) -> float:
    """Return the sum of the losses of the unmasked tokens.

    Args:
        weights: by name, float64
        batch: the arrays of a global batch
        seed: of the dropout
        step: of training; None for no dropout, and labels that are not smoothed
        scales: what the terms of each of the model's losses are multiplied by
    """
    values: dict[str, Array] = {}
    masks: dict[str, str] = {}
    losses = [found.name for found in graph.losses]
    for tensor in graph.inputs:
        array = batch[tensor.name].reshape(-1, *tensor.shape[1:])
        values[tensor.name] = array.astype(np.float64) if tensor.dtype == "float32" else array
    for op in graph.ops:
        sequence = graph.tensors[op.inputs[0]].tokens // texts_of(op)
        rate = op.attributes.get("dropout", 0.0)
        dropout = Dropout(rate, key_of(seed, op.name), step, 0, sequence) if rate and step is not None else None
        inputs = [values[name] for name in op.inputs]
        if step is None:
            op = replace(op, attributes={**op.attributes, "label_smoothing": 0.0})
        made = output(op, inputs, [weights[name] for name in op.weights], sequence, dropout)
        values |= zip(op.outputs, made if isinstance(made, tuple) else (made,), strict=True)
        if op.kind is OpKind.SOFTMAX_LOSS:
            masks[op.outputs[0]] = op.inputs[2]
    found = [np.sum(values[name] * (values[masks[name]] if name in masks else 1.0)) for name in losses]
    return float(sum(scale * total for scale, total in zip(scales, found, strict=True)))


def output(
    op: Op, inputs: list[Array], weights: list[Array], sequence: int, dropout: Dropout | None
) -> Array | tuple[Array, ...]:
    """Return what an op makes of its inputs, (T, width), and weights, float64."""
    x, attributes = inputs[0], op.attributes
    match op.kind:
        case OpKind.EMBEDDING:
            return weights[0][x]
        case OpKind.POSITION_EMBEDDING:
            first = attributes.get("offset", 0)
            table = np.roll(weights[0][first : first + sequence], -attributes.get("turn", 0), axis=0)
            return _dropped(x + np.tile(table, (len(x) // sequence, 1)), dropout)
        case OpKind.FIXED_POSITION_EMBEDDING:
            if "grid" in attributes:
                table = kernels.grid_sinusoids(attributes["grid"], x.shape[1], attributes["before"])
            else:
                table = kernels.sinusoids(sequence, x.shape[1])
            return _dropped(x + np.tile(table, (len(x) // sequence, 1)), dropout)
        case OpKind.GATHER:
            positions = inputs[1].reshape(len(x) // sequence, -1)
            return np.concatenate([x[i * sequence : (i + 1) * sequence][own] for i, own in enumerate(positions)])
        case OpKind.PREPEND_TOKEN:
            return np.concatenate([[weights[0], *x[n : n + sequence]] for n in range(0, len(x), sequence)])
        case OpKind.FIRST_TOKEN:
            return x[::sequence]
        case OpKind.MEAN_TOKEN:
            return kernels.mean_token(x, inputs[1], sequence)
        case OpKind.TOKEN_DROPOUT:
            return kernels.token_dropout(*inputs, sequence, attributes["mask_token"], attributes["kept"])
        case OpKind.SCALE:
            return _dropped(x * attributes["factor"], dropout)
        case OpKind.LAYER_NORM:
            return kernels.layer_norm(x, weights[0], weights[1] if weights[1:] else None, attributes["epsilon"])
        case OpKind.RMS_NORM:
            return kernels.rms_norm(x, weights[0], attributes["epsilon"])
        case OpKind.HEAD_NORM:
            return kernels.head_norm(x, weights[0], attributes["epsilon"])
        case OpKind.LINEAR:
            return x @ weights[0].T + sum(weights[1:])
        case OpKind.ROTARY:
            turn = attributes["head_width"], sequence, attributes["frequencies"], attributes["amplitude"]
            return kernels.rotary(x, *turn)
        case OpKind.ATTENTION:
            form = Attention.of(attributes, sequence, len(inputs[1]) * sequence // len(x))
            return kernels.attention(*inputs[:3], form, dropout, inputs[3:], weights)[0]
        case OpKind.ACTIVATION:
            return _dropped(kernels.activation(attributes["function"], x + sum(weights)), dropout)
        case OpKind.GATED_ACTIVATION:
            bias, gate_bias = weights or (0.0, 0.0)
            gated = (x + bias) * kernels.activation(attributes["function"], inputs[1] + gate_bias)
            return _dropped(gated, dropout)
        case OpKind.RESIDUAL:
            return inputs[1] + _dropped(x + sum(weights), dropout)
        case OpKind.ROUTER:
            return mixture.route(x, weights[0], sum(weights[1:]), attributes)
        case OpKind.DISPATCH:
            return mixture.dispatch(x, inputs[1])
        case OpKind.EXPERT_LINEAR:
            experts = attributes["experts"]
            return mixture.expert_linear(x, inputs[1], weights[:experts], weights[experts:])
        case OpKind.COMBINE:
            return mixture.combine(*inputs)
        case OpKind.BALANCE_LOSS:
            return mixture.balance_losses(x, inputs[1:], sequence)
        case OpKind.SOFTMAX_LOSS | OpKind.TOKEN_LOSS:
            bias, bend = weights[1] if weights[1:] else None, (attributes["logits_scale"], attributes["logits_softcap"])
            smoothing = attributes.get("label_smoothing", 0.0)
            return kernels.softmax_losses(x, weights[0], bias, inputs[1], *bend, smoothing)
        case OpKind.MASKED_LOSS:
            return np.where(inputs[1] != 0, x, 0.0)
        case OpKind.PREFERENCE_LOSS:
            policy, counts, *others = (array.reshape(len(inputs[2]), 2, -1) for array in (x, inputs[1], *inputs[3:]))
            kind, beta, penalty = (attributes[name] for name in ("loss_type", "beta", "penalty"))
            found = kernels.preference_losses(kind, policy, counts, *others or [None], beta=beta, penalty=penalty)
            return inputs[2] * [one for one, *_ in found]
        case OpKind.UNPAIRED_LOSS:
            policy, counts, other = (inputs[i].reshape(len(inputs[2]), 2, -1) for i in (0, 1, 4))
            shares = attributes["desirable_weight"], attributes["undesirable_weight"]
            samples, desirable = inputs[2].reshape(-1), inputs[3].reshape(-1)
            return np.array(
                kernels.unpaired_losses(policy, counts, samples, desirable, other, shares, attributes["beta"])
            )
        case OpKind.CONTRASTIVE_LOSS:
            return kernels.contrastive_losses(*inputs, attributes["temperature"], attributes["mutual"])


def _dropped(x: Array, dropout: Dropout | None) -> Array:
    return x * kernels.dropout_mask(dropout, *x.shape)


def slope(
    graph: Graph,
    weights: Mapping[str, Array],
    batch: Mapping[str, Array],
    seed: int,
    step: int | None,
    direction: Mapping[str, Array],
    scales: Sequence[float] = (1.0,),
) -> float:
    """Return the derivative of `loss` when some weights move, each along its part of a direction."""
    ahead, behind = (
        loss(
            graph,
            {**weights, **{name: weights[name] + sign * STEP * part for name, part in direction.items()}},
            *(batch, seed, step, scales),
        )
        for sign in (1, -1)
    )
    return (ahead - behind) / (2 * STEP)
