"""Divisors, the hint that names the nearest, and parts of nearly equal length."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.model.batch_split import divisors, even_parts, nearest_divisors


@given(st.integers(1, 5000))
@example(36)
def test_they_are_all_that_divide(number: int) -> None:
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]
    # Large numbers take no time.
    assert divisors(2**31 - 1) == [1, 2**31 - 1]
    assert len(divisors(10**9)) == 100


@pytest.mark.parametrize(
    ("number", "got", "hint"),
    [
        (48, 5, "4 and 6 are the nearest"),
        (48, 49, "48 is the nearest"),
        (7, 3, "1 and 7 are the nearest"),
        (7, 100, "7 is the nearest"),
        (7, 0, "1 is the nearest"),
    ],
)
def test_the_nearest(number: int, got: int, hint: str) -> None:
    assert nearest_divisors(number, got) == hint


@given(st.integers(0, 100), st.integers(1, 100))
def test_parts_are_the_whole_in_order_and_of_nearly_equal_length(length: int, count: int) -> None:
    parts = even_parts(range(length), count)
    assert len(parts) == count
    assert [item for part in parts for item in part] == list(range(length))
    assert {len(part) for part in parts} <= {length // count, -(-length // count)}
    assert even_parts("ab", 5) == ["", "", "a", "", "b"]
