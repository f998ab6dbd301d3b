"""A graph writes repeated blocks once and reads as if they were written out."""

from __future__ import annotations

from cstool.ir import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight

ZEROS = Initializer("constant")


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
    return Graph("chain", inputs, (block, last), "loss")


def test_ops_are_written_out_in_execution_order() -> None:
    assert chain().ops == (
        Op(OpKind.LINEAR, "layers.0", ("h.0",), ("h.1",), ("layers.0.weight",), {"key": "{n}"}),
        Op(OpKind.LINEAR, "layers.1", ("h.1",), ("h.2",), ("layers.1.weight",), {"key": "{n}"}),
        Op(OpKind.SOFTMAX_LOSS, "last", ("h.2", "labels", "mask"), ("loss",), ("last.weight",)),
    )


def test_tensors_are_known_by_name_inputs_first() -> None:
    assert dict(chain().tensors) == {
        "h.0": Tensor("h.0", (3,)),
        "labels": Tensor("labels", (), "int32"),
        "mask": Tensor("mask", ()),
        "h.1": Tensor("h.1", (3,)),
        "h.2": Tensor("h.2", (3,)),
        "loss": Tensor("loss", ()),
    }
    assert list(chain().tensors) == ["h.0", "labels", "mask", "h.1", "h.2", "loss"]


def test_weights_are_known_by_name_in_the_order_of_their_first_use() -> None:
    assert list(chain().weights.items()) == [
        ("layers.0.weight", Weight("layers.0.weight", (3, 3), ZEROS)),
        ("layers.1.weight", Weight("layers.1.weight", (3, 3), ZEROS)),
        ("last.weight", Weight("last.weight", (5, 3), ZEROS)),
    ]


def test_numbers_have_as_many_digits_as_they_need() -> None:
    assert [op.name for op in chain(11).ops][9:11] == ["layers.9", "layers.10"]
    assert chain(11).ops[9].outputs == ("h.10",)


def test_the_parameter_count_is_that_of_all_elements() -> None:
    assert chain().parameter_count == 2 * 3 * 3 + 5 * 3


def test_the_size_of_a_weight_is_its_number_of_elements() -> None:
    assert Weight("w", (4, 6), ZEROS).size == 24
