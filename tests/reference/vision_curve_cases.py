"""What `make_curves.py` trains: small vision transformers, in the vendor's keys, and their images."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from tests.reference.deterministic import image_batches
from tests.reference.loss_curve_cases import case, constant

Config = Mapping[str, Any]

SIDE = 28
"""height and width of an image [pixels]"""
_MODELS: dict[str, dict[str, Any]] = yaml.safe_load("""
sizes: &sizes {
  name: vision_transformer, num_classes: 10, image_size: [28, 28], num_channels: 1, patch_size: [7, 14],
  hidden_size: 32, filter_size: 64, num_heads: 4, num_hidden_layers: 2, layer_norm_epsilon: 1.0e-6, dropout_rate: 0.0,
  attention_dropout_rate: 0.0, embedding_dropout_rate: 0.0}
# As the vendor's files for ImageNet have it.
convolution: {<<: *sizes, use_conv_patchified_embedding: true, pooler_nonlinearity: tanh}
# Three channels of what is one picture, so that their order counts.
colours: {<<: *sizes, use_conv_patchified_embedding: true, num_channels: 3, patch_size: [14, 14]}
pixels: {
  <<: *sizes, num_channels: 3, use_bias_in_output: false, use_embed_proj_bias: false, layer_norm_epsilon: 1.0e-5}
pooler: {
  <<: *sizes, use_conv_patchified_embedding: true, use_encoder_pooler_layer: true, pooler_nonlinearity: tanh,
  use_projection_bias_in_attention: false}
fixed: {<<: *sizes, position_embedding_type: fixed, use_post_embed_layer_norm: true, num_channels: 3}
no_token: {
  <<: *sizes, prepend_cls_token: false, norm_first: false, use_final_layer_norm: false, nonlinearity: relu}
""")
del _MODELS["sizes"]
_ADAMW = {"AdamW": {"betas": [0.9, 0.95], "eps": 1.0e-5, "weight_decay": 0.1, "form": "pytorch"}}
CASES: Mapping[str, Config] = {
    name: case(seed, model, _ADAMW, constant(1.0e-3), max_gradient_norm=1.0)
    for seed, (name, model) in enumerate(_MODELS.items(), start=401)
}
HF_CASES = ("convolution", "colours")
"""that transformers' ViTForImageClassification computes, too"""


def images_of(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return normalised images (10, B, C, H, W) float32 and labels (10, B) int32; each channel is turned further."""
    pixels, labels = image_batches(batch_size=config["batch_size"], seed=config["seed"])
    one = pixels.reshape(*pixels.shape[:2], SIDE, SIDE).astype(np.float32) / 128 - 1
    channels = [np.rot90(one, turns, axes=(2, 3)) for turns in range(config["model"]["num_channels"])]
    return np.ascontiguousarray(np.stack(channels, axis=2)), labels.astype(np.int32)
