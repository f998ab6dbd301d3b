"""Products of packed rows beside those that are not packed, bit by bit, on any CPU."""

from collections.abc import Callable

import numpy as np
import pytest

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.bfloat16 import narrowed
from cstool.training.kernels.packed_rows import (
    BLOCK,
    CHUNK,
    ROWS,
    TOKENS,
    TURN_ROWS,
    multiply_packed,
    pack_rows,
    vectors_of,
)
from cstool.training.kernels.rowwise import multiply_columns

COLUMNS = BLOCK * 16
"""of a block"""


@pytest.fixture(scope="module")
def multiply() -> Callable[..., None]:
    @elementwise
    def packed(x, weight, y, start, stop):  # type: ignore[no-untyped-def]
        multiply_packed(x, pack_rows(x, vectors_of(x)), weight, y, start, stop, 0)

    return packed


@pytest.fixture(scope="module")
def one_by_one() -> Callable[..., None]:
    @elementwise
    def alone(x, weight, y, start, stop):  # type: ignore[no-untyped-def]
        for t in range(x.shape[0]):
            multiply_columns(x[t : t + 1], weight, y[t : t + 1], start, stop, 0)

    return alone


@pytest.mark.takes("kernels for two dtypes are compiled")
@pytest.mark.parametrize("of", [np.copy, narrowed], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("width", [32, 33, 63, 80, COLUMNS - 1, COLUMNS, COLUMNS + 16, 2 * COLUMNS + 50])
def test_rows_have_the_bits_of_each_alone(multiply, one_by_one, of, width, rng):
    for tokens in (1, TOKENS - 1, TOKENS + 1, 3 * TOKENS, CHUNK * TOKENS + 3):
        x, weight = (of(rng.standard_normal((n, width), np.float32)) for n in (tokens, TURN_ROWS + 7))
        for start, stop in ((0, len(weight)), (2, 3), (5, 5 + ROWS + 1)):
            found, expected = (np.full((tokens, len(weight)), np.nan, np.float32) for _ in range(2))
            multiply(x, weight, found, start, stop)
            one_by_one(x, weight, expected, start, stop)
            np.testing.assert_array_equal(found, expected)
