"""What `make_vendor_curves.py` trains: a small model of every family that the vendor has stock files for.

Each has the keys of its stock file that tell it from the others, and its optimizer: its class, betas, epsilon and
weight decay, whether gradients are clipped. Rates are ten times those of stock files, so that eight steps tell
something. Source of optimizers: the files of the Model Zoo, release 2.10.0.
"""

from typing import Any, NamedTuple

from tests.reference.encoder_curve_cases import CASES as ENCODERS
from tests.reference.loss_curve_cases import CASES as MODELS
from tests.reference.loss_curve_cases import (
    FALCON_TWO_NORMS,
    GPT2,
    LLAMA,
    MISTRAL,
    SWIGLU_ALIBI,
    Config,
    case,
    warmed_up,
)
from tests.reference.vision_curve_cases import CASES as VISION

STEPS = 8


def _adamw(**keys: Any) -> Config:
    return {"AdamW": {"betas": [0.9, 0.95], "weight_decay": 0.1, "correct_bias": True, **keys}}


def _adam(**keys: Any) -> Config:
    return {"Adam": {"betas": [0.9, 0.95], "weight_decay": 0.1, **keys}}


def _case(seed: int, model: Config, optimizer: Config, **clipping: float) -> Config:
    return case(seed, model, optimizer, warmed_up(2.0e-4, 2.0e-3, 3, 5), **clipping)


_BTLM = SWIGLU_ALIBI | {
    "name": "btlm",
    "embeddings_scale": 14.6,
    "mup_base_filter_size": 68.4,
    "mup_base_hidden_size": 32,
    "output_logits_alpha": 2.22,
    "scale_qk_dot_by_d": True,
}
_STARCODER = MODELS["starcoder"]["model"]
_SANTACODER = {
    **{key: value for key, value in _STARCODER.items() if key != "scale_qk_dot_by_layer_idx"},
    "name": "santacoder",
}
_MOE = {"router_fp32": True}
_MIXTRAL = {
    **LLAMA,
    "name": "mixtral",
    "moe": {**_MOE, "num_experts": 4, "top_k": 2, "load_balancing_loss_coef": 0.02},
}
_SHARED = {
    **LLAMA,
    "name": "gpt3",
    "moe": {
        **_MOE,
        "num_experts": 3,
        "top_k": 1,
        "num_shared_experts": 1,
        "null_expert_bias": 1.1,
        "load_balancing_loss_coef": 0.01,
    },
}
_WINDOW_AND_SINKS = {"attention_sliding_window_length": 6, "attention_sink_tokens": 3}

CASES: dict[str, Config] = {
    "gpt2": _case(31, MODELS["decoder_tied"]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0),
    "gpt3_mup": _case(32, MODELS["mup"]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0),
    "llama2": _case(33, LLAMA, _adamw(eps=1.0e-5), max_gradient_norm=1.0),
    # Adam: its weight decay is for norms, too.
    "llama3": _case(34, MODELS["llama"]["model"], _adam(correct_bias=True), max_gradient_norm=1.0),
    "mixtral": _case(61, _MIXTRAL, _adamw(eps=1.0e-5), max_gradient_norm=1.0),
    "shared_expert": _case(62, _SHARED, _adamw(eps=1.0e-5), max_gradient_norm=1.0),
    "mistral": _case(35, MISTRAL, _adamw(), max_gradient_norm=1.0),
    # The sinks of the class of GPT-2 are read in vain, those of the parallel class are not.
    "mistral_sinks": _case(36, MISTRAL | _WINDOW_AND_SINKS, _adamw(), max_gradient_norm=1.0),
    "falcon_sinks": _case(37, MODELS["falcon"]["model"] | _WINDOW_AND_SINKS, _adamw(eps=1.0e-8)),
    "falcon": _case(
        38,
        FALCON_TWO_NORMS,
        _adamw(betas=[0.9, 0.999], eps=1.0e-8),
        max_gradient_norm=1.0,
    ),
    "gptj": _case(39, MODELS["gptj"]["model"], _adamw(betas=[0.9, 0.999], eps=1.0e-6), max_gradient_norm=1.0),
    "gpt-neox": _case(40, MODELS["gpt-neox"]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0),
    "bloom": _case(41, MODELS["bloom"]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0),
    "btlm": _case(42, _BTLM, _adamw(eps=1.0e-8), max_gradient_norm=1.0),
    "jais": _case(43, MODELS["jais"]["model"], _adamw(eps=1.0e-9), max_gradient_norm=1.0),
    "starcoder": _case(44, _STARCODER, _adam(eps=1.0e-8), max_gradient_norm=1.0),
    "santacoder": _case(45, _SANTACODER, _adam(eps=1.0e-8)),
    "gemma2": _case(46, MODELS["gemma2"]["model"], _adamw(), max_gradient_norm=1.0),
    "relative_positions": _case(63, MODELS["relative_positions"]["model"], _adamw(), max_gradient_norm=1.0),
    "trained_slopes": _case(64, MODELS["trained_slopes"]["model"], _adamw(), max_gradient_norm=1.0),
    "longrope": _case(65, MODELS["longrope"]["model"], _adamw(), max_gradient_norm=1.0),
    "longrope_mscale": _case(
        66,
        {
            **MODELS["longrope"]["model"],
            "pos_scaling_extra_args": {
                **MODELS["longrope"]["model"]["pos_scaling_extra_args"],
                "original_max_position_embeddings": 32,
                "short_mscale": 1.25,
                "attention_factor": 1.5,
            },
        },
        _adamw(),
        max_gradient_norm=1.0,
    ),
    "falcon_relative": _case(
        67,
        {key: value for key, value in FALCON_TWO_NORMS.items() if key != "rotary_dim"}
        | {"position_embedding_type": "relative"},
        _adamw(eps=1.0e-8),
    ),
    # Read in vain: the losses are those without.
    "chunks_in_vain": _case(
        68,
        {key: value for key, value in MODELS["chunks_and_columns"]["model"].items() if not key.startswith("apply")},
        _adamw(),
        max_gradient_norm=1.0,
    ),
    "no_bias_correction": _case(47, GPT2, _adamw(correct_bias=False), max_gradient_value=0.01),
    # Momentum starts from nothing, so that dampening counts from the first step on.
    "momentum_dampened": _case(48, GPT2, {"SGD": {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}}),
}

