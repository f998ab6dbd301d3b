"""The `model` section: fc_mnist, and GPT-2 and GPT-3 style decoders."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cstool.ir import Initializer
from cstool.params.section import Count, List, NotNegative, Positive, Rate, Section, rule_error

MAX_VOCAB_SIZE = 512_000
MAX_LAYERS = 1000
"""Source: the vendor's GPT-2 schema."""

_PRECISION_KEYS = frozenset({"mixed_precision", "fp16_type", "to_float16", "dtype"})


_AS_INITIALIZER = object()
"""stands for an output_layer_initializer that is not given, beside an initializer that is"""


class InitializerParams(Section):
    """How weights begin. `a` and `b` bound a truncated_normal (default: mean -+ 2 std) or a uniform (0 and 1)."""

    name: Literal["normal", "truncated_normal", "uniform", "constant", "zeros", "ones"]
    mean: float = 0.0
    std: NotNegative = 1.0
    val: float = 0.0
    a: float | None = None
    b: float | None = None

    @field_validator("b")
    @classmethod
    def _bounds_are_ordered(cls, b: float | None, info: ValidationInfo) -> float | None:
        a = info.data.get("a")
        if a is not None and b is not None and b <= a:
            raise rule_error(f"must be greater than a ({a:g})")
        return b

    def initializer(self) -> Initializer:
        """Return it as the graph has it."""
        match self.name:
            case "normal":
                return Initializer("normal", self.mean, self.std)
            case "truncated_normal":
                low = self.mean - 2 * self.std if self.a is None else self.a
                high = self.mean + 2 * self.std if self.b is None else self.b
                return Initializer("truncated_normal", self.mean, self.std, low, high)
            case "uniform":
                return Initializer("uniform", low=self.a or 0.0, high=1.0 if self.b is None else self.b)
            case "constant":
                return Initializer("constant", mean=self.val)
        return Initializer("constant", mean=float(self.name == "ones"))


class FcMnistParams(Section):
    """A fully connected network for 28 x 28 digits: `hidden_sizes`, or `depth` layers of `hidden_size`."""

    name: Literal["fc_mnist"]
    depth: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1
    hidden_size: Count = 128
    hidden_sizes: Annotated[tuple[Count, ...] | None, List] = None
    activation_fn: Literal["relu", "gelu"] = "relu"
    dropout: Rate = 0.0
    use_bias: bool = True

    without_effect: ClassVar[frozenset[str]] = _PRECISION_KEYS | {"compute_eval_metrics"}
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"activation_fn": ("relu", "gelu"), "disable_softmax": ()}

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return (self.hidden_size,) * self.depth if self.hidden_sizes is None else self.hidden_sizes


