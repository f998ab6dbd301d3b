"""A step of a cluster: a case worked out by hand, and what holds for all."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.plan.timing import cluster as module
from cstool.plan.timing import resources as on
from cstool.plan.timing.cluster import EXACT_MICRO_BATCHES, LAYERS_OF_LANES, busy_of, seconds_of_lanes, step_of
from cstool.plan.timing.hosts import Feed
from cstool.plan.timing.schedule import Cluster, Schedule, Section, StreamedOp
from cstool.plan.timing.step_simulation import STEPS_OF_LANES, StepSimulation, simulate
from cstool.plan.timing.stragglers import slowest_of
from tests.examples import examples

A = StreamedOp("a", forward_s=4.0, delta_s=3.0, gradient_s=2.0, weight_bytes=2, gradient_bytes=2, weights=1)
B = StreamedOp("b", forward_s=1.0, delta_s=1.0, gradient_s=0.0)
CLUSTER = Cluster(
    memory_bytes_per_s=4.0,
    update_s_per_weight=0.5,
    link_bytes_per_s=1.0,
    io_bytes_per_s=1.0,
    hops_s=1.0,
    prefetch_bytes=0,
    optimizer_states=0,
    waits_for_norm=False,
)
AB = Schedule((Section((A, B)),), CLUSTER)


def spans(found: StepSimulation, name: str, resource: str) -> list[tuple[float, float]]:
    return [found.timeline.span(task) for task in tasks(found, name, resource)]


def test_two_ops_by_hand():
    """a streams 2 bytes at 1 byte/s, a second away: they arrive from 1 to 3, and a computes from 1 on, for 4 s.

    Its delta needs them again. They are sent from 5 on, but wait outside until b's delta is through, at 7. The gradient
    leaves while it is made, and is updated a second later while it arrives. The next forward pass waits for that.
    """
    found = simulate(AB, steps=2)
    assert spans(found, "a weights", on.MEMORY) == [(0.0, 0.5), (5.0, 5.5), (13.0, 13.5), (18.0, 18.5)]
    assert spans(found, "a weights", on.BROADCAST)[:2] == [(0.0, 2.0), (5.0, 7.0)]
    assert spans(found, "a weights", on.INGRESS)[:2] == [(1.0, 3.0), (7.0, 9.0)]
    assert spans(found, "a forward", on.COMPUTE) == [(1.0, 5.0), (14.0, 18.0)]
    assert spans(found, "b forward", on.COMPUTE)[0] == (5.0, 6.0)
    assert spans(found, "b delta", on.COMPUTE)[0] == (6.0, 7.0)
    assert spans(found, "a delta", on.COMPUTE)[0] == (7.0, 10.0)
    assert spans(found, "a gradient", on.COMPUTE)[0] == (10.0, 12.0)
    assert spans(found, "a gradient", on.EGRESS)[0] == (10.0, 12.0)
    assert spans(found, "a gradient", on.REDUCE)[0] == (11.0, 13.0)
    # A weight is 4 bytes, read and written: 8 bytes at 4 per second; its half second of arithmetic runs along.
    assert spans(found, "a update", on.MEMORY)[0] == (11.0, 13.0)
    assert spans(found, "a update", on.PROCESSORS)[0] == (11.0, 13.0)
    assert found.step_s == 13.0


def test_with_a_global_norm_updates_wait_for_the_last_gradient_and_run_in_the_order_of_the_stream():
    second = replace(A, name="c")
    found = simulate(Schedule((Section((A, second)),), replace(CLUSTER, waits_for_norm=True)), steps=2)
    (a, *_), (c, *_) = spans(found, "a update", on.MEMORY), spans(found, "c update", on.MEMORY)
    stored = [spans(found, f"{name} gradient", on.MEMORY)[0][1] for name in "ac"]
    assert a[0] >= max(stored)
    assert c[0] >= a[1]
    # The next forward pass of a does not wait for the update of c.
    assert spans(found, "a weights", on.MEMORY)[2][0] < c[1] + spans(found, "c update", on.MEMORY)[0][1]
    assert spans(found, "a forward", on.COMPUTE)[1][0] < spans(found, "c forward", on.COMPUTE)[1][0]


def test_sums_of_micro_batches_and_of_parts_are_added_in_memoryx_and_updated_once():
    found = simulate(replace(AB, micro_batches=3), steps=1)
    assert len(spans(found, "a gradient", on.COMPUTE)) == 3
    # The first is written, the second read and written, each as late as it can be; the third is updated as it arrives.
    sums = spans(found, "a gradient", on.MEMORY)
    assert [end - start for start, end in sums] == [0.5, 1.0]
    assert [end for _, end in sums] == [end for _, end in spans(found, "a gradient", on.REDUCE)[:2]]
    assert len(spans(found, "a update", on.MEMORY)) == 1
    # As those of as many micro-batches: of three of 2 bytes one is written, one read and written, 4 bytes a second.
    parted = Schedule((Section((replace(A, weight_bytes=6, gradient_bytes=6, parts=3), B)),), CLUSTER)
    found = simulate(parted, steps=1)
    assert len(spans(found, "a gradient", on.COMPUTE)) == 1
    [(start, end)] = spans(found, "a gradient", on.MEMORY)
    # It begins when it and the update, 4.5 s of work, can still end with the sums, and waits for the last of them.
    assert start == spans(found, "a gradient", on.REDUCE)[0][1] - 4.5
    [task], [update] = (tasks(found, f"a {what}", on.MEMORY) for what in ("gradient", "update"))
    assert (end - start, found.moved_bytes[task]) == (4.5, 6)
    # Since it waited, the update reads the sum beside the weight: 12 bytes with what is written.
    assert found.simulation.durations[update] == 3.0
    twice = simulate(replace(parted, micro_batches=2), steps=1)
    # All three of the first are written, two of them onto what is read; so are two of the second, the third is used.
    assert [twice.moved_bytes[task] for task in tasks(twice, "a gradient", on.MEMORY)] == [10, 8]


def tasks(found: StepSimulation, name: str, resource: str) -> list[int]:
    named = zip(found.simulation.names, found.simulation.resources, strict=True)
    return [task for task, each in enumerate(named) if each == (name, resource)]


def test_what_is_recomputed_streams_once_more_and_buffers_let_the_next_stream_begin_earlier():
    once, again = (simulate(Schedule((Section((A, B), 2, n),), CLUSTER), steps=1) for n in (0, 1))
    assert len(spans(once, "a#1 weights", on.INGRESS)) == 2
    assert len(spans(again, "a#1 weights", on.INGRESS)) == 3
    assert len(spans(again, "a#1 again", on.COMPUTE)) == 1
    starts = [
        spans(simulate(replace(AB, cluster=replace(CLUSTER, prefetch_bytes=size)), steps=1), "a weights", on.INGRESS)
        for size in (0, 1)
    ]
    assert [found[1][0] for found in starts] == [7.0, 6.0]


FED = replace(AB, feed=Feed(workers_s=20.0, servers_s=2.0, step_s=3.0), input_bytes=1)


def test_a_step_that_waits_for_its_input_worker_or_the_coordinator_by_hand():
    """The step of a and b takes 13 s; their batch takes a worker 20 s, a server 2 s, and a link 1 s.

    The link carries what the server passes on, so the first batch is there at 22, and a computes from then on. The
    worker goes on meanwhile, and has the second one ready at 40, the third one at 60: from then on a step takes 20 s.
    """
    found = simulate(FED, steps=3)
    assert spans(found, "batch", on.WORKERS) == [(0.0, 20.0), (20.0, 40.0), (40.0, 60.0)]
    assert spans(found, "batch", on.SERVERS) == [(20.0, 22.0), (40.0, 42.0), (60.0, 62.0)]
    assert spans(found, "batch", on.INGRESS) == [(20.0, 22.0), (40.0, 42.0), (60.0, 62.0)]
    # It starts every step, the next one as soon as the batch of this one comes in.
    assert spans(found, "step", on.COORDINATOR) == [(0.0, 3.0), (20.0, 23.0), (40.0, 43.0)]
    assert [start for start, _ in spans(found, "a forward", on.COMPUTE)] == [22.0, 42.0, 62.0]
    assert found.step_s == 20.0
    step, unfed = step_of(FED), step_of(replace(FED, feed=None))
    assert (step.seconds, step.bound) == (20.0, on.WORKERS)
    assert step.spent_s == {**unfed.spent_s, on.WORKERS: 20.0 - unfed.seconds}
    assert (step.busy_s[on.WORKERS], step.busy_s[on.SERVERS], step.busy_s[on.COORDINATOR]) == (20.0, 2.0, 3.0)
    assert not set(on.HOSTS) & set(unfed.busy_s)
    # Hosts that keep up cost nothing.
    assert step_of(replace(FED, feed=Feed(6.0, 2.0, 3.0))).spent_s == unfed.spent_s
    slow = replace(FED, feed=Feed(1.0, 1.0, 30.0))
    found = simulate(slow, steps=3)
    assert spans(found, "step", on.COORDINATOR) == [(0.0, 30.0), (30.0, 60.0), (60.0, 90.0)]
    assert (found.step_s, step_of(slow).bound) == (30.0, on.COORDINATOR)


def test_updates_that_wait_for_a_norm_wait_for_the_coordinator_by_hand():
    """The norm is there 7 s after the last sum is stored; the first update waits for it, the next forward for that."""

    def two(**changes: Any) -> Schedule:
        return Schedule((Section((A, replace(A, name="c"))),), replace(CLUSTER, **changes))

    slow = two(waits_for_norm=True, norm_s=7.0)
    found, step = simulate(slow, steps=2), step_of(slow)
    stored = max(spans(found, f"{name} gradient", on.MEMORY)[0][1] for name in "ac")
    assert spans(found, "norm", on.NORM)[0] == (stored, stored + 7.0)
    assert spans(found, "a update", on.MEMORY)[0][0] == stored + 7.0
    assert step.seconds == step_of(two(waits_for_norm=True)).seconds + 7.0
    assert step.spent_s[on.NORM] == step.busy_s[on.NORM] == 7.0
    # Updates that wait for no norm do not wait for the coordinator.
    assert step_of(two(norm_s=7.0)).seconds == step_of(two()).seconds


def test_the_slowest_system_computes_longer_by_hand():
    """All that a system does takes a tenth more: a's 4 s forward are 4.4, its 2 bytes are 2.2 s on their way in.

    SwarmX and MemoryX are as fast as ever. a ends forward at 5.4, b's three take 2.2, a's delta and gradient 5.5: 13.1
    instead of 12, and the sum is a second behind. Of that the mean system would have computed 11 s.
    """
    slow = replace(AB, cluster=replace(CLUSTER, straggle=0.1))
    found = simulate(slow, steps=2)
    assert spans(found, "a forward", on.COMPUTE)[0] == pytest.approx((1.0, 5.4))
    assert spans(found, "a gradient", on.COMPUTE)[0] == pytest.approx((10.9, 13.1))
    assert spans(found, "a weights", on.INGRESS)[:2] == [pytest.approx((1.0, 3.2)), pytest.approx((7.6, 9.8))]
    assert found.step_s == pytest.approx(14.1)
    step = step_of(slow)
    assert step.seconds == pytest.approx(14.1)
    assert step.busy_s[on.COMPUTE] == 11.0
    assert step.spent_s[on.STRAGGLERS] == pytest.approx(0.1 * step.spent_s[on.COMPUTE])


def test_sums_are_made_no_faster_than_a_node_adds():
    """a's gradient of 2 bytes is reduced from 11 to 13 at a byte a second; at half of that it is through at 15."""
    for rate, end in ((0.5, 15.0), (9.0, 13.0)):
        found = simulate(replace(AB, cluster=replace(CLUSTER, reduce_bytes_per_s=rate)), steps=1)
        assert spans(found, "a gradient", on.REDUCE) == [(11.0, end)]


