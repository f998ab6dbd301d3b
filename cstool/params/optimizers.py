"""The `optimizer` section: one class and its settings. Defaults are the vendor's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from cstool.params.section import NotNegative, Positive, Rate, Section, rule_error


class Optimizer(Section):
    """What all optimizers share. `learning_rate` counts where there is no scheduler."""

    learning_rate: NotNegative | None = None
    weight_decay: NotNegative = 0.0

    other_names: ClassVar[dict[str, str]] = {"lr": "learning_rate"}
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"amsgrad": (), "maximize": ()}


class SGD(Optimizer):
    """Gradient descent, with momentum if asked for."""

    momentum: Rate = 0.0
    dampening: Annotated[float, Field(ge=0, le=1)] = 0.0
    nesterov: bool = False

    @field_validator("nesterov")
    @classmethod
    def _nesterov_needs_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and not (info.data.get("momentum", 1.0) > 0 and info.data.get("dampening", 0.0) == 0):
            raise rule_error("must be false without momentum or with dampening")
        return nesterov


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise rule_error("must be two numbers")
    return tuple(value)


class Adam(Optimizer):
    """Adam; weight decay is added to the gradient."""

    betas: Annotated[tuple[Rate, Rate], BeforeValidator(_pair)] = (0.9, 0.999)
    eps: Positive = 1e-6
    correct_bias: bool = True


class AdamW(Adam):
    """Adam; weight decay is taken from the weight itself."""


OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW}
