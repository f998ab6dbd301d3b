"""Products whose rows do not depend on one another, against NumPy in float64, and against themselves bit by bit."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.bfloat16 import narrowed, widened
from cstool.training.kernels.rowwise import (
    LONE_FETCHED_BYTES,
    LONE_ROWS,
    NEAR_TOKENS,
    ROWS,
    TOKENS,
    add_weighted,
    linear_by_turns,
)
from tests.unit.training.kernels.calls import said_by_a_process
from tests.unit.training.kernels.tolerances import assert_close

EDGES = [1, ROWS - 1, ROWS, ROWS + 1, LONE_ROWS - 1, LONE_ROWS, LONE_ROWS + 3, 50]
"""rows of a weight around those at which another tile is taken"""


def product(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    y = np.full((len(x), len(weight)), np.nan, np.float32)
    multiply(x, weight, bias, y)
    return y


def multiply(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray) -> None:
    linear_by_turns(x, weight, bias, y, np.zeros(1, np.int64), 0)


def arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("rows", EDGES)
def test_it_is_the_product_and_of_bfloat16_that_of_rounded_rows(rows, rng):
    many = ROWS * TOKENS, NEAR_TOKENS + TOKENS + 3
    for tokens, width in itertools.product((1, TOKENS - 1, TOKENS, 2 * TOKENS + 3, *many), (1, 15, 16, 17, 33, 100)):
        x, weight, bias = arrays(rng, (tokens, width), (rows, width), (rows,))
        for held in (weight, narrowed(weight)):
            left, right = (x, weight) if held is weight else (widened(narrowed(x)), widened(held))
            exact = left.astype(np.float64) @ right.T.astype(np.float64)
            largest = float((np.abs(left).astype(np.float64) @ np.abs(right.T)).max())
            assert_close(product(x, held), exact, largest)
            assert_close(product(x, held, bias), exact + bias, largest)


def product_by_pairs(x: np.ndarray, weight: np.ndarray) -> np.float32:
    """The product of two rows of bfloat16, pair by pair: the slow twin."""
    # Products are exact in float64, so each sum is rounded to float32 once.
    products = widened(x).astype(np.float64) * widened(weight)
    sums, whole = np.zeros(16, np.float32), len(x) - len(x) % 32
    for place in range(0, whole, 32):
        for k in (1, 0):
            sums = (sums + products[place + k : place + 32 : 2]).astype(np.float32)
    eight = sums[:8] + sums[8:]
    four = eight[:4] + eight[4:]
    total = (four[0] + four[2]) + (four[1] + four[3])
    for each in products[whole:]:
        total = np.float32(total + each)
    return total


@pytest.mark.parametrize("width", [1, 31, 32, 64, 99])
def test_pairs_of_bfloat16_are_added_in_the_order_that_is_said(width, rng):
    x, weight = arrays(rng, (TOKENS + 1, width), (LONE_ROWS, width))
    expected = [[product_by_pairs(row, other) for other in narrowed(weight)] for row in narrowed(x)]
    np.testing.assert_array_equal(product(x, narrowed(weight)), expected)


PRODUCTS = """
import os, sys
import numpy as np
from cstool.training.kernels.rowwise import linear_by_turns

rng = np.random.default_rng(1)
# Of small numbers every order has the same sum.
x, weight = (rng.integers(-9, 10, (8, 40)).astype(np.float32) for _ in range(2))
bits = (weight.view(np.uint32) >> 16).astype(np.uint16)
weights = {"float32": (bits.astype(np.uint32) << 16).view(np.float32), "bfloat16": bits}
for precisions in sys.argv[1:]:
    if not os.fork():
        found = set()
        for precision in precisions.split():
            y = np.zeros((8, 8), np.float32)
            linear_by_turns(x, weights[precision], None, y, np.zeros(1, np.int64), 0)
            found.add(y.tobytes())
        os._exit(len(found) - 1)
    assert os.wait()[1] == 0, precisions
