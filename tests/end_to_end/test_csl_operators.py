"""The operator of examples/csl on 7 points, as its host scripts make it for the fabric and for SciPy."""

import importlib.util
from types import ModuleType

import numpy as np
import pytest

from tests.end_to_end.pages import PROJECT

SHAPE = (3, 4, 5)  # y, x, z


@pytest.fixture(scope="module")
def seven_point() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seven_point", PROJECT / "examples" / "csl" / "seven_point.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("wind", [0.0, 1.0])
def test_the_matrix_is_what_the_coefficients_do_to_a_field(seven_point, wind):
    """A second way: whole fields are shifted, with zeros beyond the grid."""
    found = seven_point.coefficients(SHAPE, wind, seed=3)
    field = np.random.default_rng(4).standard_normal(SHAPE)
    padded = np.pad(field, 1)
    inner = slice(1, -1)
    along_z = padded[inner, inner, :-2], padded[inner, inner, 2:]
    along_x = padded[inner, :-2, inner], padded[inner, 2:, inner]
    along_y = padded[:-2, inner, inner], padded[2:, inner, inner]
    expected = field + sum(found[:, :, side] * there for side, there in enumerate((*along_z, *along_x, *along_y)))
    np.testing.assert_allclose(seven_point.matrix(found) @ field.ravel(), expected.ravel(), rtol=1e-12, atol=1e-12)


def test_without_wind_it_is_symmetric_and_positive_and_with_wind_it_is_not_symmetric(seven_point):
    still = seven_point.matrix(seven_point.coefficients(SHAPE, 0.0, seed=3)).toarray()
    np.testing.assert_array_equal(still, still.T)
    assert np.linalg.eigvalsh(still).min() > 0
    blown = seven_point.matrix(seven_point.coefficients(SHAPE, 1.0, seed=3)).toarray()
    assert np.abs(blown - blown.T).max() > 0.01
