"""The `model` section of a decoder that tells the class of a text.

Source: the classes ...ForSequenceClassification of Hugging Face's transformers, 4.57; the vendor has none.
"""

from typing import Any, ClassVar, Literal

from cstool.foundation.yaml_lines.section import Count, Whole
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.fields import METRICS

OF_TOKENS = (
    "share_embedding_weights use_bias_in_output loss_scaling loss_weight final_logit_softcapping output_logits_alpha "
    "output_logits_scale scale_output_logits_by_d max_tokens temperature top_k top_p moe"
).split()
"""keys of a decoder's output layer, of its texts and of its experts, which a classifier has not"""


class DecoderClassifierParams(DecoderParams):
    """A decoder that tells the class of a text: a linear layer without bias reads the last token that is no padding.

    `pad_token_id` is for Hugging Face's library, which finds the last token by it; here the mask of a sample does.
    """

    name: Literal["gpt2/classifier", "llama/classifier", "mistral/classifier", "gemma2/classifier"]  # type: ignore[assignment]
    num_labels: Count
    pad_token_id: Whole | None = None

    makes_text = False
    usual_metrics: ClassVar[tuple[str, ...]] = METRICS
    loss_term = "sample"
    supported = {**DecoderParams.supported, **dict.fromkeys(OF_TOKENS, ())}

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data, defaults filled in, without the keys that have no effect."""
        return {key: value for key, value in super().dump().items() if key not in OF_TOKENS}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of evaluations."""
        return (*METRICS, "f1_score") if self.num_labels == 2 else METRICS
