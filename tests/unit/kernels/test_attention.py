"""Causal attention by blocks, in every form, against the whole matrix and its own slopes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import OpKind
from cstool.kernels import attention, shared_gemm
from cstool.kernels.attention_form import Attention
from cstool.kernels.gemm import NUMPY
from cstool.kernels.random import Dropout
from cstool.kernels.shared_gemm import SharedGemm
from tests.reference import kernels as reference
from tests.unit.kernels.calls import backward, forward
from tests.unit.kernels.conftest import lender
from tests.unit.kernels.tolerances import assert_close, assert_derivative

with_and_without_dropout = pytest.mark.parametrize("rate", [0.0, 0.25], ids=["keep", "drop"])

FLOAT32 = np.dtype(np.float32)

# B, S, A, D, rows of a block, scores per call: one block; blocks of unequal size; a pair per call; samples together.
CUTS = {
    "one token": (3, 1, 2, 4, 128, 10_000),
    "one block": (2, 9, 4, 4, 128, 10_000),
    "unequal blocks": (2, 11, 4, 4, 4, 10_000),
    "one pair per call": (2, 11, 4, 4, 4, 1),
    "two heads per call": (2, 11, 4, 4, 4, 70),
    "three heads per call": (2, 11, 6, 4, 4, 100),
    "three of four heads per call": (2, 11, 4, 4, 4, 140),
    "two samples per call": (3, 8, 2, 5, 8, 300),
}
SLOPES = (0.5, 0.25, 0.125, 0.7, 0.35, 0.1)
FORMS = {
    "plain": {},
    "one head of keys": {"kv_heads": 1},
    "two heads of keys": {"kv_heads": 2},
    "capped": {"softcap": 0.8},
    "alibi": {"slopes": SLOPES},
    "alibi, capped": {"slopes": SLOPES, "softcap": 0.8},
    "window of one": {"window": 1},
    "window": {"window": 3},
    "wide window": {"window": 40},
    "one sink": {"window": 3, "sinks": 1},
    "sinks over a block": {"window": 2, "sinks": 6},
    "more sinks than tokens": {"window": 2, "sinks": 50},
    "all at once": {"kv_heads": 2, "softcap": 0.8, "slopes": SLOPES, "window": 4, "sinks": 2},
}
in_every_form = pytest.mark.parametrize("keys", FORMS.values(), ids=FORMS.keys())


@pytest.fixture(params=CUTS.values(), ids=CUTS.keys())
def shape(request, monkeypatch) -> tuple[int, int, int, int]:
    """Return (B, S, A, D), with blocks that cut it."""
    *shape, block_rows, scores_per_call = request.param
    monkeypatch.setattr(attention, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(attention, "SCORES_PER_CALL", scores_per_call)
    return tuple(shape)


def _form(shape: tuple[int, int, int, int], **keys) -> Attention:
    heads = shape[2]
    slopes = keys.pop("slopes", ())[:heads]
    return Attention(heads, keys.pop("kv_heads", heads), shape[1], 0.3, slopes=slopes, **keys)


def _arrays(
    shape: tuple[int, int, int, int], form: Attention, dtype: np.dtype, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return q, k, v and the delta of the context."""
    samples, sequence, _, width = shape
    heads = form.heads, form.kv_heads, form.kv_heads, form.heads
    return [rng.standard_normal((samples * sequence, n * width)).astype(dtype) for n in heads]


def _dropout(rate: float, form: Attention) -> Dropout | None:
    return Dropout(rate, (5, 6), 7, 8, form.sequence) if rate else None


def _forward(*given: Any) -> list[np.ndarray]:
    """Return the context and the log of the sum of exp of scores, of q, k, v, their form, dropout and scratch."""
    *arrays, form, dropout, scratch = given
    return forward(OpKind.ATTENTION, arrays, of_call={"dropout": dropout, "scratch": scratch}, **form._asdict())


def _backward(*given: Any) -> list[np.ndarray]:
    """Return the deltas of q, k, v, of these, the delta of the context, form, dropout and scratch."""
    *arrays, delta, form, dropout, scratch = given
    of_call = {"dropout": dropout, "scratch": scratch}
    return backward(OpKind.ATTENTION, arrays, [], delta, of_call=of_call, **form._asdict())


