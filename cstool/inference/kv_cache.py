"""What attention keeps of the tokens so far: their keys and values, by op. It is on the systems, as activations are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cstool.ir import Graph, KernelKind, rules_of


def cache_bytes(graph: Graph, sequences: int, capacity: int) -> int:
    """Return what the cache of so many sequences takes, each of up to `capacity` tokens [bytes]."""
    return sum(2 * 4 * sequences * capacity * width for width in _widths(graph).values())


def _widths(graph: Graph) -> dict[str, int]:
    """Return the width of a token's keys, and of its values, by op."""
    attentions = [op for op in graph.ops if rules_of(op).anchor is KernelKind.ATTENTION]
    return {op.name: graph.tensors[op.inputs[1]].shape[-1] for op in attentions}


class KvCache:
    """Keys and values of every attention op.

    Args:
        graph: the model
        sequences: slots
        capacity: most tokens of a sequence
    """

    def __init__(self, graph: Graph, sequences: int, capacity: int) -> None:
        self.capacity = capacity
        self.keys: Mapping[str, np.ndarray] = self._arrays(graph, sequences)
        """(sequences, capacity, kv_heads * D) float32 by op"""
        self.values: Mapping[str, np.ndarray] = self._arrays(graph, sequences)

    def _arrays(self, graph: Graph, sequences: int) -> dict[str, np.ndarray]:
        return {name: np.empty((sequences, self.capacity, width), np.float32) for name, width in _widths(graph).items()}
