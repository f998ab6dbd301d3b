"""The model section of decoders: defaults are the vendor's, what cannot be had is refused, keys fit together."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.fields import GATED_NONLINEARITIES, NONLINEARITIES
from cstool.model.params.sections.model import ParallelDecoderParams
from tests.examples import examples
from tests.unit.model.params.conftest import attributes, each_meaning

M = "trainer.init.model"
CLASSES = {"gpt2": DecoderParams, "gptj": ParallelDecoderParams}


def gpt(**keys: Any) -> dict[str, Any]:
    return {"init.model": {"name": "gpt2", **keys}}


def params(**keys: Any) -> DecoderParams:
    return DecoderParams.model_validate({"name": "gpt2", **keys})


WIDE = {"name": "truncated_normal", "mean": 0.0, "std": 0.02, "a": -0.04, "b": 0.04}
NARROW = {key: pytest.approx(WIDE[key] / 24**0.5, rel=1e-14) for key in ("std", "a", "b")}
NARROW |= {"name": "truncated_normal", "mean": 0.0}
DEFAULTS = yaml.safe_load("""
{vocab_size: 50257, max_position_embeddings: 1024, share_embedding_weights: true, embedding_layer_norm: false,
 num_hidden_layers: 12, norm_type: layernorm, layer_norm_epsilon: 1.0e-5, norm_first_sandwich: false, num_heads: 12,
 hidden_size: 768, attention_type: scaled_dot_product, attention_module: aiayn_attention, extra_attention_params: {},
 sliding_window_every_other_decoder_layer: false, rope_theta: 10000.0, pos_scaling_type: linear,
 sliding_window_every_other_decoder_layer_pattern: full_attention_first, pos_scaling_factor: 1.0, filter_size: 3072,
 nonlinearity: gelu, dropout_rate: 0.1, attention_dropout_rate: 0.1, residual_dropout_rate: 0.1,
 embedding_dropout_rate: 0.1, use_projection_bias_in_attention: true, use_ffn_bias_in_attention: true,
 use_bias_in_output: false, loss_scaling: num_tokens, loss_weight: 1.0, embeddings_scale: 1.0, scale_qk_dot_by_d: false,
 scale_qk_dot_by_layer_idx: false, attention_logits_alpha: 1.0, scale_output_logits_by_d: true, initializer_range: 0.02}
""")
DEFAULTS |= {"initializer": WIDE, "embedding_initializer": WIDE, "ffn_initializer": WIDE}
GPTJ = {"position_embedding_type": "rotary", "rotary_dim": 16, "use_ffn_bias": False, "use_untied_layer_norm": False}


@pytest.mark.parametrize(
    ("name", "output_initializer", "others"),
    [("gpt2", NARROW, {"position_embedding_type": "learned", "use_ffn_bias": True}), ("gptj", WIDE, GPTJ)],
)
def test_a_decoder_has_the_defaults_of_the_vendor(load, name, output_initializer, others):
    initializers = dict.fromkeys(("output_layer_initializer", "ffn_output_layer_initializer"), output_initializer)
    found = load({"init.model": {"name": name}}).model.dump()
    assert found == {"name": name, **DEFAULTS, **initializers, **others}


@each_meaning("""\
dropout_rate: 0.3 => {residual_dropout_rate: 0.3, embedding_dropout_rate: 0.3, attention_dropout_rate: 0.1}
{dropout_rate: 0.3, attention_dropout_rate: null} => attention_dropout_rate: 0.3
{dropout_rate: 0.2, residual_dropout_rate: 0.3, attention_dropout_rate: null} => attention_dropout_rate: 0.2
{name: gptj, dropout_rate: 0.2, residual_dropout_rate: 0.3, attention_dropout_rate: null} => attention_dropout_rate: 0.3
{dropout_rate: 0.3, residual_dropout_rate: 0.2, embedding_dropout_rate: 0.0} =>
    {residual_dropout_rate: 0.2, embedding_dropout_rate: 0.0}
position_embedding_type: rotary => rotary_dim: 16
{position_embedding_type: rotary, num_heads: 6} => rotary_dim: 32
{position_embedding_type: rotary, hidden_size: 120} => rotary_dim: 2
{position_embedding_type: rotary, attention_inner_dim: 1536} => rotary_dim: 16
{position_embedding_type: rotary, rotary_dim: 64} => rotary_dim: 64
{position_embedding_type: rotary, rotary_dim: 128, attention_inner_dim: 1536} => rotary_dim: 128
{position_embedding_type: rotary, pos_scaling_type: YaRN, pos_scaling_extra_args: {original_max_position_embeddings: 5}}
    => pos_scaling_type: yarn
{position_embedding_type: rotary, pos_scaling_type: llama3, pos_scaling_factor: 8.0} =>
    pos_scaling_extra_args: {original_max_position_embeddings: 8192, low_freq_factor: 1.0, high_freq_factor: 4.0,
        extrapolation_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, mscale_a: 0.1, mscale_b: 1.0, truncate: true}
{moe: {num_experts: 4, top_k: 2}} =>
    moe: {num_experts: 4, top_k: 2, load_balancing_loss_coef: 0.0, router_use_bias: false, null_expert_bias: 0.0,
        router_selection_nonlinearity: softmax, expert_weighting_nonlinearity: softmax,
        expert_weighting_normalization: true}
{mup_base_hidden_size: 192.0, mup_base_filter_size: 384} => mup_width_factors: [0.25, 0.125]
{} => {mup_width_factors: [1.0, 1.0], kv_heads: 12, inner_size: 768, head_width: 64, logits_scale: 1.0,
    is_parallel: false, norms_per_layer: 2}
