"""Rotary positions against complex numbers, their own slopes, and what they are for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.kernels.rotary import rotary_backward, rotary_forward, rotary_table
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

SEQUENCE, HEADS = 6, 3
every_form = pytest.mark.parametrize(
    ("head_width", "pairs", "amplitude"),
    [(16, 8, 1.0), (16, 8, 1.3), (20, 3, 1.0), (20, 3, 0.7), (5, 2, 1.0), (2, 1, 1.0), (7, 0, 1.3)],
)


def _frequencies(pairs: int) -> tuple[float, ...]:
    return tuple(10000.0 ** (-i / max(pairs, 1)) for i in range(pairs))


def _turned(x: np.ndarray, head_width: int, pairs: int, amplitude: float = 1.0) -> np.ndarray:
    y = np.full_like(x, np.nan)
    rotary_forward(x, head_width, SEQUENCE, _frequencies(pairs), amplitude, y)
    return y


def _turned_back(delta_y: np.ndarray, head_width: int, pairs: int, amplitude: float = 1.0) -> np.ndarray:
    delta_x = np.full_like(delta_y, np.nan)
    rotary_backward(delta_y, head_width, SEQUENCE, _frequencies(pairs), amplitude, delta_x)
    return delta_x


def _array(head_width: int, dtype: type | np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Return (T, n * D) of two samples."""
    return rng.standard_normal((2 * SEQUENCE, HEADS * head_width)).astype(dtype)


@every_form
def test_forward(head_width, pairs, amplitude, dtype, rng):
    x = _array(head_width, dtype, rng)
    expected = reference.rotary(x.astype(np.float64), head_width, SEQUENCE, _frequencies(pairs), amplitude)
    assert_close(_turned(x, head_width, pairs, amplitude), expected)


@every_form
def test_backward(head_width, pairs, amplitude, dtype, rng):
    delta_y = _array(head_width, dtype, rng)
    wide = delta_y.astype(np.float64)
    expected = reference.rotary(wide, head_width, SEQUENCE, _frequencies(pairs), amplitude, back=True)
    assert_close(_turned_back(delta_y, head_width, pairs, amplitude), expected)


@every_form
def test_backward_is_the_slope_of_forward(head_width, pairs, amplitude, rng):
    x, delta_y = _array(head_width, np.float64, rng), _array(head_width, np.float64, rng)
    delta_x = _turned_back(delta_y, head_width, pairs, amplitude)
    assert_derivative(lambda at: _turned(at, head_width, pairs, amplitude), x, delta_x, delta_y)


@every_form
def test_in_place_has_the_same_bits(head_width, pairs, amplitude, rng):
    x = _array(head_width, np.float32, rng)
    apart = _turned(x, head_width, pairs, amplitude), _turned_back(x, head_width, pairs, amplitude)
    for function, expected in zip((rotary_forward, rotary_backward), apart, strict=True):
        y = x.copy()
        function(y, head_width, SEQUENCE, _frequencies(pairs), amplitude, y)
        np.testing.assert_array_equal(y, expected)


def test_elements_that_are_no_pair_pass_unchanged(rng):
    x = _array(20, np.float32, rng)
    for y in (_turned(x, 20, 3, 0.5), _turned_back(x, 20, 3, 0.5)):
        np.testing.assert_array_equal(y.reshape(-1, 20)[:, 6:], x.reshape(-1, 20)[:, 6:])


def test_the_first_token_of_each_sample_does_not_turn(rng):
    x = _array(16, np.float32, rng)
    np.testing.assert_array_equal(_turned(x, 16, 8)[::SEQUENCE], x[::SEQUENCE])


def test_the_bits_of_a_head_or_a_sample_do_not_depend_on_the_others(rng):
    x = _array(16, np.float32, rng)
    whole = _turned(x, 16, 8)
    np.testing.assert_array_equal(_turned(np.ascontiguousarray(x[:, :16]), 16, 8), whole[:, :16])
    np.testing.assert_array_equal(_turned(x[SEQUENCE:], 16, 8), whole[SEQUENCE:])


def test_angles_far_from_the_first_position_are_as_exact_as_near_ones():
    frequency = 0.777
    cosines, sines = rotary_table(100_000, (frequency,), 1.0, np.dtype(np.float32))
    angles = np.arange(100_000) * frequency
    assert np.abs(cosines[:, 0] - np.cos(angles)).max() < 6e-8
    assert np.abs(sines[:, 0] - np.sin(angles)).max() < 6e-8


@given(seed=st.integers(0, 999), amplitude=st.floats(0.5, 2.0))
def test_a_pair_keeps_its_norm_times_the_amplitude(seed, amplitude):
    x = _array(16, np.float64, np.random.default_rng(seed))
    before, after = (np.linalg.norm(a.reshape(-1, 2), axis=1) for a in (x, _turned(x, 16, 8, amplitude)))
    np.testing.assert_allclose(after, amplitude * before, rtol=1e-14)


@given(seed=st.integers(0, 999), first=st.integers(0, 40), second=st.integers(0, 40), shift=st.integers(1, 20))
def test_the_product_of_query_and_key_depends_on_their_distance_only(seed, first, second, shift):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, 16))

    def product(query_position: int, key_position: int) -> float:
        q, k = (np.zeros((64, 16)) for _ in range(2))
        q[query_position], k[key_position] = query, key
        for array in (q, k):
            rotary_forward(array, 16, 64, _frequencies(8), 1.0, array)
        return float(q[query_position] @ k[key_position])

    assert abs(product(first, second) - product(first + shift, second + shift)) < 1e-12


@given(seed=st.integers(0, 999))
def test_turning_back_undoes_turning(seed):
    x = _array(20, np.float64, np.random.default_rng(seed))
    np.testing.assert_allclose(_turned_back(_turned(x, 20, 3), 20, 3), x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_pair_and_no_other(value, rng):
    x = _array(20, np.float32, rng)
    x[3, 22], x[4, 50] = value, value  # in a pair of the second head; no pair in the third
    for y in (_turned(x, 20, 3), _turned_back(x, 20, 3)):
        np.testing.assert_array_equal(np.argwhere(~np.isfinite(y)), [[3, 22], [3, 23], [4, 50]])