SECONDS = st.floats(0.01, 5.0)
FEEDS = st.builds(Feed, st.floats(0, 40), st.floats(0, 20), st.floats(0, 60))


@st.composite
def ops(draw: st.DrawFn, name: str) -> StreamedOp:
    times = [draw(SECONDS) for _ in range(3)]
    if draw(st.booleans()):
        return StreamedOp(name, times[0], times[1], 0.0)
    size, parts = draw(st.integers(1, 20)), draw(st.integers(1, 3))
    return StreamedOp(name, *times, parts * size, parts * size, draw(st.integers(1, 5)), draw(st.booleans()), parts)


@st.composite
def steps(draw: st.DrawFn, layers: int = 4, micro_batches: int = 3) -> Schedule:
    """Return what runs in a step, of so many layers and micro-batches at most, and on what."""
    sections = tuple(
        Section(
            tuple(draw(ops(f"{number}.{k}")) for k in range(draw(st.integers(1, 3)))),
            draw(st.integers(1, layers)),
            draw(st.integers(0, 2)),
        )
        for number in range(draw(st.integers(1, 3)))
    )
    rates, sizes = st.floats(0.5, 50.0), st.integers(0, 2)
    of_cluster = (rates, st.floats(0, 0.5), rates, rates, st.floats(0, 1), st.integers(0, 5), sizes, st.booleans())
    cluster = Cluster(
        *map(draw, of_cluster),
        straggle=draw(st.sampled_from([0.0, 0.05])),
        reduce_bytes_per_s=draw(st.sampled_from([None, 1.0])),
        norm_s=draw(st.sampled_from([0.0, 2.0])),
    )
    count, input_bytes, feed = st.integers(1, micro_batches), st.integers(0, 10), st.none() | FEEDS
    return Schedule(sections, cluster, draw(count), draw(input_bytes), draw(feed))


