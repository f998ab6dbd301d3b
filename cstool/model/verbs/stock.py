"""The models that come with the program, each a stock params file: the verbs behind `cstool model`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cstool.model.params import Params


@dataclass(frozen=True)
class StockModel:
    """The properties of a stock model; None for properties that it does not have.

    Args:
        name: of the params file; `model`: name of the model
        width: of each layer, where widths differ
        tokens, batch: tokens of a sample, samples of a step
        data: kind of its data, and the folder in which a file in `params` looks for it
        state_bytes: of weights, gradients and optimizer state [bytes]
    """

    name: str
    model: str
    description: str
    parameters: int
    layers: int
    width: int | list[int]
    heads: int | None
    feed_forward: int | None
    vocabulary: int | None
    tokens: int | None
    batch: int | None
    optimizer: str
    max_steps: int | None
    data: str | None
    state_bytes: int


def stock_models() -> list[StockModel]:
    """Describe all stock models, the smallest first."""
    from cstool.model.params import stock_names

    return sorted(map(stock_model, stock_names()), key=lambda found: found.parameters)


def stock_model(name: str) -> StockModel:
    """Describe a stock model.

    Raises:
        ParamsError: there is no stock model of that name
    """
    from cstool.model.graphs import declared_form, trained_graph
    from cstool.model.graphs.statistics import FLOAT32_BYTES
    from cstool.model.optimizers import costed_optimizer, whole_arrays
    from cstool.model.params import (
        DpoParams,
        DprParams,
        EncoderDecoderParams,
        FcMnistParams,
        load_params,
        stock_description,
        stock_file,
    )

    params = load_params(stock_file(name))
    graph, loader = trained_graph(params, declared_form(params)), params.train_dataloader
    model = params.model.policy_model if isinstance(params.model, DpoParams) else params.model
    model = model.questions if isinstance(model, DprParams) else model
    arrays = 1 + whole_arrays(costed_optimizer(params.optimizer))
    if isinstance(model, FcMnistParams):
        shape: dict[str, Any] = {"layers": len(model.layer_sizes), "width": list(model.layer_sizes)}
        shape |= dict.fromkeys(("heads", "feed_forward", "vocabulary", "tokens"))
    else:
        sides: tuple[str, ...] = ("",)
        vocabulary = getattr(model, "vocab_size", None)
        if isinstance(model, EncoderDecoderParams):
            sides, vocabulary = ("encoder_", "decoder_"), model.vocab_sizes[0]
        shape = {
            "layers": sum(getattr(model, f"{side}num_hidden_layers") for side in sides),
            "width": model.hidden_size,
            "heads": model.num_heads,
            "feed_forward": model.filter_size,
            "vocabulary": vocabulary,
            "tokens": declared_form(params).tokens,
        }
    return StockModel(
        name=name,
        model=graph.name,
        description=stock_description(name),
        parameters=graph.parameter_count,
        **shape,
        batch=None if loader is None else loader.batch_size,
        optimizer=type(params.optimizer).__name__,
        max_steps=params.loop.max_steps,
        data=None if loader is None else _data(params),
        state_bytes=(graph.parameter_count + arrays * graph.trained_count) * FLOAT32_BYTES,
    )


def _data(params: Params) -> str:
    loader = params.train_dataloader
    assert loader is not None
    folder = os.path.relpath(loader.folders[0].tried[0], params.path.parent.parent)
    return f"{loader.data_processor}, {folder}"
