"""The `model` section: fc_mnist, GPT-J and its kin here, others in modules of their own; a table of all by name."""

from typing import Annotated, Any, Literal, get_args

from cstool.foundation.yaml_lines.section import Count, List, Rate
from cstool.model.params.sections.classifier import DecoderClassifierParams
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.encoder import (
    BertClassifierParams,
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    DprParams,
    EncoderParams,
    Esm2Params,
)
from cstool.model.params.sections.encoder_decoder import EncoderDecoderParams
from cstool.model.params.sections.fields import PRECISION_KEYS, Layers, ModelSection, as_rate
from cstool.model.params.sections.initializers import truncated_normal
from cstool.model.params.sections.preference import DpoParams
from cstool.model.params.sections.vision import VisionTransformerParams


class ParallelDecoderParams(DecoderParams):
    """A decoder whose feed-forward part reads the same tokens as attention, through the same norm or one of its own."""

    name: Literal["gptj", "gpt-neox", "falcon"]  # type: ignore[assignment]
    position_embedding_type: Literal["learned", "fixed", "relative", "rotary", "alibi"] | None = "rotary"
    apply_attention_sinks: bool = True
    attention_dropout_rate: Annotated[Rate, as_rate("residual_dropout_rate")] = 0.1
    embedding_dropout_rate: Rate = 0.1
    use_ffn_bias: bool = False
    use_untied_layer_norm: bool = False
    scale_qk_dot_by_d: bool = False

    supported = {
        key: value for key, value in DecoderParams.supported.items() if key != "use_untied_layer_norm"
    } | dict.fromkeys(
        (
            "norm_first_sandwich",
            "attention_chunk_size",
            "attention_vertical_column_spacing",
            "attention_vertical_column_width",
            "fixed_sparse_attention",
            "attention_qk_norm_layer",
        ),
        (),
    )

    @classmethod
    def _default_initializer(cls, field: str, _as_initializer: bool, given: dict[str, Any]) -> Any:
        if field in ("ffn_initializer_params", "ffn_output_layer_initializer_params"):
            return given.get("output_layer_initializer_params", truncated_normal(0.02))
        return truncated_normal(given.get("initializer_range", 0.02))

    @property
    def is_parallel(self) -> bool:
        """Whether the feed-forward part reads the same input as attention."""
        return True

    @property
    def norms_per_layer(self) -> int:
        """Norms before the parts of a layer: parallel parts may share one."""
        return 2 if self.use_untied_layer_norm else 1


class FcMnistParams(ModelSection):
    """A fully connected network for 28 x 28 digits: `hidden_sizes`, or `depth` layers of `hidden_size`."""

    name: Literal["fc_mnist"]
    depth: Layers = 1
    hidden_size: Count = 128
    hidden_sizes: Annotated[tuple[Count, ...] | None, List] = None
    activation_fn: Literal["relu", "gelu"] = "relu"
    dropout: Rate = 0.0
    use_bias: bool = True

    without_effect = PRECISION_KEYS | {"compute_eval_metrics"}
    supported = {"activation_fn": ("relu", "gelu"), "disable_softmax": ()}

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return (self.hidden_size,) * self.depth if self.hidden_sizes is None else self.hidden_sizes


ImageModelParams = FcMnistParams | VisionTransformerParams
"""models that tell the class of an image"""
ModelParams = ImageModelParams | DecoderParams | EncoderParams | EncoderDecoderParams | DpoParams | DprParams

_SECTIONS: tuple[type[ModelParams], ...] = (
    FcMnistParams,
    DecoderParams,
    ParallelDecoderParams,
    DecoderClassifierParams,
    BertParams,
    Esm2Params,
    BertClassifierParams,
    BertTokenClassifierParams,
    BertSummarizationParams,
    EncoderDecoderParams,
    VisionTransformerParams,
    DpoParams,
    DprParams,
)
MODELS: dict[str, type[ModelParams]] = {
    name: section for section in _SECTIONS for name in get_args(section.model_fields["name"].annotation)
}


def model_of(section: Any) -> ModelParams:
    """Return the model of a section of plain data, or raise LookupError, TypeError or pydantic's ValidationError.

    A model inside of DPO has a section of its own by its name.
    """
    if section["name"] in get_args(DpoParams.model_fields["name"].annotation):
        section = {**section, "policy_model": model_of(section["policy_model"])}
    return MODELS[section["name"]].model_validate(section)


_OTHER_KINDS = {
    "a diffusion model of images": "dit",
    "a model of images that learns without labels, from a teacher": "dino generic_image_encoders ijepa",
    "a vision model with convolutions": "resnet unet",
    "a vision transformer without a head to train": "vit ViTModel",
    "a vision and language model": "llava multimodal_simple mllama",
    "a speech model": "conformer rnnt wav2vec2 whisper",
}
OTHER_FAMILIES = {name: kind for kind, names in _OTHER_KINDS.items() for name in names.split()}
"""models that are not built here -> their kind"""
