"""Lion: a step of the same length for every weight, in the direction of a running mean of its gradient.

Source: Chen et al., "Symbolic discovery of optimization algorithms", arXiv:2302.06675, algorithm 2; the names of its
keys and of its state: the vendor's optimizer Lion, cerebras_pytorch 2.10.
"""

from collections.abc import Mapping, Sequence

from cstool.model.optimizers import Array, Shape, Step, compiled
from cstool.model.params.sections.optimizers import Lion

FORMS = (Lion.model_validate({}),)


class Rule:
    """See `Optimizer`."""

    name = "Lion"
    artifact_key = "1, of Lion"
    is_one_loop = True
    update_ops = 8
    """two averages (4), sign, step, decay (3)"""

    def __init__(self, params: Lion, clip_value: float) -> None:
        self.params = params
        self.clip_value = clip_value

    def states(self, shape: Shape) -> Mapping[str, Shape]:
        """See `Optimizer.states`."""
        return {"exp_avg": shape}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        shrink = 1.0 - step.learning_rate * self.params.weight_decay if decays else 1.0
        compiled(_lion)(
            weight,
            gradient,
            *states,
            *self.params.betas,
            shrink,
            step.learning_rate,
            step.gradient_scale,
            self.clip_value,
        )


def _lion(weight, grad, exp_avg, beta1, beta2, shrink, lr, grad_scale, clip_value):  # type: ignore[no-untyped-def]
    number = weight.dtype.type
    keep1, keep2, fresh1, fresh2 = number(beta1), number(beta2), number(1.0 - beta1), number(1.0 - beta2)
    remain, rate, factor, most = number(shrink), number(lr), number(grad_scale), number(clip_value)
    zero = number(0)
    for i in range(weight.shape[0]):
        g = grad[i] * factor
        g = most if g > most else g
        g = -most if g < -most else g
        m = exp_avg[i]
        c = keep1 * m + fresh1 * g
        # No sign is that of 0, which makes no step, and of NaN, which stays one.
        direction = rate if c > zero else (-rate if c < zero else c)
        exp_avg[i] = keep2 * m + fresh2 * g
        weight[i] = weight[i] * remain - direction
