"""MemoryX with all its nodes: the first one is here, the others are at the ranks of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cstool.training.machine.budgets import update_threads
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.elsewhere import NOWHERE
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx_store import Backing
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.nodes import OtherNodes
from cstool.training.machine.ranks.orders import Begin, OtherRanks


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
    kept: KeptModel, backing: Backing, *, link: Link, lanes: int | None, seed: int, apart: int
) -> Spread:
    """Open the nodes of MemoryX, and have the other ranks get ready for the model.

    Args:
        link: to these
        lanes: host threads; None to choose
        seed: of the run
        apart: largest lead of the fastest lane over the slowest [panels]

    Raises:
        ClusterError: something is wrong at another rank
    """
    shards = backing.shards
    memoryx = MemoryX(
        kept,
        store=backing.store,
        threads=update_threads(lanes),
        waiting_bytes=backing.waiting_bytes,
        shards=shards,
        elsewhere=OtherNodes(link, shards.nodes) if link.ranks > 1 else NOWHERE,
    )
    memoryx.commits.outdated = backing.outdated
    others = OtherRanks(link, memoryx)
    taken = [kept.memoryx_bytes * size // max(1, sum(shards.shard_bytes)) for size in shards.shard_bytes]
    if memoryx.arrays.file is not None:
        taken = [memoryx.arrays.file.cache.limit_bytes + (backing.waiting_bytes or 0)] * shards.nodes
    taken += [0] * (link.ranks - shards.nodes)
    hosts = [link.hosts[rank] for rank in range(link.ranks)]
    begin = Begin(kept, backing._replace(store=None), seed, apart, hosts, taken)
    return Spread(memoryx, others, others.begin_model(begin))
