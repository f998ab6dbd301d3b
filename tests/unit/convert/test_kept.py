"""What a sparse checkpoint keeps, found range by range: as if it were found in one piece."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cstool.convert.sparsify import keep_largest, keep_nonzero
from cstool.foundation.errors import NonFiniteError
from cstool.model.sparsity.masks import top
from tests.contract.refusal import refusal

Array = np.ndarray


class Rows:
    """A source of one weight, in ranges of so many rows."""

    path = Path("x.mdl")

    def __init__(self, weight: Array, at_a_time: int) -> None:
        self.weight, self.at_a_time = weight, at_a_time

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        for start in range(0, len(self.weight), self.at_a_time):
            yield self.weight[start : start + self.at_a_time]


weights = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=7),
    elements=st.one_of(
        st.floats(width=32, allow_nan=False), st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0000001, 1e-45, -2.0, np.inf])
    ),
)


@given(weights, st.integers(1, 8), st.data())
def test_the_largest_are_those_that_a_look_at_all_of_them_finds(weight, rows, data):
    count = data.draw(st.integers(0, weight.size))
    kept = keep_largest(Rows(weight, rows), "w", count)
    assert kept.count == count
    for _ in range(2):  # the masks can be asked for again
        np.testing.assert_array_equal(np.concatenate(list(kept.masks())), top(np.abs(weight), count))


@given(weights, st.integers(1, 8))
def test_what_is_not_zero(weight, rows):
    kept = keep_nonzero(Rows(weight, rows), "w")
    np.testing.assert_array_equal(np.concatenate(list(kept.masks())), weight != 0)
    assert kept.count == np.count_nonzero(weight)


def test_the_largest_of_many_in_ranges_that_no_half_of_the_bits_separates():
    """All share the upper halves of their bits; there are ties across ranges."""
    rng = np.random.default_rng(0)
    weight = (0x3F800000 + rng.integers(0, 50, (200, 30), dtype=np.uint32)).view(np.float32)
    weight *= rng.choice(np.array([-1, 1], np.float32), weight.shape)
    kept = keep_largest(Rows(weight, 7), "w", 1234)
    np.testing.assert_array_equal(np.concatenate(list(kept.masks())), top(np.abs(weight), 1234))


@pytest.mark.parametrize("bad", [np.nan, -np.nan])
def test_nan_is_refused(bad):
    weight = np.ones((3, 2), np.float32)
    weight[1, 1] = bad
    with refusal(NonFiniteError, "x.mdl: w must be without NaN to keep its largest numbers, it is not"):
        keep_largest(Rows(weight, 2), "w", 3)
