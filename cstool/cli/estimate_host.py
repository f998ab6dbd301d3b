"""`cstool estimate --system host`: what this machine can do, measured, and a training step predicted from that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.cli.compile_report import seconds_text
from cstool.cli.render import print_facts, print_json, print_table
from cstool.errors import EstimateError

if TYPE_CHECKING:
    from cstool.params import Params
    from cstool.perf.host import HostRates, HostSetup, HostStep


def estimate_host(params: Params | None, *, calibrates: bool, tokens: int | None, as_json: bool) -> None:
    """Measure this host if that was not done, or is asked for; predict a step of a model if one is given.

    Raises:
        EstimateError: the rates cannot be kept, or the file has no batch
    """
    from cstool.run.report.host_rates import load_rates, rates_file

    rates = None if calibrates else load_rates()
    measured = rates is None
    if rates is None:
        rates = _calibrate(as_json)
    document: dict[str, Any] = {"rates": {"file": str(rates_file()), "measured_now": measured, **asdict(rates)}}
    if params is not None:
        document["predicted"] = _predict(params, rates, tokens, as_json)
    elif not as_json:
        _print_rates(rates, rates_file())
    if as_json:
        print_json(document)


def _calibrate(as_json: bool) -> HostRates:
    import sys

    from cstool.cli.screen import screen_on
    from cstool.estimation.calibrate import calibrate
    from cstool.run.report.host_rates import rates_file, save_rates

    folder = rates_file().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EstimateError(f"{folder}: must be a folder that can be written, got: {error.strerror}") from error
    if not as_json:
        print("Measuring what this host can do: half a minute, best while nothing else runs.", flush=True)
    task = "Measuring"
    with screen_on(sys.stderr) as screen:

        def show(what: str, done: int, total: int) -> None:
            if done == 0:
                screen.progress.start(task, total)
            screen.progress.advance(task, done, what)

        rates = calibrate(folder, show)
    save_rates(rates)
    return rates


def _predict(params: Params, rates: HostRates, tokens: int | None, as_json: bool) -> dict[str, Any]:
    from cstool.estimation.point import DAY_S
    from cstool.estimation.request import loader_of
    from cstool.models import build_graph, declared_sequence_length
    from cstool.perf.host import predict_step
    from cstool.run.report.host_prediction import planned_setup

    loader = loader_of(params)
    graph = build_graph(params.model, declared_sequence_length(params))
    setup = planned_setup(params, graph, loader.batch_size)
    step = predict_step(graph, rates, setup)
    per_sample = graph.sequence_length or 1
    tokens_per_s = loader.batch_size * per_sample / step.step_s
    days = None if tokens is None else tokens / tokens_per_s / DAY_S
    if not as_json:
        print(f"{graph.name}: {graph.parameter_count:,} parameters, batches of {loader.batch_size:,} samples")
        print(f"This host ({rates.cpu}, {rates.cores} cores). Predicted from what was measured on it; nothing ran.\n")
        print_facts(dict(_facts(setup, step, tokens_per_s, days)))
    return {
        "step_s": step.step_s,
        "forward_s": step.forward_s,
        "again_s": step.again_s,
        "backward_s": step.backward_s,
        "rest_s": step.rest_s,
        "tokens_per_s": tokens_per_s,
        "days": days,
        "setup": asdict(setup) | {"recomputed": sorted(setup.recomputed)},
    }


def _facts(setup: HostSetup, step: HostStep, tokens_per_s: float, days: float | None) -> Iterator[tuple[str, str]]:
    yield "step", f"{seconds_text(step.step_s)}, {tokens_per_s:,.4g} tokens/s"
    yield "forward", seconds_text(step.forward_s)
    if step.again_s:
        yield "again", f"{seconds_text(step.again_s)}: layers are computed again"
    yield "backward", seconds_text(step.backward_s)
    yield "the rest", f"{seconds_text(step.rest_s) if step.rest_s else 'nothing'}: updates, waiting, the loop itself"
    yield "grains", f"{setup.grains:,} of {setup.grain_samples} samples, {setup.lanes} lanes"
    yield "MemoryX", "in a file" if setup.memoryx_in_file else "in memory"
    if days is not None:
        yield "training", f"{days:,.3g} days"


def _print_rates(rates: HostRates, path: Path) -> None:
    print(f"This host ({rates.cpu}, {rates.cores} cores), as it was measured; kept in {path}\n")
    read, write = rates.read_bytes_per_s / 1e9, rates.write_bytes_per_s / 1e9
    adam, momentum = 1e9 * rates.update_s[2], 1e9 * rates.update_s[1]
    print_facts(
        {
            "page cache": f"{rates.cached_bytes_per_s / 1e9:.2f} GB/s",
            "disk": f"reads {read:.2f} GB/s, writes {write:.2f} GB/s, synced",
            "update": f"{adam:.2f} ns per weight by Adam, {momentum:.2f} by SGD with momentum",
            "a step": f"{1e6 * rates.step_s:.0f} us, whatever is in it; with several lanes {1e6 * rates.stage_s:.0f} us"
            f" for an op more, and {rates.uneven:.1%} of the time",
        }
    )
    print("\nwhat a kernel takes on one grain: so much per call, and so much more per work\n")
    rows = [
        (
            name,
            f"{1e6 * cost.call_s:.1f} us",
            f"{1e6 * cost.shared_s:.1f} us" if cost.shared_s else "-",
            f"{1e-9 / cost.flop_s:.0f} GFLOP/s" if cost.flop_s else "-",
            f"{1e9 * cost.vector_s:.3f} ns" if cost.vector_s else "-",
            f"{1e9 * cost.weight_s:.3f} ns" if cost.weight_s else "-",
            f"{1e9 * cost.activation_s:.3f} ns" if cost.activation_s else "-",
        )
        for name, cost in sorted(rates.costs.items())
    ]
    columns = ("kernel, pass", "call", "with lanes", "products", "element", "byte of weights", "of activations")
    print_table(columns, rows, right=columns[1:])
