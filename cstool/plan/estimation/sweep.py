"""Estimates beside each other: over systems, over sparsities, over batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cstool.foundation.errors import CompileError, EstimateError
from cstool.model.ir import ExecutionMode
from cstool.plan.estimation.point import Estimate, Estimator

Label = TypeVar("Label")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Tried(Generic[Label, Found]):
    """One of several estimates, or why there is none.

    Args:
        label: number of systems, share of zeros, or another choice
        estimate: None if there is none
        why: reason for a missing estimate
    """

    label: Label
    estimate: Found | None
    why: str = ""


@dataclass(frozen=True)
class Row(Tried[float, Estimate]):
    """One of several estimates over numbers of systems, or shares of zeros; or why there is none.

    Args:
        label, estimate, why: see `Tried`
        speedup: throughput relative to the first row; None without an estimate
        efficiency: throughput relative to the first row, per system or per weight left; None without an estimate
    """

    speedup: float | None = None
    efficiency: float | None = None


def scale(estimator: Estimator, counts: Sequence[int]) -> list[Row]:
    """An estimate for each number of systems; efficiency is throughput per system, relative to the first row.

    Raises:
        EstimateError, CompileError: there is not a single one; the error of the first
    """
    return _rows(counts, lambda count: estimator.at(int(count)), lambda found, base: (base.num_csx, found.num_csx))


def sweep_sparsity(estimators: Mapping[float, Estimator], num_csx: int) -> list[Row]:
    """An estimate for each share of zeros; efficiency is the speedup over the ideal from fewer products.

    Raises:
        EstimateError, CompileError: there is not a single one; the error of the first
    """
    return _rows(
        list(estimators), lambda share: estimators[share].at(num_csx), lambda found, base: (found.flops, base.flops)
    )


def _rows(
    labels: Sequence[float], at: Callable[[float], Estimate], ratio: Callable[[Estimate, Estimate], tuple[int, int]]
) -> list[Row]:
    """Rows, whose efficiency is the speedup times a ratio of theirs and the first estimate's."""
    rows: list[Row] = []
    base: Estimate | None = None
    for tried in each_or_why(labels, at):
        found = tried.estimate
        if found is None:
            rows.append(Row(tried.label, None, tried.why))
            continue
        base = base or found
        speedup, (times, over) = found.samples_per_s / base.samples_per_s, ratio(found, base)
        rows.append(Row(tried.label, found, "", speedup, speedup * times / over))
    return rows


def each_or_why(labels: Iterable[Label], at: Callable[[Label], Found]) -> list[Tried[Label, Found]]:
    """Return the result at each label, or the reason for its absence.

    Raises:
        EstimateError, CompileError: there is no result at all; the error of the first
    """
    found: list[Tried[Label, Found]] = []
    errors: list[CompileError | EstimateError] = []
    for label in labels:
        try:
            found.append(Tried(label, at(label)))
        except (CompileError, EstimateError) as error:
            errors.append(error)
            found.append(Tried(label, None, error.message))
    if errors and len(errors) == len(found):
        raise errors[0]
    return found


def estimates_in(rows: Iterable[Tried[Any, Found]]) -> list[Found]:
    """Return the estimates that there are."""
    return [row.estimate for row in rows if row.estimate is not None]


def smallest_compute_bound(estimator: Estimator, found: Estimate) -> int | None:
    """Return the fewest samples per system with which kernels wait for the fabric, not for the links off the wafer.

    None if even the micro-batch of the estimate is too small for that: larger ones do not fit.

    Args:
        estimator: of the estimate
        found: the estimate, for weight streaming
    """
    if found.artifact.mode is not ExecutionMode.WEIGHT_STREAMING:
        return None

    def is_bound(samples: int) -> bool:
        return estimator.edge_share(samples) <= 0.5

    most = found.artifact.micro_batch_size
    low, high = 0, 1
    while high < most and not is_bound(high):
        low, high = high, 2 * high
    high = min(high, most)
    if high == most and (found.limits["ingress"] + found.limits["egress"] > 0.5):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_bound(middle) else (middle, high)
    return high
