"""The artifact: the result of the compiler, plain data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cstool.foundation.brief import Brief
from cstool.model.ir._graph import Graph, Segment
from cstool.model.ir._op_kinds import KernelKind
from cstool.model.ir._plans import PipelinedPlan, SramEntry, StreamedKernel, StreamingPlan
from cstool.model.system import System

SCHEMA = 4
"""version of the artifact's layout"""


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
class Recompute:
    """Which activations are computed again in the backward pass.

    Args:
        levels: number of further forward runs of a block, the mean over all blocks rounded up; 0 is never
        kept_blocks: largest number of blocks whose inputs are held at a time
    """

    levels: int
    kept_blocks: int = 0


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
