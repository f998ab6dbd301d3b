"""From the model section of the params to a graph of ops: one file per family."""

from collections.abc import Callable, Mapping
from typing import Any

from cstool.model.graphs.decoder import classifier_graph, decoder_graph
from cstool.model.graphs.dpr import USUAL_CONTEXTS, Side, dpr_graph, embedding_graph
from cstool.model.graphs.encoder import Answer, answering_graph, encoder_graph
from cstool.model.graphs.encoder_decoder import encoder_decoder_graph
from cstool.model.graphs.fc_mnist import fc_mnist_graph
from cstool.model.graphs.form import GATHERED, TARGETS, SampleForm
from cstool.model.graphs.preference import preference_graph
from cstool.model.graphs.tuning import tuned
from cstool.model.graphs.vision import vision_graph
from cstool.model.ir import Graph, verify
from cstool.model.params import (
    BertParams,
    BertSummarizationParams,
    DecoderClassifierParams,
    DecoderParams,
    DpoParams,
    DprParams,
    EncoderDecoderParams,
    EncoderParams,
    FcMnistParams,
    ImageModelParams,
    ModelParams,
    Params,
    VisionTransformerParams,
    usual_predictions,
)

__all__ = [
    "GATHERED",
    "TARGETS",
    "Answer",
    "SampleForm",
    "Side",
    "answering_graph",
    "build_graph",
    "declared_form",
    "embedding_graph",
    "trained_graph",
]

USUAL_TOKENS = 512
"""tokens of a source or a target, where neither data nor model set them. Source: Raffel et al., 2020, section 3.1.1."""


_BUILDERS: Mapping[type, Callable[[Any, Any], Graph]] = {
    FcMnistParams: lambda model, _: fc_mnist_graph(model),
    VisionTransformerParams: lambda model, _: vision_graph(model),
    DprParams: dpr_graph,
    EncoderParams: encoder_graph,
    EncoderDecoderParams: encoder_decoder_graph,
    DpoParams: lambda model, form: preference_graph(model, form.tokens),
    DecoderClassifierParams: classifier_graph,
    DecoderParams: lambda model, form: decoder_graph(model, form.tokens, is_packed=form.is_packed),
}


def build_graph(model: ModelParams, form: SampleForm | int | None) -> Graph:
    """Build the graph of a model.

    Args:
        form: of its samples; a number where only tokens matter, None for models without a sequence

    Returns:
        a verified graph
    """
    form = form if isinstance(form, SampleForm) else SampleForm(form)
    if form.tokens is None and not isinstance(model, ImageModelParams):
        raise ValueError(f"{model.name} needs a sequence length")
    if form.targets is None and isinstance(model, EncoderDecoderParams):
        raise ValueError(f"{model.name} needs the length of its targets")
    graph = next(build(model, form) for kind, build in _BUILDERS.items() if isinstance(model, kind))
    verify(graph)
    return graph


def trained_graph(params: Params, form: SampleForm | int | None) -> Graph:
    """Build the graph that params train: the model's, with the frozen weights and adapters that they ask for.

    Args:
        form: see `build_graph`

    Raises:
        ParamsError: the model has no such weights or layers
    """
    return tuned(build_graph(params.model, form), params.tuning)


def declared_form(params: Params) -> SampleForm:
    """Return the form of samples as the params declare it: the form of the data, else the model's longest sample."""
    if isinstance(params.model, ImageModelParams):
        return SampleForm(None)
    train = () if params.train_dataloader is None else (params.train_dataloader,)
    loaders = (*train, *params.val_dataloaders, *params.eval_dataloaders, *params.eval_all_dataloaders)
    lengths = [loader.sample_length for loader in loaders]
    if isinstance(params.model, EncoderDecoderParams):
        found = (lengths, [loader.target_length for loader in loaders])
        source, targets = (
            next((length for length in of_side if length is not None), most or USUAL_TOKENS)
            for of_side, most in zip(found, params.model.positions, strict=True)
        )
        scales = any(loader.scales_by_predictions for loader in loaders)
        return SampleForm(source, scales_by_predictions=scales, targets=targets)
    tokens = next((length for length in lengths if length is not None), params.model.max_position_embeddings)
    if isinstance(params.model, DprParams):
        return SampleForm(tokens, contexts=USUAL_CONTEXTS, context_tokens=tokens)
    if not isinstance(params.model, BertParams | BertSummarizationParams):
        has_halves = bool(loaders) and all(loader.has_halves for loader in loaders)
        return SampleForm(tokens, is_packed=any(loader.is_packed for loader in loaders), has_halves=has_halves)
    predictions = next((loader.predictions for loader in loaders if loader.predictions), usual_predictions(tokens))
    scales = any(loader.scales_by_predictions for loader in loaders)
    return SampleForm(tokens, min(predictions, tokens), scales, any(loader.is_packed for loader in loaders))