@given(steps(layers=12, micro_batches=8))
@examples(60)
def test_a_step_is_between_its_busiest_resource_and_everything_one_after_the_other(schedule):
    found = step_of(schedule)
    assert found.longest_s <= found.seconds * (1 + 1e-9)
    assert found.seconds <= found.serial_s * (1 + 1e-9)
    assert all(busy <= found.seconds * (1 + 1e-9) for busy in found.busy_s.values())


@given(steps())
@examples(40)
def test_the_closed_form_of_the_work_is_what_the_tasks_add_up_to(schedule):
    found = simulate(schedule, steps=1).simulation.busy_s()
    for resource, seconds in busy_of(schedule).items():
        # A simulation is of the slowest system.
        longer = 1 + schedule.cluster.straggle * (resource in on.OF_SYSTEMS)
        assert found.get(resource, 0.0) == pytest.approx(longer * seconds, rel=1e-9, abs=1e-9)


@given(steps(layers=6, micro_batches=5), st.floats(0.5, 2.0))
@examples(50)
def test_many_steps_at_once_are_what_each_is_alone(schedule, times):
    """The first as it is; the others by an estimate, no shorter than what is computed in them."""
    names = ("forward_s", "delta_s", "gradient_s")
    lanes = [
        [tuple(np.array([getattr(op, name), times * getattr(op, name)]) for name in names) for op in section.ops]
        for section in schedule.sections
    ]
    found = np.broadcast_to(seconds_of_lanes(schedule, lanes), 2)
    unfed = replace(schedule, feed=None)
    layers = max(section.count for section in schedule.sections)
    if layers <= LAYERS_OF_LANES and schedule.micro_batches <= EXACT_MICRO_BATCHES:
        assert found[0] == pytest.approx(simulate(unfed, STEPS_OF_LANES).step_s)
    scaled = [
        replace(section, ops=tuple(replace(op, **{n: times * getattr(op, n) for n in names}) for op in section.ops))
        for section in unfed.sections
    ]
    assert found[1] >= busy_of(replace(unfed, sections=tuple(scaled)))[on.COMPUTE] * (1 - 1e-9)


