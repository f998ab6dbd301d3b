"""How the matrices of a decoder begin."""

from cstool.ir import Initializer
from cstool.params import DecoderParams


def matrix_initializer(model: DecoderParams, layer: str, rows: int, columns: int) -> Initializer:
    """Return how a matrix begins: as the params say, and with muP narrower, the wider it is.

    Source: the vendor's GPT-2 model, 2.10.

    Args:
        model: the checked model section
        layer: `embedding`, `attention`, `attention_output`, `ffn`, `ffn_output` or (untied) `lm_head`
        rows, columns: of the matrix
    """
    if layer == "lm_head":
        return Initializer("normal", 0.0, model.initializer_range)
    by_width, by_filter = (factor**0.5 for factor in model.mup_width_factors)
    by_depth = 1.0 if model.mup_base_hidden_size is None else (2 * model.num_hidden_layers) ** -0.5
    params, factor = {
        "embedding": (model.embedding_initializer_params, 1.0),
        "attention": (model.initializer_params, by_width),
        "attention_output": (model.output_layer_initializer_params, by_width * by_depth),
        "ffn": (model.ffn_initializer_params, by_width),
        "ffn_output": (model.ffn_output_layer_initializer_params, by_filter * by_depth),
    }[layer]
    return params.scaled(factor).initializer(columns, rows)
