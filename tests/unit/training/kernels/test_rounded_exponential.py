"""Exponentials of rows, bit by bit those of `math.exp` rounded to float32."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from cstool.training.kernels import rounded_exponential
from cstool.training.kernels._jit import elementwise, inlined
from cstool.training.kernels.rounded_exponential import exp_row
from tests.examples import examples


@elementwise
def _exp_row(row, largest, unit, memory):  # type: ignore[no-untyped-def]
    exp_row(row, largest, unit, memory)


def exponentials(row: np.ndarray, largest: np.float32, unit: float) -> np.ndarray:
    """What the kernel makes of a row."""
    found = row.copy()
    _exp_row(found, largest, unit, np.empty(len(row) + 1, np.float32))
    return found


def exact(row: np.ndarray, largest: np.float32, unit: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        exponents = (row - largest).astype(np.float64) * unit
    return np.array([math.exp(x) for x in exponents.tolist()], np.float64).astype(np.float32)


@examples(200)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 300), spread=st.floats(-2, 2), unit=st.floats(0.01, 1.0))
def test_rows_have_the_bits_of_math(seed, count, spread, unit):
    row = (np.random.default_rng(seed).standard_normal(count) * 10**spread).astype(np.float32)
    np.testing.assert_array_equal(exponentials(row, row.max(), unit), exact(row, row.max(), unit))


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("number", [-math.inf, math.nan, -1e30, -87.5, -103.9, -104.0, -0.0, 0.0])
def test_numbers_at_the_edges_are_those_of_math(number, count):
    """Among them those whose results are denormal in float32, or too small."""
    row = np.linspace(-3, 0, count, dtype=np.float32)
    row[count // 2] = number
    np.testing.assert_array_equal(exponentials(row, np.float32(0), 1.0), exact(row, np.float32(0), 1.0))


def test_a_row_in_doubt_is_computed_by_math(monkeypatch):
    """Where the polynomial is off by a factor, and so unsure of every number."""

    @inlined
    def one(x):  # type: ignore[no-untyped-def]
        return x * 0.0 + 1.0

    monkeypatch.setattr(rounded_exponential, "_near_exp", one)
    monkeypatch.setattr(rounded_exponential, "_DOUBT", 0.5)
    row = np.linspace(-5, 0, 70, dtype=np.float32)
    found = row.copy()
    # Not by `elementwise`, which would keep it in place of the kernel itself.
    njit(exp_row.py_func)(found, np.float32(0), 0.7, np.empty(70, np.float32))
    np.testing.assert_array_equal(found, exact(row, np.float32(0), 0.7))
