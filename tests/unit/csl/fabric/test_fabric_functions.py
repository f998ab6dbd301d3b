"""Functions of floats, beside NumPy's, and values as programs print them."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.numbers import f32
from cstool.csl.fabric.scalar import function, shown
from tests.examples import examples

FUNCTIONS = "sqrt exp exp2 log log2 sin cos tan tanh asin acos atan ceil floor trunc".split()
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, 90.0, -800.0, 800.0, math.inf, -math.inf, math.nan]


def same(found: float, wanted: float) -> bool:
    """Whether two results are one float32, the sign of zero counted."""
    if math.isnan(wanted):
        return math.isnan(found)
    return f32(found) == f32(wanted) and math.copysign(1, found) == math.copysign(1, wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges_as_numpy(name: str) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in EDGES:
            assert same(function(name, x), float(getattr(np, NUMPY.get(name, name))(np.float64(x)))), x


@examples(60)
@given(st.floats(-50, 50, width=32), st.floats(-8, 8, width=32))
def test_power_as_numpy(x: float, y: float) -> None:
    with np.errstate(all="ignore"):
        assert same(function("pow", x, y), float(np.power(np.float64(x), np.float64(y))))


def test_power_at_its_edges() -> None:
    edges = {(0.0, -1.0): math.inf, (0.0, -2.0): math.inf, (-1e300, 3.0): -math.inf, (-2.0, 0.5): math.nan}
    for (x, y), wanted in edges.items():
        assert same(function("pow", x, y), wanted), (x, y)
    assert same(function("pow", -0.0, -1.0), -math.inf)


def test_values_as_they_are_printed() -> None:
    assert [shown("", 17), shown("d", 17), shown("x", 17), shown("f", 0.1 + 0.2)] == ["17", "17", "11", "0.3"]
    assert shown("", True) == "true"
