"""This host as a system: costs fitted to measurements, and a step put together from them."""

import math
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import Graph, Op, OpKind
from cstool.models.statistics import count_statistics
from cstool.perf.host import (
    PASSES,
    Cost,
    HostRates,
    HostSetup,
    Work,
    fit_cost,
    kind_of,
    predict_step,
    shapes_on_host,
    work_on_host,
)
from tests.examples import examples
from tests.models import FAMILIES, decoder, dpr, fc_mnist

CALL_S = 1e-5
COSTS = {
    f"{kind} {direction}": Cost(CALL_S, 0.0, 1e-9, 1e-10, 1e-10, 1e-10)
    for kind in (*(str(kind.value) for kind in OpKind), "sparse")
    for direction in PASSES
}
RATES = HostRates(
    cpu="one",
    cores=2,
    costs=COSTS,
    update_s={"SGD": 1e-9, "Adam": 3e-9},
    step_s=1e-4,
    stage_s=0.0,
    uneven=0.0,
    cached_bytes_per_s=4e9,
    read_bytes_per_s=2e9,
    write_bytes_per_s=1e9,
)
SETUP = HostSetup(
    grain_samples=2, grains=4, lanes=2, optimizer="Adam", optimizer_states=2, waits_for_norm=False, densities={}
)


@given(
    st.tuples(*(st.floats(1e-9, 1e-3) for _ in range(6))),
    st.lists(st.tuples(*(st.integers(1, 1_000_000) for _ in range(6))), min_size=8, max_size=14),
)
@examples(50)
def test_a_fit_gives_measurements_back_that_are_of_that_form(numbers, rows):
    cost, works = Cost(*numbers), [Work(*row) for row in rows]
    found = fit_cost(works, [cost.seconds(work) for work in works])
    assert all(number >= 0 for number in found.row)
    for work in works:
        assert found.seconds(work) == pytest.approx(cost.seconds(work), rel=1e-3)


def test_a_fit_has_no_negative_number_and_counts_relative_errors():
    works = [Work(1, 0, flops, 0.0, 0.0, 0.0) for flops in (1e3, 1e6, 1e9)]
    found = fit_cost(works, [2e-5, 1e-4, 1e-1])
    assert found.call_s > 0
    assert found.flop_s == pytest.approx(1e-10, rel=0.2)
    # The smallest counts as much as the largest, which is five thousand times as long.
    assert found.seconds(works[0]) == pytest.approx(2e-5, rel=0.2)


def test_the_work_of_a_model_is_that_of_its_statistics():
    graph = decoder(layers=2)
    shapes = shapes_on_host(graph)
    flops = count_statistics(graph).sample_flops
    works = {d: [work_on_host(op, shapes, 3, d) for op in graph.ops] for d in PASSES}
    assert sum(work.flops for work in works["forward"]) == 3 * flops.forward
    # Backward computes logits and scores again: a product of each more than the statistics count as useful.
    assert sum(work.flops for work in works["backward"]) > 3 * flops.backward


def op_of(graph: Graph, kind: OpKind) -> Op:
    return [op for op in graph.ops if op.kind is kind][-1]


def test_logits_that_are_kept_are_a_product_less_and_sparse_weights_so_much_less_of_another_kind():
    graph = decoder(layers=2)
    op, shapes = op_of(graph, OpKind.SOFTMAX_LOSS), shapes_on_host(graph)
    again, kept = (work_on_host(op, shapes, 3, "backward", keeps=keeps) for keeps in (False, True))
    assert again.flops == 1.5 * kept.flops
    steps = [predict_step(graph, RATES, replace(SETUP, keeps=keeps)) for keeps in (False, True)]
    assert steps[1].backward_s < steps[0].backward_s
    assert steps[1].forward_s == steps[0].forward_s
    for width, counts in ((512, False), (2048, True)):
        graph = fc_mnist(width, width)
        op, shapes = op_of(graph, OpKind.LINEAR), shapes_on_host(graph)
        dense, sparse = (work_on_host(op, shapes, 4, "backward", density=density) for density in (1.0, 0.25))
        assert (sparse.flops, sparse.activation_bytes) == (dense.flops / 4, dense.activation_bytes)
        # Of a matrix only what no cache holds counts.
        forward = work_on_host(op, shapes, 4, "forward")
        assert forward.weight_bytes == (4 * width * width if counts else 0)
        assert dense.weight_bytes == 2 * forward.weight_bytes
    assert (kind_of(op, 1.0), kind_of(op, 0.25)) == ("linear", "sparse")


def costing(**cost: float) -> HostRates:
    """Rates of a host on which nothing takes time but what is given of each call, and the loop."""
    of_call = replace(Cost(*[0.0] * 6), **cost)
    return replace(RATES, costs=dict.fromkeys(COSTS, of_call), update_s={"Adam": 0.0})


def test_a_step_of_calls_alone_by_hand():
    """Each lane has two grains, so two calls of each op and pass; updates share the cores with the lanes."""
    graph = fc_mnist()
    found = predict_step(graph, replace(costing(call_s=CALL_S), update_s=RATES.update_s), SETUP)
    ops = len(graph.ops)
    assert (found.forward_s, found.backward_s) == pytest.approx((2 * ops * CALL_S, 2 * ops * CALL_S))
    updates = graph.parameter_count * 3e-9 / 2
    assert found.step_s == pytest.approx(4 * ops * CALL_S + updates + 1e-4, rel=0.05)
    assert found.rest_s == pytest.approx(found.step_s - found.forward_s - found.backward_s)


