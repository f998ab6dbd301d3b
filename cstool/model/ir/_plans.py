"""The plans of the compiler: kernels one after the other over the whole wafer, or each in a region of its own.

Every cost that decides a choice is an integer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

BOUNDS = ("compute", "link", "ingress", "egress")
"""limits of a phase of a kernel"""


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
