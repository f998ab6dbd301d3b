"""A layer of an encoder: of text, or of the patches of an image."""

from cstool.model.graphs.decoder import add_projections, alibi_slopes
from cstool.model.graphs.parts import Parts
from cstool.model.ir import OpKind
from cstool.model.params import EncoderParams, VisionTransformerParams

LayerParams = EncoderParams | VisionTransformerParams


def add_encoder_layer(parts: Parts, model: LayerParams, prefix: str, seen: tuple[str, ...]) -> None:
    """Add the layer from residual.{n} to the next, norms before its parts or after them.

    Args:
        seen: inputs that say which tokens see each other; none where all do
    """
    layer = f"{prefix}transformer_encoder.layers.{{n}}"
    before, after, middle = "residual.{n}", "residual.{n+1}", f"{layer}.residual"
    x = parts.norm(f"{layer}.norm1", before) if model.norm_first else before
    context = _attention(parts, model, f"{layer}.self_attn", x, seen)
    name = f"{layer}.self_attn.proj_output_dense_layer"
    bias = model.use_ffn_bias_in_attention
    _join(parts, model, "attention_output", name, context, model.hidden_size, bias, before, middle)
    x = middle
    if model.norm_first:
        x = parts.norm(f"{layer}.norm2", middle)
    else:
        middle = x = parts.norm(f"{layer}.norm1", middle)
    sizes = model.filter_size, model.hidden_size
    name, bias = f"{layer}.ffn.ffn.0", model.use_ffn_bias
    function, dropout = model.encoder_nonlinearity, model.inner_dropout_rate
    x = parts.activated("ffn", name, x, *sizes, function, bias=bias, dropout=dropout)
    name, last = f"{layer}.ffn.ffn.1.linear_layer", after if model.norm_first else f"{layer}.ffn.residual"
    _join(parts, model, "ffn_output", name, x, model.filter_size, bias, middle, last)
    if not model.norm_first:
        parts.norm(f"{layer}.norm2", last, after)


def _attention(parts: Parts, model: LayerParams, attention: str, x: str, seen: tuple[str, ...]) -> str:
    """Add query, key and value, the effect of positions on them, and attention; return the context (S, H)."""
    uses_alibi = model.position_embedding_type == "alibi"
    return parts.op(
        OpKind.ATTENTION,
        attention,
        (*add_projections(parts, model, attention, x), *seen),
        f"{attention}.context",
        model.hidden_size,
        heads=model.num_heads,
        kv_heads=model.kv_heads,
        causal=False,
        scale=model.attention_scale(0),
        softcap=None,
        slopes=alibi_slopes(model.num_heads, model.pos_scaling_factor) if uses_alibi else (),
        window=None,
        sinks=0,
        dropout=model.attention_dropout_rate,
    )


def _join(
    parts: Parts,
    model: LayerParams,
    layer: str,
    name: str,
    x: str,
    columns: int,
    bias: bool,
    before: str,
    after: str,
) -> None:
    """Add the linear layer that ends a part, and the residual connection around the part."""
    hidden = model.hidden_size
    y = parts.linear(layer, name, x, hidden, columns)
    biases = parts.bias(name, hidden, bias)
    parts.op(OpKind.RESIDUAL, f"{name}.residual", (y, before), after, hidden, biases, dropout=model.dropout_rate)
