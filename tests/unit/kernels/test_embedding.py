"""Tables of vectors, whole and by panels, and the fixed sinusoids of positions."""

import numpy as np
import pytest

from cstool.kernels.embedding import (
    embedding_backward,
    embedding_forward,
    fixed_position_backward,
    fixed_position_forward,
    position_backward,
    position_forward,
    sinusoids,
)
from cstool.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.kernels.tolerances import assert_close, assert_derivative

PANELS = [(0, 4), (4, 5), (5, 11)]
SEQUENCE = 4
DROPOUT = Dropout(0.25, (1, 2), 3, 4, SEQUENCE)
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


@pytest.fixture
def ids(rng) -> np.ndarray:
    """Forty tokens of eleven: some come often; 4 and 10 do not come."""
    return rng.choice([0, 1, 2, 3, 5, 6, 7, 8, 9], 40).astype(np.int32)


def test_forward_by_panels_looks_every_token_up(ids, dtype, rng):
    table = rng.standard_normal((11, 6)).astype(dtype)
    y = np.full((40, 6), np.nan, dtype)
    for start, stop in PANELS:
        embedding_forward(ids, table[start:stop], start, stop, y)
    np.testing.assert_array_equal(y, table[ids])


def test_forward_leaves_tokens_of_other_panels_alone(ids, rng):
    y = np.full((40, 6), 7.0, np.float32)
    embedding_forward(ids, np.zeros((4, 6), np.float32), 0, 4, y)
    np.testing.assert_array_equal(y, np.where((ids < 4)[:, None], 0.0, 7.0) * np.ones(6))


def test_backward_by_panels_is_the_gradient(ids, dtype, rng):
    delta_y = rng.standard_normal((40, 6)).astype(dtype)
    grad = np.zeros((11, 6), dtype)
    for start, stop in PANELS:
        rows, values = embedding_backward(ids, delta_y, start, stop)
        grad[start:stop][rows] = values
    assert_close(grad, reference.embedding_gradient(ids, delta_y, 11))


def test_backward_names_each_row_once_in_ascending_order(ids, rng):
    rows, values = embedding_backward(ids, np.ones((40, 6), np.float32), 3, 11)
    assert (rows.tolist(), rows.dtype) == ([0, 2, 3, 4, 5, 6], np.int32)
    np.testing.assert_array_equal(values[:, 0], [np.count_nonzero(ids == row + 3) for row in rows])


def test_backward_of_a_panel_without_tokens_is_empty(ids):
    rows, values = embedding_backward(ids, np.ones((40, 6), np.float32), 4, 5)
    assert (rows.shape, values.shape, values.dtype) == ((0,), (0, 6), np.float32)


def test_backward_keeps_nan(ids):
    delta_y = np.ones((40, 6), np.float32)
    delta_y[7, 2] = np.nan
    rows, values = embedding_backward(ids, delta_y, 0, 11)
    np.testing.assert_array_equal(np.argwhere(np.isnan(values)), [[rows.tolist().index(ids[7]), 2]])


def _position_forward(x: np.ndarray, table: np.ndarray, dropout: Dropout | None) -> np.ndarray:
    y = np.full_like(x, np.nan)
    position_forward(x, table, SEQUENCE, y, dropout)
    return y


def _position_backward(delta_y: np.ndarray, rows: int, dropout: Dropout | None) -> tuple[np.ndarray, np.ndarray]:
    delta_x, grad = np.full_like(delta_y, np.nan), np.full((rows, delta_y.shape[1]), np.nan, delta_y.dtype)
    position_backward(delta_y, SEQUENCE, delta_x, grad, dropout)
    return delta_x, grad


@with_and_without_dropout
def test_position_forward(dropout, dtype, rng):
    x, table = (rng.standard_normal(shape).astype(dtype) for shape in ((12, 7), (6, 7)))
    expected = (x.astype(np.float64) + np.tile(table[:SEQUENCE], (3, 1))) * reference.dropout_mask(dropout, 12, 7)
    assert_close(_position_forward(x, table, dropout), expected)


@with_and_without_dropout
def test_position_backward_is_the_slope_of_forward(dropout, rng):
    x, table, delta_y = (rng.standard_normal(shape) for shape in ((12, 7), (6, 7), (12, 7)))
    delta_x, grad = _position_backward(delta_y, 6, dropout)
    assert_derivative(lambda at: _position_forward(at, table, dropout), x, delta_x, delta_y)
    assert_derivative(lambda at: _position_forward(x, at, dropout), table, grad, delta_y)


def test_positions_beyond_the_sequence_have_no_gradient(rng):
    _, grad = _position_backward(rng.standard_normal((12, 7)).astype(np.float32), 6, None)
    np.testing.assert_array_equal(grad[SEQUENCE:], np.zeros((2, 7), np.float32))


