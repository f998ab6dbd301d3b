"""The errors of the model: all published results beside its predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean, median

from cstool.plan.estimation.bands import Known, band_from, without
from cstool.plan.estimation.published import PRODUCTS, USES, Prediction, Published, load_published, predict


@dataclass(frozen=True)
class Errors:
    """Errors of the predictions.

    Args:
        count: of results
        median: of the errors without their signs
        average: of these
        largest: of these
        name: of the result with the largest
    """

    count: int
    median: float
    average: float
    largest: float
    name: str


@dataclass(frozen=True)
class Comparison:
    """Compare the model with all published results.

    Args:
        predictions: in the order of the file
        errors: of the results of each use that stands for how good the model is; None where none is predicted
        kinds: of the held-out results of each kind
        within: held-out results that are in the range that the others give
        first: errors of the model before it was changed for results that were added; None where there are none
    """

    predictions: tuple[Prediction, ...]
    errors: dict[str, Errors | None]
    kinds: dict[str, Errors]
    within: int
    first: Errors | None


@cache
def compare() -> Comparison:
    """Predict all published results, each with the range that the held-out ones give, but for itself."""
    found = tuple(map(predict, load_published()))
    known = known_of(found)
    predictions = tuple(
        each if each.case is None else replace(each, band=band_from(each.case, without(known, each.result.name)))
        for each in found
    )
    within = sum(each.is_within for each in predictions if each.result.use == "held out")
    errors = {use: errors_of(predictions, use) for use in USES if use != "headline"}
    kinds = {
        kind: off
        for kind in dict.fromkeys(each.case.kind for each in predictions if each.case is not None)
        if (off := errors_of([each for each in predictions if each.case and each.case.kind == kind], "held out"))
    }
    return Comparison(predictions, errors, kinds, within, first_errors([each.result for each in predictions]))


def first_errors(results: Iterable[Published]) -> Errors | None:
    """Return the errors that the model had when measured results were added, headlines left out; None without any."""
    return _errors((abs(r.first_error), r.name) for r in results if r.first_error is not None and r.use != "headline")


def known_of(predictions: Iterable[Prediction]) -> list[Known]:
    """Return features and errors of the held-out results, from which the errors of others are estimated.

    Kernels of answering are left out: their errors of a few percent would make all other ranges narrower.
    """
    return [
        Known(each.result.name, each.case, each.log_time)
        for each in predictions
        if each.result.use == "held out" and each.case is not None and each.log_time is not None
        if each.case.kind != PRODUCTS
    ]


def errors_of(predictions: Sequence[Prediction], use: str) -> Errors | None:
    """Return the errors of the results of one use; None if there are none."""
    return _errors((abs(p.error), p.result.name) for p in predictions if p.result.use == use and p.error is not None)


def _errors(sizes: Iterable[tuple[float, str]]) -> Errors | None:
    found = list(sizes)
    if not found:
        return None
    largest, name = max(found)
    return Errors(len(found), median(error for error, _ in found), mean(error for error, _ in found), largest, name)