@given(steps(), FEEDS)
@examples(60)
def test_what_hosts_hold_up_is_what_many_simulated_steps_say(schedule, feed):
    """The closed form takes the longer of the step and its hosts: each starts once, and then keeps its beat."""
    fed, steps = replace(schedule, feed=feed), 16
    found, unfed = step_of(fed), step_of(replace(schedule, feed=None))
    hosts_s = [schedule.micro_batches * feed.workers_s, schedule.micro_batches * feed.servers_s, feed.step_s]
    assert found.seconds == pytest.approx(max(unfed.seconds, *hosts_s))
    assert found.seconds >= unfed.seconds
    run = simulate(fed, steps)
    ends = [run.timeline.ends[task] for task in run.last]
    starting_s = unfed.serial_s + sum(hosts_s)
    assert abs((ends[-1] - ends[0]) - (steps - 1) * found.seconds) <= starting_s


@given(steps(), st.sampled_from(["forward_s", "delta_s", "weight_bytes"]))
@examples(40)
def test_no_resource_works_less_when_work_grows(schedule, what):
    sections = schedule.sections
    first = sections[0].ops[0]
    more = replace(first, **{what: getattr(first, what) + (1 if first.weight_bytes or what != "weight_bytes" else 0)})
    grown = (replace(sections[0], ops=(more, *sections[0].ops[1:])), *sections[1:])
    before, after = step_of(schedule), step_of(replace(schedule, sections=grown))
    assert all(after.busy_s[name] >= seconds for name, seconds in before.busy_s.items())
    assert after.longest_s >= before.longest_s


