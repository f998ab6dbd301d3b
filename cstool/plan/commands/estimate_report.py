"""The report of `cstool estimate`: facts and tables for people, one document for scripts. All of it is modelled."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import bytes_text, counted, micro_batches_text, often, time_text
from cstool.plan.commands.compile_report import number_text, phases_document, print_summary
from cstool.plan.commands.estimate_cost import cost_document
from cstool.plan.commands.estimate_faster import faster_document, faster_facts, print_fastest
from cstool.plan.commands.estimate_updates import update_facts, updates_document
from cstool.plan.commands.estimate_variants import choices_document, trained_text

if TYPE_CHECKING:
    from cstool.model.ir import Artifact
    from cstool.plan.estimation import Estimate, Row
    from cstool.plan.estimation.bands import Band
    from cstool.plan.estimation.cost import JobCost
    from cstool.plan.estimation.mask_updates import MaskUpdates
    from cstool.plan.verbs.estimate_variants import RecomputeChoice
    from cstool.plan.verbs.estimating import Estimates

BAND_SHARE = 0.8
"""share of results like an estimate that lie in its range"""
RESOURCE_COLUMNS = ("resource", "step", "share", "work", "busy")
SCALE_COLUMNS = (
    *("num_csx", "batch", "step", "80%", "samples/s", "tokens/s"),
    *("speedup", "efficiency", "PFLOP/s", "of peak"),
)
SPARSE_COLUMNS = ("sparsity", "step", "tokens/s", "speedup", "of ideal", "streamed", "MemoryX", "bound by")
_CSV_COLUMNS = (
    *("kind", "model", "system", "num_csx", "sparsity", "batch_size", "samples_per_csx", "micro_batch_size", "mode"),
    *("step_s", "samples_per_s", "tokens_per_s", "speedup", "efficiency", "flops_per_s", "share_of_peak", "bound_by"),
    *("memoryx_bytes", "power_w", "joules_per_token", "days", "step_low_s", "step_high_s", "why"),
)


def print_estimate(estimates: Estimates) -> None:
    """Print the first estimate in full."""
    found = estimates.estimate
    facts = dict(_facts(found, estimates.smallest, estimates.updates)) | dict(faster_facts(estimates))
    said = "Everything is modelled; nothing is measured."
    print_summary(found.artifact, f"{found.num_csx:,}", said, facts, estimates.notes)
    _print_step(found)
    limits = ", ".join(f"{share:.0%} {bound}" for bound, share in found.limits.items() if share >= 0.005)
    print(f"the kernels' time is limited by: {limits}")


def _print_step(found: Estimate) -> None:
    """Print the time of the step by cause, which adds up, beside the busy times of resources, which need not."""
    step = found.step
    print("\nwhere a step goes: its critical path; other work overlaps")

    def time(seconds: float) -> str:
        return time_text(seconds).partition(" (")[0] if seconds else "-"

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


def _facts(found: Estimate, smallest: int | None, updates: Sequence[MaskUpdates]) -> Iterator[tuple[str, str]]:
    artifact = found.artifact
    system = artifact.system
    yield "mode", _mode_text(artifact)
    if (trained := trained_text(found)) is not None:
        yield "trained", trained
    if zeros := found.zero_weights:
        share = zeros / artifact.graph.parameter_count
        yield "zeros", f"{zeros:,} of all weights, {share:.1%}, are not stored, streamed or multiplied"
    yield "step", f"{time_text(found.step_s)}, bound by {found.bound}"
    rate = f"{number_text(found.samples_per_s)} samples/s"
    yield "throughput", f"{rate}, {number_text(found.tokens_per_s)} tokens/s" if artifact.tokens > 1 else rate
    yield from _range_facts(found)
    yield from update_facts(updates)
    yield "matmuls", f"{found.flops_per_s / 1e15:,.4g} PFLOP/s, {found.share_of_peak:.1%} of the peak"
    yield "SwarmX", _tree_text(found)
    if system.software is not None:
        yield "hosts", _hosts_text(found)
    yield "MemoryX", _memoryx_text(found)
    each = joules_text(found.joules_per_token)
    yield "power", f"{number_text(found.power_w / 1e3)} kW of the systems, {each} per token"
    if found.days is not None:
        yield "training", f"{_days(found.days)} for {found.tokens:,} tokens"
    if artifact.streaming is not None:
        yield "smallest batch", _smallest_text(found, smallest)
    yield "efficiency", f"{system.pe.efficiency:g} of a PE's rate is taken to be sustained"


def _range_facts(found: Estimate) -> Iterator[tuple[str, str]]:
    """Yield the range of 80 % of results like it, and which these are."""
    band = found.band
    if not band.is_known:
        yield f"{BAND_SHARE:.0%} interval", "not known: no result of a model of images was published"
        return
    low, high = band.of_rate(found.tokens_per_s)
    unit = "tokens/s" if found.artifact.tokens > 1 else "samples/s"
    parts = [f"{_step_range(found)} a step", f"{rough_text(low)} to {rough_text(high)} {unit}"]
    if found.days is not None:
        parts.append(range_text(*(_days(days) for days in band.of_time(found.days))))
    yield from interval_facts(band, ", ".join(parts))


def interval_facts(band: Band, ranges: str) -> Iterator[tuple[str, str]]:
    """Yield an 80 % interval in words, and the results that it comes from."""
    yield f"{BAND_SHARE:.0%} interval", ranges
    yield "by errors of", f"{counted(band.count, 'held-out result')}: {band.of}"


def rough_text(rate: float) -> str:
    """Return a rate to three digits.

    >>> rough_text(1234.5)
    '1,230'
    """
    return f"{float(f'{rate:.3g}'):,.10g}"


def _step_range(found: Estimate) -> str:
    """Return the range of 80 % of steps like it."""
    if not found.band.is_known:
        return "not known"
    return range_text(*(time_text(float(f"{s:.3g}")).partition(" (")[0] for s in found.band.of_time(found.step_s)))


def range_text(low: str, high: str) -> str:
    """Return a range, its unit once where both have the same."""
    number, _, unit = low.partition(" ")
    return f"{number if unit == high.partition(' ')[2] else low} to {high}"


def _mode_text(artifact: Artifact) -> str:
    if artifact.pipelined is not None:
        count = artifact.pipelined.replicas[0] * artifact.pipelined.replicas[1]
        replicas = "1 replica" if count == 1 else f"{count} replicas"
        return f"pipelined: {len(artifact.pipelined.stages)} stages, {replicas}"
    batches = micro_batches_text(artifact.batch_size // artifact.num_csx, artifact.micro_batch_size)
    levels = artifact.recompute.levels
    again = f", activations recomputed {often(levels)} per layer" if levels else ""
    plan = artifact.streaming
    parts = f", in {plan.layout.parts} parts" if plan is not None and plan.layout.parts > 1 else ""
    return f"weight_streaming: {batches} to a system{parts}{again}"


def _tree_text(found: Estimate) -> str:
    swarmx = found.artifact.system.swarmx
    if swarmx is None or not found.stages:
        return "no stage: one system"
    return f"{counted(found.stages, 'stage')} of fan-out {swarmx.fan_out}"


def _hosts_text(found: Estimate) -> str:
    software = found.artifact.system.software
    assert software is not None
    rate = software.worker_tokens_per_s
    said = "taken to keep up" if rate is None else f"of {number_text(rate)} tokens/s"
    if found.reads_images:
        said += " (how fast they decode images is not known)"
    workers, servers = counted(software.workers, "input worker"), counted(software.servers, "activation server")
    return f"release {software.release}: {workers} {said} and {servers} to a system"


def _memoryx_text(found: Estimate) -> str:
    need, memoryx = found.artifact.memoryx.total_bytes, found.artifact.system.memoryx
    if memoryx is None:
        return "none"
    unit = found.memoryx_unit_bytes
    if memoryx.units_bytes == (memoryx.capacity_bytes,):
        return f"{bytes_text(need)} of weights, optimizer state and gradients, of {bytes_text(memoryx.capacity_bytes)}"
    holds = "" if unit is None else f"; the smallest unit that holds it has {bytes_text(unit)}"
    return f"{bytes_text(need)} of weights, optimizer state and gradients{holds}"


def _smallest_text(found: Estimate, smallest: int | None) -> str:
    if smallest is None:
        size = found.artifact.micro_batch_size
        return f"links off the wafer limit most of the time up to micro-batches of {size}, those of this step"
    of_all = f", {smallest * found.num_csx:,} in all" if found.num_csx > 1 else ""
    samples = "1 sample" if smallest == 1 else f"{smallest} samples"
    return f"{samples} to a system{of_all}: from there on links off the wafer limit less than half of the time"


def print_scaling(rows: Sequence[Row]) -> None:
    """Print the table over numbers of systems."""
    first = _first_of(rows)
    sizes = {row.estimate.batch_size for row in rows if row.estimate is not None}
    print(f"\nscaling, the batch of {'the file shared out' if len(sizes) == 1 else 'each system the same'}, modelled")
    has_days = first.tokens is not None
    columns = (*SCALE_COLUMNS, *(("training",) if has_days else ()), "power", "bound by")

    def cells(row: Row, found: Estimate) -> Iterator[str]:
        yield f"{found.num_csx:,}"
        yield f"{found.batch_size:,}"
        yield time_text(found.step_s).partition(" (")[0]
        yield _step_range(found)
        yield number_text(found.samples_per_s)
        yield number_text(found.tokens_per_s)
        yield f"{row.speedup:,.2f}x"
        yield f"{row.efficiency:.1%}"
        yield f"{found.flops_per_s / 1e15:,.4g}"
        yield f"{found.share_of_peak:.1%}"
        if found.days is not None:
            yield _days(found.days)
        yield f"{number_text(found.power_w / 1e3)} kW"
        yield found.bound

    _print_rows(columns, rows, cells, "{:,}".format)
    print_fastest([row.estimate for row in rows if row.estimate is not None])


def _print_rows(
    columns: Sequence[str],
    rows: Sequence[Row],
    cells: Callable[[Row, Estimate], Iterable[str]],
    label_text: Callable[[float], str],
) -> None:
    """Print a table of estimates, then why others are left out."""
    table = [tuple(cells(row, row.estimate)) for row in rows if row.estimate is not None]
    print_table(columns, table, right=columns[:-1])
    for row in rows:
        if row.estimate is None:
            print_line(f"{label_text(row.label)}: left out: {row.why}")


def _first_of(rows: Sequence[Row]) -> Estimate:
    return next(row.estimate for row in rows if row.estimate is not None)


def print_sparsities(rows: Sequence[Row]) -> None:
    """Print the table over shares of zeros."""
    first = _first_of(rows)
    print(f"\nsparsity of the linear layers, {counted(first.num_csx, 'system')}, modelled")

    def cells(row: Row, found: Estimate) -> Iterator[str]:
        plan = found.artifact.streaming
        yield f"{row.label:.0%}" if round(100 * row.label, 6).is_integer() else f"{row.label:.4%}"
        yield time_text(found.step_s).partition(" (")[0]
        yield number_text(found.tokens_per_s)
        yield f"{row.speedup:.2f}x"
        yield f"{row.efficiency:.0%}"
        yield "-" if plan is None else bytes_text(plan.streamed_bytes)
        yield bytes_text(found.artifact.memoryx.total_bytes)
        yield found.bound

    _print_rows(SPARSE_COLUMNS, rows, cells, "{:g}".format)
    print("of ideal: the speedup, as a share of that of the remaining products alone")


def estimate_document(
    estimates: Estimates, costs: Sequence[JobCost] = (), choices: Sequence[RecomputeChoice] = ()
) -> dict[str, Any]:
    """Return the facts ready for JSON; everything that is modelled is under that name.

    Args:
        costs: of the job, for each number of systems; empty if not asked for
        choices: of recomputation
    """
    found, artifact = estimates.estimate, estimates.estimate.artifact
    return {
        "model": artifact.graph.name,
        "parameters": artifact.graph.parameter_count,
        "system": artifact.system.name,
        "modelled": {
            **_row_document(estimates.first),
            "reasons": list(artifact.reasons),
            "smallest_compute_bound_samples_per_csx": estimates.smallest,
            "smaller_batch": faster_document(found, estimates.smaller_batch),
            "fewer_systems": faster_document(found, estimates.fewer_systems),
            "resources": {name: {"work_s": s, "busy": found.busy[name]} for name, s in found.step.busy_s.items()},
            "spent_s": found.step.spent_s,
            "software": None if artifact.system.software is None else asdict(artifact.system.software),
            "limits": found.limits,
            "longest_resource_s": found.step.longest_s,
            "serial_s": found.step.serial_s,
            "kernels": _kernels(artifact),
            "trained_parameters": artifact.graph.trained_count,
            "cost": cost_document(costs[0]) if costs else None,
            "costs": [cost_document(cost) for cost in costs[1:]],
            "recompute": choices_document(choices),
            "mask_updates": updates_document(estimates.updates),
            "scaling": [_row_document(row) for row in estimates.scaling],
            "sparsities": [_row_document(row) | {"sparsity": row.label} for row in estimates.sparsities],
        },
    }


def _kernels(artifact: Artifact) -> list[dict[str, Any]]:
    """Return the cycles of all kernels or stages, as the artifact has them."""
    if artifact.pipelined is not None:
        found = [(stage.name, 1, stage.cycles) for stage in artifact.pipelined.stages]
    else:
        assert artifact.streaming is not None
        segments = zip(artifact.graph.segments, artifact.streaming.kernels, strict=True)
        found = [(kernel.name, segment.count, kernel.cycles) for segment, kernels in segments for kernel in kernels]
    return [
        {"name": name, "count": count, "recomputes": cycles.recomputes, **phases_document(cycles)}
        for name, count, cycles in found
    ]


def _row_document(row: Row) -> dict[str, Any]:
    found = row.estimate
    if found is None:
        return {"num_csx": row.label, "fits": False, "why": row.why}
    low_s, high_s = found.band.of_time(found.step_s) if found.band.is_known else (None, None)
    return {
        "fits": True,
        "kind": "modelled",
        "model": found.artifact.graph.name,
        "system": found.artifact.system.name,
        "num_csx": found.num_csx,
        "batch_size": found.batch_size,
        "samples_per_csx": found.samples_per_csx,
        "micro_batch_size": found.artifact.micro_batch_size,
        "mode": found.artifact.mode,
        "zero_weights": found.zero_weights,
        "step_s": found.step_s,
        "samples_per_s": found.samples_per_s,
        "tokens_per_s": found.tokens_per_s,
        "speedup": row.speedup,
        "efficiency": row.efficiency,
        "flops": found.flops,
        "flops_per_s": found.flops_per_s,
        "peak_flops_per_s": found.peak_flops,
        "share_of_peak": found.share_of_peak,
        "bound_by": found.bound,
        "swarmx_stages": found.stages,
        "memoryx_bytes": found.artifact.memoryx.total_bytes,
        "memoryx_unit_bytes": found.memoryx_unit_bytes,
        "power_w": found.power_w,
        "joules_per_token": found.joules_per_token,
        "days": found.days,
        "step_low_s": low_s,
        "step_high_s": high_s,
        "band": band_document(found),
    }


def band_document(found: Estimate) -> dict[str, Any] | None:
    """Return the range of 80 % of results like an estimate, ready for JSON; None where there are none."""
    band = found.band
    if not band.is_known:
        return None
    return interval_document(
        band,
        step_s=band.of_time(found.step_s),
        samples_per_s=band.of_rate(found.samples_per_s),
        tokens_per_s=band.of_rate(found.tokens_per_s),
        days=None if found.days is None else band.of_time(found.days),
    )


def interval_document(band: Band, **ranges: tuple[float, float] | None) -> dict[str, Any]:
    """Return an 80 % interval, ready for JSON: its factors, these ranges, and the results that it comes from."""
    return {
        "share": BAND_SHARE,
        "low": band.low,
        "high": band.high,
        **ranges,
        "results": band.count,
        "of": band.of,
    }


def write_csv(path: Path, rows: Sequence[Row], sparse: Sequence[Row], sparsity: float | None) -> None:
    """Write all rows as comma-separated values under a line of names, whole or not at all.

    Units are in the names. All is modelled.

    Args:
        path: of the file
        rows: over systems
        sparse: over shares of zeros
        sparsity: of the rows over systems; None for the sparsity of the file

    Raises:
        EstimateError: it cannot be written
    """
    from cstool.foundation.atomic_file import write_replacing

    out = io.StringIO()
    writer = csv.DictWriter(out, _CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_row_document(row) | {"sparsity": "" if sparsity is None else sparsity})
    for row in sparse:
        document = _row_document(row) | {"sparsity": row.label}
        if row.estimate is None:
            document["num_csx"] = ""
        writer.writerow(document)
    try:
        write_replacing(path, out.getvalue())
    except OSError as error:
        raise EstimateError(f"{path}: cannot be written: {error.strerror}") from error


def joules_text(value: float) -> str:
    """Energy in a unit that fits."""
    rounded = float(f"{value:.3g}")
    for unit, size in (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3)):
        if rounded >= size:
            return f"{rounded / size:,.10g} {unit}"
    return f"{rounded * 1e6:.10g} uJ"


def _days(days: float) -> str:
    if days >= 730:
        years = days / 365.25
        return f"{years:,.0f} years" if years >= 100 else f"{years:.3g} years"
    if days < 1:
        return f"{24 * days:.3g} hours"
    return "1 day" if f"{days:.3g}" == "1" else f"{days:,.3g} days"
