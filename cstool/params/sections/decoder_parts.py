"""The mappings inside of a decoder's `model` section."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from cstool.params.sections.section import Count, NotNegative, Positive, Section, rule_error


class AttentionExtraParams(Section):
    """What multi-query attention needs to know: how many heads of keys and values there are."""

    num_kv_groups: Count | None = None

    without_effect: ClassVar[frozenset[str]] = frozenset({"attention_kernel"})


class MoeParams(Section):
    """A mixture of experts, which cannot be had: one expert is none."""

    without_effect: ClassVar[frozenset[str]] = frozenset(
        "expert_weighting_nonlinearity expert_weighting_normalization gate_initializer load_balancing_loss_coef "
        "moe_implementation null_expert_bias probability_before_ffn router_fp32 router_selection_nonlinearity "
        "router_use_bias routing_algorithm sinkhorn_n_iters top_k".split()
    )
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"num_experts": (0, 1), "num_shared_experts": (0,)}


class PositionScalingParams(Section):
    """What stretches rotary positions: the middle keys for llama3, the last ones for YaRN."""

    original_max_position_embeddings: Count | None = None
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = Field(4.0, validate_default=True)
    extrapolation_factor: NotNegative = 1.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    mscale_a: NotNegative = 0.1
    mscale_b: NotNegative = 1.0
    truncate: bool = True

    supported: ClassVar[dict[str, tuple[Any, ...]]] = dict.fromkeys(
        ("long_factor", "short_factor", "long_mscale", "short_mscale", "attention_factor"), ()
    )

    @field_validator("high_freq_factor")
    @classmethod
    def _frequencies_are_ordered(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("low_freq_factor")
        if low is not None and high <= low:
            raise rule_error(f"must be greater than low_freq_factor ({low:g})")
        return high
