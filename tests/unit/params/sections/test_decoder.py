"""The model section of decoders: defaults are the vendor's, what cannot be had is refused, keys fit together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.params.sections.decoder import DecoderParams
from cstool.params.sections.decoder_parts import GATED_NONLINEARITIES, NONLINEARITIES
from cstool.params.sections.model import ParallelDecoderParams
from tests.examples import examples

M = "trainer.init.model"
CLASSES = {"gpt2": DecoderParams, "gptj": ParallelDecoderParams}


def gpt(**keys: Any) -> dict[str, Any]:
    return {"init.model": {"name": "gpt2", **keys}}


def gptj(**keys: Any) -> dict[str, Any]:
    return {"init.model": {"name": "gptj", **keys}}


def params(**keys: Any) -> DecoderParams:
    return DecoderParams.model_validate({"name": "gpt2", **keys})


def parallel(**keys: Any) -> ParallelDecoderParams:
    return ParallelDecoderParams.model_validate({"name": "gptj", **keys})


WIDE = {"name": "truncated_normal", "mean": 0.0, "std": 0.02, "a": -0.04, "b": 0.04}
NARROW = {
    "name": "truncated_normal",
    "mean": 0.0,
    "std": pytest.approx(0.02 / 24**0.5, rel=1e-14),
    "a": pytest.approx(-0.04 / 24**0.5, rel=1e-14),
    "b": pytest.approx(0.04 / 24**0.5, rel=1e-14),
}
DEFAULTS = {
    "vocab_size": 50257,
    "max_position_embeddings": 1024,
    "share_embedding_weights": True,
    "embedding_layer_norm": False,
    "num_hidden_layers": 12,
    "norm_type": "layernorm",
    "layer_norm_epsilon": 1e-5,
    "norm_first_sandwich": False,
    "num_heads": 12,
    "hidden_size": 768,
    "attention_type": "scaled_dot_product",
    "attention_module": "aiayn_attention",
    "extra_attention_params": {},
    "sliding_window_every_other_decoder_layer": False,
    "sliding_window_every_other_decoder_layer_pattern": "full_attention_first",
    "rope_theta": 10000.0,
    "pos_scaling_type": "linear",
    "pos_scaling_factor": 1.0,
    "filter_size": 3072,
    "nonlinearity": "gelu",
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
    "residual_dropout_rate": 0.1,
    "embedding_dropout_rate": 0.1,
    "use_projection_bias_in_attention": True,
    "use_ffn_bias_in_attention": True,
    "use_bias_in_output": False,
    "loss_scaling": "num_tokens",
    "loss_weight": 1.0,
    "embeddings_scale": 1.0,
    "scale_qk_dot_by_d": False,
    "scale_qk_dot_by_layer_idx": False,
    "attention_logits_alpha": 1.0,
    "scale_output_logits_by_d": True,
    "initializer_range": 0.02,
    "initializer": WIDE,
    "embedding_initializer": WIDE,
}


def test_a_sequential_decoder_has_the_defaults_of_the_vendor(load):
    assert load(gpt()).model.dump() == {
        "name": "gpt2",
        **DEFAULTS,
        "position_embedding_type": "learned",
        "use_ffn_bias": True,
        "output_layer_initializer": NARROW,
        "ffn_initializer": WIDE,
        "ffn_output_layer_initializer": NARROW,
    }


def test_a_parallel_decoder_has_the_defaults_of_the_vendor(load):
    assert load(gptj()).model.dump() == {
        "name": "gptj",
        **DEFAULTS,
        "position_embedding_type": "rotary",
        "rotary_dim": 16,
        "use_ffn_bias": False,
        "use_untied_layer_norm": False,
        "output_layer_initializer": WIDE,
        "ffn_initializer": WIDE,
        "ffn_output_layer_initializer": WIDE,
    }


def test_residual_and_embedding_dropout_follow_dropout_rate_and_attention_does_not(load):
    model = load(gpt(dropout_rate=0.3)).model
    rates = (model.residual_dropout_rate, model.embedding_dropout_rate, model.attention_dropout_rate)
    assert rates == (0.3, 0.3, 0.1)


def test_an_attention_dropout_of_null_follows_dropout_rate(load):
    assert load(gpt(dropout_rate=0.3, attention_dropout_rate=None)).model.attention_dropout_rate == 0.3


def test_each_dropout_can_be_given_on_its_own(load):
    model = load(gpt(dropout_rate=0.3, residual_dropout_rate=0.2, embedding_dropout_rate=0.0)).model
    assert (model.residual_dropout_rate, model.embedding_dropout_rate) == (0.2, 0.0)


def test_positions_may_be_none_and_a_null_is_written_as_one(load):
    model = load(gptj(position_embedding_type=None)).model
    assert model.position_embedding_type is None
    assert model.dump()["position_embedding_type"] is None
    assert "rotary_dim" not in model.dump()


@pytest.mark.parametrize(
    ("keys", "rotary_dim"),
    [
        ({}, 16),
        ({"num_heads": 6}, 32),
        ({"hidden_size": 120}, 2),
        ({"attention_inner_dim": 1536}, 16),
        ({"rotary_dim": 64}, 64),
        ({"rotary_dim": 128, "attention_inner_dim": 1536}, 128),
    ],
)
def test_rotary_positions_turn_a_quarter_of_a_head_unless_told(keys, rotary_dim):
    assert params(position_embedding_type="rotary", **keys).rotary_dim == rotary_dim


@pytest.mark.parametrize("written", ["yarn", "YaRN", "YARN"])
def test_yarn_may_be_written_as_its_authors_do(written):
    extra = {"original_max_position_embeddings": 512}
    model = params(position_embedding_type="rotary", pos_scaling_type=written, pos_scaling_extra_args=extra)
    assert model.pos_scaling_type == "yarn"


def test_llama3_scaling_knows_how_long_the_first_samples_were():
    model = params(position_embedding_type="rotary", pos_scaling_type="llama3", pos_scaling_factor=8.0)
    assert model.dump()["pos_scaling_extra_args"] == {
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "extrapolation_factor": 1.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_a": 0.1,
        "mscale_b": 1.0,
        "truncate": True,
    }


def test_moe_of_one_expert_is_none(load):
    for key in ("moe", "moe_params"):
        loaded = load(gpt(**{key: {"num_experts": 1, "router_fp32": False}}))
        assert not loaded.model.moe.is_mixture
        assert loaded.model.dump() == params().dump()
        assert loaded.notes == (f"{M}.{key}.router_fp32: accepted, no effect",)


def test_a_mixture_is_shown_with_its_defaults(load):
    loaded = load(gpt(moe={"num_experts": 4, "top_k": 2}))
    assert loaded.model.dump()["moe"] == {
        "num_experts": 4,
        "top_k": 2,
        "load_balancing_loss_coef": 0.0,
        "router_use_bias": False,
        "router_selection_nonlinearity": "softmax",
        "expert_weighting_nonlinearity": "softmax",
        "expert_weighting_normalization": True,
        "null_expert_bias": 0.0,
    }


PLAIN: list[dict[str, Any]] = [
    {"norm_type": "layernorm", "position_embedding_type": "learned", "attention_type": "scaled_dot_product"},
    {"rotary_dim": None, "alibi_trainable_slopes": False, "moe_params": None, "embeddings_scale": 1.0},
    {"attention_module": "aiayn_attention", "extra_attention_params": {}, "embedding_layer_norm": False},
    {"extra_ffn_params": {}, "cross_attention_layers": [], "label_smoothing": 0, "position_embedding_offset": 0},
    {"rel_distance_mode": "default", "rel_distance_extra_args": None, "num_extra_input_vocab_tokens": 0},
    {"attention_chunk_size": None, "fixed_sparse_attention": None, "use_sink_token": False},
    {"attention_sliding_window_length": None, "attention_sink_tokens": None, "attention_qk_norm_layer": None},
    {"mup_base_hidden_size": None, "mup_base_filter_size": None, "output_logits_scale": None},
    {"moe": {}, "memory_tokens": None, "lr_adjustment_groups": None, "norm_first_sandwich": False},
]


@pytest.mark.parametrize("keys", PLAIN)
def test_a_key_of_the_vendor_that_asks_for_what_is_done_anyway_is_accepted_silently(load, keys):
    loaded = load(gpt(**keys))
    assert (loaded.model, loaded.notes) == (load(gpt()).model, ())


@pytest.mark.parametrize("name", CLASSES)
def test_a_key_of_the_vendor_that_changes_no_number_is_noted(load, name):
    keys = (
        "mixed_precision fp16_type to_float16 dtype attention_kernel attention_softmax_fp32 "
        "boundary_casting compute_eval_metrics fold_rope_consts "
        "use_experimental_flex_api loop_dim start_token stop_sequences"
    ).split()
    loaded = load({"init.model": {"name": name, **dict.fromkeys(keys, 1)}})
    assert loaded.notes == tuple(f"{M}.{key}: accepted, no effect" for key in keys)
    assert loaded.model == load({"init.model": {"name": name}}).model


ROTARY: dict[str, Any] = {"position_embedding_type": "rotary"}
MULTIQUERY: dict[str, Any] = {"attention_module": "multiquery_attention"}


MUP = {"mup_base_hidden_size": 192, "mup_base_filter_size": 768, "num_hidden_layers": 8}


def test_mup_width_factors_are_one_over_how_much_wider_each_layer_is():
    assert params(mup_base_hidden_size=192.0, mup_base_filter_size=384).mup_width_factors == (0.25, 0.125)
    assert params().mup_width_factors == (1.0, 1.0)


WINDOW = {"attention_sliding_window_length": 3}
SINKS = {**WINDOW, "attention_sink_tokens": 2}
EVERY_OTHER = {**WINDOW, "sliding_window_every_other_decoder_layer": True}
SLIDING_FIRST = {**EVERY_OTHER, "sliding_window_every_other_decoder_layer_pattern": "sliding_window_first"}


@pytest.mark.parametrize(
    ("keys", "windows"),
    [({}, [None, None, None]), (WINDOW, [3, 3, 3]), (EVERY_OTHER, [None, 3, None]), (SLIDING_FIRST, [3, None, 3])],
)
def test_each_layer_has_its_window(keys, windows):
    assert [params(**keys).window(layer) for layer in range(3)] == windows


@pytest.mark.parametrize(
    ("keys", "scales"),
    [
        ({}, [0.125, 0.125]),
        ({"attention_inner_dim": 192}, [0.25, 0.25]),
        ({"attention_type": "dot_product"}, [1.0, 1.0]),
        ({"scale_qk_dot_by_d": True}, [1 / 64, 1 / 64]),
        ({"scale_qk_dot_by_d": True, "attention_type": "dot_product"}, [1.0, 1.0]),
        ({"scale_qk_dot_by_layer_idx": True}, [0.125, 0.0625]),
        ({"attention_logits_alpha": 3.0}, [0.375, 0.375]),
        ({"attention_logits_alpha": 3.0, "attention_type": "dot_product"}, [3.0, 3.0]),
        (MUP, [1 / 64, 1 / 64]),
        ({**MUP, "scale_qk_dot_by_d": False}, [0.125, 0.125]),
        ({**MUP, "scale_qk_dot_by_layer_idx": True, "attention_logits_alpha": 8.0}, [0.125, 0.0625]),
    ],
)
def test_each_layer_has_its_scale_of_scores(keys, scales):
    assert [params(**keys).attention_scale(layer) for layer in range(2)] == scales


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({}, 1.0),
        ({"output_logits_scale": 0.5}, 0.5),
        ({"output_logits_alpha": 0.5}, 1.0),
        (MUP, 0.25),
        ({**MUP, "scale_output_logits_by_d": False}, 0.5),
        ({**MUP, "output_logits_alpha": 3.0}, 0.75),
        ({**MUP, "output_logits_alpha": 3.0, "scale_output_logits_by_d": False}, 1.5),
    ],
)
def test_the_logits_have_their_scale(keys, scale):
    assert params(**keys).logits_scale == scale


@pytest.mark.parametrize(
    ("keys", "kv_heads"),
    [
        ({}, 12),
        (MULTIQUERY, 1),
        ({**MULTIQUERY, "extra_attention_params": {"num_kv_groups": 3}}, 3),
        ({**MULTIQUERY, "extra_attention_params": {"num_kv_groups": 12}}, 12),
    ],
)
def test_heads_of_keys_and_values_are_as_many_as_the_groups(keys, kv_heads):
    assert params(**keys).kv_heads == kv_heads


def test_the_width_of_a_head_is_that_of_the_inner_size():
    assert (params().inner_size, params().head_width) == (768, 64)
    model = params(attention_inner_dim=96)
    assert (model.inner_size, model.head_width) == (96, 8)


def test_parallel_parts_share_a_norm_unless_told():
    models = [params(), parallel(), parallel(use_untied_layer_norm=True)]
    assert [(model.is_parallel, model.norms_per_layer) for model in models] == [(False, 2), (True, 1), (True, 2)]


def test_a_name_of_a_function_means_one_of_the_kernels():
    assert {name: function for name, function in NONLINEARITIES.items() if name != function} == {
        "swish": "silu",
        "gelu_fast": "gelu_new",
    }
    assert GATED_NONLINEARITIES == {
        "swiglu": "silu",
        "geglu": "gelu",
        "reglu": "relu",
        "liglu": "linear",
        "geglu_new": "gelu_new",
    }


INITIALIZERS: st.SearchStrategy[Any] = st.one_of(
    st.just("normal"),
    st.fixed_dictionaries({"name": st.just("normal"), "std": st.floats(0.01, 1)}),
    st.fixed_dictionaries({"name": st.just("truncated_normal"), "std": st.floats(0.01, 1)}),
)
OTHER_INITIALIZERS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["lecun_normal", "lecun_uniform", "xavier_uniform", "zeros"]),
    st.fixed_dictionaries({"name": st.just("kaiming_normal")}, optional={"a": st.floats(-1, 1)}),
)
POSITIONS: list[dict[str, Any]] = [
    {},
    {"position_embedding_type": None},
    {"position_embedding_type": "fixed"},
    {"position_embedding_type": "alibi", "pos_scaling_factor": 2.0},
    {"position_embedding_type": "alibi", "alibi_trainable_slopes": True},
    {"position_embedding_type": "relative", "num_relative_attention_buckets": 8},
    {
        **ROTARY,
        "rotary_dim": 4,
        "pos_scaling_type": "longrope",
        "pos_scaling_extra_args": {"original_max_position_embeddings": 64, "long_factor": [1, 2.5]},
    },
    {**ROTARY, "rotary_dim": 4},
    {**ROTARY, "rotary_dim": 2, "pos_scaling_type": "llama3", "pos_scaling_factor": 8},
    {**ROTARY, "rotary_dim": 8, "pos_scaling_type": "llama3", "pos_scaling_extra_args": {"low_freq_factor": 2.0}},
    {
        **ROTARY,
        "rotary_dim": 4,
        "pos_scaling_type": "YaRN",
        "pos_scaling_extra_args": {"original_max_position_embeddings": 64, "truncate": False},
    },
]
HEADS: list[dict[str, Any]] = [
    {},
    {"attention_inner_dim": 24},
    {**MULTIQUERY, "attention_inner_dim": 96},
    {**MULTIQUERY, "extra_attention_params": {"num_kv_groups": 3}},
]
MUPS: list[dict[str, Any]] = [
    {},
    {"output_logits_scale": 0.5},
    {"mup_base_hidden_size": 12, "mup_base_filter_size": 24.0},
    {"mup_base_hidden_size": 12, "mup_base_filter_size": 24, "scale_qk_dot_by_d": False, "output_logits_alpha": 2},
]
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "dropout_rate": st.sampled_from([0, 0.2]),
    "attention_dropout_rate": st.sampled_from([0.0, 0.3, None]),
    "residual_dropout_rate": st.just(0.4),
    "nonlinearity": st.sampled_from([*NONLINEARITIES, *GATED_NONLINEARITIES]),
    "attention_logit_softcapping": st.integers(1, 50),
    "final_logit_softcapping": st.floats(1, 50),
    "initializer_range": st.floats(0.01, 1),
    "initializer": INITIALIZERS,
    "embedding_initializer": INITIALIZERS,
    "output_layer_initializer": INITIALIZERS,
    "ffn_initializer": INITIALIZERS,
    "ffn_output_layer_initializer": INITIALIZERS,
}


@examples(150, derandomize=True)
@given(
    st.sampled_from(list(CLASSES)),
    st.tuples(
        st.sampled_from(POSITIONS),
        st.sampled_from(HEADS),
        st.sampled_from([{}, WINDOW, SINKS, {**SINKS, "apply_attention_sinks": True}, SLIDING_FIRST]),
        st.sampled_from(MUPS),
        st.fixed_dictionaries({}, optional=OTHERS),
    ),
    st.none() | OTHER_INITIALIZERS,
)
def test_what_is_dumped_is_read_as_the_same_model(name, parts, other):
    keys = {"name": name, "hidden_size": 48, "num_heads": 3}
    for part in parts:
        keys |= part
    if "mup_base_hidden_size" not in keys:
        keys |= {"initializer": other} if other is not None else {}
    model = CLASSES[name].model_validate(keys)
    again = CLASSES[name].model_validate(model.dump())
    assert again == model
    assert again.dump() == model.dump()
