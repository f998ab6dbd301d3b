"""What is trained by `make_curves.py`, and by the vendor's Trainer: small T5 models, in its keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from tests.reference.deterministic import pair_batches
from tests.reference.loss_curve_cases import case, constant, warmed_up

Config = Mapping[str, Any]

SEQUENCE, TARGETS = 24, 10
_MODELS: dict[str, dict[str, Any]] = yaml.safe_load("""
sizes: &sizes {
  name: t5, src_vocab_size: 61, d_model: 64, d_kv: 12, num_heads: 4, d_ff: 128, encoder_num_hidden_layers: 2,
  decoder_num_hidden_layers: 3, src_max_position_embeddings: 24, tgt_max_position_embeddings: 10, dropout_rate: 0.0,
  layer_norm_epsilon: 1.0e-6}
tied: {<<: *sizes, encoder_nonlinearity: gelu, lm_loss_weight: 0.1}
# Few buckets, and distances in all of them.
tied_relu: {<<: *sizes, relative_attention_num_buckets: 8, lm_loss_weight: 0.1}
gated_untied: {
  <<: *sizes, encoder_nonlinearity: geglu, share_embedding_weights: false, mlm_loss_scaling: num_masked}
t5: &t5 {
  <<: *sizes, extra_ids: 3, src_vocab_size: 58, norm_type: layernorm, layer_norm_epsilon: 1.0e-5,
  use_projection_bias_in_attention: false, position_embedding_type: relative, share_embedding_weights: true,
  share_encoder_decoder_embedding: true, encoder_nonlinearity: relu, decoder_nonlinearity: relu, lm_loss_weight: 0.13}
t5_mup: &mup {
  <<: *t5, scale_encoder_qk_dot_by_d: true, scale_decoder_qk_dot_by_d: true, scale_output_logits_by_d: false,
  encoder_attention_logits_alpha: 4.0, decoder_attention_logits_alpha: 4.0, mup_base_d_model: 32, mup_base_d_ff: 32,
  output_logits_alpha: 2.22, embeddings_alpha: 0.8}
t5_mup_heads: {<<: *mup, mup_base_d_kv: 8, scale_output_logits_by_d: true}
t5_learned: {
  <<: *sizes, tgt_vocab_size: 47, share_encoder_decoder_embedding: false, position_embedding_type: learned_absolute,
  use_projection_bias_in_attention: true, use_ffn_bias: true, encoder_nonlinearity: swiglu, lm_loss_weight: 0.1}
t5_alibi: {
  <<: *sizes, position_embedding_type: alibi, encoder_nonlinearity: gelu, use_ffn_bias: true,
  attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 2}, lm_loss_weight: 0.1}
transformer: {
  <<: *t5, name: transformer, extra_ids: 0, use_pre_encoder_decoder_dropout: true,
  use_dropout_outside_residual_path: false, relu_dropout_rate: 0.0, position_embedding_type: fixed,
  use_pre_encoder_decoder_layer_norm: false, use_ffn_bias: true, use_transformer_initialization: true,
  mlm_loss_scaling: precomputed_num_masked, lm_loss_weight: 0.11}
""")
_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}}
# Scores are not divided by the root of a head: larger steps make ten times as much of every rounding.
CASES: Mapping[str, Config] = {
    name: case(seed, _MODELS[name], _ADAMW, constant(2.0e-4), max_gradient_norm=1.0)
    for seed, name in enumerate(("tied", "tied_relu", "gated_untied"), start=401)
}
"""case -> what is trained beside transformers; ten steps"""


def _vendor_case(seed: int, model: str, optimizer: Config, *, highest: float = 2.0e-3, **clipping: float) -> Config:
    return case(seed, _MODELS[model], optimizer, warmed_up(highest / 10, highest, 3, 5), **clipping)


_VENDOR_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True}}
VENDOR_CASES: dict[str, Config] = {
    "t5": _vendor_case(81, "t5", {"Adafactor": {}}),
    "t5_mup": _vendor_case(82, "t5_mup", _VENDOR_ADAMW, max_gradient_norm=1.0),
    "t5_mup_heads": _vendor_case(83, "t5_mup_heads", _VENDOR_ADAMW),
    # Logits that are not made smaller make much of every rounding: a tenth of the steps.
    "t5_gated": _vendor_case(84, "gated_untied", _VENDOR_ADAMW, highest=2.0e-4, max_gradient_norm=1.0),
    "t5_learned": _vendor_case(85, "t5_learned", _VENDOR_ADAMW, max_gradient_norm=1.0),
    "t5_alibi": _vendor_case(86, "t5_alibi", _VENDOR_ADAMW, max_gradient_norm=1.0),
    "transformer": _vendor_case(87, "transformer", {"Adam": {"betas": [0.9, 0.98], "eps": 1.0e-6}}),
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