@with_and_without_dropout
def test_positions_by_panels_have_the_bits_of_the_whole_table(dropout, rng):
    x, table = (rng.standard_normal(shape).astype(np.float32) for shape in ((12, 7), (6, 7)))
    y, delta_x, grad = np.full_like(x, np.nan), np.full_like(x, np.nan), np.full_like(table, np.nan)
    for start, stop in [(0, 1), (1, 3), (3, 6)]:
        position_forward(x, table[start:stop], SEQUENCE, y, dropout, start)
        position_backward(x, SEQUENCE, delta_x, grad[start:stop], dropout, start)
    np.testing.assert_array_equal(y, _position_forward(x, table, dropout))
    for part, whole in zip((delta_x, grad), _position_backward(x, 6, dropout), strict=True):
        np.testing.assert_array_equal(part, whole)


def test_position_backward_adds_samples_in_their_order(rng):
    delta_y = rng.standard_normal((12, 7)).astype(np.float32)
    _, grad = _position_backward(delta_y, SEQUENCE, None)
    np.testing.assert_array_equal(grad, (delta_y[:4] + delta_y[4:8]) + delta_y[8:])


def test_position_backward_in_place_has_the_same_bits(rng):
    delta_y = rng.standard_normal((12, 7)).astype(np.float32)
    delta_x, grad = _position_backward(delta_y, 6, DROPOUT)
    in_place = np.empty_like(grad)
    position_backward(delta_y, SEQUENCE, delta_y, in_place, DROPOUT)
    np.testing.assert_array_equal(delta_y, delta_x)
    np.testing.assert_array_equal(in_place, grad)


def test_nan_survives_a_position(rng):
    x = rng.standard_normal((12, 7)).astype(np.float32)
    x[5, 3] = np.nan
    y = _position_forward(x, np.ones((6, 7), np.float32), DROPOUT)
    delta_x, grad = _position_backward(x, 6, DROPOUT)
    spoilt = [np.argwhere(np.isnan(array)).tolist() for array in (y, delta_x, grad)]
    assert spoilt == [[[5, 3]], [[5, 3]], [[1, 3]]]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 768])
def test_sinusoids(width, dtype):
    assert_close(sinusoids(50, width, dtype), reference.sinusoids(50, width), largest=1.0)


def test_sinusoids_of_the_first_positions_written_out():
    expected = [[0, 1, 0, 1, 0], [np.sin(1), np.cos(1), np.sin(1e-4), np.cos(1e-4), 0]]
    np.testing.assert_allclose(sinusoids(2, 5, np.dtype(np.float64)), expected, rtol=1e-15)


def _fixed_forward(x: np.ndarray, dropout: Dropout | None) -> np.ndarray:
    y = np.full_like(x, np.nan)
    fixed_position_forward(x, SEQUENCE, y, dropout)
    return y


def _fixed_backward(delta_y: np.ndarray, dropout: Dropout | None) -> np.ndarray:
    delta_x = np.full_like(delta_y, np.nan)
    fixed_position_backward(delta_y, delta_x, dropout)
    return delta_x


@with_and_without_dropout
def test_fixed_position_forward(dropout, dtype, rng):
    x = rng.standard_normal((12, 7)).astype(dtype)
    positioned = x.astype(np.float64) + np.tile(reference.sinusoids(SEQUENCE, 7), (3, 1))
    assert_close(_fixed_forward(x, dropout), positioned * reference.dropout_mask(dropout, 12, 7))


@with_and_without_dropout
def test_fixed_position_backward_is_the_slope_of_forward(dropout, rng):
    x, delta_y = rng.standard_normal((2, 12, 7))
    assert_derivative(lambda at: _fixed_forward(at, dropout), x, _fixed_backward(delta_y, dropout), delta_y)


@with_and_without_dropout
def test_fixed_position_in_place_has_the_same_bits(dropout, rng):
    x, delta_y = rng.standard_normal((2, 12, 7)).astype(np.float32)
    apart = _fixed_forward(x, dropout), _fixed_backward(delta_y, dropout)
    fixed_position_forward(x, SEQUENCE, x, dropout)
    fixed_position_backward(delta_y, delta_y, dropout)
    np.testing.assert_array_equal(x, apart[0])
    np.testing.assert_array_equal(delta_y, apart[1])


def test_nan_survives_a_fixed_position(rng):
    x = rng.standard_normal((12, 7)).astype(np.float32)
    x[5, 3] = np.nan
    for array in (_fixed_forward(x, DROPOUT), _fixed_backward(x, DROPOUT), _fixed_backward(x, None)):
        np.testing.assert_array_equal(np.argwhere(np.isnan(array)), [[5, 3]])
