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


def test_the_first_rate_is_that_of_the_samples_so_far(clock):
    found = Rates()
    found.add(30)
    clock[0] += 2.0
    assert found.look() == (15.0, 15.0)


def test_a_later_rate_is_six_tenths_of_the_new_and_four_of_the_one_before(clock):
    found = Rates()
    found.add(10)
    clock[0] += 1.0
    found.look()
    found.add(20)
    clock[0] += 1.0
    assert found.look() == (pytest.approx(0.6 * 20 + 0.4 * 10), 15.0)


def test_a_pause_counts_in_neither_rate(clock):
    found = Rates()
    found.add(10)
    clock[0] += 1.0
    found.look()
    clock[0] += 50.0
    found.pause(50.0)
    found.add(10)
    clock[0] += 1.0
    assert found.look() == (10.0, 10.0)
    assert found.seconds == 2.0


def test_it_counts_the_samples(clock):
    found = Rates()
    found.add(3)
    found.add(4)
    assert found.samples == 7


def test_without_any_time_passed_rates_are_finite(clock):
    found = Rates()
    found.add(1)
    assert found.look() == (pytest.approx(1e9), pytest.approx(1e9))
