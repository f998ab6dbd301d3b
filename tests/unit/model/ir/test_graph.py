"""A graph writes repeated blocks once and reads as if they were written out."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model import ir
from cstool.model.ir import Graph, Loss, Op, OpKind, Segment, Tensor, Weight, panels_of

ZEROS = ir.Initializer("constant")


def chain(count: int = 2) -> Graph:
    """x -> linear, `count` times -> loss."""
    block = Segment(
        ops=(Op(OpKind.LINEAR, "layers.{n}", ("h.{n}",), ("h.{n+1}",), ("layers.{n}.weight",), {"key": "{n}"}),),
        tensors=(Tensor("h.{n+1}", (3,)),),
        weights=(Weight("layers.{n}.weight", (3, 3), ZEROS),),
        count=count,
    )
    last = Segment(
        ops=(Op(OpKind.SOFTMAX_LOSS, "last", (f"h.{count}", "labels", "mask"), ("loss",), ("last.weight",)),),
        tensors=(Tensor("loss", ()),),
        weights=(Weight("last.weight", (5, 3), ZEROS),),
    )
    inputs = (Tensor("h.0", (3,)), Tensor("labels", (), "int32"), Tensor("mask", ()))
    return Graph("chain", inputs, (block, last), (Loss("loss"),))


def test_a_graph_has_ops_tensors_and_weights_of_all_repetitions_in_order_of_their_use():
    graph = chain()
    assert graph.ops == (
        Op(OpKind.LINEAR, "layers.0", ("h.0",), ("h.1",), ("layers.0.weight",), {"key": "{n}"}),
        Op(OpKind.LINEAR, "layers.1", ("h.1",), ("h.2",), ("layers.1.weight",), {"key": "{n}"}),
        Op(OpKind.SOFTMAX_LOSS, "last", ("h.2", "labels", "mask"), ("loss",), ("last.weight",)),
    )
    tensors = [*graph.inputs, Tensor("h.1", (3,)), Tensor("h.2", (3,)), Tensor("loss", ())]
    assert list(graph.tensors.items()) == [(tensor.name, tensor) for tensor in tensors]
    layers = [Weight(f"layers.{n}.weight", (3, 3), ZEROS) for n in (0, 1)]
    weights = [*layers, Weight("last.weight", (5, 3), ZEROS)]
    assert list(graph.weights.items()) == [(weight.name, weight) for weight in weights]
    assert graph.parameter_count == 2 * 3 * 3 + 5 * 3


def pairs(*segments: tuple[int, int]) -> Graph:
    """Return two linear layers with the numbers {n} and {n+1}, for each segment (count, first), without a loss."""
    ops = (
        Op(OpKind.LINEAR, "a.{n}", ("h.{n}",), ("h.{n+1}",), ("a.{n}.weight",)),
        Op(OpKind.LINEAR, "b.{n+1}", ("h.{n+1}",), ("h.{n+2}",), ("b.{n+1}.weight",)),
    )
    tensors = (Tensor("h.{n+1}", (3,)), Tensor("h.{n+2}", (3,)))
    weights = tuple(Weight(op.weights[0], (3, 3), ZEROS) for op in ops)
    written = (Segment(ops, tensors, weights, count, first, stride=2) for count, first in segments)
    return Graph("pairs", (Tensor("h.0", (3,)),), tuple(written), (Loss("loss"),))


def test_a_segment_of_two_layers_numbers_both_which_may_begin_anywhere_and_go_by_any_stride():
    assert list(Segment((), (), (), count=3, first=5, stride=2).numbers) == [5, 7, 9]
    assert list(Segment((), ()).numbers) == [0]
    graph = pairs((2, 0))
    assert [(op.name, op.inputs, op.outputs, op.weights) for op in graph.ops] == [
        ("a.0", ("h.0",), ("h.1",), ("a.0.weight",)),
        ("b.1", ("h.1",), ("h.2",), ("b.1.weight",)),
        ("a.2", ("h.2",), ("h.3",), ("a.2.weight",)),
        ("b.3", ("h.3",), ("h.4",), ("b.3.weight",)),
    ]
    assert list(graph.tensors) == ["h.0", "h.1", "h.2", "h.3", "h.4"]
    assert list(graph.weights) == ["a.0.weight", "b.1.weight", "a.2.weight", "b.3.weight"]


def test_a_segment_goes_on_where_another_ended():
    apart, together = pairs((1, 0), (4, 2)), pairs((5, 0))
    assert (apart.ops, apart.tensors, apart.weights) == (together.ops, together.tensors, together.weights)
    assert [op.name for op in apart.ops][-2:] == ["a.8", "b.9"]
    assert apart.ops[-1].outputs == ("h.10",)


# What makes a graph illegal, and how it is told.
FIRST = Op(OpKind.LINEAR, "first", ("x",), ("y",), ("first.weight",))
LAST = Op(OpKind.SOFTMAX_LOSS, "last", ("y", "labels", "mask"), ("loss",), ("last.weight",))
TENSORS = (Tensor("y", (3,)), Tensor("loss", ()))
WEIGHTS = (Weight("first.weight", (3, 2), ZEROS), Weight("last.weight", (5, 3), ZEROS))
INPUTS = (Tensor("x", (2,)), Tensor("labels", (), "int32"), Tensor("mask", ()))


def graph(*ops: Op, tensors: tuple[Tensor, ...] = TENSORS, weights: tuple[Weight, ...] = WEIGHTS) -> Graph:
    return Graph("net", INPUTS, (Segment(ops, tensors, weights),), (Loss("loss"),))


ILLEGAL = [
    (graph(LAST, FIRST), "last: reads 'y', which no op before it produces"),
    (graph(replace(FIRST, inputs=("z",)), LAST), "first: reads 'z', which no op before it produces"),
    (graph(FIRST, replace(FIRST, name="again"), LAST), "again: produces 'y' a second time"),
    (graph(replace(FIRST, outputs=("x",)), LAST), "first: produces 'x' a second time"),
    (graph(FIRST, LAST, tensors=TENSORS[1:]), "first: produces 'y', which is not declared"),
    (graph(FIRST, LAST, weights=WEIGHTS[1:]), "first: uses weight 'first.weight', which is not declared"),
    (
        graph(FIRST, LAST, weights=(*WEIGHTS, Weight("c", (1,), ZEROS), Weight("b", (1,), ZEROS))),
        "weight 'b' is declared but no op uses it",
    ),
    (graph(FIRST, replace(LAST, name="first")), "op name 'first' is used 2 times"),
    (graph(FIRST, weights=WEIGHTS[:1]), "no op produces the loss 'loss'"),
    (replace(graph(FIRST, LAST), losses=()), "the losses that ops produce are ['loss'], and the graph has []"),
]


@pytest.mark.parametrize(("found", "message"), ILLEGAL, ids=[message for _, message in ILLEGAL])
def test_a_graph_is_illegal_in_which(found, message):
    ir.verify(graph(FIRST, LAST))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ir.verify(found)


@pytest.mark.parametrize(  # count and first number, by a stride of 2
    ("repeated", "name", "times"),
    [([("first", 3, 0)], "first", 3), ([("layer.{n}", 3, 0), ("layer.{n}", 1, 4)], "layer.4", 2)],
)
def test_names_are_compared_after_repetitions_are_written_out(repeated, name, times):
    tensors, weights = (Tensor("y.{n}", (3,)),), (Weight("w", (3, 2), ZEROS),)
    segments = tuple(
        Segment((Op(OpKind.LINEAR, op, ("x",), ("y.{n}",), ("w",)),), tensors, weights, count, first, 2)
        for op, count, first in repeated
    )
    with pytest.raises(ValueError, match=rf"^op name '{name}' is used {times} times$"):
        ir.verify(Graph("net", INPUTS, segments, (Loss("y.0"),)))


@pytest.mark.parametrize(("alias", "name"), [("other", "none"), ("first.weight", "first.weight")])
def test_an_alias_is_another_name_of_a_weight(alias, name):
    with pytest.raises(ValueError, match=f"^'{alias}' must be another name of a weight, got '{name}'$"):
        ir.verify(replace(graph(FIRST, LAST), aliases={alias: name}))


# Panels: how a weight is cut for its way through the systems.
shapes = st.one_of(
    st.tuples(st.integers(1, 100_000), st.integers(1, 10_000)),
    st.tuples(st.integers(1, 100), st.integers(1, 20_000_000)),
)
matrices = shapes.map(lambda shape: Weight("w", shape, ir.Initializer("constant")))


@given(matrices)
def test_panels_are_even_cover_every_row_once_in_order_and_are_as_few_as_can_be(weight):
    panels, (all_rows, columns) = panels_of(weight), weight.shape
    edges = [0, *(panel.stop for panel in panels)]
    assert [panel.start for panel in panels] == edges[:-1]
    assert edges[-1] == all_rows
    rows = [panel.stop - panel.start for panel in panels]
    assert 1 <= max(rows) <= min(rows) + 1
    assert all(4 * panel.size <= 32 * 2**20 or count == 1 for panel, count in zip(panels, rows, strict=True))
    fewer = len(panels) - 1
    limit = 8 * 2**20 if fewer == 1 else ir.PANEL_BYTES
    assert fewer == 0 or 4 * columns * -(-all_rows // fewer) > limit


def test_a_matrix_of_more_than_8_mib_is_two_panels_that_of_gpt2_small_five_and_a_vector_one_however_long():
    panels = {
        rows: len(panels_of(Weight("w", (rows, 2048), ir.Initializer("constant")))) for rows in (1024, 1025, 2048)
    }
    assert panels == {1024: 1, 1025: 2, 2048: 2}
    weight = Weight("embedding_layer.word_embeddings.weight", (50257, 768), ir.Initializer("constant"))
    edges = [0, 10051, 20102, 30154, 40205, 50257]
    assert panels_of(weight) == tuple(
        ir.Panel(weight.name, n, a, b, (b - a, 768)) for n, (a, b) in enumerate(pairwise(edges))
    )
    vector = Weight("b", (20_000_000,), ir.Initializer("constant"))
    assert panels_of(vector) == (ir.Panel("b", 0, 0, 20_000_000, (20_000_000,)),)
    assert ir.Panel("w", 1, 5, 9, (4, 6)).size == 24


@given(matrices, matrices)
def test_sizes_are_those_of_all_panels_whatever_weights_are_alike(one, other):
    weights = [one, replace(one, name="like one"), other]
    assert ir.panel_sizes(weights) == {panel.size for weight in weights for panel in panels_of(weight)}
