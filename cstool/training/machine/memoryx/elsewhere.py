"""The other nodes of MemoryX, as the first one sees them: it begins, saves and loads for all of them."""

# ruff: noqa: ARG002 - a single node has no use for the arguments

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel, Weight
from cstool.training.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.training.machine.memoryx.step_statistics import Seen
from cstool.training.store import ShardSource

Array = np.ndarray[Any, Any]
Squares = Mapping[Panel, float]
"""sums of squares of the gradients of panels"""


class Piece(NamedTuple):
    """Rows of an array that one node keeps: the rows of a panel, or all of an array that has another shape."""

    array: str
    start: int
    stop: int
    """rows of the whole array"""
    node: int


class Elsewhere:
    """Requests of MemoryX to its other nodes, for a single node: there are none.

    Errors of other nodes are raised here, too.
    """

    def initialize(self, seed: int) -> Callable[[], None]:
        """Have them fill their weights; the returned function waits until they have. See `MemoryX.initialize`."""
        return lambda: None

    def seen(self) -> list[Seen]:
        """The statistics of each of them of the step before."""
        return []

    def reserve(self) -> None:
        """Have them make room; see `MemoryX.reserve`."""

    def drain(self) -> None:
        """Wait until they have done all that was asked of them; see `MemoryX.drain`."""

    def adopt(self) -> None:
        """Have them go on with the state in their files, and wait for that."""

    def read(self, pieces: Sequence[Piece]) -> Generator[Array, None, None]:
        """Yield the rows of pieces in order, fetched a little ahead."""
        assert not pieces, "all are here"
        yield from ()

    def write(self, piece: Piece, rows: Array) -> Future[Any]:
        """Have the rows of a piece written; they must not change until the future is done."""
        raise AssertionError(f"{piece.array} is here")

    def sparse_weight(
        self, node: int, weight: Weight, panels: Sequence[Panel], rules: SparsityRules
    ) -> SparseWeight | None:
        """A sparse weight that another node keeps; None if this node needs none of it."""
        return None

    def all_squares(self, own: Squares) -> Squares:
        """Squares of all panels, from the squares of this node. All nodes ask for them."""
        return own

    def begin_commit(self) -> None:
        """Let them know that the step which was just finished will be committed, before the next one begins."""

    def await_updates(self) -> None:
        """Wait until they have applied the updates of that step."""

    def commit(self, values: Mapping[str, Any]) -> Callable[[], object]:
        """Have them make their parts of it last; the returned function waits until they do."""
        return lambda: None

    def drop(self, rank: int, path: Path, name: str) -> None:
        """Have a rank delete a shard of another set than this one; see `drop_shard`."""

    def end_commit(self) -> None:
        """Let them know that all nodes have committed: the slots of the step before are free."""

    def open_shard(self, rank: int, path: Path, step: int, *, beside: bool = False) -> ShardSource:
        """Open a committed shard that another rank has.

        Args:
            beside: whether for a checkpoint beside the training, and the rank holds the lock of the file
        """
        raise AssertionError(f"{path} is here")


NOWHERE = Elsewhere()
"""all panels are here"""
