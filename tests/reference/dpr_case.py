"""The DPR whose first losses are recorded: its params, and its batches. Imports nothing of cstool."""

from typing import Any

import numpy as np

from tests.reference.deterministic import STEPS
from tests.reference.encoder_curve_cases import SIZES, TRAINING
from tests.reference.loss_curve_cases import constant

BATCH, QUESTION, CONTEXTS, CONTEXT, SEED = 8, 12, 2, 20, 401
ENCODER = {**SIZES, "num_hidden_layers": 2}
_TWO = {"name": "dpr", "q_encoder": ENCODER, "ctx_encoder": {**ENCODER, "num_hidden_layers": 1}}
_ONE = {"name": "dpr", "encoder": ENCODER, "use_biencoder": False}
_MODELS: dict[str, dict[str, Any]] = {
    "cls": {**_TWO, "softmax_temperature": 8.0},
    "mean, mutual": {**_TWO, "softmax_temperature": 5.0, "pooler_type": "mean", "mutual_information": True},
    "pooler": {**_TWO, "pooler_type": "ffn_pooler"},
    "one encoder": {**_ONE, "softmax_temperature": 8.0},
}
_SCHEDULERS = constant(1.0e-3)
CASES: dict[str, dict[str, Any]] = {
    name: {**TRAINING, "schedulers": _SCHEDULERS, "model": model} for name, model in _MODELS.items()
}
_VENDOR_TRAINING: dict[str, Any] = {
    "optimizer": {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True}},
    "schedulers": _SCHEDULERS,
    "precision": {"enabled": False, "max_gradient_norm": 1.0},
}
VENDOR_CASES = {name: {**_VENDOR_TRAINING, "model": model} for name, model in _MODELS.items()}
"""those that the vendor's Trainer trains"""


def tables() -> dict[str, np.ndarray]:
    """The samples of ten batches as an HDF5 file has them: data_0 (n, 3, S), data_1 (n, 3, C, S')."""
    rng, samples = np.random.default_rng(SEED), BATCH * STEPS
    found = {}
    for name, shape in (("data_0", (QUESTION,)), ("data_1", (CONTEXTS, CONTEXT))):
        ids = rng.integers(1, ENCODER["vocab_size"], (samples, *shape))
        lengths = rng.integers(3, shape[-1] + 1, (samples, *shape[:-1], 1))
        mask = np.arange(shape[-1]) < lengths
        kinds = (np.arange(shape[-1]) >= lengths // 2) & mask
        found[name] = np.stack([ids * mask, mask, kinds], axis=1).astype(np.int32)
    return found
