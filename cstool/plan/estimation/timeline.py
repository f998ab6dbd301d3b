"""A modelled step as a timeline: the work of every resource over time, for viewers of Chrome's trace format."""

import math
from dataclasses import replace
from typing import Any

from cstool.foundation.chrome_trace import Trace
from cstool.model.ir import Artifact
from cstool.plan.estimation.point import Estimate
from cstool.plan.timing import resources as on
from cstool.plan.timing.step_simulation import StepSimulation, simulate
from cstool.plan.timing.wafer import schedule_of

MOST_TASKS = 12_000
"""tasks of a step in a trace, at most; of more, the first micro-batches are drawn"""
MOST_SAMPLES = 8
"""samples of a pipelined step that are drawn, at most"""
_LANES = {
    on.WORKERS: ("input workers", "batches"),
    on.SERVERS: ("activation servers", "batches"),
    on.COORDINATOR: ("coordinator", "steps"),
    on.NORM: ("coordinator", "norm of all gradients"),
    on.MEMORY: ("MemoryX", "memory"),
    on.PROCESSORS: ("MemoryX", "processors"),
    on.INGRESS: ("CSX", "ingress"),
    on.BROADCAST: ("SwarmX", "broadcast"),
    on.REDUCE: ("SwarmX", "reduce"),
    on.COMPUTE: ("CSX", "compute"),
    on.EGRESS: ("CSX", "egress"),
}


def draw_timeline(found: Estimate) -> Trace:
    """The timeline of one step in the steady state."""
    artifact = found.artifact
    title = f"{artifact.graph.name} on {found.num_csx:,} x {artifact.system.name}"
    if artifact.pipelined is not None:
        return _pipelined(found, f"{title}, pipelined")
    return _streamed(found, f"{title}, weight streaming")


