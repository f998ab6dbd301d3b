"""Which weights learn faster or slower than the schedule says: muP's factors, and `adjust_learning_rate`."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from cstool.params.sections.decoder import DecoderParams
from cstool.params.sections.model import FcMnistParams

GROUPS: dict[str, tuple[str, ...]] = {
    "embedding": ("*embedding*weight",),
    "decoder_kernel": ("*decoder*dense*weight", "*decoder*linear*weight"),
    "decoder_attention": ("*decoder*attn*dense*weight",),
    "decoder_input_ffn": ("*decoder*ffn.ffn.[!1]*weight",),
    "decoder_output_ffn": ("*decoder*ffn.ffn.[1]*weight",),
}
"""the groups by name, and the names of their weights. Source: the vendor's GPT-2 model, 2.10."""


def learning_rate_scale(model: FcMnistParams | DecoderParams, adjusted: Mapping[str, float], weight: str) -> float:
    """Factor of the learning rate of a weight.

    Args:
        model: with muP's base sizes, matrices learn slower by how much wider than the base model their inputs are
            (Yang et al., "Tensor Programs V", 2022, table 8)
        adjusted: factors by group, in place of muP's
        weight: its name

    Returns:
        that of the first group, in the order of `GROUPS`, that has the weight and a factor other than 1
    """
    by_width, by_filter = model.mup_width_factors if isinstance(model, DecoderParams) else (1.0, 1.0)
    factors = {"decoder_attention": by_width, "decoder_input_ffn": by_width, "decoder_output_ffn": by_filter}
    factors.update(adjusted)
    for group, patterns in GROUPS.items():
        factor = factors.get(group, 1.0)
        if factor != 1.0 and any(fnmatchcase(weight, pattern) for pattern in patterns):
            return factor
    return 1.0
