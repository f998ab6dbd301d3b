"""The linear layer, whole and by panels."""

import numpy as np
import pytest

from cstool.training.kernels.linear import column_sum, linear_backward_delta, linear_backward_weight, linear_forward
from tests.unit.training.kernels.tolerances import assert_close

PANELS = [slice(0, 20), slice(20, 33), slice(33, 48)]


@pytest.mark.parametrize("more", [True, False], ids=["bias, add", "no bias, overwrite"])
def test_products_by_panels_are_those_of_the_whole(more, dtype, rng, scratch):
    shapes = (7, 24), (7, 48), (48, 24), (48,), (7, 24)
    x, delta_y, weight, bias, before = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    y, grad = np.full((7, 48), np.nan, dtype), np.full((48, 24), np.nan, dtype)
    delta_x = before.copy() if more else np.full((7, 24), np.nan, dtype)
    for number, rows in enumerate(PANELS):
        linear_forward(x, weight[rows], bias[rows] if more else None, y[:, rows])
        linear_backward_delta(delta_y[:, rows], weight[rows], delta_x, more or number > 0, scratch)
        linear_backward_weight(x, delta_y[:, rows], grad[rows])
    wide = delta_y.astype(np.float64)
    assert_close(y, x.astype(np.float64) @ weight.T + (bias if more else 0.0))
    assert_close(delta_x, wide @ weight + (before if more else 0.0))
    assert_close(grad, wide.T @ x)


def test_column_sum_adds_rows_in_their_order_in_a_panel_as_in_the_whole(rng):
    delta_y = rng.standard_normal((50, 48)).astype(np.float32)
    whole, parts, expected = np.full(48, np.nan, np.float32), np.empty(48, np.float32), delta_y[0].copy()
    column_sum(delta_y, whole)
    for rows in PANELS:
        column_sum(delta_y[:, rows], parts[rows])
    for row in delta_y[1:]:
        expected += row
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(parts, expected)
