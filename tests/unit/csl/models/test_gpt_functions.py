"""Functions of a GPT over the whole range of their arguments, beside float64: few bits are lost, nothing overflows."""

import numpy as np
import pytest

from cstool.csl.models.gpt_host import GptOnFabric
from cstool.csl.models.gpt_program import Grid, gpt_program
from cstool.csl.models.simulated import SimulatedFabric
from cstool.model.ir import Op, OpKind

TOKENS, FEATURES = 4, 16
UNIT = 2.0**-24
GRID = Grid(1, 1, TOKENS)


def opened(kind, weights, **attributes):
    """Return the host of a program of one op, whose weights are vectors."""
    op = Op(kind, "op", ("x",), ("y",), weights, attributes)
    program = gpt_program([op], {"x": FEATURES}, dict.fromkeys(weights, (FEATURES,)), GRID)
    return GptOnFabric(SimulatedFabric(program.compiled()), program.host)


@pytest.mark.takes("a program compiled and simulated")
def test_gelu_and_its_slope_from_one_end_to_the_other():
    gpt = opened(OpKind.ACTIVATION, ("bias",), function="gelu_new")
    u = np.concatenate([np.linspace(-12, 12, 57), [-1e6, -100.0, -1e-3, -0.0, 1e-20, 100.0, 1e6]])
    u = u.astype(np.float32).reshape(TOKENS, FEATURES)
    gpt.put_tokens("x", u)
    bias = {"bias": np.zeros(FEATURES, np.float32)}
    gpt.forward(gpt.steps[0], bias)
    exact = u.astype(np.float64)
    z = np.sqrt(2 / np.pi) * (exact + 0.044715 * exact**3)
    s = 1 / (1 + np.exp(np.minimum(-2 * z, 700)))
    # Errors of an exponent grow with it, as its power falls: 8 units of what is larger than 1, or of 1.
    size = np.maximum(1.0, np.abs(exact) * s)
    assert (np.abs(gpt.get_tokens("y", FEATURES) - exact * s) <= 8 * UNIT * size).all()
    gpt.put_tokens("delta_y", np.ones_like(u))
    gpt.backward(gpt.steps[0], bias)
    slope = s + 2 * exact * s * (1 - s) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * exact**2)
    assert (np.abs(gpt.get_tokens("delta_x", FEATURES) - slope) <= 16 * UNIT).all()


@pytest.mark.takes("a program compiled and simulated")
@pytest.mark.parametrize("scale", [1e-15, 1e-3, 1.0, 1e3, 1e15])
def test_a_norm_of_any_scale(scale):
    gpt = opened(OpKind.LAYER_NORM, ("weight", "bias"), epsilon=scale * scale * 1e-5)
    x = (scale * np.random.default_rng(4).standard_normal((TOKENS, FEATURES))).astype(np.float32)
    gpt.put_tokens("x", x)
    gpt.forward(gpt.steps[0], {"weight": np.ones(FEATURES, np.float32), "bias": np.zeros(FEATURES, np.float32)})
    exact = x.astype(np.float64)
    deviation = np.sqrt(exact.var(axis=1, keepdims=True) + scale * scale * 1e-5)
    expected = (exact - exact.mean(axis=1, keepdims=True)) / deviation
    np.testing.assert_allclose(gpt.get_tokens("y", FEATURES), expected, rtol=0, atol=16 * UNIT)
