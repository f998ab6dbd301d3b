"""The optimizers of the params: which state they keep, and their updates against a slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cstool.machine.memoryx.optimizer import Step, make_optimizer
from cstool.params import SGD, Adam, AdamW
from tests.reference import kernels as reference

TOLERANCE = 1e-6
"""relative; some ten operations of 6e-8 each"""
FORMS = pytest.mark.parametrize("form", ["vendor", "pytorch"])


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
@FORMS
def test_sgd(momentum: float, dampening: float, nesterov: bool, form: str) -> None:
    settings: dict[str, Any] = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "form": form}
    before, gradients, after = train(SGD(weight_decay=0.1, **settings))
    expected = reference.sgd(before, gradients, 0.01, momentum, dampening, nesterov, 0.1, form)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [Adam, AdamW])
@FORMS
def test_adam(kind: type[Adam], form: Any) -> None:
    before, gradients, after = train(kind(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, form=form))
    expected = reference.adam(before, gradients, 0.01, (0.8, 0.95), 1e-3, 0.1, kind is AdamW, form)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_vendors_early_epsilon_is_larger_by_the_root_of_the_correction() -> None:
    before, [gradient], after = train(AdamW(betas=(0.9, 0.999), eps=1e-2), steps=1)
    effective = 1e-2 / np.sqrt(1 - 0.999)
    assert effective == pytest.approx(0.316, abs=1e-3)
    # Relative: 1.3e-5, since the vendor's power of beta2 is a float32. Absolute: weights up to 2 are rounded.
    np.testing.assert_allclose(before - after, 0.01 * gradient / (np.abs(gradient) + effective), rtol=5e-5, atol=2e-7)


@pytest.mark.parametrize("beta", [0.9, 0.95, 0.999])
def test_the_vendors_correction_of_the_bias_is_multiplied_up_in_float32(beta: float) -> None:
    """Up to where nothing is left to correct, and beyond."""
    power, factor = np.float32(beta), np.float32(beta)
    optimizer, slow = make_optimizer(AdamW(betas=(0.0, beta), eps=1e-12), None), []
    for _ in range(20_000):
        slow.append(float(np.float32(1) - power))
        power = power * factor
    found = []
    for step in (1, 2, 100, 10_000, 20_000):
        weight, states = np.zeros(1, np.float32), [np.zeros(1, np.float32) for _ in range(2)]
        optimizer.update(weight, np.ones(1, np.float32), states, Step(step, 1.0, 1.0), True)
        found.append(-float(weight[0]) * np.sqrt(states[1][0]))
    np.testing.assert_allclose(np.square(found), [slow[n - 1] for n in (1, 2, 100, 10_000, 20_000)], rtol=TOLERANCE)


def test_adam_without_correction_of_the_bias_takes_smaller_first_steps() -> None:
    before, [gradient], after = train(AdamW(betas=(0.8, 0.95), eps=1e-3, correct_bias=False), steps=1)
    expected = before - 0.01 * 0.2 * gradient / (np.sqrt(0.05) * np.abs(gradient) + 1e-3)
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "params", [SGD(weight_decay=0.5), Adam(weight_decay=0.5, form="pytorch"), AdamW(weight_decay=0.5)]
)
def test_a_weight_that_does_not_decay_is_updated_as_without_decay(params: SGD | Adam) -> None:
    without = train(params.model_copy(update={"weight_decay": 0.0}))[2]
    np.testing.assert_array_equal(train(params, decays=False)[2], without)


def test_the_vendors_adam_spares_no_weight_its_decay() -> None:
    params = Adam(weight_decay=0.5)
    np.testing.assert_array_equal(train(params, decays=False)[2], train(params, decays=True)[2])


@pytest.mark.parametrize("params", [SGD(), AdamW(eps=0.1)])
def test_gradients_are_clipped_by_value_after_they_are_scaled(params: SGD | Adam) -> None:
    before, gradients, after = train(params, clip=0.3, scale=0.5)
    clipped = [np.clip(0.5 * gradient, -0.3, 0.3) for gradient in gradients]
    if isinstance(params, SGD):
        expected = reference.sgd(before, clipped, 0.01, 0.0, 0.0, False, 0.0)
    else:
        expected = reference.adam(before, clipped, 0.01, (0.9, 0.999), 0.1, 0.0, True, "vendor")
    np.testing.assert_allclose(after, expected, rtol=TOLERANCE, atol=TOLERANCE)
