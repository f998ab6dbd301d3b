"""Normalisation of rows, beside what holds of all ops."""

import numpy as np
import pytest

from cstool.model.ir import OpKind
from tests.reference import kernels as reference
from tests.unit.training.kernels.calls import backward, forward
from tests.unit.training.kernels.tolerances import assert_close

EPSILON = 1e-3
LAYER, RMS = OpKind.LAYER_NORM, OpKind.RMS_NORM
TWINS = {LAYER: reference.layer_norm, RMS: reference.rms_norm}
both_norms = pytest.mark.parametrize("kind", TWINS)


def _arrays(kind, width, dtype, rng):
    """Return x, the weights and delta_y; rows of x far from 0, as activations may be."""
    x, weight, bias, delta_y = (rng.standard_normal(shape) for shape in ((9, width), (width,), (width,), (9, width)))
    x, weight, bias, delta_y = (array.astype(dtype) for array in (3.0 * x + 1.0, weight, bias, delta_y))
    return x, [weight, bias] if kind is LAYER else [weight], delta_y


@both_norms
@pytest.mark.parametrize("width", [1, 10, 768])
def test_forward(kind, width, dtype, rng):
    x, weights, _ = _arrays(kind, width, dtype, rng)
    y, *_, rstd = forward(kind, [x], weights, epsilon=EPSILON)
    wide = [array.astype(np.float64) for array in (x, *weights)]
    assert_close(y, TWINS[kind](*wide, EPSILON))
    centre = wide[0].mean(axis=1, keepdims=True) if kind is LAYER else 0.0
    assert_close(rstd, 1.0 / np.sqrt(((wide[0] - centre) ** 2).mean(axis=1) + EPSILON))


@both_norms
def test_backward_adds_to_a_delta_when_asked(kind, rng):
    x, weights, delta_y = _arrays(kind, 10, np.float32, rng)
    delta_x, *_ = backward(kind, [x], weights[:1], delta_y, epsilon=EPSILON)
    more = {"delta_x": np.ones_like(x), "of_call": {"accumulate": (True,)}}
    added, _ = backward(kind, [x], weights[:1], delta_y, epsilon=EPSILON, **more)
    np.testing.assert_array_equal(added, 1.0 + delta_x)


def test_rms_does_not_see_the_size_of_a_row(rng):
    x, weights, _ = _arrays(RMS, 10, np.float32, rng)
    (y, *_) = forward(RMS, [x], weights, epsilon=0.0)
    for exponent in range(-40, 41):
        np.testing.assert_array_equal(forward(RMS, [np.ldexp(x, exponent)], weights, epsilon=0.0)[0], y)


@pytest.mark.parametrize(
    ("kind", "value", "places"),
    [(LAYER, np.nan, range(100)), (LAYER, np.inf, range(100)), (RMS, np.nan, range(100)), (RMS, np.inf, [50])],
)
def test_a_row_with_nan_or_infinity_is_spoilt_and_no_other(kind, value, places, rng):
    x, weights, delta_y = _arrays(kind, 100, np.float32, rng)
    x[3, 50] = value
    made = forward(kind, [x], weights, epsilon=EPSILON), backward(kind, [x], weights, delta_y, epsilon=EPSILON)
    for array in (made[0][0], made[1][0]):
        assert np.isnan(array[3, places]).all()
        assert np.isfinite(array[np.arange(9) != 3]).all()