def _streamed(found: Estimate, title: str) -> Trace:
    artifact = found.artifact
    plan = artifact.streaming
    assert plan is not None
    schedule = schedule_of(artifact, found.update_ops)
    # The approximate number of tasks of a micro-batch.
    tasks = sum(s.count * len(s.ops) * (4 * (2 + s.recomputes) + 5) for s in schedule.sections)
    drawn = min(plan.micro_batches, max(1, MOST_TASKS // tasks))
    steps = simulate(replace(schedule, micro_batches=drawn), steps=2)
    if drawn < plan.micro_batches:
        title += f", {drawn} of {plan.micro_batches:,} micro-batches"
    trace = Trace(title, "modelled")
    name = "CSX"
    if found.num_csx > 1:
        name = (
            f"the slowest CSX of {found.num_csx:,}"
            if schedule.cluster.straggle
            else f"CSX 1 of {found.num_csx:,}, all alike"
        )
    _add_tasks(trace, steps, found, name)
    _add_counters(trace, steps, artifact, name)
    return trace


def _add_tasks(trace: Trace, steps: StepSimulation, found: Estimate, system: str) -> None:
    """Add the second step, and the tasks of the first one that run into it, one resource after the other."""
    swarmx = found.artifact.system.swarmx
    hop_s = 0.0 if swarmx is None else swarmx.hop_s
    stages = [f"stage {number + 1}" for number in range(found.stages)] or ["link"]
    tasks: dict[str, list[int]] = {resource: [] for resource in on.ALL}
    for task, resource in enumerate(steps.simulation.resources):
        tasks[resource].append(task)
    for resource in on.ALL:
        process, lane = _LANES[resource]
        # The stages are in step, a hop after each other; on the way back, the last one comes first.
        lanes = [f"{lane}, {stage}" for stage in stages] if process == "SwarmX" else [lane]
        for number, name in enumerate(lanes):
            shift_s = hop_s * (number if resource == on.BROADCAST else len(lanes) - 1 - number)
            for task in tasks[resource]:
                _add_task(trace, steps, task, (system if process == "CSX" else process, name), shift_s)


def _add_task(trace: Trace, steps: StepSimulation, task: int, place: tuple[str, str], shift_s: float) -> None:
    zero, last = (steps.timeline.ends[task] for task in steps.last)
    start, end = (moment - zero + shift_s for moment in steps.timeline.span(task))
    # Tasks that begin after the step belong to the next one: its updates, where they wait for a norm.
    if end > max(start, 0.0) and start < last - zero + shift_s:
        moved: dict[str, Any] = {"bytes": steps.moved_bytes[task]} if task in steps.moved_bytes else {}
        trace.span(*place, steps.simulation.names[task], max(start, 0.0), end, **moved)


def _add_counters(trace: Trace, steps: StepSimulation, artifact: Artifact, system: str) -> None:
    """Add the load of the links off the wafer, and the SRAM of the fullest PE while a kernel runs."""
    simulation, timeline = steps.simulation, steps.timeline
    zero = timeline.ends[steps.last[0]]
    sram = {
        segment.name_of(kernel.name, number): streamed.sram_bytes
        for segment, kernel, streamed in artifact.streamed()
        for number in range(segment.count)
    }
    rates: dict[str, list[tuple[float, float]]] = {on.INGRESS: [], on.EGRESS: []}
    for task, resource in enumerate(simulation.resources):
        start, end = (moment - zero for moment in timeline.span(task))
        if end <= max(start, 0.0):
            continue
        if resource in rates and simulation.durations[task]:
            rates[resource] += [(max(start, 0.0), steps.moved_bytes[task] / (end - start)), (end, 0.0)]
        elif resource == on.COMPUTE:
            kernel = simulation.names[task].rpartition(" ")[0]
            trace.counter(system, "SRAM of the fullest PE [bytes]", max(start, 0.0), bytes=float(sram[kernel]))
    for resource, points in rates.items():
        for (moment, rate), following in zip(points, [*points[1:], (math.inf, 0.0)], strict=True):
            if rate or following[0] > moment:
                trace.counter(system, f"{resource} [GB/s]", moment, rate=rate / 1e9)


def _pipelined(found: Estimate, title: str) -> Trace:
    """Return the first samples of a replica: in every beat, a stage runs one forward, and one backward.

    Sample j is forward in stage s of N in beat j + s, and backward, if at all, in beat j + 2 N - 2 - s. Then
    replicas add up their gradients and update, and several systems do so over SwarmX.
    """
    artifact = found.artifact
    plan = artifact.pipelined
    assert plan is not None
    clock_hz, stages = artifact.system.clock_hz, plan.stages
    samples = -(-found.samples_per_csx // (plan.replicas[0] * plan.replicas[1]))
    drawn = min(samples, MOST_SAMPLES)
    if drawn < samples:
        title += f", {drawn} of {samples:,} samples of a replica"
    trace = Trace(title, "modelled")
    beat_s = stages[plan.bottleneck].cycles.total / clock_hz
    for number, stage in enumerate(stages):
        forward = stage.cycles.forward.cycles
        forward_s, backward_s = forward / clock_hz, (stage.cycles.total - forward) / clock_hz
        for sample in range(drawn):
            there = (sample + number) * beat_s
            back = (sample + 2 * len(stages) - 2 - number) * beat_s + forward_s
            for name, start, seconds in (("forward", there, forward_s), ("backward", back, backward_s)):
                if seconds:
                    place = ("CSX, one replica", stage.name, f"sample {sample} {name}")
                    trace.span(*place, start, start + seconds, pes=stage.region.pes)
    end = (drawn + artifact.filling_beats) * beat_s
    spent = found.step.spent_s
    if waiting_s := spent.get(on.STRAGGLERS, 0.0):
        trace.span("CSX, one replica", "waiting", on.STRAGGLERS, end, end + waiting_s)
        end += waiting_s
    if update_s := spent.get(on.UPDATING, 0.0):
        trace.span("CSX, one replica", "update", "sums over replicas, update", end, end + update_s)
        end += update_s
    if exchange_s := spent.get(on.EGRESS, 0.0) + spent.get(on.LATENCY, 0.0):
        trace.span("SwarmX", "gradients of all systems", "reduce, broadcast", end, end + exchange_s)
    return trace
