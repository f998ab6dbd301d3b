"""Shapes: every family passes, and whatever does not go together is named."""

import re

import pytest

from cstool.compiler.compile import infer_shapes
from cstool.compiler.program import Program
from cstool.ir import Graph, Tensor, Weight
from tests.models import decoder
from tests.unit.compiler.programs import FAMILY_NAMES, a_request, every_family, with_op, with_shape

LAYER = "transformer_decoder.layers.{n}"
ATTENTION = f"{LAYER}.self_attn"
FFN = f"{LAYER}.ffn.ffn.0.linear_layer"


def infer(graph: Graph) -> Program:
    return infer_shapes(Program(graph, a_request()))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_family_goes_together(family):
    graph = every_family(dropout=0.1)[family]
    assert infer(graph).graph is graph


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_no_tensor_of_any_family_may_have_one_element_more(family):
    """Slow on purpose: each declared shape, each of its sizes, made wrong one at a time."""
    graph = every_family(layers=2)[family]
    for segment in graph.segments:
        things: list[Tensor | Weight] = [*segment.tensors, *segment.weights]
        for thing in things:
            for axis in range(len(thing.shape)):
                shape = tuple(size + (axis == n) for n, size in enumerate(thing.shape))
                is_spare_row = thing.name.endswith("position_embeddings.embed.weight") and axis == 0
                is_row_of_table = "word_embeddings" in thing.name and axis == 0
                # A bias would count the classes, too.
                is_class = thing.name == "lm_head.weight" and axis == 0 and len(segment.ops[-1].weights) == 1
                if is_spare_row or is_row_of_table or is_class:
                    infer(with_shape(graph, thing.name, shape))
                    continue
                with pytest.raises(ValueError, match=": "):
                    infer(with_shape(graph, thing.name, shape))


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
            "embedding_layer.position_embeddings.embed.weight",
            (7, 8),
            "embedding_layer.position_embeddings: table (7, 8) does not fit 8 positions",
        ),
        (
            "embedding_layer.word_embeddings.weight",
            (11, 9),
            "embedding_layer.word_embeddings: makes (8, 9), is declared to make (8, 8)",
        ),
        (
            "labels",
            (7,),
            "lm_head: inputs (8, 8), labels (7,), mask (8,) and weight (11, 8) do not fit",
        ),
        ("mask", (7,), "lm_head: inputs (8, 8), labels (8,), mask (7,) and weight (11, 8) do not fit"),
        (
            f"{ATTENTION}.proj_q_dense_layer.bias",
            (9,),
            f"{ATTENTION}.proj_q_dense_layer: bias (9,) does not fit 8 outputs",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_named(name, shape, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        infer(with_shape(decoder(), name, shape))


@pytest.mark.parametrize(
    ("op", "changes", "message"),
    [
        (ATTENTION, {"attributes": {"heads": 3}}, f"{ATTENTION}: 3 heads, 2 of keys"),
        (ATTENTION, {"attributes": {"kv_heads": 1}}, f"{ATTENTION}: 2 heads, 1 of keys"),
        (
            ATTENTION,
            {
                "inputs": (
                    f"{ATTENTION}.proj_q_dense_layer.y",
                    f"{ATTENTION}.proj_k_dense_layer.y",
                    "input_ids",
                )
            },
            f"{ATTENTION}: keys (8, 8) and values (8,) do not fit queries (8, 8)",
        ),
        (
            f"{LAYER}.ffn.ffn.1.linear_layer.residual",
            {"inputs": (f"{FFN}.y", f"{LAYER}.residual")},
            f"{LAYER}.ffn.ffn.1.linear_layer.residual: inputs differ in shape, (8, 16) and (8, 8)",
        ),
    ],
)
def test_inputs_that_do_not_go_together_are_named(op, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        infer(with_op(decoder(), op, **changes))
