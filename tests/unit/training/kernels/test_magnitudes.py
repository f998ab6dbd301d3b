"""Sums of squares, and the first number that is not finite."""

import math

import numpy as np
import pytest

from cstool.training.kernels.magnitudes import first_non_finite, sum_squares


def test_sum_squares(dtype: np.dtype) -> None:
    for size in (0, 1, 1000):
        x = np.random.default_rng(1).standard_normal(size).astype(dtype)
        assert sum_squares(x) == pytest.approx(math.fsum(x.astype(np.float64) ** 2), rel=1e-14)
    x[777] = np.nan
    assert math.isnan(sum_squares(x))
    assert sum_squares(np.full(4, 1e30, np.float32)) == pytest.approx(4e60, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_first_non_finite_finds_the_first_if_there_is_one(value: float, dtype: np.dtype) -> None:
    for size, place in ((0, 0), (1, 1), (3000, 3000), (3000, 0), (3000, 1023), (3000, 1024), (3000, 2999)):
        x = np.full(size, np.finfo(dtype).max, dtype)
        x[place:] = value
        assert first_non_finite(x) == (place if place < size else -1)
