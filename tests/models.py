"""Small models for tests."""

from __future__ import annotations

from typing import Any

from cstool.ir import Graph
from cstool.models import build_graph
from cstool.params import DecoderParams, FcMnistParams


def decoder(*, layers: int = 1, sequence: int = 8, dropout: float = 0.0, **keys: Any) -> Graph:
    """A decoder of width 8 with 2 heads over 11 tokens."""
    settings = {
        "vocab_size": 11,
        "hidden_size": 8,
        "num_heads": 2,
        "filter_size": 16,
        "max_position_embeddings": sequence,
        "dropout_rate": dropout,
        "attention_dropout_rate": dropout,
    }
    model = DecoderParams.model_validate({"name": "gpt2", "num_hidden_layers": layers, **settings, **keys})
    return build_graph(model, sequence)


def fc_mnist(*sizes: int, **keys: Any) -> Graph:
    """A fully connected network, by default 784 - 6 - 4 - 10."""
    model = FcMnistParams.model_validate({"name": "fc_mnist", "hidden_sizes": list(sizes or (6, 4)), **keys})
    return build_graph(model, None)
