"""The `model` section of BERT, RoBERTa, ESM-2, their heads and DPR: encoders, whose tokens see all of theirs.

Keys, defaults and rules are the vendor's. Source: its BERT and ESM-2 models, 2.10.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cstool.foundation.yaml_lines.section import Count, Positive, Rate, Whole, lower, rule_error
from cstool.model.params.paths import AliasedPath
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.decoder_parts import PositionScaling
from cstool.model.params.sections.fields import (
    METRICS,
    PRECISION_KEYS,
    AttentionModule,
    AttentionType,
    ByMup,
    HeadGroups,
    Layers,
    ModelSection,
    Nonlinearity,
    Vocabulary,
    as_key,
    as_rate,
    unset,
)
from cstool.model.params.sections.initializers import DefaultInitializer, RangeInitializer


class EncoderParams(AttentionRules):
    """Settings of all encoders."""

    vocab_size: Vocabulary = 30522
    max_position_embeddings: Count = 1024
    position_embedding_type: Literal["learned", "fixed", "rotary", "alibi"] | None = "learned"
    mask_padding_in_positional_embed: bool = False
    num_segments: Whole | None = 2
    embedding_layer_norm: bool = True
    num_hidden_layers: Layers = 12
    layer_norm_epsilon: Positive = 1e-5
    norm_first: bool = False
    use_final_layer_norm: bool = False
    num_heads: Count = 12
    hidden_size: Count = Field(768, validate_default=True)
    attention_type: AttentionType = "scaled_dot_product"
    attention_module: AttentionModule = "aiayn_attention"
    extra_attention_params: HeadGroups = unset()
    rotary_dim: Count | None = unset()
    rope_theta: Annotated[float, Field(gt=1)] = 10000.0
    pos_scaling_type: Annotated[Literal["linear", "yarn"], BeforeValidator(lower)] = "linear"
    pos_scaling_factor: Positive = 1.0
    pos_scaling_extra_args: PositionScaling = unset()
    filter_size: Count = 3072
    encoder_nonlinearity: Nonlinearity = "gelu"
    pooler_nonlinearity: Annotated[Nonlinearity, as_key("encoder_nonlinearity", "gelu")] = unset()
    dropout_rate: Rate = 0.1
    attention_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = unset()
    use_projection_bias_in_attention: bool = True
    use_ffn_bias_in_attention: bool = True
    use_ffn_bias: bool = True
    pad_token_id: Whole = 0
    mup_base_hidden_size: Positive | None = None
    mup_base_filter_size: Positive | None = unset()
    embeddings_scale: Positive = 1.0
    scale_qk_dot_by_d: ByMup = unset()
    attention_logits_alpha: Positive = 1.0
    output_logits_alpha: Positive = 1.0
    scale_output_logits_by_d: bool = True
    initializer_range: Positive = 0.02
    default_initializer: RangeInitializer = unset()
    embeddings_initializer: DefaultInitializer = unset()
    position_embeddings_initializer: DefaultInitializer = unset()
    segment_embeddings_initializer: DefaultInitializer = unset()

    stack = "encoder"
    null_counts = frozenset({"position_embedding_type"})
    other_names = {"embedding_pad_token_id": "pad_token_id"}
    without_effect = PRECISION_KEYS.union(
        "attention_kernel attention_softmax_fp32 compute_eval_metrics fold_rope_consts nonlinearity "
        "num_relative_attention_buckets".split()
    )
    supported = {
        "position_embedding_type": ("learned", "fixed", "rotary", "alibi", None),
        **dict.fromkeys("alibi_trainable_slopes freeze_ffn_bias_in_glu lr_adjustment_groups".split(), ()),
    }

    @property
    def norm_type(self) -> str:
        """Norms take the mean away, and have biases."""
        return "layernorm"

    @property
    def embedding_dropout(self) -> float:
        """Rate of the dropout of embedded tokens."""
        return self.dropout_rate

    @property
    def inner_dropout_rate(self) -> float:
        """Rate of the dropout within the feed-forward part."""
        return self.dropout_rate

    @property
    def segments(self) -> int:
        """Kinds of token in the table of segments; 0 for no such table.

        Two where nothing is said, if samples are two texts.
        """
        if self.num_segments is None:
            return 0 if getattr(self, "disable_nsp", True) else 2
        return self.num_segments

    @property
    def position_offset(self) -> int:
        """Row of the first position in the table of positions: before it come the rows of padding."""
        return self.pad_token_id + 1 if self.mask_padding_in_positional_embed else 0

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Factors of muP on the learning rate, by group of weights."""
        return {**super().rate_factors, "pooler": self.mup_width_factors[0]}

    @property
    def logits_scale(self) -> float:
        """Factor on the output logits. Source: Yang et al., "Tensor Programs V", 2022, table 8."""
        if self.mup_base_hidden_size is None:
            return 1.0
        shrink = self.mup_base_hidden_size / self.hidden_size
        return self.output_logits_alpha * (shrink if self.scale_output_logits_by_d else shrink**0.5)


