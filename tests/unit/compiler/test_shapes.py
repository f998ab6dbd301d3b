"""Shapes: every family passes, and whatever does not go together is named."""

import re
from contextlib import nullcontext

import pytest

from cstool.compiler.compile import infer_shapes
from cstool.compiler.program import Program
from cstool.ir import Graph
from tests.models import decoder
from tests.unit.compiler.programs import FAMILY_NAMES, a_request, every_family, with_op, with_shape

LAYER = "transformer_decoder.layers.{n}"
ATTENTION = f"{LAYER}.self_attn"
FFN = f"{LAYER}.ffn.ffn.0.linear_layer"


def infer(graph: Graph) -> Program:
    return infer_shapes(Program(graph, a_request()))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_family_goes_together_and_no_tensor_of_it_may_have_one_element_more(family):
    """Slow on purpose: each declared shape, each of its sizes, made wrong one at a time."""
    graph = every_family(dropout=0.1)[family]
    assert infer(graph).graph is graph
    graph = every_family(layers=2)[family]
    things = [
        (s, each, axis) for s in graph.segments for each in (*s.tensors, *s.weights) for axis in range(len(each.shape))
    ]
    for segment, thing, axis in things:
        changed = with_shape(graph, thing.name, tuple(size + (axis == n) for n, size in enumerate(thing.shape)))
        is_spare_row = thing.name.endswith("position_embeddings.embed.weight") and axis == 0
        is_row_of_table = "word_embeddings" in thing.name and axis == 0
        # A bias would count the classes, too.
        is_class = thing.name == "lm_head.weight" and axis == 0 and len(segment.ops[-1].weights) == 1
        fits = is_spare_row or is_row_of_table or is_class
        with nullcontext() if fits else pytest.raises(ValueError, match=": "):
            infer(changed)


QUERY, EMBEDDING = f"{ATTENTION}.proj_q_dense_layer", "embedding_layer"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (f"{FFN}.y", (8, 17), f"{FFN}: makes (8, 16), is declared to make (8, 17)"),
        (f"{FFN}.weight", (16, 9), f"{FFN}: weight (16, 9) does not fit inputs (8, 8)"),
        (f"{FFN}.weight", (15, 8), f"{FFN}: makes (8, 15), is declared to make (8, 16)"),
        (f"{FFN}.bias", (17,), f"{FFN}.activation: weight (17,) does not fit inputs (8, 16)"),
        (f"{LAYER}.norm1.weight", (7,), f"{LAYER}.norm1: weight (7,) does not fit inputs (8, 8)"),
        (
            f"{LAYER}.residual",
            (8, 9),
            f"{ATTENTION}.proj_output_dense_layer.residual: makes (8, 8), is declared to make (8, 9)",
        ),
        (
            f"{EMBEDDING}.position_embeddings.embed.weight",
            (7, 8),
            f"{EMBEDDING}.position_embeddings: table (7, 8) does not fit 8 positions",
        ),
        (
            f"{EMBEDDING}.word_embeddings.weight",
            (11, 9),
            f"{EMBEDDING}.word_embeddings: makes (8, 9), is declared to make (8, 8)",
        ),
        ("labels", (7,), "lm_head: inputs (8, 8), labels (7,), mask (8,) and weight (11, 8) do not fit"),
        ("mask", (7,), "lm_head: inputs (8, 8), labels (8,), mask (7,) and weight (11, 8) do not fit"),
        (f"{QUERY}.bias", (9,), f"{QUERY}: bias (9,) does not fit 8 outputs"),
        (ATTENTION, {"attributes": {"heads": 3}}, f"{ATTENTION}: 3 heads, 2 of keys"),
        (ATTENTION, {"attributes": {"kv_heads": 1}}, f"{ATTENTION}: 2 heads, 1 of keys"),
        (
            ATTENTION,
            {"inputs": (f"{QUERY}.y", f"{ATTENTION}.proj_k_dense_layer.y", "input_ids")},
            f"{ATTENTION}: keys (8, 8) and values (8,) do not fit queries (8, 8)",
        ),
        (
            f"{LAYER}.ffn.ffn.1.linear_layer.residual",
            {"inputs": (f"{FFN}.y", f"{LAYER}.residual")},
            f"{LAYER}.ffn.ffn.1.linear_layer.residual: inputs differ in shape, (8, 16) and (8, 8)",
        ),
    ],
)
def test_a_shape_or_an_op_that_does_not_fit_is_named(name, shape, message):
    changed = with_op(decoder(), name, **shape) if isinstance(shape, dict) else with_shape(decoder(), name, shape)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        infer(changed)
