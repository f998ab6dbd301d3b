"""This host as a system: costs fitted to measurements, and a step put together from them."""

import math
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.graphs.statistics import count_statistics
from cstool.model.ir import Graph, Op, OpKind
from cstool.training.host.ranks import Link, RankedStep, RanksSetup, Traffic, predict_ranks
from cstool.training.host.step import (
    PASSES,
    Cost,
    HostRates,
    HostSetup,
    OnHost,
    Work,
    fit_cost,
    kind_of,
    predict_step,
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
    on_host = OnHost(graph, 3)
    flops = count_statistics(graph).sample_flops
    works = {d: [on_host.work(op, d) for op in graph.ops] for d in PASSES}
    assert sum(work.flops for work in works["forward"]) == 3 * flops.forward
    # Backward computes logits and scores again: a product of each more than the statistics count as useful.
    assert sum(work.flops for work in works["backward"]) > 3 * flops.backward


def op_of(graph: Graph, kind: OpKind) -> Op:
    return [op for op in graph.ops if op.kind is kind][-1]


def test_logits_that_are_kept_are_a_product_less_and_sparse_weights_so_much_less_of_another_kind():
    graph = decoder(layers=2)
    op = op_of(graph, OpKind.SOFTMAX_LOSS)
    again, kept = (OnHost(graph, 3, keeps).work(op, "backward") for keeps in (False, True))
    assert again.flops == 1.5 * kept.flops
    steps = [predict_step(graph, RATES, replace(SETUP, keeps=keeps)) for keeps in (False, True)]
    assert steps[1].backward_s < steps[0].backward_s
    assert steps[1].forward_s == steps[0].forward_s
    for width, counts in ((512, False), (2048, True)):
        graph = fc_mnist(width, width)
        op, on_host = op_of(graph, OpKind.LINEAR), OnHost(graph, 4)
        dense, sparse = (on_host.work(op, "backward", density) for density in (1.0, 0.25))
        assert (sparse.flops, sparse.activation_bytes) == (dense.flops / 4, dense.activation_bytes)
        # Of a matrix only what no cache holds counts.
        forward = on_host.work(op, "forward")
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


# A step on several ranks, put together from what each computes and what goes over the wire.

GRAPH = fc_mnist()
CALLS = costing(call_s=CALL_S)
"""of a host on which calls of kernels take time, and the loop, nothing else"""
PASS_S = len(GRAPH.ops) * CALL_S
"""of one grain"""
TRAFFIC = Traffic((1000, 0, 0), (2000, 0, 0), (100, 200), ((0, 0, 0), (500, 0, 0), (700, 0, 0)), 1)
SHARED = Traffic((400, 300, 300), (800, 600, 600), (100, 200), ((0, 100, 100), (150, 0, 100), (150, 100, 0)), 1)
"""much the same where each keeps some"""


def setup_of(grains: int) -> HostSetup:
    return replace(SETUP, grains=grains, lanes=1)


def predicted(link: Link, traffic: Traffic = TRAFFIC, *grains: int) -> RankedStep:
    setups = tuple(map(setup_of, grains or (2, 1, 1)))
    return predict_ranks(GRAPH, CALLS, RanksSetup(setups, traffic, link))


def test_bytes_that_go_through_rank_0_or_between_all_of_them():
    """Rank 0 sends the most, 2 x 400 and 2 x 800 + 200; rank 1 gets 400 + 300, and 800 + 600 + 200 on the way back."""
    assert (TRAFFIC.sent_bytes, TRAFFIC.nodes) == ((6000, 500, 700), 1)
    assert (SHARED.sent_bytes, SHARED.nodes) == ((2600, 2050, 2050), 3)
    for traffic, both, shared in (
        (TRAFFIC, (2000.0, 4000.0), (2000.0, 4000.0 + 1200.0)),
        (SHARED, (800.0, 1800.0), (2000.0, 4000.0 + 700.0)),
    ):
        assert (traffic.wires_s(Link(1.0)), traffic.wires_s(Link(1.0, both_ways=False))) == (both, shared)


def nothing_of(ranks: int) -> Traffic:
    return Traffic((0,) * ranks, (0,) * ranks, (0, 0), ((0,) * ranks,) * ranks, 1)


def test_without_a_wire_a_step_is_that_of_the_slowest_rank():
    found = predicted(Link(1e12), nothing_of(3), 1, 3, 2)
    assert found.step_s == pytest.approx(2 * 3 * PASS_S + CALLS.step_s)
    assert (found.slowest, found.swarmx_s, found.wires_s) == (1, 0.0, (0.0, 0.0))
    assert found.of(0).forward_s == pytest.approx(PASS_S)
    assert found.of(0).rest_s == pytest.approx(found.step_s - 2 * PASS_S)
    # One rank takes what it takes alone.
    alone = predict_ranks(GRAPH, RATES, RanksSetup((SETUP,), nothing_of(1), Link(1e9)))
    assert alone.step_s == pytest.approx(predict_step(GRAPH, RATES, SETUP).step_s)


SLOW, LATE = Link(1e6), Link(1e6, 5e-3)
MEETING = replace(TRAFFIC, waves=3, meets=True)


@pytest.mark.parametrize(
    ("link", "traffic", "grains", "step_s"),
    [
        # 1 MB/s: two others get 1,000 B each forward, 2,000 B on the way back; their gradients come the other way. Of
        # each pass the first panel comes on top: 2 x 100 B, and 2 x 200 B.
        (SLOW, TRAFFIC, (), 2e-3 + 2e-4 + 4e-3 + 4e-4),
        # One rate for both ways adds them up; gradients may be what the way back waits for.
        (replace(SLOW, both_ways=False), TRAFFIC, (), 6.6e-3 + 1.2e-3),
        (SLOW, replace(TRAFFIC, gradient_bytes=((0, 0, 0), (5000, 0, 0), (4000, 0, 0))), (), 2e-3 + 2e-4 + 9e-3 + 4e-4),
        # Where each keeps some, 1.8 ms and 0.8 ms of the busiest wire; and rank 0 waits like the others.
        (SLOW, SHARED, (), 8e-4 + 2e-4 + 1.8e-3 + 4e-4),
        (Link(1e7), SHARED, (100, 1, 1), 2 * 100 * PASS_S + 2e-5 + 4e-5),
        # Messages take two latencies of a pass, forward and back.
        (LATE, TRAFFIC, (), 6.6e-3 + 4 * 5e-3),
        (LATE, replace(TRAFFIC, waves=3), (), 2e-3 + 3 * 2e-4 + 4e-3 + 3 * 4e-4 + 12 * 5e-3),
        # A barrier, three waves: five passes forward, three back, each with L before and after; L until deltas come.
        (SLOW, MEETING, (), 2e-3 + 5 * 2e-4 + 4e-3 + 3 * 4e-4),
        (LATE, MEETING, (), 2e-3 + 5 * 2e-4 + 4e-3 + 3 * 4e-4 + (5 + 3 + 5 + 3 + 1) * 5e-3),
        # 10 MB/s: 200 us forward, 400 us back. A grain takes 50 us or so; ten of them hide all but 20 us and 40 us.
        (Link(1e7), TRAFFIC, (1, 10, 10), 2 * 10 * PASS_S + 2e-5 + 4e-5),
        # Rank 0 has its panels at once: it may be so far behind the others that nobody waits.
        (Link(1e7), TRAFFIC, (12, 10, 10), 2 * 12 * PASS_S),
    ],
)
def test_what_the_wire_adds_to_a_step_by_hand(link, traffic, grains, step_s):
    found = predicted(link, traffic, *grains)
    assert found.step_s == pytest.approx(step_s + CALLS.step_s)
    assert found.swarmx_s == pytest.approx(step_s - 2 * max(grains or (2,)) * PASS_S)
    assert MEETING.passes == (5, 3)
    if link is LATE and traffic is TRAFFIC:
        setup = RanksSetup(tuple(map(setup_of, (2, 1, 1))), TRAFFIC, SLOW, message_s=5e-3)
        assert predict_ranks(GRAPH, CALLS, setup).step_s == pytest.approx(found.step_s)


def test_where_each_keeps_some_the_norm_of_all_gradients_takes_two_latencies():
    setups = tuple(replace(setup_of(1), waits_for_norm=True) for _ in range(3))
    for traffic, latencies in ((SHARED, 6), (TRAFFIC, 4)):
        quick, late = (predict_ranks(GRAPH, CALLS, RanksSetup(setups, traffic, link)).step_s for link in (SLOW, LATE))
        assert late - quick == pytest.approx(latencies * 5e-3)


def test_updates_of_ranks_on_one_host_share_its_cores_and_each_updates_what_it_keeps():
    """Two cores and two lanes, of one rank or of two: the update of all weights is on both of them."""
    rates = replace(CALLS, update_s={"Adam": 1e-6})
    setups = [replace(SETUP, lanes=2, grains=2), replace(SETUP, lanes=1, lanes_beside=1, grains=1)]
    one, two = (predict_step(GRAPH, rates, setup) for setup in setups)
    assert one.step_s == pytest.approx(two.step_s)
    updates = GRAPH.parameter_count * 1e-6 / 2
    assert one.rest_s == pytest.approx(updates + CALLS.step_s)
    whole, half = (predict_step(GRAPH, rates, replace(SETUP, lanes=2, memoryx_share=s)).rest_s for s in (1.0, 0.5))
    assert whole - half == pytest.approx(0.5 * updates, rel=1e-3)


def test_more_lanes_than_cores_take_turns():
    """Four ranks with a grain each on two cores: two of them at a time. With 3, 1, 1 and 1 one core has the three."""
    for grains, turns in (((1, 1, 1, 1), 2), ((3, 1, 1, 1), 3), ((4, 4), 4), ((1, 1, 1, 6), 6)):
        setups = tuple(map(setup_of, grains))
        setup = RanksSetup(setups, nothing_of(len(grains)), Link(1e12), hosts=(0,) * len(grains))
        assert predict_ranks(GRAPH, CALLS, setup).step_s == pytest.approx(2 * turns * PASS_S + CALLS.step_s)
        apart = replace(setup, hosts=tuple(range(len(grains))))
        assert predict_ranks(GRAPH, CALLS, apart).step_s == pytest.approx(2 * max(grains) * PASS_S + CALLS.step_s)


def test_between_hosts_messages_take_a_core_where_no_other_is_free():
    """A byte takes 1 us of a core, more than the wire: the rank that moves most is through last."""
    rates, free = replace(CALLS, cores=1, socket_s=1e-6), replace(CALLS, cores=2, socket_s=1e-6)
    setup = RanksSetup(tuple(map(setup_of, (1, 1, 1))), TRAFFIC, Link(1e12))
    most = [max(bytes_moved) for bytes_moved in zip(*TRAFFIC.moved_bytes, strict=True)]
    longer_s = predict_ranks(GRAPH, rates, setup).step_s - predict_ranks(GRAPH, free, setup).step_s
    assert longer_s == pytest.approx(1e-6 * sum(most), rel=1e-3)
    memory = replace(setup, link=Link(1e12, both_ways=False))
    assert predict_ranks(GRAPH, rates, memory).step_s == predict_ranks(GRAPH, free, memory).step_s
