"""The `model` section of vision transformers that tell the class of an image.

Keys, defaults and rules are the vendor's. Source: its vision transformer, 2.10.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from cstool.foundation.yaml_lines.section import Count, List, Positive, Rate, rule_error
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.fields import PRECISION_KEYS, AttentionType, Layers, Nonlinearity, as_key, unset
from cstool.model.params.sections.initializers import DefaultInitializer, RangeInitializer

_Sides = Annotated[tuple[Count, Count], List]
"""height and width [pixels]"""


class VisionTransformerParams(AttentionRules):
    """A vision transformer: patches of an image as tokens, a class token before them, an encoder, a classifier."""

    name: Literal["vision_transformer", "vit_classification"]
    num_classes: Count = 2
    image_size: _Sides = (224, 224)
    num_channels: Annotated[int, Field(ge=1, le=64)] = 3
    patch_size: Annotated[_Sides, Field(validate_default=True)] = (16, 16)
    use_conv_patchified_embedding: bool = False
    use_embed_proj_bias: bool = True
    prepend_cls_token: bool = True
    position_embedding_type: Literal["learned", "fixed"] | None = "learned"
    embedding_dropout_rate: Rate = 0.0
    use_post_embed_layer_norm: bool = False
    num_hidden_layers: Layers = 12
    layer_norm_epsilon: Positive = 1e-5
    norm_first: bool = True
    use_final_layer_norm: bool = True
    num_heads: Count = 12
    hidden_size: Count = Field(768, validate_default=True)
    attention_type: AttentionType = "scaled_dot_product"
    filter_size: Count = 3072
    nonlinearity: Nonlinearity = "gelu"
    use_encoder_pooler_layer: bool = False
    pooler_nonlinearity: Annotated[Nonlinearity, as_key("nonlinearity", "gelu")] = unset()
    dropout_rate: Rate = 0.1
    attention_dropout_rate: Rate = 0.1
    use_projection_bias_in_attention: bool = True
    use_ffn_bias_in_attention: bool = True
    use_ffn_bias: bool = True
    use_bias_in_output: bool = True
    initializer_range: Positive = 0.02
    default_initializer: RangeInitializer = unset()
    attention_initializer: DefaultInitializer = unset()
    ffn_initializer: DefaultInitializer = unset()
    pooler_initializer: DefaultInitializer = unset()
    projection_initializer: RangeInitializer = unset()
    position_embedding_initializer: RangeInitializer = unset()
    cls_token_initializer: RangeInitializer = unset()

    stack = "encoder"
    null_counts = frozenset({"position_embedding_type"})
    without_effect = PRECISION_KEYS.union(
        # The last two tell of other models that the vendor makes of the same classes.
        "attention_softmax_fp32 compute_eval_metrics extra_attention_params image_layer_idx "
        "stochastic_depth_drop_prob_schedule stochastic_depth_mode".split()
    )
    supported = {
        "position_embedding_type": ("learned", "fixed", None),
        "attention_module": ("aiayn_attention",),
        "stochastic_depth_drop_prob": (0.0,),
        **dict.fromkeys(
            "freeze interpolate_position_embedding layerscale_value use_dinov2_classifier use_masked_patches".split(),
            (),
        ),
    }

    @field_validator("patch_size")
    @classmethod
    def _patches_divide_the_image(cls, patch: tuple[int, int], info: ValidationInfo) -> tuple[int, int]:
        image = info.data.get("image_size", patch)
        if image[0] % patch[0] or image[1] % patch[1]:
            raise rule_error(f"must divide the image_size ({image[0]} x {image[1]})")
        return patch

    @field_validator("hidden_size")
    @classmethod
    def _sinusoids_have_four_parts(cls, width: int, info: ValidationInfo) -> int:
        if info.data.get("position_embedding_type") == "fixed" and width % 4:
            raise rule_error("must be a multiple of 4 for position_embedding_type fixed")
        return width

    @property
    def norm_type(self) -> str:
        """Norms take the mean away, and have biases."""
        return "layernorm"

    @property
    def encoder_nonlinearity(self) -> str:
        """Of the feed-forward part, by the name that encoders of text have for it."""
        found: str = self.nonlinearity
        return found

    @property
    def inner_dropout_rate(self) -> float:
        """Rate of the dropout within the feed-forward part: none."""
        return 0.0

    @property
    def grid(self) -> tuple[int, int]:
        """Patches of a column and of a row."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def patches(self) -> int:
        """N, of an image."""
        return self.grid[0] * self.grid[1]

    @property
    def patch_values(self) -> int:
        """Numbers of a patch: its pixels in all channels."""
        return self.patch_size[0] * self.patch_size[1] * self.num_channels

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_heads

    def attention_scale(self, layer: int) -> float:  # noqa: ARG002  (as `AttentionRules` has it)
        """Factor of the products of queries and keys."""
        return self.head_width**-0.5 if self.attention_type == "scaled_dot_product" else 1.0

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Empty: without muP, the learning rate has no factors by group of weights."""
        return {}
