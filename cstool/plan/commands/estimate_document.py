"""The documents and rows of `cstool estimate`, for scripts. All of it is modelled."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cstool.plan.commands.compile_report import phases_document
from cstool.plan.commands.estimate_cost import cost_document
from cstool.plan.commands.estimate_facts import gain_of
from cstool.plan.commands.estimate_gpu import gpus_document
from cstool.plan.commands.tables import write_rows
from cstool.plan.verbs.estimating import Estimates
from cstool.plan.verbs.results import SHARE, Artifact, Band, Estimate, MaskUpdates, Row, Tried

_CSV_COLUMNS = (
    *("kind", "model", "system", "num_csx", "sparsity", "batch_size", "samples_per_csx", "micro_batch_size", "mode"),
    *("step_s", "samples_per_s", "tokens_per_s", "speedup", "efficiency", "flops_per_s", "share_of_peak", "bound_by"),
    *("memoryx_bytes", "power_w", "joules_per_token", "days", "step_low_s", "step_high_s", "why"),
)


def estimate_document(estimates: Estimates) -> dict[str, Any]:
    """Return the facts ready for JSON; everything that is modelled is under that name."""
    found, artifact = estimates.estimate, estimates.estimate.artifact
    costs = [cost_document(cost) for cost in estimates.costs]
    document = {
        "model": artifact.graph.name,
        "parameters": artifact.graph.parameter_count,
        "system": artifact.system.name,
        "modelled": {
            **_row_document(estimates.first),
            "reasons": list(artifact.reasons),
            "smallest_compute_bound_samples_per_csx": estimates.smallest,
            "smaller_batch": _faster_document(found, estimates.smaller_batch),
            "fewer_systems": _faster_document(found, estimates.fewer_systems),
            "resources": {name: {"work_s": s, "busy": found.busy[name]} for name, s in found.step.busy_s.items()},
            "spent_s": found.step.spent_s,
            "software": None if artifact.system.software is None else asdict(artifact.system.software),
            "limits": found.limits,
            "longest_resource_s": found.step.longest_s,
            "serial_s": found.step.serial_s,
            "kernels": _kernels(artifact),
            "trained_parameters": artifact.graph.trained_count,
            "cost": costs[0] if costs else None,
            "costs": costs[1:],
            "recompute": [_choice_document(choice) for choice in estimates.choices],
            "mask_updates": updates_document(estimates.updates),
            "scaling": [_row_document(row) for row in estimates.scaling],
            "sparsities": [_row_document(row) | {"sparsity": row.label} for row in estimates.sparsities],
        },
    }
    return document if estimates.gpus is None else document | {"gpus": gpus_document(estimates.gpus)}


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
        "share": SHARE,
        "low": band.low,
        "high": band.high,
        **ranges,
        "results": band.count,
        "of": band.of,
    }


def _faster_document(found: Estimate, other: Estimate | None) -> dict[str, Any] | None:
    """Return a faster estimate, ready for JSON; None without one."""
    if other is None:
        return None
    rates = {"samples_per_s": other.samples_per_s, "gain": gain_of(found, other)}
    return {"num_csx": other.num_csx, "batch_size": other.batch_size, "step_s": other.step_s, **rates}


def updates_document(updates: Sequence[MaskUpdates]) -> list[dict[str, Any]]:
    """Return updates of masks ready for JSON."""
    return [
        {
            "group": each.group,
            "algorithm": each.algorithm,
            "every_steps": each.every,
            "updates": each.count,
            "of_steps": each.steps,
            "needs_all_gradients": each.needs_gradients,
            "update_step_s": each.update_step_s,
            "step_s": each.step_s,
            "mean_step_s": each.mean_step_s,
        }
        for each in updates
    ]


def _choice_document(choice: Tried[str, Estimate]) -> dict[str, Any]:
    if choice.estimate is None:
        return {"recompute": choice.label, "fits": False, "why": choice.why}
    artifact = choice.estimate.artifact
    return {
        "recompute": choice.label,
        "fits": True,
        "kind": "modelled",
        "levels": artifact.recompute.levels,
        "kept_blocks": artifact.recompute.kept_blocks,
        "micro_batch_size": artifact.micro_batch_size,
        "mode": artifact.mode,
        "step_s": choice.estimate.step_s,
        "sram_used_bytes": artifact.sram_used_bytes,
    }


def write_estimates(path: Path, estimates: Estimates) -> None:
    """Write the rows over systems, then over shares of zeros, as comma-separated values; see `write_rows`."""
    first = "" if estimates.sparsity is None else estimates.sparsity
    single = () if estimates.scaling or estimates.sparsities else (estimates.first,)
    rows = [_row_document(row) | {"sparsity": first} for row in estimates.scaling or single]
    for row in estimates.sparsities:
        document = _row_document(row) | {"sparsity": row.label}
        rows.append(document | {"num_csx": ""} if row.estimate is None else document)
    write_rows(path, _CSV_COLUMNS, rows)
