"""The facts of `cstool estimate` on one estimate, in words. All of it is modelled."""

from collections.abc import Iterator, Sequence

from cstool.foundation.words import bytes_text, counted, micro_batches_text, often, time_text
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.tables import short_time_text
from cstool.plan.verbs.estimating import Estimates
from cstool.plan.verbs.results import SHARE, Artifact, Band, Estimate, MaskUpdates, is_of_adapter


def estimate_facts(estimates: Estimates) -> Iterator[tuple[str, str]]:
    """Yield the facts of the first estimate: name, and text."""
    found, artifact = estimates.estimate, estimates.estimate.artifact
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
    yield from update_facts(estimates.updates)
    yield "matmuls", f"{found.flops_per_s / 1e15:,.4g} PFLOP/s, {found.share_of_peak:.1%} of the peak"
    yield "SwarmX", _tree_text(found)
    if system.software is not None:
        yield "hosts", _hosts_text(found)
    yield "MemoryX", _memoryx_text(found)
    each = joules_text(found.joules_per_token)
    yield "power", f"{number_text(found.power_w / 1e3)} kW of the systems, {each} per token"
    if found.days is not None:
        yield "training", f"{days_text(found.days)} for {found.tokens:,} tokens"
    if artifact.streaming is not None:
        yield "smallest batch", _smallest_text(found, estimates.smallest)
    yield "efficiency", f"{system.pe.efficiency:g} of a PE's rate is taken to be sustained"
    yield from _faster_facts(estimates)


def trained_text(found: Estimate) -> str | None:
    """Return in words the number of trained weights, where not all are."""
    graph = found.artifact.graph
    if graph.trained_count == graph.parameter_count:
        return None
    share = graph.trained_count / graph.parameter_count
    adapters = sum(
        segment.count * weight.size
        for segment in graph.segments
        for weight in segment.weights
        if is_of_adapter(weight.name)
    )
    of_all = f"{graph.trained_count:,} of {graph.parameter_count:,} weights, {share:.3%}"
    kind = ", all of them of adapters" if adapters == graph.trained_count else ""
    return f"{of_all}{kind}; the others are frozen: no gradient, no update, no optimizer state"


def _range_facts(found: Estimate) -> Iterator[tuple[str, str]]:
    """Yield the range of 80 % of results like it, and which these are."""
    band = found.band
    if not band.is_known:
        yield f"{SHARE:.0%} interval", "not known: no result of a model of images was published"
        return
    low, high = band.of_rate(found.tokens_per_s)
    unit = "tokens/s" if found.artifact.tokens > 1 else "samples/s"
    parts = [f"{step_range_text(found)} a step", f"{rough_text(low)} to {rough_text(high)} {unit}"]
    if found.days is not None:
        parts.append(range_text(*(days_text(days) for days in band.of_time(found.days))))
    yield from interval_facts(band, ", ".join(parts))


def interval_facts(band: Band, ranges: str) -> Iterator[tuple[str, str]]:
    """Yield an 80 % interval in words, and the results that it comes from."""
    yield f"{SHARE:.0%} interval", ranges
    yield "by errors of", f"{counted(band.count, 'held-out result')}: {band.of}"


def rough_text(rate: float) -> str:
    """Return a rate to three digits.

    >>> rough_text(1234.5)
    '1,230'
    """
    return f"{float(f'{rate:.3g}'):,.10g}"


def step_range_text(found: Estimate) -> str:
    """Return the range of 80 % of steps like it."""
    if not found.band.is_known:
        return "not known"
    return range_text(*(short_time_text(float(f"{s:.3g}")) for s in found.band.of_time(found.step_s)))


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


def _faster_facts(estimates: Estimates) -> Iterator[tuple[str, str]]:
    """Yield a smaller batch and fewer systems that are faster, where there are any."""
    for name, other in (("faster batch", estimates.smaller_batch), ("fewer systems", estimates.fewer_systems)):
        if other is None:
            continue
        what = f"{other.batch_size:,} samples"
        if name == "fewer systems":
            what = f"{other.num_csx:,} with this batch"
        elif other.num_csx > 1:
            what += f", {other.samples_per_csx:,} to a system"
        gain = gain_of(estimates.estimate, other)
        more = f"{gain:.1%} more" if gain < 1 else f"{1 + gain:,.1f} times as many"
        yield name, f"{what}: {number_text(other.samples_per_s)} samples/s, {more}"


def gain_of(found: Estimate, other: Estimate) -> float:
    """Gain of another estimate's rate, as a share of the first one's rate."""
    return other.samples_per_s / found.samples_per_s - 1


def update_facts(updates: Sequence[MaskUpdates]) -> Iterator[tuple[str, str]]:
    """Yield the interval of mask updates and the time of such a step, a fact for each group of weights."""
    for each in updates:
        name = "mask updates" if len(updates) == 1 else f"mask updates {each.group}"
        if each.every is None:
            often = counted(each.count, "time")
        else:
            often = "every step" if each.every == 1 else f"every {each.every:,} steps"
        if each.needs_gradients:
            longer = each.mean_step_s / each.step_s - 1
            takes = f"such a step makes all gradients and takes {short_time_text(each.update_step_s)}; "
            takes += f"the mean step is {short_time_text(each.mean_step_s)}, {longer:.1%} longer"
        else:
            takes = "by weights alone, which MemoryX has: such a step takes as long"
        yield name, f"{each.algorithm}, {often}: {takes}"


def joules_text(value: float) -> str:
    """Energy in a unit that fits."""
    rounded = float(f"{value:.3g}")
    for unit, size in (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3)):
        if rounded >= size:
            return f"{rounded / size:,.10g} {unit}"
    return f"{rounded * 1e6:.10g} uJ"


def days_text(days: float) -> str:
    """Days of training, or years, or hours."""
    if days >= 730:
        years = days / 365.25
        return f"{years:,.0f} years" if years >= 100 else f"{years:.3g} years"
    if days < 1:
        return f"{24 * days:.3g} hours"
    return "1 day" if f"{days:.3g}" == "1" else f"{days:,.3g} days"
