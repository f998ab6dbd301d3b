"""A graph writes repeated blocks once and reads as if they were written out."""

from cstool.ir import Graph, Initializer, Loss, Op, OpKind, Segment, Tensor, Weight

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


def test_a_segment_may_begin_anywhere_and_go_by_any_stride():
    assert list(Segment((), (), (), count=3, first=5, stride=2).numbers) == [5, 7, 9]
    assert list(Segment((), ()).numbers) == [0]
    assert list(Segment((), (), count=3).numbers) == [0, 1, 2]


def test_a_segment_of_two_layers_numbers_both():
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