attention_inner_dim: 96 => {inner_size: 96, head_width: 8}
attention_module: multiquery_attention => kv_heads: 1
{attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 3}} => kv_heads: 3
{attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 12}} => kv_heads: 12
name: gptj => {is_parallel: true, norms_per_layer: 1}
{name: gptj, use_untied_layer_norm: true} => {is_parallel: true, norms_per_layer: 2}
output_logits_scale: 0.5 => logits_scale: 0.5
output_logits_alpha: 0.5 => logits_scale: 1.0
{mup_base_hidden_size: 192, mup_base_filter_size: 768} => logits_scale: 0.25
{mup_base_hidden_size: 192, mup_base_filter_size: 768, scale_output_logits_by_d: false} => logits_scale: 0.5
{mup_base_hidden_size: 192, mup_base_filter_size: 768, output_logits_alpha: 3.0} => logits_scale: 0.75
{mup_base_hidden_size: 192, mup_base_filter_size: 768, output_logits_alpha: 3.0, scale_output_logits_by_d: false} =>
    logits_scale: 1.5
""")
def test_what_follows_from_keys_of_a_decoder(written, expected):
    name = written.get("name", "gpt2")
    assert attributes(CLASSES[name].model_validate({"name": name, **written}), expected) == expected


def test_positions_may_be_none_and_a_null_is_written_as_one(load):
    dumped = load({"init.model": {"name": "gptj", "position_embedding_type": None}}).model.dump()
    assert (dumped["position_embedding_type"], "rotary_dim" in dumped) == (None, False)


def test_moe_of_one_expert_is_none(load):
    for key in ("moe", "moe_params"):
        loaded = load(gpt(**{key: {"num_experts": 1, "router_fp32": False}}))
        assert not loaded.model.moe.is_mixture
        assert loaded.model.dump() == params().dump()
        assert loaded.notes == (f"{M}.{key}.router_fp32: accepted, no effect",)


PLAIN = yaml.safe_load("""
- {norm_type: layernorm, position_embedding_type: learned, attention_type: scaled_dot_product}
- {rotary_dim: null, alibi_trainable_slopes: false, moe_params: null, embeddings_scale: 1.0}
- {attention_module: aiayn_attention, extra_attention_params: {}, embedding_layer_norm: false}
- {extra_ffn_params: {}, cross_attention_layers: [], label_smoothing: 0, position_embedding_offset: 0}
- {rel_distance_mode: default, rel_distance_extra_args: null, num_extra_input_vocab_tokens: 0}
- {attention_chunk_size: null, fixed_sparse_attention: null, use_sink_token: false}
- {attention_sliding_window_length: null, attention_sink_tokens: null, attention_qk_norm_layer: null}
- {mup_base_hidden_size: null, mup_base_filter_size: null, output_logits_scale: null}
- {moe: {}, memory_tokens: null, lr_adjustment_groups: null, norm_first_sandwich: false}
""")


def test_a_key_of_the_vendor_that_asks_for_what_is_done_anyway_is_accepted_silently(load):
    for keys in PLAIN:
        loaded = load(gpt(**keys))
        assert (loaded.model, loaded.notes) == (load(gpt()).model, ()), keys


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


@each_meaning("""\
{} => [null, null, null]
attention_sliding_window_length: 3 => [3, 3, 3]
{attention_sliding_window_length: 3, sliding_window_every_other_decoder_layer: true} => [null, 3, null]
{attention_sliding_window_length: 3, sliding_window_every_other_decoder_layer: true,
    sliding_window_every_other_decoder_layer_pattern: sliding_window_first} => [3, null, 3]
""")
def test_each_layer_has_its_window(written, expected):
    assert [params(**written).window(layer) for layer in range(3)] == expected


@each_meaning("""\
{} => [0.125, 0.125]
attention_inner_dim: 192 => [0.25, 0.25]
attention_type: dot_product => [1.0, 1.0]
scale_qk_dot_by_d: true => [0.015625, 0.015625]
{scale_qk_dot_by_d: true, attention_type: dot_product} => [1.0, 1.0]
scale_qk_dot_by_layer_idx: true => [0.125, 0.0625]
attention_logits_alpha: 3.0 => [0.375, 0.375]
{attention_logits_alpha: 3.0, attention_type: dot_product} => [3.0, 3.0]
{mup_base_hidden_size: 192, mup_base_filter_size: 768, num_hidden_layers: 8} => [0.015625, 0.015625]
{mup_base_hidden_size: 192, mup_base_filter_size: 768, num_hidden_layers: 8, scale_qk_dot_by_d: false} => [0.125, 0.125]
{mup_base_hidden_size: 192, mup_base_filter_size: 768, num_hidden_layers: 8, scale_qk_dot_by_layer_idx: true,
    attention_logits_alpha: 8.0} => [0.125, 0.0625]
