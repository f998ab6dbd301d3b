"""Tables of vectors, whole and by panels, and the fixed sinusoids of positions."""

import numpy as np
import pytest

from cstool.model.ir import OpKind
from cstool.training.kernels.call import NOTHING, Call, Rows
from cstool.training.kernels.embedding import (
    embedding_backward,
    embedding_forward,
    position_backward,
    position_forward,
    scatter,
    sinusoids,
)
from cstool.training.kernels.random import Dropout
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import backward, make_call
from tests.unit.training.kernels.tolerances import assert_close

PANELS = [(0, 4), (4, 5), (5, 11)]
SEQUENCE = 4
DROPOUT = Dropout(0.25, (1, 2), 3, 4, SEQUENCE)
with_and_without_dropout = pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["keep", "drop"])


@pytest.fixture
def ids(rng) -> np.ndarray:
    """Forty tokens of eleven: some come often; 4 and 10 do not come."""
    return rng.choice([0, 1, 2, 3, 5, 6, 7, 8, 9], 40).astype(np.int32)


def _look_up(ids: np.ndarray, table: np.ndarray, start: int, stop: int, y: np.ndarray) -> None:
    embedding_forward(Call({}, 1, (ids,), (y,), {}, weights=[table], start=start, stop=stop))


def _gradient(ids: np.ndarray, delta_y: np.ndarray, start: int, stop: int) -> Rows:
    call = Call({}, 1, (ids,), (), {}, delta_outputs=(delta_y,), gradients=[None], start=start, stop=stop)
    embedding_backward(call)
    assert isinstance(call.gradients[0], Rows)
    return call.gradients[0]


def test_forward_by_panels_looks_every_token_up_and_leaves_those_of_others_alone(ids, dtype, rng):
    table, y = rng.standard_normal((11, 6)).astype(dtype), np.full((40, 6), 7.0, dtype)
    for start, stop in PANELS:
        _look_up(ids, table[start:stop], start, stop, y)
        np.testing.assert_array_equal(y, np.where((ids < stop)[:, None], table[ids], 7.0))


def test_backward_by_panels_is_the_gradient(ids, dtype, rng):
    delta_y = rng.standard_normal((40, 6)).astype(dtype)
    grad = np.zeros((11, 6), dtype)
    for start, stop in PANELS:
        rows, values = _gradient(ids, delta_y, start, stop)
        grad[start:stop][rows] = values
    assert_close(grad, reference.embedding_gradient(ids, delta_y, 11))


def test_a_gradient_with_all_rows_has_the_same_and_else_numbers_that_change_none(ids, rng):
    delta_y = rng.standard_normal((40, 6)).astype(np.float32)
    for start, stop in PANELS:
        rows, values = _gradient(ids, delta_y, start, stop)
        found = np.full((stop - start, 6), np.nan, np.float32)
        scatter(delta_y, ids, start, stop, -1, found)
        expected = np.full_like(found, NOTHING)
        expected[rows] = values
        assert found.tobytes() == expected.tobytes()
    both = np.array([0.0, -0.0], np.float32)
    assert (both + NOTHING).tobytes() == both.tobytes()


def test_backward_names_each_row_once_in_ascending_order_of_a_panel_without_tokens_none(ids):
    delta_y = np.ones((40, 6), np.float32)
    rows, values = _gradient(ids, delta_y, 3, 11)
    assert (rows.tolist(), rows.dtype) == ([0, 2, 3, 4, 5, 6], np.int32)
    np.testing.assert_array_equal(values[:, 0], [np.count_nonzero(ids == row + 3) for row in rows])
    rows, values = _gradient(ids, delta_y, 4, 5)
    assert (rows.shape, values.shape, values.dtype) == ((0,), (0, 6), np.float32)
    delta_y[7, 2] = np.nan
    rows, values = _gradient(ids, delta_y, 0, 11)
    np.testing.assert_array_equal(np.argwhere(np.isnan(values)), [[rows.tolist().index(ids[7]), 2]])


@with_and_without_dropout
def test_positions_by_panels_have_the_bits_of_the_whole_table(dropout, rng):
    x, table = (rng.standard_normal(shape).astype(np.float32) for shape in ((12, 7), (6, 7)))
    more = {"sequence": SEQUENCE, "delta_y": x, "of_call": {"dropout": dropout}}
    call = make_call(OpKind.POSITION_EMBEDDING, [x], [table], **more)
    (grad,) = call.gradients
    for start, stop in [(0, 1), (1, 3), (3, 6)]:
        call.start, call.weights, call.gradients = start, [table[start:stop]], [grad[start:stop]]
        position_forward(call)
        position_backward(call)
    found = [*call.outputs, *call.delta_inputs, grad]
    whole = make_call(OpKind.POSITION_EMBEDDING, [x], [table], **more)
    position_forward(whole)
    position_backward(whole)
    for part, array in zip(found, (*whole.outputs, *whole.delta_inputs, *whole.gradients), strict=True):
        np.testing.assert_array_equal(part, array)


def test_position_backward_adds_samples_in_their_order_and_nothing_beyond_the_sequence(rng):
    delta_y = rng.standard_normal((12, 7)).astype(np.float32)
    table = np.zeros((6, 7), np.float32)
    _, grad = backward(OpKind.POSITION_EMBEDDING, [delta_y], [table], delta_y, sequence=SEQUENCE)
    np.testing.assert_array_equal(grad[:SEQUENCE], (delta_y[:4] + delta_y[4:8]) + delta_y[8:])
    np.testing.assert_array_equal(grad[SEQUENCE:], np.zeros((2, 7), np.float32))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 768])
def test_sinusoids(width, dtype):
    assert_close(sinusoids(50, width, dtype), reference.sinusoids(50, width), largest=1.0)


def test_sinusoids_of_the_first_positions_written_out():
    expected = [[0, 1, 0, 1, 0], [np.sin(1), np.cos(1), np.sin(1e-4), np.cos(1e-4), 0]]
    np.testing.assert_allclose(sinusoids(2, 5, np.dtype(np.float64)), expected, rtol=1e-15)