def test_a_barrier_has_all_waves_but_the_last_go_forward_twice_by_hand():
    """Of four grains each lane has two: in two waves it computes three forward, 5 forward passes for 4 in four waves.

    The loss is beyond the barrier: one call each way for the whole batch, on top of what the lanes take.
    """
    graph, rates = dpr(), costing(call_s=CALL_S)
    before = len(graph.ops) - 1
    for waves, forward in ((1, 2), (2, 3), (4, 3.5)):
        found = predict_step(graph, rates, replace(SETUP, waves=waves))
        expected = forward * before * CALL_S, 2 * before * CALL_S, 2 * CALL_S + 1e-4
        assert (found.forward_s, found.backward_s, found.rest_s) == pytest.approx(expected)
    assert predict_step(graph, rates, replace(SETUP, met_grains=0)).rest_s == pytest.approx(1e-4)
    # Two vector operations for each of 8 + 2 x 8 numbers of a sample, and reading and writing its 3 x 8 + 2.
    work = replace(rates, costs={name: Cost(0.0, 0.0, 0.0, 1.0, 0.0, 0.0) for name in COSTS}, step_s=0.0)
    met, alone = (predict_step(graph, work, replace(SETUP, met_grains=grains)).rest_s for grains in (12, 0))
    assert met - alone == pytest.approx(12 * 2 * 2 * 24)


def test_each_wave_reads_a_file_once_more():
    """Weights alone, at 4 bytes a second: once each way, in two waves twice; before a barrier three times forward."""
    slow = replace(costing(), step_s=0.0, cached_bytes_per_s=4.0)
    for graph, more in ((fc_mnist(), 2), (dpr(use_biencoder=True), 3)):
        setups = [replace(SETUP, memoryx_in_file=True, optimizer_states=0, waves=waves) for waves in (1, 2)]
        once, twice = (predict_step(graph, slow, setup).step_s for setup in setups)
        assert twice - once == pytest.approx(more * graph.parameter_count, rel=1e-6)


def test_more_lanes_take_less_and_more_grains_more():
    graph = decoder(layers=2)
    steps = [predict_step(graph, RATES, replace(SETUP, lanes=lanes)).step_s for lanes in (1, 2, 4)]
    assert all(a > b for a, b in pairwise(steps))
    steps = [predict_step(graph, RATES, replace(SETUP, grains=grains)).step_s for grains in (2, 4, 8)]
    assert all(a < b for a, b in pairwise(steps))
    again = predict_step(graph, RATES, replace(SETUP, recomputed=frozenset(op.name for op in graph.ops[2:4])))
    assert again.again_s > 0
    assert again.step_s > predict_step(graph, RATES, SETUP).step_s


def test_updates_on_idle_cores_hide_behind_the_lanes():
    graph = decoder(layers=2)
    setup = replace(SETUP, lanes=1, grains=1)
    # One core has nothing idle: updates come on top. Beside a second one they run along the backward pass.
    alone, beside = (predict_step(graph, replace(RATES, cores=cores), setup) for cores in (1, 2))
    updates = graph.parameter_count * 3e-9
    assert alone.step_s == pytest.approx(alone.forward_s + alone.backward_s + updates + 1e-4)
    assert beside.step_s < alone.step_s - updates / 2


def test_a_file_is_as_slow_as_what_it_is_on():
    graph = fc_mnist()
    in_file = replace(SETUP, memoryx_in_file=True)
    setups = [SETUP, in_file, replace(in_file, commits=True), replace(in_file, past_cache=True)]
    slow = replace(RATES, cached_bytes_per_s=4e7, read_bytes_per_s=2e7, write_bytes_per_s=1e7)
    steps = [predict_step(graph, slow, setup).step_s for setup in setups]
    assert all(a < b for a, b in pairwise(steps))
    # Read and written at least once, weights and state: 12 bytes each way.
    assert steps[-1] > graph.parameter_count * 12 * (1 / 2e7 + 1 / 1e7)
    assert math.isfinite(steps[0])
    # What the buffers hold is not read once more.
    held = [
        predict_step(graph, slow, replace(setups[-1], buffer_bytes=n)).step_s
        for n in (0, graph.parameter_count * 6, 1 << 30)
    ]
    assert held[0] > held[1] > held[2]


def test_several_lanes_share_an_interpreter_and_wait_for_each_other():
    graph = fc_mnist()
    names = [field.name for field in fields(Cost)]
    rates = replace(costing(**{names[1]: CALL_S}), step_s=1.0, stage_s=0.1, uneven=0.5)
    one, two = (predict_step(graph, rates, replace(SETUP, lanes=lanes)) for lanes in (1, 2))
    assert (one.forward_s, one.step_s) == (0.0, 1.0)
    ops, lane_s = len(graph.ops), 2 * 2 * len(graph.ops) * CALL_S
    assert two.step_s == pytest.approx(lane_s + 1.0 + 0.1 * 2 * ops + 0.5 * lane_s)


def test_of_experts_the_mean_density_counts():
    """Half of the experts keep a quarter: as if all kept five eighths."""
    graph = decoder(layers=1, **FAMILIES["mixtral"])
    names = [name for name in graph.weights if ".experts.experts." in name]
    some = {name: 0.25 for name in names if ".experts.0." in name or ".experts.1." in name}
    found = [predict_step(graph, RATES, replace(SETUP, densities=d)) for d in (some, dict.fromkeys(names, 0.625))]
    dense = predict_step(graph, RATES, SETUP)
    assert found[0].forward_s == pytest.approx(found[1].forward_s)
    assert found[0].forward_s < dense.forward_s
