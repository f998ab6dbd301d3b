"""A layer of an encoder: of text, or of the patches of an image."""

from functools import partial

from cstool.model.graphs.decoder import add_projections, alibi_slopes
from cstool.model.graphs.parts import Parts
from cstool.model.params import EncoderParams, VisionTransformerParams

LayerParams = EncoderParams | VisionTransformerParams


def add_encoder_layer(parts: Parts, model: LayerParams, prefix: str, seen: tuple[str, ...]) -> None:
    """Add the layer from residual.{n} to the next, norms before its parts or after them.

    Args:
        seen: inputs that say which tokens see each other; none where all do
    """
    layer = f"{prefix}transformer_encoder.layers.{{n}}"
    before, after, middle = "residual.{n}", "residual.{n+1}", f"{layer}.residual"
    name, function = f"{layer}.self_attn", model.encoder_nonlinearity
    uses_alibi = model.position_embedding_type == "alibi"
    join = partial(parts.join, dropout=model.dropout_rate)
    x = parts.norm(f"{layer}.norm1", before) if model.norm_first else before
    context = parts.attention(
        name,
        (*add_projections(parts, model, name, x), *seen),
        model.hidden_size,
        heads=model.num_heads,
        kv_heads=model.kv_heads,
        causal=False,
        scale=model.attention_scale(0),
        slopes=alibi_slopes(model.num_heads, model.pos_scaling_factor) if uses_alibi else (),
        dropout=model.attention_dropout_rate,
    )
    sizes, bias = (model.filter_size, model.hidden_size), model.use_ffn_bias_in_attention
    join("attention_output", f"{name}.proj_output_dense_layer", context, model.hidden_size, before, middle, bias=bias)
    x = parts.norm(f"{layer}.norm2" if model.norm_first else f"{layer}.norm1", middle)
    middle = middle if model.norm_first else x
    name, bias, last = f"{layer}.ffn", model.use_ffn_bias, after if model.norm_first else f"{layer}.ffn.residual"
    x = parts.activated("ffn", f"{name}.ffn.0", x, *sizes, function, bias=bias, dropout=model.inner_dropout_rate)
    join("ffn_output", f"{name}.ffn.1.linear_layer", x, model.filter_size, middle, last, bias=bias)
    if not model.norm_first:
        parts.norm(f"{layer}.norm2", last, after)
