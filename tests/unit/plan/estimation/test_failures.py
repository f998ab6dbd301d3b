"""Closed forms of failures: beside a simulation with random failures, and where they are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.plan.estimation.failures import best_interval_s, checkpoints, job_s, span_s


def simulated_s(rng, work_s: float, interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """The time of one job, failure by failure: the slow obvious twin."""
    now, done, next_failure = 0.0, 0.0, rng.exponential(mtbf_s)
    while done < work_s * (1 - 1e-12):
        span = min(interval_s, work_s - done) + checkpoint_s
        if now + span <= next_failure:
            now, done = now + span, done + span - checkpoint_s
            continue
        # What was done since the last checkpoint is lost; a restart may fail as well.
        while True:
            now = next_failure
            next_failure = now + rng.exponential(mtbf_s)
            if now + restart_s <= next_failure:
                now += restart_s
                break
    return now


@pytest.mark.parametrize(
    "job",
    [
        # Work, interval, a checkpoint, a restart, between failures [s].
        (1000.0, 50.0, 5.0, 10.0, 200.0),
        (1000.0, 130.0, 20.0, 60.0, 100.0),
        (100.0, 100.0, 0.0, 0.0, 50.0),
        (500.0, 30.0, 1.0, 300.0, 400.0),
    ],
)
def test_the_expected_time_is_the_mean_of_simulated_jobs(job):
    rng = np.random.default_rng(1)
    found = [simulated_s(rng, *job) for _ in range(4000)]
    assert abs(np.mean(found) - job_s(*job)) < 4 * np.std(found) / math.sqrt(len(found))


@pytest.mark.parametrize(("checkpoint_s", "mtbf_s"), [(10.0, 1e4), (60.0, 6e5), (600.0, 3000.0), (6000.0, 3000.0)])
def test_no_other_interval_is_better_than_the_best(checkpoint_s, mtbf_s):
    best = best_interval_s(checkpoint_s, mtbf_s)
    factors = (1.0, *np.linspace(0.5, 1.8, 66))
    per_work = [span_s(best * each, checkpoint_s, 30.0, mtbf_s) / (best * each) for each in factors]
    assert per_work[0] == min(per_work)


@pytest.mark.parametrize("checkpoint_s", [1.0, 10.0, 100.0])
def test_the_best_interval_is_that_of_young_and_of_daly_where_these_hold(checkpoint_s):
    """Daly's equation 37 has the next terms of Young's."""
    mtbf_s = 1e6
    young = math.sqrt(2 * checkpoint_s * mtbf_s)
    x = checkpoint_s / (2 * mtbf_s)
    daly = young * (1 + math.sqrt(x) / 3 + x / 9) - checkpoint_s
    best = best_interval_s(checkpoint_s, mtbf_s)
    assert best == pytest.approx(young, rel=0.02)
    assert best == pytest.approx(daly, rel=1e-5)


@given(
    work=st.floats(10, 1e6),
    interval=st.floats(1, 1e5),
    checkpoint=st.floats(0, 100),
    restart=st.floats(0, 1000),
    mtbf=st.floats(500, 1e7),
)
def test_failures_cost_time_and_fewer_of_them_cost_less_what_cannot_end_takes_forever(
    work, interval, checkpoint, restart, mtbf
):
    found = job_s(work, interval, checkpoint, restart, mtbf)
    without = job_s(work, interval, checkpoint, restart, math.inf)
    assert without == pytest.approx(work + checkpoints(work, interval) * checkpoint)
    assert found >= without * (1 - 1e-9)
    assert job_s(work, interval, checkpoint, restart, 2 * mtbf) <= found * (1 + 1e-9)
    assert job_s(work, interval, checkpoint, restart + 1, mtbf) >= found
    assert span_s(1e6, 0, 0, 1.0) == job_s(1e6, 1e6, 0, 0, 1.0) == math.inf
