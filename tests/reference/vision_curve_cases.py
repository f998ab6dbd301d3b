"""What `make_curves.py` trains: small vision transformers, in the vendor's keys, and their images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.reference.deterministic import image_batches

Config = Mapping[str, Any]

SIDE = 28
"""height and width of an image [pixels]"""
_SIZES = {
    "name": "vision_transformer",
    "num_classes": 10,
    "image_size": [SIDE, SIDE],
    "num_channels": 1,
    "patch_size": [7, 14],
    "hidden_size": 32,
    "filter_size": 64,
    "num_heads": 4,
    "num_hidden_layers": 2,
    "layer_norm_epsilon": 1.0e-6,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "embedding_dropout_rate": 0.0,
}
_TRAINING = {
    "batch_size": 8,
    "optimizer": {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}},
    "schedulers": [{"ConstantLR": {"learning_rate": 1.0e-3}}],
    "precision": {"enabled": False, "max_gradient_norm": 1.0},
}


def _case(seed: int, **model: Any) -> Config:
    return {**_TRAINING, "seed": seed, "model": {**_SIZES, **model}}


CASES: Mapping[str, Config] = {
    # As the vendor's files for ImageNet have it.
    "convolution": _case(401, use_conv_patchified_embedding=True, pooler_nonlinearity="tanh"),
    # Three channels of what is one picture, so that their order counts.
    "colours": _case(402, use_conv_patchified_embedding=True, num_channels=3, patch_size=[14, 14]),
    "pixels": _case(403, num_channels=3, use_bias_in_output=False, use_embed_proj_bias=False, layer_norm_epsilon=1e-5),
    "pooler": _case(
        404,
        use_conv_patchified_embedding=True,
        use_encoder_pooler_layer=True,
        pooler_nonlinearity="tanh",
        use_projection_bias_in_attention=False,
    ),
    "fixed": _case(405, position_embedding_type="fixed", use_post_embed_layer_norm=True, num_channels=3),
    "no_token": _case(406, prepend_cls_token=False, norm_first=False, use_final_layer_norm=False, nonlinearity="relu"),
}
HF_CASES = ("convolution", "colours")
"""that transformers' ViTForImageClassification computes, too"""


def images_of(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return normalised images (10, B, C, H, W) float32 and labels (10, B) int32; each channel is turned further."""
    pixels, labels = image_batches(batch_size=config["batch_size"], seed=config["seed"])
    one = pixels.reshape(*pixels.shape[:2], SIDE, SIDE).astype(np.float32) / 128 - 1
    channels = [np.rot90(one, turns, axes=(2, 3)) for turns in range(config["model"]["num_channels"])]
    return np.ascontiguousarray(np.stack(channels, axis=2)), labels.astype(np.int32)