GPT = (
    Section((replace(A, name="embedding", delta_s=0.0, streams_for_delta=False),)),
    Section((replace(A, name="qkv"), replace(B, name="attention"), replace(A, name="ffn", forward_s=6.0)), 12, 1),
    Section((replace(A, name="head", weights=2),)),
)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("io", [0.3, 1.0, 5.0], ids=lambda rate: f"links {rate} B/s")
def test_layers_and_micro_batches_that_are_not_simulated_take_what_the_last_ones_take(waits, io):
    """Against the simulation of all 12 layers and 6 micro-batches."""
    cluster = replace(CLUSTER, waits_for_norm=waits, io_bytes_per_s=io, link_bytes_per_s=io)
    schedule = Schedule(GPT, cluster, 6, 1)
    assert step_of(schedule).seconds == pytest.approx(simulate(schedule).step_s, rel=1e-3)


@given(steps(), st.integers(5, 100))
@examples(50)
def test_what_a_step_is_spent_on_adds_up_however_many_layers_are_not_simulated(schedule, count):
    first = schedule.sections[0]

    def simulated(layers: int) -> float:
        return simulate(replace(schedule, sections=(replace(first, count=layers),), feed=None)).step_s

    step = step_of(replace(schedule, sections=(replace(first, count=count),), feed=None))
    # Each further layer takes what the fourth adds; no step is shorter than the work of its busiest resource.
    longer = simulated(4) + (count - 4) * (simulated(4) - simulated(3))
    assert step.seconds == pytest.approx(max(longer, *step.busy_s.values()), rel=1e-6)
    assert all(seconds >= 0 for seconds in step.spent_s.values())


def test_the_example_of_the_module_names_every_resource():
    text = Path(module.__file__).read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]
    for resource in module.on.ALL:
        assert resource in text


# The slowest of several systems: against the integral that defines it, and what it makes of scaling.
NORMAL = NormalDist()


def expected_maximum(n: int, steps: int = 20_000) -> float:
    """Expectation of the largest of n standard normal variables: the integral of x n f(x) F(x)^(n-1), by rectangles."""
    width = 16.0 / steps
    points = (-8.0 + (k + 0.5) * width for k in range(steps))
    return math.fsum(width * x * n * NORMAL.pdf(x) * NORMAL.cdf(x) ** (n - 1) for x in points)


@pytest.mark.parametrize("n", [2, 3, 5, 16, 64, 192, 2048])
def test_the_quantile_is_near_the_integral(n):
    assert slowest_of(n, 1.0) == pytest.approx(expected_maximum(n), rel=0.05 if n < 4 else 0.015)


def test_one_system_never_waits_and_equal_systems_do_not():
    assert slowest_of(1, 0.3) == 0.0
    assert slowest_of(192, 0.0) == 0.0


@given(st.integers(1, 4000), st.integers(1, 4000), st.floats(0, 1))
def test_more_systems_wait_longer_and_yet_are_faster_together(some, more, share):
    few, many = sorted((some, more))
    assert slowest_of(few, share) <= slowest_of(many, share)
    assert few / (1 + slowest_of(few, share)) <= many / (1 + slowest_of(many, share)) * (1 + 1e-12)
