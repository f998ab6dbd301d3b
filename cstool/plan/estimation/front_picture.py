"""From the result of a search to its picture."""

from collections.abc import Callable, Sequence

from cstool.foundation.words import counted
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER
from cstool.plan.estimation.plan import Found, Plan, front
from cstool.plan.estimation.unmet import amount_text
from cstool.plan.pictures.pareto import FrontPanel, FrontPicture, FrontPoint, FrontSeries


def front_picture(found: Found) -> FrontPicture:
    """Contents of the picture."""
    best, limits = found.best, found.limits.values()
    graph, system = best.estimate.artifact.graph, best.estimate.artifact.system
    kept = " and ".join(amount_text(flag, most) for flag, most in limits.items())
    end = " at the slow end of its range" if found.limits.is_confident else ""
    power = limits.get(POWER)
    panels = [
        _panel(found, "Days against systems", "systems (num_csx)", lambda plan: plan.systems, None),
        _panel(
            found,
            "Days against power of systems and servers",
            "power [kW]",
            lambda plan: plan.power_w / 1e3,
            None if power is None else power / 1e3,
        ),
    ]
    if best.price is not None:
        budget = limits.get(BUDGET)
        panels.append(_panel(found, "Days against price", "price", lambda plan: plan.price or 0.0, budget))
    job = f"{graph.parameter_count:,} parameters, {best.cost.tokens:,} tokens"
    verb = "is" if best.systems == 1 else "are"
    what = "the fewest that keep" if DAYS in limits else "what is fastest"
    fewest = f"{counted(best.systems, 'system')} {verb} {what} within"
    return FrontPicture(
        title=f"{graph.name}, {job}, on {system.name} (modelled)",
        subtitle=(
            f"{fewest} {kept}{end}: {amount_text(DAYS, best.days)}. Numbers beside points are those of systems. "
            "Everything is modelled; nothing is measured."
        ),
        panels=tuple(panels),
    )


def _panel(found: Found, heading: str, axis: str, amount: Callable[[Plan], float], most: float | None) -> FrontPanel:
    series = []
    for share in found.of_shares:
        plans = sorted(
            (plan for plan in found.plans if plan.sparsity == share), key=lambda plan: (amount(plan), plan.days)
        )
        if not plans:
            continue
        kept = front(plans, lambda plan: (amount(plan), plan.days))
        beaten = [plan for plan in plans if not any(plan is other for other in kept)]

        def points(chosen: Sequence[Plan]) -> tuple[FrontPoint, ...]:
            return tuple(
                FrontPoint(
                    amount(plan),
                    plan.days,
                    plan.estimate.band.of_time(plan.days) if plan.estimate.band.is_known else (plan.days, plan.days),
                    f"{plan.systems:,}",
                    plan is found.best,
                )
                for plan in chosen
            )

        label = f"{share:.4g}" if share is not None and len(found.of_shares) > 1 else ""
        series.append(FrontSeries(label, points(kept), points(beaten)))
    return FrontPanel(f"{heading} (modelled)", axis, tuple(series), most, found.limits.days)
