"""`config.json` of Hugging Face's library, from the model section of the params and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cstool.activations import ACTIVATIONS
from cstool.errors import CheckpointError
from cstool.params import GATED_NONLINEARITIES, NONLINEARITIES, DecoderParams, ModelParams

CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
"""model type -> class there"""
FAMILIES = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama"}
"""model type -> the one with the same tensors: a Mistral is a Llama without biases that may have a window"""

HF_ACTIVATIONS = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.hf_names}
"""their names of functions -> those of the kernels"""
SCALINGS = ("default", "linear", "llama3")

_LLAMA: Mapping[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "initializer_range": 0.02,
    },
    "llama": _LLAMA,
    "mistral": {
        **{key: value for key, value in _LLAMA.items() if key not in ("attention_bias", "mlp_bias")},
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}
"""what counts in a config of theirs, and what it is where the file does not say it"""
NOT_COMPARED = (
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "initializer_range"),
    "max_position_embeddings",
)
"""what a checkpoint is indifferent to; only a Llama calls its positions so, and it has no table of them"""
_SAME_IN_BOTH: Mapping[str, Any] = {
    "norms_per_layer": 2,
    "is_parallel": False,
    "embedding_layer_norm": False,
    "norm_first_sandwich": False,
    "use_bias_in_output": False,
    "attention_sliding_window_length": None,
    "attention_logit_softcapping": None,
    "final_logit_softcapping": None,
    "attention_logits_alpha": 1.0,
    "scale_qk_dot_by_d": False,
    "embeddings_scale": 1.0,
    "logits_scale": 1.0,
}
"""what a model must have in its params to be one of theirs"""
_OF_FAMILY: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {
        "norm_type": "layernorm",
        "attention_module": "aiayn_attention",
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_ffn_bias": True,
    },
    "llama": {
        "norm_type": "rmsnorm",
        "attention_type": "scaled_dot_product",
        "scale_qk_dot_by_layer_idx": False,
    },
}


def family_of(where: str | Path, model: ModelParams) -> str:
    """Name of their class with the tensors of a model, that computes the same: gpt2 or llama.

    A model that is called mistral is a Llama with these tensors that may have a window.

    Raises:
        CheckpointError: none does
    """
    if not isinstance(model, DecoderParams):
        raise CheckpointError(f"{where}: must be a model that Hugging Face has, got {model.name}", _WHICH)
    family = "llama" if model.position_embedding_type == "rotary" else "gpt2"
    kind = _type_of(family, model)
    wanted: dict[str, Any] = {**_SAME_IN_BOTH, **_OF_FAMILY[family]}
    if family == "gpt2":
        wanted |= {"position_embedding_type": "learned", "inner_size": model.hidden_size}
    else:
        wanted |= {
            "rotary_dim": model.head_width,
            "use_ffn_bias_in_attention": model.use_projection_bias_in_attention,
        }
    if kind == "mistral":
        del wanted["attention_sliding_window_length"]
        wanted |= {"use_projection_bias_in_attention": False, "use_ffn_bias_in_attention": False, "use_ffn_bias": False}
    for key, value in wanted.items():
        if (got := getattr(model, key)) != value:
            raise CheckpointError(
                f"{where}: {key} must be {_text(value)} for {CLASSES[kind]}, got {_text(got)}", _WHICH
            )
    functions = NONLINEARITIES if family == "gpt2" else GATED_NONLINEARITIES
    if model.nonlinearity not in functions:
        known = ", ".join(functions)
        raise CheckpointError(
            f"{where}: nonlinearity must be one of {known} for {CLASSES[kind]}, got {model.nonlinearity}", _WHICH
        )
    if family == "llama" and model.pos_scaling_type not in SCALINGS:
        raise CheckpointError(f"{where}: pos_scaling_type must be linear or llama3, got {model.pos_scaling_type}")
    return family


def config_of(family: str, model: DecoderParams) -> dict[str, Any]:
    """Return the config of a model of a family, as their library writes it."""
    kind = _type_of(family, model)
    common = {
        "architectures": [CLASSES[kind]],
        "model_type": kind,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.share_embedding_weights,
        "initializer_range": model.initializer_range,
    }
    if family == "gpt2":
        return common | {
            "n_positions": model.max_position_embeddings,
            "n_embd": model.hidden_size,
            "n_layer": model.num_hidden_layers,
            "n_head": model.num_heads,
            "n_inner": model.filter_size,
            "activation_function": _theirs(NONLINEARITIES[model.nonlinearity]),
            "layer_norm_epsilon": model.layer_norm_epsilon,
            "scale_attn_weights": model.attention_type == "scaled_dot_product",
            "scale_attn_by_inverse_layer_idx": model.scale_qk_dot_by_layer_idx,
            "add_cross_attention": False,
            "resid_pdrop": model.residual_dropout_rate,
            "embd_pdrop": model.embedding_dropout_rate,
            "attn_pdrop": model.attention_dropout_rate,
        }
    return common | {
        "hidden_size": model.hidden_size,
        "intermediate_size": model.filter_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        "hidden_act": _theirs(GATED_NONLINEARITIES[model.nonlinearity]),
        "max_position_embeddings": model.max_position_embeddings,
        "rms_norm_eps": model.layer_norm_epsilon,
        "rope_theta": model.rope_theta,
        "rope_scaling": _scaling_of(model),
        "attention_dropout": model.attention_dropout_rate,
        **(
            {"sliding_window": model.attention_sliding_window_length}
            if kind == "mistral"
            else {"attention_bias": model.use_projection_bias_in_attention, "mlp_bias": model.use_ffn_bias}
        ),
    }


def model_section(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model section of the params for the model of a config, or raise CheckpointError."""
    kind = _model_type(path, config)
    family, found = FAMILIES[kind], _completed(path, kind, config)
    activation = found["activation_function" if family == "gpt2" else "hidden_act"]
    if not isinstance(activation, str) or activation not in HF_ACTIVATIONS:
        raise CheckpointError(f"{path}: the activation must be one of {', '.join(HF_ACTIVATIONS)}, got {activation}")
    function = HF_ACTIVATIONS[activation]
    section: dict[str, Any] = {
        "name": kind,
        "vocab_size": found["vocab_size"],
        "share_embedding_weights": found["tie_word_embeddings"],
        "initializer_range": found["initializer_range"],
        "use_bias_in_output": False,
    }
    if family == "gpt2":
        section |= {
            "max_position_embeddings": found["n_positions"],
            "hidden_size": found["n_embd"],
            "num_hidden_layers": found["n_layer"],
            "num_heads": found["n_head"],
            "filter_size": found["n_inner"],
            "nonlinearity": function,
            "layer_norm_epsilon": found["layer_norm_epsilon"],
            "attention_type": "scaled_dot_product" if found["scale_attn_weights"] else "dot_product",
            "scale_qk_dot_by_layer_idx": found["scale_attn_by_inverse_layer_idx"],
            "residual_dropout_rate": found["resid_pdrop"],
            "embedding_dropout_rate": found["embd_pdrop"],
            "attention_dropout_rate": found["attn_pdrop"],
        }
    else:
        gates = {kernel: name for name, kernel in GATED_NONLINEARITIES.items()}
        if function not in gates:
            raise CheckpointError(f"{path}: hidden_act must be one of {', '.join(gates)}, got {activation}")
        inner = _product(found["num_attention_heads"], found["head_dim"])
        section |= {
            "max_position_embeddings": found["max_position_embeddings"],
            "position_embedding_type": "rotary",
            "rotary_dim": found["head_dim"],
            "rope_theta": found["rope_theta"],
            "hidden_size": found["hidden_size"],
            "num_hidden_layers": found["num_hidden_layers"],
            "num_heads": found["num_attention_heads"],
            "attention_module": "multiquery_attention",
            "extra_attention_params": {"num_kv_groups": found["num_key_value_heads"]},
            "filter_size": found["intermediate_size"],
            "nonlinearity": gates[function],
            "norm_type": "rmsnorm",
            "layer_norm_epsilon": found["rms_norm_eps"],
            "use_projection_bias_in_attention": found.get("attention_bias", False),
            "use_ffn_bias_in_attention": found.get("attention_bias", False),
            "use_ffn_bias": found.get("mlp_bias", False),
            "dropout_rate": 0.0,
            "attention_dropout_rate": found["attention_dropout"],
            **({} if inner == found["hidden_size"] else {"attention_inner_dim": inner}),
            **_scaling_section(found["rope_scaling"]),
            **({"attention_sliding_window_length": window} if (window := found.get("sliding_window")) else {}),
        }
    return section


