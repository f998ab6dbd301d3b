"""Kernel calls that are written down: executed, they do what the calls do, to the bit."""

import ctypes
import math
from collections import namedtuple
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels import elementary
from cstool.training.kernels import recording as recording_module
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.driver import NativeError, Table
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.recording import (
    Cell,
    NotRecordableError,
    Recording,
    needs_interpreter,
    recorded,
    recording,
)

Pair = namedtuple("Pair", "first second")  # noqa: PYI024


@elementwise
def _mixed(x, nothing, whole, number, flag, pair, named, more, y):
    a, b, c, d, e, f, g = more
    total = whole + number if nothing is None else 0.0
    total += a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g
    total += pair[0] + 10 * pair[1] + 100 * named.first[0] + 1000 * named.second
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + total if flag else 0.0


@elementwise
def _one(x, number, y):
    y[0] = x[0] + number


@elementwise
def _sum(x):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total


@elementwise
def _raises(x):
    if x[0] > 1:
        raise ValueError("too much")
    x[0] += 1


def written(*calls) -> Table:
    into = Recording()
    with recorded(into):
        for call in calls:
            call()
    return Table(into)


@pytest.mark.parametrize("flag", [False, True])
def test_arguments_of_all_kinds_arrive_in_registers_and_on_the_stack(flag):
    """More than eight floats and six whole numbers, arrays with gaps, tuples, named ones among them."""
    x, y, expected = np.arange(12.0).reshape(3, 4)[:, ::2], np.zeros((3, 2)), np.zeros((3, 2))
    of = (None, 7, 0.5, flag, (3, 0.25), Pair(np.array([2.0, 1.0]), 4), (1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5))
    _mixed(x, *of, expected)
    table = written(lambda: _mixed(x, *of, y))
    assert not y.any(), "nothing is computed while it is written down"
    table.run()
    np.testing.assert_array_equal(y, expected)
    assert recording() is None


def test_a_cell_is_read_at_each_execution():
    x, y, cells = np.ones(1), np.zeros(1), (np.zeros(1), np.zeros(1, np.int64))
    of_float, of_integer = (written(lambda cell=cell: _one(x, Cell(cell), y)) for cell in cells)
    for table, cell, number in (of_float, cells[0], 0.5), (of_integer, cells[1], 3), (of_float, cells[0], -2.5):
        cell[0] = number
        table.run()
        assert y[0] == 1 + number


def test_the_result_of_a_kernel_is_written_where_it_is_told():
    x, result = np.arange(5.0), np.zeros(1)
    into = Recording()
    with recorded(into):
        into.kernel(_sum, (x,), result)
    Table(into).run()
    assert result[0] == 10


def test_numbers_of_records_and_their_times():
    x = np.zeros(1)
    into = Recording()
    with recorded(into):
        for number in (2, 0, 2):
            into.number = number
            into.mark()
            _one(x, 1.0, x)
        into.number = -1
        into.mark()
    table = Table(into, 3)
    table.run()
    assert x[0] == 3
    assert table.nanoseconds[0] > 0
    assert table.nanoseconds[2] > 0
    assert table.nanoseconds[1] == 0


def test_a_kernel_that_raises_ends_the_execution_and_its_number_is_told():
    x, y = np.ones(1), np.zeros(1)
    into = Recording()
    with recorded(into):
        for into.number in (4, 5, 6):  # noqa: B020
            _raises(x)
        _one(x, 0.0, y)
    with pytest.raises(NativeError) as error:
        Table(into, 9).run()
    assert (error.value.number, x[0], y[0]) == (5, 2, 0)


def test_a_function_of_c_that_says_it_failed_ends_the_execution_where_its_result_is_a_status():
    address = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
    for returns_status in (False, True):
        into = Recording()
        into.number = 3
        into.function(address, (0,), returns_status=True)
        into.function(address, (-7,), returns_status=returns_status)
        with pytest.raises(NativeError, match="^record 3$") if returns_status else nullcontext():
            Table(into).run()


def test_a_numba_with_another_convention_leaves_calls_to_the_interpreter(monkeypatch):
    monkeypatch.setattr(recording_module, "_convention", lambda *_: (False, False))
    with recorded(Recording()), pytest.raises(NotRecordableError, match="^this Numba hands arguments over in another"):
        _one(np.ones(1), 1.0, np.ones(1))


