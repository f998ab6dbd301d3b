"""The checks that stores share."""

import numpy as np
import pytest

from cstool.store.protocol import check_rows, check_shape
from tests.contract.refusal import refusal


def test_a_shape_becomes_a_tuple_of_python_integers():
    assert [type(extent) for extent in check_shape("a", [np.int64(2), 3])] == [int, int]


def test_a_shape_without_dimensions_is_refused():
    with refusal(ValueError, "a: a shape must have one or more dimensions, none negative, got ()"):
        check_shape("a", ())


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 4), (4, 4)])
def test_rows_up_to_the_end_are_in_range(start, stop):
    check_rows("a", 4, start, stop)


def test_rows_beyond_the_end_are_refused():
    with refusal(ValueError, "a: rows must satisfy 0 <= start <= stop <= 4, got 2:5"):
        check_rows("a", 4, 2, 5)