def make_model(path: Path, section: Any) -> DecoderParams:
    """Return the checked model of a section made from a config, or raise CheckpointError."""
    try:
        return DecoderParams.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the model"
        raise CheckpointError(
            f"{path}: must describe a model: {key} {first['msg'][:1].lower()}{first['msg'][1:]}"
        ) from (error)


def check_config(path: Path, config: Mapping[str, Any], params: str | Path, model: ModelParams) -> None:
    """Check that a config and the params are of one model, or raise CheckpointError that names all that differs."""
    family = family_of(params, model)
    assert isinstance(model, DecoderParams)
    kind = _type_of(family, model)
    if (got := _model_type(path, config)) != kind:
        raise CheckpointError(f"{path}: model_type must be {kind}, as {params} describes it, got {got}")
    wanted, found = config_of(family, model), _completed(path, kind, config)
    wanted["rope_scaling"] = _comparable(wanted.get("rope_scaling"))
    different = [
        f"{key} {_text(wanted[key])}, got {_text(found.get(key))}"
        for key in DEFAULTS[kind]
        if key not in NOT_COMPARED and not _same(key, wanted[key], found.get(key))
    ]
    if different:
        raise CheckpointError(
            f"{path}: must be of the model of {params}: {'; '.join(different)}",
            "without --params the model is the one that config.json describes",
        )


