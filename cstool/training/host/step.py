"""The host as a system: times of its kernels, memory and disk, and the time of a training step from them.

A call of a kernel on one grain takes a fixed time, and more if other lanes want the interpreter too; and a time
per floating-point operation of its products, per vector instruction of its element-wise work (as `ir` counts them, for
the wafer), per byte of weights that it reads or makes gradients of, and per byte of activations:

    seconds = call_s + (shared_s) + flop_s x flops + vector_s x vector ops + weight_s x bytes + activation_s x bytes

The six numbers of each kind of op and pass are fitted to measurements on this host. The step then follows the model
of `perf.cluster`: one system, whose compute is a lane and its share of the grains; MemoryX is main memory or a file.
The overhead, of the loop and of lanes that wait for each other, is fitted too.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cstool.model.ir import (
    Graph,
    Lookup,
    MatMul,
    Op,
    OpKind,
    Pairs,
    VectorOps,
    matrices_of,
    panels_of,
    rules_of,
    work_of,
)
from cstool.plan.timing.pe import ceil_div
from cstool.plan.timing.resources import COMPUTE, PROCESSORS
from cstool.plan.timing.schedule import NUMBER_BYTES, Cluster, Schedule, Section, StreamedOp
from cstool.plan.timing.step_simulation import simulate

PASSES = ("forward", "backward")
SPARSE = "sparse"
"""kind of a linear op with sparse kernels"""
KINDS = (*(str(kind.value) for kind in OpKind), SPARSE)
"""kinds of op that have costs"""
CACHE_BYTES = 1 << 21
"""of a core's own cache, about"""
PAIR_PRODUCTS = {"forward": 2, "backward": 5}
"""products of queries and keys, or probabilities and values; backward computes the scores again and has four more"""
MATMUL_PRODUCTS = {"forward": 1, "backward": 2}


class Work(NamedTuple):
    """Amounts of work in a call of a kernel on one grain.

    Args:
        calls: of the kernel: one per panel
        shared_calls: the same where there are several lanes, else 0
        flops: of its products
        vector_ops: instructions per element times elements
        weight_bytes: read, or of gradients made, of a matrix that no cache of a core holds
        activation_bytes: read and made
    """

    calls: int
    shared_calls: int
    flops: float
    vector_ops: float
    weight_bytes: float
    activation_bytes: float


@dataclass(frozen=True)
class Cost:
    """Times of a kind of op in one pass [s per call, shared call, FLOP, vector op, byte of weights, of activations].

    The names are the same as in `Work`.
    """

    call_s: float
    shared_s: float
    flop_s: float
    vector_s: float
    weight_s: float
    activation_s: float

    def seconds(self, work: Work) -> float:
        """Return the time of a call on one grain."""
        return sum(cost * amount for cost, amount in zip(self.row, work, strict=True))

    @property
    def row(self) -> tuple[float, ...]:
        """All six numbers."""
        return dataclasses.astuple(self)


@dataclass(frozen=True)
class HostRates:
    """The measurements of this host.

    Args:
        cpu: its name
        cores: number of cores that were busy during the measurement
        costs: "kind pass" -> its times; kinds are the kinds of ops, "sparse" is a linear op with sparse kernels
        update_s: name of an optimizer -> of one weight's update on one thread [s]
        step_s: fixed time of a step, for any ops [s]
        stage_s: of an op of a step more, where lanes wait for each other [s]
        uneven: share of its time by which the slowest of several lanes is behind
        cached_bytes_per_s: a copy between memory and the system's page cache [B/s]
        read_bytes_per_s: from the disk [B/s]
        write_bytes_per_s: to the disk, synced [B/s]
        socket_s: of a core, for a byte that goes out to another host or comes in; 0 where it was not measured [s]
    """

    cpu: str
    cores: int
    costs: Mapping[str, Cost]
    update_s: Mapping[str, float]
    step_s: float
    stage_s: float
    uneven: float
    cached_bytes_per_s: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    socket_s: float = 0.0