@in_every_form
@with_and_without_dropout
def test_forward(shape, keys, rate, dtype, rng, scratch):
    form = _form(shape, **keys)
    q, k, v, _ = _arrays(shape, form, dtype, rng)
    dropout = _dropout(rate, form)
    expected = reference.attention(*(array.astype(np.float64) for array in (q, k, v)), form, dropout)
    for actual, array in zip(_forward(q, k, v, form, dropout, scratch), expected, strict=True):
        assert_close(actual, array, max(1.0, np.abs(array).max()))


@in_every_form
@with_and_without_dropout
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_that_share_the_heads_have_the_same_bits(keys, rate, threads, rng, monkeypatch):
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    shape = 1, 30, 6, 4
    form = _form(shape, **keys)
    *arrays, delta = _arrays(shape, form, FLOAT32, rng)
    found = []
    for gemm in (NUMPY, shared := SharedGemm(NUMPY, threads)):
        of_call = {"dropout": _dropout(rate, form), "gemm": gemm, "scratch": lender(FLOAT32)}
        found.append(backward(OpKind.ATTENTION, arrays, [], delta, of_call=of_call, **form._asdict()))
    shared.close()
    for actual, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(actual, expected)


@in_every_form
@with_and_without_dropout
def test_backward(shape, keys, rate, dtype, rng, scratch):
    form = _form(shape, **keys)
    arrays = _arrays(shape, form, dtype, rng)
    dropout = _dropout(rate, form)
    expected = reference.attention_deltas(*(array.astype(np.float64) for array in arrays), form, dropout)
    # The deltas of q and k are 0 where a token sees itself alone, up to rounding: measured against that of v.
    largest = max(np.abs(array).max() for array in expected)
    for actual, array in zip(_backward(*arrays, form, dropout, scratch), expected, strict=True):
        assert_close(actual, array, largest)


@in_every_form
@with_and_without_dropout
def test_backward_is_the_slope_of_forward(keys, rate, rng, scratch64):
    shape = (2, 9, 4, 4)
    form = _form(shape, **keys)
    dropout = _dropout(rate, form)
    arrays = _arrays(shape, form, np.dtype(np.float64), rng)
    deltas = _backward(*arrays, form, dropout, scratch64)
    for place, delta in enumerate(deltas):

        def context(at: np.ndarray, place: int = place) -> np.ndarray:
            inputs = [at if i == place else array for i, array in enumerate(arrays[:3])]
            return _forward(*inputs, form, dropout, scratch64)[0]

        if form.window == 1 and place < 2:
            assert np.abs(delta).max() < 1e-12, "a token that sees itself alone needs no score"
        else:
            assert_derivative(context, arrays[place], delta, arrays[3])


@given(
    sequence=st.integers(1, 40),
    kv_heads=st.sampled_from([1, 2, 4]),
    window=st.none() | st.integers(1, 45),
    sinks=st.integers(0, 45),
    block_rows=st.integers(1, 20),
    scores_per_call=st.integers(1, 2000),
)
def test_no_cut_changes_what_is_seen(sequence, kv_heads, window, sinks, block_rows, scores_per_call):
    form = Attention(4, kv_heads, sequence, 0.3, window=window, sinks=sinks if window else 0)
    arrays = _arrays((2, sequence, 4, 3), form, np.dtype(np.float64), np.random.default_rng(sequence))
    scratch = lambda name, shape: np.full(shape, np.nan)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BLOCK_ROWS", block_rows)
        patch.setattr(attention, "SCORES_PER_CALL", scores_per_call)
        found = [*_forward(*arrays[:3], form, None, scratch), *_backward(*arrays, form, None, scratch)]
    expected = [*reference.attention(*arrays[:3], form, None), *reference.attention_deltas(*arrays, form, None)]
    for actual, array in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, array, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "keys", [{}, {"kv_heads": 1}, {"window": 150, "sinks": 10}], ids=["plain", "one head of keys", "window and sinks"]
)
def test_blocks_of_the_real_size_agree_with_the_whole(keys, rng, scratch32):
    shape = (1, 600, 2, 16)
    form = _form(shape, **keys)
    arrays = _arrays(shape, form, np.dtype(np.float32), rng)
    expected = reference.attention_deltas(*(a.astype(np.float64) for a in arrays), form, None)
    for actual, array in zip(_backward(*arrays, form, None, scratch32), expected, strict=True):
        assert_close(actual, array)


