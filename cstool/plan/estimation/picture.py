"""From estimates to their picture."""

from collections.abc import Sequence

from cstool.foundation.words import counted, micro_batches_text
from cstool.model.ir import ExecutionMode
from cstool.plan.estimation.point import Estimate
from cstool.plan.estimation.sweep import Row, estimates_in
from cstool.plan.pictures.estimate import Busy, EstimatePicture
from cstool.plan.pictures.roofline import Roofline
from cstool.plan.pictures.scaling import Scaling, ScalingPoint, SparsityPoint
from cstool.plan.pictures.step import Breakdown, cycles_text, stage_rows, step_rows
from cstool.plan.timing.roofline import kernel_loads, step_load


def estimate_picture(found: Estimate, rows: Sequence[Row], sparse: Sequence[Row]) -> EstimatePicture:
    """Contents of the picture.

    Args:
        found: in full
        rows: over systems; empty for one number of them
        sparse: over shares of zeros; empty without
    """
    artifact = found.artifact
    system, name = artifact.system, artifact.graph.name
    counts = [each.num_csx for each in estimates_in(rows)] or [found.num_csx]
    span = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}"
    zeros = [row.label for row in sparse if row.estimate is not None]
    return EstimatePicture(
        title=f"{name}, {artifact.graph.parameter_count:,} parameters, on {span} x {system.name} (modelled)",
        subtitle=_subtitle(found, rows, sparse),
        roofline=_roofline(found, sparse),
        busy=_busy(found, rows, sparse),
        breakdown=_breakdown(found, sparse),
        scaling=_scaling(rows, sparse) if len(counts) > 1 else None,
        sparsities=_sparsities(sparse) if len(zeros) > 1 else (),
        sparsities_heading=f"Speedup with sparsity on {counted(found.num_csx, 'system')} (modelled)",
    )


def _subtitle(found: Estimate, rows: Sequence[Row], sparse: Sequence[Row]) -> str:
    artifact = found.artifact
    is_shared = len({each.batch_size for each in estimates_in(rows)}) < 2
    batch, each_csx = (found.batch_size, "") if is_shared else (found.samples_per_csx, " for each system")
    tokens = f" of {artifact.tokens:,} tokens" if artifact.tokens > 1 else ""
    micro_batches = micro_batches_text(found.samples_per_csx, artifact.micro_batch_size)
    mode = "pipelined" if artifact.mode is ExecutionMode.PIPELINED else f"weight streaming in {micro_batches}"
    where = f" (on {counted(found.num_csx, 'system')})" if rows else ""
    missing = ""
    for label, each in (("--num_csx", rows), ("--sparsity", sparse)):
        if left_out := [f"{row.label:,.6g}" for row in each if row.estimate is None]:
            missing += f" No estimate for {label} {', '.join(left_out)}."
    batches = f"Batches of {counted(batch, 'sample')}{tokens}{each_csx}"
    return f"{batches}; {mode}{where}. Everything is modelled; nothing is measured.{missing}"


def _one_of(count: int, sparse: Sequence[Row]) -> str:
    return ("one system" if count == 1 else f"one of {count:,} systems") + _zeros(sparse)


def _zeros(sparse: Sequence[Row]) -> str:
    return f" at sparsity {sparse[0].label:.4g}" if sparse else ""


def _roofline(found: Estimate, sparse: Sequence[Row]) -> Roofline:
    artifact = found.artifact
    system = artifact.system
    shown = "the whole step; weights stay on the wafer" if artifact.pipelined is not None else "its products by phase"
    return Roofline(
        io_bytes_per_s=system.io_bytes_per_s,
        peak_flops=system.peak_flops(artifact.operand_bits),
        efficiency=system.pe.efficiency,
        loads=(*kernel_loads(artifact), step_load(artifact)),
        heading=f"Roofline of {_one_of(found.num_csx, sparse)}: {shown} (modelled)",
    )


def _busy(found: Estimate, rows: Sequence[Row], sparse: Sequence[Row]) -> tuple[Busy, ...]:
    """Return the estimate, and the one that is farthest from it."""
    last = (estimates_in(rows) or [found])[-1]
    if last is not found and last.num_csx != found.num_csx:
        labels = counted(found.num_csx, "system"), counted(last.num_csx, "system")
    else:
        row = next((row for row in reversed(sparse) if row.estimate is not None), None)
        if row is None or row.estimate is None or row.label == sparse[0].label:
            return (Busy(counted(found.num_csx, "system"), found.step_s, found.step.busy_s),)
        last, labels = row.estimate, (f"sparsity {sparse[0].label:.4g}", f"sparsity {row.label:.4g}")
    return tuple(Busy(label, each.step_s, each.step.busy_s) for label, each in zip(labels, (found, last), strict=True))


def _breakdown(found: Estimate, sparse: Sequence[Row]) -> Breakdown:
    artifact = found.artifact
    clock_hz, system = artifact.system.clock_hz, _one_of(found.num_csx, sparse)
    if artifact.pipelined is not None:
        rows = tuple(stage_rows(artifact.pipelined))
        whole = max(row.cycles for row in rows)
        heading = (
            f"The stages of {system}, all at the same time; the slowest: {cycles_text(whole, clock_hz)} (modelled)"
        )
        return Breakdown(rows, heading, "modelled cycles of a sample [% of the slowest stage's]", whole)
    assert artifact.streaming is not None
    rows = tuple(step_rows(artifact, artifact.streaming))
    whole = sum(row.cycles for row in rows)
    heading = f"The kernels of a step on {system}, each by itself: {cycles_text(whole, clock_hz)} (modelled)"
    return Breakdown(rows, heading, "modelled cycles of all its repetitions [% of all kernels']", whole)


def _scaling(rows: Sequence[Row], sparse: Sequence[Row]) -> Scaling:
    estimates = estimates_in(rows)
    first = estimates[0]
    points = tuple(
        ScalingPoint(
            found.num_csx,
            found.tokens_per_s,
            row.efficiency,
            found.band.of_rate(found.tokens_per_s) if found.band.is_known else None,
        )
        for row in rows
        if (found := row.estimate) is not None and row.efficiency is not None
    )
    is_shared = len({each.batch_size for each in estimates}) == 1
    batch = f"a batch of {first.batch_size:,} shared out" if is_shared else f"{first.samples_per_csx:,} samples each"
    heading = f"Throughput over systems{_zeros(sparse)}, {batch} (modelled)"
    return Scaling(points, "tokens/s" if first.artifact.tokens > 1 else "samples/s", heading)


def _sparsities(rows: Sequence[Row]) -> tuple[SparsityPoint, ...]:
    found = [(row.label, row.speedup, row.estimate) for row in rows if row.estimate is not None]
    first = found[0][2]
    return tuple(
        SparsityPoint(label, speedup, first.flops / estimate.flops)
        for label, speedup, estimate in found
        if speedup is not None
    )
