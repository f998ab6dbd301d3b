"""BERT, RoBERTa, ESM-2 and the heads of BERT: one encoder, and heads that read its tokens."""

from dataclasses import replace
from functools import partial
from typing import Literal

from cstool.model.graphs.encoder_layer import add_encoder_layer
from cstool.model.graphs.form import SampleForm
from cstool.model.graphs.parts import Parts, smoothed
from cstool.model.ir import Graph, Initializer, Loss, OpKind, Segment, Tensor
from cstool.model.params import (
    BertClassifierParams,
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    EncoderParams,
    Esm2Params,
)

_MASK_SHARE = 0.15 * 0.8
"""share of masked tokens in ESM-2's training data, which its token dropout makes up for. Source: Lin et al.,
"Evolutionary-scale prediction of atomic-level protein structure", 2023, as released."""
_HEAD = Initializer("normal", std=0.02)
"""initializer of the classifiers of fine-tuned models"""


Answer = Literal["tokens", "pairs", "encoded", "pooled"]
"""output of an encoder"""


def encoder_graph(model: EncoderParams, form: SampleForm) -> Graph:
    """Build the graph of an encoder and its heads for samples of a form. Weight names are the vendor's."""
    if isinstance(model, BertParams):
        return _pretraining(model, form)
    return _fine_tuning(model, form)


def _pretraining(model: BertParams, form: SampleForm) -> Graph:
    """Masked tokens first: their loss is the one whose terms are counted."""
    assert form.predictions is not None
    prefix, hidden = "bert_encoder.", model.hidden_size
    inputs = [
        *encoder_inputs(model, form),
        Tensor("masked_lm_positions", (form.predictions,), "int32"),
        Tensor("labels", (form.predictions,), "int32"),
        Tensor("mask", (form.predictions,)),
    ]
    segments, encoded = encoder_segments(model, form, prefix)

    words = f"{prefix}embedding_layer.word_embeddings.weight"
    tokens = encoder_parts(model, form.predictions)
    gathered = tokens.op(OpKind.GATHER, "bert_mlm_head.gather", (encoded, "masked_lm_positions"), "masked", hidden)
    head = "bert_mlm_head.mlm_transform.ffn.ffn.0"
    bias = model.use_ffn_bias_in_mlm
    x = tokens.activated("head", head, gathered, hidden, hidden, model.mlm_nonlinearity, bias=bias)
    x = tokens.norm("bert_mlm_head.mlm_transform.ln", x)
    output = "bert_mlm_head.classifier.ffn.0.linear_layer"
    table = words
    if not model.share_embedding_weights:
        table = tokens.matrix("head", f"{output}.weight", model.vocab_size, hidden)
    weights = (table, *tokens.bias(output, model.vocab_size, model.use_output_bias_in_mlm))
    smoothing = smoothed(model.label_smoothing, model.vocab_size)
    tokens.loss(output, (x, "labels", "mask"), "mlm_loss", weights, model.logits_scale, **smoothing)
    segments.append(tokens.segment())
    scaling = ("num_tokens", 1.0) if form.scales_by_predictions else ("batch_size", model.mlm_loss_weight)
    losses = [Loss("mlm_loss", *scaling, accuracy="accuracy_masked_lm", perplexity="mlm_perplexity")]

    if not model.disable_nsp:
        inputs += [Tensor("next_sentence_label", (1,), "int32"), Tensor("sample_mask", (1,))]
        pair = encoder_parts(model, 1)
        x = add_pooler(pair, model, encoded, prefix)
        output = "bert_cls_head.classifier.ffn.0.linear_layer"
        weights = (pair.matrix("head", f"{output}.weight", 2, hidden), *pair.bias(output, 2, model.use_ffn_bias))
        pair.loss(output, (x, "next_sentence_label", "sample_mask"), "nsp_loss", weights, model.logits_scale)
        segments.append(pair.segment())
        losses.append(Loss("nsp_loss", "batch_size", accuracy="accuracy_cls"))
    aliases = {"bert_mlm_head.classifier.ffn.0.linear_layer.weight": words} if model.share_embedding_weights else {}
    return Graph(model.name, tuple(inputs), tuple(segments), tuple(losses), aliases)