class BertParams(EncoderParams):
    """BERT as it is pre-trained: masked tokens, and whether one text follows another unless `disable_nsp`."""

    name: Literal["bert"]
    vocab_size: Vocabulary = 50257
    share_embedding_weights: bool = True
    disable_nsp: bool = False
    num_segments: Whole | None = None
    mlm_nonlinearity: Annotated[Nonlinearity, as_key("encoder_nonlinearity", "gelu")] = unset()
    use_ffn_bias_in_mlm: bool = True
    use_output_bias_in_mlm: bool = True
    mlm_loss_weight: Positive = 1.0
    label_smoothing: Rate = 0.0

    loss_term = "masked token"
    without_effect = EncoderParams.without_effect | {"embedding_dropout_rate"}
    supported = {**EncoderParams.supported, "num_classes": (2,), "add_pooling_layer": (True, False)}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of evaluations."""
        pairs = () if self.disable_nsp else ("accuracy_cls",)
        return ("loss", "accuracy_masked_lm", "mlm_perplexity", *pairs)


class Esm2Params(BertParams):
    """ESM-2: BERT on proteins, norms first.

    With `token_dropout` masked tokens are embedded as zeros, and the others scaled up to make up for that.
    """

    name: Literal["esm2"]  # type: ignore[assignment]
    norm_first: bool = True
    token_dropout: bool = False
    mask_token_id: Whole | None = unset()

    @field_validator("mask_token_id")
    @classmethod
    def _dropout_knows_the_token(cls, token: int | None, info: ValidationInfo) -> int | None:
        if token is None and info.data.get("token_dropout"):
            raise rule_error("must be given for token_dropout")
        if token is not None and token >= (tokens := info.data.get("vocab_size", token + 1)):
            raise rule_error(f"must be below vocab_size ({tokens})")
        return token


class FineTunedParams(EncoderParams):
    """BERT with a head for one task."""

    embedding_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = unset()

    @property
    def embedding_dropout(self) -> float:
        """Rate of the dropout of embedded tokens."""
        return self.embedding_dropout_rate


class BertClassifierParams(FineTunedParams):
    """BERT that tells the class of a text."""

    name: Literal["bert/classifier"]
    num_labels: Count
    problem_type: Literal["single_label_classification"] | None = None
    task_dropout: Rate

    supported = {
        **EncoderParams.supported,
        "problem_type": ("single_label_classification", None),
        "add_pooling_layer": (True,),
    }

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of evaluations."""
        return (*METRICS, "f1_score") if self.num_labels == 2 else METRICS


class BertTokenClassifierParams(FineTunedParams):
    """BERT that tells the class of each token."""

    name: Literal["bert/token_classifier"]
    num_classes: Count
    encoder_output_dropout_rate: Rate
    dropout_rate: Rate = 0.0
    loss_weight: Positive = 1.0
    include_padding_in_loss: bool = False
    label_vocab_file: AliasedPath | None = None

    usual_metrics = (*METRICS, "f1_score")
    loss_term = "token"
    supported = {**EncoderParams.supported, "add_pooling_layer": (False,)}


