"""The work of a step of a cluster: its resources, kernels as ops of the stream, rates of the resources."""

from dataclasses import dataclass

from cstool.plan.timing import resources as on
from cstool.plan.timing.hosts import Feed

NUMBER_BYTES = 4
"""size of a weight, gradient or optimizer state in MemoryX"""


@dataclass(frozen=True)
class StreamedOp:
    """One repetition of a kernel, for one micro-batch.

    Args:
        name: of the kernel
        forward_s: of one system, as if links onto and off it had no limit [s]
        delta_s: the same; with `gradient_s`, its backward pass
        gradient_s: the same
        weight_bytes: into each system, per pass, over all parts; 0 without weights
        gradient_bytes: out of each system, over all parts
        weights: that MemoryX updates after this op's last gradient
        streams_for_delta: whether the delta needs the weights once more
        parts: in which the op takes its tokens one after the other; its gradient leaves in as many
    """

    name: str
    forward_s: float
    delta_s: float
    gradient_s: float
    weight_bytes: int = 0
    gradient_bytes: int = 0
    weights: int = 0
    streams_for_delta: bool = True
    parts: int = 1


@dataclass(frozen=True)
class Section:
    """Ops that follow each other, so many times.

    Args:
        ops: of one repetition
        count: of repetitions
        recomputes: number of times that backward repeats their forward pass
        names: of the ops in each repetition, no two alike; empty to number them
    """

    ops: tuple[StreamedOp, ...]
    count: int = 1
    recomputes: int = 0
    names: tuple[tuple[str, ...], ...] = ()

    def name_of(self, repetition: int, op: int) -> str:
        """Name of an op of a repetition."""
        if self.names:
            return self.names[repetition][op]
        return f"{self.ops[op].name}#{repetition}" if self.count > 1 else self.ops[op].name


@dataclass(frozen=True)
class Cluster:
    """Rates and sizes of the resources.

    Args:
        memory_bytes_per_s: of MemoryX's memory
        update_s_per_weight: of MemoryX's processors
        link_bytes_per_s: of a link of SwarmX, each direction
        io_bytes_per_s: onto and off a system, each direction
        hops_s: from MemoryX to a system, or back [s]
        prefetch_bytes: of weights that a system can hold ahead of their op
        optimizer_states: numbers of its state per weight
        waits_for_norm: whether updates need the norm of all gradients
        updates_on: resource that updates weights
        straggle: delay of the slowest system over the mean, relative to the mean
        reduce_bytes_per_s: of sums that a node of SwarmX makes; None where it adds as fast as its links carry
        norm_s: of the coordinator, from the last gradient to the norm of all, where updates wait for it [s]
    """

    memory_bytes_per_s: float
    update_s_per_weight: float
    link_bytes_per_s: float
    io_bytes_per_s: float
    hops_s: float
    prefetch_bytes: int
    optimizer_states: float
    waits_for_norm: bool
    updates_on: str = on.PROCESSORS
    straggle: float = 0.0
    reduce_bytes_per_s: float | None = None
    norm_s: float = 0.0

    @property
    def reduce_rate(self) -> float:
        """Of sums on their way to MemoryX [bytes/s]."""
        return min(self.link_bytes_per_s, self.reduce_bytes_per_s or self.link_bytes_per_s)

    @property
    def prefetch_s(self) -> float:
        """Of the stream that can be ahead [s]."""
        return self.prefetch_bytes / self.io_bytes_per_s

    def update_memory_s(self, weights: int, *, gradient_waited: bool) -> float:
        """Time of the memory to update so many weights [s].

        Weight and state are read and written; a gradient that waited is read. A million weights with two numbers of
        Adam's are 24 MB, 28 with the gradient, at 4 TB/s:

        >>> cluster = Cluster(4e12, 0.0, 150e9, 150e9, 5e-6, 0, optimizer_states=2, waits_for_norm=False)
        >>> [f"{1e6 * cluster.update_memory_s(1_000_000, gradient_waited=waited):.0f} us" for waited in (False, True)]
        ['6 us', '7 us']
        """
        moved = 2 * (1 + self.optimizer_states) + gradient_waited
        return NUMBER_BYTES * moved * weights / self.memory_bytes_per_s


@dataclass(frozen=True)
class Schedule:
    """The work of a step, and its resources.

    Args:
        sections: in the order of the stream
        cluster: the resources
        micro_batches: of each system
        input_bytes: of a micro-batch, from the input workers to a system
        feed: times of the hosts of a system; None where they take no time
    """

    sections: tuple[Section, ...]
    cluster: Cluster
    micro_batches: int = 1
    input_bytes: int = 0
    feed: Feed | None = None

    @property
    def gradients_wait(self) -> bool:
        """Whether sums of gradients are in the memory of MemoryX before the update."""
        in_parts = any(op.parts > 1 for section in self.sections for op in section.ops)
        return self.cluster.waits_for_norm or self.micro_batches > 1 or in_parts

    @property
    def norm_s(self) -> float:
        """Of the coordinator, for the norm of a step's gradients [s]."""
        has_gradients = any(op.gradient_bytes for section in self.sections for op in section.ops)
        return self.cluster.norm_s if self.cluster.waits_for_norm and has_gradients else 0.0
