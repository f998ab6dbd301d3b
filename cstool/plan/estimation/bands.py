"""The range of an estimate, from the errors of held-out results like it.

A result is off by a factor: published time over predicted time. Its logarithm is taken to be normal about zero, with a
spread that differs from class to class of results. Classes nest, from all results to the ones most like the estimate:
the same kind, the same mode, dense or sparse, of the same size, on the same system. There are few results in each, so
the spread of a class begins with the spread of the class around it, as if `PRIOR` results had been seen with it, and
moves to its own as results come in. A class with few results stays near the class around it. Its range is wider,
because its spread is uncertain: Student's t takes the place of the normal distribution.

Rates of answering are few, and all of one program. The class around them is whole systems, training included. Kernels
are left out of it: their errors of a few percent say little of whole systems.

Source: the conjugate prior of a normal variable of known mean and unknown variance, a scaled inverse chi-squared, and
its predictive distribution: Gelman et al., *Bayesian Data Analysis*, third edition, section 2.6. That the prior is the
class around, and weighs four results, is this project's choice.

Errors come from `timing/errors.yaml`, which `python -m cstool.plan.estimation.errors_file` writes from a validation;
an estimate runs none. The range covers the errors of published results, due to the model, and to releases of the
software. The range says nothing of unpublished conditions: larger sizes get the range of the published ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

import cstool.plan.timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cstool.plan.estimation.point import Estimate

FILE = Path(cstool.plan.timing.__file__).parent / "errors.yaml"
SHARE = 0.8
"""share of results like an estimate that should lie in its range"""
PRIOR = 4
"""results that the spread of the class around is worth (chosen)"""
QUANTILE = 1.2815515655446004
"""quantile of the normal distribution, with a tenth above it"""
WHOLE = ("training", "inference")
"""kinds of results of whole systems"""
SIZES = ((1e9, "below 1B parameters"), (2e10, "1B to 20B parameters"), (math.inf, "above 20B parameters"))


@dataclass(frozen=True)
class Case:
    """Features of an estimate or a result, by which it is compared with others.

    Args:
        kind: "training", "inference", or another validated kind, such as "one PE"
        mode: "weight_streaming", "pipelined", or "" where there is none
        is_sparse: whether weights are zero
        parameters: of the model; 0 where there is none
        system: name
    """

    kind: str
    mode: str = ""
    is_sparse: bool = False
    parameters: float = 0.0
    system: str = ""

    def classes(self) -> Iterator[tuple[tuple[str | bool, ...], str]]:
        """Yield the classes that it is in, each within the one before: shared features, and name."""
        yield (), "all held-out results"
        if self.kind == "inference":
            yield WHOLE, "training and inference"
        yield (self.kind,), f"{self.kind}"
        if not self.mode:
            return
        words = f"{self.mode}, {'sparse' if self.is_sparse else 'dense'}"
        yield (self.kind, self.mode, self.is_sparse), words
        size = next(name for most, name in SIZES if self.parameters < most)
        yield (self.kind, self.mode, self.is_sparse, size), f"{words}, {size}"
        yield (self.kind, self.mode, self.is_sparse, size, self.system), f"{words}, {size}, {self.system}"


@dataclass(frozen=True)
class Known:
    """A held-out result.

    Args:
        name: of the result
        case: its features
        error: logarithm of published over predicted time
    """

    name: str
    case: Case
    error: float


@dataclass(frozen=True)
class Band:
    """Four fifths of results like an estimate take from `low` to `high` times the time that is predicted.

    Args:
        low, high: factors on time
        count: held-out results of the narrowest class that has any
        of: that class
    """

    low: float
    high: float
    count: int
    of: str

    @property
    def is_known(self) -> bool:
        """Whether any held-out result is like it."""
        return math.isfinite(self.high)

    def of_time(self, seconds: float) -> tuple[float, float]:
        """Range of a time, or of a quantity that grows with it."""
        return seconds * self.low, seconds * self.high

    def of_rate(self, per_s: float) -> tuple[float, float]:
        """Range of a rate, or of a quantity that falls with time."""
        return per_s / self.high, per_s / self.low

    def text(self, seconds: float) -> str:
        """Range of a time in words.

        >>> Band(0.9, 1.1, 4, "toys").text(100.0)
        '80%: 90 to 110 s'
        """
        if not self.is_known:
            return "with no range: no result like it was published"
        low, high = self.of_time(seconds)
        return f"{SHARE:.0%}: {low:.3g} to {high:.3g} s"

    def holds(self, error: float) -> bool:
        """Whether a result with this logarithm of published over predicted time is within."""
        return math.log(self.low) <= error <= math.log(self.high)


UNKNOWN = Band(0.0, math.inf, 0, "")
"""range of an estimate without any published result like it"""


def case_of(estimate: Estimate) -> Case:
    """The features of an estimate of a training step."""
    artifact = estimate.artifact
    is_sparse, parameters = estimate.zero_weights > 0, artifact.graph.parameter_count
    return Case("training", artifact.mode, is_sparse, parameters, artifact.system.name)


def band_for(estimate: Estimate) -> Band:
    """Return the range of the time of an estimated training step; `UNKNOWN` for images."""
    if estimate.reads_images:
        return UNKNOWN
    return band_of(case_of(estimate))


def band_of(case: Case) -> Band:
    """Return the range of results like this one, by the results of the file."""
    return band_from(case, known_errors())


def band_from(case: Case, known: Sequence[Known]) -> Band:
    """Return the range of results like this one, by these results.

    Example: two results of a kind that are off by a factor of 1.1, one up, one down. Their spread is ln 1.1 = 0.0953,
    the spread of all results, and so of every class without further results. All count two degrees of freedom, their
    kind two and the prior's four. With six, a tenth is above 1.440 spreads, and exp(1.440 x 0.0953) is 1.147.

    >>> known = [Known("a", Case("toys"), 0.0953), Known("b", Case("toys"), -0.0953)]
    >>> found = band_from(Case("toys"), known)
    >>> f"{found.low:.3f} to {found.high:.3f}, {found.count} of {found.of}"
    '0.872 to 1.147, 2 of toys'

    For another kind only the spread of all results is known, and that with four degrees of freedom: 1.533 spreads.

    >>> found = band_from(Case("games"), known)
    >>> f"{found.low:.3f} to {found.high:.3f}, {found.count} of {found.of}"
    '0.864 to 1.157, 2 of all held-out results'

    Args:
        case: features of the estimate
        known: one or more results
    """
    variance, freedom, count, of = 0.0, 0, 0, ""
    for key, words in case.classes():
        squares = [each.error**2 for each in known if _is_in(each.case, key)]
        prior = PRIOR if of else 0
        variance = (prior * variance + sum(squares)) / (prior + len(squares))
        freedom = prior + len(squares)
        if squares:
            count, of = len(squares), words
    width = student_quantile(freedom) * math.sqrt(variance)
    return Band(math.exp(-width), math.exp(width), count, of)


def _is_in(case: Case, key: tuple[str | bool, ...]) -> bool:
    if key == WHOLE:
        return case.kind in WHOLE
    return any(key == other for other, _ in case.classes())


def student_quantile(freedom: int) -> float:
    """Return the quantile of Student's t with a tenth above it, for three or more degrees of freedom.

    Source: Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.7.5, the first three corrections; within
    0.5% of the tables at 3 degrees and 0.1% from 5 on. Tables have 1.533 for 4, 1.440 for 6 and 1.310 for 30.

    >>> [round(student_quantile(n), 3) for n in (4, 6, 30)]
    [1.533, 1.44, 1.31]
    """
    x = QUANTILE
    first = (x**3 + x) / 4
    second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    return x + first / freedom + second / freedom**2 + third / freedom**3


def without(known: Iterable[Known], name: str) -> list[Known]:
    """Return the results but for one, whose own range they are to give."""
    return [each for each in known if each.name != name]


@cache
def known_errors() -> tuple[Known, ...]:
    """Return the held-out results of the file."""
    rows = yaml.load(FILE.read_text(encoding="utf-8"), Loader=_LOADER)
    return tuple(
        Known(name, Case(kind, mode, is_sparse, parameters, system), error)
        for name, (kind, mode, is_sparse, parameters, system, error) in rows.items()
    )


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""ten times as fast, where it is there"""