@dataclass(frozen=True)
class HostSetup:
    """The setup of a run on this host.

    Args:
        grain_samples: samples of a grain
        grains: of the batch
        lanes: host threads
        optimizer: name of its row in the rates
        optimizer_states: numbers of its state per weight
        waits_for_norm: whether updates need the norm of all gradients
        densities: sparse weight -> share of non-zeros
        recomputed: ops that run forward again
        keeps: whether ops keep all that they can, so that their backward repeats nothing
        memoryx_in_file: whether weights and optimizer state are in a file
        past_cache: whether that file is read and written past the system's page cache
        commits: whether every step is committed to it
        buffer_bytes: of weights and state that are held in memory, where they are in a file
        sharing: host threads that share the products, and attention, of a grain which is alone in its batch
        lanes_beside: host threads of other ranks on this host
        memoryx_share: part of MemoryX on this host
        waves: number of waves of the batch; each streams all weights
        met_grains: of the batch, grains whose samples meet here if the graph has a barrier; None for `grains`
    """

    grain_samples: int
    grains: int
    lanes: int
    optimizer: str
    optimizer_states: float
    waits_for_norm: bool
    densities: Mapping[str, float]
    recomputed: frozenset[str] = frozenset()
    keeps: bool = False
    memoryx_in_file: bool = False
    past_cache: bool = False
    commits: bool = False
    buffer_bytes: int = 0
    sharing: int = 1
    lanes_beside: int = 0
    memoryx_share: float = 1.0
    waves: int = 1
    met_grains: int | None = None


@dataclass(frozen=True)
class HostStep:
    """A predicted step [s].

    Args:
        step_s: from the end of one to the end of the next
        forward_s: of a lane
        again_s: of a lane, forward passes that are repeated
        backward_s: of a lane
    """

    step_s: float
    forward_s: float
    again_s: float
    backward_s: float

    @property
    def rest_s(self) -> float:
        """The rest of the step: updates, waiting for a file, the loop itself."""
        return max(0.0, self.step_s - self.forward_s - self.again_s - self.backward_s)


def kind_of(op: Op, density: float) -> str:
    """Return under which kind an op is measured: its own, or "sparse" where sparse kernels compute."""
    return SPARSE if rules_of(op).can_be_sparse and density < 1.0 else str(op.kind.value)


