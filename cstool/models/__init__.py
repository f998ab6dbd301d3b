"""From the model section of the params to a graph of ops: one file per family."""

from __future__ import annotations

from cstool.ir import Graph, verify
from cstool.models.decoder import decoder_graph
from cstool.models.fc_mnist import fc_mnist_graph
from cstool.params import DecoderParams, FcMnistParams

__all__ = ["build_graph"]


def build_graph(model: FcMnistParams | DecoderParams, sequence_length: int | None) -> Graph:
    """Build the graph of a model.

    Args:
        model: the checked model section of the params
        sequence_length: S, tokens per sample of the data set; None for models without a sequence

    Returns:
        a verified graph
    """
    if isinstance(model, FcMnistParams):
        graph = fc_mnist_graph(model)
    else:
        if sequence_length is None:
            raise ValueError(f"{model.name} needs a sequence length")
        graph = decoder_graph(model, sequence_length)
    verify(graph)
    return graph
