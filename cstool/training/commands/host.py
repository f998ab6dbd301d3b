"""`cstool estimate --system host`: measured rates of this machine, and a training step predicted from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.terminal.render import print_facts, print_json, print_table
from cstool.foundation.terminal.screen import screen_on
from cstool.foundation.words import bytes_text, digits_text, time_text

if TYPE_CHECKING:
    from cstool.training.host.step import HostRates
    from cstool.training.verbs.host import HostPrediction, RanksPrediction


def estimate_host(
    params: Path | None,
    overrides: Sequence[str],
    *,
    calibrates: bool,
    tokens: str | None,
    ranks: int | None,
    link: str | None,
    as_json: bool,
) -> None:
    """Measure this host if that was not done, or is asked for; predict a step of a model if one is given.

    Raises:
        EstimateError: the rates cannot be kept, the file has no batch, or fewer systems or grains than ranks
        ClusterError: the systems do not divide the batch
        ParamsError: the file breaks rules
    """
    from cstool.training.verbs.host import estimate_on_host

    def begin() -> None:
        if not as_json:
            print("Measuring what this host can do: half a minute, best while nothing else runs.", flush=True)

    with screen_on(sys.stderr) as screen:
        found = estimate_on_host(
            params,
            overrides,
            tokens=tokens,
            ranks=ranks,
            link=link,
            calibrates=calibrates,
            begin=begin,
            progress=screen.progress,
        )
    rates, predicted = found.rates, found.predicted
    if as_json:
        kept = {"file": str(found.file), "measured_now": found.measured_now}
        steps = {}
        if predicted is not None:
            rest = {"rest_s": predicted.step.rest_s, "tokens_per_s": predicted.tokens_per_s, "days": predicted.days}
            setup = asdict(predicted.setup) | {"recomputed": sorted(predicted.setup.recomputed)}
            steps = {"predicted": {**asdict(predicted.step), **rest, "setup": setup}}
            if predicted.ranks is not None:
                steps["predicted"]["ranks"] = _ranks_document(predicted.ranks)
        print_json({"rates": {**kept, **asdict(rates)}, **steps})
    elif predicted is None:
        _print_rates(rates, found.file)
    else:
        batches = f"batches of {predicted.batch_size:,} samples"
        print(f"{predicted.model}: {predicted.parameters:,} parameters, {batches}")
        print(f"This host ({rates.cpu}, {rates.cores} cores). Predicted from what was measured on it; nothing ran.\n")
        print_facts(dict(_facts(predicted)))


def _facts(found: HostPrediction) -> Iterator[tuple[str, str]]:
    setup, step = found.setup, found.step
    yield "step", f"{time_text(step.step_s)}, {found.tokens_per_s:,.4g} tokens/s"
    yield "forward", time_text(step.forward_s)
    if step.again_s:
        yield "recompute", f"{time_text(step.again_s)}: activations once more, before backward"
    yield "backward", time_text(step.backward_s)
    yield ("the rest", f"{time_text(step.rest_s) if step.rest_s else 'nothing'}: updates, waiting, the loop itself")
    if found.ranks is None:
        yield "grains", f"{setup.grains:,} of {setup.grain_samples} samples, {setup.lanes} lanes"
    else:
        yield from _rank_facts(found.ranks)
    nodes = 1 if found.ranks is None else found.ranks.setup.traffic.nodes
    spread = "" if nodes == 1 else f", shared out among {nodes} ranks"
    yield "MemoryX", f"in {'a file' if setup.memoryx_in_file else 'memory'}{spread}"
    if found.days is not None:
        yield "training", f"{found.days:,.3g} days"


def _rank_facts(found: RanksPrediction) -> Iterator[tuple[str, str]]:
    setup, step, link = found.setup, found.step, found.setup.link
    where = "all on this host" if found.on_one_host else "each on a host like this one"
    yield "ranks", f"{len(setup.setups)}, {where}, with {found.num_csx} CSX"
    grains = _listed([str(own.grains) for own in setup.setups])
    lanes = _listed([str(own.lanes) for own in setup.setups])
    yield "grains", f"of {setup.setups[0].grain_samples} samples, by rank: {grains}; lanes: {lanes}"
    traffic, everyone = setup.traffic, range(len(setup.setups))
    weights = [(len(everyone) - 1) * (traffic.forward_bytes[rank] + traffic.backward_bytes[rank]) for rank in everyone]
    sums = [sum(traffic.gradient_bytes[rank]) for rank in everyone]
    yield "weights", f"sent in a step, by rank: {_listed(list(map(bytes_text, weights)))}"
    yield "gradients", f"sent in a step at most, by rank: {_listed(list(map(bytes_text, sums)))}"
    forward, back = map(time_text, step.wires_s)
    yield "wire", f"{time_text(sum(step.wires_s))} of the busiest link: forward {forward}, on the way back {back}"
    rate = f"{digits_text(link.bytes_per_s / 1e9)} GB/s"
    if found.on_one_host:
        yield "link", f"{rate} both ways together: copies in memory, as measured on this host"
    else:
        yield "link", f"{rate} each way, {time_text(link.latency_s)} of latency, as --link says"
    yield "SwarmX", f"{step.swarmx_s / step.step_s:.1%} of the step waits for it"


def _listed(values: Sequence[str]) -> str:
    """Values by rank; one for all where they are the same."""
    if len(values) > 1 and len(set(values)) == 1:
        return f"{values[0]} each"
    return ", ".join(values)


def _ranks_document(found: RanksPrediction) -> dict[str, Any]:
    """The prediction for ranks, as --json has it."""
    setup, step = found.setup, found.step
    return {
        "on_one_host": found.on_one_host,
        "num_csx": found.num_csx,
        "grains": [own.grains for own in setup.setups],
        "lanes": [own.lanes for own in setup.setups],
        "compute_s": [own.forward_s + own.again_s + own.backward_s for own in step.ranks],
        "traffic": {**asdict(setup.traffic), "sent_bytes": setup.traffic.sent_bytes},
        "link": asdict(setup.link),
        "message_s": setup.message_s,
        "wire_s": {"forward": step.wires_s[0], "backward": step.wires_s[1]},
        "swarmx_s": step.swarmx_s,
        "swarmx_share": step.swarmx_s / step.step_s,
    }


def _print_rates(rates: HostRates, path: Path) -> None:
    print(f"This host ({rates.cpu}, {rates.cores} cores), as it was measured; kept in {path}\n")
    read, write = rates.read_bytes_per_s / 1e9, rates.write_bytes_per_s / 1e9
    updates = ", ".join(f"{1e9 * seconds:.2f} by {name}" for name, seconds in rates.update_s.items())
    print_facts(
        {
            "page cache": f"{rates.cached_bytes_per_s / 1e9:.2f} GB/s",
            "disk": f"reads {read:.2f} GB/s, writes {write:.2f} GB/s, synced",
            "update": f"ns per weight: {updates}",
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
