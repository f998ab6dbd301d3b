"""The report of `cstool compile` on an artifact: facts and tables for people, one document for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cstool.foundation.terminal.render import print_facts, print_line, print_table
from cstool.foundation.words import bytes_text, micro_batches_text, time_text
from cstool.model.short_names import group_name, short_name

if TYPE_CHECKING:
    from cstool.model.ir import Artifact, KernelCycles, PipelinedPlan, Stage, StreamedKernel, StreamingPlan
    from cstool.plan.compiler.difference import Change
    from cstool.plan.verbs.compiling import Compiled

SLOWEST = 5
"""stages that are named"""
MOST_CHANGES = 40
"""differences that are printed"""
_PHASES = ("forward", "input grad", "weight grad", "again")
_RIGHT = ("count", "PEs", *_PHASES, "cycles", "bytes", "SRAM", "in flight", "weights")


def print_summary(artifact: Artifact, systems: str, said: str, facts: dict[str, str], notes: Sequence[str]) -> None:
    """Print the mapping onto `systems`, the status of the numbers (`said`), facts, notes, and reasons."""
    graph, system = artifact.graph, artifact.system
    tokens = f" of {artifact.tokens:,} tokens" if artifact.tokens > 1 else ""
    batches = f"batches of {artifact.batch_size:,} samples{tokens}"
    print_line(f"{graph.name}: {graph.parameter_count:,} parameters, {batches}")
    machine = f"{systems} x {system.name} ({system.wafer}, {system.fabric.width} x {system.fabric.height} PEs)"
    print_line(f"{machine}. {said}")
    print()
    print_facts(facts)
    for note in notes:
        print_line(f"note: {note}")
    print("\nwhy")
    for reason in artifact.reasons:
        print_line(f"  {reason}")


def print_artifact(compiled: Compiled) -> None:
    """Print the report on an artifact."""
    artifact, system = compiled.artifact, compiled.artifact.system
    said = "Times and memory are modelled; nothing is measured."
    print_summary(artifact, str(artifact.num_csx), said, dict(_facts(compiled)), compiled.notes)
    others = [a for a in artifact.alternatives if a.step_cycles is not None and a.step_cycles != artifact.step_cycles]
    if others:
        print("\ninstead")
    for other in others:
        assert other.step_cycles is not None
        ratio = other.step_cycles / artifact.step_cycles
        than = f"{ratio:.2f}x the time" if ratio >= 1 else f"{1 / ratio:.2f}x as fast"
        print_line(f"  {other.mode}, {time_text(other.step_cycles / system.clock_hz)} a step, {than}: {other.why}")
    name, account = artifact.fullest
    print()
    print_line(f"SRAM of the fullest PE, {short_name(name)}")
    rows = [(short_name(entry.name), entry.arithmetic, f"{entry.bytes:,}") for entry in account]
    free = system.pe.sram_bytes - artifact.sram_used_bytes
    print_table(("what", "arithmetic", "bytes"), [*rows, ("free", "", f"{free:,}")], right=("bytes",))
    print()
    if artifact.pipelined is not None:
        _print_stages(artifact.pipelined)
    if artifact.streaming is not None:
        _print_kernels(artifact, artifact.streaming)


def artifact_document(compiled: Compiled) -> dict[str, Any]:
    """Return the facts of the report, ready for JSON. All times are modelled."""
    artifact = compiled.artifact
    name, account = artifact.fullest
    plan, placed, clock_hz = artifact.streaming, artifact.pipelined, artifact.system.clock_hz
    return {
        "artifact": str(compiled.path),
        "model": artifact.graph.name,
        "parameters": artifact.graph.parameter_count,
        "system": artifact.system.name,
        "num_csx": artifact.num_csx,
        "batch_size": artifact.batch_size,
        "mode": artifact.mode,
        "reasons": list(artifact.reasons),
        "alternatives": [
            {"mode": a.mode, "why": a.why, "step_s": None if a.step_cycles is None else a.step_cycles / clock_hz}
            for a in artifact.alternatives
        ],
        "modelled": {
            "step_s": artifact.step_s,
            "samples_per_s": artifact.batch_size / artifact.step_s,
            "tokens_per_s": artifact.batch_size * artifact.tokens / artifact.step_s,
            "utilization": compiled.utilization,
        },
        "micro_batch_size": artifact.micro_batch_size,
        "recompute": asdict(artifact.recompute),
        "pes": {"usable": artifact.system.fabric.pes, "active": artifact.active_pes},
        "sram": {
            "bytes": artifact.system.pe.sram_bytes,
            "used_bytes": artifact.sram_used_bytes,
            "fullest": name,
            "account": [asdict(entry) for entry in account],
        },
        "memoryx": {**asdict(artifact.memoryx), "total_bytes": artifact.memoryx.total_bytes},
        "streamed_bytes_per_step": 0 if plan is None else plan.streamed_bytes,
        "gradient_bytes_per_step": 0 if plan is None else plan.gradient_bytes,
        "replicas": None if placed is None else placed.replicas[0] * placed.replicas[1],
        "stages": None
        if placed is None
        else [_kernel_document(stage, used_bytes=stage.used_bytes) for stage in placed.stages],
        "kernels": None if plan is None else [[_kernel_document(k) for k in kernels] for kernels in plan.kernels],
    }


def print_differences(changes: Sequence[Change]) -> None:
    """Print the differences, one line each."""
    for change in changes[:MOST_CHANGES]:
        print_line(str(change))
    if len(changes) > MOST_CHANGES:
        print(f"and {len(changes) - MOST_CHANGES:,} more; --json lists all")
    if not changes:
        print("no difference")


def _facts(compiled: Compiled) -> Iterator[tuple[str, str]]:
    artifact = compiled.artifact
    step_s, system = artifact.step_s, artifact.system
    yield "artifact", str(compiled.path)
    yield "mode", artifact.mode
    rate = f"{number_text(artifact.batch_size / step_s)} samples/s"
    if artifact.tokens > 1:
        rate += f", {number_text(artifact.batch_size * artifact.tokens / step_s)} tokens/s"
    yield "step, modelled", f"{time_text(step_s)}, {artifact.step_cycles:,} cycles; {rate}"
    yield "utilization", f"{compiled.utilization:.1%} of the peak, modelled"
    usable = system.fabric.pes
    used = f"{artifact.active_pes:,} of {usable:,} ({artifact.active_pes / usable:.1%})"
    if artifact.pipelined is not None:
        columns, rows = artifact.pipelined.replicas
        stages = len(artifact.pipelined.stages)
        copies = f"{columns} x {rows} replicas of {stages} regions" if columns * rows > 1 else f"{stages} regions"
        yield "PEs", f"{used} in {copies}"
    else:
        yield "PEs", f"{used} have tokens"
    free = system.pe.sram_bytes - artifact.sram_used_bytes
    yield "SRAM", f"{artifact.sram_used_bytes:,} of {system.pe.sram_bytes:,} bytes in the fullest PE, {free:,} free"
    if (plan := artifact.streaming) is not None:
        size = artifact.micro_batch_size
        cut = micro_batches_text(artifact.batch_size // artifact.num_csx, size)
        yield "micro-batch", f"{cut}; in the file: - ScopedTrainFlags: {{csx.performance.micro_batch_size: {size}}}"
        weights, gradients = bytes_text(plan.streamed_bytes), bytes_text(plan.gradient_bytes)
        yield "streamed", f"{weights} of weights into, {gradients} of gradients out of each system per step"
        yield "prefetch", f"{bytes_text(plan.prefetch_bytes)}: two rows of the widest weights are on their way"
    yield "recomputed", _recompute_text(artifact)
    need = artifact.memoryx
    capacity = "" if need.capacity_bytes is None else f" of {bytes_text(need.capacity_bytes)}"
    parts = f"weights {bytes_text(need.weights_bytes)}, optimizer {bytes_text(need.optimizer_bytes)}"
    yield "MemoryX", f"{bytes_text(need.total_bytes)}{capacity}: {parts}, gradients {bytes_text(need.gradient_bytes)}"


def number_text(per_s: float) -> str:
    """A number with all digits before the point from 1,000 on, with four below."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"


