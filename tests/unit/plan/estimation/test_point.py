"""Estimates of small models: what must hold whatever the numbers."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import cstool
from cstool.foundation.errors import CompileError, EstimateError
from cstool.model.graphs.statistics import count_statistics
from cstool.model.system import load_system
from cstool.plan.estimation import (
    Estimate,
    EstimateOptions,
    Estimator,
    make_request,
    scale,
    smallest_compute_bound,
    sweep_sparsity,
)
from cstool.plan.timing import resources as on
from cstool.plan.timing.stragglers import slowest_of
from cstool.plan.timing.wafer import limit_shares
from tests.unit.plan.compiler.programs import ROOT
from tests.unit.plan.estimation.requests import estimator, gpt, shared


def at(num_csx: int = 1, system: str = "cs2", asked: dict[str, Any] | None = None, **shape: Any) -> Estimate:
    return shared(gpt(**shape), system, **(asked or {})).at(num_csx)


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
@pytest.mark.parametrize("num_csx", [1, 4, 16])
def test_no_resource_is_busy_more_than_all_the_time_and_what_a_step_is_spent_on_adds_up_to_it(mode, num_csx):
    found = at(num_csx, asked={"execution_mode": mode})
    assert set(found.busy) == set(on.ALL) - set(on.HOSTS)
    assert all(0 <= share <= 1 for share in found.busy.values())
    assert found.step.longest_s <= found.step_s <= found.step.serial_s
    assert sum(found.limits.values()) == pytest.approx(1)
    assert 0 < found.share_of_peak < 1
    spent = found.step.spent_s
    assert sum(spent.values()) == pytest.approx(found.step_s, rel=1e-5)
    # Nobody is waited for longer than it works; what is not work has a row of its own.
    for name, seconds in spent.items():
        assert 0 < seconds <= found.step.busy_s.get(name, found.step_s) * (1 + 1e-9)
    assert set(spent) - set(found.step.busy_s) <= {on.FILLING, on.LATENCY, on.UPDATING, on.STRAGGLERS}
    assert (on.STRAGGLERS in spent) == (num_csx > 1)
    assert found.bound == max(spent, key=spent.__getitem__)


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("num_hidden_layers", (1, 2, 4, 6, 12)),
        ("hidden_size", (256, 512, 1024, 2048)),
        ("filter_size", (1024, 4096, 8192)),
        ("vocab_size", (100, 1000, 50_000)),
        ("batch_size", (8, 16, 32, 64, 128)),
        ("max_position_embeddings", (64, 128, 256, 512)),
    ],
)
def test_time_never_falls_when_work_grows(what, values):
    """A larger batch may be laid out better, so a token may take less; a step never does."""
    found = [at(**{what: value}) for value in values]
    assert all(a.step_s <= b.step_s for a, b in pairwise(found))
    assert all(a.flops < b.flops for a, b in pairwise(found))


def test_twice_the_systems_at_the_same_batch_each_add_stages_and_leave_compute_alone():
    rows = scale(estimator(gpt(), batch_per_csx=16), [1, 2, 4, 8, 16, 64])
    found = [row.estimate for row in rows if row.estimate is not None]
    assert [each.stages for each in found] == [0, 1, 1, 2, 2, 3]
    for each in found:
        assert each.step.busy_s == found[0].step.busy_s
        assert each.artifact.streaming == found[0].artifact.streaming
    # All that comes on top is latency, of the ways that something waits for, and what the slowest takes longer.
    swarmx, alone_s = load_system("cs2").swarmx, found[0].step_s
    for before, after in pairwise(found):
        more = after.step_s - before.step_s
        slower = [slowest_of(each.num_csx, swarmx.straggler_share) for each in (before, after)]
        longer = alone_s * (slower[1] - slower[0])
        assert 0 <= more <= 8 * 2 * swarmx.hop_s * (after.stages - before.stages) + longer
        assert before.samples_per_s < after.samples_per_s
    # Systems that take the same time differ by latency alone.
    request = make_request(gpt(), EstimateOptions("cs2", execution_mode="weight_streaming", batch_per_csx=16))
    alike = replace(request.system, swarmx=replace(swarmx, straggler_share=0.0))
    two, four = (Estimator(replace(request, system=alike)).at(n) for n in (2, 4))
    assert two.step_s == four.step_s
    assert on.STRAGGLERS not in four.step.spent_s


def test_a_density_cuts_compute_to_no_less_than_that_density():
    shares = [0.0, 0.5, 0.75, 0.9]
    rows = sweep_sparsity({share: estimator(gpt(sparsity=share)) for share in shares}, 1)
    dense = rows[0].estimate
    for share, row in zip(shares, rows, strict=True):
        assert row.estimate.step.busy_s[on.COMPUTE] >= (1 - share) * dense.step.busy_s[on.COMPUTE]
        assert row.efficiency <= 1 + 1e-9
    speedups = [row.speedup or 0 for row in rows]
    assert speedups == sorted(speedups)
    assert speedups[0] == 1


@pytest.mark.parametrize(
    "name",
    [
        "fc_mnist",
        *(pytest.param(n, marks=pytest.mark.lab) for n in ("bert_tiny", "gpt3_xl", "moe_tiny", "t5_tiny", "vit_tiny")),
    ],
)
def test_compiling_and_estimating_are_one_answer(name):
    """Whatever is left to their defaults."""
    file = ROOT / "params" / f"{name}.yaml"
    found = cstool.estimate(file, num_csx=4)
    assert found.artifact == cstool.compile_model(file, num_csx=4)
    assert found.step_s == found.artifact.step_s == pytest.approx(found.step.seconds, rel=1e-3, abs=1e-9)


def test_useful_flops_are_those_of_the_statistics_and_zeros_are_none():
    params = gpt()
    dense, sparse = estimator(params).at(2), estimator(gpt(sparsity=0.9)).at(2)
    flops = count_statistics(dense.artifact.graph).sample_flops
    assert dense.flops == 64 * flops.total
    linear = 4 * (4 * 1024 * 1024 + 2 * 1024 * 4096)
    assert dense.flops - sparse.flops == pytest.approx(64 * 256 * 6 * 0.9 * linear, rel=1e-6)


def test_power_is_that_of_waiting_and_working_systems_days_are_tokens_over_their_rate():
    found = at(4, asked={"tokens": "1B"})
    system = found.artifact.system
    assert 4 * system.idle_power_w < found.power_w <= 4 * system.power_w
    assert found.joules_per_token == pytest.approx(found.power_w * found.step_s / (64 * 256))
    assert found.days == pytest.approx(1e9 / found.tokens_per_s / 86_400)
    # The smallest MemoryX that holds the model.
    assert (at().days, at().memoryx_unit_bytes) == (None, 1_500_000_000_000)
    assert at(system="cs3").memoryx_unit_bytes == 24_000_000_000_000


def test_links_bound_a_system_whose_links_are_slow():
    """A weight takes the links longer than an AXPY of a few tokens takes a column of PEs."""
    fast = estimator(gpt(batch_size=512))
    slow = Estimator(replace(fast.request, system=replace(fast.request.system, io_bytes_per_s=50e9)))
    found = slow.at(64)
    assert found.bound in (on.INGRESS, on.EGRESS)
    assert found.limits["ingress"] + found.limits["egress"] > 0.5
    assert smallest_compute_bound(slow, found) is None
    samples = smallest_compute_bound(slow, slow.at(1))
    artifacts = [slow.compiled(n, "weight_streaming", n) for n in (samples - 1, samples)]
    shares = [limit_shares(artifact) for artifact in artifacts]
    assert shares[0]["ingress"] + shares[0]["egress"] > 0.5 >= shares[1]["ingress"] + shares[1]["egress"]
    assert fast.at(1).bound == on.COMPUTE
    fewest = smallest_compute_bound(fast, fast.at(1))
    assert fewest < samples


def test_pipelined_systems_exchange_gradients_once_a_step():
    one, four = (at(n, asked={"execution_mode": "pipelined", "batch_per_csx": 16}, hidden_size=256) for n in (1, 4))
    assert one.step.busy_s[on.REDUCE] == 0.0
    exchange = 4 * four.artifact.graph.parameter_count / 150e9
    assert four.step.busy_s[on.REDUCE] == four.step.busy_s[on.BROADCAST] == pytest.approx(exchange)
    waiting = (one.step_s + exchange) * slowest_of(4, load_system("cs2").swarmx.straggler_share)
    assert four.step.spent_s[on.STRAGGLERS] == pytest.approx(waiting)
    assert four.step_s == pytest.approx(one.step_s + waiting + exchange + 2 * 2 * 5e-6)


def test_rows_without_an_estimate_say_why_and_a_table_without_any_is_an_error():
    rows = scale(estimator(gpt(batch_size=48)), [1, 3, 5])
    assert [row.estimate is None for row in rows] == [False, False, True]
    assert rows[2].why == "--num_csx: must divide batch_size (48), got 5"
    with pytest.raises(EstimateError, match=r"must divide batch_size \(48\), got 5"):
        scale(estimator(gpt(batch_size=48)), [5, 7])
    with pytest.raises(CompileError):
        scale(estimator(gpt(), "cs1"), [1])


@pytest.mark.parametrize(
    "mode", ["weight_streaming", *(pytest.param(m, marks=pytest.mark.lab) for m in ("auto", "pipelined"))]
)
def test_what_one_estimator_kept_is_what_another_finds(mode):
    """Searches are made once for a number of samples; systems come in any order."""
    one = estimator(gpt(), batch_per_csx=6, execution_mode=mode)
    kept = {num_csx: one.at(num_csx) for num_csx in (16, 1, 4)}
    for num_csx, found in kept.items():
        alone = estimator(gpt(), batch_per_csx=6, execution_mode=mode).at(num_csx)
        assert found.artifact == alone.artifact
        assert found.step == alone.step
    # Other samples are another search.
    assert one.compiled(7, mode) == estimator(gpt(), batch_per_csx=7, execution_mode=mode).at(1).artifact
