"""What `make_curves.py` trains: small encoders and their heads, in the vendor's keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.reference.deterministic import encoder_batches

Config = Mapping[str, Any]

SEQUENCE, PREDICTIONS, CLASSES = 24, 5, 3
MASK_TOKEN = 4
SIZES = {
    "vocab_size": 61,
    "hidden_size": 64,
    "filter_size": 128,
    "num_heads": 4,
    "num_hidden_layers": 3,
    "max_position_embeddings": 32,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "embedding_dropout_rate": 0.0,
    "layer_norm_epsilon": 1.0e-5,
    "encoder_nonlinearity": "gelu",
}
_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}}
_TRAINING = {
    "batch_size": 8,
    "optimizer": _ADAMW,
    "schedulers": [{"ConstantLR": {"learning_rate": 2.0e-3}}],
    "precision": {"max_gradient_norm": 1.0},
}


def _case(seed: int, **model: Any) -> Config:
    return {**_TRAINING, "seed": seed, "model": {**SIZES, **model}}


_PRETRAINING = {key: value for key, value in SIZES.items() if key != "embedding_dropout_rate"}
CASES: Mapping[str, Config] = {
    "bert": {
        **_TRAINING,
        "seed": 301,
        "model": {**_PRETRAINING, "name": "bert", "pooler_nonlinearity": "tanh", "mlm_loss_weight": 0.3},
    },
    "roberta": {
        **_TRAINING,
        "seed": 302,
        "model": {
            **_PRETRAINING,
            "name": "bert",
            "disable_nsp": True,
            "mask_padding_in_positional_embed": True,
            "pad_token_id": 1,
            "mlm_loss_weight": 0.5,
        },
    },
    "esm2": {
        **_TRAINING,
        "seed": 303,
        "model": {
            **_PRETRAINING,
            "name": "esm2",
            "disable_nsp": True,
            "embedding_layer_norm": False,
            "position_embedding_type": "rotary",
            "rotary_dim": 16,
            "use_final_layer_norm": True,
            "token_dropout": True,
            "mask_token_id": MASK_TOKEN,
            "pad_token_id": 1,
            "mlm_loss_weight": 0.2,
        },
    },
    "classifier": _case(
        304,
        name="bert/classifier",
        problem_type="single_label_classification",
        num_labels=CLASSES,
        task_dropout=0.0,
        pooler_nonlinearity="tanh",
        embedding_pad_token_id=1,
    ),
    "token_classifier": _case(
        305,
        name="bert/token_classifier",
        num_classes=CLASSES,
        encoder_output_dropout_rate=0.0,
        include_padding_in_loss=True,
        embedding_pad_token_id=1,
    ),
    "summarization": _case(306, name="bert/extractive_summarization", loss_weight=0.25, embedding_pad_token_id=1),
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
