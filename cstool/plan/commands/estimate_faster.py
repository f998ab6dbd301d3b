"""Smaller batches and fewer systems that are faster, in reports of `cstool estimate`. All of it is modelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cstool.foundation.words import counted
from cstool.plan.commands.compile_report import number_text

if TYPE_CHECKING:
    from cstool.plan.estimation import Estimate
    from cstool.plan.verbs.estimating import Estimates


def faster_facts(estimates: Estimates) -> Iterator[tuple[str, str]]:
    """Yield a smaller batch and fewer systems that are faster, where there are any."""
    for name, other in (("faster batch", estimates.smaller_batch), ("fewer systems", estimates.fewer_systems)):
        if other is None:
            continue
        what = f"{other.batch_size:,} samples"
        if name == "fewer systems":
            what = f"{other.num_csx:,} with this batch"
        elif other.num_csx > 1:
            what += f", {other.samples_per_csx:,} to a system"
        gain = _gain(estimates.estimate, other)
        more = f"{gain:.1%} more" if gain < 1 else f"{1 + gain:,.1f} times as many"
        yield name, f"{what}: {number_text(other.samples_per_s)} samples/s, {more}"


def _gain(found: Estimate, other: Estimate) -> float:
    """Gain of another estimate's rate, as a share of the first one's rate."""
    return other.samples_per_s / found.samples_per_s - 1


def faster_document(found: Estimate, other: Estimate | None) -> dict[str, Any] | None:
    """Return a faster estimate, ready for JSON; None without one."""
    if other is None:
        return None
    rates = {"samples_per_s": other.samples_per_s, "gain": _gain(found, other)}
    return {"num_csx": other.num_csx, "batch_size": other.batch_size, "step_s": other.step_s, **rates}


def print_fastest(found: Sequence[Estimate]) -> None:
    """Print which of several numbers of systems, one or more, fewest first, are slower than fewer of them."""
    if dips := _dips([each.samples_per_s for each in found]):
        print(f"slower than fewer systems: {', '.join(f'{found[place].num_csx:,}' for place in dips)}")
    fastest = max(found, key=lambda each: each.samples_per_s)
    if fastest is not found[-1]:
        what = "fastest with this batch" if len({each.batch_size for each in found}) == 1 else "fastest"
        print(f"{what}: {counted(fastest.num_csx, 'system')}; more are slower")


def _dips(rates: Sequence[float]) -> list[int]:
    """Return the places of rates before the highest that are below one before them.

    >>> _dips([1.0, 0.9, 1.1, 0.8])
    [1]
    """
    highest = max(range(len(rates)), key=lambda place: rates[place])
    return [place for place in range(1, highest) if rates[place] < max(rates[:place])]
