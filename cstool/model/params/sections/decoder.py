"""The `model` section of GPT-2 and its kin: decoders whose feed-forward part follows attention.

Keys, defaults and rules are the vendor's. Source: its GPT-2 model, 2.10.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cstool.foundation.yaml_lines.section import (
    Count,
    NotNegative,
    Positive,
    Rate,
    Whole,
    beside,
    lower,
    not_beside,
    rule_error,
)
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.decoder_parts import (
    SUPPORTED,
    WITHOUT_EFFECT,
    FixedSparseParams,
    MoeParams,
    PositionScaling,
)
from cstool.model.params.sections.fields import (
    METRICS,
    AttentionModule,
    AttentionType,
    ByMup,
    HeadGroups,
    Layers,
    Nonlinearity,
    NormType,
    Vocabulary,
    as_rate,
    unset,
)
from cstool.model.params.sections.initializers import SCALABLE, InitializerParams, truncated_normal

_NEEDS_A_WINDOW = beside(
    "attention_sliding_window_length",
    lambda value, window: not value or window is not None,
    "needs attention_sliding_window_length",
)
_NEEDS_EVERY_OTHER_LAYER = beside(
    "sliding_window_every_other_decoder_layer",
    lambda pattern, every_other: pattern == "full_attention_first" or every_other,
    "needs sliding_window_every_other_decoder_layer",
)

_NO_CHUNKS = not_beside("attention_sliding_window_length", hint="keep one of the two")
_IS_A_PATTERN = ("attention_chunk_size", "attention_vertical_column_spacing", "attention_vertical_column_width")
"""keys of attention that the vendor reads in vain: see `apply_attention_pattern`"""
_LEFT_OUT = (
    *(f"apply_attention_{what}" for what in ("sinks", "pattern", "qk_norm")),
    *("attention_qk_norm_eps", "num_relative_attention_buckets", "alibi_trainable_slopes"),
)
"""keys that are not shown where they have their default"""
MAX_RELATIVE_DISTANCE = 128
"""from which on all distances are in the last bucket. Source: the vendor's relative positions, 2.10."""

_OF_LAYERS = (
    "initializer_params",
    *(f"{name}_initializer_params" for name in ("output_layer", "ffn", "ffn_output_layer")),
)
"""the initializers that muP makes narrower"""
_AS_INITIALIZER = object()
"""stands for an output_layer_initializer that is not given, beside an initializer that is"""


