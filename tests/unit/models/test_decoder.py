"""A decoder as a graph: its weights under the vendor's names, its ops, one block for all layers."""

import math
from typing import Any

import pytest

from cstool.ir import Graph, Initializer, verify
from cstool.models import build_graph
from cstool.params import DecoderParams
from tests.models import decoder

LAYER_0 = "transformer_decoder.layers.0"


def gpt2_small(**keys: Any) -> Graph:
    return build_graph(DecoderParams.model_validate({"name": "gpt2", **keys}), 1024)


def test_gpt2_small_has_124_439_808_parameters():
    words, positions = 50257 * 768, 1024 * 768
    attention = 4 * (768 * 768 + 768)
    feed_forward = (3072 * 768 + 3072) + (768 * 3072 + 768)
    norms = 2 * (768 + 768)
    layer = attention + feed_forward + norms
    last_norm = 768 + 768
    assert layer == 7_087_872
    assert words + positions + 12 * layer + last_norm == 124_439_808
    assert gpt2_small().parameter_count == 124_439_808


def test_an_untied_output_layer_has_as_many_parameters_as_the_words():
    assert gpt2_small(share_embedding_weights=False).parameter_count == 124_439_808 + 50257 * 768


BIASES = {
    "use_projection_bias_in_attention": [f"{LAYER_0}.self_attn.proj_{part}_dense_layer.bias" for part in "qkv"],
    "use_ffn_bias_in_attention": [f"{LAYER_0}.self_attn.proj_output_dense_layer.bias"],
    "use_ffn_bias": [f"{LAYER_0}.ffn.ffn.0.linear_layer.bias", f"{LAYER_0}.ffn.ffn.1.linear_layer.bias"],
}


@pytest.mark.parametrize("key", BIASES)
def test_the_biases_of_a_part_can_be_left_out(key):
    missing = decoder().weights.keys() - decoder(**{key: False}).weights.keys()
    assert missing == set(BIASES[key])


def test_the_output_layer_can_have_a_bias():
    more = decoder(use_bias_in_output=True).weights.keys() - decoder().weights.keys()
    assert more == {"lm_head.bias"}
    assert decoder(use_bias_in_output=True).ops[-1].weights == (
        "embedding_layer.word_embeddings.weight",
        "lm_head.bias",
    )


def test_a_tied_output_layer_uses_the_word_embeddings():
    assert decoder().ops[-1].weights == ("embedding_layer.word_embeddings.weight",)


def test_an_untied_output_layer_has_a_weight_of_its_own():
    graph = decoder(share_embedding_weights=False)
    assert graph.ops[-1].weights == ("lm_head.weight",)
    assert graph.weights["lm_head.weight"].shape == (11, 8)


def test_before_the_layers_are_the_embeddings_and_after_them_the_last_norm_and_the_loss():
    ops = [(op.kind.value, op.name) for op in decoder().ops]
    assert (ops[:2], ops[-2:]) == (
        [
            ("embedding", "embedding_layer.word_embeddings"),
            ("position_embedding", "embedding_layer.position_embeddings"),
        ],
        [("layer_norm", "transformer_decoder.norm"), ("softmax_loss", "lm_head")],
    )


def test_96_layers_are_written_as_one_block():
    graph = decoder(layers=96)
    assert [(len(segment.ops), segment.count) for segment in graph.segments] == [(2, 1), (12, 96), (2, 1)]


def test_96_layers_written_out_are_a_legal_graph():
    graph = decoder(layers=96)
    verify(graph)
    assert len(graph.ops) == 2 + 12 * 96 + 2
    assert graph.ops[-2].inputs == ("residual.96",)


def test_each_rate_of_dropout_goes_to_its_ops():
    graph = decoder(dropout_rate=0.5, attention_dropout_rate=0.1, residual_dropout_rate=0.2, embedding_dropout_rate=0.3)
    assert {op.kind.value: op.attributes["dropout"] for op in graph.ops if "dropout" in op.attributes} == {
        "position_embedding": 0.3,
        "attention": 0.1,
        "residual": 0.2,
        "activation": 0.0,
    }


