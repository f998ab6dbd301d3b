"""The `sparsity` section: which weights are zero, and how that changes in training.

Names, defaults and rules are the vendor's. Source: cerebras.pytorch.sparse, 2.10. Not the vendor's are dropconnect and
keys about checkpoints: a mask that an earlier run has found, as lottery tickets are.
"""

from collections.abc import Mapping
from operator import gt, le
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cstool.foundation.yaml_lines.section import (
    Count,
    List,
    Section,
    Whole,
    beside,
    filled,
    increasing,
    lower,
    not_beside,
    rule_error,
)
from cstool.model.params.paths import ResolvedPath, WrittenPath

Share = Annotated[float, Field(ge=0, lt=1)]
"""share of the weights of a matrix"""


class SparsitySchedule(Section):
    """A share as a function of the step, y(step)."""


class ConstantShare(SparsitySchedule):
    """y = value."""

    type: Literal["constant"] = "constant"
    value: Share


class LinearShare(SparsitySchedule):
    """y = init + slope * step."""

    type: Literal["linear"] = "linear"
    init: Share
    slope: float


class ExponentialShare(SparsitySchedule):
    """y = final + (init - final) * e^(gamma * step)."""

    type: Literal["exp"] = "exp"
    init: Share
    gamma: float
    final: Annotated[float, Field(ge=0, le=1)] = 1.0


class PowerShare(SparsitySchedule):
    """y = init * beta^step."""

    type: Literal["power"] = "power"
    init: Share
    beta: Annotated[float, Field(ge=0)]


class CosineShare(SparsitySchedule):
    """y goes from init to minimum along half a cosine in half_period steps, and back."""

    type: Literal["cosine"] = "cosine"
    init: Share
    half_period: Annotated[float, Field(gt=0)]
    minimum: Annotated[Share, beside("init", le, "must be at most init ({:g})")] = 0.0


class CyclingShare(SparsitySchedule):
    """The next of the values at each update; then from the start. A plain list in the file."""

    values: Annotated[tuple[Share, ...], List, Field(min_length=1)]


WRONG = SparsitySchedule()
"""stands for a schedule whose problems have been added"""
SHARES: dict[str, type[SparsitySchedule]] = {
    share.model_fields["type"].default: share
    for share in (ConstantShare, LinearShare, ExponentialShare, PowerShare, CosineShare)
}


class UpdateParams(Section):
    """When masks change: every `freq` steps from `start` until before `stop`, or after the `steps`."""

    freq: Count | None = None
    start: Whole = 0
    stop: Annotated[Count | None, beside("start", gt, "must be greater than start ({})")] = None
    steps: Annotated[tuple[Whole, ...], List, Field(min_length=1), AfterValidator(increasing)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_way_to_say_when(cls, data: Any) -> Any:
        if isinstance(data, dict):
            if "steps" in data and (other := [key for key in ("freq", "start", "stop") if key in data]):
                raise rule_error(f"must hold steps or {other[0]}, not both")
            if not {"steps", "freq"} & data.keys():
                raise rule_error("must hold freq or steps", "for example {freq: 100, stop: 3584}")
        return data


ALGORITHMS = ("static", "gmp", "set", "rigl", "dropconnect")
_BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "init_method": ("static", "gmp", "set", "rigl"),
    "update": ("gmp", "set", "rigl"),
    "drop_fraction": ("set", "rigl"),
    "balance_in_groups": ("rigl",),
    "balance_out_groups": ("rigl",),
    "samples": ("dropconnect",),
}


def _globs(value: Any) -> Any:
    globs = [value] if isinstance(value, str) else value
    if not isinstance(globs, list) or not globs or not all(isinstance(glob, str) and glob for glob in globs):
        raise rule_error("must be a pattern of names or a list of them", "for example '*linear_layer.weight'")
    return tuple(globs)


def _share(value: Any) -> Any:
    if value is None or isinstance(value, SparsitySchedule):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise rule_error("must be a number, a list of numbers, or a mapping with a type")
    if not 0 <= value < 1:
        raise rule_error("must be at least 0 and less than 1")
    return float(value)