def answering_graph(model: EncoderParams, answer: Answer) -> Graph:
    """Build the part of an encoder that an answer takes, for samples of one token; its last op reads the answer.

    So gathered tokens and first tokens are all tokens, and the caller chooses among the rows.

    Args:
        answer: the logits of a head: `tokens` (the first head), `pairs` (whether a text follows another); or the input
            of a head: `encoded` (all tokens), `pooled` (the pooled first token, where there is such a layer)
    """
    graph = encoder_graph(model, SampleForm(1, 1))
    heads = len(graph.losses)
    *body, first = graph.segments[: len(graph.segments) - heads + 1]
    last = graph.segments[-1] if answer in ("pairs", "pooled") else first
    if answer == "encoded":
        # Whatever the head is, its first op reads the encoded tokens.
        last = replace(last, ops=last.ops[:1])
    return replace(graph, segments=(*body, last), losses=())


def _fine_tuning(model: EncoderParams, form: SampleForm) -> Graph:
    prefix, hidden, weight, bias = "bert.", model.hidden_size, 1.0, True
    segments, x = encoder_segments(model, form, prefix)
    inputs, rows = encoder_inputs(model, form), 1
    scores: str | None = None
    counted: tuple[str, ...] = ()
    if isinstance(model, BertClassifierParams):
        scores, counted = form.scores(model.num_labels)
        inputs += [Tensor(name, (1,), "int32") for name in counted]
        parts, classes, dropout = encoder_parts(model, 1), model.num_labels, model.task_dropout
        x = add_pooler(parts, model, x, prefix)
    elif isinstance(model, BertTokenClassifierParams):
        assert form.tokens is not None
        rows, classes, dropout = form.tokens, model.num_classes, model.encoder_output_dropout_rate
        scores = "macro_f1"
        parts, weight = encoder_parts(model, rows), model.loss_weight / (rows if model.include_padding_in_loss else 1)
    else:
        assert isinstance(model, BertSummarizationParams)
        assert form.tokens is not None
        assert form.predictions is not None
        rows, classes, dropout = form.predictions, model.num_labels, 0.0
        parts, weight, bias = encoder_parts(model, rows), model.loss_weight, model.use_cls_bias
        inputs.append(Tensor("cls_positions", (rows,), "int32"))
        inputs.append(Tensor("word_numbers", (form.tokens,), "int32"))
        scores, counted = "rouge", ("cls_positions", "word_numbers")
        x = parts.op(OpKind.GATHER, "classifier.gather", (x, "cls_positions"), "sentences", hidden)
    if dropout:
        x = parts.scale("classifier.dropout", x, "classifier.dropout.y", 1.0, dropout)
    names = (parts.matrix("classifier", "classifier.weight", classes, hidden), *parts.bias("classifier", classes, bias))
    tallies = {} if scores is None else {"tallies": True}
    parts.loss("classifier", (x, "labels", "mask", *counted), "loss", names, **tallies)
    inputs += [Tensor("labels", (rows,), "int32"), Tensor("mask", (rows,))]
    loss = Loss("loss", "batch_size", weight, scores=scores)
    return Graph(model.name, tuple(inputs), (*segments, parts.segment()), (loss,))


def encoder_inputs(model: EncoderParams, form: SampleForm) -> list[Tensor]:
    """The inputs of the encoder."""
    assert form.tokens is not None
    shape = (form.tokens,)
    names = ["input_ids", *(["token_type_ids"] if model.segments else []), "attention_mask"]
    names += ["segments"] if form.is_packed else []
    names += ["position_ids"] if form.is_packed and model.position_embedding_type == "learned" else []
    return [Tensor(name, shape, "int32") for name in names]


def encoder_parts(model: EncoderParams, tokens: int) -> Parts:
    """Begin parts of a graph with a number of tokens, with the encoder's initializers of weights."""
    return Parts(model, tokens, partial(encoder_initializer, model))


def add_pooler(parts: Parts, model: EncoderParams, encoded: str, prefix: str) -> str:
    """Add the first token of each sample, a linear layer and its nonlinearity; return (1, H)."""
    x = parts.op(OpKind.FIRST_TOKEN, f"{prefix}pooler.first_token", (encoded,), "first_token", model.hidden_size)
    sizes = model.hidden_size, model.hidden_size
    name = f"{prefix}pooler.pooler.ffn.0"
    return parts.activated("pooler", name, x, *sizes, model.pooler_nonlinearity, bias=model.use_ffn_bias)


def encoder_segments(model: EncoderParams, form: SampleForm, prefix: str) -> tuple[list[Segment], str]:
    """Build the embeddings and all layers; return them, and the name of the encoded tokens, (S, H)."""
    assert form.tokens is not None
    layers = encoder_parts(model, form.tokens)
    # Of rotary positions and distances the difference counts: they need not begin anew with each text of a sample.
    seen = ("segments", "segments") if form.is_packed else ("attention_mask",)
    add_encoder_layer(layers, model, prefix, seen)
    segments = [_embedding(model, form.tokens, prefix, form.is_packed), layers.segment(model.num_hidden_layers)]
    encoded = f"residual.{model.num_hidden_layers}"
    if model.use_final_layer_norm:
        last = encoder_parts(model, form.tokens)
        encoded = last.norm(f"{prefix}transformer_encoder.norm", encoded, "encoded")
        segments.append(last.segment())
    return segments, encoded


