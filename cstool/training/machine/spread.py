"""MemoryX with all its nodes: the first one is here, the others are at the ranks of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cstool.model.ir import Graph
from cstool.model.optimizers import Optimizer
from cstool.training.machine.budgets import memoryx_bytes, update_threads
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.elsewhere import NOWHERE
from cstool.training.machine.memoryx.shards import Shards
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.memoryx_store import ShardFile
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.nodes import OtherNodes
from cstool.training.machine.ranks.orders import Begin, OtherRanks
from cstool.training.store import Store


class Spread(NamedTuple):
    """MemoryX at all ranks, which are ready for the model."""

    memoryx: MemoryX
    """the node here"""
    others: OtherRanks
    memory_bytes: Sequence[int]
    """memory of each of them for activations [bytes]"""

    def close(self) -> None:
        """End the threads, close the store."""
        self.others.close()
        self.memoryx.close()


def spread_memoryx(
    graph: Graph,
    optimizer: Optimizer | None,
    sparsity: SparsityRules,
    *,
    link: Link,
    shards: Shards,
    store: Store | None,
    file: ShardFile | None,
    waiting_bytes: int | None,
    lanes: int | None,
    seed: int,
    apart: int,
    **of_each: Any,
) -> Spread:
    """Open the nodes of MemoryX, and have the other ranks get ready for the model.

    Args:
        link: to these
        shards: the panels of each node
        store: of the node here; None for memory
        file: the file of each other node; None for memory
        lanes: host threads; None to choose
        seed: of the run
        apart: largest lead of the fastest lane over the slowest [panels]
        waiting_bytes, of_each: arguments of each `MemoryX`

    Raises:
        ClusterError: something is wrong at another rank
    """
    of_each |= {"optimizer": optimizer, "sparsity": sparsity, "waiting_bytes": waiting_bytes, "shards": shards}
    elsewhere = OtherNodes(link, shards.nodes) if link.ranks > 1 else NOWHERE
    memoryx = MemoryX(graph, store=store, threads=update_threads(lanes), elsewhere=elsewhere, **of_each)
    others = OtherRanks(link, memoryx)
    taken = [
        memoryx_bytes(graph, optimizer, sparsity, of_each.get("narrow", ())) * size // max(1, sum(shards.shard_bytes))
        for size in shards.shard_bytes
    ]
    if memoryx.arrays.file is not None:
        taken = [memoryx.arrays.file.cache.limit_bytes + (waiting_bytes or 0)] * shards.nodes
    taken += [0] * (link.ranks - shards.nodes)
    hosts = [link.hosts[rank] for rank in range(link.ranks)]
    return Spread(memoryx, others, others.begin_model(Begin(graph, seed, apart, of_each, file, hosts, taken)))
