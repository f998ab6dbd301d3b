"""The graphs of the decoder families: weights, order of the ops, what goes from where to where."""

import itertools
from typing import Any

import pytest

from cstool.model.graphs.decoder import alibi_slopes
from cstool.model.ir import Graph, Initializer, Op
from tests.models import FAMILIES, decoder

LAYER_0 = "transformer_decoder.layers.0"


def family(name: str, **keys: Any) -> Graph:
    return decoder(**{**FAMILIES[name], **keys})


def shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {name.removeprefix(f"{LAYER_0}."): weight.shape for name, weight in graph.weights.items()}


def layer_ops(graph: Graph, number: int = 0) -> list[tuple[str, str]]:
    prefix = f"transformer_decoder.layers.{number}."
    return [(op.kind.value, op.name.removeprefix(prefix)) for op in graph.ops if op.name.startswith(prefix)]


def op_of(graph: Graph, name: str) -> Op:
    [found] = [op for op in graph.ops if op.name == name]
    return found


def attentions(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.kind == "attention"]


WORDS = {"embedding_layer.word_embeddings.weight": (11, 8)}
WIDE_WORDS = {"embedding_layer.word_embeddings.weight": (11, 16)}
POSITIONS = {"embedding_layer.position_embeddings.embed.weight": (8, 8)}
ATTENTION = {f"self_attn.proj_{part}_dense_layer.weight": (8, 8) for part in ("q", "k", "v", "output")}
ATTENTION_BIASES = {f"self_attn.proj_{part}_dense_layer.bias": (8,) for part in ("q", "k", "v", "output")}
FFN = {"ffn.ffn.0.linear_layer.weight": (16, 8), "ffn.ffn.1.linear_layer.weight": (8, 16)}
FFN_BIASES = {"ffn.ffn.0.linear_layer.bias": (16,), "ffn.ffn.1.linear_layer.bias": (8,)}
WIDE_FFN = {f"ffn.ffn.{part}.linear_layer.weight": (16, 16) for part in (0, 1)}
WIDE_GATE = {"ffn.ffn.0.linear_layer_for_glu.weight": (16, 16)}
HEAD = {"lm_head.weight": (11, 8)}
GPT = (ATTENTION, ATTENTION_BIASES, FFN)
LAST = "transformer_decoder.norm"


def norms(*names: str, width: int = 8, bias: bool = True) -> dict[str, tuple[int, ...]]:
    ends = ("weight", "bias") if bias else ("weight",)
    return {f"{name}.{end}": (width,) for name in names for end in ends}


def grouped(kv_width: int, inner: int = 16) -> dict[str, tuple[int, ...]]:
    """Return the matrices of attention in which heads share keys and values, for a residual stream of width 16."""
    rows = {"q": inner, "k": kv_width, "v": kv_width}
    return {
        **{f"self_attn.proj_{part}_dense_layer.weight": (width, 16) for part, width in rows.items()},
        "self_attn.proj_output_dense_layer.weight": (16, inner),
    }


def together(*parts: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for part in parts for name, shape in part.items()}


