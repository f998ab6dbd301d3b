"""How far apart tensors are, against what NumPy says of them whole."""

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.store import Tolerance
from cstool.store.checkpoint_diff import TensorDifference
from cstool.store.checkpoint_format import DTYPES

Array = np.ndarray[Any, Any]


def difference(left: Array, right: Array, tolerance: Tolerance | None = None, piece: int = 3) -> TensorDifference:
    """Compare two arrays, some elements at a time."""
    found = TensorDifference(left.size, tolerance)
    for start in range(0, left.size, piece):
        found.add(left[start : start + piece], right[start : start + piece])
    return found


def of(numbers: Any, dtype: str = "float32") -> Array:
    return np.array(numbers, dtype)


PAIRS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: st.integers(0, 12).flatmap(lambda size: st.tuples(hnp.arrays(dtype, size), hnp.arrays(dtype, size)))
)
# Numbers whose squares neither overflow nor vanish, so that the twin below is exact enough.
TAME = st.floats(-1e3, 1e3, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
TAME_PAIRS = st.integers(1, 12).flatmap(
    lambda size: st.tuples(hnp.arrays("float32", size, elements=TAME), hnp.arrays("float32", size, elements=TAME))
)


@given(PAIRS)
def test_what_is_equal_has_no_difference(pair):
    left, right = pair
    same = [a == b or a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)]
    assert difference(left, right).differing == same.count(False)
    itself = difference(left, left.copy())
    assert (itself.differing, itself.mean_square, itself.greatest) == (0, 0, 0)


@given(TAME_PAIRS)
def test_mean_square_and_greatest_are_those_of_numpy(pair):
    left, right = (side.astype(np.float64) for side in pair)
    found = difference(*pair)
    assert found.mean_square == pytest.approx(np.mean((left - right) ** 2), rel=1e-12)
    assert found.greatest == np.abs(left - right).max()


@given(
    hnp.arrays("float32", 8, elements=st.floats(-10, 10, width=32)),
    hnp.arrays("float64", 8, elements=st.floats(-1e-4, 1e-4)),
    st.floats(0, 1e-4),
    st.floats(0, 1e-4),
)
def test_close_is_what_numpy_calls_close(left, change, rtol, atol):
    right = (left * (1 + change)).astype(np.float32)
    close = np.isclose(left.astype(np.float64), right.astype(np.float64), rtol=rtol, atol=atol)
    assert difference(left, right, Tolerance(rtol, atol)).beyond == np.count_nonzero(~close)


def test_the_tolerance_is_relative_to_the_right(monkeypatch):
    assert difference(of([100.0]), of([110.0]), Tolerance(0.095, 0)).beyond == 0
    assert difference(of([110.0]), of([100.0]), Tolerance(0.095, 0)).beyond == 1


NAN, OTHER_NAN = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))


@pytest.mark.parametrize("tolerance", [None, Tolerance()])
def test_nan_is_equal_to_nan_if_the_bits_are(tolerance):
    assert difference(NAN, NAN, tolerance).beyond == 0
    found = difference(NAN, OTHER_NAN, tolerance)
    assert (found.beyond, math.isnan(found.greatest), math.isnan(found.mean_square)) == (1, True, True)


def test_one_nan_is_not_forgotten_over_later_pieces():
    assert math.isnan(difference(of([np.nan, 0, 0, 0]), of([0, 0, 0, 1]), piece=1).greatest)


@pytest.mark.parametrize("tolerance", [None, Tolerance()])
def test_infinity_is_close_to_itself_alone(tolerance):
    left, right = of([np.inf, np.inf, 1, np.inf]), of([np.inf, -np.inf, np.inf, 1])
    found = difference(left, right, tolerance)
    assert (found.beyond, found.greatest) == (3, math.inf)


@pytest.mark.parametrize(
    ("left", "right", "differing", "greatest"),
    [
        (of([1, 2, 3, 4]), of([1, 2, 4, 5]), 2, 1),
        (of([0.0]), of([-0.0]), 0, 0),
        (of([2**62 + 1, -(2**63)], "int64"), of([2**62, 2**63 - 1], "int64"), 2, float(2**64 - 1)),
        (of([2**62 + 1], "int64"), of([2**62], "int64"), 1, 1),
        (of([True, False], "bool"), of([False, False], "bool"), 1, 1),
        (of([1, 2], "float16"), of([1, 2.5], "float64"), 1, 0.5),
        (of([]), of([]), 0, 0),
    ],
    ids=["plain", "zeros", "too large for float64", "nearly too large", "truth values", "other dtypes", "nothing"],
)
def test_numbers_are_told_apart_exactly_and_all_are_beyond_no_tolerance(left, right, differing, greatest):
    found = difference(left, right)
    assert (found.differing, found.beyond, found.greatest) == (differing, differing, greatest)
    if differing < 2:
        assert found.mean_square == differing * greatest**2 / max(1, left.size)


def test_pieces_that_were_never_shown_count_in_the_mean():
    found = TensorDifference(100, None)
    found.add(of([3.0]), of([1.0]))
    assert found.mean_square == 0.04


def test_squares_may_overflow():
    assert difference(of([1e200], "float64"), of([-1e200], "float64")).mean_square == math.inf
