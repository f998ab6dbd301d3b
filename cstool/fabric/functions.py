"""Functions of floats that `<math>` has, and the text of what a program prints: one for compile time and run time.

Results are float64: who calls rounds them to the type, once. Outside a function's domain they are NaN, too large ones
infinite, as in IEEE 754.
"""

import math
import re
from collections.abc import Callable, Sequence

_FIELD = re.compile(r"\{([^{}]*)\}")


def _guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    def guarded(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return guarded


def _log(function: Callable[[float], float]) -> Callable[[float], float]:
    guarded = _guarded(function)
    return lambda x: -math.inf if x == 0 else guarded(x)


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    def whole(x: float) -> float:
        # -0.5 rounds up to -0.0; infinities and NaN stay.
        return math.copysign(function(x), x) if math.isfinite(x) else x

    return whole


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": _guarded(math.sqrt),
    "exp": _guarded(math.exp),
    "exp2": _guarded(math.exp2),
    "log": _log(math.log),
    "log2": _log(math.log2),
    "sin": _guarded(math.sin),
    "cos": _guarded(math.cos),
    "tan": _guarded(math.tan),
    "tanh": math.tanh,
    "asin": _guarded(math.asin),
    "acos": _guarded(math.acos),
    "atan": math.atan,
    "ceil": _whole(math.ceil),
    "floor": _whole(math.floor),
    "trunc": _whole(math.trunc),
}
"""By the name of their intrinsic, without `@__`."""


def power(x: float, y: float) -> float:
    """`x ** y`, as C's `pow`."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def text(template: str, values: Sequence[object]) -> str:
    """`template`, where the k-th `{...}` is the k-th of `values`: `{x}` in hexadecimal, all else as it is best read.

    Braces without a value stay.
    """
    rest = iter(values)

    def field(match: "re.Match[str]") -> str:
        try:
            value = next(rest)
        except StopIteration:
            return match.group()
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return f"{value:.6g}"
        return f"{value:x}" if isinstance(value, int) and match.group(1) == "x" else str(value)

    return _FIELD.sub(field, template)
