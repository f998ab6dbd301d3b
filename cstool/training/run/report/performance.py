"""`performance.json`: speed of a run, under the vendor's keys, and use of time and memory, under ours."""

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cstool.foundation.atomic_file import replace_link, write_replacing
from cstool.model.graphs.statistics import count_statistics
from cstool.training.host.rates import load_rates
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.run.result import RunResult
from cstool.training.run.session import Session

log = logging.getLogger("cstool")
NAME = "performance.json"


def performance(session: Session, result: RunResult) -> dict[str, Any]:
    """Return the document of a run that has ended.

    The vendor's keys are of training, or of the last evaluation where there was none. `flops_utilization` is there
    only if this host was calibrated; `host` names the peak of which it is a share. `modelled` is of the wafer,
    nothing of it was measured.
    """
    samples, seconds = result.samples, result.seconds
    if not result.losses and result.evaluations:
        samples, seconds = result.evaluations[-1]["samples"], result.evaluations[-1]["seconds"]
    global_rate = samples / max(seconds, 1e-9)
    found: dict[str, Any] = {
        "total_samples": samples,
        "total_time": seconds,
        "rate": result.last_rate or global_rate,
        "global_rate": global_rate,
        "samples_per_sec": global_rate,
    }
    host: dict[str, Any] = {
        "wall_s": result.wall_s,
        "time_s": result.time_s,
        "steps": len(result.losses),
        "step_s": result.step_s,
        "median_step_s": result.median_step_s,
        "tokens_per_s": result.tokens_per_s,
        "peak_resident_bytes": result.peak_resident_bytes,
        "allocated_bytes": result.memory_bytes,
        "lanes": result.lanes,
    }
    rates = load_rates()
    # Of products of linear ops, on so many cores.
    flop_s = 0.0 if rates is None else rates.costs["linear forward"].flop_s
    if (
        rates is not None
        and flop_s
        and session.appliance.precision == FLOAT32
        and not session.appliance.memoryx.arrays.sparse
    ):
        peak = result.lanes / flop_s
        flops = count_statistics(session.graph).sample_flops
        achieved = global_rate * (flops.total if result.losses else flops.forward)
        found["flops_utilization"] = achieved / peak
        host |= {
            "flops_per_s": achieved,
            "calibrated_flops_per_s": peak,
            "flops_utilization_of": f"products of linear ops on {result.lanes} of {rates.cores} cores of {rates.cpu}, "
            "as `cstool estimate --system host` measured them",
        }
    return {**found, "host": host, "modelled": None if result.modelled is None else asdict(result.modelled)}


def write_performance(session: Session, result: RunResult, folder: Path) -> None:
    """Write the document of a run that has ended, and let model_dir point to it, or warn that it cannot be written."""
    path = folder / NAME
    try:
        write_replacing(path, json.dumps(performance(session, result), indent=2) + "\n")
    except OSError as error:
        log.warning(f"{path}: cannot be written, got: {error.strerror}")
        return
    replace_link(session.params.model_dir / NAME, Path(os.path.relpath(path, session.params.model_dir)))
