"""The fully connected network for 28 x 28 digits: linear and relu (and dropout), then ten classes."""

import math
from typing import Any

from cstool.model.ir import Graph, Initializer, Loss, Op, OpKind, Segment, Tensor, Weight
from cstool.model.params import FcMnistParams

PIXELS, CLASSES = 28 * 28, 10


def fc_mnist_graph(model: FcMnistParams) -> Graph:
    """Build the graph. Weight names are the vendor's: `fc_layers.N`, `last_layer`."""
    ops: list[Op] = []
    tensors: list[Tensor] = []
    weights: list[Weight] = []
    x, width = "x", PIXELS
    for n, hidden in enumerate(model.layer_sizes):
        layer = f"fc_layers.{n}"
        matrix, bias = _linear_weights(layer, hidden, width, model.use_bias)
        weights += [matrix, *bias]
        tensors += [Tensor(f"{layer}.y", (1, hidden)), Tensor(f"{layer}.activation", (1, hidden))]
        ops.append(Op(OpKind.LINEAR, layer, (x,), (f"{layer}.y",), (matrix.name,)))
        x, width = f"{layer}.activation", hidden
        attributes: dict[str, Any] = {"function": model.activation_fn, "dropout": model.dropout}
        bias_name = tuple(b.name for b in bias)
        ops.append(Op(OpKind.ACTIVATION, f"{layer}.activation", (f"{layer}.y",), (x,), bias_name, attributes))
    matrix, bias = _linear_weights("last_layer", CLASSES, width, model.use_bias)
    weights += [matrix, *bias]
    tensors.append(Tensor("loss", (1,)))
    names = (matrix.name, *(b.name for b in bias))
    attributes = {"logits_scale": 1.0, "logits_softcap": None}
    ops.append(Op(OpKind.SOFTMAX_LOSS, "last_layer", (x, "labels", "mask"), ("loss",), names, attributes))
    inputs = (Tensor("x", (1, PIXELS)), Tensor("labels", (1,), "int32"), Tensor("mask", (1,)))
    return Graph("fc_mnist", inputs, (Segment(tuple(ops), tuple(tensors), tuple(weights)),), (Loss("loss"),))


def _linear_weights(name: str, rows: int, columns: int, use_bias: bool) -> tuple[Weight, list[Weight]]:
    """Return the matrix and, where wanted, the bias, both uniform within 1/sqrt(inputs).

    Source: torch.nn.Linear.reset_parameters, which the vendor's fc_mnist leaves as it is.
    """
    bound = 1 / math.sqrt(columns)
    uniform = Initializer("uniform", low=-bound, high=bound)
    bias = [Weight(f"{name}.bias", (rows,), uniform, decays=False)] if use_bias else []
    return Weight(f"{name}.weight", (rows, columns), uniform), bias
