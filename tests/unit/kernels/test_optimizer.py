"""Optimizer updates against the textbook, and the promise that chunks do not change their bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstool.kernels.optimizer import adam_update, first_non_finite, sgd_update, sum_squares
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close

SIZE = 1000
BETAS, EPSILON = (0.9, 0.95), 1e-3


def _sgd(weight: np.ndarray, grads: list[np.ndarray], parts: list[slice], **changes: Any) -> np.ndarray:
    """Return the weight after one step for each gradient, each step cut in parts."""
    given = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}
    given |= {"grad_scale": 1.0, "clip_value": math.inf, **changes}
    weight = weight.copy()
    buffer = np.full_like(weight, np.nan) if given["momentum"] else None
    for step, grad in enumerate(grads):
        for part in parts:
            sgd_update(weight[part], grad[part], None if buffer is None else buffer[part], **given, first=step == 0)
    return weight


def _adam(weight: np.ndarray, grads: list[np.ndarray], parts: list[slice], **changes: Any) -> np.ndarray:
    """Return the weight after one step for each gradient, each step cut in parts."""
    given = {"lr": 0.1, "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON, "weight_decay": 0.0}
    given |= {"decoupled": True, "grad_scale": 1.0, "clip_value": math.inf, **changes}
    weight, mean, square = weight.copy(), np.zeros_like(weight), np.zeros_like(weight)
    for step, grad in enumerate(grads, start=1):
        corrections = {"bias_correction1": 1 - BETAS[0] ** step, "bias_correction2": 1 - BETAS[1] ** step}
        for part in parts:
            adam_update(weight[part], grad[part], mean[part], square[part], **given, **corrections)
    return weight


WHOLE = [slice(0, SIZE)]
UPDATES = {"sgd": _sgd, "adam": _adam}


def _arrays(dtype: np.dtype, seed: int = 1) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(SIZE).astype(dtype), [rng.standard_normal(SIZE).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"), [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.5, False), (0.9, 0.0, True)]
)
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_sgd(momentum: float, dampening: float, nesterov: bool, decay: float, dtype: np.dtype) -> None:
    weight, grads = _arrays(dtype)
    options = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
    expected = reference.sgd(
        weight.astype(np.float64), [g.astype(np.float64) for g in grads], lr=0.1, **options, decay=decay
    )
    assert_close(_sgd(weight, grads, WHOLE, **options, weight_decay=decay), expected)


@pytest.mark.parametrize("decoupled", [True, False], ids=["adamw", "adam"])
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_adam(decoupled: bool, decay: float, dtype: np.dtype) -> None:
    weight, grads = _arrays(dtype)
    wide = weight.astype(np.float64), [g.astype(np.float64) for g in grads]
    expected = reference.adam(*wide, 0.1, BETAS, EPSILON, decay, decoupled)
    assert_close(_adam(weight, grads, WHOLE, weight_decay=decay, decoupled=decoupled), expected)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_a_gradient_is_scaled_first_and_then_clipped(update: Any) -> None:
    weight, grads = _arrays(np.dtype(np.float32))
    clipped = [np.clip(grad * np.float32(0.5), -0.25, 0.25) for grad in grads]
    expected = update(weight, clipped, WHOLE)
    np.testing.assert_array_equal(update(weight, grads, WHOLE, grad_scale=0.5, clip_value=0.25), expected)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(0, SIZE), max_size=6), seed=st.integers(0, 99))
def test_any_cut_in_chunks_gives_the_same_bits(update: Any, cuts: list[int], seed: int) -> None:
    weight, grads = _arrays(np.dtype(np.float32), seed)
    edges = [0, *sorted(cuts), SIZE]
    parts = [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False) if stop > start]
    changes = {"weight_decay": 0.1, "grad_scale": 0.3, "clip_value": 0.4}
    cut, whole = update(weight, grads, parts, **changes), update(weight, grads, WHOLE, **changes)
    np.testing.assert_array_equal(cut, whole)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("clip_value", [0.4, math.inf])
def test_nan_in_a_gradient_comes_out_in_the_weight(update: Any, clip_value: float) -> None:
    weight, grads = _arrays(np.dtype(np.float32))
    grads[0][500] = np.nan
    after = update(weight, grads, WHOLE, clip_value=clip_value)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(after)), [500])


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
