"""The optimizers of the params: which state they keep, and their updates against a slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cstool.params import SGD, Adam, AdamW
from cstool.runtime.optimizer import Step, make_optimizer
from tests.reference import kernels as reference

TOLERANCE = 1e-6
"""relative; some ten operations of 6e-8 each"""


def train(params: SGD | Adam, *, steps: int = 3, clip: float | None = None, scale: float = 1.0, decays: bool = True):
    """Return the weight before, its gradients, and the weight after `steps` updates."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal(50).astype(np.float32)
    gradients = [rng.standard_normal(50).astype(np.float32) for _ in range(steps)]
    optimizer = make_optimizer(params, clip)
    after, states = before.copy(), [np.zeros(50, np.float32) for _ in optimizer.states]
    for number, gradient in enumerate(gradients, start=1):
        optimizer.update(after, gradient.copy(), states, Step(number, 0.01, scale), decays)
    return before.astype(np.float64), [gradient.astype(np.float64) for gradient in gradients], after


@pytest.mark.parametrize(
    ("params", "states"),
    [
        (SGD(), ()),
        (SGD(momentum=0.9), ("momentum_buffer",)),
        (Adam(), ("exp_avg", "exp_avg_sq")),
        (AdamW(), ("exp_avg", "exp_avg_sq")),
    ],
)
def test_the_state_that_is_kept_beside_each_weight(params: SGD | Adam, states: tuple[str, ...]) -> None:
    assert make_optimizer(params, None).states == states


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"), [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.5, False), (0.9, 0.0, True)]
)
def test_sgd(momentum: float, dampening: float, nesterov: bool) -> None:
    settings: dict[str, Any] = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
    before, gradients, after = train(SGD(weight_decay=0.1, **settings))
    expected = reference.sgd(before, gradients, 0.01, momentum, dampening, nesterov, 0.1)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_adam(kind: type[Adam]) -> None:
    before, gradients, after = train(kind(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1))
    expected = reference.adam(before, gradients, 0.01, (0.8, 0.95), 1e-3, 0.1, kind is AdamW)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_adam_without_correction_of_the_bias_takes_smaller_first_steps() -> None:
    before, [gradient], after = train(AdamW(betas=(0.8, 0.95), eps=1e-3, correct_bias=False), steps=1)
    expected = before - 0.01 * 0.2 * gradient / (np.sqrt(0.05) * np.abs(gradient) + 1e-3)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("params", [SGD(weight_decay=0.5), Adam(weight_decay=0.5), AdamW(weight_decay=0.5)])
def test_a_weight_that_does_not_decay_is_updated_as_without_decay(params: SGD | Adam) -> None:
    without = train(params.model_copy(update={"weight_decay": 0.0}))[2]
    np.testing.assert_array_equal(train(params, decays=False)[2], without)


@pytest.mark.parametrize("params", [SGD(), AdamW(eps=0.1)])
def test_gradients_are_clipped_by_value_after_they_are_scaled(params: SGD | Adam) -> None:
    before, gradients, after = train(params, clip=0.3, scale=0.5)
    clipped = [np.clip(0.5 * gradient, -0.3, 0.3) for gradient in gradients]
    if isinstance(params, SGD):
        expected = reference.sgd(before, clipped, 0.01, 0.0, 0.0, False, 0.0)
    else:
        expected = reference.adam(before, clipped, 0.01, (0.9, 0.999), 0.1, 0.0, True)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)
