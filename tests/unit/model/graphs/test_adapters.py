"""Which layers get adapters, by names and by the vendor's classes of modules."""

import pytest

from cstool.model.graphs.adapters import adapter_scales
from cstool.model.graphs.tuning import tuned
from cstool.model.params.sections.hooks import LoraParams
from cstool.model.params.sections.tuning import Adapters, Tuning
from tests.models import decoder, encoder, encoder_decoder, vision

LAYER = "transformer_decoder.layers.0"
ATTENTION = [f"{LAYER}.self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output")]
INNER = [*ATTENTION, f"{LAYER}.ffn.ffn.0.linear_layer", f"{LAYER}.ffn.ffn.1.linear_layer"]
WORDS, HEAD = "embedding_layer.word_embeddings", "lm_head"


def modules(graph, adapters: Adapters) -> list[str]:
    tuning = Tuning(adapters=(adapters,))
    return list(adapter_scales(tuned(graph, tuning), tuning))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (("all",), INNER),
        (("embedding",), [WORDS]),
        (("head", "embedding"), [WORDS, HEAD]),
        (("word_embeddings", "*lm_head*"), [WORDS, HEAD]),
        (("*layers.0.self*",), ATTENTION),
    ],
)
def test_names_are_of_layers_tables_and_the_output_layer(layers, expected):
    """Tables of positions get none."""
    assert modules(decoder(), Adapters(1, layers)) == expected


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (None, [WORDS, *INNER, HEAD]),
        (["Linear"], [*INNER, HEAD]),
        (["Embedding"], [WORDS]),
        (["EmbeddingLayer", "Embedding"], [WORDS]),
        (["TransformerDecoder", "Linear"], INNER),
        (["MultiheadAttention", "Linear"], ATTENTION),
    ],
)
def test_classes_of_the_vendors_are_around_a_layer_or_its_own(classes, expected):
    assert modules(decoder(), LoraParams(r=1, target_modules=classes).adapters) == expected


def test_all_that_a_model_has_is_enough():
    assert modules(vision(), LoraParams(r=1).adapters)[-1].endswith("classifier.ffn.0.linear_layer")
    heads = modules(encoder(), Adapters(1, ("head",)))
    assert heads == [f"bert_{head}_head.classifier.ffn.0.linear_layer" for head in ("mlm", "cls")]


def test_two_tables_that_are_one_have_one_adapter():
    graph = tuned(encoder_decoder(), Tuning(adapters=(Adapters(1, ("embedding",)),)))
    assert list(graph.trained_weights) == [f"encoder_embeddings.word_embeddings.lora_embedding_{part}" for part in "AB"]
