"""How weights begin, as the vendor's files say it."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cstool.foundation.yaml_lines.section import NotNegative, Positive, Section, beside, filled, rule_error
from cstool.model.ir import Initializer

_KEYS: dict[str, tuple[str, ...]] = {
    "normal": ("mean", "std"),
    "truncated_normal": ("mean", "std", "a", "b"),
    "uniform": ("a", "b"),
    "constant": ("val",),
    "zeros": (),
    "ones": (),
    **dict.fromkeys(("xavier_normal", "glorot_normal", "xavier_uniform", "glorot_uniform"), ("gain",)),
    **dict.fromkeys(("kaiming_normal", "kaiming_uniform"), ("mode", "nonlinearity", "a")),
    **dict.fromkeys(("variance_scaling", "lecun_normal", "lecun_uniform"), ("scale", "mode", "distribution")),
}
"""the distributions by name, with the keys that count for each"""
SCALABLE = ("normal", "truncated_normal")
"""initializers that muP can make narrower"""
_TRUNCATED_STD = 0.87962566103423978
"""standard deviation of a standard normal distribution cut off at -2 and 2"""


class InitializerParams(Section):
    """A distribution by name; which of the keys count depends on it.

    `a` and `b` bound a truncated_normal (default: 2 std to either side of 0) or a uniform; for kaiming, `a` is the
    slope of the leaky relu. Source: the vendor's initializers, 2.10; torch.nn.init for xavier and kaiming.
    """

    name: Literal[tuple(_KEYS)]  # type: ignore[valid-type]
    mean: float = 0.0
    std: NotNegative = 0.05
    val: float | None = None
    a: float | None = None
    b: Annotated[float | None, beside("a", lambda b, a: a is None or b > a, "must be greater than a ({:g})")] = None
    gain: Positive = 1.0
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in"
    nonlinearity: Literal["leaky_relu", "relu"] = "leaky_relu"
    scale: Positive = 1.0
    distribution: Annotated[
        Literal["truncated_normal", "normal", "uniform"],
        filled(lambda data: "uniform" if data.get("name") == "lecun_uniform" else "truncated_normal"),
    ] = Field(None, validate_default=True)

    supported = {"name": tuple(_KEYS)}

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        if self.name == "constant" and self.val is None:
            raise rule_error("must give val, the constant")
        if self.name.startswith("kaiming") and self.mode == "fan_avg":
            raise rule_error("must have mode fan_in or fan_out, as kaiming has", "variance_scaling has fan_avg")
        low, high = self._bounds
        if self.name in ("uniform", "truncated_normal") and low >= high and self.std > 0:
            raise rule_error(f"must have a below b, and they are {low:g} and {high:g}", "give both")
        if (
            self.name == "truncated_normal"
            and self.std > 0
            and not low - 2 * self.std <= self.mean <= high + 2 * self.std
        ):
            rule = f"must have its mean ({self.mean:g}) within 2 std of its bounds, and they are {low:g} and {high:g}"
            raise rule_error(rule, "give a and b")
        return self

    @property
    def _bounds(self) -> tuple[float, float]:
        """Of a uniform or truncated normal distribution, as given or by default."""
        width = 2 * self.std if self.name == "truncated_normal" else 0.05
        return (-width if self.a is None else self.a), (width if self.b is None else self.b)

    @model_serializer(mode="wrap")
    def _keys_that_count(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        counting = ("name", *_KEYS[self.name])
        return {key: value for key, value in dump(self).items() if key in counting}

    def scaled(self, factor: float) -> Self:
        """Return it with its width times `factor`, as muP wants it; other distributions stay as they are."""
        if self.name not in SCALABLE:
            return self
        bounds = {key: value * factor for key in "ab" if (value := getattr(self, key)) is not None}
        return self.model_copy(update={"std": self.std * factor, **bounds})

    def initializer(self, fan_in: int, fan_out: int) -> Initializer:
        """Return it as the graph has it, for a matrix of `fan_out` rows and `fan_in` columns."""
        match self.name:
            case "normal":
                return Initializer("normal", self.mean, self.std)
            case "truncated_normal":
                if self.std == 0:
                    return Initializer("constant", mean=self.mean)
                return Initializer("truncated_normal", self.mean, self.std, *self._bounds)
            case "uniform":
                low, high = self._bounds
                return Initializer("uniform", low=low, high=high)
            case "constant":
                return Initializer("constant", mean=self.val or 0.0)
            case "zeros" | "ones":
                return Initializer("constant", mean=float(self.name == "ones"))
            case "xavier_normal" | "glorot_normal" | "xavier_uniform" | "glorot_uniform":
                variance = self.gain**2 * 2 / (fan_in + fan_out)
                return _spread("uniform" if self.name.endswith("uniform") else "normal", variance)
            case "kaiming_normal" | "kaiming_uniform":
                slope = 0.0 if self.a is None else self.a
                gain_squared = 2.0 if self.nonlinearity == "relu" else 2 / (1 + slope**2)
                fan = fan_out if self.mode == "fan_out" else fan_in
                return _spread(self.name.removeprefix("kaiming_"), gain_squared / fan)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        return _spread(self.distribution, self.scale / max(1.0, fans[self.mode]))


def _spread(distribution: str, variance: float) -> Initializer:
    """Return a distribution around 0 of a given variance."""
    match distribution:
        case "uniform":
            bound = math.sqrt(3 * variance)
            return Initializer("uniform", low=-bound, high=bound)
        case "normal":
            return Initializer("normal", 0.0, math.sqrt(variance))
    # The vendor cuts it off at -2 and 2, not at two standard deviations.
    return Initializer("truncated_normal", 0.0, math.sqrt(variance) / _TRUNCATED_STD, -2.0, 2.0)


def truncated_normal(std: float) -> dict[str, Any]:
    """Return the vendor's default initializer, cut off at two standard deviations."""
    return {"name": "truncated_normal", "mean": 0.0, "std": std, "a": -2 * std, "b": 2 * std}


def named(value: Any) -> Any:
    """Take a name alone for an initializer of that name."""
    return {"name": value} if isinstance(value, str) else value


def _by_range(data: Mapping[str, Any]) -> Any:
    return truncated_normal(data.get("initializer_range", 0.02))


RangeInitializer = Annotated[InitializerParams, filled(_by_range), BeforeValidator(named)]
"""by default a truncated normal of width `initializer_range`"""
DefaultInitializer = Annotated[
    InitializerParams,
    filled(lambda data: data.get("default_initializer", _by_range(data))),
    BeforeValidator(named),
]
"""by default the section's `default_initializer`"""
