"""Vectorised functions against those of libm in float64."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit
from scipy.special import expit, ndtr

from cstool.model.activations import exp, normal, sigmoid, tanh
from cstool.training.kernels import exponential
from cstool.training.kernels.exponential import maximum


def _loop(function: Callable[..., Any]) -> Callable[..., Any]:
    @njit(error_model="numpy")
    def loop(x, y):
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    return loop


FUNCTIONS = {"exp": (_loop(exp), np.exp), "tanh": (_loop(tanh), np.tanh), "sigmoid": (_loop(sigmoid), expit)}
TANH_RANGE = np.concatenate([np.linspace(-12.0, 12.0, 100_000), np.geomspace(1e-30, 1.0, 1000)])


@njit(error_model="numpy")
def _normal(x, below, density):
    for i in range(x.shape[0]):
        below[i], density[i] = normal(x[i])


@njit(error_model="numpy")
def _largest(x):
    largest = x[0]
    for i in range(x.shape[0]):
        largest = maximum(largest, x[i])
    return largest


def _relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(actual.astype(np.float64) / expected - 1.0)))


@pytest.mark.parametrize(
    ("name", "x", "largest"),
    [
        ("exp", np.linspace(-86.5, 88.7, 400_001).astype(np.float32), 2e-7),
        ("exp", np.linspace(-700.0, 700.0, 1001), 1e-15),
        ("tanh", TANH_RANGE.astype(np.float32), 3e-7),
        ("sigmoid", np.linspace(-87.0, 40.0, 400_001).astype(np.float32), 3e-7),
    ],
)
def test_a_function_has_a_small_relative_error(name, x, largest):
    y, (loop, of_libm) = np.empty_like(x), FUNCTIONS[name]
    loop(x, y)
    assert _relative_error(y, of_libm(x.astype(np.float64))) < largest


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", [-np.inf, -1e30, -87.0, 0.0, 89.0, 1e30, np.inf, np.nan], [0, 0, 0, 1, np.inf, np.inf, np.inf, np.nan]),
        ("tanh", [-np.inf, -1e30, 0.0, 1e30, np.inf, np.nan], [-1, -1, 0, 1, 1, np.nan]),
        ("sigmoid", [-np.inf, -1e30, -89.0, 0.0, 1e30, np.inf, np.nan], [0, 0, 0, 0.5, 1, 1, np.nan]),
    ],
)
def test_a_function_saturates_and_keeps_nan(name, x, expected):
    y = np.empty(len(x), np.float32)
    FUNCTIONS[name][0](np.array(x, np.float32), y)
    np.testing.assert_array_equal(y, np.array(expected, np.float32))


def test_normal_distribution_and_density():
    """Relative errors below 8e-7 up to four deviations; they saturate, and keep NaN."""
    x = np.concatenate([np.linspace(-4.0, 4.0, 200_001), [-np.inf, -50.0, 50.0, np.inf, np.nan]]).astype(np.float32)
    below, density = np.empty_like(x), np.empty_like(x)
    _normal(x, below, density)
    wide = x[:-5].astype(np.float64)
    assert _relative_error(below[:-5], ndtr(wide)) < 8e-7
    assert _relative_error(density[:-5], np.exp(-0.5 * wide**2) / np.sqrt(2.0 * np.pi)) < 8e-7
    np.testing.assert_array_equal(below[-5:], np.array([0, 0, 1, 1, np.nan], np.float32))
    np.testing.assert_array_equal(density[-5:], np.array([0, 0, 0, 0, np.nan], np.float32))


def test_maximum_of_an_array_is_its_largest_or_nan():
    assert _largest(np.array([-np.inf, 3.0, -4.0, 7.0, 0.0], np.float32)) == 7.0
    for place, value in itertools.product((0, 5, 99), (np.nan, -np.nan)):
        x = np.arange(100, dtype=np.float32)
        x[place] = value
        assert np.isnan(_largest(x))


@pytest.mark.parametrize("x", [-3.0, 0.0, 0.5])
def test_outside_of_kernels_the_functions_are_those_of_math(x):
    values = exponential.exp(x), exponential.tanh(x), exponential.sigmoid(x), exponential.normal(x)[0]
    assert values == pytest.approx((np.exp(x), np.tanh(x), expit(x), ndtr(x)), rel=1e-14)
    assert exponential.maximum(x, 0.1) == max(x, 0.1)
