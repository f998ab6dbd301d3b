"""The kernel: ops that run as one, and what of them backward needs."""

from dataclasses import dataclass
from enum import StrEnum


class KernelKind(StrEnum):
    """What a kernel is built around."""

    EMBEDDING = "embedding"
    """rows of a table looked up"""
    MATMUL = "matmul"
    """one or several products of the same activations with weights"""
    ATTENTION = "attention"
    """products of activations with activations"""
    LOSS = "loss"
    """the product with the output layer, and its cross entropy"""
    ELEMENTWISE = "elementwise"
    """no product: what no neighbour could take along"""


@dataclass(frozen=True)
class FusedKernel:
    """Ops that follow each other in the stream and run as one kernel.

    Args:
        name: of the op that it is built around; `{n}` as in the names of a segment
        kind: what it is built around
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
