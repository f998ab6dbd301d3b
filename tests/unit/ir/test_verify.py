"""What makes a graph illegal, and how it is told."""

import re
from dataclasses import replace

import pytest

from cstool.ir import Graph, Initializer, Loss, Op, OpKind, Segment, Tensor, Weight, verify

ZEROS = Initializer("constant")
FIRST = Op(OpKind.LINEAR, "first", ("x",), ("y",), ("first.weight",))
LAST = Op(OpKind.SOFTMAX_LOSS, "last", ("y", "labels", "mask"), ("loss",), ("last.weight",))
TENSORS = (Tensor("y", (3,)), Tensor("loss", ()))
WEIGHTS = (Weight("first.weight", (3, 2), ZEROS), Weight("last.weight", (5, 3), ZEROS))
INPUTS = (Tensor("x", (2,)), Tensor("labels", (), "int32"), Tensor("mask", ()))


def graph(*ops: Op, tensors: tuple[Tensor, ...] = TENSORS, weights: tuple[Weight, ...] = WEIGHTS) -> Graph:
    return Graph("net", INPUTS, (Segment(ops, tensors, weights),), (Loss("loss"),))


def test_a_legal_graph_passes():
    verify(graph(FIRST, LAST))


ILLEGAL = {
    "a tensor is read before it is produced": (graph(LAST, FIRST), "last: reads 'y', which no op before it produces"),
    "a tensor is read that does not exist": (
        graph(replace(FIRST, inputs=("z",)), LAST),
        "first: reads 'z', which no op before it produces",
    ),
    "a tensor is made twice": (graph(FIRST, replace(FIRST, name="again"), LAST), "again: produces 'y' a second time"),
    "an input is produced": (graph(replace(FIRST, outputs=("x",)), LAST), "first: produces 'x' a second time"),
    "no output is declared": (graph(FIRST, LAST, tensors=TENSORS[1:]), "first: produces 'y', which is not declared"),
    "a weight is not declared": (
        graph(FIRST, LAST, weights=WEIGHTS[1:]),
        "first: uses weight 'first.weight', which is not declared",
    ),
    "a weight is never used": (
        graph(FIRST, LAST, weights=(*WEIGHTS, Weight("c", (1,), ZEROS), Weight("b", (1,), ZEROS))),
        "weight 'b' is declared but no op uses it",
    ),
    "two ops have one name": (graph(FIRST, replace(LAST, name="first")), "op name 'first' is used 2 times"),
    "no op produces the loss": (graph(FIRST, weights=WEIGHTS[:1]), "no op produces the loss 'loss'"),
    "a loss is forgotten": (
        replace(graph(FIRST, LAST), losses=()),
        "the losses that ops produce are ['loss'], and the graph has []",
    ),
}


@pytest.mark.parametrize(("found", "message"), ILLEGAL.values(), ids=ILLEGAL)
def test_a_graph_is_illegal_in_which(found, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        verify(found)


@pytest.mark.parametrize(
    ("repeated", "name", "times"),
    [
        # count and first number, by a stride of 2
        ([("first", 3, 0)], "first", 3),
        ([("layer.{n}", 3, 0), ("layer.{n}", 1, 4)], "layer.4", 2),
    ],
)
def test_names_are_compared_after_repetitions_are_written_out(repeated, name, times):
    tensors, weights = (Tensor("y.{n}", (3,)),), (Weight("w", (3, 2), ZEROS),)
    segments = tuple(
        Segment((Op(OpKind.LINEAR, op, ("x",), ("y.{n}",), ("w",)),), tensors, weights, count, first, 2)
        for op, count, first in repeated
    )
    with pytest.raises(ValueError, match=rf"^op name '{name}' is used {times} times$"):
        verify(Graph("net", INPUTS, segments, (Loss("y.0"),)))


@pytest.mark.parametrize(("alias", "name"), [("other", "none"), ("first.weight", "first.weight")])
def test_an_alias_is_another_name_of_a_weight(alias, name):
    with pytest.raises(ValueError, match=f"^'{alias}' must be another name of a weight, got '{name}'$"):
        verify(replace(graph(FIRST, LAST), aliases={alias: name}))
