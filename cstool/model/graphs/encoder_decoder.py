"""T5 and the Transformer: an encoder, and a decoder whose layers attend to the encoded source.

Both stacks are one piece of code: a decoder's layer has attention to the encoder's output in its middle, and sees no
later token. A stack's table of biases by distance is declared before its layers, which all read it, so their gradients
add up like the gradients of any tied weight. Generation needs the encoder's part of the graph once: it ends with
`encoded`, and the decoder reads nothing else of it.

Weight names are the vendor's. Source: Raffel et al., "Exploring the limits of transfer learning with a unified
text-to-text transformer", 2020; Vaswani et al., "Attention is all you need", 2017; the vendor's T5 model, 2.10.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cstool.model.graphs.decoder import alibi_slopes
from cstool.model.graphs.form import SampleForm
from cstool.model.graphs.parts import Parts, smoothed
from cstool.model.ir import Graph, Initializer, Loss, OpKind, Segment, Tensor, Weight
from cstool.model.params import EncoderDecoderParams, InitializerParams

ENCODED = "encoded"
"""the tensor that all layers of the decoder read, (S, H)"""
_MAX_DISTANCE = 128
"""from which on all distances are in one bucket. Source: Raffel et al., 2020, section 2.1."""


@dataclass(frozen=True)
class _Stack:
    """One of the two stacks.

    Args:
        name: `encoder` or `decoder`
        source: S, tokens of the encoder's input
        tokens: of this stack's input
    """

    model: EncoderDecoderParams
    name: str
    source: int
    tokens: int

    @property
    def is_decoder(self) -> bool:
        return self.name == "decoder"

    @property
    def layers(self) -> int:
        count: int = getattr(self.model, f"{self.name}_num_hidden_layers")
        return count

    @property
    def ids(self) -> str:
        """The input that has its tokens."""
        return "decoder_input_ids" if self.is_decoder else "input_ids"

    @property
    def embeddings(self) -> str:
        """The module that has its tables."""
        return f"{self.name}_embeddings"

    @property
    def words(self) -> str:
        """The table of its words."""
        stack = "encoder" if self.model.share_encoder_decoder_embedding else self.name
        return f"{stack}_embeddings.word_embeddings.weight"

    @property
    def table(self) -> str:
        """The table of biases by distance."""
        return f"{self.embeddings}.position_embed_helper.relative_attention_bias.weight"

    def parts(self) -> Parts:
        """An empty segment."""
        return Parts(self.model, self.tokens, partial(encoder_decoder_initializer, self.model, self.layers))


def encoder_decoder_graph(model: EncoderDecoderParams, form: SampleForm) -> Graph:
    """Build the graph for samples of `form.tokens` (S) tokens of a source, and `form.targets` (T) of a target."""
    assert form.tokens is not None
    assert form.targets is not None
    source, targets = form.tokens, form.targets
    encoder, decoder = (
        _Stack(model, name, source, tokens) for name, tokens in (("encoder", source), ("decoder", targets))
    )
    segments = [segment for stack in (encoder, decoder) for segment in (_embedding(stack), *_layers(stack))]
    last = decoder.parts()
    table = decoder.words
    if not model.share_embedding_weights:
        table = last.matrix("lm_head", "lm_head.weight", model.vocab_sizes[1], model.hidden_size)
    smoothing = smoothed(model.label_smoothing, model.vocab_sizes[1])
    last.loss("lm_head", ("decoded", "labels", "mask"), "loss", (table,), model.logits_scale, **smoothing)
    segments.append(last.segment())

    inputs = [Tensor(name, (source,), "int32") for name in ("input_ids", "attention_mask")]
    inputs += [Tensor(name, (targets,), "int32") for name in ("decoder_input_ids", "labels")]
    inputs.append(Tensor("mask", (targets,)))
    aliases = {"decoder_embeddings.word_embeddings.weight": decoder.words, "lm_head.weight": decoder.words}
    if not model.share_embedding_weights:
        del aliases["lm_head.weight"]
    if not model.share_encoder_decoder_embedding:
        del aliases["decoder_embeddings.word_embeddings.weight"]
    is_mean = model.mlm_loss_scaling == "num_masked"
    is_mean |= model.mlm_loss_scaling == "precomputed_num_masked" and form.scales_by_predictions
    scaling = ("num_tokens", 1.0) if is_mean else ("batch_size", model.lm_loss_weight)
    loss = Loss("loss", *scaling, accuracy="accuracy_lm", perplexity="perplexity_lm")
    return Graph(model.name, tuple(inputs), tuple(segments), (loss,), aliases)


def _embedding(stack: _Stack) -> Segment:
    """From token ids to the stack's residual.0: words, positions, scale, dropout, as far as they are wanted."""
    parts, model, layer = stack.parts(), stack.model, stack.embeddings
    hidden, dropout, kind = model.hidden_size, model.dropout_rate, model.position_embedding_type
    name = f"{layer}.word_embeddings"
    vocab_size = model.vocab_sizes[stack.is_decoder]
    if stack.words.startswith(layer):
        parts.matrix("embeddings", stack.words, vocab_size, hidden)
    if kind == "relative":
        buckets, heads = model.relative_attention_num_buckets, model.num_heads
        # Its name has "bias" in it, so the vendor does not let it decay.
        begins = InitializerParams.model_validate({"name": "xavier_uniform"}).initializer(heads, buckets)
        parts.weights.append(Weight(stack.table, (buckets, heads), begins, decays=False))
    # The vendor's Transformer has two dropouts here, one after the other.
    steps = {
        "words": True,
        "positioned": kind in ("learned_absolute", "fixed"),
        "scaled": model.embeddings_scale != 1.0 or (dropout > 0 and model.use_pre_encoder_decoder_dropout),
        "dropped": dropout > 0,
    }
    outputs = {step: f"{stack.name}.{step}" for step, is_wanted in steps.items() if is_wanted}
    outputs[list(outputs)[-1]] = f"{stack.name}.residual.0"

    x = parts.op(OpKind.EMBEDDING, name, (stack.ids,), outputs["words"], hidden, (stack.words,))
    if "positioned" in outputs:
        name, place = f"{layer}.position_embeddings", OpKind.FIXED_POSITION_EMBEDDING
        weights: tuple[str, ...] = ()
        if kind == "learned_absolute":
            side = "tgt" if stack.is_decoder else "src"
            rows = getattr(model, f"{side}_max_position_embeddings")
            weights = (parts.matrix("position_embeddings", f"{name}.embed.weight", rows, hidden),)
            place = OpKind.POSITION_EMBEDDING
        x = parts.op(place, name, (x,), outputs["positioned"], hidden, weights, dropout=0.0)
    if "scaled" in outputs:
        first = dropout if model.use_pre_encoder_decoder_dropout else 0.0
        x = parts.scale(f"pre_{stack.name}_dropout", x, outputs["scaled"], model.embeddings_scale, first)
    if "dropped" in outputs:
        parts.scale(f"dropout_before_{stack.name}", x, outputs["dropped"], 1.0, dropout)
    return parts.segment()


