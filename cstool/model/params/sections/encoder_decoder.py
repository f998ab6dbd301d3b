"""The `model` section of T5 and the Transformer: an encoder, and a decoder whose layers read the encoder's output.

Keys, defaults and rules are the vendor's. Source: its T5 and Transformer models, 2.10. Where its model does something
else than its keys say, this does as the model does: `relu_dropout_rate` is of the encoder alone, and the decoder has
the nonlinearity of the encoder.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from cstool.foundation.yaml_lines.section import Count, Positive, Rate, Whole, beside, filled, rule_error
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.fields import (
    PRECISION_KEYS,
    AttentionModule,
    HeadGroups,
    Layers,
    NormType,
    Vocabulary,
    as_key,
    as_rate,
    unset,
)

_Nonlinearity = Literal["relu", "gelu", "reglu", "geglu", "swiglu", "geglu_new"]
"""the vendor's, and the gate of T5 1.1 as released, whose gelu is the form with tanh"""
_Alias = BeforeValidator(lambda name: "t5" if name == "T5ForConditionalGeneration" else name)

_as_encoder = beside(
    "encoder_nonlinearity",
    lambda own, encoder: own == encoder,
    "must be the encoder_nonlinearity ({}), which the vendor's decoder has, too",
    "leave it out",
)
_without_mup = beside(
    "use_transformer_initialization",
    lambda base, is_transformer: not (base and is_transformer),
    "cannot stand beside use_transformer_initialization",
)
_default_by_mup = filled(lambda data: any(data.get(f"mup_base_{name}") for name in ("hidden_size", "filter_size")))
_of_positions = "must be given for position_embedding_type {}"


