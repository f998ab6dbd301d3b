"""Budgets of the host's memory: needs of weights, optimizer state and gradients, and room for activations."""

from cstool.foundation.errors import ClusterError
from cstool.foundation.host_memory import available_memory_bytes, memory_budget_bytes
from cstool.model.ir import Graph
from cstool.model.params import Params
from cstool.training.machine.buffers import PANELS_IN_FLIGHT, in_flight_bytes, most_in_flight_bytes
from cstool.training.machine.grains import available_cores
from cstool.training.machine.memoryx.kept_model import KeptModel

ACTIVATION_SHARE = 0.8
"""share for activations of the memory that weights, optimizer state and gradients leave; beyond it the activations
of layers are recomputed, and beyond that a batch goes in waves"""
MOST_IN_FLIGHT = 8
"""within a budget, panels of each size whose gradients may be on their way at a time, beside waiting gradients: one for
each level of the tree that sums them and for each lane, and the lead of the fastest lane (measured: up to 5.4,
with two lanes and eight grains)"""
BUFFER_SHARE = 0.5
"""largest share of a budget for the buffers of a MemoryX in a file"""


def update_threads(lanes: int | None) -> int:
    """Number of threads that apply updates beside the lanes: at least two, one computes while one waits."""
    return max(2, lanes or available_cores())


def activation_budget_bytes(kept: KeptModel, share: float = 1.0) -> int:
    """Memory for activations once everything else has its own [bytes].

    Args:
        share: part of MemoryX on this host

    Raises:
        ClusterError: everything else does not fit
    """
    free_bytes, need_bytes, optimizer = available_memory_bytes(), int(share * kept.memoryx_bytes), kept.optimizer
    if optimizer is not None and memory_budget_bytes() is not None:
        need_bytes += most_in_flight_bytes(kept.graph, MOST_IN_FLIGHT)
    if need_bytes > free_bytes:
        what = "its weights" if optimizer is None else "its weights, optimizer state and gradients"
        raise ClusterError(
            f"the model: {what} must fit the memory ({free_bytes:,} bytes are free), got {need_bytes:,} bytes",
            "--memoryx file keeps them on disk; a narrower model, a smaller vocabulary or fewer layers need less",
        )
    return int((free_bytes - need_bytes) * ACTIVATION_SHARE)


def file_memory_bytes(params: Params) -> int:
    """Memory for the buffers of a MemoryX in a file: as the params say, but within a budget at most a share of it.

    No bits depend on it.
    """
    if memory_budget_bytes() is None:
        return params.memoryx.memory
    return min(params.memoryx.memory, int(BUFFER_SHARE * available_memory_bytes()))


def streamed_activation_bytes(buffers_bytes: int, graph: Graph, nodes: int = 1) -> int:
    """Memory for activations beside a MemoryX in a file, of which a number of nodes are on this host [bytes].

    Args:
        buffers_bytes: limit of the buffers of a node
    """
    in_flight = in_flight_bytes(graph)
    if memory_budget_bytes() is not None:
        # Its buffers make room for each other, whichever their sizes.
        in_flight = MOST_IN_FLIGHT * in_flight // PANELS_IN_FLIGHT
    return max(0, int((available_memory_bytes() - nodes * (buffers_bytes + in_flight)) * ACTIVATION_SHARE))
