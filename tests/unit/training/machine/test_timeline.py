"""The order of a step: what runs forward again before which backward, and what need not."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cstool.model.ir import OP_RULES, Graph, OpKind
from cstool.training.machine.timeline import Visit, layers_of, make_timeline
from tests.models import FAMILIES, decoder, fc_mnist

LAYER = "transformer_decoder.layers.{}"


def way_back(graph: Graph) -> list[str]:
    """Return the way back of a step that recomputes, in words."""
    timeline = make_timeline(graph, trains=True, recomputes=True)
    return [f"{'again' if forward else 'back'} {graph.ops[position].name}" for position, forward in timeline.way_back]


def again(graph: Graph) -> set[str]:
    return {graph.ops[position].name for position in make_timeline(graph, trains=True, recomputes=True).again}


def names(graph: Graph, layer: range) -> Iterator[str]:
    return (graph.ops[position].name for position in layer)


def test_without_recomputation_the_way_back_is_the_way_there_reversed():
    graph = decoder(layers=3)
    timeline = make_timeline(graph, trains=True, recomputes=False)
    assert timeline.way_back == tuple(Visit(i, forward=False) for i in reversed(range(len(graph.ops))))
    assert timeline.recomputed == ()


def test_evaluation_has_no_way_back_and_of_a_single_layer_nothing_is_recomputed():
    for recomputes in (True, False):
        timeline = make_timeline(decoder(layers=3), trains=False, recomputes=recomputes)
        assert (timeline.way_back, timeline.recomputed, timeline.again) == ((), (), frozenset())
    for graph in (decoder(layers=1), fc_mnist(4)):
        plain, recomputing = (make_timeline(graph, trains=True, recomputes=choice) for choice in (False, True))
        assert recomputing == plain


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "falcon, one norm", "mixtral"])
def test_every_layer_of_a_decoder_is_one_even_where_two_that_differ_are_written_as_a_pair(family):
    graph = decoder(layers=5, **FAMILIES[family])
    layers = layers_of(graph.ops)
    for number, layer in enumerate(layers):
        assert all(name.startswith(f"{LAYER.format(number)}.") for name in names(graph, layer))
    assert len(layers) == 5
    inside = {position for layer in layers for position in layer}
    assert not any("layers." in op.name for i, op in enumerate(graph.ops) if i not in inside)


def test_a_layer_of_a_fully_connected_network_is_a_product_and_its_activation():
    graph = fc_mnist(*[3] * 11)
    assert [list(names(graph, layer)) for layer in layers_of(graph.ops)] == [
        [f"fc_layers.{n}", f"fc_layers.{n}.activation"] for n in range(11)
    ]


def test_a_layer_runs_forward_again_just_before_its_backward_but_the_last_does_not():
    assert way_back(fc_mnist(3, 3, 3)) == [
        *("back last_layer", "back fc_layers.2.activation", "back fc_layers.2"),
        *("again fc_layers.1", "back fc_layers.1.activation", "back fc_layers.1"),
        *("again fc_layers.0", "back fc_layers.0.activation", "back fc_layers.0"),
    ]


@pytest.mark.parametrize(
    ("family", "ends"), [("gpt2", ("", ".residual")), ("gemma2", (".residual",))], ids=["gpt2", "gemma2"]
)
def test_what_ends_a_layer_does_not_run_again_where_backward_does_not_read_it(family, ends):
    """Gemma ends with a norm whose input and statistics it reads."""
    graph = decoder(layers=2, **FAMILIES[family])
    first, _ = layers_of(graph.ops)
    end = f"{LAYER.format(0)}.ffn.ffn.1.linear_layer"
    assert set(names(graph, first)) - again(graph) == {f"{end}{which}" for which in ends}


def test_an_op_whose_own_output_backward_reads_runs_again(monkeypatch):
    graph = decoder(layers=2)
    end = f"{LAYER.format(0)}.ffn.ffn.1.linear_layer"
    assert end not in again(graph)
    monkeypatch.setitem(OP_RULES, OpKind.LINEAR, replace(OP_RULES[OpKind.LINEAR], reads_outputs=True))  # type: ignore[misc]
    assert end in again(graph)


def test_what_crosses_a_boundary_is_still_there_and_need_not_be_made_again():
    """The first product is read by its activation, whose backward reads it, and by the layer after."""
    graph = fc_mnist(4, 4, 4)
    (segment,) = graph.segments
    assert again(graph) == {"fc_layers.0", "fc_layers.1"}
    joined = replace(segment.ops[3], kind=OpKind.RESIDUAL, inputs=("fc_layers.1.y", "fc_layers.0.y"))
    ops = (*segment.ops[:3], joined, *segment.ops[4:])
    skipping = replace(graph, segments=(replace(segment, ops=ops),))
    assert again(skipping) == set()
    assert len(make_timeline(skipping, trains=True, recomputes=True).recomputed) == 0
