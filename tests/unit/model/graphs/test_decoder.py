"""A decoder as a graph: its weights under the vendor's names, its ops, one block for all layers."""

from typing import Any

import pytest

from cstool.model.graphs import build_graph
from cstool.model.ir import Graph, Initializer, verify
from cstool.model.params import DecoderParams
from tests.models import decoder

LAYER_0 = "transformer_decoder.layers.0"
FFN = f"{LAYER_0}.ffn.ffn.0"
WORDS, POSITIONS = "embedding_layer.word_embeddings", "embedding_layer.position_embeddings"


def gpt2_small(**keys: Any) -> Graph:
    return build_graph(DecoderParams.model_validate({"name": "gpt2", **keys}), 1024)


def test_gpt2_small_has_124_439_808_parameters_and_an_untied_output_layer_as_many_as_the_words_more():
    words, positions = 50257 * 768, 1024 * 768
    attention = 4 * (768 * 768 + 768)
    feed_forward = (3072 * 768 + 3072) + (768 * 3072 + 768)
    layer = attention + feed_forward + 2 * (768 + 768)
    assert words + positions + 12 * layer + 768 + 768 == 124_439_808
    assert gpt2_small().parameter_count == 124_439_808
    assert gpt2_small(share_embedding_weights=False).parameter_count == 124_439_808 + words


@pytest.mark.parametrize(
    ("key", "biases"),
    [
        ("use_projection_bias_in_attention", [f"self_attn.proj_{part}_dense_layer" for part in "qkv"]),
        ("use_ffn_bias_in_attention", ["self_attn.proj_output_dense_layer"]),
        ("use_ffn_bias", ["ffn.ffn.0.linear_layer", "ffn.ffn.1.linear_layer"]),
    ],
)
def test_the_biases_of_a_part_can_be_left_out(key, biases):
    missing = decoder().weights.keys() - decoder(**{key: False}).weights.keys()
    assert missing == {f"{LAYER_0}.{name}.bias" for name in biases}


@pytest.mark.parametrize(
    ("keys", "more", "used"),
    [
        ({}, set(), (f"{WORDS}.weight",)),
        ({"use_bias_in_output": True}, {"lm_head.bias"}, (f"{WORDS}.weight", "lm_head.bias")),
        ({"share_embedding_weights": False}, {"lm_head.weight"}, ("lm_head.weight",)),
    ],
)
def test_the_output_layer_uses_the_word_embeddings_or_a_weight_of_its_own_and_may_have_a_bias(keys, more, used):
    graph = decoder(**keys)
    assert (graph.weights.keys() - decoder().weights.keys(), graph.ops[-1].weights) == (more, used)
    assert graph.weights[used[0]].shape == (11, 8)


def test_between_embeddings_and_the_last_norm_and_the_loss_96_layers_are_one_block_and_written_out_a_legal_graph():
    graph = decoder(layers=96)
    ops = [(op.kind.value, op.name) for op in graph.ops]
    assert ops[:2] == [("embedding", WORDS), ("position_embedding", POSITIONS)]
    assert ops[-2:] == [("layer_norm", "transformer_decoder.norm"), ("softmax_loss", "lm_head")]
    assert [(len(segment.ops), segment.count) for segment in graph.segments] == [(2, 1), (12, 96), (2, 1)]
    verify(graph)
    assert (len(graph.ops), graph.ops[-2].inputs) == (2 + 12 * 96 + 2, ("residual.96",))


def test_each_rate_of_dropout_goes_to_its_ops():
    graph = decoder(dropout_rate=0.5, attention_dropout_rate=0.1, residual_dropout_rate=0.2, embedding_dropout_rate=0.3)
    rates = {op.kind.value: op.attributes["dropout"] for op in graph.ops if "dropout" in op.attributes}
    assert rates == {"position_embedding": 0.3, "attention": 0.1, "residual": 0.2, "activation": 0.0}


def test_the_nonlinearity_is_that_of_the_feed_forward_layer():
    for name, function in {"relu": "relu", "gelu": "gelu", "swish": "silu", "gelu_fast": "gelu_new"}.items():
        [activation] = [op for op in decoder(nonlinearity=name).ops if op.kind == "activation"]
        assert activation.attributes == {"function": function, "dropout": 0.0}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "function"),
    [("swiglu", "silu"), ("geglu", "gelu"), ("geglu_new", "gelu_new"), ("reglu", "relu"), ("liglu", "linear")],
)
def test_a_gated_nonlinearity_has_a_gate_and_its_bias(name, function, bias):
    graph = decoder(nonlinearity=name, use_ffn_bias=bias)
    [gated] = [op for op in graph.ops if op.kind == "gated_activation"]
    assert gated.attributes == {"function": function, "dropout": 0.0}
    assert gated.inputs == (f"{FFN}.linear_layer.y", f"{FFN}.linear_layer_for_glu.y")
    assert gated.weights == ((f"{FFN}.linear_layer.bias", f"{FFN}.linear_layer_for_glu.bias") if bias else ())
    assert "activation" not in [op.kind for op in graph.ops]


def test_each_initializer_goes_to_its_weights():
    layers = ("", "embedding_", "output_layer_", "ffn_", "ffn_output_layer_")
    begin = {f"{layer}initializer": {"name": "constant", "val": n / 10} for n, layer in enumerate(layers, 1)}
    weights = decoder(share_embedding_weights=False, **begin).weights
    matrices = {name: weight.initializer.mean for name, weight in weights.items() if len(weight.shape) == 2}
    assert matrices == {
        f"{WORDS}.weight": 0.2,
        f"{POSITIONS}.embed.weight": 0.2,
        **{f"{LAYER_0}.self_attn.proj_{part}_dense_layer.weight": 0.1 for part in "qkv"},
        f"{LAYER_0}.self_attn.proj_output_dense_layer.weight": 0.3,
        f"{LAYER_0}.ffn.ffn.0.linear_layer.weight": 0.4,
        f"{LAYER_0}.ffn.ffn.1.linear_layer.weight": 0.5,
        "lm_head.weight": 0.0,
    }
    assert weights["lm_head.weight"].initializer == Initializer("normal", 0.0, 0.02)


def test_samples_may_be_shorter_than_the_positions_and_have_a_length():
    graph = decoder(sequence=5, max_position_embeddings=8)
    assert (graph.weights[f"{POSITIONS}.embed.weight"].shape, graph.tensors["loss"].shape) == ((8, 8), (5,))
    with pytest.raises(ValueError, match=r"^gpt2 needs a sequence length$"):
        build_graph(DecoderParams.model_validate({"name": "gpt2"}), None)
