"""What `make_curves.py` trains: small encoders and their heads, in the vendor's keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from tests.reference.deterministic import encoder_batches
from tests.reference.loss_curve_cases import constant

Config = Mapping[str, Any]

SEQUENCE, PREDICTIONS, CLASSES = 24, 5, 3
MASK_TOKEN = 4
_MODELS: dict[str, dict[str, Any]] = yaml.safe_load("""
sizes: &sizes {
  vocab_size: 61, hidden_size: 64, filter_size: 128, num_heads: 4, num_hidden_layers: 3, max_position_embeddings: 32,
  dropout_rate: 0.0, attention_dropout_rate: 0.0, layer_norm_epsilon: 1.0e-5, encoder_nonlinearity: gelu}
heads: &heads {<<: *sizes, embedding_dropout_rate: 0.0, embedding_pad_token_id: 1}
bert: {<<: *sizes, name: bert, pooler_nonlinearity: tanh, mlm_loss_weight: 0.3}
roberta: {
  <<: *sizes, name: bert, disable_nsp: true, mask_padding_in_positional_embed: true, pad_token_id: 1,
  mlm_loss_weight: 0.5}
esm2: {
  <<: *sizes, name: esm2, disable_nsp: true, embedding_layer_norm: false, position_embedding_type: rotary,
  rotary_dim: 16, use_final_layer_norm: true, token_dropout: true, mask_token_id: 4, pad_token_id: 1,
  mlm_loss_weight: 0.2}
classifier: {
  <<: *heads, name: bert/classifier, problem_type: single_label_classification, num_labels: 3, task_dropout: 0.0,
  pooler_nonlinearity: tanh}
token_classifier: {
  <<: *heads, name: bert/token_classifier, num_classes: 3, encoder_output_dropout_rate: 0.0,
  include_padding_in_loss: true}
summarization: {<<: *heads, name: bert/extractive_summarization, loss_weight: 0.25}
""")
SIZES = _MODELS.pop("sizes")
del _MODELS["heads"]
TRAINING = {
    "optimizer": {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}},
    "precision": {"max_gradient_norm": 1.0},
}
CASES: Mapping[str, Config] = {
    name: {**TRAINING, "schedulers": constant(2.0e-3), "batch_size": 8, "seed": seed, "model": model}
    for seed, (name, model) in enumerate(_MODELS.items(), start=301)
}
"""case -> what is trained; ten steps"""

RENAMED: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("bert", "esm2"), {"labels": "masked_lm_labels", "mask": "prediction_mask"}),
    "bert/classifier": {"labels": "class_labels"},
    "bert/token_classifier": {"labels": "token_labels", "mask": "token_mask"},
    "bert/extractive_summarization": {"labels": "cls_labels", "mask": "prediction_mask", "word_numbers": "input_ids"},
}
"""model -> its input -> which of the arrays of `encoder_batches` it is, where that has another name"""


def arrays_of(config: Config) -> dict[str, np.ndarray]:
    """Return the batches of a case by name, (10, B, ...)."""
    return encoder_batches(
        batch_size=config["batch_size"],
        sequence_length=SEQUENCE,
        predictions=PREDICTIONS,
        vocab_size=config["model"]["vocab_size"],
        classes=CLASSES,
        mask_token=MASK_TOKEN,
        seed=config["seed"],
    )
