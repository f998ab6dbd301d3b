"""GPT-2, Llama, Falcon, Bloom, GPT-J, Gemma 2 and their kin: one graph, whose parts follow from the params."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from cstool.model.graphs.form import SampleForm
from cstool.model.graphs.mixture import add_balance_loss, add_mixture
from cstool.model.graphs.parts import ONES, Parts
from cstool.model.ir import Graph, Initializer, Loss, OpKind, Segment, Tensor, Weight
from cstool.model.params import AttentionRules, DecoderClassifierParams, DecoderParams
from cstool.model.params.sections.decoder import MAX_RELATIVE_DISTANCE
from cstool.model.params.sections.decoder_parts import PositionScalingParams

WORD_EMBEDDINGS = "embedding_layer.word_embeddings.weight"
CLASSES = "score"
"""output layer of a classifier, as Hugging Face's library calls it"""

_INPUTS = (("input_ids", "int32"), ("labels", "int32"), ("mask", "float32"))


def decoder_graph(model: DecoderParams, sequence_length: int, *, is_packed: bool = False) -> Graph:
    """Build the graph of a decoder. Weight names are the vendor's.

    Args:
        sequence_length: S, tokens of a sample
        is_packed: whether a sample is several texts that do not see each other, told apart by `segments`
    """
    packed = [("segments", "int32")] if is_packed else []
    packed += [("position_ids", "int32")] if is_packed and model.position_embedding_type == "learned" else []
    inputs = tuple(Tensor(name, (sequence_length,), dtype) for name, dtype in (*_INPUTS, *packed))
    segments = (
        _embedding(model, sequence_length, is_packed),
        *_layers(model, sequence_length, ("segments", "segments") if is_packed else ()),
        _output(model, sequence_length),
    )
    # The vendor's module has its last norm at two places, and a tied output layer is the table of words.
    norm = [weight.name for weight in segments[-1].weights if weight.name.startswith("transformer_decoder.norm.")]
    aliases = {name.replace("transformer_decoder.norm", "ln_f"): name for name in norm}
    if model.share_embedding_weights:
        aliases["lm_head.weight"] = WORD_EMBEDDINGS
    losses = [Loss("loss", model.loss_scaling, model.loss_weight, perplexity="lm_perplexity")]
    if model.balances:
        losses.append(Loss("load_balancing_loss", "batch_size", model.moe.load_balancing_loss_coef, evaluates=False))
    return Graph(model.name, inputs, segments, tuple(losses), aliases)


def classifier_graph(model: DecoderClassifierParams, form: SampleForm) -> Graph:
    """Build the graph of a decoder that tells the class of a text by its last token, the one at `last_position`.

    After that token comes padding alone, and no token sees a later one: attention needs no mask.
    """
    assert form.tokens is not None
    scores, counted = form.scores(model.num_labels)
    inputs = [Tensor("input_ids", (form.tokens,), "int32")]
    inputs += [Tensor(name, (1,), "int32") for name in ("last_position", *counted, "labels")]
    head, last = _parts(model, 1), f"residual.{model.num_hidden_layers}"
    x = head.op(OpKind.GATHER, f"{CLASSES}.gather", (last, "last_position"), "last_token", model.hidden_size)
    x = head.norm("transformer_decoder.norm", x, "final")
    matrix = head.matrix("lm_head", f"{CLASSES}.weight", model.num_labels, model.hidden_size)
    tallies = {} if scores is None else {"tallies": True}
    head.loss(CLASSES, (x, "labels", "mask", *counted), "loss", (matrix,), **tallies)
    segments = (_embedding(model, form.tokens, False), *_layers(model, form.tokens, ()), head.segment())
    loss = Loss("loss", "batch_size", scores=scores)
    return Graph(model.name, (*inputs, Tensor("mask", (1,))), segments, (loss,))


@dataclass
class _Parts(Parts):
    """Parts of a decoder, whose layers may have norms after their parts as well."""

    model: DecoderParams

    def join_normed(
        self, layer: str, name: str, x: str, columns: int, before: str, after: str, post_norm: str, bias: bool
    ) -> None:
        """Add the linear layer that ends a part, and the residual connection around the part."""
        if self.model.norm_first_sandwich:
            y = self.linear(layer, name, x, self.model.hidden_size, columns, bias)
            self.add_back(name, y, before, after, post_norm)
        else:
            self.join(layer, name, x, columns, before, after, bias=bias, dropout=self.model.residual_dropout_rate)

    def add_back(self, name: str, y: str, before: str, after: str, post_norm: str) -> None:
        """Add the output of a part to the residual that it was computed from."""
        dropout = self.model.residual_dropout_rate
        if self.model.norm_first_sandwich:
            if dropout:
                y = self.scale(f"{name}.dropout", y, f"{name}.dropout.y", 1.0, dropout)
            y, dropout = self.norm(post_norm, y), 0.0
        self.op(OpKind.RESIDUAL, f"{name}.residual", (y, before), after, self.model.hidden_size, dropout=dropout)


