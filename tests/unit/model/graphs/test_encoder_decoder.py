"""Encoders with decoders: whose weights are whose, and how they begin."""

import pytest

from cstool.model.graphs import SampleForm, build_graph
from cstool.model.graphs.encoder_decoder import ENCODED
from cstool.model.ir import OpKind
from tests.models import ENCODER_DECODERS, encoder_decoder, encoder_decoder_params

STACKS = ("encoder", "decoder")
TWICE = (("pre_", "_dropout"), ("dropout_before_", ""))
WORDS = "encoder_embeddings.word_embeddings.weight"


@pytest.mark.parametrize("model", ENCODER_DECODERS)
def test_a_graph_says_the_form_that_it_was_built_for(model):
    params, form = encoder_decoder_params(**ENCODER_DECODERS[model]), SampleForm(8, targets=5)
    graph = build_graph(params, form)
    found = SampleForm.of(graph)
    assert (found.tokens, found.targets, found.predictions) == (8, 5, None)
    assert build_graph(params, found).weights == graph.weights


@pytest.mark.parametrize(
    ("keys", "aliases"),
    [
        ({}, {"decoder_embeddings.word_embeddings.weight": WORDS, "lm_head.weight": WORDS}),
        ({"share_embedding_weights": False}, {"decoder_embeddings.word_embeddings.weight": WORDS}),
        ({"share_encoder_decoder_embedding": False}, {"lm_head.weight": "decoder_embeddings.word_embeddings.weight"}),
        ({"share_encoder_decoder_embedding": False, "share_embedding_weights": False}, {}),
    ],
)
def test_tied_tables_have_all_their_names(keys, aliases):
    assert encoder_decoder(**keys).aliases == aliases


def test_all_layers_of_a_stack_read_its_table_which_does_not_decay():
    graph = encoder_decoder(layers=3)
    for stack in ("encoder", "decoder"):
        table = f"{stack}_embeddings.position_embed_helper.relative_attention_bias.weight"
        readers = [op.name for op in graph.ops if table in op.weights]
        assert readers == [f"{stack}.layers.{n}.self_attn" for n in range(3)]
        assert (graph.weights[table].shape, graph.weights[table].decays) == ((8, 2), False)


def test_the_encoder_is_done_before_the_decoder_begins_and_only_its_output_is_read():
    """What generation needs: the encoder once, then the decoder token by token."""
    graph = encoder_decoder(layers=2, dropout=0.1)
    made = next(number for number, op in enumerate(graph.ops) if ENCODED in op.outputs)
    encoder, decoder = graph.ops[: made + 1], graph.ops[made + 1 :]
    assert not any("decoder" in op.name for op in encoder)
    of_encoder = {name for op in encoder for name in op.outputs}
    assert {name for op in decoder for name in op.inputs} & of_encoder == {ENCODED}
    readers = [op.name for op in decoder if ENCODED in op.inputs]
    assert readers == [f"decoder.layers.{n}.multihead_attn.proj_{part}_dense_layer" for n in (0, 1) for part in "kv"]


def test_the_transformer_drops_twice_before_a_stack_and_t5_once():
    found = {
        name: [op.name for op in encoder_decoder(dropout=0.1, **ENCODER_DECODERS[name]).ops if op.kind is OpKind.SCALE]
        for name in ("transformer", "t5")
    }
    assert found == {
        "transformer": [f"{when}{stack}{what}" for stack in STACKS for when, what in TWICE],
        "t5": [f"dropout_{when}_{stack}" for stack in STACKS for when in ("before", "after")],
    }


LAYER = "decoder.layers.0"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # Of T5 normal ones: embeddings 1, queries 1 / sqrt(H D), what leaves the feed-forward part 1 / sqrt(F).
        (
            {"initializer_factor": 2.0},
            {
                WORDS: 2.0,
                f"{LAYER}.multihead_attn.proj_q_dense_layer.weight": 2 * 24**-0.5,
                f"{LAYER}.multihead_attn.proj_k_dense_layer.weight": 2 * 8**-0.5,
                f"{LAYER}.ffn.ffn.0.linear_layer.weight": 2 * 8**-0.5,
                f"{LAYER}.ffn.ffn.1.linear_layer.weight": 2 * 16**-0.5,
            },
        ),
        # With muP what writes to the residual begins wider by twice the layers.
        (
            {"layers": 3, **ENCODER_DECODERS["t5, muP"]},
            {
                WORDS: 8**-0.5,
                "encoder.layers.1.self_attn.proj_output_dense_layer.weight": 6 * 8**-0.5,
                "encoder.layers.1.ffn.ffn.1.linear_layer.weight": 6 * 16**-0.5,
            },
        ),
    ],
)
def test_weights_begin_as_the_vendors_do(keys, expected):
    weights = encoder_decoder(**keys).weights
    assert {name: weights[name].initializer.std for name in expected} == pytest.approx(expected)


def test_those_of_the_transformer_are_uniform():
    weights = encoder_decoder(**ENCODER_DECODERS["transformer"]).weights
    bounds = {"self_attn.proj_q_dense_layer": (3 / 27 / 7) ** 0.5, "ffn.ffn.0.linear_layer": (6 / 24) ** 0.5}
    for name, bound in bounds.items():
        initializer = weights[f"encoder.layers.0.{name}.weight"].initializer
        assert (initializer.name, initializer.high) == ("uniform", -initializer.low)
        assert initializer.high == pytest.approx(bound)
    words = weights[WORDS].initializer
    assert (words.name, words.std, words.low, words.high) == ("truncated_normal", 1.0, -2.0, 2.0)
