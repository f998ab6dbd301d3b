"""The `sparsity` section: which weights are zero, and how that changes in training.

Names, defaults and rules are the vendor's. Source: cerebras.pytorch.sparse, 2.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from cstool.params.document import Key
from cstool.params.problems import Problems, show
from cstool.params.sections.section import Count, List, Section, Whole, rule_error

Share = Annotated[float, Field(ge=0, lt=1)]
"""of the weights of a matrix"""


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
    minimum: Share = 0.0

    @field_validator("minimum")
    @classmethod
    def _minimum_is_below(cls, minimum: float, info: ValidationInfo) -> float:
        init = info.data.get("init")
        if init is not None and minimum > init:
            raise rule_error(f"must be at most init ({init:g})")
        return minimum


class CyclingShare(SparsitySchedule):
    """The next of the values at each update; then from the start. A plain list in the file."""

    values: Annotated[tuple[Share, ...], List, Field(min_length=1)]


_WRONG = SparsitySchedule()
"""stands for a schedule whose problems have been added"""
SHARES: dict[str, type[SparsitySchedule]] = {
    "constant": ConstantShare,
    "linear": LinearShare,
    "exp": ExponentialShare,
    "power": PowerShare,
    "cosine": CosineShare,
}


class UpdateParams(Section):
    """When masks change: every `freq` steps from `start` until before `stop`, or after the `steps`."""

    freq: Count | None = None
    start: Whole = 0
    stop: Count | None = None
    steps: Annotated[tuple[Whole, ...] | None, List, Field(min_length=1)] = None

    @field_validator("stop")
    @classmethod
    def _stop_follows_start(cls, stop: int | None, info: ValidationInfo) -> int | None:
        start = info.data.get("start", 0)
        if stop is not None and stop <= start:
            raise rule_error(f"must be greater than start ({start})")
        return stop

    @field_validator("steps")
    @classmethod
    def _steps_increase(cls, steps: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if steps is not None and sorted(set(steps)) != list(steps):
            raise rule_error("must increase")
        return steps

    @model_validator(mode="before")
    @classmethod
    def _one_way_to_say_when(cls, data: Any) -> Any:
        if isinstance(data, dict):
            if "steps" in data and (other := [key for key in ("freq", "start", "stop") if key in data]):
                raise rule_error(f"must hold steps or {other[0]}, not both")
            if not {"steps", "freq"} & data.keys():
                raise rule_error("must hold freq or steps", "for example {freq: 100, stop: 3584}")
        return data


ALGORITHMS = ("static", "gmp", "set", "rigl")
_BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "update": ("gmp", "set", "rigl"),
    "drop_fraction": ("set", "rigl"),
    "balance_in_groups": ("rigl",),
    "balance_out_groups": ("rigl",),
}


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


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
    """One group of weights: those that `param_filter` matches and no group before it did.

    `sparsity` is the share of zeros; `drop_fraction` that of the others which an update lets go. None at `update` is
    every step; at `param_filter` every matrix but embeddings, norms and the output layer.
    """

    algorithm: Annotated[Literal["static", "gmp", "set", "rigl"], BeforeValidator(_lower)] = "static"
    sparsity: Annotated[Any, BeforeValidator(_share)]
    init_method: Annotated[Literal["random", "topk", "from_zeros", "checkerboard"], BeforeValidator(_lower)] = "random"
    param_filter: Annotated[tuple[str, ...] | None, BeforeValidator(_globs)] = None
    update: UpdateParams | None = None
    drop_fraction: Annotated[Any, BeforeValidator(_share)] = Field(None, validate_default=True)
    balance_in_groups: Count | None = None
    balance_out_groups: Count | None = None

    other_names: ClassVar[dict[str, str]] = {"schedule": "sparsity"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"add_summaries"})

    @field_validator("sparsity")
    @classmethod
    def _sparsity_fits_the_algorithm(cls, value: Any, info: ValidationInfo) -> Any:
        if value is _WRONG:
            return value
        algorithm = info.data.get("algorithm")
        changes = isinstance(value, SparsitySchedule) and not isinstance(value, ConstantShare)
        if algorithm == "static" and changes:
            raise rule_error("must be a number for algorithm static", "gmp, set and rigl take a schedule")
        if algorithm == "gmp" and not changes:
            raise rule_error("must change over time for algorithm gmp", "algorithm static keeps it as it is")
        return value

    @field_validator("drop_fraction", mode="before")
    @classmethod
    def _fill_drop_fraction(cls, value: Any, info: ValidationInfo) -> Any:
        return 0.3 if value is None and info.data.get("algorithm") in _BELONGS_TO["drop_fraction"] else value

    @field_validator(*_BELONGS_TO)
    @classmethod
    def _key_fits_the_algorithm(cls, value: Any, info: ValidationInfo) -> Any:
        algorithm, fitting = info.data.get("algorithm"), _BELONGS_TO[str(info.field_name)]
        if value is not None and algorithm is not None and algorithm not in fitting:
            names = f"{', '.join(fitting[:-1])} or {fitting[-1]}".removeprefix(" or ")
            raise rule_error(f"needs algorithm {names}, and that is {algorithm}")
        return value

    @field_validator("balance_out_groups")
    @classmethod
    def _one_kind_of_balance(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("balance_in_groups") is not None:
            raise rule_error("cannot stand beside balance_in_groups", "keep one of the two")
        return value

    def dump(self) -> dict[str, Any]:
        """Return the group as plain YAML data, defaults filled in, nulls left out."""
        shares = {name: _dump_share(getattr(self, name)) for name in ("sparsity", "drop_fraction")}
        plain = self.model_dump(mode="json", exclude_none=True, exclude=set(shares))
        if self.update is not None and self.update.steps is not None:
            plain["update"] = {"steps": list(self.update.steps)}
        return {**plain, **{name: share for name, share in shares.items() if share is not None}}


def _dump_share(share: Any) -> Any:
    if isinstance(share, CyclingShare):
        return list(share.values)
    return share.dump() if isinstance(share, SparsitySchedule) else share


def check_sparsity(problems: Problems, data: Any, key: Key) -> tuple[SparsityParams, ...] | None:
    """Check the section at `key`: a number, a group or a list of groups; return the groups, None with problems."""
    if data is None:
        return ()
    if isinstance(data, list):
        groups = [_check_group(problems, group, (*key, index)) for index, group in enumerate(data)]
    else:
        groups = [_check_group(problems, data, key)]
    return None if None in groups else tuple(group for group in groups if group)


def _check_group(problems: Problems, data: Any, key: Key) -> SparsityParams | None:
    if isinstance(data, int | float) and not isinstance(data, bool):
        return problems.check_value(SparsityParams, "sparsity", data, key)
    if not isinstance(data, dict):
        problems.add(key, "must be a number or a mapping", data)
        return None
    older = _refuse_older_keys(problems, data, key)
    # What follows from the key by its newer name is no second problem.
    data = {"algorithm": data["type"], **data} if _lower(data.get("type")) in ALGORITHMS else data
    data = {name: value for name, value in data.items() if name not in older}
    right = not older
    for name in ("sparsity", "schedule", "drop_fraction"):
        value, below = data.get(name), (*key, name)
        share: SparsitySchedule | None = None
        if isinstance(value, list):
            share = problems.check_value(CyclingShare, "values", value, below)
        elif isinstance(value, dict) and (kind := _kind(problems, value, below)) is not None:
            share = problems.check(kind, {**value, "type": _lower(value["type"])}, below)
        elif not isinstance(value, dict):
            continue
        right = right and share is not None
        data[name] = share if share is not None else _WRONG
    checked = problems.check(SparsityParams, data, key)
    return checked if right else None


_OLDER_KEYS: dict[str, tuple[str, str]] = {
    "type": ("algorithm", "write algorithm: {value}"),
    "param_name_patterns": (
        "param_filter",
        "param_filter takes patterns as file names have them, not regular expressions: '*linear_layer.weight'",
    ),
}
_CADENCE = {"freq", "start", "stop", "steps"}


def _refuse_older_keys(problems: Problems, data: dict[str, Any], key: Key) -> list[str]:
    """Add problems for the keys of releases before 2.2; return which there are."""
    older = [name for name in _OLDER_KEYS if name in data]
    for name in older:
        now, hint = _OLDER_KEYS[name]
        value = show(data[name]).strip("'")
        problems.add((*key, name), f"is called {now} since release 2.2", hint=hint.format(value=value))
    cadence = data.get("schedule")
    if isinstance(cadence, dict) and "type" not in cadence and _CADENCE & cadence.keys():
        hint = "schedule now is another name of sparsity, the share of zeros"
        problems.add((*key, "schedule"), "is called update since release 2.2", hint=hint)
        older.append("schedule")
    return older


def _kind(problems: Problems, data: dict[str, Any], key: Key) -> type[SparsitySchedule] | None:
    names = ", ".join(SHARES)
    written = data.get("type")
    if written is None:
        problems.add((*key, "type"), "is missing", hint=f"the names are {names}")
    elif (kind := SHARES.get(str(written).lower())) is None:
        problems.add((*key, "type"), f"must be one of {names}", written)
    else:
        return kind
    return None