def _layers(stack: _Stack) -> tuple[Segment, Segment]:
    """Build the layers, and the norm that ends the stack with the dropout that may follow it."""
    layers, last = stack.parts(), stack.parts()
    _add_layer(layers, stack)
    model, made = stack.model, "decoded" if stack.is_decoder else ENCODED
    drops = model.use_dropout_outside_residual_path and model.dropout_rate > 0
    name = f"{stack.name}.norm"
    x = last.norm(name, f"{stack.name}.residual.{stack.layers}", f"{name}.y" if drops else made)
    if drops:
        last.scale(f"dropout_after_{stack.name}", x, made, 1.0, model.dropout_rate)
    return layers.segment(stack.layers), last.segment()


def _add_layer(parts: Parts, stack: _Stack) -> None:
    """Add the layer from residual.{n} to the next: its parts, each with a norm before or after it."""
    model, layer = stack.model, f"{stack.name}.layers.{{n}}"
    names = ["self_attn", "multihead_attn", "ffn"] if stack.is_decoder else ["self_attn", "ffn"]
    first, x = model.use_pre_encoder_decoder_layer_norm, f"{stack.name}.residual.{{n}}"
    for number, name in enumerate(names, start=1):
        made = f"{layer}.{name}.residual"
        after = f"{stack.name}.residual.{{n+1}}" if name == "ffn" else f"{made}.norm"
        read = parts.norm(f"{layer}.norm{number}", x) if first else x
        add = _add_ffn if name == "ffn" else _add_attention
        total = after if first and name == "ffn" else made
        add(parts, stack, f"{layer}.{name}", read, x, total)
        x = total if first else parts.norm(f"{layer}.norm{number}", total, after)


