"""Adam and AdamW.

Source: the semantics of PyTorch's `torch.optim.Adam` and `AdamW` (the algorithms in their documentation); of the
vendor's form: its optimizers Adam and AdamW, cerebras_pytorch 2.10.
"""

import functools
import math
from collections.abc import Mapping, Sequence

from cstool.model.optimizers import Array, Shape, Step, compiled
from cstool.model.params.sections.optimizers import Adam, AdamW

FORMS = (Adam.model_validate({}),)
_NEGLIGIBLE = -26 * math.log(2)
"""logarithm of a power that 1 is not made less by in float32"""
_MAX_POWERS = 2**20


class _BiasCorrection:
    """1 - beta^update, with the same rounding as the reference.

    The vendor multiplies beta^update up in float32. Of a beta near 1 that is seen: 1 - 0.999 is off by 1.3e-5.
    """

    def __init__(self, beta: float, *, as_vendors: bool) -> None:
        import numpy as np

        self.beta = beta
        self.first = np.zeros(0, np.float32)
        if as_vendors and beta > 0:
            steps = min(math.ceil(_NEGLIGIBLE / math.log(beta)), _MAX_POWERS)
            self.first = np.float32(1.0) - np.multiply.accumulate(np.full(steps, beta, np.float32))

    def of(self, update: int) -> float:
        """Its value for an update, from 1."""
        return 1.0 - self.beta**update if update > len(self.first) else float(self.first[update - 1])


class Rule:
    """See `Optimizer`."""

    name = "Adam"
    artifact_key = "2"
    is_one_loop = True
    update_ops = 12
    """two averages (4), root and quotient (5), step, decay (3)"""

    def __init__(self, params: Adam, clip_value: float) -> None:
        self.params = params
        self.clip_value = clip_value
        self.is_vendors = params.form == "vendor"
        self.is_decoupled = isinstance(params, AdamW)
        self.decays_all = self.is_vendors and not self.is_decoupled
        """the vendor's Adam takes the weight decay of the file for every group of weights"""

    @functools.cached_property
    def corrections(self) -> list[_BiasCorrection]:
        """Of the two means."""
        betas = self.params.betas if self.params.correct_bias else (0.0, 0.0)
        return [_BiasCorrection(beta, as_vendors=self.is_vendors) for beta in betas]

    def states(self, shape: Shape) -> Mapping[str, Shape]:
        """See `Optimizer.states`."""
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        weight_decay = self.params.weight_decay if decays or self.decays_all else 0.0
        # AdamW shrinks the weight itself; Adam adds its decay to the gradient.
        decay, shrink = (0.0, 1.0 - step.learning_rate * weight_decay) if self.is_decoupled else (weight_decay, 1.0)
        correction1, correction2 = (correction.of(step.update) for correction in self.corrections)
        if self.is_vendors:
            # Epsilon is added to the root as it is; the quotient is corrected.
            correction1, correction2 = correction1 / math.sqrt(correction2), 1.0
        compiled(_adam)(
            weight,
            gradient,
            *states,
            *self.params.betas,
            self.params.eps,
            decay,
            shrink,
            step.learning_rate / correction1,
            1.0 / math.sqrt(correction2),
            step.gradient_scale,
            self.clip_value,
        )


def _adam(  # type: ignore[no-untyped-def]
    weight, grad, exp_avg, exp_avg_sq, beta1, beta2, epsilon, decay, shrink, step, correction, grad_scale, clip_value
):
    number = weight.dtype.type
    keep1, keep2, fresh1, fresh2 = number(beta1), number(beta2), number(1.0 - beta1), number(1.0 - beta2)
    small, pull, remain, stride = number(epsilon), number(decay), number(shrink), number(step)
    root, factor, most = number(correction), number(grad_scale), number(clip_value)
    for i in range(weight.shape[0]):
        g = grad[i] * factor
        g = most if g > most else g
        g = -most if g < -most else g
        w = weight[i] * remain
        g = g + pull * w
        m = keep1 * exp_avg[i] + fresh1 * g
        v = keep2 * exp_avg_sq[i] + fresh2 * g * g
        exp_avg[i] = m
        exp_avg_sq[i] = v
        weight[i] = w - stride * m / (math.sqrt(v) * root + small)
