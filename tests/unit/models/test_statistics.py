"""Counting parameters and floating-point operations of a graph."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import Graph, Op, OpKind, Pairs, visible_pairs, work_of
from cstool.models.decoder import decoder_graph
from cstool.models.statistics import Flops, Statistics, count_statistics, op_flops
from cstool.params import DecoderParams
from tests.models import FAMILIES, decoder, fc_mnist

SMALL_GRAPHS: dict[str, dict[str, Any]] = {
    **FAMILIES,
    "three layers": {"layers": 3},
    "every other layer with a window": {
        "layers": 5,
        "attention_sliding_window_length": 3,
        "attention_sink_tokens": 2,
        "apply_attention_sinks": True,
        "sliding_window_every_other_decoder_layer": True,
    },
    "a scale for each layer": {"layers": 3, "scale_qk_dot_by_layer_idx": True},
    "alibi, biases everywhere": {"position_embedding_type": "alibi", "use_bias_in_output": True, "layers": 2},
    "norms on both sides": {"norm_first_sandwich": True, "embedding_layer_norm": True, "dropout": 0.1},
}


def gpt2_small() -> Statistics:
    return count_statistics(decoder_graph(DecoderParams.model_validate({"name": "gpt2"}), 1024))


def visible_by_mask(
    tokens: int,
    window: int | None,
    sinks: int,
    chunk: int | None = None,
    columns: tuple[int, int] | None = None,
) -> int:
    reach = tokens if window is None else window
    spacing, width = columns or (tokens + 1, 0)
    ends = range(spacing - 1, tokens, spacing)

    def sees(q: int, k: int) -> bool:
        near = q - k < reach or k < sinks if chunk is None else q // chunk == k // chunk
        return near or any(end - width < k <= end for end in ends)

    return sum(sees(q, k) for q in range(tokens) for k in range(q + 1))


def products_written_out(graph: Graph) -> dict[OpKind, int]:
    """Count the products of forward op by op, with nothing but shapes and the mask itself."""
    found: dict[OpKind, int] = {}
    for op in graph.ops:
        shape = graph.tensors[op.outputs[0]].shape
        flops = 0
        if op.kind in (OpKind.LINEAR, OpKind.ROUTER, OpKind.SOFTMAX_LOSS):
            tokens = math.prod(graph.tensors[op.inputs[0]].shape[:-1])
            flops = 2 * tokens * graph.weights[op.weights[0]].size
        elif op.kind is OpKind.EXPERT_LINEAR:
            # Each token meets as many experts as it chooses.
            flops = 2 * math.prod(graph.tensors[op.inputs[1]].shape) * graph.weights[op.weights[0]].size
        elif op.kind is OpKind.ATTENTION:
            pairs = visible_by_mask(
                shape[0],
                op.attributes["window"],
                op.attributes["sinks"],
                op.attributes.get("chunk"),
                op.attributes.get("columns"),
            )
            flops = 2 * (2 * pairs * (shape[1] // op.attributes["heads"])) * op.attributes["heads"]
        if flops:
            found[op.kind] = found.get(op.kind, 0) + flops
    return found


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_parameters_and_products_are_those_of_the_graph_written_out(name):
    graph = decoder(**SMALL_GRAPHS[name])
    found = count_statistics(graph)
    assert found.parameters() == graph.parameter_count
    assert {kind: flops.forward for kind, flops in found.flops.items()} == products_written_out(graph)


def test_the_parts_of_gpt2_small():
    parts = {part.name: part for part in gpt2_small().parts}
    layer = "transformer_decoder.layers.*"
    assert list(parts) == [
        "embedding_layer.word_embeddings",
        "embedding_layer.position_embeddings.embed",
        f"{layer}.norm1",
        *(f"{layer}.self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output")),
        f"{layer}.norm3",
        f"{layer}.ffn.ffn.0.linear_layer",
        f"{layer}.ffn.ffn.1.linear_layer",
        "transformer_decoder.norm",
    ]
    up = parts[f"{layer}.ffn.ffn.0.linear_layer"]
    assert (up.count, up.shapes, up.role) == (12, {(3072, 768): 12, (3072,): 12}, "inner")
    assert up.parameters == 12 * (3072 * 768 + 3072)
    norm = parts[f"{layer}.norm1"]
    assert (norm.count, norm.shapes) == (12, {(768,): 24})


def test_embeddings_are_apart_from_the_rest():
    found = gpt2_small()
    assert found.parameters() == 124_439_808
    assert found.parameters("embedding") == (50257 + 1024) * 768
    assert found.parameters("output") == 0
    assert found.parameters("inner") == 124_439_808 - (50257 + 1024) * 768


def test_an_output_layer_with_weights_of_its_own_is_apart_as_well():
    found = count_statistics(decoder(share_embedding_weights=False, use_bias_in_output=True))
    assert (found.parameters("embedding"), found.parameters("output")) == (11 * 8 + 8 * 8, 11 * 8 + 11)


def test_the_operations_of_gpt2_small():
    tokens, hidden, layers = 1024, 768, 12
    matrices = layers * (4 * hidden * hidden + 2 * hidden * 3072)
    linear = 2 * tokens * matrices
    attention = layers * 2 * (2 * (tokens * (tokens + 1) // 2) * hidden)
    output = 2 * tokens * hidden * 50257
    found = gpt2_small()
    assert found.flops == {
        OpKind.LINEAR: Flops(linear, 2 * linear),
        OpKind.ATTENTION: Flops(attention, 2 * attention),
        OpKind.SOFTMAX_LOSS: Flops(output, 2 * output),
    }
    assert found.tokens == tokens
    assert found.sample_flops == Flops(linear + attention + output, 2 * (linear + attention + output))
    assert found.sample_flops.total == 3 * (linear + attention + output)


def test_six_n_is_what_the_linear_layers_cost_and_little_more():
    found = gpt2_small()
    assert found.rule_of_six == 6 * (124_439_808 - (50257 + 1024) * 768)
    linear = found.flops[OpKind.LINEAR].total / found.tokens
    assert linear < found.rule_of_six < 1.01 * linear  # biases and norms


def test_nobody_needs_the_delta_of_the_pixels():
    found = count_statistics(fc_mnist(50, 30))
    first, second, last = 2 * 784 * 50, 2 * 50 * 30, 2 * 30 * 10
    assert found.flops == {
        OpKind.LINEAR: Flops(first + second, first + 2 * second),
        OpKind.SOFTMAX_LOSS: Flops(last, 2 * last),
    }
    assert (found.tokens, found.rule_of_six) == (1, None)


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.integers(0, 50))
def test_visible_pairs_are_those_of_the_mask(tokens, window, sinks):
    assert visible_pairs(tokens, window, 0 if window is None else sinks) == visible_by_mask(tokens, window, sinks)


@given(
    st.integers(1, 40), st.none() | st.integers(1, 50), st.tuples(st.integers(1, 12), st.integers(1, 12)), st.booleans()
)
def test_visible_pairs_of_chunks_and_columns_are_those_of_the_mask(tokens, size, columns, is_chunk):
    form = {"chunk": size, "window": None} if is_chunk else {"chunk": None, "window": size}
    for given_columns in (None, columns):
        more = {**form, "columns": given_columns, "sinks": 2 if form["window"] else 0}
        assert visible_pairs(tokens, **more) == visible_by_mask(tokens, **more)


def test_attention_to_other_tokens_counts_all_pairs():
    shapes = {"q": (6, 8), "k": (5, 4), "v": (5, 4), "mask": (5,), "y": (6, 8)}
    form = {"heads": 4, "kv_heads": 2, "causal": False}
    op = Op(OpKind.ATTENTION, "cross", ("q", "k", "v", "mask"), ("y",), (), form)
    product = 2 * 6 * 5 * 8
    assert work_of(op, shapes) == (Pairs(tokens=6, key_tokens=5, pairs=30, width=8, kv_width=4, head_width=2),)
    assert op_flops(op, shapes, {"q", "k", "v"}) == Flops(2 * product, 4 * product)
    assert op_flops(op, shapes, {"q"}) == Flops(2 * product, 2 * product)


def test_layers_that_are_alike_are_not_written_out():
    graph = decoder_graph(DecoderParams.model_validate({"name": "gpt2", "num_hidden_layers": 1000}), 1024)
    found = count_statistics(graph)
    assert not {"ops", "tensors", "weights"} & vars(graph).keys()
    layer = 7_087_872
    assert found.parameters() - gpt2_small().parameters() == (1000 - 12) * layer