@dataclass(frozen=True)
class OnHost:
    """The ops of a graph as this host runs them on a grain.

    Args:
        samples: of the grain
        keeps: see `HostSetup`
        lanes: number of lanes that share the interpreter
    """

    graph: Graph
    samples: int
    keeps: bool = False
    lanes: int = 1

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all tensors, for one sample, and of all weights."""
        tensors = {name: tensor.shape for name, tensor in self.graph.tensors.items()}
        return tensors | {name: weight.shape for name, weight in self.graph.weights.items()}

    def work(self, op: Op, direction: str, density: float = 1.0) -> Work:
        """Work of a pass of an op for a grain; the density is of its matrix."""
        flops = vector_ops = 0.0
        size = 0
        shapes, samples = self.shapes, self.samples
        repeats = direction == "backward" and not (self.keeps and rules_of(op).keepable(op, shapes))
        for item in work_of(op, shapes):
            match item:
                case MatMul():
                    size += item.inputs * item.outputs
                    again = item.is_repeated and repeats
                    flops += samples * item.flops * density * (MATMUL_PRODUCTS[direction] + again)
                case Pairs():
                    flops += samples * 2.0 * item.pairs * item.width * PAIR_PRODUCTS[direction]
                    vector_ops += samples * item.pairs * (item.width // item.head_width) * MATMUL_PRODUCTS[direction]
                case Lookup():
                    vector_ops += samples * item.tokens * item.width
                case VectorOps():
                    ops = item.forward if direction == "forward" else item.backward
                    vector_ops += samples * item.tokens * item.width * ops
        size = size if NUMBER_BYTES * size > CACHE_BYTES else 0
        times = MATMUL_PRODUCTS[direction]
        moved = sum(math.prod(shapes[name]) for name in (*op.inputs, *op.outputs))
        # The kernel is called once per panel of its matrices, or once.
        calls = max(1, sum(len(panels_of(self.graph.weights[matrix])) for matrix in matrices_of(op)))
        return Work(
            calls=calls,
            shared_calls=calls if self.lanes > 1 else 0,
            flops=flops,
            vector_ops=vector_ops,
            weight_bytes=NUMBER_BYTES * size * density * times,
            activation_bytes=NUMBER_BYTES * samples * moved * times,
        )


def fit_cost(works: Sequence[Work], seconds: Sequence[float]) -> Cost:
    """Return the cost that is nearest to measurements, relative errors counting alike, none of its numbers negative.

    Example: a call with nothing to do takes 5 us, one of a million FLOP 15 us, one of four million 45 us.

    >>> found = fit_cost([Work(1, 0, flops, 0.0, 0.0, 0.0) for flops in (0.0, 1e6, 4e6)], [5e-6, 15e-6, 45e-6])
    >>> f"{found.call_s:.2g} s a call, {1e-9 / found.flop_s:.0f} GFLOP/s"
    '5e-06 s a call, 100 GFLOP/s'
    """
    return Cost(*fit_rates(works, seconds, seconds))


def fit_rates(rows: Sequence[Sequence[float]], seconds: Sequence[float], scale: Sequence[float]) -> list[float]:
    """Return numbers, none of them negative, with which rows come nearest to measurements, by least squares.

    Args:
        rows: amounts
        seconds, scale: their measured times; divisors of the errors
    """
    # Its import takes long, and only measurements of the host need it.
    from scipy.optimize import nnls

    amounts = np.array(rows, np.float64)
    unit = np.maximum(np.abs(amounts).max(axis=0), 1e-300)
    weight = 1.0 / np.asarray(scale, np.float64)
    found, _ = nnls(amounts / unit * weight[:, None], np.asarray(seconds, np.float64) * weight)
    return [float(value) for value in found / unit]


def rest_row(lanes: int, ops: int, compute_s: float) -> tuple[float, float, float]:
    """Factors of `step_s`, `stage_s` and `uneven` in a step of `ops` ops, with `compute_s` of a lane."""
    return (1.0, 2.0 * ops, compute_s) if lanes > 1 else (1.0, 0.0, 0.0)


def predict_step(graph: Graph, rates: HostRates, setup: HostSetup) -> HostStep:
    """Return the predicted time of a training step.

    The ops beyond a barrier run once, on one thread, for all samples that meet here, and are part of the rest; of
    its scores only the reading and writing of embeddings counts, not their product.
    """
    grains_of_lane = int(ceil_div(setup.grains, setup.lanes))
    on_host = OnHost(graph, setup.grain_samples, setup.keeps, setup.lanes)
    totals = dict.fromkeys(("forward", "again", "backward"), 0.0)
    seen: set[str] = set()
    read_share = _read_share(graph, setup)
    ops, again_ops = [], []
    before = graph if graph.barrier is None else graph.barrier.before
    forward_passes, _ = passes(setup.waves, meets=graph.barrier is not None)
    repeats = forward_passes - setup.waves
    repeated = repeats / setup.waves
    for op in before.ops:
        density = _density(graph, op, setup)
        kind = kind_of(op, density)
        times = {}
        for direction in PASSES:
            cost = rates.costs[f"{kind} {direction}"]
            if op.kind is OpKind.ATTENTION:
                cost = Cost(cost.call_s, cost.shared_s, *(each / setup.sharing for each in cost.row[2:]))
            elif matrices_of(op):
                cost = dataclasses.replace(cost, flop_s=cost.flop_s / setup.sharing)
            times[direction] = grains_of_lane * cost.seconds(on_host.work(op, direction, density))
        is_frozen = op.name in graph.frozen_ops
        if is_frozen:
            times["backward"] = 0.0
        again = times["forward"] if op.name in setup.recomputed else 0.0
        totals["forward"] += (1 + repeated) * times["forward"]
        totals["again"] += again
        totals["backward"] += times["backward"]
        own = [name for name in op.weights if name not in seen]
        seen.update(own)
        kept = sum(round(graph.weights[name].size * setup.densities.get(name, 1.0)) for name in op.weights)
        weights = sum(round(graph.weights[name].size * setup.densities.get(name, 1.0)) for name in own)
        pass_bytes = setup.memoryx_share * read_share * NUMBER_BYTES * kept
        if repeats:
            again_bytes = round(repeats * pass_bytes)
            again_ops.append(
                StreamedOp(
                    f"{op.name} once more", repeated * times["forward"], 0.0, 0.0, again_bytes, streams_for_delta=False
                )
            )
        ops.append(
            StreamedOp(
                name=op.name,
                forward_s=times["forward"],
                delta_s=again + times["backward"],
                gradient_s=0.0,
                weight_bytes=round(setup.waves * pass_bytes),
                gradient_bytes=0 if is_frozen else round(setup.memoryx_share * NUMBER_BYTES * kept),
                weights=0 if is_frozen else round(setup.memoryx_share * weights),
                streams_for_delta=not is_frozen,
            )
        )
    cluster = _cluster(rates, setup)
    sections = (Section(tuple(ops)), *([Section(tuple(again_ops))] if again_ops else []))
    seconds = simulate(Schedule(sections, cluster)).step_s + _meeting_s(graph, rates, setup)
    row = rest_row(setup.lanes, len(ops), sum(totals.values()))
    rest = sum(rate * amount for rate, amount in zip((rates.step_s, rates.stage_s, rates.uneven), row, strict=True))
    return HostStep(seconds + rest, totals["forward"], totals["again"], totals["backward"])


def _density(graph: Graph, op: Op, setup: HostSetup) -> float:
    """Return the share of non-zeros of the matrices of an op; 1 where it has none."""
    sizes = {name: graph.weights[name].size for name in matrices_of(op)}
    return (
        sum(size * setup.densities.get(name, 1.0) for name, size in sizes.items()) / sum(sizes.values())
        if sizes
        else 1.0
    )


def passes(waves: int, meets: bool) -> tuple[int, int]:
    """Number of passes of the waves of a batch forward, and back, all together.

    Where all samples of a batch meet at a barrier, all waves go forward before any goes back, and all but the last,
    which is still in memory, go forward once more before they go back: of three waves that is five times.

    >>> passes(3, meets=False), passes(3, meets=True)
    ((3, 3), (5, 3))
    """
    return 2 * waves - 1 if meets else waves, waves


def _meeting_s(graph: Graph, rates: HostRates, setup: HostSetup) -> float:
    """Time of the ops beyond a barrier, for all samples that meet here: a call of each op and pass [s]."""
    grains = setup.grains if setup.met_grains is None else setup.met_grains
    if graph.barrier is None or not grains:
        return 0.0
    on_host = OnHost(graph, grains * setup.grain_samples)
    return sum(
        rates.costs[f"{kind_of(op, 1.0)} {direction}"].seconds(on_host.work(op, direction))
        for op in graph.barrier.beyond.ops
        for direction in PASSES
    )


def _read_share(graph: Graph, setup: HostSetup) -> float:
    """Return the share of the weights that is not in the buffers of a file when it is streamed."""
    numbers = sum(
        weight.size * setup.densities.get(name, 1.0) * (1 + (0 if weight.frozen else setup.optimizer_states))
        for name, weight in graph.weights.items()
    )
    state_bytes = setup.memoryx_share * NUMBER_BYTES * numbers
    return max(0.0, 1.0 - setup.buffer_bytes / state_bytes) if state_bytes else 0.0


def _cluster(rates: HostRates, setup: HostSetup) -> Cluster:
    """Return this host as resources: memory without limit, or a file; updates on the lanes, or on cores beside them."""
    lanes = setup.lanes + setup.lanes_beside
    threads = max(1, rates.cores - lanes)
    shared = rates.cores <= lanes
    each = rates.update_s[setup.optimizer]
    states = setup.optimizer_states
    memory = math.inf
    if setup.memoryx_in_file:
        # Reads and writes of an update are different things to a disk; the cluster has one rate for both.
        moved, written = 2 * (1 + states), 1 + states
        read_rate = rates.read_bytes_per_s if setup.past_cache else rates.cached_bytes_per_s
        synced = setup.past_cache or setup.commits
        write_rate = rates.write_bytes_per_s if synced else rates.cached_bytes_per_s
        memory = moved / ((moved - written) / read_rate + written / write_rate)
    return Cluster(
        memory_bytes_per_s=memory,
        update_s_per_weight=each / (lanes if shared else threads),
        link_bytes_per_s=math.inf,
        io_bytes_per_s=math.inf,
        hops_s=0.0,
        prefetch_bytes=0,
        optimizer_states=states,
        waits_for_norm=setup.waits_for_norm,
        updates_on=COMPUTE if shared else PROCESSORS,
    )