RMS: dict[str, Any] = {"width": 16, "bias": False}
LLAMA = together(WIDE_WORDS, norms("norm1", "norm3", LAST, **RMS), grouped(8), WIDE_FFN, WIDE_GATE)
LLAMA |= {"lm_head.weight": (11, 16)}
WEIGHTS: dict[str, dict[str, tuple[int, ...]]] = {
    "gpt2": together(WORDS, POSITIONS, norms("norm1", "norm3", LAST), *GPT, FFN_BIASES),
    "llama": LLAMA,
    "mistral": LLAMA,
    "falcon, one norm": together(WIDE_WORDS, norms("norm1", LAST, width=16), grouped(4), WIDE_FFN),
    "falcon, two norms": together(WIDE_WORDS, norms("norm1", "norm3", LAST, width=16), grouped(8), WIDE_FFN),
    "bloom": together(WORDS, norms("embedding_ln_f", "norm1", "norm3", LAST), *GPT, FFN_BIASES),
    "gptj": together(WORDS, norms("norm1", LAST), ATTENTION, FFN, FFN_BIASES, HEAD, {"lm_head.bias": (11,)}),
    "gpt-neox": together(WORDS, norms("norm1", "norm3", LAST), *GPT, HEAD),
    "gemma2": together(
        *(WIDE_WORDS, norms("norm1", "norm1_post", "norm3", "norm3_post", LAST, **RMS)),
        *(grouped(4, inner=8), WIDE_FFN, WIDE_GATE),
    ),
    "jais": together(
        *(WORDS, norms("norm1", "norm3", LAST), *GPT, FFN_BIASES),
        {"ffn.ffn.0.linear_layer_for_glu.weight": (16, 8), "ffn.ffn.0.linear_layer_for_glu.bias": (16,)},
    ),
    "starcoder": together(
        *(WIDE_WORDS, {"embedding_layer.position_embeddings.embed.weight": (8, 16)}),
        *(norms("norm1", "norm3", LAST, width=16), grouped(4), WIDE_FFN),
        {f"ffn.ffn.{part}.linear_layer.bias": (16,) for part in (0, 1)},
        {f"self_attn.proj_{part}_dense_layer.bias": (16,) for part in ("q", "output")},
        {f"self_attn.proj_{part}_dense_layer.bias": (4,) for part in "kv"},
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_weights_have_the_vendors_names_and_shapes(name):
    assert shapes(family(name)) == WEIGHTS[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_all_matrices_decay_and_nothing_else_norms_begin_with_ones_and_biases_with_zeros(name):
    for key, weight in family(name).weights.items():
        # A table of biases by distance counts as biases, as at the vendor.
        assert weight.decays == (len(weight.shape) == 2 and "relative_attention_bias" not in key), key
        if len(weight.shape) == 1:
            assert weight.initializer == Initializer("constant", mean=float(key.endswith("weight"))), key


STEPS = {
    "qkv": [("linear", f"self_attn.proj_{part}_dense_layer") for part in "qkv"],
    "turn": [("rotary", f"self_attn.rotary_{part}") for part in "qk"],
    "attend": [("attention", "self_attn"), ("linear", "self_attn.proj_output_dense_layer")],
    "join": [("residual", "self_attn.proj_output_dense_layer.residual")],
    "up": [("linear", "ffn.ffn.0.linear_layer")],
    "gate": [("linear", "ffn.ffn.0.linear_layer_for_glu")],
    "act": [("activation", "ffn.ffn.0.linear_layer.activation")],
    "gated": [("gated_activation", "ffn.ffn.0.linear_layer.activation")],
    "down": [("linear", "ffn.ffn.1.linear_layer")],
    "end": [("residual", "ffn.ffn.1.linear_layer.residual")],
}
"""kind and name of the ops of a step; a norm is a step of its own"""
LLAMA_OPS = "rms_norm: norm1 qkv turn attend join norm3 up gate gated down end"
OPS = {
    "gpt2": "layer_norm: norm1 qkv attend join norm3 up act down end",
    "llama": LLAMA_OPS,
    "mistral": LLAMA_OPS,
    "falcon, one norm": "layer_norm: norm1 qkv turn attend join up act down end",
    "falcon, two norms": "layer_norm: norm1 qkv turn attend join norm3 up act down end",
    "bloom": "layer_norm: norm1 qkv attend join norm3 up act down end",
    "gemma2": "rms_norm: norm1 qkv turn attend norm1_post join norm3 up gate gated down norm3_post end",
    "jais": "layer_norm: norm1 qkv attend join norm3 up gate gated down end",
}


@pytest.mark.parametrize("name", OPS)
def test_the_ops_of_one_layer_run_in_this_order(name):
    norm, _, steps = OPS[name].partition(": ")
    assert layer_ops(family(name)) == [op for step in steps.split() for op in STEPS.get(step, [(norm, step)])]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layer_has_the_same_ops_and_both_parts_are_added_to_the_stream_one_after_the_other(name):
    graph = family(name, layers=5)
    assert all(layer_ops(graph, number) == layer_ops(graph) for number in range(5))
    joins = [op for op in graph.ops if op.kind == "residual"]
    streams = [stream for n in range(5) for stream in (f"residual.{n}", f"transformer_decoder.layers.{n}.residual")]
    assert [op.inputs[1] for op in joins] == streams
    assert [op.outputs for op in joins] == [(stream,) for stream in (*streams[1:], "residual.5")]


@pytest.mark.parametrize(
    ("name", "norm", "first"),
    [("gpt2", "norm3", f"{LAYER_0}.residual"), ("gptj", "norm1", "residual.0"), ("gpt-neox", "norm3", "residual.0")],
)
def test_the_feed_forward_part_reads_the_stream_after_attention_or_beside_it(name, norm, first):
    graph = family(name)
    assert op_of(graph, f"{LAYER_0}.ffn.ffn.0.linear_layer").inputs == (f"{LAYER_0}.{norm}.y",)
    assert op_of(graph, f"{LAYER_0}.{norm}").inputs == (first,)


def test_queries_and_keys_are_turned_and_values_are_not():
    graph = family("llama")
    attention = f"{LAYER_0}.self_attn"
    turned = (f"{attention}.rotary_q.y", f"{attention}.rotary_k.y", f"{attention}.proj_v_dense_layer.y")
    assert op_of(graph, attention).inputs == turned
    turn = {"head_width": 4, "frequencies": (1.0, 0.01), "amplitude": 1.0}
    for part, width in (("q", 16), ("k", 8)):
        op = op_of(graph, f"{attention}.rotary_{part}")
        assert (op.inputs, op.attributes) == ((f"{attention}.proj_{part}_dense_layer.y",), turn)
        assert graph.tensors[op.outputs[0]].shape == (8, width)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("gpt2", {"heads": 2, "kv_heads": 2, "scale": 0.5}),
        ("llama", {"heads": 4, "kv_heads": 2, "scale": 0.5}),
        ("mistral", {"heads": 4, "kv_heads": 2, "scale": 0.5, "window": 3}),
        ("falcon, one norm", {"heads": 4, "kv_heads": 1, "scale": 0.5}),
        ("bloom", {"heads": 2, "kv_heads": 2, "scale": 0.5, "slopes": (2.0**-4, 2.0**-8)}),
        ("gptj", {"heads": 2, "kv_heads": 2, "scale": 0.5}),
        ("gemma2", {"heads": 4, "kv_heads": 2, "scale": 0.5**0.5, "window": 3, "softcap": 2.0}),
        ("jais", {"heads": 2, "kv_heads": 2, "scale": 0.25, "slopes": (2.0**-4, 2.0**-8)}),
        ("starcoder", {"heads": 4, "kv_heads": 1, "scale": 0.5}),
    ],
)
def test_attention_is_that_of_the_family(name, attributes):
    [attention] = attentions(family(name, dropout=0.2))
    plain = {"softcap": None, "slopes": (), "window": None, "sinks": 0, "causal": True, "dropout": 0.2}
    assert attention.attributes == {**plain, **attributes}
    if name == "bloom":
        [attention] = attentions(family(name, hidden_size=12, num_heads=3, pos_scaling_factor=2.0))
        assert attention.attributes["slopes"] == alibi_slopes(3, 2.0)


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [("sliding_window_first", [3, None, 3, None, 3]), ("full_attention_first", [None, 3, None, 3, None])],
)
def test_every_other_layer_has_the_window_and_its_sinks(pattern, windows):
    keys = {"attention_sink_tokens": 2, "apply_attention_sinks": True}
    keys["sliding_window_every_other_decoder_layer_pattern"] = pattern
    for layers in range(1, 6):
        found = [op.attributes for op in attentions(family("gemma2", layers=layers, **keys))]
        assert [attributes["window"] for attributes in found] == windows[:layers]
        assert [attributes["sinks"] for attributes in found] == [2 if window else 0 for window in windows[:layers]]


