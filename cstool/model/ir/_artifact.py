"""The artifact: the result of the compiler. Plain data; every cost that decides a choice is an integer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from cstool.foundation.brief import Brief
from cstool.model.ir._graph import Graph, Segment
from cstool.model.ir._op_kinds import KernelKind
from cstool.model.system import System

SCHEMA = 4
"""version of the artifact's layout"""
BOUNDS = ("compute", "link", "ingress", "egress")
"""limits of a phase of a kernel"""


class ExecutionMode(StrEnum):
    """How a model uses the wafer."""

    PIPELINED = "pipelined"
    """all weights stay on the wafer; every kernel has its region"""
    WEIGHT_STREAMING = "weight_streaming"
    """one kernel at a time on the whole wafer, its weights streamed through"""


@dataclass(frozen=True)
class FusedKernel:
    """Ops that follow each other in the stream and run as one kernel.

    Args:
        name: of the op that it is built around; `{n}` as in the names of a segment
        kind: of the op or ops that it is built around
        ops: names, in the order of the stream
        reads: activations that other kernels make, or inputs
        makes: activations that other kernels read
        weights: in the order of the stream
        keeps: activations, its own and others', that its backward pass reads
    """

    name: str
    kind: KernelKind
    ops: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    weights: tuple[str, ...]
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Region:
    """A rectangle of PEs.

    Args:
        x: of its west column, counted east from 0
        y: of its north row, counted south from 0
        width: [PEs]
        height: [PEs]
    """

    x: int
    y: int
    width: int
    height: int

    @property
    def pes(self) -> int:
        """Number of PEs."""
        return self.width * self.height

    def turned(self) -> "Region":
        """The same with columns for rows."""
        return Region(self.y, self.x, self.height, self.width)


@dataclass(frozen=True)
class Route:
    """A bundle of parallel lanes, each one PE wide, from one region's border to another's.

    The first lane begins in a PE at the border of the source's region, turns at the corners of `path`, and ends in a
    PE at the border of the target's. The others lie to its right, one PE each, seen along the path, and keep that order
    at corners: where the first lane turns from east to south at (x, y), lane k turns at (x - k, y + k). A path of a
    single PE counts as going east.

    Args:
        name: of the tensor that it carries
        source: number of the stage; -1 is the west edge of the replica, column 0: each lane begins in a PE of it. How
            samples get there, over other replicas too, is not part of a plan: colors kept for I/O carry them
        target: number of the stage
        kind: "activation", "delta", "tie" or "input"
        color: of all its lanes, in every router they pass; no other route has it in any of these
        lanes: number of lanes
        path: corners (x, y) of the first lane, with its first and last PE
    """

    name: str
    source: int
    target: int
    kind: str
    color: int
    lanes: int
    path: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SramEntry:
    """One line of the account of a PE's memory.

    Args:
        name: of its content
        bytes: of one PE
        arithmetic: how the number comes about
    """

    name: str
    bytes: int
    arithmetic: str


@dataclass(frozen=True)
class PhaseCycles:
    """Modelled cycles of one phase of a kernel, limit by limit; they run beside each other, and the largest counts.

    Args:
        compute: of the datapath and memory ports of the busiest PE
        link: of the busiest link between PEs
        ingress: of the links onto the wafer
        egress: of the links off the wafer
        latency: of the way over the wafer, on top of the largest
    """

    compute: int
    link: int
    ingress: int
    egress: int
    latency: int

    @property
    def cycles(self) -> int:
        """Of the phase."""
        return max(self.compute, self.link, self.ingress, self.egress) + self.latency

    @property
    def fabric_cycles(self) -> int:
        """Of the phase, were the links onto and off the wafer without limit."""
        return max(self.compute, self.link) + self.latency

    @property
    def bound(self) -> str:
        """The limit that counts."""
        limits = {name: getattr(self, name) for name in BOUNDS}
        return max(limits, key=lambda name: limits[name])

    def times(self, count: int) -> "PhaseCycles":
        """The phase, repeated a number of times."""
        if count == 1:
            return self
        return PhaseCycles(*(count * getattr(self, each.name) for each in fields(self)))


@dataclass(frozen=True)
class KernelCycles:
    """Modelled cycles of a kernel.

    Args:
        forward: activations
        delta: of its inputs, in the backward pass
        gradient: of its weights
        recomputes: number of repetitions of the forward pass in the backward pass
    """

    forward: PhaseCycles
    delta: PhaseCycles
    gradient: PhaseCycles
    recomputes: int = 0

    @property
    def recompute_cycles(self) -> int:
        """Of the forward passes that backward repeats."""
        return self.recomputes * self.forward.cycles

    @property
    def total(self) -> int:
        """Of all phases."""
        return self.forward.cycles + self.delta.cycles + self.gradient.cycles + self.recompute_cycles


