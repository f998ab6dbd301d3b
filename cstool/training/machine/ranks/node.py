"""A node of MemoryX at another rank: it serves the requests of the first node."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.elsewhere import Piece
from cstool.training.machine.ranks.calls import Answer, Answering, Function
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.nodes import CALLS, COMMITS
from cstool.training.machine.ranks.shard_elsewhere import OpenShards
from cstool.training.machine.ranks.sparse_elsewhere import SparseSize, size_of
from cstool.training.machine.state import adopt_state
from cstool.training.store import drop_shard

Array = np.ndarray[Any, Any]


class Node:
    """Serves the requests of the first node with the MemoryX of a rank that follows."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self._memoryx, self._arrays = memoryx, memoryx.arrays
        calls: dict[str, Function] = {
            "initialize": self._initialize,
            "reserve": self._reserve,
            "adopt": self._adopt,
            "read": lambda piece: Answer(arrays=[self._arrays.read_piece(piece)]),
            "write": self._write,
            "sparse begin": self._begin_sparse,
            "sparse place": self._place_sparse,
            "sparse write": self._write_sparse,
            "sparse indices": lambda name, panel: Answer(arrays=[self._arrays.sparse[name].indices_of(panel)]),
            "sparse read": lambda name, array, panel: Answer(arrays=[self._arrays.sparse[name].read_of(array, panel)]),
        }
        commits: dict[str, Function] = {
            "await updates": self._await_updates,
            "commit": self._commit,
            "end": self._end_commit,
            "drop": _drop,
        }
        self._shards = OpenShards(), OpenShards()
        calls |= self._shards[0].functions
        commits |= self._shards[1].functions
        self._answering = Answering(link, CALLS, calls), Answering(link, COMMITS, commits)
        link.on_failure(memoryx.commits.end)

    def _sizes(self) -> Answer:
        return Answer(sparse_sizes(self._memoryx))

    def _initialize(self, seed: int) -> Answer:
        self._memoryx.initialize(seed)
        return self._sizes()

    def _reserve(self) -> Answer:
        self._memoryx.reserve()
        return Answer()

    def _adopt(self) -> Answer:
        file = self._arrays.file
        assert file is not None, "what was committed is in files"
        file.verify()
        adopt_state(file, self._memoryx)
        return self._sizes()

    def _write(self, piece: Piece, rows: Array) -> Answer:
        self._arrays.write_piece(piece, rows)
        return Answer()

    def _begin_sparse(self, name: str, dense: Array) -> Answer:
        self._arrays.sparse[name].begin(dense)
        return Answer(size_of(self._arrays.sparse[name]))

    def _place_sparse(self, name: str, indices: Array) -> Answer:
        self._arrays.sparse[name].place(indices)
        return Answer(size_of(self._arrays.sparse[name]))

    def _write_sparse(self, name: str, array: str, numbers: Array) -> Answer:
        self._arrays.sparse[name].write(array, numbers)
        return Answer()

    def _await_updates(self) -> Answer:
        self._memoryx.commits.await_updates()
        return self._sizes()

    def _commit(self, values: Mapping[str, Any]) -> Answer:
        self._memoryx.commits.commit(values)
        return Answer()

    def _end_commit(self) -> Answer:
        self._memoryx.commits.end()
        return Answer()

    def close(self) -> None:
        """Answer no more."""
        for each in (*self._answering, *self._shards):
            each.close()


def sparse_sizes(memoryx: MemoryX) -> dict[str, SparseSize]:
    """Sizes of the sparse weights that a node keeps, by their names."""
    return {sparse.weight.name: size_of(sparse) for sparse in memoryx.arrays.own_sparse()}


def _drop(path: Path, name: str) -> Answer:
    with suppress(CheckpointError):
        drop_shard(path, name)
    return Answer()
