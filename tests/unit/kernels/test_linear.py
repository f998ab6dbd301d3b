"""The linear layer, whole and by panels."""

import numpy as np
import pytest

from cstool.kernels.linear import column_sum, linear_backward_delta, linear_backward_weight, linear_forward
from tests.unit.kernels.tolerances import assert_close

PANELS = [slice(0, 20), slice(20, 33), slice(33, 48)]


@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_forward_by_panels_is_the_product(with_bias, dtype, rng):
    x, weight, bias = (rng.standard_normal(shape).astype(dtype) for shape in ((7, 24), (48, 24), (48,)))
    y = np.full((7, 48), np.nan, dtype)
    for rows in PANELS:
        linear_forward(x, weight[rows], bias[rows] if with_bias else None, y[:, rows])
    assert_close(y, x.astype(np.float64) @ weight.T + (bias if with_bias else 0.0))


@pytest.mark.parametrize("accumulate", [True, False], ids=["add", "overwrite"])
def test_delta_by_panels_is_the_product(accumulate, dtype, rng, scratch):
    delta_y, weight = (rng.standard_normal(shape).astype(dtype) for shape in ((7, 48), (48, 24)))
    before = rng.standard_normal((7, 24)).astype(dtype) if accumulate else np.full((7, 24), np.nan, dtype)
    delta_x = before.copy()
    for number, rows in enumerate(PANELS):
        linear_backward_delta(delta_y[:, rows], weight[rows], delta_x, accumulate or number > 0, scratch)
    assert_close(delta_x, delta_y.astype(np.float64) @ weight + (before if accumulate else 0.0))


def test_weight_gradient_by_panels_is_the_product(dtype, rng):
    x, delta_y = (rng.standard_normal(shape).astype(dtype) for shape in ((7, 24), (7, 48)))
    grad = np.full((48, 24), np.nan, dtype)
    for rows in PANELS:
        linear_backward_weight(x, delta_y[:, rows], grad[rows])
    assert_close(grad, delta_y.T.astype(np.float64) @ x)


def test_column_sum_adds_rows_in_their_order(rng):
    delta_y = rng.standard_normal((50, 48)).astype(np.float32)
    grad = np.full(48, np.nan, np.float32)
    column_sum(delta_y, grad)
    expected = delta_y[0].copy()
    for row in delta_y[1:]:
        expected += row
    np.testing.assert_array_equal(grad, expected)


def test_column_sum_of_a_panel_has_the_bits_of_the_whole(rng):
    delta_y = rng.standard_normal((50, 48)).astype(np.float32)
    whole, parts = np.empty(48, np.float32), np.empty(48, np.float32)
    column_sum(delta_y, whole)
    for rows in PANELS:
        column_sum(delta_y[:, rows], parts[rows])
    np.testing.assert_array_equal(parts, whole)
