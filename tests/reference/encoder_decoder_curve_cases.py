"""What is trained by `make_curves.py`, and by the vendor's Trainer: small T5 models, in its keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.reference.deterministic import pair_batches
from tests.reference.loss_curve_cases import case, constant, warmed_up

Config = Mapping[str, Any]

SEQUENCE, TARGETS = 24, 10
_SIZES = {
    "name": "t5",
    "src_vocab_size": 61,
    "d_model": 64,
    "d_kv": 12,
    "num_heads": 4,
    "d_ff": 128,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 3,
    "src_max_position_embeddings": SEQUENCE,
    "tgt_max_position_embeddings": TARGETS,
    "dropout_rate": 0.0,
    "layer_norm_epsilon": 1.0e-6,
}
_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}}
_GATED = {**_SIZES, "encoder_nonlinearity": "geglu", "share_embedding_weights": False}
# Few buckets, and distances in all of them.
_BUCKETS = {"relative_attention_num_buckets": 8}


def _case(seed: int, model: Config) -> Config:
    # Scores are not divided by the root of a head: larger steps make ten times as much of every rounding.
    return case(seed, model, _ADAMW, constant(2.0e-4), max_gradient_norm=1.0)


CASES: Mapping[str, Config] = {
    "tied": _case(401, {**_SIZES, "encoder_nonlinearity": "gelu", "lm_loss_weight": 0.1}),
    "tied_relu": _case(402, {**_SIZES, **_BUCKETS, "lm_loss_weight": 0.1}),
    "gated_untied": _case(403, {**_GATED, "mlm_loss_scaling": "num_masked"}),
}
"""case -> what is trained beside transformers; ten steps"""

_STOCK = {
    **_SIZES,
    "extra_ids": 3,
    "src_vocab_size": 58,
    "norm_type": "layernorm",
    "layer_norm_epsilon": 1.0e-5,
    "use_projection_bias_in_attention": False,
    "position_embedding_type": "relative",
    "share_embedding_weights": True,
    "share_encoder_decoder_embedding": True,
    "encoder_nonlinearity": "relu",
    "decoder_nonlinearity": "relu",
    "lm_loss_weight": 0.13,
}
_MUP = {
    "scale_encoder_qk_dot_by_d": True,
    "scale_decoder_qk_dot_by_d": True,
    "scale_output_logits_by_d": False,
    "encoder_attention_logits_alpha": 4.0,
    "decoder_attention_logits_alpha": 4.0,
    "mup_base_d_model": 32,
    "mup_base_d_ff": 32,
    "output_logits_alpha": 2.22,
    "embeddings_alpha": 0.8,
}
_TRANSFORMER = {
    **_STOCK,
    "name": "transformer",
    "extra_ids": 0,
    "use_pre_encoder_decoder_dropout": True,
    "use_dropout_outside_residual_path": False,
    "relu_dropout_rate": 0.0,
    "position_embedding_type": "fixed",
    "use_pre_encoder_decoder_layer_norm": False,
    "use_ffn_bias": True,
    "use_transformer_initialization": True,
    "mlm_loss_scaling": "precomputed_num_masked",
    "lm_loss_weight": 0.11,
}


def _vendor_case(seed: int, model: Config, optimizer: Config, **clipping: float) -> Config:
    return case(seed, model, optimizer, warmed_up(2.0e-4, 2.0e-3, 3, 5), **clipping)


_VENDOR_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True}}
VENDOR_CASES: dict[str, Config] = {
    "t5": _vendor_case(81, _STOCK, {"Adafactor": {}}),
    "t5_mup": _vendor_case(82, _STOCK | _MUP, _VENDOR_ADAMW, max_gradient_norm=1.0),
    "t5_mup_heads": _vendor_case(
        83, _STOCK | _MUP | {"mup_base_d_kv": 8, "scale_output_logits_by_d": True}, _VENDOR_ADAMW
    ),
    # Logits that are not made smaller make much of every rounding: a tenth of the steps.
    "t5_gated": case(
        84,
        {**_GATED, "mlm_loss_scaling": "num_masked"},
        _VENDOR_ADAMW,
        warmed_up(2.0e-5, 2.0e-4, 3, 5),
        max_gradient_norm=1.0,
    ),
    "t5_learned": _vendor_case(
        85,
        {
            **_SIZES,
            "tgt_vocab_size": 47,
            "share_encoder_decoder_embedding": False,
            "position_embedding_type": "learned_absolute",
            "use_projection_bias_in_attention": True,
            "use_ffn_bias": True,
            "encoder_nonlinearity": "swiglu",
            "lm_loss_weight": 0.1,
        },
        _VENDOR_ADAMW,
        max_gradient_norm=1.0,
    ),
    "t5_alibi": _vendor_case(
        86,
        {
            **_SIZES,
            "position_embedding_type": "alibi",
            "encoder_nonlinearity": "gelu",
            "use_ffn_bias": True,
            "attention_module": "multiquery_attention",
            "extra_attention_params": {"num_kv_groups": 2},
            "lm_loss_weight": 0.1,
        },
        _VENDOR_ADAMW,
        max_gradient_norm=1.0,
    ),
    "transformer": _vendor_case(87, _TRANSFORMER, {"Adam": {"betas": [0.9, 0.98], "eps": 1.0e-6}}),
}
"""case -> what the vendor's Trainer trains; eight steps"""


def arrays_of(config: Config) -> dict[str, np.ndarray]:
    """Return the batches of a case by name, (10, B, ...)."""
    model = config["model"]
    source, extra = model["src_vocab_size"], model.get("extra_ids", 0)
    return pair_batches(
        batch_size=config["batch_size"],
        sequence_length=SEQUENCE,
        targets=TARGETS,
        vocab_sizes=(source + extra, model.get("tgt_vocab_size", source) + extra),
        seed=config["seed"],
    )
