"""What `make_vendor_curves.py` trains: a small model of every family that the vendor has stock files for.

Each has the keys of its stock file that tell it from the others, and its optimizer: its class, betas, epsilon and
weight decay, whether gradients are clipped. Rates are ten times those of stock files, so that eight steps tell
something. Source of optimizers: the files of the Model Zoo, release 2.10.0.
"""

from typing import Any, NamedTuple

import yaml

from tests.reference.encoder_curve_cases import CASES as ENCODERS
from tests.reference.loss_curve_cases import CASES as FAMILIES
from tests.reference.loss_curve_cases import MODELS, Config, case, warmed_up
from tests.reference.vision_curve_cases import CASES as VISION

STEPS = 8


def _adamw(**keys: Any) -> Config:
    return {"AdamW": {"betas": [0.9, 0.95], "weight_decay": 0.1, "correct_bias": True, **keys}}


def _adam(**keys: Any) -> Config:
    return {"Adam": {"betas": [0.9, 0.95], "weight_decay": 0.1, **keys}}


def _case(seed: int, model: Config, optimizer: Config, **clipping: float) -> Config:
    return case(seed, model, optimizer, warmed_up(2.0e-4, 2.0e-3, 3, 5), **clipping)


# Keys added to those of a model of `loss_curve_cases.py`.
_MORE: dict[str, Config] = yaml.safe_load("""
btlm: {
  name: btlm, embeddings_scale: 14.6, mup_base_filter_size: 68.4, mup_base_hidden_size: 32, output_logits_alpha: 2.22,
  scale_qk_dot_by_d: true}
mixtral: {name: mixtral, moe: {router_fp32: true, num_experts: 4, top_k: 2, load_balancing_loss_coef: 0.02}}
shared_expert: {name: gpt3, moe: {
  router_fp32: true, num_experts: 3, top_k: 1, num_shared_experts: 1, null_expert_bias: 1.1,
  load_balancing_loss_coef: 0.01}}
sinks: {attention_sliding_window_length: 6, attention_sink_tokens: 3}
longrope_mscale: {pos_scaling_extra_args: {
  original_max_position_embeddings: 32, long_factor: [1.0, 1.5, 2.5, 4.0], short_factor: [1.0, 1.0, 1.25, 1.5],
  short_mscale: 1.25, attention_factor: 1.5}}
""")


def _model(base: str, *, more: str | None = None, without: tuple[str, ...] = (), **keys: Any) -> Config:
    """Return the model of a case, or what several are made of, with other keys."""
    model = FAMILIES[base]["model"] if base in FAMILIES else MODELS[base]
    kept = {key: value for key, value in model.items() if key not in without}
    return {**kept, **(_MORE[more] if more else {}), **keys}


def _clipped(seed: int, model: Config, optimizer: Config) -> Config:
    return _case(seed, model, optimizer, max_gradient_norm=1.0)


