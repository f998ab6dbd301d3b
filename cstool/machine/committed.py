"""Commits of MemoryX that a run may go on from: in one file, or in shards on the hosts of several ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cstool.store import FILE_NAME


class Committed(NamedTuple):
    """A commit of all nodes of a MemoryX."""

    folder: Path
    """on each host"""
    step: int
    name: str = ""
    """of the set of shards"""
    holders: Sequence[int] = (0,)
    """by node the rank that has its file"""

    @property
    def path(self) -> Path:
        """Of the file of the first node."""
        return self.folder / shard_name(0, len(self.holders))

    def is_in_place(self, nodes: int) -> bool:
        """Whether so many nodes have their files where they are."""
        return list(self.holders) == list(range(nodes))


def shard_name(node: int, nodes: int) -> str:
    return FILE_NAME if nodes == 1 else f"memoryx_{node + 1}_of_{nodes}.h5"
