"""GPT-2 and GPT-3 style decoders: learned positions, norm before each part, multi-head attention, gelu."""

from __future__ import annotations

import math
from typing import Any

from cstool.ir import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight
from cstool.params import DecoderParams

WORD_EMBEDDINGS = "embedding_layer.word_embeddings.weight"
POSITION_EMBEDDINGS = "embedding_layer.position_embeddings.embed.weight"
LAYER = "transformer_decoder.layers.{n}"

_ONES, _ZEROS = Initializer("constant", mean=1.0), Initializer("constant", mean=0.0)


def decoder_graph(model: DecoderParams, sequence_length: int) -> Graph:
    """Build the graph of a decoder for samples of `sequence_length` tokens (S). Weight names are the vendor's."""
    inputs = tuple(Tensor(name, (sequence_length,), dtype) for name, dtype in _INPUTS)
    block = Segment(*_block(model, sequence_length), count=model.num_hidden_layers)
    segments = (_embedding(model, sequence_length), block, _output(model, sequence_length))
    return Graph(model.name, inputs, segments, "loss")


_INPUTS = (("input_ids", "int32"), ("labels", "int32"), ("mask", "float32"))


def _embedding(model: DecoderParams, sequence_length: int) -> Segment:
    shape = (sequence_length, model.hidden_size)
    initializer = model.embedding_initializer
    return Segment(
        ops=(
            Op(OpKind.EMBEDDING, "embedding_layer.word_embeddings", ("input_ids",), ("words",), (WORD_EMBEDDINGS,)),
            Op(
                OpKind.POSITION_EMBEDDING,
                "embedding_layer.position_embeddings",
                ("words",),
                ("residual.0",),
                (POSITION_EMBEDDINGS,),
                {"dropout": model.embedding_dropout_rate},
            ),
        ),
        tensors=(Tensor("words", shape), Tensor("residual.0", shape)),
        weights=(
            Weight(WORD_EMBEDDINGS, (model.vocab_size, model.hidden_size), initializer),
            Weight(POSITION_EMBEDDINGS, (model.max_position_embeddings, model.hidden_size), initializer),
        ),
    )


def _block(model: DecoderParams, sequence_length: int) -> tuple[tuple[Op, ...], tuple[Tensor, ...], tuple[Weight, ...]]:
    """Return ops, tensors and weights of one layer: from residual.{n} to residual.{n+1}."""
    hidden, filter_size = model.hidden_size, model.filter_size
    attention, ffn = f"{LAYER}.self_attn", f"{LAYER}.ffn.ffn"
    ops: list[Op] = []
    tensors: list[Tensor] = []
    weights: list[Weight] = []

    def tensor(name: str, width: int = hidden) -> str:
        tensors.append(Tensor(name, (sequence_length, width)))
        return name

    def bias(name: str, width: int, wanted: bool) -> tuple[str, ...]:
        if not wanted:
            return ()
        weights.append(Weight(f"{name}.bias", (width,), _ZEROS, decays=False))
        return (f"{name}.bias",)

    def norm(name: str, x: str) -> str:
        weights.append(Weight(f"{name}.weight", (hidden,), _ONES, decays=False))
        names = (f"{name}.weight", *bias(name, hidden, True))
        y = tensor(f"{name}.y")
        ops.append(Op(OpKind.LAYER_NORM, name, (x,), (y,), names, {"epsilon": model.layer_norm_epsilon}))
        return y

    def linear(name: str, x: str, rows: int, columns: int, initializer: Initializer) -> str:
        weights.append(Weight(f"{name}.weight", (rows, columns), initializer))
        y = tensor(f"{name}.y", rows)
        ops.append(Op(OpKind.LINEAR, name, (x,), (y,), (f"{name}.weight",)))
        return y

    def residual(name: str, x: str, before: str, after: str, biases: tuple[str, ...]) -> None:
        attributes = {"dropout": model.residual_dropout_rate}
        ops.append(Op(OpKind.RESIDUAL, f"{name}.residual", (x, before), (tensor(after),), biases, attributes))

    x = norm(f"{LAYER}.norm1", "residual.{n}")
    qkv = []
    for part in "qkv":
        name = f"{attention}.proj_{part}_dense_layer"
        y = linear(name, x, hidden, hidden, model.initializer)
        # Here the bias belongs to the linear op: attention wants query, key and value complete.
        biases = bias(name, hidden, model.use_projection_bias_in_attention)
        ops[-1] = Op(OpKind.LINEAR, name, (x,), (y,), (f"{name}.weight", *biases))
        qkv.append(y)
    context = tensor(f"{attention}.context")
    attributes: dict[str, Any] = {
        "heads": model.num_heads,
        "scale": 1 / math.sqrt(hidden // model.num_heads),
        "dropout": model.attention_dropout_rate,
    }
    ops.append(Op(OpKind.ATTENTION, attention, tuple(qkv), (context,), (), attributes))
    name = f"{attention}.proj_output_dense_layer"
    y = linear(name, context, hidden, hidden, model.output_layer_initializer)
    middle = f"{LAYER}.residual"
    residual(name, y, "residual.{n}", middle, bias(name, hidden, model.use_ffn_bias_in_attention))

    x = norm(f"{LAYER}.norm3", middle)
    up, down = f"{ffn}.0.linear_layer", f"{ffn}.1.linear_layer"
    y = linear(up, x, filter_size, hidden, model.initializer)
    activation = tensor(f"{up}.activation", filter_size)
    biases = bias(up, filter_size, model.use_ffn_bias)
    attributes = {"function": model.nonlinearity, "dropout": 0.0}
    ops.append(Op(OpKind.ACTIVATION, f"{up}.activation", (y,), (activation,), biases, attributes))
    y = linear(down, activation, hidden, filter_size, model.output_layer_initializer)
    residual(down, y, middle, "residual.{n+1}", bias(down, hidden, model.use_ffn_bias))
    return tuple(ops), tuple(tensors), tuple(weights)


def _output(model: DecoderParams, sequence_length: int) -> Segment:
    """The last norm, then the output layer with its loss, by panels of the vocabulary."""
    hidden, vocab = model.hidden_size, model.vocab_size
    norm = "transformer_decoder.norm"
    weights = [
        Weight(f"{norm}.weight", (hidden,), _ONES, decays=False),
        Weight(f"{norm}.bias", (hidden,), _ZEROS, decays=False),
    ]
    head = WORD_EMBEDDINGS
    if not model.share_embedding_weights:
        head = "lm_head.weight"
        weights.append(Weight(head, (vocab, hidden), model.initializer))
    bias: tuple[str, ...] = ()
    if model.use_bias_in_output:
        bias = ("lm_head.bias",)
        weights.append(Weight("lm_head.bias", (vocab,), _ZEROS, decays=False))
    last = f"residual.{model.num_hidden_layers}"
    attributes = {"epsilon": model.layer_norm_epsilon}
    return Segment(
        ops=(
            Op(OpKind.LAYER_NORM, norm, (last,), ("final",), (f"{norm}.weight", f"{norm}.bias"), attributes),
            Op(OpKind.SOFTMAX_LOSS, "lm_head", ("final", "labels", "mask"), ("loss",), (head, *bias)),
        ),
        tensors=(Tensor("final", (sequence_length, hidden)), Tensor("loss", (sequence_length,))),
        weights=tuple(weights),
    )