def _embedding(model: EncoderParams, tokens: int, prefix: str, is_packed: bool) -> Segment:
    """From token ids to residual.0: words, positions, segments, scale, norm, dropout, as far as they are wanted."""
    parts, hidden, layer = encoder_parts(model, tokens), model.hidden_size, f"{prefix}embedding_layer"
    wanted = {
        "words": True,
        "unmasked": isinstance(model, Esm2Params) and model.token_dropout,
        "positioned": model.position_embedding_type in ("learned", "fixed"),
        "segmented": model.segments > 0,
        "scaled": model.embeddings_scale != 1.0,
        "normed": model.embedding_layer_norm,
        "dropped": model.embedding_dropout > 0,
    }
    outputs = {step: step for step, is_wanted in wanted.items() if is_wanted}
    outputs[list(outputs)[-1]] = "residual.0"

    name = f"{layer}.word_embeddings"
    table = parts.matrix("embeddings", f"{name}.weight", model.vocab_size, hidden)
    ids = ("input_ids",)
    x = parts.op(OpKind.EMBEDDING, name, ids, outputs["words"], hidden, (table,), padding=model.pad_token_id)
    if isinstance(model, Esm2Params) and "unmasked" in outputs:
        inputs, token = (x, "input_ids", "attention_mask"), model.mask_token_id
        name, kept = f"{layer}.token_dropout", 1.0 - _MASK_SHARE
        x = parts.op(OpKind.TOKEN_DROPOUT, name, inputs, outputs["unmasked"], hidden, mask_token=token, kept=kept)
    if "positioned" in outputs:
        name, output = f"{layer}.position_embeddings", outputs["positioned"]
        if model.position_embedding_type == "fixed":
            x = parts.op(OpKind.FIXED_POSITION_EMBEDDING, name, (x,), output, hidden, dropout=0.0)
        else:
            offset = model.position_offset
            rows = model.max_position_embeddings + offset
            table = parts.matrix("position_embeddings", f"{name}.embed.weight", rows, hidden)
            if is_packed:
                x = parts.positions(name, x, output, hidden, table)
            else:
                kind = OpKind.POSITION_EMBEDDING
                x = parts.op(kind, name, (x,), output, hidden, (table,), dropout=0.0, offset=offset)
    if model.segments:
        name = f"{layer}.segment_embeddings"
        table = parts.matrix("segment_embeddings", f"{name}.weight", model.segments, hidden)
        y = parts.op(OpKind.EMBEDDING, name, ("token_type_ids",), "token_types", hidden, (table,))
        x = parts.op(OpKind.RESIDUAL, f"{name}.residual", (y, x), outputs["segmented"], hidden, dropout=0.0)
    if "scaled" in outputs:
        x = parts.scale(f"{layer}.scale", x, outputs["scaled"], model.embeddings_scale, 0.0)
    if "normed" in outputs:
        x = parts.norm(f"{prefix}embed_ln_f", x, outputs["normed"])
    if "dropped" in outputs:
        parts.scale(f"{prefix}dropout_embd", x, outputs["dropped"], 1.0, model.embedding_dropout)
    return parts.segment()


def encoder_initializer(model: EncoderParams, layer: str, rows: int, columns: int) -> Initializer:
    """Initializer of a matrix: as the params say, and with muP narrower, the wider it is.

    Source: the vendor's BERT models, 2.10.

    Args:
        layer: `embeddings`, `position_embeddings`, `segment_embeddings`, `attention`, `attention_output`, `ffn`,
            `ffn_output`, `pooler`, `head` (of pre-training) or `classifier`
    """
    if layer == "classifier":
        return _HEAD
    if layer == "head":
        return Initializer("truncated_normal", 0.0, std := model.initializer_range, -2 * std, 2 * std)
    if layer.endswith("embeddings"):
        params = getattr(model, f"{layer}_initializer")
        found: Initializer = params.initializer(columns, rows)
        return found
    by_width, by_filter = (factor**0.5 for factor in model.mup_width_factors)
    by_depth = 1.0 if model.mup_base_hidden_size is None else (2 * model.num_hidden_layers) ** -0.5
    factor = {"attention_output": by_width * by_depth, "ffn_output": by_filter * by_depth}.get(layer, by_width)
    return model.default_initializer.scaled(factor).initializer(columns, rows)