def test_what_cannot_be_written_down_is_refused():
    into = Recording()
    with recorded(into):
        for call in (
            needs_interpreter,
            lambda: _one(np.ones(1), "1", np.ones(1)),
            lambda: elementary.copy(np.ones(2, np.int32), np.ones(2, np.float32)),
            lambda: elementary.fill(np.ones(2), 0),
            lambda: elementary.fill(np.ones((2, 2), np.float32)[:, 0].reshape(1, 2)[:, ::-1], 0),
            lambda: elementary.sum_rows(np.ones((3, 1), np.float32), np.ones(1, np.float32)),
            lambda: NUMPY.multiply(
                *(np.ones((1, 4), np.float32), np.ones((4, 4), np.float32)), np.ones((1, 4), np.float32)
            ),
        ):
            with pytest.raises(NotRecordableError):
                call()
    needs_interpreter()  # where nothing is written down it is nothing


@given(data=st.data())
def test_simple_work_has_the_bits_of_numpy(data):
    rows, width = data.draw(st.integers(1, 9)), data.draw(st.integers(2, 40))
    lead = data.draw(st.sampled_from([(), (2,), (2, 3)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def numbers(*shape: int) -> np.ndarray:
        """With gaps between rows."""
        found = rng.standard_normal((*shape[:-1], shape[-1] + 3)).astype(np.float32)[..., 1:-2]
        found[rng.random(found.shape) < 0.2] = -0.0
        return found

    x, y, row = numbers(*lead, rows, width), numbers(*lead, rows, width), numbers(width)
    whole = [np.ascontiguousarray(numbers(rows, 2 * width)) for _ in range(2)]
    positive = np.abs(whole[0]) + np.float32(1e-3)
    works = {
        "add": (lambda out: elementary.add(x, y, out), (*lead, rows, width)),
        "add a row": (lambda out: elementary.add(x, row, out), (*lead, rows, width)),
        "copy": (lambda out: elementary.copy(x, out), (*lead, rows, width)),
        "copy a row": (lambda out: elementary.copy(row, out), (*lead, rows, width)),
        "fill": (lambda out: elementary.fill(out, -math.inf), (*lead, rows, width)),
        "sum of rows": (lambda out: elementary.sum_rows(x.reshape(-1, width), out), (width,)),
        "log": (lambda out: elementary.log(positive, out), (rows, 2 * width)),
        "heads": (lambda out: elementary.dot_heads(*whole, 2, out), (2, rows)),
    }
    if lead:
        works["sum over"] = (lambda out: elementary.sum_over(x, 0, out), (1, *x.shape[1:]))
    work, shape = works[data.draw(st.sampled_from([*works]))]
    expected, found = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    work(expected)
    written(lambda: work(found)).run()
    assert found.tobytes() == expected.tobytes()


def test_sums_of_all_numbers_have_the_bits_of_numpy_at_any_size():
    rng = np.random.default_rng(1)
    for size in (*range(1, 300), 1000, 1024, 4097, 20_001):
        x, found = rng.standard_normal(size) * 10.0 ** rng.integers(-5, 5, size), np.full(1, np.nan)
        written(lambda x=x, found=found: elementary.sum_all(x, found)).run()
        assert found[0] == np.sum(x), size


def test_loops_that_numpy_does_not_lend_are_left_to_the_interpreter(monkeypatch):
    x = np.ones(3, np.float32)
    monkeypatch.setattr(elementary, "_LENT", b"numpy_of_another_day")
    with recorded(Recording()), pytest.raises(NotRecordableError, match=r"^this NumPy does not lend its loops$"):
        elementary.log(x, x)


@given(data=st.data())
def test_products_have_the_bits_of_numpy(data):
    m, n, k = (data.draw(st.integers(2, 70)) for _ in range(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def matrix(rows: int, columns: int) -> np.ndarray:
        found = rng.standard_normal((rows + 2, columns + 5)).astype(np.float32)[1:-1, 2:-3]
        turned = rng.standard_normal((columns + 1, rows + 2)).astype(np.float32)[1:, :-2].T
        return data.draw(st.sampled_from([found, turned, np.ascontiguousarray(found)]))

    a, b = matrix(m, k), matrix(k, n)
    expected, found = (np.full((m, n + 4), 7, np.float32)[:, 1:-3] for _ in range(2))
    np.matmul(a, b, out=expected)
    written(lambda: NUMPY.multiply(a, b, found)).run()
    assert found.tobytes() == expected.tobytes()