@pytest.mark.parametrize(
    ("name", "keys", "sinks"),
    [
        ("mistral", {}, 0),
        ("mistral", {"apply_attention_sinks": True}, 2),
        ("gptj", {}, 2),
        ("gptj", {"apply_attention_sinks": False}, 0),
    ],
)
def test_sinks_act_where_they_do_at_the_vendor_or_as_the_key_says(name, keys, sinks):
    window = {"attention_sliding_window_length": 3, "attention_sink_tokens": 2}
    assert [op.attributes["sinks"] for op in attentions(family(name, layers=1, **window, **keys))] == [sinks]


@pytest.mark.parametrize(
    ("keys", "segments"),
    [
        ({"layers": 1}, [(1, 0, 1)]),
        ({"layers": 7, "attention_sliding_window_length": 3}, [(7, 0, 1)]),
        ({"layers": 3, "scale_qk_dot_by_layer_idx": True}, [(1, 0, 1), (1, 1, 1), (1, 2, 1)]),
        (FAMILIES["gemma2"] | {"layers": 1}, [(1, 0, 1)]),
        (FAMILIES["gemma2"] | {"layers": 2}, [(1, 0, 2)]),
        (FAMILIES["gemma2"] | {"layers": 3}, [(1, 0, 2), (1, 2, 1)]),
        (FAMILIES["gemma2"] | {"layers": 9}, [(4, 0, 2), (1, 8, 1)]),
        (FAMILIES["gemma2"] | {"layers": 46}, [(23, 0, 2)]),
    ],
)
def test_layers_that_are_alike_are_written_once_and_those_of_two_kinds_as_pairs(keys, segments):
    graph = decoder(**keys)
    assert [(s.count, s.first, s.stride) for s in graph.segments[1:-1]] == segments
    assert len(attentions(graph)) == keys["layers"]
    assert graph.ops[-2].inputs == (f"residual.{keys['layers']}",)
    if "scale_qk_dot_by_layer_idx" in keys:
        assert [op.attributes["scale"] for op in attentions(graph)] == [0.5, 0.25, 0.5 / 3]


