"""What a step costs: against what is counted elsewhere, and what a run itself allocates and streams."""

from __future__ import annotations

import pytest

from cstool.compare.cost import OUTSIDE, build_cost, op_products
from cstool.compare.race import Finish
from cstool.compare.verdict import Cost
from cstool.kernels.sparse import pattern_bytes
from cstool.models.statistics import Flops, count_statistics
from cstool.optimizers import Optimizer, costed_optimizer, state_numbers
from cstool.params import AdamW, SparsityParams
from cstool.params.sections.optimizers import Adafactor
from cstool.run.result import RunResult
from tests.models import FAMILIES, decoder, dpr, fc_mnist

ADAM = costed_optimizer(AdamW())
QUERY = "transformer_decoder.layers.{}.self_attn.proj_q_dense_layer.weight"


@pytest.mark.parametrize("family", FAMILIES)
def test_ops_together_are_what_statistics_count(family):
    graph = decoder(layers=3, **FAMILIES[family])
    total = sum((flops for flops, _ in op_products(graph).values()), Flops())
    assert total == count_statistics(graph).sample_flops


def test_nobody_wants_the_delta_of_an_image():
    products = op_products(fc_mnist())
    assert [wanted for _, wanted in products.values()][:2] == [False, True]


def finish(step_s: float, shares: dict[str, float], **result: object) -> Finish:
    return Finish("x", (1.0,), (step_s,), step_s, shares, None, RunResult("train", "gpt2", 1, **result), None)


class Halves:
    """Stands in for the measured kernels: twice as fast in every product."""

    asked: list[tuple[int, int, float, float]] = []

    def __init__(self, *panel: object) -> None:
        self.asked.append(panel)  # type: ignore[arg-type]

    def speedup(self, choice: object, with_delta: bool) -> float:
        assert tuple(choice) == (True, False, True)  # type: ignore[arg-type]
        assert with_delta
        return 2.0


def test_ops_that_are_alike_share_a_row_and_the_rest_is_the_step():
    graph = decoder(layers=2)
    groups = dict.fromkeys((QUERY.format(n) for n in range(2)), SparsityParams(sparsity=0.75))
    shares = {op.name: 0.001 for op in graph.ops}
    for n in range(2):
        shares[QUERY.format(n).removesuffix(".weight")] = 0.1
    weights_bytes = 4 * sum(graph.weights[name].size for op in graph.ops for name in op.weights)
    kernels = {"forward": "sparse", "delta": "dense", "gradient": "both"}
    Halves.asked.clear()
    table = [{"weights": QUERY.format("*"), "count": 2, "shape": [8, 8], "density": 0.25, "kernels": kernels}]
    found = build_cost(
        graph,
        groups,
        finish(2.0, shares, waves=3),
        finish(1.0, shares, waves=3, sparsity=table),
        batch_size=10,
        num_steps=5,
        optimizer=ADAM,
        ceiling_of=Halves,  # type: ignore[arg-type]
    )
    query, *_, outside = found.rows
    assert (query.name, query.count, query.shape, query.density) == (QUERY.format("*"), 2, (8, 8), 0.25)
    assert (query.kernels, query.ideal, query.kernels_alone) == (kernels, 4.0, 2.0)
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
    assert found.dense.streamed_bytes == 3 * 2 * weights_bytes
    assert found.dense.memory_bytes == 4 * 3 * sum(weight.size for weight in graph.weights.values())
    assert outside.name == OUTSIDE
    assert found.dense.seconds == pytest.approx(2.0)
    assert found.sparse.seconds == pytest.approx(1.0)


def test_all_matrices_of_the_experts_of_a_layer_count():
    """Of four experts in each of two layers, all of them a quarter full; a token meets two."""
    graph = decoder(**{**FAMILIES["mixtral"], "layers": 2})
    experts = "transformer_decoder.layers.{}.ffn.experts.experts.{}.0.linear_layer.weight"
    names = [experts.format(layer, expert) for layer in range(2) for expert in range(4)]
    kernels = {"forward": "sparse", "delta": "dense", "gradient": "both"}
    rows, columns = graph.weights[names[0]].shape
    table = [{"weights": experts.format("*", "*"), "count": 8, "shape": [rows, columns], "density": 0.25,
              "kernels": kernels}]  # fmt: skip
    shares = {op.name: 0.001 for op in graph.ops}
    Halves.asked.clear()
    found = build_cost(
        graph,
        dict.fromkeys(names, SparsityParams(sparsity=0.75)),
        finish(2.0, shares),
        finish(1.0, shares, sparsity=table),
        batch_size=1,
        num_steps=5,
        optimizer=ADAM,
        ceiling_of=Halves,  # type: ignore[arg-type]
    )
    (row,) = (row for row in found.rows if row.density is not None)
    assert (row.name, row.count, row.kernels_alone) == (experts.format("*", "*"), 2, 2.0)
    assert Halves.asked == [(rows, columns, 0.25, 0.5)]
    kept, pattern = rows * columns // 4, pattern_bytes((rows, columns), rows * columns // 4)
    assert row.dense.memory_bytes == 8 * 3 * 4 * rows * columns
    assert row.sparse.memory_bytes == 8 * (3 * 4 * kept + pattern)
    assert row.sparse.streamed_bytes == 2 * 8 * (4 * kept + pattern)
    assert row.sparse.flops == row.dense.flops / 4


@pytest.mark.parametrize(("waves", "streams"), [(1, 2), (3, 8)])
def test_before_a_barrier_all_waves_but_the_last_stream_forward_twice(waves, streams):
    """Of three waves five passes go forward, and three back."""
    graph = dpr()
    sizes = [graph.weights[name].size for op in graph.ops for name in op.weights]
    found = build_cost(
        graph,
        {},
        *(finish(1.0, {}, waves=waves) for _ in range(2)),
        batch_size=1,
        num_steps=1,
        optimizer=ADAM,
        ceiling_of=Asked,  # type: ignore[arg-type]
    )
    assert found.dense.streamed_bytes == streams * 4 * sum(sizes)


class Asked:
    """Stands in for the measured kernels: as fast as dense ones."""

    def __init__(self, *_: object) -> None: ...

    def speedup(self, *_: object) -> float:
        return 1.0


def alone(optimizer: Optimizer) -> Cost:
    graph = fc_mnist()
    name = "fc_layers.1.weight"
    kernels = dict.fromkeys(("forward", "delta", "gradient"), "dense")
    table = [{"weights": name, "shape": [4, 6], "density": 0.5, "kernels": kernels}]
    shares = {op.name: 0.01 for op in graph.ops}
    return build_cost(
        graph,
        {name: SparsityParams(sparsity=0.5)},
        finish(1.0, shares),
        finish(1.0, shares, sparsity=table),
        batch_size=1,
        num_steps=1,
        optimizer=optimizer,
        ceiling_of=Asked,  # type: ignore[arg-type]
    )


def test_a_weight_that_is_alone_keeps_its_number():
    assert [row.name for row in alone(costed_optimizer(None)).rows] == [
        *("fc_layers.1.weight", "dense linear layers", "other ops", "output and loss", OUTSIDE),
    ]


def test_state_counts_as_the_optimizer_keeps_it():
    factored = costed_optimizer(Adafactor())
    weights = fc_mnist().weights.values()
    states = 4 * sum(state_numbers(factored, weight.shape) for weight in weights)
    assert states > 0
    assert alone(factored).dense.memory_bytes == alone(costed_optimizer(None)).dense.memory_bytes + states
