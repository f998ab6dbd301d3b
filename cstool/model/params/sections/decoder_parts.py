"""The sections inside of a decoder's `model` section, and the vendor's keys that do nothing or are refused there."""

from operator import gt
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cstool.foundation.yaml_lines.section import Count, List, NotNegative, Positive, Section, beside, filled, rule_error
from cstool.model.params.sections.fields import GATED_NONLINEARITIES, NONLINEARITIES, PRECISION_KEYS
from cstool.model.params.sections.initializers import InitializerParams

WITHOUT_EFFECT = PRECISION_KEYS.union(
    "attention_kernel attention_softmax_fp32 boundary_casting compute_eval_metrics "
    "fold_rope_consts use_experimental_flex_api".split(),
    # of older releases
    "alibi_implementation tf_summary".split(),
    # of generating text: prompts, and texts to stop at, come with the command
    "loop_dim start_token stop_sequences".split(),
)
"""the vendor's keys that can change nothing here"""
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "nonlinearity": tuple(NONLINEARITIES | GATED_NONLINEARITIES),
    "norm_type": ("layernorm", "biasless-layernorm", "rmsnorm"),
    "position_embedding_type": ("learned", "fixed", "relative", "rotary", "alibi", None),
    "pos_scaling_type": ("linear", "llama3", "yarn", "YaRN", "longrope"),
    "attention_qk_norm_layer": ("rmsnorm",),
    "position_embedding_offset": (0,),
    "num_extra_input_vocab_tokens": (0,),
    "rel_distance_mode": ("default",),
    "label_smoothing": (0.0,),
    "extra_ffn_params": ({},),
    "cross_attention_layers": ([],),
    **dict.fromkeys(
        "constant_pos_embedding lr_adjustment_groups memory_tokens rel_distance_extra_args use_sink_token "
        "use_untied_layer_norm".split(),
        (),
    ),
    # of older releases
    "use_position_embedding": (True,),
}
"""the vendor's keys that would change the result -> the values that can be had"""


MAX_EXPERTS = 2**12
"""experts of a layer at most; the vendor numbers them with 16 bits"""
_OF_EXPERTS = "must be at most num_experts ({})"
_OF_NORMALIZATION = "needs expert_weighting_normalization"


class MoeParams(Section):
    """A mixture of experts in the place of each feed-forward part; one expert in all is none.

    Sinkhorn's normalisation is over the tokens of a sample, later ones included, and hashing has no router to train:
    neither can be had. Routers always compute in float32.
    """

    num_experts: Annotated[int, Field(ge=0, le=MAX_EXPERTS)] = 0
    num_shared_experts: Annotated[int | None, Field(ge=0, le=MAX_EXPERTS)] = None
    top_k: Annotated[Count, beside("num_experts", lambda k, experts: k <= max(experts, 1), _OF_EXPERTS)] = Field(
        1, validate_default=True
    )
    load_balancing_loss_coef: NotNegative = 0.0
    router_use_bias: bool = False
    router_selection_nonlinearity: Literal["softmax", "sigmoid"] = "softmax"
    expert_weighting_nonlinearity: Literal["softmax", "sigmoid"] = "softmax"
    expert_weighting_normalization: bool = True
    null_expert_bias: Annotated[
        NotNegative,
        beside("expert_weighting_normalization", lambda bias, there: there or not bias, _OF_NORMALIZATION),
    ] = 0.0
    gate_initializer: InitializerParams | None = None

    without_effect = frozenset({"moe_implementation", "router_fp32", "sinkhorn_n_iters"})
    supported = {
        "routing_algorithm": ("learned",),
        "router_selection_nonlinearity": ("softmax", "sigmoid"),
        "expert_weighting_nonlinearity": ("softmax", "sigmoid"),
        "probability_before_ffn": (False,),
    }

    @property
    def shared(self) -> int:
        """Experts that all tokens go through."""
        return self.num_shared_experts or 0

    @property
    def is_mixture(self) -> bool:
        """Whether there is more than one expert."""
        return self.num_experts + self.shared > 1

    @model_validator(mode="after")
    def _has_experts_to_choose(self) -> Self:
        if self.is_mixture and not self.num_experts:
            raise rule_error(f"must have num_experts to choose from beside num_shared_experts ({self.shared})")
        return self


class FixedSparseParams(Section):
    """Keys that every other layer sees, from the second on: its own block's, and the last few of each block.

    With `num_verts` heads would see other keys of a block each, if they had layouts of their own; the first is for all.
    Source: Child et al., "Generating long sequences with sparse transformers", 2019; the vendor's GPT-2 model, 2.10.
    """

    local_attn_ctx: Count = 16
    num_verts: Count = 64
    vert_size: Annotated[
        Count, beside("local_attn_ctx", lambda size, block: block % size == 0, "must divide local_attn_ctx ({})")
    ] = Field(16, validate_default=True)

    supported = {"different_layout_per_head": (False,)}


LONGROPE_KEYS = ("long_factor", "short_factor", "long_mscale", "short_mscale", "attention_factor")
Factors = Annotated[tuple[Positive, ...] | None, List]
"""one for each pair of a head"""


class PositionScalingParams(Section):
    """Stretching of rotary positions: the middle keys for llama3, the next ones for YaRN, the last for longrope."""

    original_max_position_embeddings: Count | None = None
    low_freq_factor: Positive = 1.0
    high_freq_factor: Annotated[
        Positive, beside("low_freq_factor", gt, "must be greater than low_freq_factor ({:g})")
    ] = Field(4.0, validate_default=True)
    extrapolation_factor: NotNegative = 1.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    mscale_a: NotNegative = 0.1
    mscale_b: NotNegative = 1.0
    truncate: bool = True
    long_factor: Factors = None
    short_factor: Factors = None
    long_mscale: Positive | None = None
    short_mscale: Positive | None = None
    attention_factor: Positive | None = None


PositionScaling = Annotated[
    PositionScalingParams | None,
    filled(lambda data: {} if data.get("pos_scaling_type", "linear") != "linear" else None),
]
"""as far as the kind of scaling needs any"""
