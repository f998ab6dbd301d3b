"""A step on several ranks, put together from what each computes and what goes over the wire."""

from dataclasses import replace

import pytest

from cstool.perf.host import HostSetup, predict_step
from cstool.perf.ranks import Link, RankedStep, RanksSetup, Traffic, predict_ranks
from tests.models import fc_mnist
from tests.unit.perf.test_host import CALL_S, RATES, SETUP, costing

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


def test_a_slow_wire_is_all_that_counts():
    """1 MB/s: two others get 1,000 B each forward, 2,000 B on the way back; their gradients come the other way."""
    found = predicted(Link(1e6))
    assert found.wires_s == pytest.approx((2e-3, 4e-3))
    # Of each pass the first panel comes on top: 2 x 100 B, and 2 x 200 B.
    assert found.step_s == pytest.approx(2e-3 + 2e-4 + 4e-3 + 4e-4 + CALLS.step_s)
    assert found.swarmx_s == pytest.approx(6.6e-3 - 2 * 2 * PASS_S)
    # One rate for both ways adds them up; gradients may be what the way back waits for.
    shared = predicted(Link(1e6, both_ways=False))
    assert shared.step_s - found.step_s == pytest.approx(1.2e-3)
    assert sum(shared.wires_s) == pytest.approx(7.2e-3)
    found = predicted(Link(1e6), replace(TRAFFIC, gradient_bytes=((0, 0, 0), (5000, 0, 0), (4000, 0, 0))))
    assert found.step_s == pytest.approx(2e-3 + 2e-4 + 9e-3 + 4e-4 + CALLS.step_s)


def test_where_each_keeps_some_all_wait_and_the_wire_is_shorter():
    """1.8 ms and 0.8 ms of the busiest wire, for 6 ms of that of rank 0 alone; and rank 0 waits like the others."""
    found = predicted(Link(1e6), SHARED)
    assert found.step_s == pytest.approx(8e-4 + 2e-4 + 1.8e-3 + 4e-4 + CALLS.step_s)
    busy = predicted(Link(1e7), SHARED, 100, 1, 1)
    assert busy.step_s == pytest.approx(2 * 100 * PASS_S + 2e-5 + 4e-5 + CALLS.step_s)


def test_where_each_keeps_some_the_norm_of_all_gradients_takes_two_latencies():
    def took(traffic: Traffic, link: Link) -> float:
        setups = tuple(replace(setup_of(1), waits_for_norm=True) for _ in range(3))
        return predict_ranks(GRAPH, CALLS, RanksSetup(setups, traffic, link)).step_s

    assert took(SHARED, Link(1e6, 5e-3)) - took(SHARED, Link(1e6)) == pytest.approx(6 * 5e-3)
    assert took(TRAFFIC, Link(1e6, 5e-3)) - took(TRAFFIC, Link(1e6)) == pytest.approx(4 * 5e-3)


def test_a_fast_wire_hides_behind_compute_but_for_the_first_panels():
    """10 MB/s: 200 us forward, 400 us back. A grain takes 50 us or so; ten of them hide all but 20 us and 40 us."""
    found = predicted(Link(1e7), TRAFFIC, 1, 10, 10)
    assert PASS_S * 10 > 4e-4
    assert found.swarmx_s == pytest.approx(2e-5 + 4e-5)
    # Rank 0 has its panels at once: it may be so far behind the others that nobody waits.
    assert predicted(Link(1e7), TRAFFIC, 12, 10, 10).swarmx_s == 0.0


def test_messages_take_two_latencies_of_a_pass_forward_and_back():
    quick, slow = predicted(Link(1e6)), predicted(Link(1e6, 5e-3))
    assert slow.step_s - quick.step_s == pytest.approx(4 * 5e-3)
    waves = replace(TRAFFIC, waves=3)
    assert predicted(Link(1e6, 5e-3), waves).step_s - predicted(Link(1e6), waves).step_s == pytest.approx(12 * 5e-3)
    setup = RanksSetup(tuple(map(setup_of, (2, 1, 1))), TRAFFIC, Link(1e6), message_s=5e-3)
    assert predict_ranks(GRAPH, CALLS, setup).step_s == pytest.approx(slow.step_s)


def test_a_barrier_takes_more_messages_and_passes_by_hand():
    """In three waves: five passes forward, three back, each with L before and after; and L until deltas are there."""
    meeting = replace(TRAFFIC, waves=3, meets=True)
    assert meeting.passes == (5, 3)
    quick, slow = predicted(Link(1e6), meeting), predicted(Link(1e6, 5e-3), meeting)
    assert slow.step_s - quick.step_s == pytest.approx((5 + 3 + 5 + 3 + 1) * 5e-3)
    # Of each pass the first panel comes on top: 5 x 2 x 100 B, and 3 x 2 x 200 B.
    assert quick.step_s == pytest.approx(2e-3 + 1e-3 + 4e-3 + 1.2e-3 + CALLS.step_s)


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