def _parts(model: DecoderParams, sequence_length: int) -> _Parts:
    return _Parts(model, sequence_length, partial(matrix_initializer, model))


def _embedding(model: DecoderParams, sequence_length: int, is_packed: bool) -> Segment:
    """From token ids to residual.0: words, positions, norm, scale, dropout, as far as they are wanted."""
    parts = _parts(model, sequence_length)
    hidden, dropout = model.hidden_size, model.embedding_dropout_rate
    adds_positions = model.position_embedding_type in ("learned", "fixed")
    drops_apart = model.embedding_layer_norm or not adds_positions or is_packed
    scales = model.embeddings_scale != 1.0 or (dropout > 0 and drops_apart)
    outputs = ["words"] * (adds_positions or model.embedding_layer_norm or scales)
    outputs += ["positioned"] * (adds_positions and (model.embedding_layer_norm or scales))
    outputs += ["normed"] * (model.embedding_layer_norm and scales)
    names = iter([*outputs, "residual.0"])

    words = parts.matrix("embedding", WORD_EMBEDDINGS, model.vocab_size, hidden)
    name = "embedding_layer.word_embeddings"
    x = parts.op(OpKind.EMBEDDING, name, ("input_ids",), next(names), hidden, (words,))
    if adds_positions:
        name, kind = "embedding_layer.position_embeddings", OpKind.FIXED_POSITION_EMBEDDING
        weights: tuple[str, ...] = ()
        if model.position_embedding_type == "learned":
            kind = OpKind.POSITION_EMBEDDING
            table = parts.matrix("embedding", f"{name}.embed.weight", model.max_position_embeddings, hidden)
            weights = (table,)
        if is_packed and weights:
            x = parts.positions(name, x, next(names), hidden, *weights)
        else:
            here = 0.0 if scales or model.embedding_layer_norm else dropout
            x = parts.op(kind, name, (x,), next(names), hidden, weights, dropout=here)
    if model.embedding_layer_norm:
        x = parts.norm("embedding_ln_f", x, next(names))
    if scales:
        parts.scale("embedding_layer.scale", x, next(names), model.embeddings_scale, dropout)
    return parts.segment()