class EncoderDecoderParams(AttentionRules):
    """T5, and with other settings the Transformer."""

    name: Annotated[Literal["t5", "T5ForConditionalGeneration", "transformer"], _Alias]
    src_vocab_size: Vocabulary = 32128
    tgt_vocab_size: Annotated[Vocabulary, as_key("src_vocab_size", 32128)] = unset()
    extra_ids: Whole = 0
    hidden_size: Count = Field(512, alias="d_model")
    d_kv: Count = 64
    filter_size: Count = Field(2048, alias="d_ff")
    encoder_num_hidden_layers: Layers = 6
    decoder_num_hidden_layers: Annotated[Layers, as_key("encoder_num_hidden_layers", 6)] = unset()
    num_heads: Count = 8
    relative_attention_num_buckets: Annotated[int, Field(ge=4, le=254, multiple_of=2)] = 32
    norm_type: NormType = "rmsnorm"
    layer_norm_epsilon: Positive = 1e-5
    dropout_rate: Rate = 0.1
    relu_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = unset()
    encoder_nonlinearity: _Nonlinearity = "relu"
    decoder_nonlinearity: Annotated[_Nonlinearity, as_key("encoder_nonlinearity", "relu"), _as_encoder] = unset()
    use_projection_bias_in_attention: bool = False
    use_ffn_bias: bool = False
    position_embedding_type: Literal["relative", "learned_absolute", "fixed", "alibi"] | None = "relative"
    src_max_position_embeddings: Count | None = unset()
    tgt_max_position_embeddings: Count | None = unset()
    use_dropout_outside_residual_path: bool = True
    use_pre_encoder_decoder_dropout: bool = False
    use_pre_encoder_decoder_layer_norm: bool = True
    share_encoder_decoder_embedding: bool = Field(True, validate_default=True)
    share_embedding_weights: bool = True
    attention_module: AttentionModule = "aiayn_attention"
    extra_attention_params: HeadGroups = unset()
    initializer_factor: Positive = 1.0
    use_transformer_initialization: bool = False
    mup_base_hidden_size: Annotated[Count | None, _without_mup] = Field(None, alias="mup_base_d_model")
    mup_base_filter_size: Annotated[Count | None, _without_mup] = unset(alias="mup_base_d_ff")
    mup_base_d_kv: Count | None = None
    embeddings_alpha: Positive = 1.0
    encoder_attention_logits_alpha: Positive = 1.0
    decoder_attention_logits_alpha: Positive = 1.0
    scale_encoder_qk_dot_by_d: Annotated[bool, _default_by_mup] = unset()
    scale_decoder_qk_dot_by_d: Annotated[bool, _default_by_mup] = unset()
    scale_output_logits_by_d: bool = False
    output_logits_alpha: Positive | None = None
    mlm_loss_scaling: Literal["num_masked", "precomputed_num_masked", "batch_size"] = "batch_size"
    lm_loss_weight: Positive = 1.0
    label_smoothing: Rate = 0.0
    decoder_start_token_id: Whole | None = None

    usual_metrics = ("loss", "accuracy_lm", "perplexity_lm")
    loss_term = "token"
    makes_text = True
    null_counts = frozenset({"position_embedding_type"})
    without_effect = PRECISION_KEYS.union(
        "attention_kernel attention_softmax_fp32 compute_eval_metrics pad_token_id".split()
    )
    supported = {
        "position_embedding_type": ("relative", "learned_absolute", "fixed", "alibi", None),
        "norm_type": ("layernorm", "biasless-layernorm", "rmsnorm"),
        **dict.fromkeys("lr_adjustment_groups tie_encoder_decoder use_cache".split(), ()),
    }

    @field_validator("hidden_size")
    @classmethod
    def _heads_divide_width(cls, width: int | None, info: ValidationInfo) -> int | None:  # noqa: ARG003
        """Let a width be any: a head's width is `d_kv`."""
        return width

    @field_validator("mup_base_filter_size")
    @classmethod
    def _mup_has_both_sizes(cls, base: float | None, info: ValidationInfo) -> float | None:
        if "mup_base_hidden_size" in info.data and (base is None) != (info.data["mup_base_hidden_size"] is None):
            raise rule_error("must be given together with mup_base_d_model")
        return base

    @field_validator("mup_base_d_kv")
    @classmethod
    def _mup_of_heads_has_the_others(cls, base: int | None, info: ValidationInfo) -> int | None:
        if base is not None and info.data.get("mup_base_hidden_size", base) is None:
            raise rule_error("needs mup_base_d_model and mup_base_d_ff")
        return base

    @field_validator("src_max_position_embeddings", "tgt_max_position_embeddings")
    @classmethod
    def _positions_are_given(cls, positions: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("position_embedding_type")
        if positions is None and kind in ("learned_absolute", "fixed"):
            raise rule_error(_of_positions.format(kind))
        return positions

    @field_validator("share_encoder_decoder_embedding")
    @classmethod
    def _shared_vocabularies_are_alike(cls, is_shared: bool, info: ValidationInfo) -> bool:
        sizes = [info.data.get(f"{side}_vocab_size") for side in ("src", "tgt")]
        if is_shared and None not in sizes and sizes[0] != sizes[1]:
            rule = f"must be false where src_vocab_size ({sizes[0]}) and tgt_vocab_size ({sizes[1]}) differ"
            raise rule_error(rule)
        return is_shared

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Tokens that the encoder and the decoder know, extra ids included."""
        return self.src_vocab_size + self.extra_ids, self.tgt_vocab_size + self.extra_ids

    @property
    def vocab_size(self) -> int:
        """Upper bound (exclusive) of token ids in its data, on either side."""
        return min(self.vocab_sizes)

    @property
    def positions(self) -> tuple[int | None, int | None]:
        """Tokens of a sample that encoder and decoder are made for, as far as the file says it."""
        return self.src_max_position_embeddings, self.tgt_max_position_embeddings

    @property
    def most_tokens(self) -> tuple[int | None, int | None]:
        """Tokens of a sample that encoder and decoder can take; None where positions set no limit."""
        if self.position_embedding_type in ("learned_absolute", "fixed"):
            return self.positions
        return None, None

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.d_kv * self.num_heads

    @property
    def is_mup(self) -> bool:
        """Whether muP scales rates, initializers and logits."""
        return self.mup_base_hidden_size is not None

    @property
    def width_factor(self) -> float:
        """Width of the residual stream over the width of muP's base model; 1 without muP."""
        return 1.0 if self.mup_base_hidden_size is None else self.hidden_size / self.mup_base_hidden_size

    @property
    def has_ffn_bias(self) -> bool:
        """Whether feed-forward layers have biases: with gelu none, even if the key asks for them, as at the vendor."""
        return self.use_ffn_bias and self.encoder_nonlinearity != "gelu"

    @property
    def embeddings_scale(self) -> float:
        """Factor on embedded tokens."""
        return self.embeddings_alpha * (self.hidden_size**0.5 if self.is_mup else 1.0)

    def scale_of_stack(self, stack: str) -> float:
        """Factor of the products of queries and keys in the `encoder` or the `decoder`.

        Plain T5 leaves them as they are, its initializer of queries being narrower. With muP and without
        `mup_base_d_kv` the vendor shrinks queries and keys by the root of the width factor; it shrinks
        values by as much, and multiplies the output of heads by it, which cancels out.
        """
        scale: float = getattr(self, f"{stack}_attention_logits_alpha")
        if self.is_mup or self.use_transformer_initialization:
            scale *= self.d_kv ** (-1.0 if getattr(self, f"scale_{stack}_qk_dot_by_d") else -0.5)
        if self.is_mup and self.mup_base_d_kv is None:
            scale /= self.width_factor
        return scale

    @property
    def logits_scale(self) -> float:
        """Factor on output logits: for tied ones 1 / sqrt(d_model), with muP by its rule.

        Source: Raffel et al., 2020, as released; the vendor's T5 model, 2.10, for muP.
        """
        if self.is_mup:
            power = 1.0 if self.scale_output_logits_by_d else 0.5
            shrink: float = self.width_factor**-power
            return (self.output_logits_alpha or 1.0) * shrink
        return self.hidden_size**-0.5 if self.share_embedding_weights else 1.0

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Factors of muP on the learning rate, by group of weights."""
        if self.mup_base_filter_size is None:
            return {}
        by_width, by_root = 1 / self.width_factor, self.width_factor**-0.5
        base = self.mup_base_d_kv
        factors = {
            "qkv_projection": by_root if base is None else by_width,
            "output_projection": by_root if base is None else base / self.d_kv,
            "input_ffn": by_width,
            "output_ffn": self.mup_base_filter_size / self.filter_size,
        }
        of_stacks = {f"{stack}_{part}": by for stack in ("decoder", "encoder") for part, by in factors.items()}
        return {"embedding": by_root, **of_stacks, "lm_head": by_root}
