"""The report of `cstool estimate` on the cost of a training job."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cstool.foundation.terminal.render import print_table
from cstool.foundation.words import bytes_text, counted
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.tables import print_named, short_time_text
from cstool.plan.verbs.results import DAY_S, HOUR_S, MWH_J, CostBand, JobCost

COST_COLUMNS = ("num_csx", "training", "with stops", "failures", "servers", "power", "energy")


def print_cost(cost: JobCost) -> None:
    """Print the cost of a job."""
    print("\nwhat a job costs, modelled")
    print_named(_facts(cost))


def _facts(cost: JobCost) -> Iterator[tuple[str, str]]:
    systems = counted(cost.systems, "system")
    yield "training", f"{_days(cost.work_s)} for {cost.tokens:,} tokens on {systems}, without stops"
    yield "checkpoints", _checkpoints_text(cost)
    failures = cost.failures
    if failures is not None:
        every = f"one every {_days(failures.mtbf_s)}, {number_text(failures.count)} expected"
        yield "failures", f"{every}, {_days(failures.restart_s)} to start again, what was lost is done again"
        parts = f"{_days(failures.lost_s)} of lost work, {_days(failures.restarting_s)} of restarts"
        yield "expected", f"{_days(cost.expected_s)}, {cost.expected_s / cost.work_s - 1:.2%} more: {parts}"
    else:
        yield "expected", f"{_days(cost.expected_s)}; --mtbf adds failures"
    if cost.servers:
        watts = next(watts for name, watts in cost.power_w.items() if name != "systems") / next(
            iter(cost.servers.values())
        )
        counts = ", ".join(f"{count:,} {_kind(name, count)}" for name, count in cost.servers.items())
        yield "servers", f"{counts}: {number_text(watts)} W each"
    else:
        yield "servers", "nothing is known of them on this system: they are left out"
    drawn = ", ".join(f"{name} {number_text(watts / 1e3)}" for name, watts in cost.power_w.items())
    yield "power", f"{number_text(sum(cost.power_w.values()) / 1e3)} kW: {drawn}"
    unit, size = ("MWh", MWH_J) if cost.mwh >= 1 else ("kWh", MWH_J / 1e3)
    used = ", ".join(f"{name} {number_text(joules / size)}" for name, joules in cost.energy_j.items())
    yield "energy", f"{number_text(sum(cost.energy_j.values()) / size)} {unit}: {used}"
    if cost.price is not None:
        hours = cost.systems * cost.expected_s / HOUR_S
        yield "price", f"{cost.price:,.0f} for {number_text(hours)} hours of a system"
    if cost.band is not None:
        yield "80% interval", _band_text(cost.band)
    yield "input workers", _workers_text(cost)


def _checkpoints_text(cost: JobCost) -> str:
    saved = cost.checkpoints
    state = f"{bytes_text(saved.state_bytes)} of weights and optimizer state"
    taken = f"{state}; {saved.rate_from}, they are taken to need no time; --checkpoint_rate says how fast"
    if saved.bytes_per_s is not None:
        taken = (
            f"{state}, {short_time_text(saved.each_s)} at {bytes_text(round(saved.bytes_per_s))}/s, {saved.rate_from}"
        )
    if saved.interval_from == "end":
        return f"{taken}; one, after the last step"
    why = {"asked": "as asked", "params": "as the file says", "best": "which is best"}[saved.interval_from]
    best = f" (best: {_days(saved.best_s)})" if saved.best_s and saved.interval_from != "best" else ""
    total = f": {_days(saved.count * saved.each_s)} in all" if saved.bytes_per_s is not None else ""
    return f"{taken}; {saved.count:,} of them, one every {_days(saved.interval_s)} of work, {why}{best}{total}"


def _band_text(band: CostBand) -> str:
    parts = [
        (band.days, " days"),
        (band.mwh, " MWh"),
        *([(band.price, " to pay")] if band.price[0] is not None else []),
    ]
    return ", ".join(f"{_number(low)} to {_number(high)}{unit}" for (low, high), unit in parts)


def _number(value: float | None) -> str:
    return "no end" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _workers_text(cost: JobCost) -> str:
    workers = cost.workers
    of_system = f"{number_text(cost.tokens / cost.work_s / cost.systems)} tokens/s"
    if workers.tokens_per_s is None:
        return f"{of_system} to a system; {workers.rate_from}: --worker_rate says how many that takes"
    needed = f"{workers.needed_per_csx:,} to a system, which takes {of_system}"
    return f"{needed}: each delivers {number_text(workers.tokens_per_s)} tokens/s, {workers.rate_from}"


def _kind(name: str, count: int) -> str:
    if name in ("MemoryX", "SwarmX"):
        return f"of {name}"
    return name if count > 1 else name.removesuffix("s")


def print_cost_scaling(costs: Sequence[JobCost]) -> None:
    """Print the cost of a job on several numbers of systems."""
    print("\nwhat the job costs on so many systems, modelled")
    columns = (*COST_COLUMNS, *(("price",) if costs[0].price is not None else ()))
    table = [tuple(_cells(cost)) for cost in costs]
    print_table(columns, table, right=columns)


def _cells(cost: JobCost) -> Iterator[str]:
    yield f"{cost.systems:,}"
    yield _days(cost.work_s)
    yield _days(cost.expected_s)
    yield "-" if cost.failures is None else number_text(cost.failures.count)
    yield f"{sum(cost.servers.values()):,}" if cost.servers else "-"
    yield f"{number_text(sum(cost.power_w.values()) / 1e3)} kW"
    yield f"{number_text(cost.mwh)} MWh"
    if cost.price is not None:
        yield f"{cost.price:,.0f}"


def cost_document(cost: JobCost) -> dict[str, Any]:
    """Return the cost of a job ready for JSON."""
    saved, failures = cost.checkpoints, cost.failures
    return {
        "kind": "modelled",
        "tokens": cost.tokens,
        "num_csx": cost.systems,
        "work_s": cost.work_s,
        "expected_s": cost.expected_s,
        "days": cost.days,
        "checkpoints": asdict(saved) | {"each_s": saved.each_s},
        "failures": None if failures is None else asdict(failures),
        "input_workers": asdict(cost.workers),
        "servers": dict(cost.servers),
        "power_w": dict(cost.power_w),
        "energy_j": dict(cost.energy_j),
        "mwh": cost.mwh,
        "price": cost.price,
        "band": None if cost.band is None else asdict(cost.band),
    }


def _days(seconds: float) -> str:
    """Return a time as people plan with it."""
    if seconds >= 730 * DAY_S:
        return f"{seconds / DAY_S / 365.25:,.3g} years"
    if seconds >= DAY_S:
        days = f"{seconds / DAY_S:,.3g}"
        return "1 day" if days == "1" else f"{days} days"
    return f"{seconds / HOUR_S:.3g} hours" if seconds >= HOUR_S else short_time_text(seconds)
