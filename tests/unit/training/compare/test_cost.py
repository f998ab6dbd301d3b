"""What a step costs: against what is counted elsewhere, and what a run itself allocates and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cstool.model.graphs.statistics import Flops, count_statistics
from cstool.model.ir import Graph
from cstool.model.optimizers import costed_optimizer, state_numbers
from cstool.model.params import AdamW, SparsityParams
from cstool.model.params.sections.optimizers import Adafactor
from cstool.training.compare.cost import OUTSIDE, build_cost, op_products
from cstool.training.compare.race import Finish
from cstool.training.compare.verdict import Cost
from cstool.training.kernels.sparse import pattern_bytes
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.run.result import RunResult
from tests.models import FAMILIES, decoder, dpr, fc_mnist

ADAM = AdamW()
QUERY = "transformer_decoder.layers.{}.self_attn.proj_q_dense_layer.weight"
KERNELS = {"forward": "sparse", "delta": "dense", "gradient": "both"}


@pytest.mark.parametrize("family", FAMILIES)
def test_ops_together_are_what_statistics_count(family):
    graph = decoder(layers=3, **FAMILIES[family])
    total = sum((flops for flops, _ in op_products(graph).values()), Flops())
    assert total == count_statistics(graph).sample_flops


def test_nobody_wants_the_delta_of_an_image():
    products = op_products(fc_mnist())
    assert [wanted for _, wanted in products.values()][:2] == [False, True]


class Halves:
    """Stands in for the measured kernels: twice as fast in every product."""

    asked: list[tuple[int, int, float, float]] = []

    def __init__(self, *panel: Any) -> None:
        self.asked.append(panel)

    def speedup(self, choice: Any, with_delta: bool) -> float:
        assert (tuple(choice), with_delta) == ((True, False, True), True)
        return 2.0


class Asked:
    """Stands in for the measured kernels: as fast as dense ones."""

    def __init__(self, *_: object) -> None: ...

    def speedup(self, *_: object) -> float:
        return 1.0


def cost_of(
    graph: Graph,
    sparse: Sequence[str],
    sparsity: float,
    table: Mapping[str, Any],
    *,
    shares: Mapping[str, float] | None = None,
    waves: int = 1,
    ceiling: Any = Asked,
    optimizer: Any = ADAM,
    **how: Any,
) -> Cost:
    """What a step costs, where a dense one takes 2 s and a sparse one 1 s."""

    def finish(step_s: float, **result: Any) -> Finish:
        ran = RunResult("train", "gpt2", 1, waves=waves, **result)
        parts = {op.name: 0.001 for op in graph.ops} | dict(shares or {})
        return Finish("x", (1.0,), (step_s,), step_s, parts, None, ran, None)

    Halves.asked.clear()
    groups = dict.fromkeys(sparse, SparsityParams(sparsity=sparsity))
    ends = finish(2.0), finish(1.0, sparsity=[dict(table)] if table else [])
    batch_size, num_steps = how.pop("batch_size", 1), how.pop("num_steps", 5)
    model = KeptModel(graph, costed_optimizer(optimizer), SparsityRules(groups, last_step=num_steps), **how)
    return build_cost(model, *ends, batch_size=batch_size, ceiling_of=ceiling)


def test_ops_that_are_alike_share_a_row_and_the_rest_is_the_step():
    graph, queries = decoder(layers=2), [QUERY.format(n) for n in range(2)]
    table = {"weights": QUERY.format("*"), "count": 2, "shape": [8, 8], "density": 0.25, "kernels": KERNELS}
    shares = {name.removesuffix(".weight"): 0.1 for name in queries}
    how = {"shares": shares, "waves": 3, "ceiling": Halves, "batch_size": 10}
    found = cost_of(graph, queries, 0.75, table, **how)
    query, *_, outside = found.rows
    assert (query.name, query.count, query.shape, query.density) == (QUERY.format("*"), 2, (8, 8), 0.25)
    assert (query.kernels, query.ideal, query.kernels_alone) == (KERNELS, 4.0, 2.0)
    assert Halves.asked == [(8, 8, 0.25, 1.0)]
    assert (query.dense.seconds, query.sparse.seconds) == (0.4, 0.2)
    # One sample of 8 tokens: forward, delta and gradient are 2 x 8 x 8 x 8 each; two layers.
    assert query.dense.flops == 10 * 2 * 3 * 2 * 8 * 8 * 8
    assert query.sparse.flops == query.dense.flops / 4
    # Two arrays of state; 64 numbers and a bias of 8; 16 numbers and the pattern of an 8 x 8 panel.
    assert query.dense.memory_bytes == 2 * 4 * (64 + 8) * 3
    assert query.sparse.memory_bytes == 2 * (4 * (16 + 8) * 3 + pattern_bytes((8, 8), 16))
    # Three waves, forward and backward.
    assert query.sparse.streamed_bytes == 3 * 2 * 2 * (4 * (16 + 8) + pattern_bytes((8, 8), 16))
    assert found.dense.streamed_bytes == 3 * 2 * 4 * sum(graph.weights[n].size for op in graph.ops for n in op.weights)
    assert found.dense.memory_bytes == 4 * 3 * sum(weight.size for weight in graph.weights.values())
    assert outside.name == OUTSIDE
    assert (found.dense.seconds, found.sparse.seconds) == (pytest.approx(2.0), pytest.approx(1.0))


def test_all_matrices_of_the_experts_of_a_layer_count():
    """Of four experts in each of two layers, all of them a quarter full; a token meets two."""
    graph = decoder(**{**FAMILIES["mixtral"], "layers": 2})
    experts = "transformer_decoder.layers.{}.ffn.experts.experts.{}.0.linear_layer.weight"
    names = [experts.format(layer, expert) for layer in range(2) for expert in range(4)]
    shape, whole = graph.weights[names[0]].shape, experts.format("*", "*")
    table = {"weights": whole, "count": 8, "shape": list(shape), "density": 0.25, "kernels": KERNELS}
    found = cost_of(graph, names, 0.75, table, ceiling=Halves)
    (row,) = (row for row in found.rows if row.density is not None)
    assert (row.name, row.count, row.kernels_alone) == (whole, 2, 2.0)
    assert Halves.asked == [(*shape, 0.25, 0.5)]
    size = shape[0] * shape[1]
    kept, pattern = size // 4, pattern_bytes(shape, size // 4)
    assert row.dense.memory_bytes == 8 * 3 * 4 * size
    assert row.sparse.memory_bytes == 8 * (3 * 4 * kept + pattern)
    assert row.sparse.streamed_bytes == 2 * 8 * (4 * kept + pattern)
    assert row.sparse.flops == row.dense.flops / 4


@pytest.mark.parametrize(("waves", "streams"), [(1, 2), (3, 8)])
def test_before_a_barrier_all_waves_but_the_last_stream_forward_twice(waves, streams):
    """Of three waves five passes go forward, and three back."""
    graph = dpr()
    sizes = [graph.weights[name].size for op in graph.ops for name in op.weights]
    assert cost_of(graph, [], 0.5, {}, waves=waves).dense.streamed_bytes == streams * 4 * sum(sizes)


def test_a_weight_that_is_alone_keeps_its_number_and_state_counts_as_the_optimizer_keeps_it():
    def alone(optimizer: Any) -> Cost:
        kernels = dict.fromkeys(("forward", "delta", "gradient"), "dense")
        table = {"weights": "fc_layers.1.weight", "shape": [4, 6], "density": 0.5, "kernels": kernels}
        return cost_of(fc_mnist(), ["fc_layers.1.weight"], 0.5, table, optimizer=optimizer)

    names = ["fc_layers.1.weight", "dense linear layers", "other ops", "output and loss", OUTSIDE]
    assert [row.name for row in alone(None).rows] == names
    factored = costed_optimizer(Adafactor())
    states = 4 * sum(state_numbers(factored, weight.shape) for weight in fc_mnist().weights.values())
    assert alone(Adafactor()).dense.memory_bytes == alone(None).dense.memory_bytes + states > states > 0