""")
def test_each_layer_has_its_scale_of_scores(written, expected):
    assert [params(**written).attention_scale(layer) for layer in range(2)] == expected


def test_a_name_of_a_function_means_one_of_the_kernels():
    assert {name: function for name, function in NONLINEARITIES.items() if name != function} == {
        "swish": "silu",
        "gelu_fast": "gelu_new",
    }
    gated = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "liglu": "linear", "geglu_new": "gelu_new"}
    assert gated == GATED_NONLINEARITIES


INITIALIZERS: st.SearchStrategy[Any] = st.one_of(
    st.just("normal"),
    st.fixed_dictionaries({"name": st.just("normal"), "std": st.floats(0.01, 1)}),
    st.fixed_dictionaries({"name": st.just("truncated_normal"), "std": st.floats(0.01, 1)}),
)
OTHER_INITIALIZERS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["lecun_normal", "lecun_uniform", "xavier_uniform", "zeros"]),
    st.fixed_dictionaries({"name": st.just("kaiming_normal")}, optional={"a": st.floats(-1, 1)}),
    st.just({"name": "uniform", "a": -0.1, "b": 0.1}),
)
POSITIONS = yaml.safe_load("""
- {}
- {position_embedding_type: null}
- {position_embedding_type: fixed}
- {position_embedding_type: alibi, pos_scaling_factor: 2.0}
- {position_embedding_type: alibi, alibi_trainable_slopes: true}
- {position_embedding_type: relative, num_relative_attention_buckets: 8}
- {position_embedding_type: rotary, rotary_dim: 4, pos_scaling_type: longrope,
   pos_scaling_extra_args: {original_max_position_embeddings: 64, long_factor: [1, 2.5]}}
- {position_embedding_type: rotary, rotary_dim: 4}
- {position_embedding_type: rotary, rotary_dim: 2, pos_scaling_type: llama3, pos_scaling_factor: 8}
- {position_embedding_type: rotary, rotary_dim: 8, pos_scaling_type: llama3,
   pos_scaling_extra_args: {low_freq_factor: 2.0}}
- {position_embedding_type: rotary, rotary_dim: 4, pos_scaling_type: YaRN, pos_scaling_factor: 4.0,
   pos_scaling_extra_args: {original_max_position_embeddings: 64, truncate: false}}
""")
HEADS = yaml.safe_load("""
- {}
- {attention_inner_dim: 24}
- {attention_module: multiquery_attention, attention_inner_dim: 96}
- {attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 3}}
""")
WINDOWS = yaml.safe_load("""
- {}
- {attention_sliding_window_length: 3}
- {attention_sliding_window_length: 3, attention_sink_tokens: 2}
- {attention_sliding_window_length: 3, attention_sink_tokens: 2, apply_attention_sinks: true}
- {attention_sliding_window_length: 3, sliding_window_every_other_decoder_layer: true,
   sliding_window_every_other_decoder_layer_pattern: sliding_window_first}
""")
PATTERNS = yaml.safe_load("""
- {}
- {attention_chunk_size: 4, attention_vertical_column_spacing: 4, attention_vertical_column_width: 1,
   apply_attention_pattern: true, attention_qk_norm_layer: rmsnorm, apply_attention_qk_norm: true}
- {fixed_sparse_attention: {vert_size: 4, num_verts: 2}, apply_attention_pattern: true}
""")
MUPS = yaml.safe_load("""
- {}
- {output_logits_scale: 0.5}
- {mup_base_hidden_size: 12, mup_base_filter_size: 24.0}
- {mup_base_hidden_size: 12, mup_base_filter_size: 24, scale_qk_dot_by_d: false, output_logits_alpha: 2}
""")
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
        st.sampled_from(WINDOWS),
        st.sampled_from(MUPS),
        st.fixed_dictionaries({}, optional=OTHERS),
    ),
    st.sampled_from(PATTERNS),
    st.none() | OTHER_INITIALIZERS,
)
def test_what_is_dumped_is_read_as_the_same_model(name, parts, pattern, other):
    keys = {"name": name, "hidden_size": 48, "num_heads": 3}
    if name == "gpt2" and parts[2] == {}:
        keys |= pattern
    for part in parts:
        keys |= part
    if "mup_base_hidden_size" not in keys:
        keys |= {"initializer": other} if other is not None else {}
    model = CLASSES[name].model_validate(keys)
    again = CLASSES[name].model_validate(model.dump())
    assert again == model
    assert again.dump() == model.dump()
