"""The `model` section of GPT-J and its kin, whose attention and feed-forward part stand side by side."""

from typing import Any, ClassVar, Literal

from cstool.params.sections.decoder import DecoderParams, truncated_normal
from cstool.yaml_lines.section import Rate


class ParallelDecoderParams(DecoderParams):
    """A decoder whose feed-forward part reads the same tokens as attention, through the same norm or one of its own."""

    name: Literal["gptj", "gpt-neox", "falcon"]  # type: ignore[assignment]
    position_embedding_type: Literal["learned", "fixed", "rotary", "alibi"] | None = "rotary"
    apply_attention_sinks: bool = True
    embedding_dropout_rate: Rate = 0.1
    use_ffn_bias: bool = False
    use_untied_layer_norm: bool = False
    scale_qk_dot_by_d: bool = False

    _dropout_source: ClassVar[str] = "residual_dropout_rate"
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {
        key: value for key, value in DecoderParams.supported.items() if key != "use_untied_layer_norm"
    } | {"norm_first_sandwich": ()}

    @classmethod
    def _default_initializer(cls, field: str, _as_initializer: bool, given: dict[str, Any]) -> Any:
        if field in ("ffn_initializer_params", "ffn_output_layer_initializer_params"):
            return given.get("output_layer_initializer_params", truncated_normal(0.02))
        return truncated_normal(given.get("initializer_range", 0.02))

    @property
    def is_parallel(self) -> bool:
        """Whether the feed-forward part reads what attention reads."""
        return True

    @property
    def norms_per_layer(self) -> int:
        """Norms before the parts of a layer: parallel parts may share one."""
        return 2 if self.use_untied_layer_norm else 1
