"""Inference on the modelled cluster: time to the first token, time per token, and number of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import bytes_text, counted
from cstool.model.graphs import declared_form
from cstool.model.ir import OpWork
from cstool.model.params import DecoderParams, Params
from cstool.model.system import Fabric, System, load_system
from cstool.plan.compiler.compile import KERNEL_PASSES, make_program, run_passes
from cstool.plan.compiler.kernel_work import KernelWork, kernel_works
from cstool.plan.estimation.bands import Band, Case, band_of
from cstool.plan.estimation.request import loader_of
from cstool.plan.estimation.sweep import Tried, each_or_why
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.resident import (
    DecodeCycles,
    buffer_bytes,
    cache_bytes,
    decode_cycles,
    prefill_cycles,
    resident_bytes,
)

PRODUCTS, ATTENTION, OTHER, SUMS = "products", "attention", "element by element", "sums over PEs"
LINKS, WEIGHTS, TURN = "between regions and wafers", "weights from MemoryX", "turn of other users"
PARTS = (PRODUCTS, ATTENTION, OTHER, SUMS, LINKS, WEIGHTS, TURN)
"""parts of the time per token"""
GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (5, 5), (6, 6), (8, 8))
"""tried grids of regions of a wafer, across and down: small regions have shorter sums, large ones fewer transfers"""


@dataclass(frozen=True)
class InferRequest:
    """The model, the systems and the load of an estimate.

    Args:
        params: of a model that generates text
        system: kind of each wafer
        prompt_tokens: length of each user's prompt
        new_tokens: length of each answer
        batches: numbers of simultaneous users to compare
        wafers: number of wafers; None: the fewest that hold the model
    """

    params: Params
    system: System
    prompt_tokens: int
    new_tokens: int
    batches: tuple[int, ...]
    wafers: int | None = None


@dataclass(frozen=True)
class InferEstimate:
    """The estimate for one number of users. All of it is modelled.

    Args:
        model: name of the model
        parameters: number of its parameters
        system: kind of each wafer
        wafers: number of wafers in use
        regions: of each wafer, across and down; each has layers of its own
        is_resident: whether weights stay on the wafers; else they come from MemoryX for each token
        users: number of simultaneous users
        first_token_s: time until the last user has its first token, if all prompts come at once [s]
        token_s: time between two tokens of a user, halfway through the answer [s]
        parts_s: breakdown of `token_s`: one of `PARTS` -> time [s]
        power_w: of the systems while they decode [W]
        sram_bytes: use of SRAM on the fullest PE
        weights_bytes: part of `sram_bytes` for weights
        cache_bytes: part of `sram_bytes` for keys and values at the end of the answers
        most_users: largest number of users that fits the SRAM
    """

    model: str
    parameters: int
    system: System
    wafers: int
    regions: tuple[int, int]
    is_resident: bool
    users: int
    first_token_s: float
    token_s: float
    parts_s: dict[str, float]
    power_w: float
    sram_bytes: int
    weights_bytes: int
    cache_bytes: int
    most_users: int

    def answer_s(self, new_tokens: int) -> float:
        """Time until a user has an answer of `new_tokens`, at least 1 [s]; later tokens take longer."""
        return self.first_token_s + (new_tokens - 1) * self.token_s

    @property
    def user_tokens_per_s(self) -> float:
        """Tokens per second of one user."""
        return 1 / self.token_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all users."""
        return self.users / self.token_s

    @property
    def joules_per_token(self) -> float:
        """Energy of the systems per token [J]."""
        return self.power_w / self.tokens_per_s

    @property
    def band(self) -> Band:
        """Range of the time per token, from the errors of measured decoding rates of single users."""
        return band_of(Case("inference", system=self.system.name))

    @property
    def bound(self) -> str:
        """The largest part of the time per token."""
        return max(self.parts_s, key=lambda name: self.parts_s[name])


@dataclass(frozen=True)
class _Layer:
    """One repetition of the kernels of a segment."""

    work: tuple[OpWork, ...]
    vectors: tuple[int, ...]


