"""A layer whose activations pass a range filter at routers: the filter is ReLU, whatever the sender sends."""

import numpy as np
import pytest

from benchmarks.fabric_models import TILES, relu_layer, run_relu_layer

COLUMNS, ROWS, TOKENS, INPUTS, OUTPUTS = TILES.values()


@pytest.fixture(scope="module")
def program():
    return relu_layer(filters=True)


@pytest.mark.takes("a layer, compiled and simulated")
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_is_not_more_than_0_is_left_out(program, share):
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((COLUMNS * INPUTS, ROWS * OUTPUTS)).astype(np.float32)
    x = rng.standard_normal((TOKENS, COLUMNS * INPUTS)).astype(np.float32)
    x[rng.random(x.shape) < share] *= -0.0
    x[0, :4] = -1.0, -0.0, 2.0**-130, 1.0e30 * (share == 0.5)
    y, _ = run_relu_layer(program, x, weight)
    expected = np.maximum(x, 0).astype(np.float64) @ weight
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=2e-6 * max(1.0, np.abs(x).max()))


@pytest.mark.takes("a layer, compiled and simulated")
def test_a_number_whose_high_half_is_0_counts_as_0(program):
    x = np.zeros((TOKENS, COLUMNS * INPUTS), np.float32)
    x[0, 0] = 2.0**-134
    weight = np.full((COLUMNS * INPUTS, ROWS * OUTPUTS), 2.0**100, np.float32)
    assert not run_relu_layer(program, x, weight)[0].any()
    x[0, 0] = 2.0**-133
    assert (run_relu_layer(program, x, weight)[0][0] == 2.0**-33).all()