"""


@pytest.mark.lab
def test_forms_that_two_processes_compiled_are_not_taken_for_each_other(tmp_path):
    """Each is the first that its process compiles, so inner functions of both have the same numbers."""
    tmp_path.chmod(0o700)
    orders = "float32", "bfloat16", "float32 bfloat16", "bfloat16 float32"
    said_by_a_process(PRODUCTS, *orders, CSTOOL_CACHE_DIR=str(tmp_path))


@given(st.integers(0, 2**32 - 1), st.integers(1, 13), st.integers(1, 40), st.integers(1, 70))
def test_a_row_has_the_same_bits_alone_and_among_any_others(seed, tokens, rows, width):
    x, weight, bias = arrays(np.random.default_rng(seed), (tokens, width), (rows, width), (rows,))
    together = product(x, weight, bias)
    alone = np.concatenate([product(x[t : t + 1], weight, bias) for t in range(tokens)])
    np.testing.assert_array_equal(together, alone)
    order = np.random.default_rng(seed).permutation(tokens)
    np.testing.assert_array_equal(product(x[order].copy(), weight, bias), together[order])


@pytest.mark.parametrize("size_bytes", [2, 4])
def test_a_row_alone_has_its_bits_with_short_rows_and_with_long_ones(size_bytes, rng):
    most = LONE_FETCHED_BYTES // LONE_ROWS // size_bytes
    for width in (most, most + 1):
        x, weight = arrays(rng, (TOKENS, width), (2 * LONE_ROWS, width))
        held = narrowed(weight) if size_bytes == 2 else weight
        np.testing.assert_array_equal(product(x[:1], held), product(x, held)[:1])


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 40), st.data())
def test_ranges_of_rows_of_the_weight_have_the_bits_of_the_whole(seed, tokens, rows, data):
    cut = data.draw(st.integers(0, rows))
    x, weight, bias = arrays(np.random.default_rng(seed), (tokens, 33), (rows, 33), (rows,))
    y = np.full((tokens, rows), np.nan, np.float32)
    for start, stop in ((0, cut), (cut, rows)):
        before = y.copy()
        multiply(x, weight[start:stop], bias[start:stop], y[:, start:stop])
        # Nothing else is written.
        outside = np.ones(rows, bool)
        outside[start:stop] = False
        np.testing.assert_array_equal(y[:, outside], before[:, outside])
    np.testing.assert_array_equal(y, product(x, weight, bias))


def test_operands_may_be_columns_of_wider_arrays(rng):
    x, weight = arrays(rng, (6, 60), (20, 80))
    wide = np.full((6, 50), np.nan, np.float32)
    y = wide[:, 10:30]
    multiply(x[:, 20:53], weight[:, 5:38], None, y)
    np.testing.assert_array_equal(y, product(x[:, 20:53].copy(), weight[:, 5:38].copy()))
    assert np.isnan(wide[:, :10]).all()
    assert np.isnan(wide[:, 30:]).all()


@pytest.mark.parametrize("width", [1, 15, 16, 64, 81, 150])
def test_weighted_rows_are_added_one_after_the_other(width, rng):
    for count in (0, 1, 7):
        shares, rows, y = arrays(rng, (count,), (count + 3, width), (width,))
        expected = y.astype(np.float64) + shares.astype(np.float64) @ rows[2 : 2 + count]
        add_weighted(shares, rows, 2, y)
        assert_close(y, expected, 1.0 + float(np.abs(expected).max()))


def test_infinity_and_nan_are_not_lost():
    x, weight = np.ones((1, 20), np.float32), np.ones((9, 20), np.float32)
    weight[3, 17], weight[5, 2] = np.nan, np.inf
    y = product(x, weight)
    assert np.isnan(y[0, 3])
    assert y[0, 5] == np.inf
    assert np.isfinite(np.delete(y[0], [3, 5])).all()
