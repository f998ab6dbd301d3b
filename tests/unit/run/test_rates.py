"""Rates as the vendor computes and writes them."""

import pytest

from cstool.run.report import time_split
from cstool.run.report.time_split import Rates


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(time_split.time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("looks", "rates"),
    [
        ([(0.0, 30, 2.0)], (15.0, 15.0)),
        # Six tenths of the new rate, and four of the one before.
        ([(0.0, 10, 1.0), (0.0, 20, 1.0)], (0.6 * 20 + 0.4 * 10, 15.0)),
        # A pause counts in neither.
        ([(0.0, 10, 1.0), (50.0, 10, 1.0)], (10.0, 10.0)),
        # Without any time passed they are finite.
        ([(0.0, 1, 0.0)], (1e9, 1e9)),
    ],
    ids=["first", "later", "pause", "no time"],
)
def test_rates_are_those_of_the_samples_and_the_time_without_pauses(clock, looks, rates):
    found = Rates()
    for paused_s, samples, passed_s in looks:
        clock[0] += paused_s
        found.pause(paused_s)
        found.add(samples)
        clock[0] += passed_s
        last = found.look()
    assert last == pytest.approx(rates)
    assert found.samples == sum(samples for _, samples, _ in looks)
    assert found.seconds == sum(passed_s for _, _, passed_s in looks)
