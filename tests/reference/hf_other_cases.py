"""Small T5s, as first published and 1.1, and vision transformers of Hugging Face's: configs, inputs and weights.

No cstool.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import deterministic
from tests.reference.hf_cases import weights
from tests.reference.hf_models import Tensors

RECORDED = Path(__file__).with_name("hf_other_references.json")
SOURCE = [14, 3, 59, 26, 5, 31, 31, 8, 2]
"""what a T5 reads"""
START = 0
"""what its decoder begins with"""

_T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 61, "d_model": 48, "d_kv": 10}
_T5 |= {"num_heads": 6, "d_ff": 80, "num_layers": 2, "decoder_start_token_id": START}
_VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 8, "patch_size": 4}
_VIT |= {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 80}
_VIT |= {"id2label": {str(number): f"animal {number}" for number in range(7)}}

T5_CASES: dict[str, dict[str, Any]] = {
    "t5": {**_T5},
    "t5_few_buckets": {
        **_T5,
        "num_decoder_layers": 3,
        "relative_attention_num_buckets": 6,
        "feed_forward_proj": "gelu",
    },
    "t5_1_1": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5_silu": {**_T5, "feed_forward_proj": "gated-silu", "num_decoder_layers": 1},
}
VIT_CASES: dict[str, dict[str, Any]] = {
    "vit": {**_VIT},
    "vit_oblong": {**_VIT, "image_size": [6, 12], "patch_size": [2, 3], "num_channels": 1, "qkv_bias": False}
    | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
}
CASES = {**T5_CASES, **VIT_CASES}


def image(config: Mapping[str, Any]) -> np.ndarray:
    """Return an image for a vision transformer, (channels, height, width) float32."""
    size = config["image_size"]
    sides = size if isinstance(size, list) else (size, size)
    # As the weights of norms are drawn, about 1.
    drawn = deterministic.weights({"image": (config.get("num_channels", 3), *sides)}, seed=12)["image"]
    return (drawn - np.float32(1.0)) * np.float32(10.0)


def tensors_of(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    """Return weights by name, float32; those of more than two dimensions are small, none like another.

    So is the table of words of a T5: else each token has itself as the likeliest next one.
    """
    found = weights(shapes)
    for name, array in found.items():
        if name == "shared.weight":
            found[name] = array * np.float32(0.25)
        if array.ndim > 2:
            found[name] = (array - np.float32(1.0)) * np.float32(5.0)
    return found
