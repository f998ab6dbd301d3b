"""The reasons why no plan keeps the limits of a job, and the nearest plan, in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import counted, digits_text
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, Limits
from cstool.plan.estimation.plan import Plan
from cstool.plan.estimation.search import Search

Elsewhere = Callable[[str], "Search | None"]
"""system -> the same search on it; None where it cannot be made"""
VERBS = {DAYS: "takes", POWER: "draws", BUDGET: "costs"}


def amount_text(flag: str, amount: float) -> str:
    """An amount of a limit in words.

    >>> [amount_text(flag, amount) for flag, amount in (("--days", 20.84), ("--power", 5e5), ("--budget", 2.5e6))]
    ['20.8 days', '500 kW', '2,500,000']
    """
    if flag == DAYS:
        return "1 day" if amount == 1 else f"{digits_text(amount)} days"
    return f"{digits_text(amount / 1e3)} kW" if flag == POWER else f"{amount:,.0f}"


def enough_text(flag: str, amount: float) -> str:
    """The flag with which an amount is within its limit, rounded up to three digits.

    >>> [enough_text(flag, amount) for flag, amount in (("--days", 20.84), ("--power", 500_100), ("--budget", 2.501e6))]
    ['--days 20.9', '--power 501kW', '--budget 2.51M']
    """
    unit, name = 1.0, ""
    if flag == POWER:
        unit, name = 1e3, "kW"
    elif flag == BUDGET:
        unit, name = next((each for each in ((1e9, "B"), (1e6, "M"), (1e3, "K")) if amount >= each[0]), (1.0, ""))
    value = amount / unit
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{flag} {math.ceil(value / step - 1e-9) * step:.10g}{name}"


def unmet(search: Search, elsewhere: Elsewhere, others: tuple[str, ...]) -> EstimateError:
    """Return the reason why a search found nothing, with the nearest plan.

    Args:
        search: that found nothing
        elsewhere: see `Elsewhere`
        others: systems to try

    Raises:
        EstimateError, CompileError: nothing fits in the first place
    """
    limits = search.limits
    wanted = limits.values()
    free = Limits(is_confident=limits.is_confident)
    alone = {flag: search.least_within(flag, free) for flag in wanted}
    if not all(alone.values()):
        search.raise_misfit()
    end = " at the slow end of its range" if limits.is_confident else ""

    def amount(flag: str, plan: Plan) -> float:
        return plan.amounts(is_confident=limits.is_confident)[flag]

    for flag, most in wanted.items():
        plan = alone[flag]
        assert plan is not None
        if amount(flag, plan) > most:
            least = amount_text(flag, amount(flag, plan))
            slow = end if flag != POWER else ""
            rule = f"cannot be met: {least}{slow} is the least, on {_on(search, plan, flag)}"
            nearest = [enough_text(flag, amount(flag, plan)), *_elsewhere(elsewhere, others, flag, amount(flag, plan))]
            return EstimateError(f"{flag}: {rule}, got {_typed(flag, most)}", f"possible: {'; '.join(nearest)}")
    # Each alone can be met: so it is several of them together that cannot.
    flags = " and ".join(f"{flag} {_typed(flag, most)}" for flag, most in wanted.items())
    parts, nearest = [], []
    for flag in wanted:
        plan = search.least(flag)
        if plan is None:
            continue
        rest = " and ".join(amount_text(other, most) for other, most in wanted.items() if other != flag)
        least = amount_text(flag, amount(flag, plan))
        parts.append(f"within {rest} it {VERBS[flag]} {least} at least, on {counted(plan.systems, 'system')}")
        nearest.append(enough_text(flag, amount(flag, plan)))
    nearest += _elsewhere(elsewhere, others)
    said = "; ".join(parts) or "no two of them can"
    hint = f"possible: {'; '.join(nearest)}" if nearest else None
    return EstimateError(f"{flags}: cannot be met together{end}: {said}", hint)


def _typed(flag: str, most: float) -> str:
    """A limit as it may be typed."""
    if flag == DAYS:
        return f"{most:g}"
    return f"{most / 1e3:g}kW" if flag == POWER else f"{most:,.0f}"


def _on(search: Search, plan: Plan, flag: str) -> str:
    """The systems of a plan, and why not more of them."""
    system, count = plan.estimate.artifact.system, plan.systems
    text = f"{count:,} x {system.name}"
    if flag != DAYS or count < search.counts[-1]:
        return text
    if count == system.max_systems:
        return f"{text}, as many as a cluster has"
    if count == search.space.most:
        return f"{text}, as many as --num_csx allows"
    batches = search.space.batches
    return f"{text}, the most that share out a batch of {batches[-1]:,}" if batches else text


def _elsewhere(elsewhere: Elsewhere, others: tuple[str, ...], flag: str = "", least: float = 0.0) -> list[str]:
    """Return the systems with which all limits are met, or of one limit less is possible than here."""
    found = []
    for name in others:
        search = elsewhere(name)
        if search is None:
            continue
        if (met := search.run()) is not None:
            days = amount_text(DAYS, met.best.days)
            found.append(f"--system {name} meets it: {days} on {counted(met.best.systems, 'system')}")
        elif flag:
            plan = search.least_within(flag, Limits(is_confident=search.limits.is_confident))
            if plan is None:
                continue
            amount = plan.amounts(is_confident=search.limits.is_confident)[flag]
            if amount < least:
                there = f"{enough_text(flag, amount)} with --system {name}"
                found.append(f"{there}, on {counted(plan.systems, 'system')}")
    return found