def make_infer_request(
    params: Params,
    system_name: str,
    *,
    prompt_tokens: int,
    new_tokens: int,
    batches: Sequence[int],
    wafers: int | None = None,
) -> InferRequest:
    """Return a request, checked.

    Raises:
        EstimateError: the model does not generate text, the context is too short, or a cluster has fewer systems
        ParamsError: there is no such system
    """
    model = params.model
    if not isinstance(model, DecoderParams) or not model.makes_text:
        raise EstimateError(
            f"--mode infer: must be for a decoder, which makes one token after the other, got {model.name} of "
            f"{params.path}",
            "without --mode infer a training step of it is estimated",
        )
    loader_of(params)
    context, most = prompt_tokens + new_tokens, model.max_position_embeddings
    if context > most:
        raise EstimateError(
            f"--prompt_tokens and --new_tokens: must be at most {most:,} together, the context of {model.name}, got "
            f"{prompt_tokens:,} and {new_tokens:,}",
            f"--new_tokens {most - prompt_tokens} is left" if prompt_tokens < most else None,
        )
    system = load_system(system_name)
    if wafers is not None and wafers > system.max_systems:
        raise EstimateError(
            f"--num_csx: must be at most {system.max_systems:,}, the systems of a cluster of {system.name}, got "
            f"{wafers:,}"
        )
    return InferRequest(params, system, prompt_tokens, new_tokens, tuple(batches), wafers)


def infer_rows(request: InferRequest) -> list[Tried[int, InferEstimate]]:
    """Return an estimate for each number of users, all on the same number of wafers: the fewest for the most users.

    Raises:
        EstimateError: no number of users can be estimated; it is the error of the first
    """
    model = _Model(request)
    wafers, is_resident = _wafers(model)
    return each_or_why(request.batches, lambda users: _answers(model, users, wafers, is_resident))


class _Model:
    """A model as a sequence of layers."""

    def __init__(self, request: InferRequest) -> None:
        self.request, self.system = request, request.system
        params = replace(request.params, num_csx=1)
        form = replace(declared_form(params), tokens=request.prompt_tokens)
        program = run_passes(make_program(params, request.system, form=form), KERNEL_PASSES)
        self.graph, self.operand_bits = program.graph, params.operand_bits
        works = [_layer(kernels) for kernels in kernel_works(program)]
        pairs = zip(program.graph.segments, works, strict=True)
        self.layers = [layer for segment, layer in pairs for _ in range(segment.count)]
        self.context = request.prompt_tokens + request.new_tokens
        self.whole_bytes = self.graph.parameter_count * params.operand_bits // 8


