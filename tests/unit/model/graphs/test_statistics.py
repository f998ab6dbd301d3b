"""Counting parameters and floating-point operations of a graph."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.graphs.decoder import decoder_graph
from cstool.model.graphs.statistics import Flops, Statistics, count_statistics, op_flops
from cstool.model.ir import Graph, Op, OpKind, Pairs, visible_pairs, work_of
from cstool.model.params import DecoderParams
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


def visible_by_mask(tokens: int, *, window: Any, sinks: int, chunk: Any = None, columns: Any = None) -> int:
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
            form = {name: op.attributes.get(name) for name in ("window", "sinks", "chunk", "columns")}
            pairs = visible_by_mask(shape[0], **form)
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
    found = gpt2_small()
    parts = {part.name.replace("transformer_decoder.layers.*", "L"): part for part in found.parts}
    assert list(parts) == [
        *("embedding_layer.word_embeddings", "embedding_layer.position_embeddings.embed", "L.norm1"),
        *(f"L.self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output")),
        *("L.norm3", "L.ffn.ffn.0.linear_layer", "L.ffn.ffn.1.linear_layer", "transformer_decoder.norm"),
    ]
    up, norm = parts["L.ffn.ffn.0.linear_layer"], parts["L.norm1"]
    assert (up.count, up.shapes, up.role) == (12, {(3072, 768): 12, (3072,): 12}, "inner")
    assert (up.parameters, norm.count, norm.shapes) == (12 * (3072 * 768 + 3072), 12, {(768,): 24})
    embeddings = (50257 + 1024) * 768
    by_role = [found.parameters(role) for role in ("embedding", "output", "inner")]
    assert (found.parameters(), by_role) == (124_439_808, [embeddings, 0, 124_439_808 - embeddings])
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
    assert found.rule_of_six == 6 * (124_439_808 - (50257 + 1024) * hidden)
    # What the linear layers cost, and little more: biases and norms.
    of_token = found.flops[OpKind.LINEAR].total / found.tokens
    assert of_token < found.rule_of_six < 1.01 * of_token


def test_nobody_needs_the_delta_of_the_pixels():
    found = count_statistics(fc_mnist(50, 30))
    first, second, last = 2 * 784 * 50, 2 * 50 * 30, 2 * 30 * 10
    assert found.flops == {
        OpKind.LINEAR: Flops(first + second, first + 2 * second),
        OpKind.SOFTMAX_LOSS: Flops(last, 2 * last),
    }
    assert (found.tokens, found.rule_of_six) == (1, None)


@given(
    st.integers(1, 40),
    st.none() | st.integers(1, 50),
    st.integers(0, 50),
    st.none() | st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.booleans(),
)
def test_visible_pairs_are_those_of_the_mask(tokens, size, sinks, columns, is_chunk):
    form = {"chunk": size, "window": None} if is_chunk else {"chunk": None, "window": size}
    form |= {"columns": columns, "sinks": sinks if form["window"] else 0}
    assert visible_pairs(tokens, **form) == visible_by_mask(tokens, **form)


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