class BertSummarizationParams(FineTunedParams):
    """BERT that tells which sentences of a text make a summary."""

    name: Literal["bert/extractive_summarization"]
    num_labels: Literal[2] = 2
    embedding_dropout_rate: Annotated[Rate, as_rate("dropout_rate")] = 0.1
    loss_weight: Positive = 1.0
    use_cls_bias: bool = True
    vocab_file: AliasedPath | None = None

    usual_metrics = (*METRICS, "rouge1", "rouge2")
    loss_term = "sentence"
    supported = {**EncoderParams.supported, "add_pooling_layer": (False,)}


class DprEncoderParams(EncoderParams):
    """One of the encoders of DPR. Keys that the vendor takes from elsewhere in the model have no effect here."""

    vocab_size: Vocabulary = 50257
    max_position_embeddings: Count
    disable_nsp: bool = False
    num_segments: Whole | None = None

    other_names = {}
    without_effect = EncoderParams.without_effect.union(
        "add_pooling_layer embedding_dropout_rate embedding_pad_token_id mlm_loss_weight mlm_nonlinearity name "
        "share_embedding_weights".split()
    )
    supported = {**EncoderParams.supported, **dict.fromkeys(("mup_base_hidden_size", "mup_base_filter_size"), ())}


class DprParams(ModelSection):
    """Dense passage retrieval: an encoder of questions and one of contexts, whose embeddings are to be alike.

    `encoder` is both, each with weights of its own unless `use_biencoder` is false.
    """

    name: Literal["dpr"]
    q_encoder: DprEncoderParams | None = None
    ctx_encoder: DprEncoderParams | None = None
    encoder: DprEncoderParams | None = None
    softmax_temperature: Positive = 1.0
    mutual_information: bool = False
    use_biencoder: bool = True
    pooler_type: Literal["mean", "cls", "ffn_pooler"] = "cls"

    without_effect = PRECISION_KEYS | {"compute_eval_metrics", "selected_encoder"}

    @model_validator(mode="after")
    def _has_encoders(self) -> Self:
        """Two encoders that make embeddings of one width, or one for both."""
        two = self.q_encoder is not None and self.ctx_encoder is not None
        if two == (self.encoder is not None) or (not two and (self.q_encoder or self.ctx_encoder)):
            raise rule_error("must have q_encoder and ctx_encoder, or encoder alone")
        if two and not self.use_biencoder:
            raise rule_error("must have encoder alone where use_biencoder is false")
        widths = self.questions.hidden_size, self.contexts.hidden_size
        if widths[0] != widths[1]:
            rule = "must have encoders of one hidden_size: of questions and contexts the product is taken"
            raise rule_error(f"{rule}, got {widths[0]} and {widths[1]}")
        return self

    @property
    def questions(self) -> DprEncoderParams:
        """The encoder of questions."""
        found = self.q_encoder or self.encoder
        assert found is not None
        return found

    @property
    def contexts(self) -> DprEncoderParams:
        """The encoder of contexts, which may be the same."""
        found = self.ctx_encoder or self.encoder
        assert found is not None
        return found

    @property
    def vocab_size(self) -> int:
        """Tokens that both encoders know."""
        return min(self.questions.vocab_size, self.contexts.vocab_size)

    @property
    def max_position_embeddings(self) -> int:
        """Tokens that both encoders take."""
        return min(self.questions.max_position_embeddings, self.contexts.max_position_embeddings)

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data; a null of position_embedding_type is a value."""
        encoders = {name: getattr(self, name) for name in ("q_encoder", "ctx_encoder", "encoder")}
        return {**super().dump(), **{name: found.dump() for name, found in encoders.items() if found is not None}}