CASES: dict[str, Config] = {
    "gpt2": _clipped(31, _model("decoder_tied"), _adamw(eps=1.0e-8)),
    "gpt3_mup": _clipped(32, _model("mup"), _adamw(eps=1.0e-8)),
    "llama2": _clipped(33, MODELS["llama"], _adamw(eps=1.0e-5)),
    # Adam: its weight decay is for norms, too.
    "llama3": _clipped(34, _model("llama"), _adam(correct_bias=True)),
    "mixtral": _clipped(61, MODELS["llama"] | _MORE["mixtral"], _adamw(eps=1.0e-5)),
    "shared_expert": _clipped(62, MODELS["llama"] | _MORE["shared_expert"], _adamw(eps=1.0e-5)),
    "mistral": _clipped(35, _model("mistral"), _adamw()),
    # The sinks of the class of GPT-2 are read in vain, those of the parallel class are not.
    "mistral_sinks": _clipped(36, _model("mistral", more="sinks"), _adamw()),
    "falcon_sinks": _case(37, _model("falcon", more="sinks"), _adamw(eps=1.0e-8)),
    "falcon": _clipped(38, _model("falcon_two_norms"), _adamw(betas=[0.9, 0.999], eps=1.0e-8)),
    "gptj": _clipped(39, _model("gptj"), _adamw(betas=[0.9, 0.999], eps=1.0e-6)),
    "gpt-neox": _clipped(40, _model("gpt-neox"), _adamw(eps=1.0e-8)),
    "bloom": _clipped(41, _model("bloom"), _adamw(eps=1.0e-8)),
    "btlm": _clipped(42, _model("swiglu_alibi", more="btlm"), _adamw(eps=1.0e-8)),
    "jais": _clipped(43, _model("jais"), _adamw(eps=1.0e-9)),
    "starcoder": _clipped(44, _model("starcoder"), _adam(eps=1.0e-8)),
    "santacoder": _case(
        45, _model("starcoder", without=("scale_qk_dot_by_layer_idx",), name="santacoder"), _adam(eps=1.0e-8)
    ),
    "gemma2": _clipped(46, _model("gemma2"), _adamw()),
    "relative_positions": _clipped(63, _model("relative_positions"), _adamw()),
    "trained_slopes": _clipped(64, _model("trained_slopes"), _adamw()),
    "longrope": _clipped(65, _model("longrope"), _adamw()),
    "longrope_mscale": _clipped(66, _model("longrope", more="longrope_mscale"), _adamw()),
    "falcon_relative": _case(
        67,
        _model("falcon_two_norms", without=("rotary_dim",), position_embedding_type="relative"),
        _adamw(eps=1.0e-8),
    ),
    # Read in vain: the losses are those without.
    "chunks_in_vain": _clipped(68, _model("chunks_and_columns", without=("apply_attention_pattern",)), _adamw()),
    # Of two groups the first that names a layer counts; all else is frozen, norms and biases, too.
    "lora": {
        **_clipped(69, _model("decoder_tied"), _adamw(eps=1.0e-8)),
        "callbacks": [
            {
                "Lora": {
                    "lora_params": [
                        {"r": 4, "alpha": 2, "target_modules": ["MultiheadAttention", "Linear"]},
                        {"r": 2, "alpha": 1, "target_modules": ["FeedForwardNetwork", "Linear"]},
                    ]
                }
            }
        ],
    },
    "no_bias_correction": _case(47, MODELS["gpt2"], _adamw(correct_bias=False), max_gradient_value=0.01),
    # Momentum starts from nothing, so that dampening counts from the first step on.
    "momentum_dampened": _case(48, MODELS["gpt2"], {"SGD": {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}}),
}


def _names(*same: str, **others: str) -> dict[str, str]:
    return {name: name for name in same} | others


_TEXT = ("input_ids", "attention_mask", "token_type_ids")
VENDOR_NAMES: dict[str, dict[str, str]] = {
    "bert": _names(
        *_TEXT,
        *("masked_lm_positions", "next_sentence_label"),
        labels="masked_lm_labels",
        masked_lm_mask="prediction_mask",
    ),
    "esm2": _names(*_TEXT[:2], "masked_lm_positions", labels="masked_lm_labels", masked_lm_mask="prediction_mask"),
    "bert/classifier": _names(*_TEXT, labels="class_labels"),
    "bert/token_classifier": _names(*_TEXT, labels="token_labels", loss_mask="token_mask"),
    "bert/extractive_summarization": _names(
        *_TEXT, cls_indices="cls_positions", labels="cls_labels", cls_weights="prediction_mask"
    ),
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
ENCODER_CASES, VISION_CASES = (
    {
        name: {**_clipped(seed, cases[name]["model"], _adamw(eps=1.0e-8)), "batch_size": 8}
        for seed, name in enumerate(cases, start=first)
    }
    for cases, first in ((ENCODERS, 71), (VISION, 91))
)