def _add_attention(parts: Parts, stack: _Stack, name: str, x: str, residual: str, total: str) -> None:
    """Add attention of a stack to itself, or to the encoder's output, and the residual around it."""
    model, is_cross = stack.model, name.endswith("multihead_attn")
    bias, width = model.use_projection_bias_in_attention, model.kv_heads * model.head_width
    # Keys and values have a row for each token that is attended to.
    attended, source = (replace(parts, tokens=stack.source), ENCODED) if is_cross else (parts, x)
    hidden = model.hidden_size
    query = parts.linear("attention_q", f"{name}.proj_q_dense_layer", x, model.inner_size, hidden, bias)
    key, value = (
        attended.linear("attention", f"{name}.proj_{part}_dense_layer", source, width, hidden, bias) for part in "kv"
    )
    is_causal = stack.is_decoder and not is_cross
    form: dict[str, Any] = {}
    weights: tuple[str, ...] = ()
    if not is_cross and model.position_embedding_type == "alibi":
        form["slopes"] = alibi_slopes(model.num_heads, 1.0)
    if not is_cross and model.position_embedding_type == "relative":
        buckets, weights = model.relative_attention_num_buckets, (stack.table,)
        form |= {"buckets": buckets, "max_distance": _MAX_DISTANCE, "bidirectional": not stack.is_decoder}
    context = parts.attention(
        name,
        (query, key, value, *(() if is_causal else ("attention_mask",))),
        model.inner_size,
        weights,
        heads=model.num_heads,
        kv_heads=model.kv_heads,
        causal=is_causal,
        scale=model.scale_of_stack(stack.name),
        dropout=model.dropout_rate,
        **form,
    )
    y = parts.linear("attention_output", f"{name}.proj_output_dense_layer", context, hidden, model.inner_size)
    parts.op(OpKind.RESIDUAL, f"{name}.residual", (y, residual), total, hidden, dropout=model.dropout_rate)


def _add_ffn(parts: Parts, stack: _Stack, name: str, x: str, residual: str, total: str) -> None:
    """Add the feed-forward part, and the residual around it."""
    model, hidden, bias = stack.model, stack.model.hidden_size, stack.model.has_ffn_bias
    dropout = model.dropout_rate if stack.is_decoder else model.relu_dropout_rate
    sizes = model.filter_size, hidden
    x = parts.activated("ffn", f"{name}.ffn.0", x, *sizes, model.encoder_nonlinearity, bias=bias, dropout=dropout)
    last, dropout = f"{name}.ffn.1.linear_layer", model.dropout_rate
    parts.join("ffn_output", last, x, model.filter_size, residual, total, bias=bias, dropout=dropout)


def encoder_decoder_initializer(
    model: EncoderDecoderParams, layers: int, layer: str, rows: int, columns: int
) -> Initializer:
    """Initializer of a matrix.

    Source: the vendor's T5 model, 2.10. With muP it multiplies the layers that write to the residual stream by twice
    the number of layers, where others divide by the root of that; so does this.

    Args:
        layers: of the stack
        layer: `embeddings`, `position_embeddings`, `attention_q`, `attention`, `attention_output`, `ffn`, `ffn_output`
            or (untied) `lm_head`
    """
    factor, hidden = model.initializer_factor, model.hidden_size
    if layer == "position_embeddings":
        return _made({"name": "uniform"}, rows, columns)
    if layer == "lm_head":
        return Initializer("normal", 0.0, factor * (hidden**-0.5 if model.is_mup else 1.0))
    if model.use_transformer_initialization:
        scaling = {"name": "variance_scaling", "mode": "fan_avg", "distribution": "uniform"}
        by_layer: dict[str, dict[str, Any]] = {
            "embeddings": {"name": "truncated_normal", "mean": 0.0, "std": 1.0, "a": -2.0, "b": 2.0},
            "attention_q": {**scaling, "scale": 1 / (model.d_kv * 9.0)},
            **dict.fromkeys(("attention", "attention_output"), {**scaling, "scale": 1 / 9.0}),
        }
        return _made(by_layer.get(layer, {"name": "xavier_uniform"}), rows, columns)
    std = {
        "embeddings": hidden**-0.5 if model.is_mup else 1.0,
        "attention_q": (hidden * model.d_kv) ** -0.5,
        "ffn_output": model.filter_size**-0.5,
    }.get(layer, hidden**-0.5)
    if model.is_mup and layer.endswith("_output"):
        std *= 2 * layers
        if layer == "attention_output" and model.mup_base_d_kv is not None:
            std *= (hidden / model.inner_size) ** 0.5
    return Initializer("normal", 0.0, factor * std)


def _made(params: dict[str, Any], rows: int, columns: int) -> Initializer:
    found: Initializer = InitializerParams.model_validate(params).initializer(columns, rows)
    return found