def test_attention_divides_by_the_root_of_the_width_of_a_head():
    [attention] = [op for op in gpt2_small(num_hidden_layers=1).ops if op.kind == "attention"]
    assert attention.attributes == {
        "heads": 12,
        "kv_heads": 12,
        "scale": 1 / math.sqrt(64),
        "softcap": None,
        "slopes": (),
        "window": None,
        "sinks": 0,
        "causal": True,
        "dropout": 0.1,
    }


@pytest.mark.parametrize(
    ("name", "function"), [("relu", "relu"), ("gelu", "gelu"), ("swish", "silu"), ("gelu_fast", "gelu_new")]
)
def test_the_nonlinearity_is_that_of_the_feed_forward_layer(name, function):
    [activation] = [op for op in decoder(nonlinearity=name).ops if op.kind == "activation"]
    assert activation.attributes == {"function": function, "dropout": 0.0}


@pytest.mark.parametrize(
    ("name", "function"),
    [("swiglu", "silu"), ("geglu", "gelu"), ("geglu_new", "gelu_new"), ("reglu", "relu"), ("liglu", "linear")],
)
def test_a_gated_nonlinearity_has_a_gate_and_its_bias(name, function):
    graph = decoder(nonlinearity=name)
    [gated] = [op for op in graph.ops if op.kind == "gated_activation"]
    ffn = f"{LAYER_0}.ffn.ffn.0"
    assert gated.attributes == {"function": function, "dropout": 0.0}
    assert gated.inputs == (f"{ffn}.linear_layer.y", f"{ffn}.linear_layer_for_glu.y")
    assert gated.weights == (f"{ffn}.linear_layer.bias", f"{ffn}.linear_layer_for_glu.bias")
    assert "activation" not in [op.kind for op in graph.ops]


def test_a_gate_may_have_no_bias():
    [gated] = [op for op in decoder(nonlinearity="swiglu", use_ffn_bias=False).ops if op.kind == "gated_activation"]
    assert gated.weights == ()


def test_each_initializer_goes_to_its_weights():
    begin = {
        key: {"name": "constant", "val": value}
        for key, value in [
            ("initializer", 0.1),
            ("embedding_initializer", 0.2),
            ("output_layer_initializer", 0.3),
            ("ffn_initializer", 0.4),
            ("ffn_output_layer_initializer", 0.5),
        ]
    }
    weights = decoder(share_embedding_weights=False, **begin).weights
    matrices = {name: weight.initializer.mean for name, weight in weights.items() if len(weight.shape) == 2}
    assert matrices == {
        "embedding_layer.word_embeddings.weight": 0.2,
        "embedding_layer.position_embeddings.embed.weight": 0.2,
        f"{LAYER_0}.self_attn.proj_q_dense_layer.weight": 0.1,
        f"{LAYER_0}.self_attn.proj_k_dense_layer.weight": 0.1,
        f"{LAYER_0}.self_attn.proj_v_dense_layer.weight": 0.1,
        f"{LAYER_0}.self_attn.proj_output_dense_layer.weight": 0.3,
        f"{LAYER_0}.ffn.ffn.0.linear_layer.weight": 0.4,
        f"{LAYER_0}.ffn.ffn.1.linear_layer.weight": 0.5,
        "lm_head.weight": 0.0,
    }
    assert weights["lm_head.weight"].initializer == Initializer("normal", 0.0, 0.02)


def test_samples_may_be_shorter_than_the_positions():
    graph = decoder(sequence=5, max_position_embeddings=8)
    assert graph.weights["embedding_layer.position_embeddings.embed.weight"].shape == (8, 8)
    assert graph.tensors["loss"].shape == (5,)


def test_a_decoder_needs_a_sequence_length():
    with pytest.raises(ValueError, match=r"^gpt2 needs a sequence length$"):
        build_graph(DecoderParams.model_validate({"name": "gpt2"}), None)
