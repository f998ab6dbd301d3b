"""Vision transformers that tell the class of an image: its patches, a class token before them, an encoder, a head."""

from functools import partial

from cstool.model.graphs.encoder_layer import add_encoder_layer
from cstool.model.graphs.parts import Parts
from cstool.model.ir import Graph, Initializer, Loss, OpKind, Segment, Tensor, Weight
from cstool.model.params import VisionTransformerParams

PATCHES = "patches"
"""the input that has an image, (N, numbers of a patch), patches row by row"""
_EMBEDDING, _ENCODER = "vit_model.embedding_layer", "vit_model.encoder."
_NORM_EPSILON = 1e-5
"""epsilon of the norm of embeddings, independent of the other norms. Source: the vendor's ViTEmbeddingLayer, 2.10."""


def vision_graph(model: VisionTransformerParams) -> Graph:
    """Build the graph. Weight names are the vendor's."""
    tokens, hidden = model.patches + model.prepend_cls_token, model.hidden_size
    layers = _parts(model, tokens)
    add_encoder_layer(layers, model, _ENCODER, ())
    segments = [_embedding(model), layers.segment(model.num_hidden_layers)]
    x = f"residual.{model.num_hidden_layers}"
    if model.use_final_layer_norm:
        last = _parts(model, tokens)
        x = last.norm(f"{_ENCODER}transformer_encoder.norm", x, "encoded")
        segments.append(last.segment())
    head = _parts(model, 1)
    name = f"{_ENCODER}pooler"
    x = head.op(OpKind.FIRST_TOKEN, f"{name}.first_token", (x,), "first_token", hidden)
    if model.use_encoder_pooler_layer:
        function, bias = model.pooler_nonlinearity, model.use_ffn_bias
        x = head.activated("pooler", f"{name}.pooler.ffn.0", x, hidden, hidden, function, bias=bias)
    output = "classifier.classifier.ffn.0.linear_layer"
    matrix = head.matrix("classifier", f"{output}.weight", model.num_classes, hidden)
    weights = (matrix, *head.bias(output, model.num_classes, model.use_bias_in_output))
    head.loss(output, (x, "labels", "mask"), "loss", weights)
    inputs = (
        Tensor(PATCHES, (model.patches, model.patch_values)),
        Tensor("labels", (1,), "int32"),
        Tensor("mask", (1,)),
    )
    return Graph(model.name, inputs, (*segments, head.segment()), (Loss("loss"),))


def _parts(model: VisionTransformerParams, tokens: int) -> Parts:
    return Parts(model, tokens, partial(vision_initializer, model))


def _embedding(model: VisionTransformerParams) -> Segment:
    """From patches to residual.0: a product, the class token, positions, dropout and a norm, as far as wanted."""
    parts, hidden = _parts(model, model.patches), model.hidden_size
    positions = model.position_embedding_type is not None
    wanted = {
        "token": model.prepend_cls_token,
        "positioned": positions,
        # Positions take the dropout along.
        "dropped": model.embedding_dropout_rate > 0 and not positions,
        "normed": model.use_post_embed_layer_norm,
    }
    steps = [step for step, is_wanted in wanted.items() if is_wanted]
    outputs = {step: "residual.0" if step == steps[-1] else step for step in steps}

    name, sizes = f"{_EMBEDDING}.linear_proj", (hidden, model.patch_values)
    weights = (
        parts.matrix("projection", f"{name}.weight", *sizes),
        *parts.bias(name, hidden, model.use_embed_proj_bias),
    )
    x = parts.op(OpKind.LINEAR, name, (PATCHES,), f"{name}.y" if steps else "residual.0", hidden, weights)
    if model.prepend_cls_token:
        parts.tokens += 1
        name = f"{_EMBEDDING}.cls_embedding"
        initial = model.cls_token_initializer.initializer(hidden, 1)
        parts.weights.append(Weight(name, (hidden,), initial))
        x = parts.op(OpKind.PREPEND_TOKEN, name, (x,), outputs["token"], hidden, (name,))
    if positions:
        name, dropout = f"{_EMBEDDING}.position_embeddings", model.embedding_dropout_rate
        output, first = outputs["positioned"], int(model.prepend_cls_token)
        if model.position_embedding_type == "fixed":
            kind, grid = OpKind.FIXED_POSITION_EMBEDDING, model.grid
            x = parts.op(kind, name, (x,), output, hidden, dropout=dropout, grid=grid, before=first)
        else:
            # The position of the class token is the last one of the table.
            table = parts.matrix("position_embedding", f"{name}.weight", parts.tokens, hidden)
            kind = OpKind.POSITION_EMBEDDING
            x = parts.op(kind, name, (x,), output, hidden, (table,), dropout=dropout, turn=first * (parts.tokens - 1))
    if "dropped" in outputs:
        x = parts.scale(f"{_EMBEDDING}.dropout_embd", x, outputs["dropped"], 1.0, model.embedding_dropout_rate)
    if "normed" in outputs:
        parts.norm(f"{_EMBEDDING}.post_embed_ln", x, outputs["normed"], _NORM_EPSILON)
    return parts.segment()


def vision_initializer(model: VisionTransformerParams, layer: str, rows: int, columns: int) -> Initializer:
    """Initializer of a matrix, as the params say.

    Source: the vendor's vision transformer, 2.10.

    Args:
        layer: `projection`, `position_embedding`, `attention`, `attention_output`, `ffn`, `ffn_output`, `pooler` or
            `classifier`
    """
    params = {
        "attention_output": model.attention_initializer,
        "ffn_output": model.ffn_initializer,
        "classifier": model.default_initializer,
    }.get(layer) or getattr(model, f"{layer}_initializer")
    fan_out = rows
    if layer == "projection" and model.use_conv_patchified_embedding:
        # That of a convolution: each output is met by all pixels of a patch. Source: torch.nn.init.
        fan_out *= model.patch_size[0] * model.patch_size[1]
    if layer == "position_embedding":
        columns, fan_out = rows, columns
    found: Initializer = params.initializer(columns, fan_out)
    return found