def _recompute_text(artifact: Artifact) -> str:
    recompute = artifact.recompute
    if not recompute.levels:
        return "nothing"
    if artifact.pipelined is not None:
        return "in every stage, from what it reads"
    return f"layers, {recompute.levels}x; inputs of {recompute.kept_blocks} layers are held"


def _print_stages(plan: PipelinedPlan) -> None:
    """Print stages, stages that differ only in the number of their layer in one line; then the slowest."""
    groups: dict[str, list[Stage]] = {}
    for stage in plan.stages:
        groups.setdefault(group_name(stage.name), []).append(stage)
    columns = ("stage", "count", "PEs", "cycles", "bound", "SRAM", "in flight", "region by")
    rows = [
        (
            name,
            str(len(stages)),
            _range(stage.region.pes for stage in stages),
            _range(stage.cycles.total for stage in stages),
            "/".join(dict.fromkeys(_bound(stage.cycles) for stage in stages)),
            _range(stage.used_bytes for stage in stages),
            _range(stage.in_flight for stage in stages),
            "/".join(dict.fromkeys("memory" if stage.is_memory_bound else "work" for stage in stages)),
        )
        for name, stages in groups.items()
    ]
    print("stages, cycles per sample")
    print_table(columns, rows, right=_RIGHT)
    slow = sorted(plan.stages, key=lambda stage: -stage.cycles.total)[:SLOWEST]
    named = ", ".join(f"{short_name(stage.name)} {stage.cycles.total:,}" for stage in slow)
    print()
    print_line(f"slowest: {named}")
    colors = {route.color for route in plan.routes}
    lanes = sum(route.lanes for route in plan.routes)
    print(f"routes: {len(plan.routes)} of {lanes} lanes in {len(colors)} colors; wire {plan.wire_pes:,} PEs")