class DecoderParams(Section):
    """A decoder with learned positions, norm before each part, multi-head attention.

    Defaults are the vendor's. The initializers left out are filled in: truncated normals of width
    `initializer_range`, for the layers that write to the residual stream divided by sqrt(2 num_hidden_layers)
    unless `initializer` is given, which then is for them too.
    Source: the vendor's GPT-2 model, 2.10.
    """

    name: Literal["gpt2", "gpt3"]
    vocab_size: Annotated[int, Field(ge=1, le=MAX_VOCAB_SIZE)] = 50257
    max_position_embeddings: Count = 1024
    share_embedding_weights: bool = True
    num_hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 12
    num_heads: Count = 12
    hidden_size: Count = Field(768, validate_default=True)
    filter_size: Count = 3072
    nonlinearity: Literal["gelu", "relu"] = "gelu"
    layer_norm_epsilon: Positive = 1e-5
    dropout_rate: Rate = 0.1
    attention_dropout_rate: Rate = 0.1
    residual_dropout_rate: Rate = Field(None, validate_default=True)
    embedding_dropout_rate: Rate = Field(None, validate_default=True)
    use_projection_bias_in_attention: bool = True
    use_ffn_bias_in_attention: bool = True
    use_ffn_bias: bool = True
    use_bias_in_output: bool = False
    loss_scaling: Literal["num_tokens", "batch_size"] = "num_tokens"
    loss_weight: Positive = 1.0
    initializer_range: Positive = 0.02
    initializer_params: InitializerParams = Field(None, alias="initializer", validate_default=True)
    embedding_initializer_params: InitializerParams = Field(None, alias="embedding_initializer", validate_default=True)
    output_layer_initializer_params: InitializerParams = Field(
        None, alias="output_layer_initializer", validate_default=True
    )

    null_counts: ClassVar[frozenset[str]] = frozenset({"attention_dropout_rate", "position_embedding_type"})
    without_effect: ClassVar[frozenset[str]] = _PRECISION_KEYS | {
        "attention_kernel",
        "attention_qk_norm_eps",
        "attention_softmax_fp32",
        "boundary_casting",
        "compute_eval_metrics",
        "fold_rope_consts",
        "num_relative_attention_buckets",
        "pos_scaling_type",
        "rope_theta",
        "use_experimental_flex_api",
        # of generating text, which training and evaluation do not do
        "loop_dim",
        "max_tokens",
        "start_token",
        "stop_sequences",
        "temperature",
        "top_k",
        "top_p",
    }
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {
        "attention_module": ("aiayn_attention",),
        "attention_type": ("scaled_dot_product",),
        "nonlinearity": ("gelu", "relu"),
        "norm_type": ("layernorm",),
        "position_embedding_type": ("learned",),
        "attention_logits_alpha": (1.0,),
        "embeddings_scale": (1.0,),
        "pos_scaling_factor": (1.0,),
        "position_embedding_offset": (0,),
        "num_extra_input_vocab_tokens": (0,),
        "rel_distance_mode": ("default",),
        "scale_output_logits_by_d": (True,),
        "label_smoothing": (0.0,),
        "extra_attention_params": ({},),
        "extra_ffn_params": ({},),
        "cross_attention_layers": ([],),
        "alibi_trainable_slopes": (),
        "attention_chunk_size": (),
        "attention_inner_dim": (),
        "attention_logit_softcapping": (),
        "attention_qk_norm_layer": (),
        "attention_sink_tokens": (),
        "attention_sliding_window_length": (),
        "attention_vertical_column_spacing": (),
        "attention_vertical_column_width": (),
        "constant_pos_embedding": (),
        "embedding_layer_norm": (),
        "ffn_initializer": (),
        "ffn_output_layer_initializer": (),
        "final_logit_softcapping": (),
        "fixed_sparse_attention": (),
        "lr_adjustment_groups": (),
        "memory_tokens": (),
        "moe": (),
        "moe_params": (),
        "mup_base_filter_size": (),
        "mup_base_hidden_size": (),
        "norm_first_sandwich": (),
        "output_logits_alpha": (),
        "output_logits_scale": (),
        "pos_scaling_extra_args": (),
        "rel_distance_extra_args": (),
        "rotary_dim": (),
        "scale_qk_dot_by_d": (),
        "scale_qk_dot_by_layer_idx": (),
        "sliding_window_every_other_decoder_layer": (),
        "use_untied_layer_norm": (),
    }

    @field_validator("hidden_size")
    @classmethod
    def _heads_divide_hidden_size(cls, hidden_size: int, info: ValidationInfo) -> int:
        heads = info.data.get("num_heads", 1)
        if hidden_size % heads:
            below = hidden_size // heads * heads
            near = [str(size) for size in (below, below + heads) if size > 0]
            hint = f"{' and '.join(near)} {'are' if len(near) > 1 else 'is'} the nearest"
            raise rule_error(f"must be a multiple of num_heads ({heads})", hint)
        return hidden_size

    @field_validator("attention_dropout_rate", "residual_dropout_rate", "embedding_dropout_rate", mode="before")
    @classmethod
    def _follow_dropout_rate(cls, value: Any, info: ValidationInfo) -> Any:
        return info.data.get("dropout_rate", 0.0) if value is None else value

    @model_validator(mode="before")
    @classmethod
    def _one_initializer_is_for_all(cls, data: Any) -> Any:
        if isinstance(data, dict) and "initializer" in data:
            return {"output_layer_initializer": _AS_INITIALIZER, **data}
        return data

    @field_validator(
        "initializer_params", "embedding_initializer_params", "output_layer_initializer_params", mode="before"
    )
    @classmethod
    def _fill_initializer(cls, value: Any, info: ValidationInfo) -> Any:
        if value is _AS_INITIALIZER and "initializer_params" in info.data:
            return info.data["initializer_params"]
        if value is not None and value is not _AS_INITIALIZER:
            return value
        std = info.data.get("initializer_range", 0.02)
        if info.field_name == "output_layer_initializer_params":
            std *= (2 * info.data.get("num_hidden_layers", 1)) ** -0.5
        return {"name": "truncated_normal", "mean": 0.0, "std": std, "a": -2 * std, "b": 2 * std}

    @property
    def initializer(self) -> Initializer:
        """Of all matrices that have none of their own."""
        return self.initializer_params.initializer()

    @property
    def embedding_initializer(self) -> Initializer:
        """Of words and positions."""
        return self.embedding_initializer_params.initializer()

    @property
    def output_layer_initializer(self) -> Initializer:
        """Of the two layers per block that write to the residual stream."""
        return self.output_layer_initializer_params.initializer()


ModelParams = FcMnistParams | DecoderParams
MODELS: dict[str, type[FcMnistParams] | type[DecoderParams]] = {
    "fc_mnist": FcMnistParams,
    "gpt2": DecoderParams,
    "gpt3": DecoderParams,
}
OTHER_FAMILIES = frozenset(
    "bert bert/classifier bloom btlm dit dpo dpr esm2 falcon gemma2 gpt-neox gptj jais llama llama3 llava "
    "mistral mixtral mpt multimodal_simple roberta santacoder starcoder t5 transformer vision_transformer".split()
)
"""the vendor's families that are not built here"""