@dataclass(frozen=True)
class Recompute:
    """Which activations are computed again in the backward pass.

    Args:
        levels: number of further forward runs of a block, the mean over all blocks rounded up; 0 is never
        kept_blocks: largest number of blocks whose inputs are held at a time
    """

    levels: int
    kept_blocks: int = 0


@dataclass(frozen=True)
class Layout:
    """How activations lie on the wafer in weight streaming: tokens over rows, hidden over columns.

    Args:
        groups: of columns side by side, each with samples of its own; weights are multicast to all
        columns: of a group [PEs]
        rows: [PEs]
        tokens_per_pe: of the micro-batch, in the fullest row
        parts: of the tokens of a sample, first ones first, that go through a layer one after the other
    """

    groups: int
    columns: int
    rows: int
    tokens_per_pe: int
    parts: int = 1

    @property
    def part(self) -> "Layout":
        """The layout of a part of the tokens: an equal share of each PE's tokens."""
        return replace(self, tokens_per_pe=-(-self.tokens_per_pe // self.parts), parts=1)


@dataclass(frozen=True)
class StreamedKernel:
    """A kernel of a segment on the whole wafer, for one micro-batch.

    Args:
        name: of the kernel
        inputs_per_pe: hidden elements of its input that the fullest PE holds
        outputs: rows of its weights, which arrive one after the other
        axpys_per_weight: PEs in a column that multiply each weight with their tokens; 0 without weights
        weight_count: elements streamed in; of sparse weights, the nonzeros
        stream_bytes: of all data that stream in, per pass
        gradient_bytes: streamed out, per micro-batch
        cycles: per micro-batch
        sram_bytes: of the fullest PE while it runs, all phases
        parts: of the tokens that it takes one after the other; its weights come, and gradients leave, once for each
    """

    name: str
    inputs_per_pe: int
    outputs: int
    axpys_per_weight: int
    weight_count: int
    stream_bytes: int
    gradient_bytes: int
    cycles: KernelCycles
    sram_bytes: int
    parts: int = 1


@dataclass(frozen=True)
class StreamingPlan:
    """Weight streaming: one kernel after the other.

    Args:
        layout: of the activations
        kernels: per segment of the graph
        sram: account of the fullest PE at the fullest moment
        fullest_kernel: that runs then
        colors: of the kernels' traffic, by kind of traffic
        prefetch_bytes: of weights that can be under way ahead of their kernel
        micro_batches: per step and CSX; as even as can be, the last ones may have a sample less
        streamed_bytes: of weights into each CSX, per step
        gradient_bytes: out of each CSX, per step
    """

    layout: Layout
    kernels: tuple[tuple[StreamedKernel, ...], ...]
    sram: tuple[SramEntry, ...]
    fullest_kernel: str
    colors: Mapping[str, int]
    prefetch_bytes: int
    micro_batches: int
    streamed_bytes: int
    gradient_bytes: int


@dataclass(frozen=True)
class Stage:
    """A kernel in its region, for one sample (pipelined).

    Args:
        name: of the kernel, its number written out
        kind: of the kernel
        region: within the rectangle of a replica
        orientation: "inputs over columns" or "inputs over rows"
        cycles: per sample
        is_memory_bound: its region was made larger than its work asks for
        in_flight: samples whose activations it holds, at most
        is_recomputed: activations made within it are computed again in the backward pass
        sram: account of its fullest PE
    """

    name: str
    kind: str
    region: Region
    orientation: str
    cycles: KernelCycles
    is_memory_bound: bool
    in_flight: int
    is_recomputed: bool
    sram: tuple[SramEntry, ...]

    @property
    def used_bytes(self) -> int:
        """Of its fullest PE [bytes]."""
        return sum(entry.bytes for entry in self.sram)


@dataclass(frozen=True)
class PipelinedPlan:
    """Pipelined: every kernel has its region, and all run at the same time.

    Args:
        replicas: (columns, rows) of copies of the whole model side by side
        replica_width: of each [PEs]
        replica_height: of each [PEs]
        stages: in the order of the stream
        routes: between regions of one replica
        kernel_colors: that kernels use within their regions, by kind of traffic
        bottleneck: number of the slowest stage
        update_cycles: modelled, of sums over replicas and of the update, once per step
        wire_pes: Manhattan distance of the centres of consecutive regions, added up [PEs]
    """

    replicas: tuple[int, int]
    replica_width: int
    replica_height: int
    stages: tuple[Stage, ...]
    routes: tuple[Route, ...]
    kernel_colors: Mapping[str, int]
    bottleneck: int
    update_cycles: int
    wire_pes: int


@dataclass(frozen=True)
class MemoryXNeed:
    """Memory that MemoryX must have. In pipelined mode, to begin with and for checkpoints.

    Args:
        weights_bytes: of the master weights; of sparse ones, the nonzeros and their positions
        optimizer_bytes: of the optimizer state beside them
        gradient_bytes: of gradients that wait for their update
        capacity_bytes: of the system's MemoryX; null where it has none
    """

    weights_bytes: int
    optimizer_bytes: int
    gradient_bytes: int
    capacity_bytes: int | None

    @property
    def total_bytes(self) -> int:
        """Sum of all parts."""
        return self.weights_bytes + self.optimizer_bytes + self.gradient_bytes


@dataclass(frozen=True)
class Alternative:
    """A mode that was considered.

    Args:
        mode: of execution
        step_cycles: modelled, of one step of all systems; None where it does not fit
        why: the reason why it does not fit, or its expected properties
    """

    mode: ExecutionMode
    step_cycles: int | None
    why: str


@dataclass(frozen=True, repr=False)
class Artifact(Brief):
    """A model compiled for a system.

    Args:
        schema: version of this layout
        cstool: version of the program
        inputs: part of the input -> its value or digest; equal inputs make equal artifacts
        system: the machine; `sources` are left out
        num_csx: number of systems
        batch_size: global
        tokens: per sample; 1 for models without a sequence
        operand_bits: of activations and the operands that they are multiplied with, on the wafer
        graph: the model, its ops in the order of the stream
        kernels: per segment of the graph
        mode: of execution
        reasons: why this one
        alternatives: all modes that were considered
        waits_for_norm: whether updates need the norm of all gradients
        micro_batch_size: samples that a CSX works on at a time, at most
        recompute: of activations
        streaming: the plan, in weight streaming
        pipelined: the plan, pipelined
        memoryx: the need of memory outside of the wafer
        step_cycles: modelled, of one step of all systems, with SwarmX and MemoryX around them
        active_pes: that have work
        sram_used_bytes: of the fullest PE
    """

    schema: int
    cstool: str
    inputs: Mapping[str, str]
    system: System
    num_csx: int
    batch_size: int
    tokens: int
    operand_bits: int
    graph: Graph
    kernels: tuple[tuple[FusedKernel, ...], ...]
    mode: ExecutionMode
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    waits_for_norm: bool
    micro_batch_size: int
    recompute: Recompute
    streaming: StreamingPlan | None
    pipelined: PipelinedPlan | None
    memoryx: MemoryXNeed
    step_cycles: int
    active_pes: int
    sram_used_bytes: int

    def streamed(self) -> Iterator[tuple[Segment, FusedKernel, StreamedKernel]]:
        """Kernels in weight streaming with their segments, in the order of the stream; none of a pipelined artifact."""
        planned = () if self.streaming is None else self.streaming.kernels
        for segment, kernels, streamed in zip(self.graph.segments, self.kernels, planned, strict=False):
            yield from ((segment, *each) for each in zip(kernels, streamed, strict=True))

    @property
    def filling_beats(self) -> int:
        """Beats in which a pipeline fills and drains: forward through all stages, back through trained ones."""
        assert self.pipelined is not None
        frozen = self.graph.frozen_ops
        forward_alone = (
            segment.count
            for segment, kernels in zip(self.graph.segments, self.kernels, strict=True)
            for kernel in kernels
            if frozen and all(segment.name_of(name) in frozen for name in kernel.ops)
        )
        return 2 * len(self.pipelined.stages) - 2 - sum(forward_alone)

    @property
    def fullest(self) -> tuple[str, tuple[SramEntry, ...]]:
        """The kernel with the fullest PE, and the account of that PE."""
        if self.streaming is not None:
            return self.streaming.fullest_kernel, self.streaming.sram
        assert self.pipelined is not None
        stage = max(self.pipelined.stages, key=lambda stage: stage.used_bytes)
        return stage.name, stage.sram

    @property
    def step_s(self) -> float:
        """Modelled time of a step [s]."""
        return self.step_cycles / self.system.clock_hz

    def facts(self) -> dict[str, str]:
        """See `Brief.facts`."""
        return {
            "model": f"{self.graph.name}, {self.graph.parameter_count:,} parameters",
            "systems": f"{self.num_csx} x {self.system.name}",
            "mode": self.mode.value,
            "batch": f"{self.batch_size:,} samples, {self.micro_batch_size:,} at a time on a system",
            "step": f"{self.step_s:.3g} s modelled",
            "PEs that work": f"{self.active_pes:,}",
            "fullest PE": f"{self.sram_used_bytes:,} of {self.system.pe.sram_bytes:,} bytes",
        }
