"""config.json and the model section of the params: each says what the other does, or why it cannot."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.convert.hf_config import check_config, config_of, family_of, keys_without_effect, make_model, model_section
from cstool.convert.hf_families import HF_FAMILIES, MODEL_TYPES
from cstool.convert.hf_relatives import HELP, RELATIVES
from cstool.foundation.errors import CheckpointError
from cstool.model.params import load_params
from tests.contract.refusal import refusal
from tests.models import FAMILIES, decoder_params
from tests.reference.hf_cases import CASES
from tests.reference.hf_models import GPT2_CONFIG, LLAMA_CONFIG

PATH = Path("config.json")
PROJECT = Path(__file__).parents[3]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3["original_max_position_embeddings"] = 8192
MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2, inner": {"n_inner": 100},
    "gpt2, activation": {"activation_function": "gelu"},
    "gpt2, attention": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "gpt2, untied": {"tie_word_embeddings": False},
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "llama, heads": {"head_dim": 12, "num_key_value_heads": 4},
    "llama, biases": {"attention_bias": True, "mlp_bias": True},
    "llama, gelu": {"hidden_act": "gelu"},
    "llama, linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "mistral": {**MISTRAL, "sliding_window": None},
    "mistral, window": {**MISTRAL, "sliding_window": 12, "head_dim": 12},
    "llama, llama3": {"rope_scaling": LLAMA3, "rope_theta": 500000.0},
}


def config(name: str, **changes: Any) -> dict[str, Any]:
    if name in CASES:
        return {**CASES[name], **changes}
    return {**(GPT2_CONFIG if name.startswith("gpt2") else LLAMA_CONFIG), **CONFIGS[name], **changes}


SAID_OTHERWISE = {"llama_yarn_mscale": {"rope_scaling"}}
"""where what the library was asked for is written in other words"""


@pytest.mark.parametrize("name", [*CONFIGS, *CASES])
def test_a_model_made_from_a_config_has_that_config(name):
    asked = config(name)
    section = model_section(PATH, asked)
    model = make_model(PATH, yaml.safe_load(yaml.safe_dump(section)))
    family = family_of("here", model, asked["model_type"])
    made = config_of(family, model)
    scaling = "rope_scaling"
    told = asked.keys() - SAID_OTHERWISE.get(name, set())
    assert {key: made[key] for key in told - {scaling}} == {key: asked[key] for key in told - {scaling}}
    if asked.get(scaling) and scaling in told:
        assert asked[scaling].items() <= made[scaling].items()
    assert make_model(PATH, model_section(PATH, made)) == model
    check_config(PATH, asked, "p.yaml", model)
    check_config(PATH, made, "p.yaml", model)
    assert keys_without_effect(PATH, {**made, "use_cache": True}) == []
    if name in CASES:  # written as the family that it came from
        assert family_of("here", model).model_type == asked["model_type"]


def test_a_config_that_says_little_is_of_the_librarys_defaults():
    section = model_section(PATH, {"model_type": "gpt2"})
    assert (section["hidden_size"], section["filter_size"], section["nonlinearity"]) == (768, 3072, "gelu_new")
    section = model_section(PATH, {"model_type": "llama"})
    groups = {"num_kv_groups": 32}
    wanted = {"hidden_size": 4096, "rotary_dim": 128, "extra_attention_params": groups, "layer_norm_epsilon": 1e-6}
    assert {key: section[key] for key in wanted} == wanted


@pytest.mark.parametrize("kind", ["rope_type", "type"])
def test_older_and_newer_spellings_of_positions_are_the_same(kind):
    plain = config("llama, llama3")
    scaling = {kind if key == "rope_type" else key: value for key, value in LLAMA3.items()}
    older = config("llama, llama3", rope_scaling=scaling)
    newer = {key: value for key, value in plain.items() if key not in ("rope_theta", "rope_scaling")}
    newer["rope_parameters"] = {"rope_theta": 500000.0, **scaling}
    assert model_section(PATH, plain) == model_section(PATH, older) == model_section(PATH, newer)
    default = config("llama", rope_scaling={kind: "default"})
    assert model_section(PATH, default) == model_section(PATH, config("llama"))


RELEASED: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window_size": 5, "cache_implementation": "hybrid", "hidden_act": "gelu"},
    "gpt2": {
        "n_ctx": 1024,
        "summary_type": "cls_index",
        "task_specific_params": {"text-generation": {"do_sample": True}},
    },
    "llama": {"is_llama_config": True, "pretraining_tp": 1, "max_sequence_length": 2048, "temperature": 0.9},
    "mistral": {"layer_types": ["sliding_attention"] * 2},
    "mixtral": {"output_router_logits": False, "num_experts": 4, "router_jitter_noise": 0.1},
    "phi3": {"full_attn_mod": 1, "interpolate_factor": 1, "auto_map": {"AutoConfig": "x"}, "embd_pdrop": 0.0},
    "starcoder2": {"layer_norm_epsilon": 1e-05, "scale_attn_weights": True, "attention_softmax_in_fp32": True},
}
"""keys that released files have beside the others"""


@pytest.mark.parametrize("name", RELEASED)
def test_keys_of_released_files_are_known(name):
    asked = config(name, **RELEASED[name])
    assert set(keys_without_effect(PATH, asked)) <= {"full_attn_mod", "interpolate_factor"}
    assert make_model(PATH, model_section(PATH, asked)) == make_model(PATH, model_section(PATH, config(name)))


def test_a_phi3_with_longrope_is_the_same_as_newer_releases_save_it():
    older = {**config("phi3_longrope"), "partial_rotary_factor": 0.5, "rope_theta": 500.0}
    older["rope_scaling"] = {
        **LONGROPE,
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 3.0],
        "attention_factor": 1.25,
    }
    entry = {**older["rope_scaling"], "original_max_position_embeddings": 4, "factor": 8.0}
    entry |= {"partial_rotary_factor": 0.5, "rope_theta": 500.0}
    left = ("rope_scaling", "partial_rotary_factor", "rope_theta")
    newer = {**{key: value for key, value in older.items() if key not in left}, "rope_parameters": entry}
    section = model_section(PATH, newer)
    assert section == model_section(PATH, older)
    assert section["pos_scaling_extra_args"]["attention_factor"] == 1.25
    model = make_model(PATH, section)
    made = config_of(family_of("here", model), model)
    assert make_model(PATH, model_section(PATH, made)) == model


def test_other_names_of_functions_are_known():
    for name, ours in (("swish", "swiglu"), ("relu", "reglu"), ("linear", "liglu"), ("gelu_pytorch_tanh", "geglu_new")):
        assert model_section(PATH, config("llama", hidden_act=name))["nonlinearity"] == ours
    section = model_section(PATH, config("gpt2", activation_function="gelu_pytorch_tanh"))
    assert section["nonlinearity"] == "gelu_new"


@pytest.mark.parametrize(
    ("name", "older", "newer"),
    [
        ("gpt2", "n_embd", "hidden_size"),
        ("gptj", "n_head", "num_attention_heads"),
        ("bloom", "n_layer", "num_hidden_layers"),
        ("falcon_7b", "n_head", "num_attention_heads"),
        ("gpt_neox_in_turn", "rotary_emb_base", "rope_theta"),
    ],
)
def test_sizes_are_known_by_their_other_names(name, older, newer):
    asked = config(name)
    sizes = [asked.pop(key) for key in (older, newer) if key in asked]
    assert model_section(PATH, {**asked, older: sizes[0]}) == model_section(PATH, {**asked, newer: sizes[0]})


KNOWN = ", ".join(MODEL_TYPES)
FAMILY = "model_type must be of a family that is converted"
BEFORE = "a token of a decoder here sees those before it alone"
UNREAD = "nothing here reads it: delete it from the file if the model does not depend on it"
OTHER_CLASS = "another class of that model_type has other heads, or attends otherwise"
LONGROPE = CASES["phi3_longrope"]["rope_scaling"]
SCALINGS = "default, linear, llama3, yarn"
GATES = "gelu, relu, silu, swish, gelu_new, gelu_fast, gelu_pytorch_tanh, linear"


def test_the_families_are_these_and_keys_that_change_nothing_are_listed():
    names = "gpt2 llama mistral mixtral qwen2 qwen3 phi3 phi gptj gpt_neox falcon bloom gpt_bigcode starcoder2 gemma2"
    assert " ".join(HF_FAMILIES) == names
    idle = {"adapters": [], "rms_norm_eps": None, "logits_scaling": 1.0, "no_rope_layers": [1, 1], "is_causal": True}
    assert keys_without_effect(PATH, config("gpt2", use_cache=True, n_ctx=1024, **idle)) == sorted(idle)
    kinds = {"rope_parameters": {"full_attention": {"rope_theta": 500.0}, "sliding_attention": None}}
    assert keys_without_effect(PATH, config("llama", layer_types=["full_attention"], **kinds)) == ["layer_types"]
    assert model_section(PATH, config("llama", **kinds))["rope_theta"] == 500.0
    assert {near for near, _ in RELATIVES.values()} <= set(MODEL_TYPES)
    assert not RELATIVES.keys() & set(MODEL_TYPES)


def yarn(**keys: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, **keys}}


@pytest.mark.parametrize(
    ("name", "changes", "message", "hint"),
    [
        ("llama", {"model_type": "deepseek"}, f"{FAMILY}, got deepseek",
         "by its keys the nearest is llama, which reads all of them"),
        ("gpt2", {"model_type": "x", "heads": 3}, f"{FAMILY}, got x",
         "by its keys the nearest is gpt2, which lacks heads"),
        ("llama", {"model_type": "granite"}, f"{FAMILY}, got granite", "the nearest is llama, which lacks "
         "embedding_multiplier, attention_multiplier, residual_multiplier and logits_scaling"),
        ("llama", {"model_type": ["gpt2"], "num_attention_heads": None}, f"{FAMILY}, got a list",
         "by its keys the nearest is llama, which reads all of them"),
        ("llama", {"hidden_act": "mish"}, f"hidden_act must be one of {GATES}, got mish", None),
        ("phi", {"hidden_act": "mish"}, "hidden_act must be one of gelu, relu, silu, swish, relu2, gelu_new, "
         "gelu_fast, gelu_pytorch_tanh, quick_gelu, tanh, linear, got mish", None),
        ("llama", {"hidden_act": None}, "hidden_act must be a word, got null", None),
        ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
         f"rope_scaling must be of type {SCALINGS}, got dynamic",
         "its positions change with the length of a text, here they do not"),
        ("llama", {"rope_scaling": {"type": "longrope", "factor": 4.0}},
         f"rope_scaling must be of type {SCALINGS}, got longrope",
         "of these families a Phi-3 has it"),
        ("llama", {"rope_scaling": "twice"}, "rope_scaling must be null or a mapping, got twice", None),
        ("llama", {"rope_scaling": {"rope_type": "default", "factor": 4.0}},
         "rope_scaling must have no factor beside type default", "rope_type says what it is of"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 4.0}},
         "rope_scaling.type must be as rope_type (linear), got yarn", None),
        ("llama", {"rope_parameters": []}, "rope_parameters must be null or a mapping, got a list", None),
        ("llama", {"rope_parameters": {}}, "rope_parameters must have rope_theta, it has none", None),
        ("llama", {"rope_parameters": {"rope_thetta": 5e5}},
         "rope_parameters must have rope_theta, it has none",
         "is rope_thetta to be rope_theta?"),
        ("llama", {"rope_parameters": {"rope_theta": 5e5, "factors": 2}},
         "rope_parameters must have no factors beside type default", "rope_type says what it is of"),
        ("llama", {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear"}},
         "rope_parameters.factor must be a number greater than 0, got null", None),
        ("llama", {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1e4},
         "rope_parameters.rope_theta must be as rope_theta (10000.0), got 500000.0", None),
        ("llama", {"rope_parameters": {"rope_theta": 5e5}, **yarn()},
         "rope_scaling must say the same as rope_parameters, it does not", "keep the one that the model has"),
        ("llama", {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}},
         "partial_rotary_factor must be 1 for LlamaForCausalLM, got 0.5",
         "it is a key of Phi3ForCausalLM: model_type says which family it is"),
        ("gemma2", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"type": "su"}}},
         "rope_parameters must be the same for all kinds of layers, got others by full_attention, sliding_attention",
         "all layers have the same positions here"),
        ("gpt_neox", {"rope_parameters": {"rope_theta": 500.0}, "rotary_emb_base": 100.0},
         "rope_theta must be as rotary_emb_base (100.0), got 500.0", None),
        ("gpt2", {"rope_theta": 500.0}, "rope_theta must be left out for GPT2LMHeadModel, got 500.0",
         "it is a key of LlamaForCausalLM: model_type says which family it is"),
        ("gpt2", {"hidden_size": 64}, "hidden_size must be as n_embd (48), got 64", None),
        ("llama", {"rope_thetta": 500.0}, "rope_thetta must be left out for LlamaForCausalLM, got 500.0",
         "did you mean rope_theta?"),
        ("llama", {"final_logit_softcapping": 30.0},
         "final_logit_softcapping must be left out for LlamaForCausalLM, got 30.0",
         "it is a key of Gemma2ForCausalLM: model_type says which family it is"),
        ("llama", {"embedding_multiplier": 12}, "embedding_multiplier must be 1 for LlamaForCausalLM, got 12",
         "it is a key of granite, a family that is not converted"),
        ("llama", {"no_rope_layers": [1, 0]}, "no_rope_layers must be left out for LlamaForCausalLM, got a list",
         "it is a key of smollm3, a family that is not converted"),
        ("llama", {"is_causal": False}, "is_causal must be true for LlamaForCausalLM, got false", BEFORE),
        ("gemma2", {"use_bidirectional_attention": True},
         "use_bidirectional_attention must be left out for Gemma2ForCausalLM, got true", BEFORE),
        ("llama", {"heads_of_gold": 3}, "heads_of_gold must be left out for LlamaForCausalLM, got 3", UNREAD),
        ("llama", {"architectures": ["LlamaForTokenClassification"]},
         "architectures must be LlamaForCausalLM or LlamaForSequenceClassification for model_type llama, got "
         "LlamaForTokenClassification", OTHER_CLASS),
        ("gpt2", {"architectures": ["GPT2Model", "GPT2LMHeadModel"]},
         "architectures must be GPT2LMHeadModel or GPT2ForSequenceClassification for model_type gpt2, got a list",
         OTHER_CLASS),
        ("llama", {"rope_scaling": {"rope_type": "linear"}},
         "rope_scaling.factor must be a number greater than 0, got null", None),
        ("llama", yarn(attention_factor="x"), "rope_scaling.attention_factor must be a number from 0, got x", None),
        ("llama", yarn(mscale=-1), "rope_scaling.mscale must be a number from 0, got -1", None),
        ("llama", yarn(factor=1.0, attention_factor=2.0),
         "rope_scaling.attention_factor must be 1 beside a factor of 1, got 2", None),
        ("llama", yarn(beta=2.0),
         "rope_scaling must have no beta beside type yarn", "did you mean beta_slow?"),
        ("gemma2", {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1000, got 1000000000", None),
        ("gpt2", {"n_embd": 10**400}, f"n_embd must be a whole number from 1 to 1000000000, got {10**400}", None),
        ("llama", {"quantization_config": {"bits": 4}},
         "must be without quantization_config: quantized weights cannot be read", None),
        ("llama", {"num_attention_heads": 7},
         "hidden_size must be a multiple of num_attention_heads (7), got 48", None),
        ("llama", {"vocab_size": 10**9},
         "must describe a model: vocab_size input should be less than or equal to 512000", None),
        ("llama", {"num_key_value_heads": 4}, "must describe a model: extra_attention_params must have "
         "num_kv_groups that divide num_heads (6), not 4", None),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number, got nan", None),
        ("llama", {"tie_word_embeddings": None}, "tie_word_embeddings must be true or false, got null", None),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention must be false, got true",
         "a decoder here reads no other text"),
        ("mistral", {"attention_bias": True}, "attention_bias must be false, got true", "a Mistral has none"),
        ("mistral", {"layer_types": ["sliding_attention"], "sliding_window": None},
         "layer_types must be full_attention for all layers, as sliding_window says", "its layers are all alike"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]},
         "layer_types must be full_attention where there is no window", None),
        ("gemma2", {"hidden_act": "relu"},
         "hidden_act must be gelu or as hidden_activation (gelu_pytorch_tanh), got relu", None),
        ("qwen2_window", {"num_hidden_layers": 3, "max_window_layers": 1},
         "layer_types must be the same for all layers, or in turns", None),
        ("qwen2", {"layer_types": ["full_attention", "chunked_attention"]},
         "layer_types must be sliding_attention or full_attention for each of 2 layers", None),
        ("qwen2", {"layer_types": "full_attention"}, "layer_types must be a list, got full_attention", None),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
         "rope_scaling.short_factor must be a list of 4 numbers greater than 0, got 1 of them", None),
        ("phi3", {"rope_scaling": {"type": "su", "short_factor": [1.0] * 4, "long_factor": 2.0}},
         "rope_scaling.long_factor must be a list of 4 numbers greater than 0, got 2.0", None),
        ("phi3_longrope", {"rope_scaling": {**LONGROPE, "attention_factor": 0}},
         "rope_scaling.attention_factor must be greater than 0, got 0", None),
        ("phi3_longrope", {"rope_scaling": {**LONGROPE, "beta_fast": 2.0}},
         "rope_scaling must have no beta_fast beside type longrope", None),
        ("phi3_longrope", {"rope_scaling": {**LONGROPE, "factor": 2.0}},
         "rope_scaling.factor must be 8.0 beside original_max_position_embeddings 4, got 2.0", None),
        ("phi3", {"rope_scaling": {"type": "linear", "factor": 2.0}},
         "rope_scaling must be of type default, longrope, got linear", None),
        ("mixtral", {"num_experts_per_tok": 5},
         "num_experts_per_tok must be at most num_local_experts (4), got 5", None),
        ("mixtral", {"num_local_experts": 1},
         "num_local_experts must be a whole number from 2 to 1000000000, got 1", None),
        ("phi", {"qk_layernorm": True}, "qk_layernorm must be false, got true",
         "norms of queries and keys cannot be had"),
        ("gptj", {"rotary_dim": None}, "rotary_dim must be a whole number from 1 to 1000000000, got null", None),
        ("gpt_neox", {"rotary_pct": 0.0}, "rotary_pct must be greater than 0 and at most 1, got 0", None),
        ("gpt_neox", {"rotary_pct": 0.1},
         "must describe a model: rotary_dim input should be greater than or equal to 1", None),
        ("falcon_40b", {"parallel_attn": False},
         "parallel_attn must be true beside new_decoder_architecture, got false", None),
        ("falcon_40b", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn must be 1 or 2, got 3", None),
        ("falcon_7b", {"num_ln_in_parallel_attn": 2},
         "num_ln_in_parallel_attn must be 1 without new_decoder_architecture, got 2", None),
        ("bloom", {"apply_residual_connection_post_layernorm": True},
         "apply_residual_connection_post_layernorm must be false, got true",
         "the residual stream has no norm here"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be greater than 0, got 0", None),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_had_is_refused(name, changes, message, hint):
    with refusal(CheckpointError, f"config.json: {message}", hint):
        make_model(PATH, model_section(PATH, config(name, **changes)))


def test_biases_of_keys_or_a_window_make_a_llama_another_family():
    for changes, kind in (
        ({}, "llama"),
        ({"attention_sliding_window_length": 5}, "phi3"),
        ({"use_projection_bias_in_attention": True}, "qwen2"),
        ({"rotary_dim": 2}, "phi3"),
    ):
        assert family_of("here", decoder_params(**{**FAMILIES["llama"], **changes})).model_type == kind


def test_a_family_can_be_named_where_several_compute_the_same():
    model = make_model(PATH, model_section(PATH, config("llama")))
    found = [family_of("p.yaml", model, kind).model_type for kind in (None, "llama", "mistral", "phi3")]
    assert found == ["llama", "llama", "mistral", "phi3"]
    message = "p.yaml: use_projection_bias_in_attention must be true for Qwen2ForCausalLM, got false"
    with refusal(CheckpointError, message):
        family_of("p.yaml", model, "qwen2")
    with refusal(CheckpointError, f"--model_type: must be one of {KNOWN}, got gpt5"):
        family_of("p.yaml", model, "gpt5")
    one_layer_after_another = decoder_params(**{**FAMILIES["llama"], "nonlinearity": "gelu", "norm_type": "layernorm"})
    with refusal(CheckpointError, "p.yaml: parallel_attn must be true beside new_decoder_architecture, got false"):
        family_of("p.yaml", one_layer_after_another, "falcon")


YARN = {"pos_scaling_type": "yarn", "pos_scaling_factor": 4.0}
YARN["pos_scaling_extra_args"] = {"original_max_position_embeddings": 8, "extrapolation_factor": 0.5}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bloom", {}, "filter_size must be 32 for BloomForCausalLM, got 16"),
        ("gpt-neox", {}, "use_ffn_bias must be true for GPTNeoXForCausalLM, got false"),
        ("jais", {}, "position_embedding_type must be learned for GPT2LMHeadModel, got alibi"),
        ("gpt2", {"position_embedding_type": "fixed"},
         "position_embedding_type must be learned for GPT2LMHeadModel, got fixed"),
        ("gemma2", {"embeddings_scale": 1.0}, "embeddings_scale must be 4.0 for Gemma2ForCausalLM, got 1.0"),
        ("mistral", {"use_ffn_bias": True}, "use_ffn_bias must be false for MistralForCausalLM, got true"),
        ("mistral", {"attention_sink_tokens": 1, "apply_attention_sinks": True},
         "sinks must be 0 for MistralForCausalLM, got 1"),
        ("llama", {"use_ffn_bias_in_attention": True},
         "use_ffn_bias_in_attention must be false for LlamaForCausalLM, got true"),
        ("llama", {"nonlinearity": "gelu"}, "nonlinearity must be geglu for LlamaForCausalLM, got gelu"),
        ("llama", {"use_bias_in_output": True}, "use_bias_in_output must be false for LlamaForCausalLM, got true"),
        ("llama", {"output_logits_scale": 2.0}, "logits_scale must be 1.0 for LlamaForCausalLM, got 2.0"),
        ("mixtral", {"moe": {"num_experts": 4, "num_shared_experts": 1}},
         "moe.shared must be 0 for MixtralForCausalLM, got 1"),
        ("norms of heads", {"attention_qk_norm_eps": 1e-3},
         "attention_qk_norm_eps must be null for LlamaForCausalLM, got 0.001"),
        ("chunks and columns", {}, "attention_chunk_size must be null for LlamaForCausalLM, got 3"),
        ("longrope", {"pos_scaling_extra_args": {**FAMILIES["longrope"]["pos_scaling_extra_args"], "long_mscale": 2.0}},
         "the factor of turned pairs must be 1.224744871391589 for Phi3ForCausalLM, got 2.0"),
        ("llama", YARN, "pos_scaling_extra_args.extrapolation_factor must be 1.0 for LlamaForCausalLM, got 0.5"),
    ],
)  # fmt: skip
def test_models_that_hugging_face_lacks_are_refused_by_what_sets_them_apart_from_the_nearest(family, changes, message):
    with refusal(CheckpointError, f"p.yaml: {message}", HELP):
        family_of("p.yaml", decoder_params(**{**FAMILIES[family], **changes}))


def test_a_config_may_differ_from_the_params_in_dropout_alone():
    model = load_params(PROJECT / "params" / "gpt2_small.yaml").model
    check_config(PATH, {"model_type": "gpt2", "activation_function": "gelu", "resid_pdrop": 0.3}, "p.yaml", model)
    rule = "must be of the model of p.yaml: num_hidden_layers 12, got 24; nonlinearity gelu, got gelu_new"
    hint = "without --params the model is the one that config.json describes"
    with refusal(CheckpointError, f"config.json: {rule}", hint):
        check_config(PATH, {"model_type": "gpt2", "n_layer": 24}, "p.yaml", model)
    every_other = make_model(PATH, model_section(PATH, config("gemma2")))
    rule = "must be of the model of p.yaml: attention_sliding_window_length 5 and null, got 6 and null"
    with refusal(CheckpointError, f"config.json: {rule}", hint):
        check_config(PATH, config("gemma2", sliding_window=6), "p.yaml", every_other)
    digits = load_params(PROJECT / "params" / "fc_mnist.yaml").model
    with refusal(CheckpointError, "config.json: must be of the model of p.yaml, fc_mnist, got gpt2"):
        check_config(PATH, {"model_type": "gpt2"}, "p.yaml", digits)


def test_the_stock_llama_is_hugging_faces():
    model = load_params(PROJECT / "params" / "llama3_8b.yaml").model
    sizes = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072}
    others = {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": LLAMA3}
    check_config(PATH, sizes | heads | others, "p.yaml", model)
