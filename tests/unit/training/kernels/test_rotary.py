"""Rotary positions and what they are for, beside what holds of all ops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import OpKind
from cstool.training.kernels.rotary import rotary_table, turn
from tests.unit.training.kernels.calls import backward, forward

SEQUENCE, HEADS = 6, 3


def _attributes(head_width: int, pairs: int, amplitude: float = 1.0) -> dict[str, Any]:
    frequencies = tuple(10000.0 ** (-i / pairs) for i in range(pairs))
    return {"head_width": head_width, "frequencies": frequencies, "amplitude": amplitude}


def _turned(x: np.ndarray, *form: Any) -> np.ndarray:
    return forward(OpKind.ROTARY, [x], sequence=SEQUENCE, **_attributes(*form))[0]


def _turned_back(delta_y: np.ndarray, *form: Any) -> np.ndarray:
    (found,) = backward(OpKind.ROTARY, [delta_y], [], delta_y, sequence=SEQUENCE, **_attributes(*form))
    return found


def _array(head_width: int, dtype: type | np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Return (T, n * D) of two samples."""
    return rng.standard_normal((2 * SEQUENCE, HEADS * head_width)).astype(dtype)


def test_elements_that_are_no_pair_and_first_tokens_pass_unchanged_and_heads_do_not_depend_on_others(rng):
    x = _array(20, np.float32, rng)
    for y in (_turned(x, 20, 3, 0.5), _turned_back(x, 20, 3, 0.5)):
        np.testing.assert_array_equal(y.reshape(-1, 20)[:, 6:], x.reshape(-1, 20)[:, 6:])
    y = _turned(x, 20, 10)
    np.testing.assert_array_equal(y[::SEQUENCE], x[::SEQUENCE])
    np.testing.assert_array_equal(_turned(np.ascontiguousarray(x[:, :20]), 20, 10), y[:, :20])


def test_angles_far_from_the_first_position_are_as_exact_as_near_ones():
    frequency = 0.777
    cosines, sines = rotary_table(100_000, (frequency,), 1.0, np.dtype(np.float32))
    angles = np.arange(100_000) * frequency
    assert np.abs(cosines[:, 0] - np.cos(angles)).max() < 6e-8
    assert np.abs(sines[:, 0] - np.sin(angles)).max() < 6e-8


@given(seed=st.integers(0, 999), amplitude=st.floats(0.5, 2.0))
def test_a_pair_keeps_its_norm_times_the_amplitude_and_turning_back_undoes_turning(seed, amplitude):
    x = _array(20, np.float64, np.random.default_rng(seed))
    before, after = (np.linalg.norm(a.reshape(-1, 2), axis=1) for a in (x, _turned(x, 20, 10, amplitude)))
    np.testing.assert_allclose(after, amplitude * before, rtol=1e-14)
    np.testing.assert_allclose(_turned_back(_turned(x, 20, 3), 20, 3), x, rtol=0, atol=1e-14)


@given(seed=st.integers(0, 999), first=st.integers(0, 40), second=st.integers(0, 40), shift=st.integers(1, 20))
def test_the_product_of_query_and_key_depends_on_their_distance_only(seed, first, second, shift):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, 16))

    def product(query_position: int, key_position: int) -> float:
        q, k = (np.zeros((64, 16)) for _ in range(2))
        q[query_position], k[key_position] = query, key
        for array in (q, k):
            turn(array, 64, _attributes(16, 8), array)
        return float(q[query_position] @ k[key_position])

    assert abs(product(first, second) - product(first + shift, second + shift)) < 1e-12


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_pair_and_no_other(value, rng):
    x = _array(20, np.float32, rng)
    x[3, 22], x[4, 50] = value, value  # in a pair of the second head; no pair in the third
    for y in (_turned(x, 20, 3), _turned_back(x, 20, 3)):
        np.testing.assert_array_equal(np.argwhere(~np.isfinite(y)), [[3, 22], [3, 23], [4, 50]])
