"""The report of `cstool estimate`: facts and tables for people. All of it is modelled."""

from collections.abc import Iterator, Sequence

from cstool.foundation.terminal.render import print_table
from cstool.foundation.words import bytes_text, counted
from cstool.plan.commands.compile_report import number_text, print_summary
from cstool.plan.commands.estimate_cost import print_cost, print_cost_scaling
from cstool.plan.commands.estimate_facts import days_text, estimate_facts, step_range_text
from cstool.plan.commands.estimate_gpu import print_gpus
from cstool.plan.commands.tables import print_tried, short_time_text
from cstool.plan.verbs.estimating import Estimates
from cstool.plan.verbs.results import Estimate, Row, Tried, estimates_in

RESOURCE_COLUMNS = ("resource", "step", "share", "work", "busy")
SCALE_COLUMNS = (
    *("num_csx", "batch", "step", "80%", "samples/s", "tokens/s"),
    *("speedup", "efficiency", "PFLOP/s", "of peak"),
)
SPARSE_COLUMNS = ("sparsity", "step", "tokens/s", "speedup", "of ideal", "streamed", "MemoryX", "bound by")
CHOICE_COLUMNS = ("--recompute", "layers again", "micro-batch", "step", "speed", "SRAM of a PE", "mode")


def print_estimates(estimates: Estimates) -> None:
    """Print the first estimate in full, then all tables beside it."""
    found = estimates.estimate
    said = "Everything is modelled; nothing is measured."
    print_summary(found.artifact, f"{found.num_csx:,}", said, dict(estimate_facts(estimates)), estimates.notes)
    _print_step(found)
    limits = ", ".join(f"{share:.0%} {bound}" for bound, share in found.limits.items() if share >= 0.005)
    print(f"the kernels' time is limited by: {limits}")
    if estimates.costs:
        print_cost(estimates.costs[0])
    if estimates.choices:
        _print_choices(estimates.choices)
    if estimates.scaling:
        _print_scaling(estimates.scaling)
    if len(estimates.costs) > 1:
        print_cost_scaling(estimates.costs)
    if estimates.sparsities:
        _print_sparsities(estimates.sparsities)
    if estimates.gpus is not None:
        print_gpus(estimates.gpus)


def _print_step(found: Estimate) -> None:
    """Print the time of the step by cause, which adds up, beside the busy times of resources, which need not."""
    step = found.step
    print("\nwhere a step goes: its critical path; other work overlaps")

    def time(seconds: float) -> str:
        return short_time_text(seconds) if seconds else "-"

    rows = [
        (
            name,
            time(step.spent_s.get(name, 0.0)),
            f"{step.spent_s.get(name, 0.0) / step.seconds:.1%}",
            time(step.busy_s[name]) if name in step.busy_s else "",
            f"{found.busy[name]:.1%}" if name in step.busy_s else "",
        )
        for name in (*step.busy_s, *(name for name in step.spent_s if name not in step.busy_s))
    ]
    rows.append(("step", time(step.seconds), "100.0%", "", ""))
    print_table(RESOURCE_COLUMNS, rows, right=RESOURCE_COLUMNS[1:])


def _print_choices(choices: Sequence[Tried[str, Estimate]]) -> None:
    """Print time and memory of the choices of recomputation."""
    print("\nactivations recomputed in the backward pass, choice by choice, modelled")
    base_s = estimates_in(choices)[0].step_s

    def cells(choice: Tried[str, Estimate], found: Estimate) -> Iterator[str]:
        artifact = found.artifact
        levels = artifact.recompute.levels
        yield choice.label
        yield f"{levels}x" if levels else "-"
        yield f"{artifact.micro_batch_size:,}" if artifact.streaming is not None else "-"
        yield short_time_text(found.step_s)
        yield f"{base_s / found.step_s:.2f}x"
        yield f"{bytes_text(artifact.sram_used_bytes)} of {bytes_text(artifact.system.pe.sram_bytes)}"
        yield artifact.mode

    print_tried(CHOICE_COLUMNS, choices, cells, str, left=("--recompute", "mode"))


def _print_scaling(rows: Sequence[Row]) -> None:
    """Print the table over numbers of systems."""
    estimates = estimates_in(rows)
    sizes = {found.batch_size for found in estimates}
    print(f"\nscaling, the batch of {'the file shared out' if len(sizes) == 1 else 'each system the same'}, modelled")
    has_days = estimates[0].tokens is not None
    columns = (*SCALE_COLUMNS, *(("training",) if has_days else ()), "power", "bound by")

    def cells(row: Row, found: Estimate) -> Iterator[str]:
        yield f"{found.num_csx:,}"
        yield f"{found.batch_size:,}"
        yield short_time_text(found.step_s)
        yield step_range_text(found)
        yield number_text(found.samples_per_s)
        yield number_text(found.tokens_per_s)
        yield f"{row.speedup:,.2f}x"
        yield f"{row.efficiency:.1%}"
        yield f"{found.flops_per_s / 1e15:,.4g}"
        yield f"{found.share_of_peak:.1%}"
        if found.days is not None:
            yield days_text(found.days)
        yield f"{number_text(found.power_w / 1e3)} kW"
        yield found.bound

    print_tried(columns, rows, cells, left=("bound by",))
    _print_fastest(estimates)


def _print_fastest(found: Sequence[Estimate]) -> None:
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


def _print_sparsities(rows: Sequence[Row]) -> None:
    """Print the table over shares of zeros."""
    first = estimates_in(rows)[0]
    print(f"\nsparsity of the linear layers, {counted(first.num_csx, 'system')}, modelled")

    def cells(row: Row, found: Estimate) -> Iterator[str]:
        plan = found.artifact.streaming
        yield f"{row.label:.0%}" if round(100 * row.label, 6).is_integer() else f"{row.label:.4%}"
        yield short_time_text(found.step_s)
        yield number_text(found.tokens_per_s)
        yield f"{row.speedup:.2f}x"
        yield f"{row.efficiency:.0%}"
        yield "-" if plan is None else bytes_text(plan.streamed_bytes)
        yield bytes_text(found.artifact.memoryx.total_bytes)
        yield found.bound

    print_tried(SPARSE_COLUMNS, rows, cells, "{:g}".format, left=("bound by",))
    print("of ideal: the speedup, as a share of that of the remaining products alone")