def embedding_steps(**keys: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return kind and attributes of the ops before the first layer, after checking that each reads the last."""
    ops = [op for op in decoder(**keys).ops if op.name.startswith("embedding")]
    assert [op.inputs for op in ops] == [("input_ids",), *(op.outputs for op in ops[:-1])]
    assert ops[-1].outputs == ("residual.0",)
    return [(op.kind.value, dict(op.attributes)) for op in ops]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("positions", ["learned", "fixed", "alibi", None])
def test_embeddings_take_positions_norm_scale_and_dropout_in_this_order(positions, norm, scale, dropout):
    kind = {"learned": "position_embedding", "fixed": "fixed_position_embedding"}.get(str(positions))
    # Dropout comes last: with the scale where there is one, else with the positions if they are what comes last.
    scales = scale != 1.0 or (dropout > 0 and (norm or kind is None))
    expected: list[tuple[str, dict[str, Any]]] = [("embedding", {})]
    if kind:
        expected.append((kind, {"dropout": 0.0 if norm or scales else dropout}))
    if norm:
        expected.append(("layer_norm", {"epsilon": 1e-5}))
    if scales:
        expected.append(("scale", {"factor": scale, "dropout": dropout}))
    keys = {"position_embedding_type": positions, "embedding_layer_norm": norm, "embeddings_scale": scale}
    found = embedding_steps(**keys, dropout=0.5, embedding_dropout_rate=dropout)
    assert found == expected
    assert [step[1]["dropout"] for step in found if step[1].get("dropout")] == [dropout] * (dropout > 0)


@pytest.mark.parametrize("kind", ["layernorm", "biasless-layernorm", "rmsnorm"])
def test_all_norms_are_of_one_kind(kind):
    keys = {"embedding_layer_norm": True, "norm_first_sandwich": True, "layer_norm_epsilon": 0.5}
    graph = decoder(norm_type=kind, **keys)
    found = [op for op in graph.ops if "norm" in op.kind.value]
    names = [f"{LAYER_0}.{name}" for name in ("norm1", "norm1_post", "norm3", "norm3_post")]
    assert [op.name for op in found] == ["embedding_ln_f", *names, "transformer_decoder.norm"]
    assert {op.kind.value for op in found} == {"rms_norm" if kind == "rmsnorm" else "layer_norm"}
    ends = ("weight", "bias") if kind == "layernorm" else ("weight",)
    assert [op.weights for op in found] == [tuple(f"{op.name}.{end}" for end in ends) for op in found]
    assert all(op.attributes == {"epsilon": 0.5} for op in found)


@pytest.mark.parametrize("bias", [False, True])
def test_between_two_norms_dropout_and_bias_come_before_the_second(bias):
    keys = {"use_ffn_bias": bias, "use_ffn_bias_in_attention": bias, "norm_first_sandwich": True}
    graph = decoder(dropout=0.5, residual_dropout_rate=0.2, **keys)
    for name, norm in (("self_attn.proj_output_dense_layer", "norm1_post"), ("ffn.ffn.1.linear_layer", "norm3_post")):
        linear, scale, post, join = (
            op_of(graph, f"{LAYER_0}.{part}") for part in (name, f"{name}.dropout", norm, f"{name}.residual")
        )
        assert linear.weights[1:] == ((f"{LAYER_0}.{name}.bias",) if bias else ())
        assert (scale.inputs, scale.attributes) == (linear.outputs, {"factor": 1.0, "dropout": 0.2})
        assert post.inputs == scale.outputs
        assert (join.inputs[:1], join.attributes, join.weights) == (post.outputs, {"dropout": 0.0}, ())


def test_without_a_second_norm_dropout_and_bias_go_with_the_sum():
    graph = decoder(dropout=0.5, residual_dropout_rate=0.2)
    for name in ("self_attn.proj_output_dense_layer", "ffn.ffn.1.linear_layer"):
        assert op_of(graph, f"{LAYER_0}.{name}").weights == (f"{LAYER_0}.{name}.weight",)
        join = op_of(graph, f"{LAYER_0}.{name}.residual")
        assert (join.attributes, join.weights) == ({"dropout": 0.2}, (f"{LAYER_0}.{name}.bias",))


@pytest.mark.parametrize(
    ("keys", "scale", "softcap"),
    [
        ({}, 1.0, None),
        (FAMILIES["gemma2"], 1.0, 3.0),
        (FAMILIES["jais"], 1.0, None),
        ({**FAMILIES["jais"], "output_logits_alpha": None}, 0.5, None),
        ({"output_logits_scale": 0.25, "final_logit_softcapping": 30}, 0.25, 30.0),
    ],
)
def test_the_logits_are_scaled_then_capped(keys, scale, softcap):
    attributes = decoder(**keys).ops[-1].attributes
    assert attributes == {"logits_scale": scale, "logits_softcap": softcap}


def test_mup_narrows_each_matrix_by_its_input():
    """muP: the stream is twice, the feed-forward layer four times as wide as the base model's; there are two layers."""
    weights = family("jais", layers=2).weights
    matrices = {n.removeprefix(f"{LAYER_0}."): w.initializer.std for n, w in weights.items() if len(w.shape) == 2}
    stream, filters, depth = 0.5**0.5, 0.25**0.5, 4**-0.5
    assert {name: std for name, std in matrices.items() if "layers" not in name} == pytest.approx(
        {
            "embedding_layer.word_embeddings.weight": 0.02,
            **{f"self_attn.proj_{part}_dense_layer.weight": 0.02 * stream for part in "qkv"},
            "self_attn.proj_output_dense_layer.weight": 0.02 * stream * depth,
            **{f"ffn.ffn.0.linear_layer{part}.weight": 0.02 * stream for part in ("", "_for_glu")},
            "ffn.ffn.1.linear_layer.weight": 0.02 * filters * depth,
        },
        rel=1e-14,
    )


def test_a_distribution_by_fans_knows_each_shape():
    """Rows are outputs: a matrix of keys with 4 rows and 16 columns has 16 inputs."""
    graph = family("starcoder", initializer={"name": "lecun_normal"}, ffn_initializer={"name": "xavier_normal"})
    matrices = {name: weight.initializer for name, weight in graph.weights.items()}
    key = matrices[f"{LAYER_0}.self_attn.proj_k_dense_layer.weight"]
    assert key.std == pytest.approx(16**-0.5 / 0.87962566103423978, rel=1e-14)
    assert matrices[f"{LAYER_0}.ffn.ffn.0.linear_layer.weight"].std == pytest.approx((2 / 32) ** 0.5, rel=1e-14)


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_of_a_graph_depends_on_the_length_of_a_sample_but_shapes(name):
    short, long = family(name, sequence=4, max_position_embeddings=8), family(name, sequence=8)
    assert short.ops == long.ops
    assert short.weights == long.weights
    for one, other in itertools.zip_longest(short.tensors.values(), long.tensors.values()):
        assert (one.name, one.shape[0], *one.shape[1:]) == (other.name, 4, *other.shape[1:])
