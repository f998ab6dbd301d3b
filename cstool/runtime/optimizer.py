"""The optimizer as MemoryX applies it: which state it keeps per weight, and the update of a range of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cstool.kernels.optimizer import adam_update, sgd_update
from cstool.params import SGD, Adam, AdamW

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """What an update needs to know of its step."""

    number: int
    """from 1"""
    learning_rate: float
    gradient_scale: float
    """what the gradient is multiplied by first (clipping by norm)"""


class Optimizer(Protocol):
    """A rule of update with its state."""

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the arrays kept beside each weight, of its shape."""

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """Update (n,) float32 in place; the result does not depend on how a weight is cut."""


class SgdRule:
    """Gradient descent, with momentum if asked for."""

    def __init__(self, params: SGD, max_gradient_value: float | None) -> None:
        self.params = params
        self.clip_value = math.inf if max_gradient_value is None else max_gradient_value
        self.states: tuple[str, ...] = ("momentum_buffer",) if params.momentum else ()

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        sgd_update(
            weight,
            gradient,
            states[0] if states else None,
            step.learning_rate,
            self.params.momentum,
            self.params.dampening,
            self.params.nesterov,
            self.params.weight_decay if decays else 0.0,
            step.gradient_scale,
            self.clip_value,
            step.number == 1,
        )


class AdamRule:
    """Adam and AdamW."""

    states: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: Adam, max_gradient_value: float | None) -> None:
        self.params = params
        self.clip_value = math.inf if max_gradient_value is None else max_gradient_value

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        exp_avg, exp_avg_sq = states
        beta1, beta2 = self.params.betas
        corrects = self.params.correct_bias
        adam_update(
            weight,
            gradient,
            exp_avg,
            exp_avg_sq,
            step.learning_rate,
            beta1,
            beta2,
            self.params.eps,
            self.params.weight_decay if decays else 0.0,
            isinstance(self.params, AdamW),
            1 - beta1**step.number if corrects else 1.0,
            1 - beta2**step.number if corrects else 1.0,
            step.gradient_scale,
            self.clip_value,
        )


def make_optimizer(params: SGD | Adam, max_gradient_value: float | None) -> Optimizer:
    """Return the optimizer that the params ask for."""
    if isinstance(params, SGD):
        return SgdRule(params, max_gradient_value)
    return AdamRule(params, max_gradient_value)
