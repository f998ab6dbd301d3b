"""Hugging Face's vision transformer (ViT): the names of its tensors and the keys of its config.json.

Three tensors have more dimensions there: the projection of patches is a convolution, whose numbers lie as in our
matrix; the class token is a text of one token; and positions belong to one text, the class token's first. Here it is
the last, as at the vendor. Source: the released models, and Hugging Face's library 4.57, which the tests compare with.
"""

from collections.abc import Mapping
from typing import Any

from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import Found, Key, Refused, activation, all_of, labels, only, same, text
from cstool.model.params import NONLINEARITIES, VisionTransformerParams

_OURS, _THEIRS = "vit_model.encoder.transformer_encoder", "vit.encoder.layer.N"
_EMBEDDING = "vit_model.embedding_layer"
_PROJECTION, _CLASS_TOKEN, _POSITIONS = (
    "vit.embeddings.patch_embeddings.projection",
    "vit.embeddings.cls_token",
    "vit.embeddings.position_embeddings",
)


def _shapes(model: VisionTransformerParams) -> Mapping[str, tuple[int, ...]]:
    hidden = model.hidden_size
    return {
        f"{_PROJECTION}.weight": (hidden, model.num_channels, *model.patch_size),
        _CLASS_TOKEN: (1, 1, hidden),
        _POSITIONS: (1, model.patches + 1, hidden),
    }


def _sides(theirs: str, default: int) -> Key:
    """Height and width, or one number for both."""

    def read(found: Found) -> Mapping[str, Any]:
        given = found[theirs]
        sides = given if isinstance(given, list) else [given, given]
        if len(sides) != 2 or not all(type(side) is int and side >= 1 for side in sides):
            raise Refused(f"{theirs} must be a number of pixels or two of them, from 1, got {text(given)}")
        return {theirs: sides}

    def write(model: VisionTransformerParams) -> int | list[int]:
        height, width = getattr(model, theirs)
        return height if height == width else [height, width]

    return Key(theirs, default, read, write)


VIT = Family(
    "vit",
    "ViTForImageClassification",
    called=("vision_transformer", "vit_classification"),
    prefix="",
    names={
        f"{_EMBEDDING}.cls_embedding": _CLASS_TOKEN,
        f"{_EMBEDDING}.position_embeddings.weight": _POSITIONS,
        f"{_EMBEDDING}.linear_proj": _PROJECTION,
        f"{_OURS}.layers.N.norm1": f"{_THEIRS}.layernorm_before",
        **{
            f"{_OURS}.layers.N.self_attn.proj_{part[0]}_dense_layer": f"{_THEIRS}.attention.attention.{part}"
            for part in ("query", "key", "value")
        },
        f"{_OURS}.layers.N.self_attn.proj_output_dense_layer": f"{_THEIRS}.attention.output.dense",
        f"{_OURS}.layers.N.norm2": f"{_THEIRS}.layernorm_after",
        f"{_OURS}.layers.N.ffn.ffn.0.linear_layer": f"{_THEIRS}.intermediate.dense",
        f"{_OURS}.layers.N.ffn.ffn.1.linear_layer": f"{_THEIRS}.output.dense",
        f"{_OURS}.norm": "vit.layernorm",
        "classifier.classifier.ffn.0.linear_layer": "classifier",
    },
    fixed={"name": "vision_transformer", "use_conv_patchified_embedding": True},
    keys=(
        _sides("image_size", 224),
        _sides("patch_size", 16),
        same("num_channels", 3),
        same("hidden_size", 768),
        same("num_hidden_layers", 12),
        same("num_attention_heads", 12, "num_heads"),
        same("intermediate_size", 3072, "filter_size"),
        activation("hidden_act", "gelu"),
        same("layer_norm_eps", 1e-12, "layer_norm_epsilon"),
        same("qkv_bias", True, "use_projection_bias_in_attention"),
        same("initializer_range", 0.02),
        all_of("hidden_dropout_prob", 0.0, "dropout_rate", "embedding_dropout_rate"),
        same("attention_probs_dropout_prob", 0.0, "attention_dropout_rate"),
        *labels("num_classes"),
        only("problem_type", None, "an image has one class here"),
    ),
    shapes=_shapes,
    last_first=frozenset({f"{_EMBEDDING}.position_embeddings.weight"}),
    passed_tensors=("vit.pooler.",),
    passed_over=frozenset("encoder_stride pooler_act pooler_output_size".split()),
)

_INDIFFERENT = frozenset(
    "name dropout_rate attention_dropout_rate embedding_dropout_rate initializer_range default_initializer "
    "attention_initializer ffn_initializer pooler_initializer projection_initializer position_embedding_initializer "
    "cls_token_initializer".split()
)
"""keys of the params without effect on the answers of a model"""


def vit_facts(model: VisionTransformerParams) -> dict[str, Any]:
    """Return all facts that decide the answers of a vision transformer, by keys of the params."""
    facts = {key: getattr(model, key) for key in type(model).model_fields if key not in _INDIFFERENT}
    for key in ("nonlinearity", "pooler_nonlinearity"):
        facts[key] = NONLINEARITIES.get(facts[key], facts[key])
    if not model.use_encoder_pooler_layer:
        del facts["pooler_nonlinearity"]
    return facts
