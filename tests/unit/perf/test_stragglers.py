"""The slowest of several systems: against the integral that defines it, and what it makes of scaling."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.perf.stragglers import slowest_of

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
