"""System: one CS system and the cluster it stands in, as data. All numbers come from a system file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_IF_UNUSUAL = {"written if unusual": True}
"""metadata of a field that a file of an artifact has where it is not its default; `cstool.model.ir` reads it so"""


@dataclass(frozen=True)
class Fabric:
    """The rectangle of PEs that programs may use: x counts east, y south.

    Args:
        width: [PEs]
        height: [PEs]
    """

    width: int
    height: int

    @property
    def pes(self) -> int:
        """All of them."""
        return self.width * self.height


@dataclass(frozen=True)
class ProcessingElement:
    """One PE.

    Args:
        sram_bytes: its memory
        code_bytes: of that, programs and their tables
        stack_bytes: of that, stack and runtime state
        accumulator_cache_bytes: beside its memory, for sums that are at work
        banks: of its memory
        bank_word_bytes: successive words are in successive banks
        bank_conflict_factor: cycles of reads that meet in a bank, over cycles of reads that do not
        read_bytes_per_cycle: of its memory ports
        write_bytes_per_cycle: of its memory ports
        efficiency: sustained rate of kernels over the rate by all other numbers; the only number that is fitted
        simd: vector instruction -> elements per cycle: "fmach" (16-bit multiply-add), "fmachs" (16-bit operands, 32-bit
            sum), "fmacs" (32-bit multiply-add), "fadds" (32-bit add), "faddh" (16-bit add)
        vector_op_cycles: to start and stop one vector instruction
        vector_pad: vectors of 32-bit elements in memory are padded to a multiple of so many
        call_cycles: of a function that is called, beside its vector instructions
        fabric_elements_per_cycle: rate of a vector instruction with a fabric operand of 32 bits
        division_cycles: of one 32-bit division in software
    """

    sram_bytes: int
    code_bytes: int
    stack_bytes: int
    accumulator_cache_bytes: int
    banks: int
    bank_word_bytes: int
    bank_conflict_factor: int
    read_bytes_per_cycle: int
    write_bytes_per_cycle: int
    efficiency: float
    simd: Mapping[str, int]
    vector_op_cycles: int
    vector_pad: int
    call_cycles: int
    fabric_elements_per_cycle: int
    division_cycles: int

    @property
    def free_bytes(self) -> int:
        """SRAM that is left for data."""
        return self.sram_bytes - self.code_bytes - self.stack_bytes


@dataclass(frozen=True)
class Links:
    """The links between neighbouring PEs; each carries one wavelet per cycle and direction.

    Args:
        wavelet_bytes: payload of a wavelet
        hop_cycles: from router to router
        ramp_cycles: between a PE and its router, one way
        colors: that can be routed
        io_colors: number of these, the highest ones, that belong to input and output
    """

    wavelet_bytes: int
    hop_cycles: int
    ramp_cycles: int
    colors: int
    io_colors: int


@dataclass(frozen=True)
class MemoryXUnit:
    """MemoryX of a cluster.

    Args:
        capacity_bytes: largest there is
        units_bytes: capacities that can be had, in ascending order
        bytes_per_s: of its memory
        flops: of its processors, which update weights [FLOP/s]
        index_bytes: of the place of a weight that is not zero, on its way to a system
        gradient_bytes: of one gradient on its way back
    """

    capacity_bytes: int
    units_bytes: tuple[int, ...]
    bytes_per_s: float
    flops: float
    index_bytes: int
    gradient_bytes: int


@dataclass(frozen=True)
class SwarmXUnit:
    """SwarmX of a cluster: a tree whose nodes broadcast and reduce.

    Args:
        fan_out: systems or nodes that a node broadcasts to, and reduces from
        hop_s: from a node to the next [s]
        reduce_bytes_per_s: of sums that a node makes; None where it adds as fast as its links carry
        straggler_share: standard deviation of the time of a system for its work in a step, over its mean
    """

    fan_out: int
    hop_s: float
    reduce_bytes_per_s: float | None = field(default=None, metadata=_IF_UNUSUAL)
    straggler_share: float = field(default=0.0, metadata=_IF_UNUSUAL)


@dataclass(frozen=True)
class Release:
    """The properties of the hosts under one release of the software; None: unknown, takes no time.

    Args:
        tokens_per_s: that an input worker delivers of samples that are kept as tokens
        text_tokens_per_s: the same, of samples that are kept as text, and parsed each time
        step_s: of the coordinator, for each step [s]
        norm_s: of the coordinator, from the last gradient of a step to its norm, where updates wait for it [s]
        evaluation_s: from the last batch of an evaluation to its metrics [s]
        checkpoint_bytes_per_s: of a checkpoint on its way to its file
    """

    tokens_per_s: float | None = None
    text_tokens_per_s: float | None = None
    step_s: float | None = None
    norm_s: float | None = None
    evaluation_s: float | None = None
    checkpoint_bytes_per_s: float | None = None


@dataclass(frozen=True)
class HostsUnit:
    """The hosts of a cluster, but for the servers of MemoryX and SwarmX.

    Args:
        workers_per_csx: input workers that a run has for each system unless it asks for others
        workers_per_server: input workers that one activation server takes samples from
        server_bytes_per_s: that an activation server passes on
        releases: name -> properties of the hosts under that release of the software
    """

    workers_per_csx: int
    workers_per_server: int
    server_bytes_per_s: float
    releases: Mapping[str, Release]


@dataclass(frozen=True)
class ServersUnit:
    """The servers around the systems of a cluster: servers of MemoryX and SwarmX, and the hosts.

    Args:
        power_w: of a server [W]
        memoryx_nodes: servers of the MemoryX of a job, at the least
        memoryx_node_bytes: memory of each of them
        swarmx_nodes_per_csx: servers of SwarmX for each system
    """

    power_w: float
    memoryx_nodes: int
    memoryx_node_bytes: int
    swarmx_nodes_per_csx: int


@dataclass(frozen=True)
class Software:
    """The release of the software that drives a run, and the hosts that it has for each system.

    Args:
        release: its name
        workers: input workers of a system
        servers: activation servers of a system
        server_bytes_per_s: that each of them passes on
        worker_tokens_per_s: that each input worker delivers of this run's samples; None if they always keep up
        step_s: of the coordinator, for each step [s]
        norm_s: of the coordinator, from the last gradient of a step to its norm, where updates wait for it [s]
    """

    release: str
    workers: int
    servers: int
    server_bytes_per_s: float
    worker_tokens_per_s: float | None
    step_s: float
    norm_s: float


@dataclass(frozen=True)
class System:
    """One CS system, and the largest cluster of its kind.

    Args:
        name: of the file, for example cs2
        wafer: name of the wafer, for example WSE-2
        fabric: its PEs
        pe: each of them
        links: between them
        clock_hz: of the fabric [Hz]
        io_bytes_per_s: of all links off the wafer, each direction
        power_w: of one system at work [W]
        idle_power_w: of one system that waits [W]
        max_systems: of a cluster
        memoryx: None where there is none: weights cannot be streamed
        swarmx: None where there is none: a cluster is one system
        sources: dotted key of the file -> (status, source) of the number there
        hosts: None where nothing is known of them
        software: that drives them; None for hosts that take no time
        servers: around the systems, and their power; None: unknown
    """

    name: str
    wafer: str
    fabric: Fabric
    pe: ProcessingElement
    links: Links
    clock_hz: float
    io_bytes_per_s: float
    power_w: float
    idle_power_w: float
    max_systems: int
    memoryx: MemoryXUnit | None
    swarmx: SwarmXUnit | None
    sources: Mapping[str, tuple[str, str]] = field(compare=False, repr=False)
    hosts: HostsUnit | None = field(default=None, compare=False, repr=False)
    servers: ServersUnit | None = field(default=None, compare=False, repr=False)
    software: Software | None = field(default=None, metadata=_IF_UNUSUAL)

    def peak_flops(self, operand_bits: int) -> float:
        """Peak of the multiply-adds of all PEs that programs can use [FLOP/s]."""
        per_cycle = 2 * self.pe.simd["fmach" if operand_bits == 16 else "fmacs"]
        return self.fabric.pes * per_cycle * self.clock_hz
