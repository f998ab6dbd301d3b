"""The `optimizer` section: one class and its settings, and which weights learn faster or slower.

Defaults are the vendor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from cstool.foundation.yaml_lines.section import NotNegative, Positive, Rate, Section, rule_error
from cstool.model.params.sections.model import ModelParams

_VENDORS = ("form", "vendor")


def _projections(stack: str, parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"*{stack}*attn.proj_{part}*dense*weight" for part in parts)


GROUPS: dict[str, tuple[str, ...]] = {
    "embedding": ("*embedding*weight",),
    "decoder_kernel": ("*decoder*dense*weight", "*decoder*linear*weight"),
    "decoder_attention": ("*decoder*attn*dense*weight",),
    "decoder_input_ffn": ("*decoder*ffn.ffn.[!1]*weight",),
    "decoder_output_ffn": ("*decoder*ffn.ffn.[1]*weight",),
    "decoder_qkv_projection": _projections("decoder", "qkv"),
    "decoder_output_projection": _projections("decoder", ("output",)),
    "encoder_attention": ("*transformer_encoder*attn*dense*weight",),
    "encoder_qkv_projection": _projections("encoder", "qkv"),
    "encoder_output_projection": _projections("encoder", ("output",)),
    "encoder_input_ffn": ("*encoder*ffn.ffn.[!1]*weight",),
    "encoder_output_ffn": ("*encoder*ffn.ffn.[1]*weight",),
    "pooler": ("*pooler*weight",),
    "lm_head": ("*lm_head*weight",),
}
"""the groups by name, and the names of their weights. Source: the vendor's GPT-2, BERT and T5 models, 2.10."""


class Optimizer(Section):
    """Keys that all optimizers share.

    Args:
        learning_rate: counts where there is no scheduler
        adjust_learning_rate: group of weights -> factor on its learning rate
        form: `vendor` updates as the vendor's library does, `pytorch` as `torch.optim` does with the same groups of
            weights. They differ in where Adam adds epsilon, in the weights that Adam's decay spares, and in the
            beginning of momentum with dampening.
    """

    learning_rate: NotNegative | None = None
    weight_decay: NotNegative = 0.0
    adjust_learning_rate: Mapping[str, NotNegative] = Field({}, validate_default=True)
    form: Literal["vendor", "pytorch"] = "vendor"

    no_sparsity: ClassVar[str] = ""
    """the reason why no weight may be sparse, and an alternative; empty where weights may"""
    other_names = {"lr": "learning_rate"}
    without_effect = frozenset({"capturable", "foreach", "ws_summary"})
    supported = dict.fromkeys(("amsgrad", "differentiable", "disable_lr_steps_reset", "maximize"), ())

    @property
    def form_matters(self) -> bool:
        """Whether an update depends on `form`."""
        return False

    def dump(self) -> dict[str, Any]:
        """The section as plain YAML data: defaults filled in, keys left out that are null, empty or the vendor's."""
        return {name: value for name, value in super().dump().items() if value != {} and (name, value) != _VENDORS}

    @field_validator("adjust_learning_rate")
    @classmethod
    def _groups_are_known(cls, factors: Mapping[str, float]) -> Mapping[str, float]:
        if unknown := [group for group in factors if group not in GROUPS]:
            raise rule_error(f"must name groups of weights, not {unknown[0]}", f"the groups are {', '.join(GROUPS)}")
        return factors


class SGD(Optimizer):
    """Gradient descent, with momentum if asked for."""

    momentum: Rate = 0.0
    dampening: Annotated[float, Field(ge=0, le=1)] = 0.0
    nesterov: bool = False

    @property
    def form_matters(self) -> bool:
        """Whether momentum begins in another way."""
        return self.dampening > 0

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
    """Adam; weight decay is added to the gradient, in the vendor's form also for norms and biases."""

    betas: Annotated[tuple[Rate, Rate], BeforeValidator(_pair)] = (0.9, 0.999)
    eps: Positive = 1e-6
    correct_bias: bool = True

    @property
    def form_matters(self) -> bool:
        """Always: epsilon is added in another place."""
        return True


class AdamW(Adam):
    """Adam; weight decay is taken from the weight itself."""


class Lion(Optimizer):
    """Steps of one length, in the direction of a running mean of the gradient; decay is taken from the weight."""

    betas: Annotated[tuple[Rate, Rate], BeforeValidator(_pair)] = (0.9, 0.99)


class Adafactor(Optimizer):
    """Steps as long as the weight, with second moments of rows and columns; decay is taken from the weight.

    Args:
        eps: added to squares of the gradient; the least root mean square that a weight is taken to have
        decay_rate: exponent of the step in the share of a new square
        scale_parameter: whether steps are as long as the weight
    """

    eps: Annotated[tuple[Positive, Positive], BeforeValidator(_pair)] = (1e-30, 1e-3)
    clip_threshold: float = 1.0
    decay_rate: Annotated[float, Field(lt=0)] = -0.8
    scale_parameter: bool = True

    no_sparsity = "of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them"
    supported = {
        "clip_threshold": (1.0,),
        **dict.fromkeys(("beta1", "relative_step", "warmup_init"), ()),
        **Optimizer.supported,
    }


def learning_rate_scale(model: ModelParams, adjusted: Mapping[str, float], weight: str) -> float:
    """Factor of the learning rate of a weight.

    Args:
        model: with muP's base sizes, matrices learn slower by the ratio of their inputs' width to the base model's
            (Yang et al., "Tensor Programs V", 2022, table 8)
        adjusted: factors by group, in place of muP's
        weight: its name

    Returns:
        the factor of the first group, in the order of `GROUPS`, that has the weight and a factor other than 1
    """
    factors = {**model.rate_factors, **adjusted}
    for group, patterns in GROUPS.items():
        factor = factors.get(group, 1.0)
        if factor != 1.0 and any(fnmatchcase(weight, pattern) for pattern in patterns):
            return factor
    return 1.0


OTHER_OPTIMIZERS = "Adadelta Adagrad Adamax ASGD Lamb NAdam RAdam RMSprop Rprop".split()
"""the vendor's optimizers that cannot be had"""
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "SGD": SGD,
    "Adam": Adam,
    "AdamW": AdamW,
    "Lion": Lion,
    "Adafactor": Adafactor,
}