def _wafers(model: _Model) -> tuple[int, bool]:
    """Return the number of wafers, and whether weights stay on them."""
    request, system = model.request, model.system
    # Fewer wafers cannot hold the weights; more wafers than layers would be idle.
    least = -(-model.whole_bytes // (system.fabric.pes * system.pe.free_bytes))
    asked = range(least, system.max_systems + 1) if request.wafers is None else (request.wafers,)
    counts = [n for n in asked if least <= n <= len(model.layers)]
    for users in sorted(request.batches, reverse=True):
        for n in counts:
            if any(_Stages(model, n, grid).fits(users) for grid in GRIDS):
                return n, True
    if any(_Stages(model, n, grid).fits(1) for n in counts for grid in GRIDS):
        return counts[-1], True
    if system.memoryx is None:
        most = request.wafers or system.max_systems
        raise EstimateError(
            f"--mode infer: weights of {request.params.path} must fit {counted(most, 'wafer')} of {system.name}, which "
            f"has no MemoryX; got {bytes_text(model.whole_bytes)}",
            "cs2 and cs3 stream them",
        )
    return request.wafers or 1, False


def _answers(model: _Model, users: int, wafers: int, is_resident: bool) -> InferEstimate:
    """Return the estimate for a number of users, with the grid of regions that has the shortest time per token.

    Raises:
        EstimateError: keys and values do not fit
    """
    if not is_resident:
        stages = _Stages(model, wafers, (1, 1), is_streamed=True)
        if stages.fits(users):
            return stages.streamed(users)
        raise _too_many(model, users, wafers, stages.most_users(), is_resident)
    tried = [stages for grid in GRIDS if (stages := _Stages(model, wafers, grid)).fits(users)]
    if not tried:
        most = max(_Stages(model, wafers, grid).most_users() for grid in GRIDS)
        raise _too_many(model, users, wafers, most, is_resident)
    return min((stages.resident(users) for stages in tried), key=lambda found: found.token_s)


def _too_many(model: _Model, users: int, wafers: int, most: int, is_resident: bool) -> EstimateError:
    where = counted(wafers, "wafer")
    hint = "1 user is the most" if most == 1 else f"{most:,} users are the most"
    return EstimateError(
        f"--batch: keys and values of {counted(users, 'user')} with {model.context:,} tokens each must fit {where} of "
        f"{model.system.name} beside {'the weights' if is_resident else 'activations'}",
        f"{hint}; more wafers have room for more: --num_csx" if most else "not even those of one user fit",
    )


class _Stages:
    """Layers dealt to the regions of wafers, in order, in shares of nearly equal bytes.

    Args:
        model: its layers
        wafers: number of wafers
        grid: regions of a wafer, across and down
        is_streamed: no weights stay; each wafer has all layers, and users of its own
    """

    def __init__(self, model: _Model, wafers: int, grid: tuple[int, int], is_streamed: bool = False) -> None:
        self.model, self.wafers, self.grid, self.is_streamed = model, wafers, grid, is_streamed
        system = model.system
        fabric = Fabric(system.fabric.width // grid[0], system.fabric.height // grid[1])
        self.pe = Pe(replace(system, fabric=fabric), model.operand_bits)
        self.count = 1 if is_streamed else wafers * grid[0] * grid[1]
        self.alike = {id(layer): layer for layer in model.layers}
        self.weights = {
            key: 0 if is_streamed else resident_bytes(self.pe, each.work, each.vectors)
            for key, each in self.alike.items()
        }
        self.chunks = self._dealt()

    def _dealt(self) -> list[list[_Layer]]:
        total = sum(self.weights[id(layer)] for layer in self.model.layers)
        chunks: list[list[_Layer]] = [[] for _ in range(self.count)]
        before = 0
        for layer in self.model.layers:
            size = self.weights[id(layer)]
            middle = (2 * before + size) * self.count // (2 * total) if total else 0
            chunks[min(self.count - 1, middle)].append(layer)
            before += size
        return chunks

    def turns(self, users: int) -> tuple[int, int]:
        """Number of groups of users that follow one another through the stages, and users per group."""
        if self.is_streamed:
            return 1, -(-users // self.wafers)
        turns = min(users, self.count)
        return turns, -(-users // turns)

    def used(self, users: int) -> tuple[int, int, int]:
        """Bytes of the fullest PE: all of them, bytes of weights, bytes of keys and values."""
        _, each = self.turns(users)
        there = each if self.is_streamed else users
        buffers = max(buffer_bytes(self.pe, layer.work, each) for layer in self.alike.values())
        known = {key: cache_bytes(self.pe, x.work, there, self.model.context) for key, x in self.alike.items()}
        found = []
        for chunk in self.chunks:
            weights, cached = (sum(sizes[id(layer)] for layer in chunk) for sizes in (self.weights, known))
            found.append((weights + cached + buffers, weights, cached))
        return max(found)

    def fits(self, users: int) -> bool:
        """Whether weights, cache and buffers fit the PEs."""
        return self.used(users)[0] <= self.model.system.pe.free_bytes

    def most_users(self) -> int:
        """Return the largest number of users that fits; 0 if none."""
        if not self.fits(1):
            return 0
        low, high = 1, 2
        while self.fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low

    def _decode(self, users: int) -> list[DecodeCycles]:
        """Decoding cycles of each stage for one token, halfway through the answer."""
        asked = self.model.request
        halfway = asked.prompt_tokens + asked.new_tokens // 2
        known = {key: decode_cycles(self.pe, each.work, users, halfway) for key, each in self.alike.items()}
        return [sum((known[id(layer)] for layer in chunk), DecodeCycles()) for chunk in self.chunks]

    def _prefill_s(self) -> list[float]:
        known = {key: prefill_cycles(self.pe, each.work, 1) for key, each in self.alike.items()}
        return [sum(known[id(layer)] for layer in chunk) / self.model.system.clock_hz for chunk in self.chunks]

    def _between_s(self, tokens: int) -> float:
        """Mean transfer time of the tokens' activations to the next stage, over the fabric or over links [s]."""
        system, hidden = self.model.system, self.model.request.params.model.hidden_size  # type: ignore[union-attr]
        if self.count == 1:
            return 0.0
        fabric, links = self.pe.system.fabric, system.links
        way = (fabric.width + fabric.height) * links.hop_cycles + 2 * links.ramp_cycles
        past_s = (way + tokens * int(self.pe.wavelets(-(-hidden // fabric.width)))) / system.clock_hz
        hop_s = 0.0 if system.swarmx is None else system.swarmx.hop_s
        over_s = hop_s + tokens * hidden * self.pe.operand_bytes / system.io_bytes_per_s
        crossings = self.wafers if self.wafers > 1 else 0
        return (past_s * (self.count - crossings) + over_s * crossings) / self.count

    def resident(self, users: int) -> InferEstimate:
        """Estimate with weights that stay on the wafers."""
        clock_hz, (turns, each) = self.model.system.clock_hz, self.turns(users)
        steps, between_s = self._decode(each), self._between_s(each)
        stages_s = [step.total / clock_hz + between_s for step in steps]
        way_s = sum(stages_s)
        token_s = max(way_s, turns * max(stages_s))
        spent = sum(steps, DecodeCycles())
        parts = {**_parts_s(spent, clock_hz), LINKS: self.count * between_s, TURN: token_s - way_s}
        hand_s = self._between_s(self.model.request.prompt_tokens)
        prefill_s = [seconds + hand_s for seconds in self._prefill_s()]
        first_s = sum(prefill_s) + (users - 1) * max(prefill_s) + way_s
        busy = turns * spent.total / clock_hz / (self.count * token_s)
        return self._estimate(users, first_s, token_s, parts, busy)

    def streamed(self, users: int) -> InferEstimate:
        """Estimate with weights streamed from MemoryX for each token of all users."""
        system = self.model.system
        assert system.swarmx is not None or self.wafers == 1
        compute_s = sum(self._decode(self.turns(users)[1]), DecodeCycles())
        hop_s = 0.0 if system.swarmx is None else system.swarmx.hop_s
        stream_s, work_s = self.model.whole_bytes / system.io_bytes_per_s, compute_s.total / system.clock_hz
        token_s = max(stream_s, work_s) + hop_s
        parts = {**_parts_s(compute_s, system.clock_hz), LINKS: hop_s, WEIGHTS: max(0.0, stream_s - work_s)}
        first_s = max(stream_s, self.turns(users)[1] * sum(self._prefill_s())) + token_s
        return self._estimate(users, first_s, token_s, parts, work_s / token_s)

    def _estimate(
        self, users: int, first_s: float, token_s: float, parts: dict[str, float], busy: float
    ) -> InferEstimate:
        system, (used, weights, cached) = self.model.system, self.used(users)
        idle_w, more_w = system.idle_power_w, system.power_w - system.idle_power_w
        return InferEstimate(
            model=self.model.graph.name,
            parameters=self.model.graph.parameter_count,
            system=system,
            wafers=self.wafers,
            regions=self.grid,
            is_resident=not self.is_streamed,
            users=users,
            first_token_s=first_s,
            token_s=token_s,
            parts_s={name: parts[name] for name in PARTS if parts.get(name, 0.0) > 0},
            power_w=self.wafers * (idle_w + more_w * min(1.0, busy)),
            sram_bytes=system.pe.code_bytes + system.pe.stack_bytes + used,
            weights_bytes=weights,
            cache_bytes=cached,
            most_users=self.most_users(),
        )


def _layer(kernels: Sequence[KernelWork]) -> _Layer:
    return _Layer(
        tuple(item for kernel in kernels for item in kernel.work),
        tuple(size for kernel in kernels for size in kernel.vectors),
    )


def _parts_s(cycles: DecodeCycles, clock_hz: float) -> dict[str, float]:
    return {
        PRODUCTS: cycles.products / clock_hz,
        ATTENTION: cycles.attention / clock_hz,
        OTHER: cycles.other / clock_hz,
        SUMS: cycles.sums / clock_hz,
    }
