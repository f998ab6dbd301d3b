"""The other nodes of MemoryX as a node sees them: the first one leads them, the others ask it for one thing alone."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel, Weight
from cstool.training.machine.memoryx.elsewhere import Elsewhere, Piece, Squares
from cstool.training.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.training.machine.memoryx.step_statistics import Seen
from cstool.training.machine.ranks.calls import Caller
from cstool.training.machine.ranks.link import Link
from cstool.training.store import Progress as BytesProgress
from cstool.training.store import RamStore, ShardSource
from cstool.training.store.saved_state import no_progress

Array = np.ndarray[Any, Any]
CALLS, COMMITS = "memoryx", "commits"
"""channels: calls between steps, and commits beside them"""
FETCHED_AHEAD = 3
"""pieces of an array that are on their way from other nodes at a time"""


@dataclass(frozen=True)
class PatternSize:
    """The pattern of a panel, as known at another node: its size alone; see `Pattern`."""

    shape: tuple[int, int]
    count: int
    size_bytes: int

    @property
    def density(self) -> float:
        """Share of the non-zeros."""
        return self.count / max(1, self.shape[0] * self.shape[1])


class SparseSize(NamedTuple):
    """A sparse weight, as known at another node: its sizes alone; see `SparseWeight`."""

    capacity: int | None
    patterns: Mapping[Panel, PatternSize]


class SparseElsewhere(SparseWeight):
    """A sparse weight that another node keeps: its size, as of the last call, and its numbers by calls."""

    def __init__(self, weight: Weight, panels: Sequence[Panel], rules: SparsityRules, call: Callable[..., Future[Any]]):
        super().__init__(weight, panels, rules, RamStore(), [f"model.{weight.name}"])
        self._call = call

    def see(self, size: SparseSize) -> None:
        """Take note of its size."""
        self.capacity, self._patterns = size.capacity, size.patterns  # type: ignore[assignment]

    def _ask(self, function: str, *arguments: Any, arrays: Sequence[Array] = ()) -> Any:
        return self._call(f"sparse {function}", self.weight.name, *arguments, arrays=arrays).result()

    def begin(self, dense: Array) -> None:
        """See `SparseWeight.begin`."""
        self.see(self._ask("begin", arrays=[dense]))

    def place(self, indices: Array, *, is_stored: bool = False) -> None:
        """See `SparseWeight.place`."""
        assert not is_stored, "who has the store looks there"
        self.see(self._ask("place", arrays=[indices]))

    def write(self, array: str, numbers: Array) -> None:
        """See `SparseWeight.write`."""
        self._ask("write", array, arrays=[numbers])

    def indices_of(self, panel: Panel) -> Array:
        """See `SparseWeight.indices_of`."""
        indices: Array = self._ask("indices", panel)
        return indices

    def read_of(self, array: str, panel: Panel) -> Array:
        """See `SparseWeight.read_of`."""
        numbers: Array = self._ask("read", array, panel)
        return numbers


class ShardElsewhere:
    """See `ShardSource`: a shard that another rank has.

    Args:
        call: calls a function at that rank
        is_ours: whether that rank holds the lock of the file
    """

    def __init__(self, call: Callable[..., Future[Any]], path: Path, step: int, is_ours: bool) -> None:
        self.path = path
        self._call = call
        self._shapes: dict[str, tuple[int, ...]]
        self._dtypes: dict[str, str]
        self.record, self._shapes, self._dtypes = call("open shard", path, step, is_ours).result()

    def shape(self, key: str) -> tuple[int, ...]:
        """See `ShardSource.shape`."""
        return self._shapes[key]

    def dtype(self, key: str) -> str:
        """See `ShardSource.dtype`."""
        return self._dtypes[key]

    def read(self, key: str, out: Array, start: int, stop: int) -> None:
        """See `ShardSource.read`."""
        np.copyto(out, self._call("read shard", self.path, key, start, stop).result())

    def verify_all(self, progress: BytesProgress = no_progress) -> None:  # noqa: ARG002
        """See `ShardSource.verify_all`."""
        self._call("verify shard", self.path).result()

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._call("close shard", self.path)


class ExpectCommit(NamedTuple):
    """Know that the step which was just finished will be committed."""


class Drain(NamedTuple):
    """Return the sizes of the own sparse weights, once all updates of the steps so far have been applied.

    An order and no call: a node may still be in the step that rank 0 has finished, and wait for sums of others.
    """


class OtherNodes(Elsewhere):
    """See `Elsewhere`.

    Args:
        nodes: of MemoryX; all but the first are at the ranks of their numbers
    """

    def __init__(self, link: Link, nodes: int) -> None:
        self._link, self._nodes = link, range(1, nodes)
        self._calls, self._commits = Caller(link, CALLS), Caller(link, COMMITS)
        self._sparse: dict[str, SparseElsewhere] = {}

    def _all(self, caller: Caller, function: str, *arguments: Any) -> list[Any]:
        """Call a function at all of them, and wait; their answers, in their order."""
        called = [caller.call(node, function, *arguments) for node in self._nodes]
        return [each.result() for each in called]

    def _order(self, order: ExpectCommit | Drain) -> None:
        for node in self._nodes:
            self._link.send(node, "order", order)

    def _see(self, sizes: Sequence[Mapping[str, SparseSize]]) -> None:
        for node in sizes:
            for name, size in node.items():
                self._sparse[name].see(size)

    def initialize(self, seed: int) -> Callable[[], None]:
        """See `Elsewhere.initialize`."""
        called = [self._calls.call(node, "initialize", seed) for node in self._nodes]
        return lambda: self._see([each.result() for each in called])

    def reserve(self) -> None:
        """See `Elsewhere.reserve`."""
        self._all(self._calls, "reserve")

    def drain(self) -> None:
        """See `Elsewhere.drain`."""
        self._order(Drain())
        self._see([self._link.receive(node, "drained") for node in self._nodes])

    def adopt(self) -> None:
        """See `Elsewhere.adopt`."""
        self._see(self._all(self._calls, "adopt"))

    def seen(self) -> list[Seen]:
        """See `Elsewhere.seen`."""
        return [self._link.receive(node, "seen") for node in self._nodes]

    def read(self, pieces: Sequence[Piece]) -> Generator[Array, None, None]:
        """See `Elsewhere.read`."""
        calls = (self._calls.call(piece.node, "read", piece) for piece in pieces)
        ahead = deque(islice(calls, FETCHED_AHEAD))
        while ahead:
            found = ahead.popleft().result()
            ahead.extend(islice(calls, 1))
            yield found

    def write(self, piece: Piece, rows: Array) -> Future[Any]:
        """See `Elsewhere.write`."""
        return self._calls.call(piece.node, "write", piece, arrays=[rows])

    def sparse_weight(self, node: int, weight: Weight, panels: Sequence[Panel], rules: SparsityRules) -> SparseWeight:
        """See `Elsewhere.sparse_weight`."""
        found = SparseElsewhere(weight, panels, rules, partial(self._calls.call, node))
        self._sparse[weight.name] = found
        return found

    def all_squares(self, own: Squares) -> Squares:
        """See `Elsewhere.all_squares`."""
        found = dict(own)
        for node in self._nodes:
            found |= self._link.receive(node, "squares")
        for node in self._nodes:
            self._link.send(node, "all squares", found)
        return found

    def begin_commit(self) -> None:
        """See `Elsewhere.begin_commit`."""
        self._order(ExpectCommit())

    def await_updates(self) -> None:
        """See `Elsewhere.await_updates`."""
        self._see(self._all(self._commits, "await updates"))

    def commit(self, values: Mapping[str, Any]) -> Callable[[], object]:
        """See `Elsewhere.commit`."""
        called = [self._commits.call(node, "commit", values) for node in self._nodes]
        return lambda: [each.result() for each in called]

    def end_commit(self) -> None:
        """See `Elsewhere.end_commit`."""
        self._all(self._commits, "end")

    def open_shard(self, rank: int, path: Path, step: int, *, beside: bool = False) -> ShardSource:
        """See `Elsewhere.open_shard`."""
        return ShardElsewhere(partial((self._commits if beside else self._calls).call, rank), path, step, beside)

    def drop(self, rank: int, path: Path, name: str) -> None:
        """See `Elsewhere.drop`."""
        self._commits.call(rank, "drop", path, name).result()


class AnotherNode(Elsewhere):
    """The others, as a node that is not the first sees them: it asks for one thing alone."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def all_squares(self, own: Squares) -> Squares:
        """See `Elsewhere.all_squares`."""
        self._link.send(0, "squares", dict(own))
        found: Squares = self._link.receive(0, "all squares")
        return found
