"""DPR: an encoder of questions and one of contexts in one graph, and the loss where all samples of a batch meet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from cstool.model.graphs.encoder import add_pooler, encoder_inputs, encoder_parts, encoder_segments
from cstool.model.graphs.form import SampleForm
from cstool.model.ir import Graph, Loss, Op, OpKind, Segment, Tensor
from cstool.model.params import DprEncoderParams, DprParams

USUAL_CONTEXTS = 2
"""contexts of a question: the right one, and a hard negative. Source: the vendor's preparation of data for DPR."""
QUESTIONS, CONTEXTS = "question_encoder.", "ctx_encoder."
"""prefixes of the names of weights"""
Side = Literal["question", "context"]
"""one of the encoders"""


def dpr_graph(model: DprParams, form: SampleForm) -> Graph:
    """Build the graph for samples of a form: a question, and contexts of which the first is the right one.

    Weight names are the vendor's: `question_encoder`, `ctx_encoder`.
    """
    tokens, contexts = form.tokens, form.contexts or USUAL_CONTEXTS
    assert tokens is not None
    length = form.context_tokens or tokens
    asked_inputs, asked, question = _embedded(model, model.questions, QUESTIONS, "questions_", tokens, 1)
    given_inputs, given, context = _embedded(model, model.contexts, CONTEXTS, "ctx_", length, contexts)
    if not model.use_biencoder:
        given = [_with_weights_of_questions(segment) for segment in given]
    inputs = (*asked_inputs, *given_inputs, Tensor("mask", (1,)))
    together = encoder_parts(model.questions, 1)
    attributes = {"temperature": model.softmax_temperature, "mutual": model.mutual_information}
    together.outputs(
        OpKind.CONTRASTIVE_LOSS, "loss", (question, context, "mask"), (Tensor("loss", (1,)),), **attributes
    )
    losses = (Loss("loss", "batch_size"),)
    return Graph(model.name, inputs, (*asked, *given, together.segment()), losses)


def embedding_graph(model: DprParams, side: Side) -> Graph:
    """Build one of the encoders, for samples of one token; its last op reads the tokens that embeddings are made from.

    Of `mean` that is all tokens, else the first row of a text.
    """
    encoder = model.questions if side == "question" else model.contexts
    prefix = CONTEXTS if side == "context" and model.use_biencoder else QUESTIONS
    inputs, segments, vector = _embedded(model, encoder, prefix, "", 1, 1)
    if model.pooler_type == "ffn_pooler":
        # What is wanted is what the last op reads, and that is what the pooling layer makes.
        last = encoder_parts(encoder, 1)
        last.op(OpKind.FIRST_TOKEN, "vector", (vector,), "vector", encoder.hidden_size)
        segments = [*segments, last.segment()]
    return Graph(model.name, tuple(inputs), tuple(segments), ())


def _embedded(
    model: DprParams, encoder: DprEncoderParams, prefix: str, names: str, tokens: int, texts: int
) -> tuple[list[Tensor], list[Segment], str]:
    """Build the embedding of each text of a sample: inputs, segments, and the name of the result (texts, H)."""
    form = SampleForm(tokens)
    segments, x = encoder_segments(encoder, form, prefix)
    parts = encoder_parts(encoder, 1)
    if model.pooler_type == "ffn_pooler":
        x = add_pooler(parts, encoder, x, prefix)
    elif model.pooler_type == "mean":
        name = f"{prefix}mean"
        x = parts.op(OpKind.MEAN_TOKEN, name, (x, "attention_mask"), name, encoder.hidden_size)
    else:
        name = f"{prefix}first_token"
        x = parts.op(OpKind.FIRST_TOKEN, name, (x,), name, encoder.hidden_size)
    inputs = encoder_inputs(encoder, form)
    renamed = {tensor.name: f"{names}{tensor.name}" for tensor in inputs}
    inputs = [replace(t, name=renamed[t.name], shape=(texts * t.tokens,)) for t in inputs]
    segments = [_of_texts(segment, renamed, names, texts) for segment in (*segments, parts.segment())]
    return inputs, segments, renamed.get(x, f"{names}{x}")


def _of_texts(segment: Segment, inputs: Mapping[str, str], names: str, texts: int) -> Segment:
    """Return a segment whose tensors have names of their own, for samples of several texts.

    Texts are rows one below the other: a kernel sees a grain with as many more samples.
    """

    def renamed(op: Op) -> Op:
        op = op.renamed(str, lambda tensor: inputs.get(tensor, f"{names}{tensor}"), str)
        return replace(op, attributes={**op.attributes, "texts": texts}) if texts > 1 else op

    tensors = (replace(t, name=f"{names}{t.name}", shape=(texts * t.shape[0], *t.shape[1:])) for t in segment.tensors)
    return replace(segment, ops=tuple(map(renamed, segment.ops)), tensors=tuple(tensors))


def _with_weights_of_questions(segment: Segment) -> Segment:
    """Return a segment of the encoder of contexts that uses the weights of the encoder of questions."""
    ops = (op.renamed(str, str, lambda weight: weight.replace(CONTEXTS, QUESTIONS, 1)) for op in segment.ops)
    return replace(segment, ops=tuple(ops), weights=())
