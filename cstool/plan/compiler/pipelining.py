"""Passes: pipelined mode. Replicas, regions, routes.

Number of replicas: for numbers that share out the samples of a system evenly, or nearly so, the time of a step is
estimated from areas alone; the best few are placed exactly, and the fastest is taken. Activations made within a
stage are computed again where nothing fits otherwise, or where that is faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from cstool.model.batch_split import divisors
from cstool.model.ir import Alternative, ExecutionMode, PipelinedPlan, Recompute, Route, Stage
from cstool.model.system import Fabric, System
from cstool.plan.compiler.artifact import with_step
from cstool.plan.compiler.chain import Bottlenecks, Chain
from cstool.plan.compiler.placement import NoPlacement, place, wire_length
from cstool.plan.compiler.program import Misfit, Program
from cstool.plan.compiler.routing import NoColors, route
from cstool.plan.compiler.stage import ORIENTATIONS, Known
from cstool.plan.timing.micro_batches import shares
from cstool.plan.timing.pe import ceil_div

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
"""transfers within regions, each on a color of its own; sums and rings change color from PE to PE"""
PIPELINED = ExecutionMode.PIPELINED
PLACED = 3
"""choices of replicas that are placed exactly: so many, and so many whose rectangles are about square"""
SPARE, SQUARE, LONG = 2, 2, 1
"""replicas more than there must be, and of each number of them so many rectangles, that are estimated"""
HOPELESS = 2.0
"""ratio to the modelled step of weight streaming, from which on an estimate is not worth a placement"""
SLACK = 1.1
"""by which an estimate may be above the best plan so far, to be worth a placement"""


SHARES = 1.0, 0.75, 0.5, 0.35
"""of the shorter side of a replica's rectangle, that are tried where a larger one has no routes: the faster stages are,
the more lanes a route takes (chosen)"""


@dataclass(frozen=True)
class _Choice:
    """Replicas.

    Args:
        columns, rows: of replicas
        is_recomputed: whether activations are computed again
        width, height: of the rectangle of each [PEs]
    """

    columns: int
    rows: int
    is_recomputed: bool
    width: int
    height: int

    @property
    def count(self) -> int:
        """Number of replicas."""
        return self.columns * self.rows

    @property
    def is_square(self) -> bool:
        """Whether the rectangle is about square: areas say more of it than of a long one."""
        return max(self.width, self.height) <= 2 * min(self.width, self.height)


@dataclass(frozen=True)
class _Candidate:
    """Replicas, and the estimated cycles of a step with them."""

    estimate_cycles: int
    choice: _Choice

    def beside(self, without: Collection[_Choice]) -> _Candidate | None:
        """Return this candidate, or in the largest part of its rectangle that is not known to have no routes."""
        for share in SHARES:
            width, height = self.choice.width, self.choice.height
            if width <= height:
                width = max(1, int(share * width))
            else:
                height = max(1, int(share * height))
            if (choice := replace(self.choice, width=width, height=height)) not in without:
                return _Candidate(int(self.estimate_cycles / share), choice)
        return None


@dataclass(frozen=True)
class _Placed:
    """A plan without routes, its choice, and the modelled cycles of its slowest stage per sample."""

    plan: PipelinedPlan
    choice: _Choice
    bottleneck_cycles: int


class _Search:
    """The options of pipelined mode, each part found once: none of it depends on the number of systems."""

    def __init__(self, program: Program) -> None:
        self.chain = Chain(program)
        known: Known = {}
        self.placed = cache(lambda choice: _place(self.chain, choice, known))
        self.bottlenecks = cache(lambda is_recomputed: list(_bottlenecks(self.chain, is_recomputed)))
        self.routed = cache(self._route)

    def _route(self, choice: _Choice) -> tuple[Route, ...] | Misfit:
        placed = self.placed(choice)
        assert placed is not None
        return _route(self.chain, placed.plan)


def _search_of(program: Program) -> _Search:
    return program.kept.once(program, "pipelined", lambda: _Search(program))


def place_stages(program: Program, without: Collection[_Choice] = ()) -> Program:
    """Choose replicas and give every stage its region; or report the misfit.

    Args:
        without: choices that are known to have no routes
    """
    if not program.request.considers(PIPELINED):
        return program
    if (misfit := certainly_fits_not(program)) is not None:
        return program.with_known(PIPELINED, misfits=misfit)
    search, num_csx = _search_of(program), program.request.num_csx
    chain = search.chain
    best: _Placed | None = None
    best_cycles, estimates, is_choice = 0, list[_Candidate](), False
    # Where there is a choice between the two.
    streaming_cycles = program.step_cycles.get(ExecutionMode.WEIGHT_STREAMING)
    choices = {"none": (False,), "all": (True,)}.get(program.request.recompute, (False, True))
    for is_recomputed in choices:
        found = []
        for choice, bottleneck in search.bottlenecks(is_recomputed):
            estimate = chain.step_cycles(num_csx, (choice.columns, choice.rows), bottleneck)
            if (kept := _Candidate(estimate, choice).beside(without)) is not None:
                found.append(kept)
        found.sort(key=lambda candidate: (candidate.estimate_cycles, candidate.choice.count))
        if streaming_cycles is not None and found and found[0].estimate_cycles > HOPELESS * streaming_cycles:
            if best is None and (is_recomputed == choices[-1] or program.request.recompute == "needed"):
                return _not_placed(program, found[0].estimate_cycles, streaming_cycles)
            continue
        had_one = best is not None
        tried = {*found[:PLACED], *[each for each in found if each.choice.is_square][:PLACED]}
        for candidate in filter(tried.__contains__, found):
            # They come by their estimates, which hardly ever err on the slow side by more.
            if best is not None and SLACK * best_cycles <= candidate.estimate_cycles:
                break
            if (each := search.placed(candidate.choice)) is None:
                continue
            cycles = chain.step_cycles(num_csx, each.plan.replicas, each.bottleneck_cycles)
            if best is None or cycles < best_cycles:
                best, best_cycles, estimates, is_choice = each, cycles, found, had_one
        if best is not None and program.request.recompute == "needed":
            break
    if best is None:
        return program.with_known(PIPELINED, misfits=_misfit(chain))
    notes = tuple(_notes(best, estimates, is_choice))
    recompute = Recompute(int(best.choice.is_recomputed))
    placed = program.with_known(PIPELINED, notes=notes, recompute=recompute, micro_batches=1)
    return replace(placed, pipelined=best.plan)


def certainly_fits_not(program: Program) -> Misfit | None:
    """Return why no choice has room, if it needs no search to tell, for any number of samples; None if one may fit."""
    if (barrier := program.graph.barrier) is not None:
        where = barrier.beyond.ops[0].name
        rule = "must follow from one sample alone, since samples go through a pipeline one after the other"
        got = "a loss over all samples of the batch, which all would have to be held for"
        return Misfit(where, rule, got)
    return _certain_misfit(Chain(program))


def route_edges(program: Program) -> Program:
    """Connect the regions: routes, and their colors; where these do not suffice, regions of the next best choice.

    Without a plan if no choice has routes.
    """
    unrouted: Misfit | None = None
    placed, without = program, set[_Choice]()
    while (plan := placed.pipelined) is not None:
        is_recomputed = placed.recompute[PIPELINED].levels > 0
        choice = _Choice(*plan.replicas, is_recomputed, plan.replica_width, plan.replica_height)
        routes = _search_of(program).routed(choice)
        if not isinstance(routes, Misfit):
            return with_step(replace(placed, pipelined=replace(plan, routes=routes)), PIPELINED)
        unrouted = unrouted or routes
        without.add(choice)
        placed = place_stages(replace(program, pipelined=None), without)
    if unrouted is None:
        return program
    return replace(program, pipelined=None).with_known(PIPELINED, misfits=unrouted)


def _route(chain: Chain, plan: PipelinedPlan) -> tuple[Route, ...] | Misfit:
    links, edges = chain.request.system.links, list(chain.edges(chain.samples(plan.replicas)))
    colors = range(len(KERNEL_COLORS), links.colors - links.io_colors)
    regions = [stage.region for stage in plan.stages]
    try:
        return tuple(route(regions, edges, plan.stages[plan.bottleneck].cycles.total, colors))
    except NoColors as error:
        rule = f"must have colors of their own where they meet, of {len(colors)}"
        return Misfit(f"{len(edges)} routes", rule, str(error))


def _not_placed(program: Program, estimate_cycles: int, streaming_cycles: int) -> Program:
    """Return the program without a plan, since it would be far from the faster one."""
    ratio = estimate_cycles / streaming_cycles
    mode = ExecutionMode.WEIGHT_STREAMING
    note = f"pipelined was not placed: by estimate, it takes {ratio:.1f}x the time per step"
    other = Alternative(PIPELINED, estimate_cycles, "by estimate; --execution_mode pipelined places it")
    noted = program.with_known(mode, notes=(note, *program.notes.get(mode, ())))
    return replace(noted, others=(*program.others, other))


def _notes(placed: _Placed, found: Sequence[_Candidate], is_choice: bool) -> Iterator[str]:
    """Explain the number of replicas, and the samples in flight.

    Args:
        found: the candidates, the fastest first
        is_choice: whether the stages would fit without recomputation as well
    """
    plan, count, is_recomputed = placed.plan, placed.choice.count, placed.choice.is_recomputed
    own_cycles = next(candidate.estimate_cycles for candidate in found if candidate.choice == placed.choice)
    of_one = next((candidate.estimate_cycles for candidate in found if candidate.choice.count == 1), None)
    if count > 1 and of_one is not None:
        ratio = of_one / own_cycles
        yield f"{count} replicas side by side: by estimate, a step with one takes {ratio:.1f}x the time"
    elif count > 1:
        yield f"{count} replicas side by side: with fewer, the samples in flight do not fit"
    else:
        has_more = any(candidate.choice.count > 1 for candidate in found)
        yield "one replica: " + ("by estimate, a step takes longer with more" if has_more else "no second one fits")
    kept = "of these it keeps what it reads, and makes the rest again" if is_recomputed else "nothing is made again"
    first, last = plan.stages[0].in_flight, plan.stages[-1].in_flight
    yield f"between forward and backward, the first stage holds up to {first} samples, the last {last}; {kept}"
    if is_recomputed:
        why = "a step takes less time so" if is_choice else "nothing fits otherwise"
        yield f"activations are computed again in the backward pass: {why}"


def _certain_misfit(chain: Chain) -> Misfit | None:
    """Return why the stages cannot fit, if it needs no search to tell."""
    system = chain.request.system
    if chain.weight_bytes > _room_bytes(system):
        what = "their weights with master copies, optimizer state and gradients"
        return Misfit(_stages_text(chain, 1), _sram_rule(system, what), f"{chain.weight_bytes:,} bytes")
    colors = system.links.colors - system.links.io_colors
    if colors < len(KERNEL_COLORS):
        rule = f"must leave {len(KERNEL_COLORS)} colors to what moves within regions"
        return Misfit(f"links.colors of {system.name}", f"{rule}, beside those of input and output", f"{colors}")
    if chain.length > system.fabric.pes:
        rule = f"must have a PE each, and {system.name} has {system.fabric.pes:,}"
        return Misfit("stages of the pipeline", rule, f"{chain.length:,}")
    return None


def _misfit(chain: Chain) -> Misfit:
    """Return why the stages did not fit."""
    samples, system = chain.request.samples_per_csx, chain.request.system
    need = sum(stage.smallest_bytes for stage in chain.stages(samples, True))
    what = "their weights, and what they read of the samples between forward and backward pass"
    got = f"{need:,} bytes"
    if need <= _room_bytes(system):
        got += ", which rectangles of whole PEs, each with its own code, cannot hold"
    return Misfit(_stages_text(chain, samples), _sram_rule(system, what), got)


def _stages_text(chain: Chain, samples: int) -> str:
    """Return the stages in words, with the one that takes most memory."""
    # With one sample in flight, later repetitions of a block hold as much as the second.
    repetitions = 2 if samples == 1 else None
    largest = max(chain.stages(samples, True, repetitions), key=lambda stage: stage.smallest_bytes)
    others = f" and {chain.length - 1:,} other stages" if chain.length > 1 else ""
    return f"{largest.name} {largest.work.shape_text}{others}"


def _room_bytes(system: System) -> int:
    return system.fabric.pes * system.pe.free_bytes


def _sram_rule(system: System, what: str) -> str:
    return f"{what} must fit the SRAM of {system.name} that code and stack leave, {_room_bytes(system):,} bytes"


def _bottlenecks(chain: Chain, is_recomputed: bool) -> Iterator[tuple[_Choice, int]]:
    """Yield the numbers of replicas that seem to fit, with the estimated cycles of their slowest stage."""
    request, fabric = chain.request, chain.request.system.fabric
    bottlenecks = Bottlenecks(fabric)
    for samples in shares(request.samples_per_csx):
        stages = chain.stages(samples, is_recomputed)
        smallest_bytes = sum(stage.smallest_bytes for stage in stages)
        for columns, rows in _grids(request.samples_per_csx, samples, fabric):
            width, height = fabric.width // columns, fabric.height // rows
            if columns * rows * smallest_bytes > _room_bytes(request.system):
                continue
            bottleneck = bottlenecks.estimate(stages, width, height)
            if bottleneck is not None:
                yield _Choice(columns, rows, is_recomputed, width, height), bottleneck


def _grids(samples: int, share: int, fabric: Fabric) -> Iterator[tuple[int, int]]:
    """Yield (columns, rows) of replicas that are worth a try where none has more than its share of the samples.

    As few as there can be, or a few more, which may go better into the wafer; of each number the rectangles that are
    nearest to square, and the longest ones.
    """

    def unevenness(columns: int) -> float:
        across, down = fabric.width // columns, fabric.height // (count // columns)
        return max(across, down) / min(across, down)

    fewest = int(ceil_div(samples, share))
    # With more, each would have less.
    most = fewest if share == 1 else int(ceil_div(samples, share - 1)) - 1
    for count in range(fewest, min(most, fewest + SPARE) + 1):
        possible = [
            columns for columns in divisors(count) if columns <= fabric.width and count // columns <= fabric.height
        ]
        possible.sort(key=unevenness)
        for columns in dict.fromkeys([*possible[:SQUARE], *possible[-LONG:]]):
            yield columns, count // columns


def _place(chain: Chain, choice: _Choice, known: Known) -> _Placed | None:
    """Return a plan without routes; None if the stages cannot be placed."""
    replicas, width, height = (choice.columns, choice.rows), choice.width, choice.height
    stages = chain.stages(chain.samples(replicas), choice.is_recomputed)
    try:
        placement = place(stages, width, height, known)
    except NoPlacement:
        return None
    planned = tuple(
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
        for number, (stage, region) in enumerate(zip(stages, placement.regions, strict=True))
    )
    totals = [stage.cycles.total for stage in planned]
    plan = PipelinedPlan(
        replicas=replicas,
        replica_width=width,
        replica_height=height,
        stages=planned,
        routes=(),
        kernel_colors=MappingProxyType({name: color for color, name in enumerate(KERNEL_COLORS)}),
        bottleneck=totals.index(max(totals)),
        update_cycles=chain.update_cycles(replicas),
        wire_pes=wire_length(placement.regions),
    )
    return _Placed(plan, choice, placement.bottleneck_cycles)