_WHICH = "Hugging Face's GPT2LMHeadModel, LlamaForCausalLM and MistralForCausalLM can be had"


def _type_of(family: str, model: DecoderParams) -> str:
    return model.name if FAMILIES.get(model.name) == family else family


def _model_type(path: Path, config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise CheckpointError(f"{path}: model_type must be one of {', '.join(CLASSES)}, got {_text(kind)}")
    if "quantization_config" in config:
        raise CheckpointError(f"{path}: must be without quantization_config: quantized weights cannot be read")
    return kind


def _completed(path: Path, kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Relevant keys of a config, defaults filled in."""
    found = {key: config.get(key, default) for key, default in DEFAULTS[kind].items()}
    if found.get("add_cross_attention"):
        raise CheckpointError(f"{path}: add_cross_attention must be false, got true")
    if kind == "gpt2":
        found["n_inner"] = _product(4, found["n_embd"]) if found["n_inner"] is None else found["n_inner"]
        return found
    # Newer releases of the library keep all that is about positions in one entry.
    positions = config.get("rope_parameters")
    if isinstance(positions, dict):
        found["rope_theta"] = positions.get("rope_theta", found["rope_theta"])
        found["rope_scaling"] = {key: value for key, value in positions.items() if key != "rope_theta"}
    found["rope_scaling"] = scaling = _comparable(found["rope_scaling"])
    scaled = scaling.get("rope_type") if isinstance(scaling, dict) else scaling or "default"
    if scaled not in SCALINGS:
        raise CheckpointError(f"{path}: rope_scaling must be of type {', '.join(SCALINGS)}, got {_text(scaled)}")
    if found["num_key_value_heads"] is None:
        found["num_key_value_heads"] = found["num_attention_heads"]
    if found["head_dim"] is None:
        heads, width = found["num_attention_heads"], found["hidden_size"]
        if type(heads) is not int or type(width) is not int or heads < 1 or width % heads:
            raise CheckpointError(f"{path}: hidden_size must be a multiple of num_attention_heads")
        found["head_dim"] = width // heads
    return found


def _comparable(scaling: Any) -> Any:
    """Return a rope_scaling with its type under the newer name; None where it scales nothing."""
    if not isinstance(scaling, dict):
        return scaling
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    rest = {key: value for key, value in scaling.items() if key not in ("rope_type", "type")}
    return None if kind == "default" or (kind, rest.get("factor")) == ("linear", 1.0) else {"rope_type": kind, **rest}


def _scaling_of(model: DecoderParams) -> dict[str, Any] | None:
    factor, extra = model.pos_scaling_factor, model.pos_scaling_extra_args
    if model.pos_scaling_type == "linear":
        return None if factor == 1.0 else {"rope_type": "linear", "factor": factor}
    assert extra is not None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": extra.low_freq_factor,
        "high_freq_factor": extra.high_freq_factor,
        "original_max_position_embeddings": extra.original_max_position_embeddings,
    }


def _scaling_section(scaling: Any) -> dict[str, Any]:
    if scaling is None:
        return {}
    rest = {key: value for key, value in scaling.items() if key not in ("rope_type", "factor")}
    extra = {"pos_scaling_extra_args": rest} if rest else {}
    return {"pos_scaling_type": scaling["rope_type"], "pos_scaling_factor": scaling.get("factor"), **extra}


def _theirs(function: str) -> str:
    return next(name for name, ours in HF_ACTIVATIONS.items() if ours == function)


def _same(key: str, wanted: Any, got: Any) -> bool:
    if key in ("activation_function", "hidden_act"):
        return HF_ACTIVATIONS.get(wanted) == HF_ACTIVATIONS.get(got) if isinstance(got, str) else False
    return bool(wanted == got)


def _product(a: Any, b: Any) -> Any:
    return a * b if type(a) is int and type(b) is int else None


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
