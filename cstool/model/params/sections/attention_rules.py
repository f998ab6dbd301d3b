"""Rules and quantities of self-attention that the sections of decoders and of encoders share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationInfo, field_validator

from cstool.foundation.yaml_lines.section import rule_error
from cstool.model.batch_split import nearest_divisors
from cstool.model.params.sections.decoder_parts import LONGROPE_KEYS, PositionScalingParams
from cstool.model.params.sections.fields import AttentionExtraParams, ModelSection


class AttentionRules(ModelSection):
    """Rules for heads, positions and muP wherever tokens attend to tokens; the keys belong to the sections."""

    stack: ClassVar[str] = "decoder"
    """prefix of the groups of its weights"""

    if TYPE_CHECKING:  # the sections have them as fields, each in an order of its own

        @property
        def name(self) -> str:
            """Of the family."""

        num_heads: int
        hidden_size: int
        filter_size: int
        attention_type: str
        attention_module: str
        attention_logits_alpha: float
        extra_attention_params: AttentionExtraParams
        scale_qk_dot_by_d: bool
        use_projection_bias_in_attention: bool
        position_embedding_type: str | None
        rotary_dim: int | None
        rope_theta: float
        max_position_embeddings: int
        pos_scaling_type: str
        pos_scaling_factor: float
        pos_scaling_extra_args: PositionScalingParams | None
        mup_base_hidden_size: float | None
        mup_base_filter_size: float | None

    @field_validator("hidden_size", "attention_inner_dim", check_fields=False)
    @classmethod
    def _heads_divide_width(cls, width: int | None, info: ValidationInfo) -> int | None:
        heads = info.data.get("num_heads", 1)
        if width is not None and width % heads:
            below = width // heads * heads
            near = [str(size) for size in (below, below + heads) if size > 0]
            raise rule_error(f"must be a multiple of num_heads ({heads})", _nearest(near))
        return width

    @field_validator("extra_attention_params", check_fields=False)
    @classmethod
    def _kv_groups_divide_heads(cls, extra: AttentionExtraParams, info: ValidationInfo) -> AttentionExtraParams:
        groups, heads = extra.num_kv_groups, info.data.get("num_heads")
        if groups is None or heads is None:
            return extra
        if info.data.get("attention_module") == "aiayn_attention":
            raise rule_error("needs attention_module multiquery_attention for its num_kv_groups")
        if heads % groups:
            rule = f"must have num_kv_groups that divide num_heads ({heads}), not {groups}"
            raise rule_error(rule, nearest_divisors(heads, groups))
        return extra

    @field_validator("rotary_dim", mode="before", check_fields=False)
    @classmethod
    def _fill_rotary_dim(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.data.get("position_embedding_type") == "rotary":
            # Source: the vendor's default, a quarter of a head.
            width = info.data.get("hidden_size", 8) // info.data.get("num_heads", 1)
            if (quarter := int(width * 0.25)) % 2 or quarter == 0:
                raise rule_error(f"must be given: a quarter of the width of a head ({width}) is no even number")
            return quarter
        return value

    @field_validator("rotary_dim", check_fields=False)
    @classmethod
    def _rotary_dim_fits_a_head(cls, rotary_dim: int | None, info: ValidationInfo) -> int | None:
        if rotary_dim is None or not {"position_embedding_type", "num_heads", "hidden_size"} <= info.data.keys():
            return rotary_dim
        if (kind := info.data["position_embedding_type"]) != "rotary":
            written = "null" if kind is None else kind
            raise rule_error(f"needs position_embedding_type rotary, and that is {written}", "leave one of them out")
        width = (info.data.get("attention_inner_dim") or info.data["hidden_size"]) // info.data["num_heads"]
        if rotary_dim % 2 or rotary_dim > width:
            raise rule_error(f"must be an even number up to the width of a head ({width})")
        return rotary_dim

    @field_validator("pos_scaling_type", "pos_scaling_factor", check_fields=False)
    @classmethod
    def _scaling_fits_positions(cls, value: Any, info: ValidationInfo) -> Any:
        kind = info.data.get("position_embedding_type", "rotary")
        fitting = ("rotary", "alibi") if info.field_name == "pos_scaling_factor" else ("rotary",)
        if value not in (1.0, "linear") and kind not in fitting:
            written = "null" if kind is None else kind
            raise rule_error(f"needs position_embedding_type {' or '.join(fitting)}, and that is {written}")
        return value

    @field_validator("pos_scaling_extra_args", check_fields=False)
    @classmethod
    def _scaling_knows_the_original_length(
        cls, extra: PositionScalingParams | None, info: ValidationInfo
    ) -> PositionScalingParams | None:
        kind = info.data.get("pos_scaling_type", "linear")
        if extra is None:
            return extra
        if kind == "longrope":
            _check_longrope(extra, info.data)
        elif others := [key for key in LONGROPE_KEYS if getattr(extra, key) is not None]:
            raise rule_error(f"must have no {others[0]} beside pos_scaling_type {kind}, it is of longrope")
        if kind == "linear":
            return extra
        if extra.original_max_position_embeddings is not None:
            return extra
        if kind in ("yarn", "longrope"):
            raise rule_error(f"must give original_max_position_embeddings for pos_scaling_type {kind}")
        return extra.model_copy(update={"original_max_position_embeddings": 8192})

    @field_validator("mup_base_filter_size", check_fields=False)
    @classmethod
    def _mup_has_both_sizes(cls, filter_size: float | None, info: ValidationInfo) -> float | None:
        if "mup_base_hidden_size" in info.data and (filter_size is None) != (info.data["mup_base_hidden_size"] is None):
            raise rule_error("must be given together with mup_base_hidden_size")
        return filter_size

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data; a null of position_embedding_type is a value."""
        return {**super().dump(), "position_embedding_type": self.position_embedding_type}

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.hidden_size

    @property
    def head_width(self) -> int:
        """D."""
        return self.inner_size // self.num_heads

    @property
    def qk_norm_epsilon(self) -> float | None:
        """Epsilon added to mean squares where heads of queries and keys are normalised; None where they are not."""
        return None

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        is_shared = self.attention_module == "multiquery_attention"
        return (self.extra_attention_params.num_kv_groups or 1) if is_shared else self.num_heads

    def attention_scale(self, layer: int) -> float:  # noqa: ARG002  (some decoders have one for each layer)
        """Factor of the products of queries and keys."""
        scale = self.attention_logits_alpha
        if self.attention_type == "scaled_dot_product":
            scale *= 1 / self.head_width if self.scale_qk_dot_by_d else self.head_width**-0.5
        return scale

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Factors of muP on the learning rate, by group of weights."""
        by_width, by_filter = self.mup_width_factors
        kind = self.stack
        return {f"{kind}_attention": by_width, f"{kind}_input_ffn": by_width, f"{kind}_output_ffn": by_filter}

    @property
    def mup_width_factors(self) -> tuple[float, float]:
        """Width of muP's base model over the width of this one, for the residual stream and the feed-forward layer."""
        if self.mup_base_hidden_size is None or self.mup_base_filter_size is None:
            return 1.0, 1.0
        return self.mup_base_hidden_size / self.hidden_size, self.mup_base_filter_size / self.filter_size


def _check_longrope(extra: PositionScalingParams, given: Mapping[str, Any]) -> None:
    """Check that longrope has a factor for each pair that is turned, of the length that the model is for."""
    original, longest = extra.original_max_position_embeddings, given.get("max_position_embeddings")
    if original is None or longest is None:
        return
    name = "long_factor" if longest > original else "short_factor"
    factors, pairs = getattr(extra, name), (given.get("rotary_dim") or 0) // 2
    if factors is None:
        raise rule_error(f"must give {name}, since max_position_embeddings is {longest} and the original is {original}")
    if pairs and len(factors) != pairs:
        raise rule_error(f"must have {pairs} numbers in {name}, one for each pair of rotary_dim, got {len(factors)}")


def _nearest(near: list[str]) -> str:
    return f"{' and '.join(near)} {'are' if len(near) > 1 else 'is'} the nearest"
