"""The numbers of system files that are fitted to published results, their results, and refits without one of these.

A result that a number comes from says so: `fits` of `plan/timing/published.yaml`. A number is right where the
logarithms of published over predicted time of its results are zero on average, with all other numbers as the file has
them. One result is met then; of two, one is as much too fast as the other is too slow.

To test that, one result is left out: the number is fitted to the others, and the result that is left out is
predicted with it, as if it were held out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from cstool.foundation.errors import EstimateError
from cstool.model.system import load_system
from cstool.plan.estimation.published import Prediction, Published, load_published, number_of, predict

DIGITS = 3
"""significant digits of fitted numbers, all that their results bear"""
CLOSE = 5e-4
"""mean logarithm of errors, or logarithm of a step of the number, at which a fit ends: of the size of its last digit"""
MOST_STEPS = 12


@dataclass(frozen=True)
class Fitted:
    """A number of a system file, and the results that it is fitted to.

    Args:
        system: name
        key: of the number, dotted
        value: in the file
        results: one or more
    """

    system: str
    key: str
    value: float
    results: tuple[Published, ...]


def fitted_numbers(results: Sequence[Published]) -> list[Fitted]:
    """Return the fitted numbers that results are named for, in the order of the results."""
    groups: dict[tuple[str, str], list[Published]] = {}
    for result in results:
        if result.fits:
            groups.setdefault((result.system, result.fits), []).append(result)
    return [
        Fitted(system, key, number_of(load_system(system), key), tuple(found))
        for (system, key), found in groups.items()
    ]


def refit(fitted: Fitted, results: Sequence[Published]) -> float:
    """Return the value of a number, fitted to these results alone.

    By the secant through the last two tries, on the logarithms of number and error: most times are nearly a power of
    the number.

    Raises:
        EstimateError: no number gives these results
    """
    tries = [math.log(fitted.value), math.log(fitted.value * 1.05)]
    errors = [_error(fitted.key, math.exp(each), results) for each in tries]
    while abs(errors[-1]) > CLOSE and abs(tries[-1] - tries[-2]) > CLOSE:
        if len(tries) == MOST_STEPS or errors[-1] == errors[-2]:
            names = ", ".join(result.name for result in results)
            raise EstimateError(f"{fitted.key} of {fitted.system}: must fit {names}, but no number does")
        slope = (errors[-1] - errors[-2]) / (tries[-1] - tries[-2])
        # A step far off may leave where there is a slope at all.
        tries.append(tries[-1] - max(-1.0, min(1.0, errors[-1] / slope)))
        errors.append(_error(fitted.key, math.exp(tries[-1]), results))
    return float(f"{math.exp(tries[-1]):.{DIGITS}g}")


def mean_error(fitted: Fitted) -> float:
    """Return the mean logarithm of published over predicted time of the results: zero where the number is right."""
    return _error(fitted.key, fitted.value, fitted.results)


def left_out(results: Sequence[Published]) -> dict[str, Prediction]:
    """Return each result that shares a number with others, predicted with that number fitted to the others."""
    found = {}
    for fitted in fitted_numbers(results):
        for result in fitted.results:
            others = [other for other in fitted.results if other is not result]
            if others:
                found[result.name] = predict(_with(result, {fitted.key: refit(fitted, others)}))
    return found


def _with(result: Published, numbers: Mapping[str, Any]) -> Published:
    return replace(result, numbers={**result.numbers, **numbers})


def _error(key: str, value: float, results: Sequence[Published]) -> float:
    logs = [predict(_with(result, {key: value})).log_time for result in results]
    return mean(log for log in logs if log is not None)


if __name__ == "__main__":
    for each in fitted_numbers(load_published()):
        names = ", ".join(result.name for result in each.results)
        print(f"{each.system} {each.key}: {each.value:g}, fitted anew {refit(each, each.results):g}, to {names}")