def _print_kernels(artifact: Artifact, plan: StreamingPlan) -> None:
    """Print the kernels in the order of the stream."""
    layout = plan.layout
    groups = f"{layout.groups} groups of {layout.columns} columns" if layout.groups > 1 else f"{layout.columns} columns"
    tokens = f"{layout.tokens_per_pe} {'token' if layout.tokens_per_pe == 1 else 'tokens'} to a PE"
    if layout.parts > 1:
        tokens += f", {layout.part.tokens_per_pe} at a time in layers"
    batches = "1 micro-batch" if plan.micro_batches == 1 else f"{plan.micro_batches:,} micro-batches"
    axpys = f"{layout.rows * layout.groups:,} AXPYs to a weight and pass"
    print(f"stream, cycles per micro-batch; {batches} a step")
    print(f"{groups}, {layout.rows} rows, {tokens}; {axpys}; {len(plan.colors)} colors")
    columns = ("kernel", "count", "weights", *_PHASES, "bound", "SRAM")
    rows = []
    for segment, kernels in zip(artifact.graph.segments, plan.kernels, strict=True):
        for kernel in kernels:
            cycles = kernel.cycles
            phases = (cycles.forward.cycles, cycles.delta.cycles, cycles.gradient.cycles, cycles.recompute_cycles)
            rows.append(
                (
                    short_name(kernel.name),
                    str(segment.count),
                    f"{kernel.weight_count:,}",
                    *(f"{phase:,}" for phase in phases),
                    _bound(cycles),
                    f"{kernel.sram_bytes:,}",
                )
            )
    shown = columns if any(row[6] != "0" for row in rows) else tuple(name for name in columns if name != "again")
    print_table(
        shown, [tuple(v for c, v in zip(columns, row, strict=True) if c in shown) for row in rows], right=_RIGHT
    )


def _bound(cycles: KernelCycles) -> str:
    """Return the limit that counts in the longest phase."""
    return max((cycles.forward, cycles.delta, cycles.gradient), key=lambda phase: phase.cycles).bound


def _range(numbers: Iterator[int]) -> str:
    found = sorted(numbers)
    return f"{found[0]:,}" if found[0] == found[-1] else f"{found[0]:,} - {found[-1]:,}"


def _kernel_document(kernel: Stage | StreamedKernel, **more: int) -> dict[str, Any]:
    """Return a kernel or stage, the limits of each phase, and the resulting cycles."""
    cycles = {**phases_document(kernel.cycles), "recompute_cycles": kernel.cycles.recompute_cycles}
    return asdict(kernel) | {"cycles": cycles, **more, "cycles_total": kernel.cycles.total}


def phases_document(cycles: KernelCycles) -> dict[str, Any]:
    """Return the limits of the phases of a kernel, their cycles, and the limit that counts."""
    phases = {"forward": cycles.forward, "delta": cycles.delta, "gradient": cycles.gradient}
    return {name: asdict(phase) | {"cycles": phase.cycles, "bound": phase.bound} for name, phase in phases.items()}
