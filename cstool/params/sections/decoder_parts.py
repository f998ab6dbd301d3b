"""What stands inside of a decoder's `model` section, and the vendor's keys that do nothing there or cannot be had."""

from operator import gt
from typing import Annotated, Any, ClassVar

from pydantic import Field

from cstool.activations import ACTIVATIONS
from cstool.yaml_lines.section import Count, NotNegative, Positive, Section, beside

PRECISION_KEYS = frozenset({"mixed_precision", "fp16_type", "to_float16", "dtype", "use_bfloat16"})
"""arithmetic is float32 throughout"""

NONLINEARITIES = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.vendor_names}
"""the vendor's names of the functions of a feed-forward layer -> those of the kernels"""
GATED_NONLINEARITIES = {row.gate: name for name, row in ACTIVATIONS.items() if row.gate is not None}
"""the names of those with a gate -> the function of the gate"""

WITHOUT_EFFECT = PRECISION_KEYS.union(
    "attention_kernel attention_qk_norm_eps attention_softmax_fp32 boundary_casting compute_eval_metrics "
    "fold_rope_consts num_relative_attention_buckets use_experimental_flex_api".split(),
    # of older releases
    "alibi_implementation tf_summary".split(),
    # of generating text: prompts, and texts to stop at, come with the command
    "loop_dim start_token stop_sequences".split(),
)
"""the vendor's keys that can change nothing here"""
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "nonlinearity": tuple(NONLINEARITIES | GATED_NONLINEARITIES),
    "norm_type": ("layernorm", "biasless-layernorm", "rmsnorm"),
    "position_embedding_type": ("learned", "fixed", "rotary", "alibi", None),
    "pos_scaling_type": ("linear", "llama3", "yarn", "YaRN"),
    "position_embedding_offset": (0,),
    "num_extra_input_vocab_tokens": (0,),
    "rel_distance_mode": ("default",),
    "label_smoothing": (0.0,),
    "extra_ffn_params": ({},),
    "cross_attention_layers": ([],),
    **dict.fromkeys(
        "alibi_trainable_slopes attention_chunk_size attention_qk_norm_layer attention_vertical_column_spacing "
        "attention_vertical_column_width constant_pos_embedding fixed_sparse_attention lr_adjustment_groups "
        "memory_tokens rel_distance_extra_args use_sink_token use_untied_layer_norm".split(),
        (),
    ),
    # of older releases
    "use_position_embedding": (True,),
}
"""the vendor's keys that would change the result -> the values that can be had"""


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
    is_about = "a mixture of experts"


class PositionScalingParams(Section):
    """What stretches rotary positions: the middle keys for llama3, the last ones for YaRN."""

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

    supported: ClassVar[dict[str, tuple[Any, ...]]] = dict.fromkeys(
        ("long_factor", "short_factor", "long_mscale", "short_mscale", "attention_factor"), ()
    )
