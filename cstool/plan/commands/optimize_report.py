"""The report of `cstool estimate optimize`: the answer in sentences, the alternatives as a table, a document, rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import counted, digits_text, micro_batches_text
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.estimate_cost import cost_document
from cstool.plan.commands.estimate_document import band_document
from cstool.plan.commands.estimate_facts import range_text, trained_text
from cstool.plan.commands.tables import write_rows
from cstool.plan.verbs.results import BUDGET, DAYS, POWER, SHARE, Found, Plan, unmet

LIMITS = (DAYS, POWER, BUDGET)
COLUMNS = ("num_csx", "batch", "micro-batch", "mode", "days", "80%", "power", "energy")
CSV_COLUMNS = (
    *("kind", "model", "system", "num_csx", "sparsity", "batch_size", "samples_per_csx", "micro_batch_size", "mode"),
    *("recomputed", "step_s", "days", "days_low", "days_high", "days_of_steps", "power_w", "mwh", "price"),
    *("is_answer", "is_on_front", "broken"),
)


def print_found(found: Found) -> None:
    """Print the answer, why it is that, and the front."""
    best = found.best
    artifact = best.estimate.artifact
    print_line(f"{artifact.graph.name}: {artifact.graph.parameter_count:,} parameters, {best.cost.tokens:,} tokens")
    if trained := trained_text(best.estimate):
        print_line(f"{trained}.")
    print("Everything is modelled; nothing is measured.\n")
    for sentence in sentences(found):
        print_line(sentence)
    if len(found.of_shares) > 1:
        _print_shares(found)
    _print_front(found)


def sentences(found: Found) -> Iterator[str]:
    """Yield the answer in sentences."""
    best, limits = found.best, found.limits.values()
    artifact = best.estimate.artifact
    kept = " and ".join(amount_text(flag, most) for flag, most in limits.items())
    systems = f"{best.systems:,} x {artifact.system.name}"
    verb = "is the fewest that keep" if best.systems == 1 else "are the fewest that keep"
    if DAYS not in limits:
        verb = "is what is fastest" if best.systems == 1 else "are what is fastest"
    yield f"{systems} {verb} within {kept}{', at the slow end of the range' if found.limits.is_confident else ''}."
    rest = best.days - best.cost.work_s / 86_400
    why = f", {amount_text(DAYS, rest)} of them for checkpoints{' and failures' if best.cost.failures else ''}"
    again = why if rest > 0.005 * best.days else ""
    yield f"The job takes {_days(best)}{again}; {SHARE:.0%} interval: {_range_text(best)}."
    zeros = "" if best.sparsity is None else f" at sparsity {best.sparsity:.4g}"
    yield f"Batches of {counted(best.estimate.batch_size, 'sample')}{zeros}: {_way(best)}."
    drawn = ", ".join(f"{name} {number_text(watts / 1e3)}" for name, watts in best.cost.power_w.items())
    yield f"It draws {amount_text(POWER, best.power_w)} ({drawn}) and takes {number_text(best.cost.mwh)} MWh."
    if best.price is not None:
        hours = best.systems * best.cost.expected_s / 3600
        yield f"It costs {best.price:,.0f}, for {hours:,.0f} hours of a system."
    yield _why(found)


def _why(found: Found) -> str:
    """Why there are no fewer systems, or no more where these would be faster."""
    has_days = DAYS in found.limits.values()
    if has_days and found.best.systems == 1:
        return "One system is enough for all limits."
    if found.beside is None:
        return f"There are no {'fewer' if has_days else 'more'} systems on which the job could run."
    beside = found.beside
    if not found.broken:
        # Without days: more systems keep the limits, and take longer.
        return f"On {counted(beside.systems, 'system')}, the next more, it takes {_days(beside)}, within all limits."
    amounts = beside.amounts(is_confident=found.limits.is_confident)
    limits = found.limits.values()
    said = " and ".join(_beside(flag, amounts[flag], limits[flag]) for flag in found.broken)
    end = " at the slow end" if found.limits.is_confident and found.broken != (POWER,) else ""
    next_to = f"the next {'fewer' if has_days else 'more'} that share out a batch"
    where = f"On {counted(beside.systems, 'system')}, {next_to}, it is {said}{end}"
    return f"{where}: above {' and '.join(found.broken)}."


def _way(plan: Plan) -> str:
    """How a plan runs, in words."""
    artifact = plan.estimate.artifact
    each = f"{plan.estimate.samples_per_csx:,} to a system"
    again = ", activations recomputed" if artifact.recompute.levels else ", nothing recomputed"
    if artifact.pipelined is not None:
        columns, rows = artifact.pipelined.replicas
        return f"{each}, pipelined in {counted(columns * rows, 'replica')}{again}"
    batches = micro_batches_text(plan.estimate.samples_per_csx, artifact.micro_batch_size)
    return f"{each}, weights streamed in {batches}{again}"


def amount_text(flag: str, amount: float) -> str:
    """An amount of a limit in words; less than a day in hours or minutes."""
    if flag == DAYS and amount < 1:
        return f"{digits_text(24 * amount)} hours" if amount >= 1 / 24 else f"{digits_text(1440 * amount)} minutes"
    return unmet.amount_text(flag, amount)


def _beside(flag: str, amount: float, limit: float) -> str:
    """An amount in words, which may not read like the limit that it is above."""
    text = amount_text(flag, amount)
    return f"just over {text}" if text == amount_text(flag, limit) else text


def _days(plan: Plan) -> str:
    return amount_text(DAYS, plan.days)


def _range_text(plan: Plan) -> str:
    """The range of days in words, its unit once where both ends have the same."""
    if not plan.estimate.band.is_known:
        return "not known"
    return range_text(*(amount_text(DAYS, days) for days in plan.estimate.band.of_time(plan.days)))


def _range(plan: Plan) -> str:
    if not plan.estimate.band.is_known:
        return "not known"
    low, high = plan.estimate.band.of_time(plan.days)
    return f"{digits_text(low)} to {digits_text(high)}"


def _print_shares(found: Found) -> None:
    what = "fewest systems" if DAYS in found.limits.values() else "fastest plan"
    print(f"\n{what} for each share of zeros, modelled; the tokens are the same")
    rows = []
    for share, plan in found.of_shares.items():
        label = f"{share:.0%}" if share is not None and round(100 * share, 6).is_integer() else f"{share:.4%}"
        if plan is None:
            rows.append((label, "-", "-", "-", "cannot keep the limits"))
        else:
            rows.append((label, f"{plan.systems:,}", _days(plan), amount_text(POWER, plan.power_w), _way(plan)))
    print_table(("sparsity", "num_csx", "days", "power", "way"), rows, right=("sparsity", "num_csx", "days", "power"))


def _print_front(found: Found) -> None:
    """Print the Pareto-optimal plans."""
    has_shares = len(found.of_shares) > 1
    has_price = found.best.price is not None
    what = "systems, days, power" + (", price" if has_price else "") + (" and zeros" if has_shares else "")
    print(f"\nwhat else there is: Pareto-optimal plans in {what}, modelled")
    columns = (
        *(("sparsity",) if has_shares else ()),
        *COLUMNS,
        *(("price",) if has_price else ()),
        "limits",
    )
    rows = []
    for plan in found.front:
        artifact = plan.estimate.artifact
        cells = [f"{plan.sparsity:.4g}"] if has_shares else []
        size = "-" if artifact.pipelined is not None else f"{artifact.micro_batch_size:,}"
        cells += [f"{plan.systems:,}", f"{plan.estimate.batch_size:,}", size, str(artifact.mode.value)]
        cells += [digits_text(plan.days), _range(plan), amount_text(POWER, plan.power_w)]
        cells += [f"{number_text(plan.cost.mwh)} MWh"]
        cells += [f"{plan.price:,.0f}"] if has_price else []
        broken = plan.breaks(found.limits)
        cells.append("the answer" if plan == found.best else f"breaks {', '.join(broken)}" if broken else "kept")
        rows.append(tuple(cells))
    print_table(columns, rows, right=[name for name in columns if name not in ("mode", "limits")])


def front_document(found: Found) -> dict[str, Any]:
    """Return the result ready for JSON; modelled numbers are under that name."""
    artifact, limits = found.best.estimate.artifact, found.limits.values()
    beside = "next_fewer" if DAYS in limits else "next_more"
    return {
        "model": artifact.graph.name,
        "parameters": artifact.graph.parameter_count,
        "trained_parameters": artifact.graph.trained_count,
        "system": artifact.system.name,
        "limits": {
            **{flag: limits.get(flag) for flag in LIMITS},
            "confident": found.limits.is_confident,
        },
        "modelled": {
            "answer": _row(found, found.best) | {"cost": cost_document(found.best.cost)},
            "sentences": list(sentences(found)),
            beside: None if found.beside is None else _row(found, found.beside),
            "binding": list(found.broken),
            "by_sparsity": [
                {"sparsity": share, "answer": None if plan is None else _row(found, plan)}
                for share, plan in found.of_shares.items()
            ],
            "front": [_row(found, plan) for plan in found.front],
            "simulated": found.simulated,
        },
    }


def _row(found: Found, plan: Plan) -> dict[str, Any]:
    estimate = plan.estimate
    artifact = estimate.artifact
    low, high = estimate.band.of_time(plan.days) if estimate.band.is_known else (None, None)
    return {
        "kind": "modelled",
        "model": artifact.graph.name,
        "system": artifact.system.name,
        "num_csx": plan.systems,
        "sparsity": plan.sparsity,
        "batch_size": estimate.batch_size,
        "samples_per_csx": estimate.samples_per_csx,
        "micro_batch_size": artifact.micro_batch_size,
        "mode": artifact.mode,
        "recomputed": artifact.recompute.levels,
        "step_s": estimate.step_s,
        "days": plan.days,
        "days_low": low,
        "days_high": high,
        "days_of_steps": plan.cost.work_s / 86_400,
        "power_w": plan.power_w,
        "mwh": plan.cost.mwh,
        "price": plan.price,
        "is_answer": plan == found.best,
        "is_on_front": plan in found.front,
        "broken": plan.breaks(found.limits),
        "band": band_document(estimate),
    }


def write_front(path: Path, found: Found) -> None:
    """Write all plans, beaten ones among them, as comma-separated values; see `write_rows`."""
    rows = (_row(found, plan) for plan in found.plans)
    write_rows(path, CSV_COLUMNS, (row | {"broken": " ".join(row["broken"])} for row in rows))
