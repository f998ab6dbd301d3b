"""Causal attention by blocks, against the whole matrix and its own slopes."""

from __future__ import annotations

import numpy as np
import pytest

from cstool.kernels import attention
from cstool.kernels.attention import attention_backward, attention_forward
from cstool.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import Scratch, assert_close, assert_derivative

SCALE = 0.3
with_and_without_dropout = pytest.mark.parametrize("rate", [0.0, 0.25], ids=["keep", "drop"])

# (B, S, A, D, rows of a block, scores per call): one block; blocks of unequal size; a pair per call; samples together.
CUTS = {
    "one token": (3, 1, 2, 4, 128, 10_000),
    "one block": (2, 9, 3, 4, 128, 10_000),
    "unequal blocks": (2, 11, 3, 4, 4, 10_000),
    "one pair per call": (2, 11, 3, 4, 4, 1),
    "two heads per call": (2, 11, 3, 4, 4, 70),
    "two samples per call": (3, 8, 2, 5, 8, 300),
}


@pytest.fixture(params=CUTS.values(), ids=CUTS.keys())
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int, int]:
    """Return (B, S, A, D), with blocks that cut it."""
    *shape, block_rows, scores_per_call = request.param
    monkeypatch.setattr(attention, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attention, "SCORES_PER_CALL", scores_per_call)
    return tuple(shape)


def _arrays(shape: tuple[int, int, int, int], dtype: np.dtype, rng: np.random.Generator) -> list[np.ndarray]:
    """Return q, k, v and the delta of the context."""
    samples, sequence, heads, width = shape
    return [rng.standard_normal((samples * sequence, heads * width)).astype(dtype) for _ in range(4)]


def _dropout(rate: float, shape: tuple[int, int, int, int]) -> Dropout | None:
    return Dropout(rate, (5, 6), 7, 8, shape[1]) if rate else None


def _forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    shape: tuple[int, int, int, int],
    dropout: Dropout | None,
    scratch: Scratch,
) -> tuple[np.ndarray, np.ndarray]:
    context, logsumexp = np.full_like(q, np.nan), np.full((shape[2], len(q)), np.nan, q.dtype)
    attention_forward(q, k, v, shape[2], shape[1], SCALE, context, logsumexp, dropout, scratch)
    return context, logsumexp


def _backward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    delta: np.ndarray,
    shape: tuple[int, int, int, int],
    dropout: Dropout | None,
    scratch: Scratch,
) -> list[np.ndarray]:
    kept = _forward(q, k, v, shape, dropout, scratch)
    deltas = [np.full_like(q, np.nan) for _ in range(3)]
    attention_backward(q, k, v, *kept, delta, shape[2], shape[1], SCALE, *deltas, dropout, scratch)
    return deltas


@with_and_without_dropout
def test_forward(
    shape: tuple[int, int, int, int], rate: float, dtype: np.dtype, rng: np.random.Generator, scratch: Scratch
) -> None:
    q, k, v, _ = _arrays(shape, dtype, rng)
    dropout = _dropout(rate, shape)
    wide = (array.astype(np.float64) for array in (q, k, v))
    expected = reference.attention(*wide, shape[2], shape[1], SCALE, dropout)
    for actual, array in zip(_forward(q, k, v, shape, dropout, scratch), expected, strict=True):
        assert_close(actual, array)


@with_and_without_dropout
def test_backward(
    shape: tuple[int, int, int, int], rate: float, dtype: np.dtype, rng: np.random.Generator, scratch: Scratch
) -> None:
    arrays = _arrays(shape, dtype, rng)
    dropout = _dropout(rate, shape)
    wide = (array.astype(np.float64) for array in arrays)
    expected = reference.attention_deltas(*wide, shape[2], shape[1], SCALE, dropout)
    # The deltas of q and k are 0 where a token sees itself alone, up to rounding: measured against that of v.
    largest = max(np.abs(array).max() for array in expected)
    for actual, array in zip(_backward(*arrays, shape, dropout, scratch), expected, strict=True):
        assert_close(actual, array, largest)


@with_and_without_dropout
def test_backward_is_the_slope_of_forward(rate: float, rng: np.random.Generator, scratch64: Scratch) -> None:
    shape = (2, 9, 3, 4)
    dropout = _dropout(rate, shape)
    arrays = _arrays(shape, np.dtype(np.float64), rng)
    deltas = _backward(*arrays, shape, dropout, scratch64)
    for place, delta in enumerate(deltas):

        def context(at: np.ndarray, place: int = place) -> np.ndarray:
            inputs = [at if i == place else array for i, array in enumerate(arrays[:3])]
            return _forward(*inputs, shape, dropout, scratch64)[0]

        assert_derivative(context, arrays[place], delta, arrays[3])


def test_blocks_of_the_real_size_agree_with_the_whole(rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 300, 2, 16)
    arrays = _arrays(shape, np.dtype(np.float32), rng)
    expected = reference.attention_deltas(*(a.astype(np.float64) for a in arrays), 2, 300, SCALE, None)
    for actual, array in zip(_backward(*arrays, shape, None, scratch32), expected, strict=True):
        assert_close(actual, array)


def test_no_token_sees_a_later_one(rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 12, 2, 4)
    q, k, v, _ = _arrays(shape, np.dtype(np.float32), rng)
    before, _ = _forward(q, k, v, shape, None, scratch32)
    k[7:] += 100.0
    v[7:] += 100.0
    after, _ = _forward(q, k, v, shape, None, scratch32)
    np.testing.assert_array_equal(after[:7], before[:7])


def test_queries_keys_and_values_may_be_slices_of_one_array(rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (2, 9, 3, 4)
    packed = rng.standard_normal((18, 36)).astype(np.float32)
    slices = [packed[:, i : i + 12] for i in (0, 12, 24)]
    apart = [np.ascontiguousarray(array) for array in slices]
    np.testing.assert_array_equal(
        _forward(*slices, shape, None, scratch32)[0], _forward(*apart, shape, None, scratch32)[0]
    )


def test_scores_of_any_size_are_safe(rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 12, 2, 4)
    q, k, v, _ = _arrays(shape, np.dtype(np.float32), rng)
    context, logsumexp = _forward(1e4 * q, 1e4 * k, v, shape, None, scratch32)
    assert np.isfinite(context).all()
    assert np.isfinite(logsumexp).all()


@pytest.mark.parametrize("spoilt", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_comes_out_forward(spoilt: int, rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 40, 2, 4)
    arrays = _arrays(shape, np.dtype(np.float32), rng)[:3]
    arrays[spoilt][30, 2] = np.nan
    assert np.isnan(_forward(*arrays, shape, None, scratch32)[0][30, 2])


@pytest.mark.parametrize("spoilt", [0, 1, 2, 3], ids=["q", "k", "v", "delta"])
def test_nan_comes_out_backward(spoilt: int, rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 40, 2, 4)
    arrays = _arrays(shape, np.dtype(np.float32), rng)
    arrays[spoilt][30, 2] = np.nan
    deltas = _backward(*arrays, shape, None, scratch32)
    assert any(np.isnan(delta[30]).any() for delta in deltas)


def test_infinite_scores_come_out_as_nan_without_a_warning(rng: np.random.Generator, scratch32: Scratch) -> None:
    shape = (1, 12, 2, 4)
    arrays = _arrays(shape, np.dtype(np.float32), rng)
    arrays[0][5], arrays[1][5] = 1e30, 1e30
    assert np.isnan(_forward(*arrays[:3], shape, None, scratch32)[0][5]).all()
    assert np.isnan(_backward(*arrays, shape, None, scratch32)[0][5]).all()
