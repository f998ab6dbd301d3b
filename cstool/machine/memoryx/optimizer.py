"""The optimizer as MemoryX applies it: which state it keeps per weight, and the update of a range of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cstool.kernels.optimizer import adam_update, sgd_update
from cstool.params import SGD, Adam, AdamW

Array = np.ndarray[Any, Any]

_NEGLIGIBLE = -26 * math.log(2)
"""logarithm of a power that 1 is not made less by in float32"""
_MAX_POWERS = 2**20


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
        """Update (n,) float32 in place; the result does not depend on how a weight is cut.

        Args:
            decays: whether the weight is none of a norm and no bias
        """


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
            self.params.form == "pytorch" and step.number == 1,
        )


class _BiasCorrection:
    """1 - beta^step, as exactly as whoever is followed has it.

    The vendor multiplies beta^step up in float32. Of a beta near 1 that is seen: 1 - 0.999 is off by 1.3e-5.
    """

    def __init__(self, beta: float, *, as_vendors: bool) -> None:
        self.beta = beta
        self.powers = np.zeros(0, np.float32)
        if as_vendors and beta > 0:
            steps = min(math.ceil(_NEGLIGIBLE / math.log(beta)), _MAX_POWERS)
            self.powers = np.multiply.accumulate(np.full(steps, beta, np.float32))

    def of(self, step: int) -> float:
        """Return it for a step, from 1."""
        if step > len(self.powers):
            return 1.0 - self.beta**step
        return float(np.float32(1.0) - self.powers[step - 1])


class AdamRule:
    """Adam and AdamW.

    Source of the vendor's form: its optimizers Adam and AdamW, cerebras_pytorch 2.10.
    """

    states: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: Adam, max_gradient_value: float | None) -> None:
        self.params = params
        self.clip_value = math.inf if max_gradient_value is None else max_gradient_value
        self.is_vendors = params.form == "vendor"
        self.is_decoupled = isinstance(params, AdamW)
        self.decays_all = self.is_vendors and not self.is_decoupled
        """the vendor's Adam takes the weight decay of the file for every group of weights"""
        betas = params.betas if params.correct_bias else (0.0, 0.0)
        self.corrections = [_BiasCorrection(beta, as_vendors=self.is_vendors) for beta in betas]

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        exp_avg, exp_avg_sq = states
        beta1, beta2 = self.params.betas
        correction1, correction2 = (correction.of(step.number) for correction in self.corrections)
        if self.is_vendors:
            # Epsilon is added to the root as it is; the quotient is corrected.
            correction1, correction2 = correction1 / math.sqrt(correction2), 1.0
        adam_update(
            weight,
            gradient,
            exp_avg,
            exp_avg_sq,
            step.learning_rate,
            beta1,
            beta2,
            self.params.eps,
            self.params.weight_decay if decays or self.decays_all else 0.0,
            self.is_decoupled,
            correction1,
            correction2,
            step.gradient_scale,
            self.clip_value,
        )


def make_optimizer(params: SGD | Adam, max_gradient_value: float | None) -> Optimizer:
    """Return the optimizer that the params ask for."""
    if isinstance(params, SGD):
        return SgdRule(params, max_gradient_value)
    return AdamRule(params, max_gradient_value)
