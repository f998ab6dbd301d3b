"""Gradient descent, with momentum if asked for.

Source: the semantics of PyTorch's `torch.optim.SGD` (the algorithm in its documentation).
"""

from collections.abc import Mapping, Sequence

from cstool.model.optimizers import Array, Shape, Step, compiled
from cstool.model.params.sections.optimizers import SGD

FORMS = (SGD.model_validate({}), SGD.model_validate({"momentum": 0.9}))


class Rule:
    """See `Optimizer`."""

    is_one_loop = True

    def __init__(self, params: SGD, clip_value: float) -> None:
        self.params = params
        self.clip_value = clip_value
        has_momentum = params.momentum > 0
        self.name = "SGD with momentum" if has_momentum else "SGD"
        self.artifact_key = f"{int(has_momentum)}"
        self.update_ops = 5 if has_momentum else 3

    def states(self, shape: Shape) -> Mapping[str, Shape]:
        """See `Optimizer.states`."""
        return {"momentum_buffer": shape} if self.params.momentum else {}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `Optimizer.update`."""
        compiled(_sgd)(
            weight,
            gradient,
            states[0] if states else weight[:0],
            step.learning_rate,
            self.params.momentum,
            self.params.dampening,
            self.params.nesterov,
            self.params.weight_decay if decays else 0.0,
            step.gradient_scale,
            self.clip_value,
            # PyTorch's first gradient is the buffer, it is not added to it.
            self.params.form == "pytorch" and step.update == 1,
        )


def _sgd(weight, grad, buffer, lr, momentum, dampening, nesterov, weight_decay, grad_scale, clip_value, first):  # type: ignore[no-untyped-def]
    number = weight.dtype.type
    rate, keep, fresh, decay = number(lr), number(momentum), number(1.0 - dampening), number(weight_decay)
    factor, most = number(grad_scale), number(clip_value)
    has_buffer = buffer.shape[0] > 0
    for i in range(weight.shape[0]):
        g = grad[i] * factor
        g = most if g > most else g
        g = -most if g < -most else g
        g = g + decay * weight[i]
        if has_buffer:
            b = g if first else keep * buffer[i] + fresh * g
            buffer[i] = b
            g = g + keep * b if nesterov else b
        weight[i] = weight[i] - rate * g