VENDOR_NAMES: dict[str, dict[str, str]] = {
    "bert": {
        "input_ids": "input_ids",
        "token_type_ids": "token_type_ids",
        "attention_mask": "attention_mask",
        "masked_lm_positions": "masked_lm_positions",
        "labels": "masked_lm_labels",
        "masked_lm_mask": "prediction_mask",
        "next_sentence_label": "next_sentence_label",
    },
    "esm2": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "masked_lm_positions": "masked_lm_positions",
        "labels": "masked_lm_labels",
        "masked_lm_mask": "prediction_mask",
    },
    "bert/classifier": {
        "input_ids": "input_ids",
        "token_type_ids": "token_type_ids",
        "attention_mask": "attention_mask",
        "labels": "class_labels",
    },
    "bert/token_classifier": {
        "input_ids": "input_ids",
        "token_type_ids": "token_type_ids",
        "attention_mask": "attention_mask",
        "labels": "token_labels",
        "loss_mask": "token_mask",
    },
    "bert/extractive_summarization": {
        "input_ids": "input_ids",
        "token_type_ids": "token_type_ids",
        "attention_mask": "attention_mask",
        "cls_indices": "cls_positions",
        "labels": "cls_labels",
        "cls_weights": "prediction_mask",
    },
}
"""model -> what the vendor calls its inputs -> which of the arrays of `encoder_batches` they are"""


class Wanted(NamedTuple):
    """What the vendor wants to see in a file beside a model, even where nothing is read by it."""

    processor: str
    loader_keys: tuple[str, ...] = ()
    model_keys: tuple[str, ...] = ()


VENDOR_WANTS = {
    **dict.fromkeys(("bert", "esm2"), Wanted("BertHDF5DataProcessor")),
    "bert/classifier": Wanted("SST2DataProcessor", ("vocab_file", "max_sequence_length", "is_training")),
    "bert/token_classifier": Wanted(
        "BertTokenClassifierDataProcessor",
        ("vocab_file", "label_vocab_file", "max_sequence_length"),
        ("label_vocab_file",),
    ),
    "bert/extractive_summarization": Wanted(
        "BertSumCSVDataProcessor", ("vocab_file", "max_sequence_length", "max_cls_tokens"), ("vocab_file",)
    ),
}
"""by model"""
ENCODER_CASES: dict[str, Config] = {
    name: {**_case(seed, ENCODERS[name]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0), "batch_size": 8}
    for seed, name in enumerate(ENCODERS, start=71)
}
VISION_CASES: dict[str, Config] = {
    name: {**_case(seed, VISION[name]["model"], _adamw(eps=1.0e-8), max_gradient_norm=1.0), "batch_size": 8}
    for seed, name in enumerate(VISION, start=91)
}