class DecoderParams(AttentionRules):
    """A decoder in which the feed-forward part follows attention.

    `attention_sink_tokens` acts where `apply_attention_sinks` says so, by default as at the vendor: in its release 2.10
    the class of these decoders reads the key in vain, the class of the parallel ones does not.

    So it is with chunks and columns (`apply_attention_pattern`), and with norms of queries and keys
    (`apply_attention_qk_norm`): the release reads their keys and computes without.

    Initializers left out are filled in: truncated normals of width `initializer_range`, for the layers that write to
    the residual stream divided by sqrt(2 num_hidden_layers) unless `initializer` is given, which then is for them too.

    `max_tokens`, `temperature`, `top_k` and `top_p` are for inference: length of the text, and choice of tokens.
    """

    name: Literal[
        "gpt2",
        "gpt3",
        "llama",
        "LlamaModel",
        "mistral",
        "mixtral",
        "bloom",
        "btlm",
        "jais",
        "starcoder",
        "santacoder",
        "gemma2",
    ]
    vocab_size: Vocabulary = 50257
    max_position_embeddings: Count = 1024
    share_embedding_weights: bool = True
    embedding_layer_norm: bool = False
    num_hidden_layers: Layers = 12
    norm_type: NormType = "layernorm"
    layer_norm_epsilon: Positive = 1e-5
    norm_first_sandwich: bool = False
    num_heads: Count = 12
    hidden_size: Count = Field(768, validate_default=True)
    attention_inner_dim: Count | None = None
    attention_type: AttentionType = "scaled_dot_product"
    attention_module: AttentionModule = "aiayn_attention"
    extra_attention_params: HeadGroups = unset()
    attention_sliding_window_length: Count | None = None
    sliding_window_every_other_decoder_layer: Annotated[bool, _NEEDS_A_WINDOW] = False
    sliding_window_every_other_decoder_layer_pattern: Annotated[
        Literal["full_attention_first", "sliding_window_first"], _NEEDS_EVERY_OTHER_LAYER
    ] = "full_attention_first"
    attention_sink_tokens: Annotated[Whole | None, _NEEDS_A_WINDOW] = None
    apply_attention_sinks: bool = False
    attention_chunk_size: Annotated[Count | None, _NO_CHUNKS] = None
    attention_vertical_column_spacing: Count | None = None
    attention_vertical_column_width: Count | None = unset()
    apply_attention_pattern: bool = False
    fixed_sparse_attention: Annotated[
        FixedSparseParams | None,
        *(not_beside(key) for key in (*_IS_A_PATTERN[:2], "sliding_window_every_other_decoder_layer")),
        beside(
            "apply_attention_pattern",
            lambda _, applied: applied,
            "needs apply_attention_pattern: true",
            "the vendor adds 1 to the scores of keys that it is to hide, and of later ones: that cannot be had",
        ),
    ] = None
    attention_qk_norm_layer: Literal["rmsnorm"] | None = None
    attention_qk_norm_eps: Positive = 1e-5
    apply_attention_qk_norm: bool = False
    attention_logit_softcapping: Positive | None = None
    position_embedding_type: Literal["learned", "fixed", "relative", "rotary", "alibi"] | None = "learned"
    num_relative_attention_buckets: Annotated[int, Field(ge=2, lt=2 * MAX_RELATIVE_DISTANCE)] = 32
    alibi_trainable_slopes: Annotated[
        bool,
        beside(
            "position_embedding_type",
            lambda trains, kind: not trains or kind == "alibi",
            "needs position_embedding_type alibi, and that is {}",
        ),
    ] = False
    rotary_dim: Count | None = unset()
    rope_theta: Annotated[float, Field(gt=1)] = 10000.0
    pos_scaling_type: Annotated[Literal["linear", "llama3", "yarn", "longrope"], BeforeValidator(lower)] = "linear"
    pos_scaling_factor: Positive = 1.0
    pos_scaling_extra_args: PositionScaling = unset()
    filter_size: Count = 3072
    nonlinearity: Nonlinearity = "gelu"
    dropout_rate: Rate = 0.1
    residual_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = unset()
    attention_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = 0.1
    embedding_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = unset()
    use_projection_bias_in_attention: bool = True
    use_ffn_bias_in_attention: bool = True
    use_ffn_bias: bool = True
    use_bias_in_output: bool = False
    loss_scaling: Literal["num_tokens", "batch_size"] = "num_tokens"
    loss_weight: Positive = 1.0
    mup_base_hidden_size: Positive | None = None
    mup_base_filter_size: Positive | None = unset()
    embeddings_scale: Positive = 1.0
    scale_qk_dot_by_d: ByMup = unset()
    scale_qk_dot_by_layer_idx: bool = False
    attention_logits_alpha: Positive = 1.0
    scale_output_logits_by_d: bool = True
    output_logits_alpha: Positive | None = None
    output_logits_scale: Annotated[
        Positive | None, not_beside("mup_base_hidden_size", ", from which it follows", "leave it out")
    ] = None
    final_logit_softcapping: Positive | None = None
    initializer_range: Positive = 0.02
    initializer_params: InitializerParams = unset(alias="initializer")
    embedding_initializer_params: InitializerParams = unset(alias="embedding_initializer")
    output_layer_initializer_params: InitializerParams = unset(alias="output_layer_initializer")
    ffn_initializer_params: InitializerParams = unset(alias="ffn_initializer")
    ffn_output_layer_initializer_params: InitializerParams = unset(alias="ffn_output_layer_initializer")
    max_tokens: Count | None = None
    temperature: NotNegative | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    moe: MoeParams = MoeParams.model_validate({})

    makes_text = True
    usual_metrics: ClassVar[tuple[str, ...]] = (*METRICS, "lm_perplexity")
    loss_term = "token"
    other_names = {"moe_params": "moe", "scale_by_layer_index": "scale_qk_dot_by_layer_idx"}
    null_counts = frozenset({"attention_dropout_rate", "position_embedding_type"})
    without_effect = WITHOUT_EFFECT
    supported = SUPPORTED

    @field_validator("attention_vertical_column_width")
    @classmethod
    def _columns_fit_their_spacing(cls, width: int | None, info: ValidationInfo) -> int | None:
        spacing = info.data.get("attention_vertical_column_spacing")
        if "attention_vertical_column_spacing" in info.data and (width is None) != (spacing is None):
            raise rule_error("must be given together with attention_vertical_column_spacing")
        if width is not None and spacing is not None and width > spacing:
            raise rule_error(f"must be at most attention_vertical_column_spacing ({spacing})")
        return width

    @model_validator(mode="before")
    @classmethod
    def _one_initializer_is_for_all(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("initializer") is None or data.get("mup_base_hidden_size"):
            return data
        rest = {key: value for key, value in data.items() if not (key.endswith("initializer") and value is None)}
        return {"output_layer_initializer": _AS_INITIALIZER, **rest}

    @field_validator("embedding_initializer_params", *_OF_LAYERS, mode="before")
    @classmethod
    def _fill_initializer(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if value is not None and value is not _AS_INITIALIZER:
            return value
        return cls._default_initializer(str(info.field_name), value is _AS_INITIALIZER, info.data)

    @field_validator(*_OF_LAYERS)
    @classmethod
    def _mup_can_scale_it(cls, initializer: InitializerParams, info: ValidationInfo) -> InitializerParams:
        if info.data.get("mup_base_hidden_size") is not None and initializer.name not in SCALABLE:
            raise rule_error(f"must be {' or '.join(SCALABLE)}, which muP can make narrower, not {initializer.name}")
        return initializer

    @classmethod
    def _default_initializer(cls, field: str, as_initializer: bool, given: dict[str, Any]) -> Any:
        std = given.get("initializer_range", 0.02)
        if as_initializer or field == "ffn_initializer_params":
            return given.get("initializer_params", truncated_normal(std))
        if given.get("mup_base_hidden_size") is None:
            if field == "output_layer_initializer_params":
                return truncated_normal(std * (2 * given.get("num_hidden_layers", 1)) ** -0.5)
            if field == "ffn_output_layer_initializer_params":
                output = given.get("output_layer_initializer_params", truncated_normal(std))
                same = output is given.get("initializer_params")
                return given.get("ffn_initializer_params", output) if same else output
        return truncated_normal(std)

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data, the vendor's defaults filled in.

        A null of position_embedding_type is a value. Keys that only cstool knows, or one class of the vendor's, are
        left out where their effect is as at the vendor.
        """
        data = {**super().dump(), "position_embedding_type": self.position_embedding_type}
        if not self.moe.is_mixture:
            del data["moe"]
        for key in _LEFT_OUT:
            if getattr(self, key) == type(self).model_fields[key].default:
                del data[key]
        return data

    @property
    def balances(self) -> bool:
        """Whether there is a loss that balances experts."""
        return self.moe.is_mixture and self.moe.load_balancing_loss_coef > 0

    @property
    def gate_initializer_params(self) -> InitializerParams:
        """How the matrix of a router begins."""
        return self.moe.gate_initializer or self.initializer_params

    @property
    def is_parallel(self) -> bool:
        """Whether the feed-forward part reads the same input as attention."""
        return False

    @property
    def norms_per_layer(self) -> int:
        """Norms before the parts of a layer: parallel parts may share one."""
        return 2

    @property
    def sinks(self) -> int:
        """Number of first tokens that all attend to, even outside of the window."""
        return (self.attention_sink_tokens or 0) if self.apply_attention_sinks else 0

    @property
    def qk_norm_epsilon(self) -> float | None:
        """Epsilon added to mean squares where heads of queries and keys are normalised; None where they are not."""
        has_norms = self.apply_attention_qk_norm and self.attention_qk_norm_layer is not None
        return self.attention_qk_norm_eps if has_norms else None

    @property
    def trains_biases(self) -> bool:
        """Whether terms that are added to scores are weights, which all layers share."""
        return self.position_embedding_type == "relative" or self.alibi_trainable_slopes

    @property
    def switches(self) -> tuple[str, ...]:
        """The keys that say whether others count, as far as these are given."""
        given = {
            "apply_attention_sinks": bool(self.attention_sink_tokens),
            "apply_attention_pattern": any(getattr(self, key) is not None for key in _IS_A_PATTERN),
            "apply_attention_qk_norm": self.attention_qk_norm_layer is not None,
        }
        return tuple(switch for switch, is_given in given.items() if is_given)

    @property
    def inert_keys(self) -> Mapping[str, str]:
        """Keys that are given and change nothing, as at the vendor -> the key with which they do."""
        inert: dict[str, str] = {}
        if self.attention_sink_tokens and not self.sinks:
            inert["attention_sink_tokens"] = "apply_attention_sinks"
        if not self.apply_attention_pattern:
            inert |= {key: "apply_attention_pattern" for key in _IS_A_PATTERN if getattr(self, key) is not None}
        if self.attention_qk_norm_layer is not None and not self.apply_attention_qk_norm:
            inert["attention_qk_norm_layer"] = "apply_attention_qk_norm"
        return inert

    @property
    def layers_alternate(self) -> bool:
        """Whether every other layer sees other keys."""
        return self.sliding_window_every_other_decoder_layer or self.fixed_sparse_attention is not None

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.hidden_size if self.attention_inner_dim is None else self.attention_inner_dim

    def window(self, layer: int) -> int | None:
        """Tokens that a token of a layer sees, itself included; None for all before it."""
        if self.sliding_window_every_other_decoder_layer:
            first = self.sliding_window_every_other_decoder_layer_pattern == "sliding_window_first"
            if (layer % 2 == 0) != first:
                return None
        return None if self._is_sparse(layer) else self.attention_sliding_window_length

    def chunk(self, layer: int) -> int | None:
        """Tokens of a chunk, of which none sees another chunk's; None for one chunk."""
        if (sparse := self.fixed_sparse_attention) is not None:
            return sparse.local_attn_ctx if self._is_sparse(layer) else None
        return self.attention_chunk_size if self.apply_attention_pattern else None

    def columns(self, layer: int) -> tuple[int, int] | None:
        """Spacing and width of the columns that a layer sees from wherever; None where it sees all, or has none."""
        if (sparse := self.fixed_sparse_attention) is not None:
            return (sparse.local_attn_ctx, sparse.vert_size) if self._is_sparse(layer) else None
        spacing, width = self.attention_vertical_column_spacing, self.attention_vertical_column_width
        sees_all = self.window(layer) is None and self.chunk(layer) is None
        if not self.apply_attention_pattern or spacing is None or width is None or sees_all:
            return None
        return spacing, width

    @property
    def sees_by_place(self) -> bool:
        """Whether the place of a token in its sample decides which tokens it sees, or is seen by."""
        layers = range(min(2, self.num_hidden_layers))
        return any(self.chunk(n) or self.columns(n) or (self.sinks and self.window(n)) for n in layers)

    def _is_sparse(self, layer: int) -> bool:
        """Whether a layer has fixed sparse attention: every other one, and not the first."""
        return self.fixed_sparse_attention is not None and layer % 2 == 1

    def attention_scale(self, layer: int) -> float:
        """Factor of the products of queries and keys."""
        scale = super().attention_scale(layer)
        return scale / (layer + 1) if self.scale_qk_dot_by_layer_idx else scale

    @property
    def logits_scale(self) -> float:
        """Factor on the output logits.

        Source: Yang et al., "Tensor Programs V", 2022, table 8; with `scale_output_logits_by_d` off, its square root.
        """
        if self.mup_base_hidden_size is None:
            return self.output_logits_scale or 1.0
        shrink = self.mup_base_hidden_size / self.hidden_size
        return (self.output_logits_alpha or 1.0) * (shrink if self.scale_output_logits_by_d else shrink**0.5)
