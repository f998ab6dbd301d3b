"""An artifact belongs to one model."""

from dataclasses import replace
from typing import Any

import pytest

from cstool.errors import ArtifactError
from cstool.ir import Graph, Loss, require_model
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.ir.artifacts import streaming_artifact

GRAPH = decoder(layers=2)


def segment(**changes: Any) -> Graph:
    first, layers, last = GRAPH.segments
    return replace(GRAPH, segments=(first, replace(layers, **changes), last))


WEIGHTS, OP = GRAPH.segments[1].weights, GRAPH.segments[1].ops[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_model_is_accepted(family):
    require_model(streaming_artifact(decoder(**FAMILIES[family])), decoder(**FAMILIES[family]))


FUNCTION = "transformer_decoder.layers.{n}.ffn.ffn.0.linear_layer.activation with function"
WORDS = "embedding_layer.word_embeddings.weight"


@pytest.mark.parametrize(
    ("graph", "got"),
    [
        (fc_mnist(), "model gpt2 instead of fc_mnist"),
        ({"sequence": 4}, "input input_ids with shape (8,) instead of (4,)"),
        ({"layers": 3}, "repetitions 2 instead of 3 in segment 1"),
        ({"hidden_size": 16}, "tensor words with shape (8, 8) instead of (8, 16) in segment 0"),
        ({"vocab_size": 12}, f"weight {WORDS} with shape (11, 8) instead of (12, 8) in segment 0"),
        ({"dropout": 0.5}, "op embedding_layer.position_embeddings with dropout 0.0 instead of 0.5 in segment 0"),
        ({"initializer_range": 0.5}, f"weight {WORDS} with std 0.02 instead of 0.5 in segment 0"),
        ({"layer_norm_epsilon": 0.5}, f"op {OP.name} with epsilon 1e-05 instead of 0.5 in segment 1"),
        ({"nonlinearity": "relu"}, f"op {FUNCTION} gelu instead of relu in segment 1"),
        ({"share_embedding_weights": False}, "weights 2 instead of 3 in segment 2"),
        (replace(GRAPH, segments=GRAPH.segments[:2]), "segments 3 instead of 2"),
        (segment(weights=WEIGHTS[1:]), f"weight {WEIGHTS[0].name} instead of {WEIGHTS[1].name} in segment 1"),
        (segment(weights=WEIGHTS[:-1]), f"weights {len(WEIGHTS)} instead of {len(WEIGHTS) - 1} in segment 1"),
        (
            segment(weights=(replace(WEIGHTS[0], decays=True), *WEIGHTS[1:])),
            f"weight {WEIGHTS[0].name} with decays False instead of True in segment 1",
        ),
        (segment(stride=2), "stride 1 instead of 2 in segment 1"),
        (
            segment(ops=(replace(OP, attributes={}), *GRAPH.segments[1].ops[1:])),
            f"op {OP.name} with epsilon 1e-05 instead of none in segment 1",
        ),
        (replace(GRAPH, losses=(Loss("other"),)), "loss loss instead of other"),
        (replace(GRAPH, aliases={}), f"alias lm_head.weight {WORDS} instead of none"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(graph, got):
    if isinstance(graph, dict):
        graph = decoder(**{"layers": 2, **graph})
    with pytest.raises(ArtifactError) as caught:
        require_model(streaming_artifact(GRAPH), graph)
    assert caught.value.message == f"artifact: must be of this model, got one with {got}"
    assert (caught.value.hint, caught.value.exit_code) == ("compile this model", 2)