def _layers(model: DecoderParams, sequence_length: int, seen: tuple[str, ...]) -> list[Segment]:
    """Return all layers; runs of equal layers are written once.

    Args:
        seen: inputs that say which tokens see each other, none where all before them do
    """
    count = model.num_hidden_layers
    # The first layer, the layers of a repetition, and how many of these there are.
    units = [(0, 1, count)]
    if model.scale_qk_dot_by_layer_idx:
        units = [(n, 1, 1) for n in range(count)]
    elif model.layers_alternate and count > 1:
        units = [(0, 2, count // 2), *([(count - 1, 1, 1)] if count % 2 else [])]
    if model.trains_biases and units[0][2] > 1:
        # The first layer brings the weights that all share: it stands alone.
        (_, period, repetitions), *rest = units
        units = [(0, period, 1), (period, period, repetitions - 1), *rest]
    segments = []
    for first, period, repetitions in units:
        parts = _parts(model, sequence_length)
        for offset in range(period):
            _add_layer(parts, first + offset, offset, seen)
        segments.append(parts.segment(repetitions, first, period))
    return segments


def _add_layer(parts: _Parts, number: int, offset: int, seen: tuple[str, ...]) -> None:
    """Add the layer from residual.{n + offset} to the next; `number` is the first layer built from it."""
    model = parts.model
    before, after = (f"{{n+{k}}}" if k else "{n}" for k in (offset, offset + 1))
    layer = f"transformer_decoder.layers.{before}"
    before, middle, after = f"residual.{before}", f"{layer}.residual", f"residual.{after}"
    x = parts.norm(f"{layer}.norm1", before)
    if model.trains_biases and number == 0:
        parts.weights.append(_biases_of_positions(model))
    name, context = f"{layer}.self_attn.proj_output_dense_layer", _attention(parts, layer, x, number, seen)
    last = "attention_output", name, context, model.inner_size
    parts.join_normed(*last, before, middle, f"{layer}.norm1_post", model.use_ffn_bias_in_attention)
    if not model.is_parallel:
        x = parts.norm(f"{layer}.norm3", middle)
    elif model.norms_per_layer == 2:
        x = parts.norm(f"{layer}.norm3", before)
    name, bias = f"{layer}.ffn", model.use_ffn_bias
    if model.moe.is_mixture:
        parts.add_back(name, add_mixture(parts, model, name, x), middle, after, f"{layer}.norm3_post")
        return
    sizes = model.filter_size, model.hidden_size
    y = parts.activated("ffn", f"{name}.ffn.0", x, *sizes, model.nonlinearity, bias=bias)
    last = "ffn_output", f"{name}.ffn.1.linear_layer", y, model.filter_size
    parts.join_normed(*last, middle, after, f"{layer}.norm3_post", bias)


def _attention(parts: _Parts, layer: str, x: str, number: int, seen: tuple[str, ...]) -> str:
    """Add query, key and value, the effect of positions on them, and attention; return the context (S, inner_size)."""
    model, name = parts.model, f"{layer}.self_attn"
    window = model.window(number)
    form: dict[str, Any] = {"chunk": model.chunk(number), "columns": model.columns(number)}
    if model.alibi_trainable_slopes:
        form["slope_scale"] = 1 / model.pos_scaling_factor
    elif model.position_embedding_type == "alibi":
        form["slopes"] = alibi_slopes(model.num_heads, model.pos_scaling_factor)
    elif model.position_embedding_type == "relative":
        buckets = model.num_relative_attention_buckets
        form |= {"buckets": buckets, "max_distance": MAX_RELATIVE_DISTANCE, "bidirectional": False}
    return parts.attention(
        name,
        (*add_projections(parts, model, name, x), *seen),
        model.inner_size,
        (_biases_of_positions(model).name,) if model.trains_biases else (),
        heads=model.num_heads,
        kv_heads=model.kv_heads,
        scale=model.attention_scale(number),
        softcap=model.attention_logit_softcapping,
        window=window,
        sinks=model.sinks if window is not None else 0,
        causal=True,
        dropout=model.attention_dropout_rate,
        **{name: value for name, value in form.items() if value is not None},
    )


def _biases_of_positions(model: DecoderParams) -> Weight:
    """The weights that all layers add to their scores: a table of biases by distance, or slopes."""
    helper, heads = "embedding_layer.position_embed_helper", model.num_heads
    if model.alibi_trainable_slopes:
        return Weight(f"{helper}.slopes", (heads, 1), xavier_uniform(heads, 1))
    buckets = model.num_relative_attention_buckets
    name = f"{helper}.relative_attention_bias.weight"
    return Weight(name, (buckets, heads), xavier_uniform(buckets, heads), decays=False)


def xavier_uniform(rows: int, columns: int) -> Initializer:
    """Initializer of a matrix: uniform, with 2 / (rows + columns) as its variance. Source: torch.nn.init."""
    bound = math.sqrt(6 / (rows + columns))
    return Initializer("uniform", low=-bound, high=bound)


def add_projections(parts: Parts, model: AttentionRules, attention: str, x: str) -> tuple[str, ...]:
    """Add query, key and value of a module of attention, their norms and rotary positions; return their names."""
    width, hidden, bias = model.kv_heads * model.head_width, model.hidden_size, model.use_projection_bias_in_attention
    widths = {"q": model.inner_size, "k": width, "v": width}
    names = {part: f"{attention}.proj_{part}_dense_layer" for part in widths}
    qkv = {part: parts.linear("attention", names[part], x, widths[part], hidden, bias) for part in widths}

    def change(kind: OpKind, part: str, name: str, weights: tuple[str, ...] = (), **attributes: Any) -> None:
        qkv[part] = parts.op(kind, name, (qkv[part],), f"{name}.y", widths[part], weights, **attributes)

    if (epsilon := model.qk_norm_epsilon) is not None:
        for part, heads in (("q", model.num_heads), ("k", model.kv_heads)):
            name = f"{attention}.{part}_norm"
            parts.weights.append(Weight(f"{name}.weight", (model.head_width,), ONES, decays=False))
            change(OpKind.HEAD_NORM, part, name, (f"{name}.weight",), heads=heads, epsilon=epsilon)
    if model.position_embedding_type == "rotary":
        frequencies, amplitude = rotary_frequencies(model)
        turns: dict[str, Any] = {"head_width": model.head_width, "frequencies": frequencies, "amplitude": amplitude}
        for part in "qk":
            change(OpKind.ROTARY, part, f"{attention}.rotary_{part}", **turns)
    return tuple(qkv.values())


def _output(model: DecoderParams, sequence_length: int) -> Segment:
    """The last norm, then the output layer with its loss, by panels of the vocabulary."""
    parts = _parts(model, sequence_length)
    x = parts.norm("transformer_decoder.norm", f"residual.{model.num_hidden_layers}", "final")
    head = WORD_EMBEDDINGS
    if not model.share_embedding_weights:
        head = parts.matrix("lm_head", "lm_head.weight", model.vocab_size, model.hidden_size)
    weights = (head, *parts.bias("lm_head", model.vocab_size, model.use_bias_in_output))
    bends = model.logits_scale, model.final_logit_softcapping
    parts.loss("lm_head", (x, "labels", "mask"), "loss", weights, *bends)
    if model.balances:
        modules = [f"transformer_decoder.layers.{n}.ffn" for n in range(model.num_hidden_layers)]
        add_balance_loss(parts, modules, model.moe.num_experts)
    return parts.segment()


def matrix_initializer(model: DecoderParams, layer: str, rows: int, columns: int) -> Initializer:
    """Initializer of a matrix: as the params say, and with muP narrower, the wider it is.

    Source: the vendor's GPT-2 model, 2.10.

    Args:
        layer: `embedding`, `attention`, `attention_output`, `ffn`, `ffn_output` or (untied) `lm_head`
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


def rotary_frequencies(model: AttentionRules) -> tuple[tuple[float, ...], float]:
    """Angle per position of each pair [radians], and the factor of the turned pairs.

    Source: Su et al., "RoFormer", 2021, section 3.2.2. Scalings: Chen et al., "Extending context window of large
    language models via positional interpolation", 2023 (linear); Peng et al., "YaRN", 2023, sections 3.2 to 3.4;
    Grattafiori et al., "The Llama 3 herd of models", 2024, as released (llama3); for longrope see there.
    """
    width = model.rotary_dim
    assert width is not None
    plain = [model.rope_theta ** (-2 * i / width) for i in range(width // 2)]
    factor, extra = model.pos_scaling_factor, model.pos_scaling_extra_args
    if model.pos_scaling_type == "linear":
        return tuple(frequency / factor for frequency in plain), 1.0
    assert extra is not None and extra.original_max_position_embeddings is not None
    original = extra.original_max_position_embeddings
    if model.pos_scaling_type == "llama3":
        low, high = extra.low_freq_factor, extra.high_freq_factor
        # How many turns the original length holds decides how much of the plain frequency is kept.
        turns = [(original * frequency / (2 * math.pi) - low) / (high - low) for frequency in plain]
        kept = [min(max(share, 0.0), 1.0) for share in turns]
        return _blend(plain, factor, kept), 1.0
    if model.pos_scaling_type == "longrope":
        factors, amplitude = longrope(extra, model.max_position_embeddings)
        return tuple(f / factor for f, factor in zip(plain, factors, strict=True)), amplitude

    def pair_with(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(model.rope_theta))

    first, last = pair_with(extra.beta_fast), pair_with(extra.beta_slow)
    if extra.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    span = last - first if last != first else 0.001
    ramps = [min(max((pair - first) / span, 0.0), 1.0) for pair in range(len(plain))]
    amplitude = extra.mscale_a * math.log(factor) + extra.mscale_b if factor > 1 else 1.0
    return _blend(plain, factor, [(1 - ramp) * extra.extrapolation_factor for ramp in ramps]), amplitude


def longrope(extra: PositionScalingParams, positions: int) -> tuple[tuple[float, ...], float]:
    """Factor by which each pair is stretched for so many positions, and the factor of the turned pairs.

    Source: Ding et al., "LongRoPE", 2024, section 3.3, and Phi-3 as released.
    """
    original = extra.original_max_position_embeddings
    assert original is not None
    is_long = positions > original
    factors = extra.long_factor if is_long else extra.short_factor
    assert factors is not None
    amplitude = (extra.long_mscale if is_long else extra.short_mscale) or extra.attention_factor
    if amplitude is None:
        amplitude = math.sqrt(1 + math.log(positions / original) / math.log(original)) if is_long else 1.0
    return factors, amplitude


def _blend(plain: list[float], factor: float, kept: list[float]) -> tuple[float, ...]:
    """Return frequencies between the stretched (kept: 0) and the plain ones (kept: 1)."""
    return tuple(
        frequency / factor * (1 - share) + frequency * share for frequency, share in zip(plain, kept, strict=True)
    )


def alibi_slopes(heads: int, scaling_factor: float) -> tuple[float, ...]:
    """Slope of each head: decrease of a score per token of distance.

    For a number of heads that is no power of two, the slopes of the next lower power, then every other slope of the
    next higher. Source: Press, Smith, Lewis, "Train short, test long", 2021, section 3 and its released code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)][: heads - power]
    return tuple(slope / scaling_factor for slope in slopes)
