"""Sums of squares, and the first number that is not finite."""

import math

import numpy as np
import pytest

from cstool.kernels.magnitudes import first_non_finite, sum_squares


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_sum_squares(size: int, dtype: np.dtype) -> None:
    x = np.random.default_rng(1).standard_normal(size).astype(dtype)
    assert sum_squares(x) == pytest.approx(math.fsum(x.astype(np.float64) ** 2), rel=1e-14)


def test_sum_squares_does_not_overflow_float32() -> None:
    assert sum_squares(np.full(4, 1e30, np.float32)) == pytest.approx(4e60, rel=1e-6)


def test_sum_squares_of_an_array_with_nan_is_nan() -> None:
    x = np.ones(1000, np.float32)
    x[777] = np.nan
    assert math.isnan(sum_squares(x))


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1023, 1024, 2999])
def test_first_non_finite_finds_the_first(value: float, place: int, dtype: np.dtype) -> None:
    x = np.full(3000, np.finfo(dtype).max, dtype)
    x[place:] = value
    assert first_non_finite(x) == place


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_an_array_of_finite_numbers_has_no_non_finite(size: int, dtype: np.dtype) -> None:
    assert first_non_finite(np.full(size, np.finfo(dtype).max, dtype)) == -1
