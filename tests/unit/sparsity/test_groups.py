"""Which weights are sparse."""

from dataclasses import replace
from typing import Any

import pytest

from cstool.errors import ParamsError
from cstool.ir import Graph
from cstool.sparsity import assign_groups
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.sparsity.sections import group

PLACE = ("x.yaml:12", "trainer.init.sparsity")
LAYER = "transformer_decoder.layers.{}."
ATTENTION = [f"self_attn.proj_{part}_dense_layer.weight" for part in ("q", "k", "v", "output")]
FEED_FORWARD = ["ffn.ffn.0.linear_layer.weight", "ffn.ffn.1.linear_layer.weight"]
STOCK = ("*proj_[qkv]_dense_layer.weight", "*proj_output_dense_layer.weight", "*linear_layer.weight")


def of_layers(names: list[str], layers: int = 2) -> set[str]:
    return {LAYER.format(number) + name for number in range(layers) for name in names}


def assign(*filters: tuple[str, ...] | None, graph: Graph | None = None, **keys: Any) -> dict[str, int]:
    groups = [group(param_filter=patterns and list(patterns), **keys) for patterns in filters]
    return assign_groups(groups, graph or decoder(layers=2), PLACE)


def failure(*filters: tuple[str, ...] | None, **keys: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        assign(*filters, **keys)
    return str(caught.value)


@pytest.mark.parametrize("patterns", [None, STOCK])
def test_the_default_and_the_stock_filter_take_all_matrices_of_layers(patterns):
    assert assign(patterns) == dict.fromkeys(of_layers([*ATTENTION, *FEED_FORWARD]), 0)


def test_without_groups_nothing_is_sparse():
    assert assign() == {}


def test_the_first_group_that_matches_takes_a_weight():
    taken = assign(("*.layers.0.*proj_q*",), ("*proj_[qk]*",), None)
    assert {name for name, number in taken.items() if number == 0} == {LAYER.format(0) + ATTENTION[0]}
    assert {name for name, number in taken.items() if number == 1} == {
        LAYER.format(1) + ATTENTION[0],
        *of_layers(ATTENTION[1:2]),
    }
    assert {name for name, number in taken.items() if number == 2} == of_layers([*ATTENTION[2:], *FEED_FORWARD])


def test_weights_are_in_the_order_of_the_graph():
    graph = decoder(layers=2)
    assert list(assign(STOCK, graph=graph)) == [name for name in graph.weights if name in assign(STOCK, graph=graph)]


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_name_may_be_written_with_model_before_it(prefix):
    name = LAYER.format(1) + FEED_FORWARD[0]
    assert assign((prefix + name,)) == {name: 0}


def test_a_pattern_that_matches_biases_too_means_the_matrices():
    assert set(assign(("*ffn.ffn.0*",))) == of_layers(FEED_FORWARD[:1])


def test_the_default_leaves_out_an_output_layer_of_another_name():
    assert set(assign(None, graph=fc_mnist(6, 4))) == {"fc_layers.0.weight", "fc_layers.1.weight"}


def test_a_pattern_that_matches_nothing_is_an_error_with_the_nearest():
    assert failure((STOCK[0], "*proj_out_dense_layer.weight")) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must match a matrix of a linear layer, "
        "got '*proj_out_dense_layer.weight'\n"
        "hint: the nearest are transformer_decoder.layers.*.self_attn.proj_output_dense_layer.weight, "
        "transformer_decoder.layers.*.self_attn.proj_q_dense_layer.weight, "
        "transformer_decoder.layers.*.self_attn.proj_k_dense_layer.weight"
    )


def test_case_matters():
    assert failure(("*FFN.ffn.0*",)).startswith(
        "x.yaml:12: trainer.init.sparsity.param_filter must match a matrix of a linear layer, got '*FFN.ffn.0*'\n"
        "hint: the nearest are transformer_decoder.layers.*.ffn.ffn.0.linear_layer.weight"
    )


def test_a_pattern_of_biases_alone_matches_no_matrix():
    assert failure(("*fc_layers.0.bias",), graph=fc_mnist()) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must match a matrix of a linear layer, got '*fc_layers.0.bias'\n"
        "hint: the nearest is fc_layers.*.weight"
    )


def test_embeddings_cannot_be_sparse():
    assert failure(("*weight",), graph=decoder(share_embedding_weights=False)) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out embedding_layer.word_embeddings.weight, "
        "which is a table of embeddings, got '*weight'\n"
        "hint: only matrices of linear layers can be sparse\n"
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out "
        "embedding_layer.position_embeddings.embed.weight, which is a table of positions, got '*weight'\n"
        "hint: only matrices of linear layers can be sparse\n"
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out lm_head.weight, "
        "which is the output layer, got '*weight'\n"
        "hint: only matrices of linear layers can be sparse"
    )


def test_a_tied_output_layer_is_refused_by_its_other_name():
    assert failure(("lm_head.weight",)) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out embedding_layer.word_embeddings.weight, "
        "which is a table of embeddings and the output layer, got 'lm_head.weight'\n"
        "hint: only matrices of linear layers can be sparse"
    )