def test_heads_that_share_keys_are_as_if_these_were_repeated(rng, scratch64):
    shape = (2, 9, 4, 3)
    form = _form(shape, kv_heads=2)
    q, k, v, _ = _arrays(shape, form, np.dtype(np.float64), rng)
    repeated = [x.reshape(-1, 2, 1, 3).repeat(2, axis=2).reshape(-1, 12) for x in (k, v)]
    np.testing.assert_allclose(
        _forward(q, k, v, form, None, scratch64)[0], _forward(q, *repeated, _form(shape), None, scratch64)[0], 1e-12
    )


def test_a_window_of_the_whole_sequence_is_none(rng, scratch32):
    shape = (1, 12, 2, 4)
    arrays = _arrays(shape, _form(shape), np.dtype(np.float32), rng)
    one, other = (_backward(*arrays, _form(shape, **keys), None, scratch32) for keys in ({}, {"window": 12}))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("keys", "first"), [({"window": 5}, 3), ({"window": 5, "sinks": 2}, 3)])
def test_a_token_sees_itself_the_window_and_the_sinks(keys, first, rng, scratch32):
    shape = (1, 12, 2, 4)
    form = _form(shape, **keys)
    q, k, v, _ = _arrays(shape, form, np.dtype(np.float32), rng)
    before, _ = _forward(q, k, v, form, None, scratch32)
    seen = []
    for token in range(12):
        changed = v.copy()
        changed[token] += 1.0
        if (_forward(q, k, changed, form, None, scratch32)[0][7] != before[7]).any():
            seen.append(token)
    assert seen == [*range(form.sinks), *range(first, 8)]


def test_no_token_sees_a_later_one(rng, scratch32):
    shape = (1, 12, 2, 4)
    form = _form(shape)
    q, k, v, _ = _arrays(shape, form, np.dtype(np.float32), rng)
    before, _ = _forward(q, k, v, form, None, scratch32)
    k[7:] += 100.0
    v[7:] += 100.0
    after, _ = _forward(q, k, v, form, None, scratch32)
    np.testing.assert_array_equal(after[:7], before[:7])


def test_queries_keys_and_values_may_be_slices_of_one_array(rng, scratch32):
    form = _form((2, 9, 3, 4))
    packed = rng.standard_normal((18, 36)).astype(np.float32)
    slices = [packed[:, i : i + 12] for i in (0, 12, 24)]
    apart = [np.ascontiguousarray(array) for array in slices]
    np.testing.assert_array_equal(
        _forward(*slices, form, None, scratch32)[0], _forward(*apart, form, None, scratch32)[0]
    )


@pytest.mark.parametrize("keys", [{}, {"softcap": 30.0}], ids=["plain", "capped"])
def test_scores_of_any_size_are_safe(keys, rng, scratch32):
    shape = (1, 12, 2, 4)
    form = _form(shape, **keys)
    q, k, v, _ = _arrays(shape, form, np.dtype(np.float32), rng)
    context, logsumexp = _forward(1e4 * q, 1e4 * k, v, form, None, scratch32)
    assert np.isfinite(context).all()
    assert np.isfinite(logsumexp).all()


@in_every_form
@pytest.mark.parametrize("spoilt", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_comes_out_forward(spoilt, keys, rng, scratch32):
    shape = (1, 40, 4, 4)
    form = _form(shape, **keys)
    arrays = _arrays(shape, form, np.dtype(np.float32), rng)[:3]
    arrays[spoilt][30, 2] = np.nan
    assert np.isnan(_forward(*arrays, form, None, scratch32)[0][30, 2])


@in_every_form
@pytest.mark.parametrize("spoilt", [0, 1, 2, 3], ids=["q", "k", "v", "delta"])
def test_nan_comes_out_backward(spoilt, keys, rng, scratch32):
    shape = (1, 40, 4, 4)
    form = _form(shape, **keys)
    arrays = _arrays(shape, form, np.dtype(np.float32), rng)
    arrays[spoilt][30, 2] = np.nan
    deltas = _backward(*arrays, form, None, scratch32)
    assert any(np.isnan(delta[30]).any() for delta in deltas)


@pytest.mark.parametrize("keys", [{}, {"softcap": 30.0}], ids=["plain", "capped"])
def test_infinite_scores_come_out_as_nan_without_a_warning(keys, rng, scratch32):
    shape = (1, 12, 2, 4)
    form = _form(shape, **keys)
    arrays = _arrays(shape, form, np.dtype(np.float32), rng)
    arrays[0][5], arrays[1][5] = 1e30, 1e30
    assert np.isnan(_forward(*arrays[:3], form, None, scratch32)[0][5]).all()
    assert np.isnan(_backward(*arrays, form, None, scratch32)[0][5]).all()
