"""What a job costs: cases worked by hand, and what must hold whatever the numbers."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cstool.foundation.errors import EstimateError
from cstool.model.system import load_system
from cstool.plan.estimation import Estimate
from cstool.plan.estimation.cost import CostInputs, JobCost, cost_with_band, job_cost, make_cost_inputs, stretched
from cstool.plan.timing.resources import COMPUTE, WORKERS
from tests.unit.plan.estimation.requests import gpt, shared


@cache
def at(num_csx: int = 1, tokens: str = "1B", **asked: Any) -> Estimate:
    return shared(gpt(), tokens=tokens, **asked).at(num_csx)


def cost(found: Estimate, steps: int | None = None, **inputs: Any) -> JobCost:
    made = job_cost(found, CostInputs(**inputs), steps)
    assert made is not None
    return made


def test_energy_servers_and_price_by_hand():
    """Two systems, no failures, one checkpoint: watts times seconds, the systems idle while it is written.

    Around two CS-2 stand 12 servers of MemoryX, 2 x 2 of SwarmX, 2 input workers and 2 activation servers.
    """
    found = at(2)
    made = cost(found, checkpoint_bytes_per_s=1e9, worker_tokens_per_s=1e12)
    work_s, need = 1e9 / found.tokens_per_s, found.artifact.memoryx
    wait_s = (need.weights_bytes + need.optimizer_bytes) / 1e9
    assert made.servers == {"MemoryX": 12, "SwarmX": 4, "input workers": 2, "activation servers": 2}
    assert made.expected_s == pytest.approx(work_s + wait_s)
    systems = found.power_w * work_s + 2 * 16_100 * wait_s
    servers = 476.0 * 20 * (work_s + wait_s)
    assert made.mwh == pytest.approx((systems + servers) / 3.6e9)
    assert made.power_w["MemoryX"] == 12 * 476.0
    assert sum(made.energy_j.values()) == pytest.approx(systems + servers)
    # 3 for an hour of each of 4 systems.
    made = cost(at(4), price=3.0, checkpoint_bytes_per_s=1e12)
    assert made.price == pytest.approx(3 * 4 * made.expected_s / 3600)
    assert (cost(at(4)).price, cost(at(4), price=0.0).price) == (None, 0)
    # The number was derived from what Andromeda draws, 500 kW in all: 16 systems at work and 284 servers.
    system = load_system("cs2")
    assert 16 * system.power_w + 284 * system.servers.power_w == pytest.approx(500e3, rel=1e-4)
    # More memory has more nodes; a pipelined job of one system has neither MemoryX nor SwarmX.
    size = 20 * system.servers.memoryx_node_bytes
    need = replace(need, weights_bytes=size, optimizer_bytes=0, gradient_bytes=0)
    large = replace(at(), artifact=replace(at().artifact, memoryx=need))
    assert cost(large, checkpoint_bytes_per_s=1e12).servers["MemoryX"] == 20
    alone = cost(at(execution_mode="pipelined"), worker_tokens_per_s=1e12)
    assert alone.servers == {"input workers": 1, "activation servers": 1}
    assert "SwarmX" in cost(at(2, execution_mode="pipelined")).servers


@pytest.mark.parametrize(
    ("inputs", "steps", "source"),
    [
        ({}, None, "end"),
        ({}, 100, "params"),
        ({"checkpoint_hours": 0.05}, 100, "asked"),
        ({"mtbf_hours": 300.0}, None, "best"),
        ({"mtbf_hours": 300.0}, 100, "params"),
    ],
)
def test_how_often_checkpoints_are_written(inputs, steps, source):
    found = at(tokens="100B")
    saved = cost(found, steps, **inputs).checkpoints
    assert saved.interval_from == source
    work_s = 1e11 / found.tokens_per_s
    expected = {"end": work_s, "asked": 180.0, "best": saved.best_s, "params": 100 * found.step_s}[source]
    assert saved.interval_s == pytest.approx(expected)
    assert saved.count == math.ceil(work_s / saved.interval_s - 1e-9)
    assert (saved.best_s is None) == ("mtbf_hours" not in inputs)


def test_the_parts_of_the_time_add_up_and_more_systems_fail_more_often():
    one, four = (cost(at(n, tokens="100B"), mtbf_hours=300.0) for n in (1, 4))
    for made in (one, four):
        stops = made.checkpoints.count * made.checkpoints.each_s + made.failures.lost_s + made.failures.restarting_s
        assert made.expected_s == pytest.approx(made.work_s + stops)
        assert made.failures.count == pytest.approx(made.expected_s / made.failures.mtbf_s)
        assert made.expected_s > made.work_s
    assert four.failures.mtbf_s == one.failures.mtbf_s / 4
    # No interval is better than the best for the whole job.
    found = at(tokens="10T")
    best = cost(found, mtbf_hours=300.0)
    for share in (0.3, 0.6, 1.5, 3.0):
        other = cost(found, mtbf_hours=300.0, checkpoint_hours=share * best.checkpoints.interval_s / 3600)
        assert other.expected_s >= best.expected_s * (1 - 1e-6)


def test_input_workers_by_hand():
    found = at()
    for rate, needed in ((found.tokens_per_s, 1), (found.tokens_per_s / 2.5, 3), (found.tokens_per_s * 9, 1)):
        made = cost(found, worker_tokens_per_s=rate)
        assert (made.workers.needed_per_csx, made.workers.rate_from) == (needed, "as --worker_rate says")
        assert made.servers["input workers"] == needed
    # A step of which systems compute a quarter, and wait for input workers for the rest: four times as many.
    busy = {name: 0.25 * found.step_s if name == COMPUTE else 0.0 for name in found.step.busy_s}
    waiting = replace(found, step=replace(found.step, busy_s=busy, spent_s={WORKERS: found.step_s}))
    assert cost(waiting, worker_tokens_per_s=found.tokens_per_s).workers.needed_per_csx == 4


def test_what_is_not_known_of_a_system_is_left_out():
    system = replace(load_system("cs2"), servers=None, hosts=None)
    bare = replace(at(), artifact=replace(at().artifact, system=system))
    made = cost(bare)
    assert (made.servers, made.checkpoints.each_s, made.workers.needed_per_csx) == ({}, 0.0, None)
    assert made.power_w == {"systems": bare.power_w}
    assert made.workers.rate_from == "nothing is known of it on cs2"
    with pytest.raises(EstimateError) as raised:
        cost(bare, mtbf_hours=10.0)
    rule = "how fast cs2 writes checkpoints is not known"
    assert raised.value.message == f"--mtbf: must stand beside --checkpoint_rate: {rule}, got 10"


ALONE = "must stand beside --tokens, which say how long the job is, got"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"price": -3.0}, "--price: must be a price of a system for an hour, at least 0, got -3"),
        ({"price": math.nan}, "--price: must be a price of a system for an hour, at least 0, got nan"),
        ({"mtbf": 0.0}, "--mtbf: must be hours between failures of one system, more than 0, got 0"),
        ({"mtbf": -1.0}, "--mtbf: must be hours between failures of one system, more than 0, got -1"),
        ({"mtbf": 9.0, "restart_minutes": -1.0}, "--restart_minutes: must be minutes, at least 0, got -1"),
        ({"restart_minutes": 1.0}, "--restart_minutes: must stand beside --mtbf, got 1"),
        (
            {"checkpoint_hours": 0.0},
            "--checkpoint_hours: must be hours of work between checkpoints, more than 0, got 0",
        ),
        ({"checkpoint_rate": "fast"}, "--checkpoint_rate: must be bytes a second, such as 2GB, got fast"),
        ({"checkpoint_rate": "0GB"}, "--checkpoint_rate: must be bytes a second, such as 2GB, got 0GB"),
        ({"worker_rate": math.inf}, "--worker_rate: must be tokens/s of an input worker, more than 0, got inf"),
        *(
            ({"tokens": None, name: 2.0}, f"--{name}: {ALONE} 2.0")
            for name in ("price", "mtbf", "checkpoint_hours", "worker_rate")
        ),
        ({"tokens": None, "checkpoint_rate": "2GB"}, f"--checkpoint_rate: {ALONE} 2GB"),
    ],
)
def test_what_is_asked_for_is_checked(asked, message):
    with pytest.raises(EstimateError) as raised:
        make_cost_inputs(**{"tokens": "1B", **asked})
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("restart_minutes", "hint"),
    [(0.0, "--checkpoint_hours 0.00056 is best"), (10.0, "it does not with other intervals, either")],
)
def test_a_job_that_does_not_end_says_whether_other_checkpoints_would_help(restart_minutes, hint):
    """A failure every 36 s: checkpoints of 0.06 s are best 2 s apart; with restarts of 10 minutes nothing helps."""
    found = at(tokens="100B")
    rate = (found.artifact.memoryx.weights_bytes + found.artifact.memoryx.optimizer_bytes) / 0.0576
    often = {"mtbf_hours": 0.01, "checkpoint_hours": 1.0, "restart_minutes": restart_minutes}
    with pytest.raises(EstimateError) as raised:
        cost(found, **often, checkpoint_bytes_per_s=rate)
    rule = "a failure comes every 0.01 hours, and from checkpoint to checkpoint there are 1"
    assert str(raised.value) == f"--mtbf: must let the job end: {rule}, got 0.01\nhint: {hint}"


def test_the_range_is_that_of_the_step():
    """No failures and no checkpoint that takes time: all of it is as wide as the time of a step."""
    found = at(2)
    inputs = CostInputs(price=2.0, checkpoint_bytes_per_s=1e18, worker_tokens_per_s=1e12)
    made = cost_with_band(found, inputs, None)
    band = made.band
    assert job_cost(found, inputs, None) == replace(made, band=None)
    for spread, value in ((band.days, made.days), (band.mwh, made.mwh), (band.price, made.price)):
        assert spread == pytest.approx((value * found.band.low, value * found.band.high), rel=1e-5)
    longer = stretched(found, 2.0)
    assert (longer.step_s, longer.power_w) == pytest.approx((2 * found.step_s, found.power_w), rel=1e-5)


def test_a_range_may_have_no_end():
    """Checkpoints by steps: what takes half as long again between two of them may never come from one to the next."""
    found = at(tokens="1T")
    steps, inputs = round(7.5 * 3600 / found.step_s), CostInputs(mtbf_hours=1.0, checkpoint_bytes_per_s=1e12)
    made = cost_with_band(found, inputs, steps)
    band = made.band
    assert band.days[1] is band.mwh[1] is None
    assert band.days[0] < made.days