def test_an_output_layer_of_its_own_cannot_be_sparse():
    assert failure(("last*",), graph=fc_mnist()) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out last_layer.weight, "
        "which is the output layer, got 'last*'\n"
        "hint: only matrices of linear layers can be sparse"
    )


EXPERT = "ffn.experts.experts.{}.{}.weight"
LINEAR = ("0.linear_layer", "0.linear_layer_for_glu", "1.linear_layer")


@pytest.mark.parametrize("patterns", [None, STOCK[2:], ("*.experts.experts.*",)])
def test_matrices_of_experts_are_matrices_of_linear_layers(patterns):
    mixture = decoder(**{**FAMILIES["mixtral"], "layers": 2})
    names = [EXPERT.format(expert, name) for expert in range(4) for name in LINEAR]
    if patterns == STOCK[2:]:
        names = [name for name in names if "for_glu" not in name]
    taken = assign(patterns, graph=mixture)
    assert {name for name in taken if "self_attn" not in name} == of_layers(names)


def test_a_router_cannot_be_sparse():
    assert failure(("*.layers.0.ffn.gate.weight",), graph=decoder(**FAMILIES["mixtral"])) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must leave out transformer_decoder.layers.0.ffn.gate.weight, "
        "which is a router, got '*.layers.0.ffn.gate.weight'\n"
        "hint: only matrices of linear layers can be sparse"
    )


def test_an_expert_that_is_not_there_is_an_error_with_the_nearest_of_all_experts():
    assert failure(("*.experts.experts.7.0.linear*",), graph=decoder(**FAMILIES["mixtral"])) == (
        "x.yaml:12: trainer.init.sparsity.param_filter must match a matrix of a linear layer, "
        "got '*.experts.experts.7.0.linear*'\n"
        "hint: the nearest are transformer_decoder.layers.*.ffn.experts.experts.*.0.linear_layer.weight, "
        "transformer_decoder.layers.*.ffn.experts.experts.*.1.linear_layer.weight, "
        "transformer_decoder.layers.*.ffn.experts.experts.*.0.linear_layer_for_glu.weight"
    )


def test_a_group_that_gets_nothing_is_an_error():
    assert failure(STOCK, ("*proj_q*", "*proj_k*")) == (
        "x.yaml:12: trainer.init.sparsity.1.param_filter must match a matrix that no group before it takes, "
        "got '*proj_q*', '*proj_k*'\n"
        "hint: trainer.init.sparsity.0 takes all that it matches; a narrower filter goes first"
    )


def test_two_groups_can_take_all_of_a_third():
    assert failure(("*proj_*",), ("*ffn*",), None) == (
        "x.yaml:12: trainer.init.sparsity.2.param_filter must match a matrix that no group before it takes\n"
        "hint: trainer.init.sparsity.0 and 1 take all that it matches; a narrower filter goes first"
    )


def test_a_model_without_linear_layers_cannot_be_sparse():
    (segment,) = fc_mnist(6).segments
    last = replace(segment, ops=segment.ops[-1:], weights=segment.weights[-2:])
    assert failure(None, graph=replace(fc_mnist(6), segments=(last,))) == (
        "x.yaml:12: trainer.init.sparsity must be left out: fc_mnist has no matrix of a linear layer"
    )


def test_blocks_must_divide_the_rows_or_the_columns():
    keys: dict[str, Any] = {"algorithm": "rigl", "graph": decoder(layers=2)}
    assert failure(None, balance_out_groups=3, **keys) == (
        "x.yaml:12: trainer.init.sparsity.balance_out_groups must divide the rows of "
        "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight (8 x 8), got 3\n"
        "hint: 2 and 4 are the nearest\n"
        "x.yaml:12: trainer.init.sparsity.balance_out_groups must divide the rows of "
        "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight (16 x 8), got 3\n"
        "hint: 2 and 4 are the nearest"
    )
    assert failure(("*ffn.1*",), balance_in_groups=32, **keys) == (
        "x.yaml:12: trainer.init.sparsity.balance_in_groups must divide the columns of "
        "transformer_decoder.layers.0.ffn.ffn.1.linear_layer.weight (8 x 16), got 32\n"
        "hint: 16 is the nearest"
    )
    # 16 divides the columns, and rows are what out groups cut.
    assert "balance_out_groups must divide the rows" in failure(("*ffn.1*",), balance_out_groups=16, **keys)
    assert len(assign(("*ffn.1*",), balance_in_groups=16, **keys)) == 2


def test_all_problems_are_named_at_once():
    message = failure(("nothing",), ("*word_embeddings*",), ("*proj_q*",), algorithm="rigl", balance_out_groups=3)
    starts = [line for line in message.split("\n") if not line.startswith("hint: ")]
    assert [line.split(" must ")[0] for line in starts] == [
        "x.yaml:12: trainer.init.sparsity.0.param_filter",
        "x.yaml:12: trainer.init.sparsity.1.param_filter",
        "x.yaml:12: trainer.init.sparsity.2.balance_out_groups",
    ]
