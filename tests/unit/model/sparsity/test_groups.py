"""Which weights are sparse."""

from dataclasses import replace
from typing import Any

import pytest

from cstool.foundation.errors import ParamsError
from cstool.model.ir import Graph
from cstool.model.sparsity import assign_groups
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.model.params.conftest import cases, told
from tests.unit.model.sparsity.sections import group

PLACE = ("x.yaml:12", "trainer.init.sparsity")
LAYER = "transformer_decoder.layers.{}."
ATTENTION = [f"self_attn.proj_{part}_dense_layer.weight" for part in ("q", "k", "v", "output")]
FEED_FORWARD = ["ffn.ffn.0.linear_layer.weight", "ffn.ffn.1.linear_layer.weight"]
RIGL: dict[str, Any] = {"algorithm": "rigl", "graph": decoder(layers=2)}
STOCK = ("*proj_[qkv]_dense_layer.weight", "*proj_output_dense_layer.weight", "*linear_layer.weight")


def of_layers(names: list[str], layers: int = 2) -> set[str]:
    return {LAYER.format(number) + name for number in range(layers) for name in names}


def assign(*filters: tuple[str, ...] | None, graph: Graph | None = None, **keys: Any) -> dict[str, int]:
    groups = [group(param_filter=patterns and list(patterns), **keys) for patterns in filters]
    return assign_groups(groups, graph or decoder(layers=2), PLACE)


MUST_MATCH = "param_filter must match a matrix of a linear layer, got"


def lines(*problems: str) -> str:
    """Return a message of problems, each of `trainer.init.sparsity`, and hints."""
    starts = {"h": "", ".": "x.yaml:12: trainer.init.sparsity", " ": "x.yaml:12: trainer.init.sparsity"}
    return "\n".join(starts[problem[0]] + problem for problem in problems)


