"""A node of MemoryX at another rank: it serves the requests of the first node."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError
from cstool.training.kernels.sparse import Pattern
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.sparse_weights import SparseWeight
from cstool.training.machine.ranks.calls import Answering, Function
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.nodes import CALLS, COMMITS, PatternSize, SparseSize
from cstool.training.machine.state import adopt_state
from cstool.training.store import CommittedStore, drop_shard

Array = np.ndarray[Any, Any]


class Node:
    """Serves the requests of the first node with the MemoryX of a rank that follows."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self._memoryx, self._arrays = memoryx, memoryx.arrays
        arrays, commits = memoryx.arrays, memoryx.commits
        self._shards: tuple[dict[Path, CommittedStore], ...] = {}, {}
        """the committed shards that rank 0 reads from this rank, by channel"""
        functions: dict[str, Function] = {
            "initialize": self._initialize,
            "reserve": memoryx.reserve,
            "adopt": self._adopt,
            "read": arrays.read_piece,
            "write": arrays.write_piece,
            "sparse begin": lambda name, dense: _size_after(arrays.sparse[name], SparseWeight.begin, dense),
            "sparse place": lambda name, indices: _size_after(arrays.sparse[name], SparseWeight.place, indices),
            "sparse write": lambda name, array, numbers: arrays.sparse[name].write(array, numbers),
            "sparse indices": lambda name, panel: arrays.sparse[name].indices_of(panel),
            "sparse read": lambda name, array, panel: arrays.sparse[name].read_of(array, panel),
        }
        beside: dict[str, Function] = {
            "await updates": self._await_updates,
            "commit": commits.commit,
            "end": commits.end,
            "drop": _drop,
        }
        self._answering = (
            Answering(link, CALLS, functions | _reading(self._shards[0])),
            Answering(link, COMMITS, beside | _reading(self._shards[1])),
        )
        link.on_failure(commits.end)

    def _initialize(self, seed: int) -> dict[str, SparseSize]:
        self._memoryx.initialize(seed)
        return sparse_sizes(self._memoryx)

    def _adopt(self) -> dict[str, SparseSize]:
        file = self._arrays.file
        assert file is not None, "what was committed is in files"
        file.verify()
        adopt_state(file, self._memoryx)
        return sparse_sizes(self._memoryx)

    def _await_updates(self) -> dict[str, SparseSize]:
        self._memoryx.commits.await_updates()
        return sparse_sizes(self._memoryx)

    def close(self) -> None:
        """Answer no more."""
        for answering in self._answering:
            answering.close()
        for opened in self._shards:
            for shard in opened.values():
                shard.close()


def sparse_sizes(memoryx: MemoryX) -> dict[str, SparseSize]:
    """Sizes of the sparse weights that a node keeps, by their names."""
    return {sparse.weight.name: _size_of(sparse) for sparse in memoryx.arrays.own_sparse()}


def _size_of(sparse: SparseWeight) -> SparseSize:
    """The size of a sparse weight that is kept here."""

    def of(pattern: Pattern) -> PatternSize:
        return PatternSize(pattern.shape, pattern.count, pattern.size_bytes)

    patterns = {} if sparse.capacity is None else {panel: of(sparse.pattern(panel)) for panel in sparse.panels}
    return SparseSize(sparse.capacity, patterns)


def _size_after(sparse: SparseWeight, change: Callable[[SparseWeight, Array], None], numbers: Array) -> SparseSize:
    change(sparse, numbers)
    return _size_of(sparse)


def _reading(opened: dict[Path, CommittedStore]) -> dict[str, Function]:
    """Functions with which rank 0 reads the committed shards here, by name; see `ShardElsewhere`."""

    def open_shard(path: Path, step: int, is_ours: bool) -> tuple[Any, dict[str, tuple[int, ...]], dict[str, str]]:
        found = opened[path] = CommittedStore(path, at_step=step, is_ours=is_ours)
        names = list(found.record.arrays)
        return found.record, {name: found.shape(name) for name in names}, {name: found.dtype(name) for name in names}

    return {
        "open shard": open_shard,
        "read shard": lambda path, key, start, stop: opened[path].read(key, None, start, stop),
        "verify shard": lambda path: opened[path].verify_all(),
        "close shard": lambda path: opened.pop(path).close(),
    }


def _drop(path: Path, name: str) -> None:
    with suppress(CheckpointError):
        drop_shard(path, name)
