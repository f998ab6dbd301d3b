"""An artifact belongs to one model."""

from dataclasses import replace
from typing import Any

import pytest

from cstool.errors import ArtifactError
from cstool.ir import Graph, Loss, require_model
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.ir.artifacts import streaming_artifact

GRAPH = decoder(layers=2)


def segment(number: int, **changes: Any) -> Graph:
    """The graph with changes to a segment."""
    segments = list(GRAPH.segments)
    segments[number] = replace(segments[number], **changes)
    return replace(GRAPH, segments=tuple(segments))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_model_is_accepted(family):
    require_model(streaming_artifact(decoder(**FAMILIES[family])), decoder(**FAMILIES[family]))


LAYER = GRAPH.segments[1]
WEIGHT, OP = LAYER.weights[0], LAYER.ops[0]
ACTIVATION = "transformer_decoder.layers.{n}.ffn.ffn.0.linear_layer.activation"


@pytest.mark.parametrize(
    ("graph", "got"),
    [
        (fc_mnist(), "model gpt2 instead of fc_mnist"),
        (decoder(layers=2, sequence=4), "input input_ids with shape (8,) instead of (4,)"),
        (decoder(layers=3), "repetitions 2 instead of 3 in segment 1"),
        (decoder(layers=2, hidden_size=16), "tensor words with shape (8, 8) instead of (8, 16) in segment 0"),
        (
            decoder(layers=2, vocab_size=12),
            "weight embedding_layer.word_embeddings.weight with shape (11, 8) instead of (12, 8) in segment 0",
        ),
        (
            decoder(layers=2, dropout=0.5),
            "op embedding_layer.position_embeddings with dropout 0.0 instead of 0.5 in segment 0",
        ),
        (
            decoder(layers=2, initializer_range=0.5),
            "weight embedding_layer.word_embeddings.weight with std 0.02 instead of 0.5 in segment 0",
        ),
        (
            decoder(layers=2, layer_norm_epsilon=0.5),
            "op transformer_decoder.layers.{n}.norm1 with epsilon 1e-05 instead of 0.5 in segment 1",
        ),
        (decoder(layers=2, nonlinearity="relu"), f"op {ACTIVATION} with function gelu instead of relu in segment 1"),
        (decoder(layers=2, share_embedding_weights=False), "weights 2 instead of 3 in segment 2"),
        (replace(GRAPH, segments=GRAPH.segments[:2]), "segments 3 instead of 2"),
        (
            segment(1, weights=LAYER.weights[1:]),
            f"weight {WEIGHT.name} instead of {LAYER.weights[1].name} in segment 1",
        ),
        (
            segment(1, weights=LAYER.weights[:-1]),
            f"weights {len(LAYER.weights)} instead of {len(LAYER.weights) - 1} in segment 1",
        ),
        (
            segment(1, weights=(replace(WEIGHT, decays=True), *LAYER.weights[1:])),
            f"weight {WEIGHT.name} with decays False instead of True in segment 1",
        ),
        (segment(1, stride=2), "stride 1 instead of 2 in segment 1"),
        (
            segment(1, ops=(replace(OP, attributes={}), *LAYER.ops[1:])),
            f"op {OP.name} with epsilon 1e-05 instead of none in segment 1",
        ),
        (replace(GRAPH, losses=(Loss("other"),)), "loss loss instead of other"),
        (replace(GRAPH, aliases={}), "alias lm_head.weight embedding_layer.word_embeddings.weight instead of none"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(graph, got):
    with pytest.raises(ArtifactError) as caught:
        require_model(streaming_artifact(GRAPH), graph)
    assert caught.value.message == f"artifact: must be of this model, got one with {got}"
    assert (caught.value.hint, caught.value.exit_code) == ("compile this model", 2)