def failure(*filters: tuple[str, ...] | None, **keys: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        assign(*filters, **keys)
    return str(caught.value)


@pytest.mark.parametrize("patterns", [None, STOCK])
def test_the_default_and_the_stock_filter_take_all_matrices_of_layers(patterns):
    assert assign(patterns) == dict.fromkeys(of_layers([*ATTENTION, *FEED_FORWARD]), 0)


def test_the_first_group_that_matches_takes_a_weight_in_the_order_of_the_graph():
    assert assign() == {}
    taken = assign(("*.layers.0.*proj_q*",), ("*proj_[qk]*",), None)
    assert [{name for name, number in taken.items() if number == group} for group in range(3)] == [
        {LAYER.format(0) + ATTENTION[0]},
        {LAYER.format(1) + ATTENTION[0], *of_layers(ATTENTION[1:2])},
        of_layers([*ATTENTION[2:], *FEED_FORWARD]),
    ]
    graph = decoder(layers=2)
    assert list(assign(STOCK, graph=graph)) == [name for name in graph.weights if name in assign(STOCK, graph=graph)]


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_name_may_be_written_with_model_before_it(prefix):
    name = LAYER.format(1) + FEED_FORWARD[0]
    assert assign((prefix + name,)) == {name: 0}


def test_a_pattern_that_matches_biases_too_means_the_matrices_and_the_default_leaves_out_the_output_layer():
    assert set(assign(("*ffn.ffn.0*",))) == of_layers(FEED_FORWARD[:1])
    assert set(assign(None, graph=fc_mnist(6, 4))) == {"fc_layers.0.weight", "fc_layers.1.weight"}


EXPERT = "ffn.experts.experts.{}.{}.weight"
LINEAR = ("0.linear_layer", "0.linear_layer_for_glu", "1.linear_layer")


@pytest.mark.parametrize("patterns", [None, STOCK[2:], ("*.experts.experts.*",)])
def test_matrices_of_experts_are_matrices_of_linear_layers(patterns):
    names = [EXPERT.format(expert, name) for expert in range(4) for name in LINEAR]
    if patterns == STOCK[2:]:
        names = [name for name in names if "for_glu" not in name]
    taken = assign(patterns, graph=decoder(**{**FAMILIES["mixtral"], "layers": 2}))
    assert {name for name in taken if "self_attn" not in name} == of_layers(names)


GRAPHS = {"gpt2": decoder(layers=2), "untied": decoder(share_embedding_weights=False), "fc_mnist": fc_mnist()}
GRAPHS["mixtral"] = decoder(**FAMILIES["mixtral"])
WORDS = {"MUST_MATCH": MUST_MATCH, "LEAVE_OUT": "param_filter must leave out"}
WORDS |= {"NOT_A_MATRIX": "hint: only matrices of linear layers can be sparse"}
WORDS |= {"EXPERTS": "transformer_decoder.layers.*.ffn.experts.experts.*", "LAYER": "transformer_decoder.layers.0"}
WORDS |= {"ATTENTION": "transformer_decoder.layers.*.self_attn", "TABLE": "embedding_layer.word_embeddings.weight"}


@pytest.mark.parametrize(
    ("asked", "problems"),
    cases("""\
gpt2: [["*proj_[qkv]_dense_layer.weight", "*proj_out_dense_layer.weight"]] => .MUST_MATCH '*proj_out_dense_layer.weight'
    hint: the nearest are ATTENTION.proj_output_dense_layer.weight, ATTENTION.proj_q_dense_layer.weight,
        ATTENTION.proj_k_dense_layer.weight
fc_mnist: [["*fc_layers.0.bias"]] => .MUST_MATCH '*fc_layers.0.bias'\nhint: the nearest is fc_layers.*.weight
mixtral: [["*.experts.experts.7.0.linear*"]] => .MUST_MATCH '*.experts.experts.7.0.linear*'
    hint: the nearest are EXPERTS.0.linear_layer.weight, EXPERTS.1.linear_layer.weight,
        EXPERTS.0.linear_layer_for_glu.weight
untied: [["*weight"]] => .LEAVE_OUT TABLE, which is a table of embeddings, got '*weight'
    NOT_A_MATRIX
    .LEAVE_OUT embedding_layer.position_embeddings.embed.weight, which is a table of positions, got '*weight'
    NOT_A_MATRIX
    .LEAVE_OUT lm_head.weight, which is the output layer, got '*weight'
    NOT_A_MATRIX
gpt2: [["lm_head.weight"]] =>
    .LEAVE_OUT TABLE, which is a table of embeddings and the output layer, got 'lm_head.weight'
    NOT_A_MATRIX
fc_mnist: [["last*"]] => .LEAVE_OUT last_layer.weight, which is the output layer, got 'last*'
    NOT_A_MATRIX
mixtral: [["*.layers.0.ffn.gate.weight"]] =>
    .LEAVE_OUT LAYER.ffn.gate.weight, which is a router, got '*.layers.0.ffn.gate.weight'
    NOT_A_MATRIX
gpt2: [["*proj*", "*linear_layer.weight"], ["*proj_q*", "*proj_k*"]] =>
    .1.param_filter must match a matrix that no group before it takes, got '*proj_q*', '*proj_k*'
    hint: trainer.init.sparsity.0 takes all that it matches; a narrower filter goes first
gpt2: [["*proj_*"], ["*ffn*"], null] => .2.param_filter must match a matrix that no group before it takes
    hint: trainer.init.sparsity.0 and 1 take all that it matches; a narrower filter goes first
{gpt2: [null], balance_out_groups: 3} =>
    .balance_out_groups must divide the rows of LAYER.self_attn.proj_q_dense_layer.weight (8 x 8), got 3
    hint: 2 and 4 are the nearest
    .balance_out_groups must divide the rows of LAYER.ffn.ffn.0.linear_layer.weight (16 x 8), got 3
    hint: 2 and 4 are the nearest
{gpt2: [["*ffn.1*"]], balance_in_groups: 32} =>
    .balance_in_groups must divide the columns of LAYER.ffn.ffn.1.linear_layer.weight (8 x 16), got 32
    hint: 16 is the nearest
{gpt2: [["*ffn.1*"]], balance_out_groups: 16} =>
    .balance_out_groups must divide the rows of LAYER.ffn.ffn.1.linear_layer.weight (8 x 16), got 16
    hint: 8 is the nearest
"""),
)
def test_what_cannot_be_sparse_is_told(asked, problems):
    (graph, filters), *balance = asked.items()
    keys = {"algorithm": "rigl", **dict(balance)} if balance else {}
    assert failure(*filters, graph=GRAPHS[graph], **keys) == lines(*told(problems, **WORDS).split("\n"))


def test_case_matters():
    assert failure(("*FFN.ffn.0*",)).startswith(
        lines(f".{MUST_MATCH} '*FFN.ffn.0*'", f"hint: the nearest are {LAYER.format('*')}{FEED_FORWARD[0]}")
    )


def test_a_model_without_linear_layers_cannot_be_sparse():
    (segment,) = fc_mnist(6).segments
    last = replace(segment, ops=segment.ops[-1:], weights=segment.weights[-2:])
    expected = lines(" must be left out: fc_mnist has no matrix of a linear layer")
    assert failure(None, graph=replace(fc_mnist(6), segments=(last,))) == expected


def test_blocks_that_divide_are_as_many_as_columns_may_be():
    assert len(assign(("*ffn.1*",), balance_in_groups=16, **RIGL)) == 2


def test_all_problems_are_named_at_once():
    message = failure(("nothing",), ("*word_embeddings*",), ("*proj_q*",), algorithm="rigl", balance_out_groups=3)
    starts = [line for line in message.split("\n") if not line.startswith("hint: ")]
    places = ("0.param_filter", "1.param_filter", "2.balance_out_groups")
    assert [line.split(" must ")[0] for line in starts] == [f"x.yaml:12: trainer.init.sparsity.{p}" for p in places]
