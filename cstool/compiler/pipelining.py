"""Passes: pipelined mode. Replicas, regions, routes.

How many replicas: for numbers that share out the samples of a system evenly, or nearly so, the time of a step is
estimated from areas alone; the best few are placed in earnest, and the fastest is taken. Activations made within a
stage are computed again where nothing fits otherwise, or where that is faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cstool.batch_split import divisors
from cstool.compiler.artifact import with_step
from cstool.compiler.chain import Chain, Edge, estimate_bottleneck, step_cycles, update_cycles
from cstool.compiler.placement import NoPlacement, Placement, place
from cstool.compiler.program import Misfit, Program
from cstool.compiler.routing import NoColors, RoutedEdge, route
from cstool.compiler.stage import ORIENTATIONS, PipelineStage
from cstool.ir import Alternative, ExecutionMode, PipelinedPlan, Recompute, Stage
from cstool.perf.micro_batches import even_sizes
from cstool.perf.pe import Pe, ceil_div
from cstool.perf.wafer import exchange

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
HOPELESS = 2.0
"""times the modelled step of weight streaming, from which on an estimate is not worth a placement"""
SLACK = 1.05
"""by which an estimate may be above the best plan so far, to be worth a placement"""


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
        if (misfit := _certain_misfit(program, chain)) is not None:
            return _without_plan(program, misfit)
        best: _Placed | None = None
        streaming = _streaming_cycles(program)
        for is_recomputed in (False, True):
            found = _candidates(program, chain, is_recomputed)
            if streaming is not None and found and found[0].estimate_cycles > HOPELESS * streaming:
                if best is None and (is_recomputed or program.request.recompute == "needed"):
                    return _not_placed(program, found[0].estimate_cycles, streaming)
                continue
            is_choice = best is not None
            for candidate in found[:PLACED]:
                # They come by their estimates, which hardly ever err on the slow side by more.
                if best is not None and SLACK * best.step_cycles <= candidate.estimate_cycles:
                    break
                each = _place(program, chain, candidate)
                if each is not None and (best is None or each.step_cycles < best.step_cycles):
                    best = replace(each, estimates=found, is_choice=is_choice)
            if best is not None and program.request.recompute == "needed":
                break
        if best is None:
            return _without_plan(program, _misfit(program, chain))
        mode = ExecutionMode.PIPELINED
        return replace(
            program,
            pipelined=best.plan,
            notes=MappingProxyType({**program.notes, mode: tuple(_notes(best))}),
            recompute=MappingProxyType({**program.recompute, mode: Recompute(int(best.is_recomputed))}),
            micro_batches=MappingProxyType({**program.micro_batches, mode: 1}),
        )


@dataclass(frozen=True)
class _Placed:
    """A plan without routes, the modelled cycles of its step, and what it was chosen from.

    `is_choice` says that the stages would fit without recomputation as well.
    """

    plan: PipelinedPlan
    step_cycles: int
    is_recomputed: bool
    estimates: Sequence[_Candidate] = ()
    is_choice: bool = False


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
        samples = _samples(program, plan.replicas)
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
        return with_step(replace(program, pipelined=replace(plan, routes=routes)), ExecutionMode.PIPELINED)


def _streaming_cycles(program: Program) -> int | None:
    """Return the modelled cycles of a step in weight streaming, where there is a choice between the two."""
    return program.step_cycles.get(ExecutionMode.WEIGHT_STREAMING)


def _not_placed(program: Program, estimate_cycles: int, streaming_cycles: int) -> Program:
    """Return the program without a plan, since it would be far from the faster one."""
    ratio = estimate_cycles / streaming_cycles
    mode = ExecutionMode.WEIGHT_STREAMING
    note = f"pipelined was not placed: by estimate, it takes {ratio:.1f}x the time per step"
    other = Alternative(ExecutionMode.PIPELINED, estimate_cycles, "by estimate; --execution_mode pipelined places it")
    notes = MappingProxyType({**program.notes, mode: (note, *program.notes.get(mode, ()))})
    return replace(program, others=(*program.others, other), notes=notes)


def _notes(placed: _Placed) -> Iterator[str]:
    """Say why so many replicas, and what is in flight."""
    plan = placed.plan
    count = plan.replicas[0] * plan.replicas[1]
    estimates = {candidate.columns * candidate.rows: candidate.estimate_cycles for candidate in placed.estimates}
    if count > 1 and 1 in estimates:
        ratio = estimates[1] / estimates[count]
        yield f"{count} replicas side by side: by estimate, a step with one takes {ratio:.1f}x the time"
    elif count > 1:
        yield f"{count} replicas side by side: with fewer, the samples in flight do not fit"
    else:
        more = min((other for other in estimates if other > 1), default=None)
        yield "one replica: " + ("no second one fits" if more is None else "by estimate, a step takes longer with more")
    kept = (
        "of these it keeps what it reads, and makes the rest again" if placed.is_recomputed else "nothing is made again"
    )
    first, last = plan.stages[0].in_flight, plan.stages[-1].in_flight
    yield f"between forward and backward, the first stage holds up to {first} samples, the last {last}; {kept}"
    if placed.is_recomputed:
        why = "a step takes less time so" if placed.is_choice else "nothing fits otherwise"
        yield f"activations are computed again in the backward pass: {why}"


def _without_plan(program: Program, misfit: Misfit) -> Program:
    return replace(program, misfits=MappingProxyType({**program.misfits, ExecutionMode.PIPELINED: misfit}))


def _wavelets(edge: Edge, wavelet_bytes: int, samples: int) -> int:
    """Wavelets per sample on an edge; the sum of a tied weight moves once per step."""
    times = samples if edge.kind == "tie" else 1
    return int(ceil_div(edge.elements * edge.element_bytes, wavelet_bytes * times))


def _samples(program: Program, replicas: tuple[int, int]) -> int:
    """Return the samples of a replica; some have one less."""
    return int(ceil_div(program.request.samples_per_csx, replicas[0] * replicas[1]))


def _step(program: Program, bottleneck: int, stages: int, replicas: tuple[int, int]) -> int:
    """Return the modelled cycles of a step, of all systems."""
    request = program.request
    exchange_s = sum(exchange(request.system, program.graph.parameter_count, request.num_csx))
    update = _update(program, replicas) + round(exchange_s * request.system.clock_hz)
    return step_cycles(program, stages, bottleneck, _samples(program, replicas), update)


def _update(program: Program, replicas: tuple[int, int]) -> int:
    """Return the cycles of sums over replicas and of the update."""
    request, fabric = program.request, program.request.system.fabric
    size = fabric.width // replicas[0], fabric.height // replicas[1]
    weights, update_ops = program.graph.parameter_count, request.optimizer.update_ops
    pe = Pe(request.system, request.operand_bits)
    return update_cycles(pe, weights, size[0] * size[1], replicas, size, update_ops)


def _certain_misfit(program: Program, chain: Chain) -> Misfit | None:
    """Return why the stages cannot fit, if it needs no search to tell."""
    system = program.request.system
    if chain.weight_bytes > _room_bytes(program):
        what = "their weights with master copies, optimizer state and gradients"
        return Misfit(_stages_text(chain, 1), _sram_rule(program, what), f"{chain.weight_bytes:,} bytes")
    colors = system.links.colors - system.links.io_colors
    if colors < len(KERNEL_COLORS):
        rule = f"must leave {len(KERNEL_COLORS)} colors to what moves within regions"
        return Misfit(f"links.colors of {system.name}", f"{rule}, beside those of input and output", f"{colors}")
    if chain.length > system.fabric.pes:
        rule = f"must have a PE each, and {system.name} has {system.fabric.pes:,}"
        return Misfit("stages of the pipeline", rule, f"{chain.length:,}")
    return None


def _misfit(program: Program, chain: Chain) -> Misfit:
    """Return why the stages did not fit."""
    samples = program.request.samples_per_csx
    need = sum(stage.smallest_bytes for stage in chain.stages(samples, True))
    what = "their weights, and what they read of the samples between forward and backward pass"
    got = f"{need:,} bytes"
    if need <= _room_bytes(program):
        got += ", which rectangles of whole PEs, each with its own code, cannot hold"
    return Misfit(_stages_text(chain, samples), _sram_rule(program, what), got)


def _stages_text(chain: Chain, samples: int) -> str:
    """Return the stages in words, with the one that takes most memory."""
    largest = max(chain.stages(samples, True), key=lambda stage: stage.smallest_bytes)
    others = f" and {chain.length - 1:,} other stages" if chain.length > 1 else ""
    return f"{largest.name} {largest.work.shape_text}{others}"


def _room_bytes(program: Program) -> int:
    system = program.request.system
    return system.fabric.pes * system.pe.free_bytes


def _sram_rule(program: Program, what: str) -> str:
    name = program.request.system.name
    return f"{what} must fit the SRAM of {name} that code and stack leave, {_room_bytes(program):,} bytes"


def _candidates(program: Program, chain: Chain, is_recomputed: bool) -> list[_Candidate]:
    """Return the numbers of replicas that seem to fit, best first."""
    request, fabric = program.request, program.request.system.fabric
    found = []
    for samples in even_sizes(request.samples_per_csx, request.samples_per_csx):
        replicas = int(ceil_div(request.samples_per_csx, samples))
        if replicas > fabric.pes:
            break
        stages = chain.stages(samples, is_recomputed)
        columns, rows = _grid(replicas, fabric.width, fabric.height)
        width, height = fabric.width // columns, fabric.height // rows
        if replicas * sum(stage.smallest_bytes for stage in stages) > _room_bytes(program) or not width * height:
            continue
        bottleneck = estimate_bottleneck(stages, width, height)
        if bottleneck is not None:
            estimate = _step(program, bottleneck, len(stages), (columns, rows))
            found.append(_Candidate(estimate, columns, rows, is_recomputed))
    return sorted(found, key=lambda candidate: (candidate.estimate_cycles, candidate.columns * candidate.rows))


def _grid(replicas: int, width: int, height: int) -> tuple[int, int]:
    """Return (columns, rows) of replicas whose rectangles are nearest to square."""

    def unevenness(columns: int) -> float:
        across, down = max(1, width // columns), max(1, height // (replicas // columns))
        return max(across, down) / min(across, down)

    columns = min(divisors(replicas), key=unevenness)
    return columns, replicas // columns


def _place(program: Program, chain: Chain, candidate: _Candidate) -> _Placed | None:
    """Return a plan without routes; None if the stages cannot be placed."""
    fabric = program.request.system.fabric
    replicas = candidate.columns, candidate.rows
    width, height = fabric.width // replicas[0], fabric.height // replicas[1]
    samples = _samples(program, replicas)
    stages = chain.stages(samples, candidate.is_recomputed)
    try:
        placement = place(stages, width, height)
    except NoPlacement:
        return None
    cycles = _step(program, placement.bottleneck_cycles, len(stages), replicas)
    plan = _plan(stages, placement, replicas, width, height, _update(program, replicas))
    return _Placed(plan, cycles, candidate.is_recomputed)


def _plan(
    stages: Sequence[PipelineStage],
    placement: Placement,
    replicas: tuple[int, int],
    width: int,
    height: int,
    update_cycles: int,
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
        update_cycles=update_cycles,
        wire_pes=placement.wire_pes,
    )