class SparsityParams(Section):
    """One group of weights: the ones that `param_filter` matches and no group before it did.

    `sparsity` is the share of zeros; `drop_fraction` the share of the nonzeros that an update drops. None at `update`
    is every step; at `param_filter` every matrix but embeddings, norms and the output layer.

    With algorithm `dropconnect` each weight is left out with probability `sparsity`, anew at every step; evaluation
    uses all weights, or averages over `samples` masks and reports their spread (Wan et al., ICML 2013; Gal and
    Ghahramani, arXiv:1506.02142). With init_method
    `from_checkpoint` the zeros come from `mask_checkpoint`, and there is no `sparsity`; the weights of the group
    start from `rewind_checkpoint` if there is one (Frankle and Carbin, arXiv:1803.03635).
    """

    algorithm: Annotated[Literal["static", "gmp", "set", "rigl", "dropconnect"], BeforeValidator(lower)] = "static"
    init_method: Annotated[
        Literal["random", "topk", "from_zeros", "checkerboard", "from_checkpoint"], BeforeValidator(lower)
    ] = "random"
    sparsity: Annotated[Any, BeforeValidator(_share)] = Field(None, validate_default=True)
    param_filter: Annotated[tuple[str, ...] | None, BeforeValidator(_globs)] = None
    update: UpdateParams | None = None
    drop_fraction: Annotated[
        Any,
        BeforeValidator(_share),
        filled(lambda data: 0.3 if data.get("algorithm") in _BELONGS_TO["drop_fraction"] else None),
    ] = Field(None, validate_default=True)
    balance_in_groups: Count | None = None
    balance_out_groups: Annotated[Count | None, not_beside("balance_in_groups")] = None
    samples: Count | None = None
    mask_checkpoint: WrittenPath | None = Field(None, validate_default=True)
    rewind_checkpoint: WrittenPath | None = None

    other_names = {"schedule": "sparsity"}
    without_effect = frozenset({"add_summaries"})

    @field_validator("sparsity")
    @classmethod
    def _sparsity_fits_the_algorithm(cls, value: Any, info: ValidationInfo) -> Any:
        if value is WRONG:
            return value
        method = info.data.get("init_method")
        if value is None and method not in ("from_checkpoint", None):
            raise rule_error("is missing")
        if value is None:
            return None
        if method == "from_checkpoint":
            raise rule_error("does not go with from_checkpoint", "mask_checkpoint says which weights are zero")
        algorithm = info.data.get("algorithm")
        changes = isinstance(value, SparsitySchedule) and not isinstance(value, ConstantShare)
        if algorithm in ("static", "dropconnect") and changes:
            raise rule_error(f"must be a number for algorithm {algorithm}", "gmp, set and rigl take a schedule")
        if algorithm == "gmp" and not changes:
            raise rule_error("must change over time for algorithm gmp", "algorithm static keeps it as it is")
        return value

    @field_validator(*_BELONGS_TO)
    @classmethod
    def _key_fits_the_algorithm(cls, value: Any, info: ValidationInfo) -> Any:
        algorithm, fitting = info.data.get("algorithm"), _BELONGS_TO[str(info.field_name)]
        if value is not None and algorithm is not None and algorithm not in fitting:
            names = f"{', '.join(fitting[:-1])} or {fitting[-1]}".removeprefix(" or ")
            raise rule_error(f"needs algorithm {names}, and that is {algorithm}")
        return value

    @field_validator("init_method")
    @classmethod
    def _only_static_takes_a_mask(cls, value: str, info: ValidationInfo) -> str:
        if value == "from_checkpoint" and (algorithm := info.data.get("algorithm")) not in ("static", None):
            raise rule_error("needs algorithm static to be from_checkpoint, and that is " + str(algorithm))
        return value

    @field_validator("mask_checkpoint", "rewind_checkpoint")
    @classmethod
    def _checkpoint_fits_the_method(cls, value: ResolvedPath | None, info: ValidationInfo) -> ResolvedPath | None:
        method = info.data.get("init_method", "from_checkpoint" if value else None)
        if value is not None and method != "from_checkpoint":
            raise rule_error(f"needs init_method from_checkpoint, and that is {method}")
        if value is None and method == "from_checkpoint":
            raise rule_error("is missing", "the zeros of that checkpoint are the mask")
        return value

    @property
    def is_dynamic(self) -> bool:
        """Whether masks change at update steps."""
        return self.algorithm in _BELONGS_TO["update"]

    def dump(self) -> dict[str, Any]:
        """Return the group as plain YAML data, defaults filled in, nulls left out."""
        shares = {name: _dump_share(getattr(self, name)) for name in ("sparsity", "drop_fraction")}
        without = {name for name in ("init_method",) if self.algorithm not in _BELONGS_TO[name]}
        plain = self.model_dump(mode="json", exclude_none=True, exclude={*shares, *without})
        if self.update is not None and self.update.steps is not None:
            plain["update"] = {"steps": list(self.update.steps)}
        return {**plain, **{name: share for name, share in shares.items() if share is not None}}


def _dump_share(share: Any) -> Any:
    if isinstance(share, CyclingShare):
        return list(share.values)
    return share.dump() if isinstance(share, SparsitySchedule) else share
