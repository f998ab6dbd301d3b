"""config.json and the model section of the params: each says what the other does, or why it cannot."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.convert.hf_config import check_config, config_of, family_of, make_model, model_section
from cstool.errors import CheckpointError
from cstool.params import load_params
from tests.contract.refusal import refusal
from tests.models import FAMILIES, decoder_params
from tests.reference.hf_models import GPT2_CONFIG, LLAMA_CONFIG

PATH = Path("config.json")
PROJECT = Path(__file__).parents[3]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
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
    return {**(GPT2_CONFIG if name.startswith("gpt2") else LLAMA_CONFIG), **CONFIGS[name], **changes}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_made_from_a_config_has_that_config(name):
    asked = config(name)
    section = model_section(PATH, asked)
    model = make_model(PATH, yaml.safe_load(yaml.safe_dump(section)))
    family = family_of("here", model)
    made = config_of(family, model)
    assert {key: made[key] for key in asked} == asked
    check_config(PATH, asked, "p.yaml", model)
    check_config(PATH, made, "p.yaml", model)


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


def test_other_names_of_functions_are_known():
    for name, ours in (("swish", "swiglu"), ("relu", "reglu"), ("linear", "liglu")):
        assert model_section(PATH, config("llama", hidden_act=name))["nonlinearity"] == ours
    section = model_section(PATH, config("gpt2", activation_function="gelu_pytorch_tanh"))
    assert section["nonlinearity"] == "gelu_new"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mixtral"}, "model_type must be one of gpt2, llama, mistral, got mixtral"),
        ({"model_type": None}, "model_type must be one of gpt2, llama, mistral, got null"),
        ({"model_type": ["gpt2"]}, "model_type must be one of gpt2, llama, mistral, got ['gpt2']"),
        ({"hidden_act": "mish"}, "the activation must be one of gelu, relu, silu, swish, relu2, gelu_new, "
         "gelu_fast, gelu_pytorch_tanh, quick_gelu, tanh, linear, got mish"),
        ({"hidden_act": "quick_gelu"}, "hidden_act must be one of gelu, relu, silu, linear, got quick_gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling must be of type default, linear, "
         "llama3, got yarn"),
        ({"rope_scaling": "twice"}, "rope_scaling must be of type default, linear, llama3, got twice"),
        ({"quantization_config": {"bits": 4}}, "must be without quantization_config: quantized weights cannot be read"),
        ({"num_attention_heads": 7}, "hidden_size must be a multiple of num_attention_heads"),
        ({"num_attention_heads": 0}, "hidden_size must be a multiple of num_attention_heads"),
        ({"add_cross_attention": True}, "add_cross_attention must be false, got true"),
        ({"vocab_size": "many"}, "must describe a model: vocab_size input should be a valid integer"),
        ({"vocab_size": 10**9}, "must describe a model: vocab_size input should be less than or equal to 512000"),
        ({"num_key_value_heads": 3}, "must describe a model: extra_attention_params must have num_kv_groups that "
         "divide num_heads (8), not 3"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_had_is_refused(changes, message):
    name = "gpt2" if "add_cross_attention" in changes else "llama"
    with refusal(CheckpointError, f"config.json: {message}"):
        make_model(PATH, model_section(PATH, config(name, **changes)))


def test_a_window_is_for_a_mistral_and_biases_for_a_llama():
    windowed = model_section(PATH, config("mistral, window"))
    message = "here: attention_sliding_window_length must be null for LlamaForCausalLM, got 12"
    with refusal(CheckpointError, message, HINT):
        family_of("here", make_model(PATH, {**windowed, "name": "llama"}))
    message = "here: use_ffn_bias must be false for MistralForCausalLM, got true"
    with refusal(CheckpointError, message, HINT):
        family_of("here", make_model(PATH, {**windowed, "use_ffn_bias": True}))
    model = make_model(PATH, windowed)
    message = "config.json: model_type must be mistral, as p.yaml describes it, got llama"
    with refusal(CheckpointError, message):
        check_config(PATH, config("llama"), "p.yaml", model)


HINT = "Hugging Face's GPT2LMHeadModel, LlamaForCausalLM and MistralForCausalLM can be had"


YARN = {
    "pos_scaling_type": "yarn",
    "pos_scaling_factor": 4.0,
    "pos_scaling_extra_args": {"original_max_position_embeddings": 8},
}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("falcon, one norm", {}, "norms_per_layer must be 2 for LlamaForCausalLM, got 1"),
        ("bloom", {}, "embedding_layer_norm must be false for GPT2LMHeadModel, got true"),
        ("gptj", {}, "norms_per_layer must be 2 for LlamaForCausalLM, got 1"),
        ("gpt-neox", {}, "is_parallel must be false for LlamaForCausalLM, got true"),
        ("gemma2", {}, "norm_first_sandwich must be false for LlamaForCausalLM, got true"),
        ("jais", {}, "scale_qk_dot_by_d must be false for GPT2LMHeadModel, got true"),
        ("starcoder", {}, "attention_module must be aiayn_attention for GPT2LMHeadModel, got multiquery_attention"),
        ("llama", {"rotary_dim": 2}, "rotary_dim must be 4 for LlamaForCausalLM, got 2"),
        ("llama", {"use_projection_bias_in_attention": True},
         "use_ffn_bias_in_attention must be true for LlamaForCausalLM, got false"),
        ("llama", {"nonlinearity": "gelu"},
         "nonlinearity must be one of geglu, reglu, swiglu, liglu for LlamaForCausalLM, got gelu"),
        ("llama", {"use_bias_in_output": True}, "use_bias_in_output must be false for LlamaForCausalLM, got true"),
        ("llama", {"output_logits_scale": 2.0}, "logits_scale must be 1.0 for LlamaForCausalLM, got 2.0"),
        ("llama", YARN, "pos_scaling_type must be linear or llama3, got yarn"),
    ],
)  # fmt: skip
def test_models_that_hugging_face_lacks_are_refused_by_what_sets_them_apart(family, changes, message):
    with refusal(CheckpointError, f"p.yaml: {message}", None if changes is YARN else HINT):
        family_of("p.yaml", decoder_params(**{**FAMILIES[family], **changes}))


def test_a_config_may_differ_from_the_params_in_dropout_alone():
    model = load_params(PROJECT / "params" / "gpt2_small.yaml").model
    check_config(PATH, {"model_type": "gpt2", "activation_function": "gelu", "resid_pdrop": 0.3}, "p.yaml", model)
    rule = "must be of the model of p.yaml: n_layer 12, got 24; activation_function gelu, got gelu_new"
    hint = "without --params the model is the one that config.json describes"
    with refusal(CheckpointError, f"config.json: {rule}", hint):
        check_config(PATH, {"model_type": "gpt2", "n_layer": 24}, "p.yaml", model)
    with refusal(CheckpointError, "config.json: model_type must be gpt2, as p.yaml describes it, got llama"):
        check_config(PATH, {"model_type": "llama"}, "p.yaml", model)


def test_the_stock_llama_is_hugging_faces():
    model = load_params(PROJECT / "params" / "llama3_8b.yaml").model
    check_config(
        PATH,
        {
            "model_type": "llama",
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "rope_scaling": LLAMA3,
        },
        "p.yaml",
        model,
    )
