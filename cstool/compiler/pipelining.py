"""Passes: pipelined mode. Replicas, regions, routes.

How many replicas: for every number that divides a system's part of the batch, the time of a step is estimated from
areas alone; the best few are placed in earnest, and the fastest is taken. Activations made within a stage are
computed again only where nothing fits otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cstool.compiler.pipeline import Chain, Edge, estimate_bottleneck, step_cycles, update_cycles
from cstool.compiler.placement import NoPlacement, Placement, place
from cstool.compiler.program import Misfit, Program
from cstool.compiler.routing import NoColors, RoutedEdge, route
from cstool.compiler.stage import ORIENTATIONS, PipelineStage
from cstool.ir import ExecutionMode, PipelinedPlan, Recompute, Stage
from cstool.perf.pe import Pe, ceil_div

KERNEL_COLORS = (
    "inputs",
    "partial sums, even",
    "partial sums, odd",
    "deltas",
    "delta sums, even",
    "delta sums, odd",
    "keys and values, even",
    "keys and values, odd",
    "sums over replicas, even",
    "sums over replicas, odd",
)
"""what moves within regions, each on a color of its own; sums and rings change color from PE to PE"""
PLACED = 3
"""numbers of replicas that are placed in earnest"""


@dataclass(frozen=True)
class _Candidate:
    """Replicas, and what a step would take with them."""

    estimate_cycles: int
    columns: int
    rows: int
    is_recomputed: bool


@dataclass(frozen=True)
class PlaceStages:
    """Choose replicas and give every stage its region."""

    name: str = "place_stages"

    def __call__(self, program: Program) -> Program:
        """Return the program with regions, or with what does not fit."""
        if not program.request.considers(ExecutionMode.PIPELINED):
            return program
        chain = Chain(program)
        found = _candidates(program, chain)
        if isinstance(found, Misfit):
            return _without_plan(program, found)
        best: tuple[int, PipelinedPlan, bool] | None = None
        for candidate in found[:PLACED]:
            planned = _place(program, chain, candidate)
            if planned is not None and (best is None or planned[0] < best[0]):
                best = (*planned, candidate.is_recomputed)
        if best is None:
            where = f"regions of {program.request.system.name}, side by side on its fabric"
            return _without_plan(program, Misfit(f"{chain.length:,} stages", f"must fit {where}", "no such placement"))
        _, plan, is_recomputed = best
        return replace(
            program,
            pipelined=plan,
            reasons=(*program.reasons, *_reasons(plan, found, is_recomputed)),
            recompute=MappingProxyType({**program.recompute, ExecutionMode.PIPELINED: Recompute(int(is_recomputed))}),
            micro_batches=MappingProxyType({**program.micro_batches, ExecutionMode.PIPELINED: 1}),
        )


@dataclass(frozen=True)
class RouteEdges:
    """Connect the regions: routes, and their colors."""

    name: str = "route_edges"

    def __call__(self, program: Program) -> Program:
        """Return the program with routes, or without a plan if the colors do not suffice."""
        plan = program.pipelined
        if plan is None:
            return program
        links = program.request.system.links
        chain = Chain(program)
        bottleneck = plan.stages[plan.bottleneck].cycles.total
        samples = program.request.samples_per_csx // (plan.replicas[0] * plan.replicas[1])
        edges = [
            RoutedEdge(
                name=edge.name,
                source=edge.source,
                target=edge.target,
                kind=edge.kind,
                wavelets=_wavelets(edge, links.wavelet_bytes, samples),
            )
            for edge in chain.edges()
        ]
        colors = range(len(KERNEL_COLORS), links.colors - links.io_colors)
        regions = [stage.region for stage in plan.stages]
        try:
            routes = route(regions, edges, bottleneck, colors)
        except NoColors as error:
            misfit = Misfit(
                f"{len(edges)} routes", f"must have colors of their own where they meet, of {len(colors)}", str(error)
            )
            return _without_plan(replace(program, pipelined=None), misfit)
        return replace(program, pipelined=replace(plan, routes=routes))


def _reasons(plan: PipelinedPlan, found: Sequence[_Candidate], is_recomputed: bool) -> Iterator[str]:
    """Say why so many replicas, and what is in flight."""
    count = plan.replicas[0] * plan.replicas[1]
    estimates = {candidate.columns * candidate.rows: candidate.estimate_cycles for candidate in found}
    if count > 1 and 1 in estimates:
        ratio = estimates[1] / estimates[count]
        yield f"{count} replicas side by side: by estimate, a step takes {ratio:.1f}x the time with one"
    elif count == 1:
        more = min((other for other in estimates if other > 1), default=None)
        yield "one replica: " + ("no second one fits" if more is None else "by estimate, a step takes longer with more")
    kept = "of these it keeps what it reads, and makes the rest again" if is_recomputed else "nothing is made again"
    first, last = plan.stages[0].in_flight, plan.stages[-1].in_flight
    yield f"between forward and backward, the first stage holds up to {first} samples, the last {last}; {kept}"


def _without_plan(program: Program, misfit: Misfit) -> Program:
    return replace(program, misfits=MappingProxyType({**program.misfits, ExecutionMode.PIPELINED: misfit}))


def _wavelets(edge: Edge, wavelet_bytes: int, samples: int) -> int:
    """Return how many wavelets an edge carries per sample; the sum of a tied weight moves once per step."""
    times = samples if edge.kind == "tie" else 1
    return int(ceil_div(edge.elements * edge.element_bytes, wavelet_bytes * times))


def pipelined_step_cycles(program: Program) -> int:
    """Return the modelled cycles of a step, pipelined."""
    plan = program.pipelined
    assert plan is not None
    return _step(program, plan.stages[plan.bottleneck].cycles.total, len(plan.stages), plan.replicas)


def _step(program: Program, bottleneck: int, stages: int, replicas: tuple[int, int]) -> int:
    request, fabric = program.request, program.request.system.fabric
    count = replicas[0] * replicas[1]
    size = fabric.width // replicas[0], fabric.height // replicas[1]
    pe = Pe(request.system, request.operand_bits)
    update = update_cycles(pe, program.graph.parameter_count, size[0] * size[1], replicas, size)
    return step_cycles(program, stages, bottleneck, request.samples_per_csx // count, count, update)


def _candidates(program: Program, chain: Chain) -> list[_Candidate] | Misfit:
    """Return the numbers of replicas that seem to fit, best first; why there are none, if not even one does."""
    request = program.request
    system, fabric = request.system, request.system.fabric
    room = fabric.pes * system.pe.free_bytes
    sram = f"must fit the SRAM of {system.name} that code and stack leave, {room:,} bytes"
    if chain.weight_bytes > room:
        what = f"{program.graph.parameter_count:,} weights with master copies, optimizer state and gradients"
        return Misfit(what, sram, f"{chain.weight_bytes:,} bytes")
    if chain.length > fabric.pes:
        return Misfit(f"{chain.length:,} stages", f"must have a PE each, {system.name} has {fabric.pes:,}", "too many")
    least = min(sum(stage.smallest_bytes for stage in chain.stages(1, again)) for again in (False, True))
    for is_recomputed in (False, True):
        found = []
        for replicas in _divisors(request.samples_per_csx):
            samples = request.samples_per_csx // replicas
            stages = chain.stages(samples, is_recomputed)
            if replicas * sum(stage.smallest_bytes for stage in stages) > room:
                continue
            columns, rows = _grid(replicas, fabric.width, fabric.height)
            width, height = fabric.width // columns, fabric.height // rows
            if not width or not height:
                continue
            bottleneck = estimate_bottleneck(stages, width, height)
            if bottleneck is not None:
                estimate = _step(program, bottleneck, len(stages), (columns, rows))
                found.append(_Candidate(estimate, columns, rows, is_recomputed))
        if found:
            return sorted(found, key=lambda candidate: (candidate.estimate_cycles, candidate.columns * candidate.rows))[
                :PLACED
            ]
    what = "weights, and activations of the samples between their forward and backward pass"
    where = f"{sram}, each stage's the region that its work asks for"
    return Misfit(what, where, f"{least:,} bytes in all")


def _divisors(number: int) -> Iterator[int]:
    return (divisor for divisor in range(1, number + 1) if number % divisor == 0)


def _grid(replicas: int, width: int, height: int) -> tuple[int, int]:
    """Return (columns, rows) of replicas whose rectangles are nearest to square."""

    def unevenness(columns: int) -> float:
        across, down = max(1, width // columns), max(1, height // (replicas // columns))
        return max(across, down) / min(across, down)

    columns = min(_divisors(replicas), key=unevenness)
    return columns, replicas // columns


def _place(program: Program, chain: Chain, candidate: _Candidate) -> tuple[int, PipelinedPlan] | None:
    """Return the cycles of a step and the plan, without routes; None if the stages cannot be placed."""
    fabric = program.request.system.fabric
    replicas = candidate.columns, candidate.rows
    width, height = fabric.width // replicas[0], fabric.height // replicas[1]
    samples = program.request.samples_per_csx // (replicas[0] * replicas[1])
    stages = chain.stages(samples, candidate.is_recomputed)
    try:
        placement = place(stages, width, height)
    except NoPlacement:
        return None
    cycles = _step(program, placement.bottleneck_cycles, len(stages), replicas)
    return cycles, _plan(stages, placement, replicas, width, height)


def _plan(
    stages: Sequence[PipelineStage], placement: Placement, replicas: tuple[int, int], width: int, height: int
) -> PipelinedPlan:
    planned = []
    for number, (stage, region) in enumerate(zip(stages, placement.regions, strict=True)):
        planned.append(
            Stage(
                name=stage.name,
                kind=stage.work.kernel.kind,
                region=region,
                orientation=ORIENTATIONS[stage.orientation(region.width, region.height)],
                cycles=stage.kernel_cycles(region.width, region.height),
                is_memory_bound=number in placement.memory_bound,
                in_flight=stage.in_flight,
                is_recomputed=stage.recomputes > 0,
                sram=stage.account(region.width, region.height),
            )
        )
    totals = [stage.cycles.total for stage in planned]
    return PipelinedPlan(
        replicas=replicas,
        replica_width=width,
        replica_height=height,
        stages=tuple(planned),
        routes=(),
        kernel_colors=MappingProxyType({name: color for color, name in enumerate(KERNEL_COLORS)}),
        bottleneck=totals.index(max(totals)),
        wire_pes=placement.wire_pes,
    )
