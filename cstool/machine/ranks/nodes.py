"""The nodes of MemoryX at other ranks: as the first node, at rank 0, sees them, and what they do for it."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.errors import CheckpointError
from cstool.ir import Panel, Weight
from cstool.kernels.sparse import Pattern
from cstool.machine.memoryx import MemoryX
from cstool.machine.memoryx.elsewhere import Elsewhere, Piece, Squares
from cstool.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.machine.memoryx.step_statistics import Seen
from cstool.machine.ranks.calls import Answer, Answering, Caller, Function
from cstool.machine.ranks.link import Link
from cstool.machine.state import adopt_state
from cstool.store import CommittedStore, RamStore, ShardSource, drop_shard
from cstool.store import Progress as BytesProgress
from cstool.store.saved_state import no_progress

Array = np.ndarray[Any, Any]
CALLS, COMMITS = "memoryx", "commits"
"""channels: what happens between steps, and what goes on beside them"""
FETCHED_AHEAD = 3
"""pieces of an array that are on their way from other nodes at a time"""


@dataclass(frozen=True)
class PatternSize:
    """What is known elsewhere of the pattern of a panel; see `Pattern`."""

    shape: tuple[int, int]
    count: int
    size_bytes: int

    @property
    def density(self) -> float:
        """Share of the non-zeros."""
        return self.count / max(1, self.shape[0] * self.shape[1])


class SparseSize(NamedTuple):
    """What is known elsewhere of a sparse weight; see `SparseWeight`."""

    capacity: int | None
    patterns: Mapping[Panel, PatternSize]


class SparseElsewhere(SparseWeight):
    """A sparse weight that another node keeps: how large it is, as of the last call, and its numbers by calls."""

    def __init__(self, weight: Weight, panels: Sequence[Panel], rules: SparsityRules, call: Callable[..., Answer]):
        super().__init__(weight, panels, rules, RamStore(), [f"model.{weight.name}"])
        self._call = partial(call, weight.name)

    def see(self, size: SparseSize) -> None:
        """Take note of how large it is."""
        self.capacity, self._patterns = size.capacity, size.patterns  # type: ignore[assignment]

    def begin(self, dense: Array) -> None:
        """See `SparseWeight.begin`."""
        self.see(self._call("begin", arrays=[dense]).result)

    def place(self, indices: Array, *, is_stored: bool = False) -> None:
        """See `SparseWeight.place`."""
        assert not is_stored, "who has the store looks there"
        self.see(self._call("place", arrays=[indices]).result)

    def write(self, array: str, numbers: Array) -> None:
        """See `SparseWeight.write`."""
        self._call("write", array, arrays=[numbers])

    def indices(self) -> Generator[Array, None, None]:
        """See `SparseWeight.indices`."""
        for panel in self.panels:
            yield self._call("indices", panel).arrays[0]

    def read(self, array: str) -> Generator[Array, None, None]:
        """See `SparseWeight.read`."""
        for panel in self.panels:
            yield self._call("read", array, panel).arrays[0]


class OtherNodes(Elsewhere):
    """See `Elsewhere`.

    Args:
        nodes: of MemoryX; those but the first are at the ranks of their numbers
    """

    def __init__(self, link: Link, nodes: int) -> None:
        self._link, self._nodes = link, range(1, nodes)
        self._calls, self._commits = Caller(link, CALLS), Caller(link, COMMITS)
        self._sparse: dict[str, SparseElsewhere] = {}
        self._beginning: list[Future[Answer]] = []

    def _all(self, caller: Caller, function: str, *arguments: Any) -> list[Any]:
        """Call a function at all of them, and wait; what they answer, in their order."""
        called = [caller.call(node, function, *arguments) for node in self._nodes]
        return [each.result().result for each in called]

    def _see(self, sizes: Sequence[Mapping[str, SparseSize]]) -> None:
        for node in sizes:
            for name, size in node.items():
                self._sparse[name].see(size)

    def initialize(self, seed: int) -> None:
        """See `Elsewhere.initialize`."""
        self._beginning = [self._calls.call(node, "initialize", seed) for node in self._nodes]

    def end_initialize(self) -> None:
        """See `Elsewhere.end_initialize`."""
        self._see([each.result().result for each in self._beginning])

    def reserve(self) -> None:
        """See `Elsewhere.reserve`."""
        self._all(self._calls, "reserve")

    def drain(self) -> None:
        """See `Elsewhere.drain`."""
        self._see(self._all(self._calls, "drain"))

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
            yield found.arrays[0]

    def write(self, piece: Piece, rows: Array) -> Future[Answer]:
        """See `Elsewhere.write`."""
        return self._calls.call(piece.node, "write", piece, arrays=[rows])

    def sparse_weight(self, node: int, weight: Weight, panels: Sequence[Panel], rules: SparsityRules) -> SparseWeight:
        """See `Elsewhere.sparse_weight`."""

        def call(name: str, function: str, *arguments: Any, arrays: Sequence[Array] = ()) -> Answer:
            return self._calls.call(node, f"sparse {function}", name, *arguments, arrays=arrays).result()

        found = self._sparse[weight.name] = SparseElsewhere(weight, panels, rules, call)
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
        for node in self._nodes:
            self._link.send(node, "order", ExpectCommit())

    def await_updates(self) -> None:
        """See `Elsewhere.await_updates`."""
        self._see(self._all(self._commits, "await updates"))

    def commit(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """See `Elsewhere.commit`."""
        called = [self._commits.call(node, "commit", values) for node in self._nodes]

        def wait() -> None:
            for each in called:
                each.result()

        return wait

    def end_commit(self) -> None:
        """See `Elsewhere.end_commit`."""
        self._all(self._commits, "end")

    def open_shard(self, rank: int, path: Path, step: int, *, beside: bool = False) -> ShardSource:
        """See `Elsewhere.open_shard`."""
        return _ShardElsewhere(partial((self._commits if beside else self._calls).call, rank), path, step, beside)

    def drop(self, rank: int, path: Path, name: str) -> None:
        """See `Elsewhere.drop`."""
        self._commits.call(rank, "drop", path, name).result()


class _ShardElsewhere:
    """See `ShardSource`: a shard that another rank has.

    Args:
        call: calls a function at that rank
        is_ours: whether that rank holds the lock of the file
    """

    def __init__(self, call: Callable[..., Future[Answer]], path: Path, step: int, is_ours: bool) -> None:
        self.path = path
        self._call = call
        self._shapes: dict[str, tuple[int, ...]]
        self._dtypes: dict[str, str]
        self.record, self._shapes, self._dtypes = call("open shard", path, step, is_ours).result().result

    def shape(self, key: str) -> tuple[int, ...]:
        """See `ShardSource.shape`."""
        return self._shapes[key]

    def dtype(self, key: str) -> str:
        """See `ShardSource.dtype`."""
        return self._dtypes[key]

    def read(self, key: str, out: Array, start: int, stop: int) -> None:
        """See `ShardSource.read`."""
        np.copyto(out, self._call("read shard", self.path, key, start, stop).result().arrays[0])

    def verify_all(self, progress: BytesProgress = no_progress) -> None:  # noqa: ARG002
        """See `ShardSource.verify_all`."""
        self._call("verify shard", self.path).result()

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._call("close shard", self.path)


class _Shards:
    """The committed shards that rank 0 reads from this rank."""

    def __init__(self) -> None:
        self._open: dict[Path, CommittedStore] = {}

    @property
    def functions(self) -> dict[str, Function]:
        """What rank 0 calls, by name."""
        return {
            "open shard": self._open_shard,
            "read shard": lambda path, key, start, stop: Answer(arrays=[self._open[path].read(key, None, start, stop)]),
            "verify shard": self._verify,
            "close shard": self._close,
        }

    def _open_shard(self, path: Path, step: int, is_ours: bool) -> Answer:
        found = self._open[path] = CommittedStore(path, at_step=step, is_ours=is_ours)
        names = list(found.record.arrays)
        return Answer((found.record, {n: found.shape(n) for n in names}, {n: found.dtype(n) for n in names}))

    def _verify(self, path: Path) -> Answer:
        self._open[path].verify_all()
        return Answer()

    def _close(self, path: Path) -> Answer:
        self._open.pop(path).close()
        return Answer()

    def close(self) -> None:
        """Close what is open."""
        for each in self._open.values():
            each.close()


class ExpectCommit(NamedTuple):
    """Know that the step which was just finished will be committed."""


class AnotherNode(Elsewhere):
    """The others, as a node that is not the first sees them: it asks for one thing alone."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def all_squares(self, own: Squares) -> Squares:
        """See `Elsewhere.all_squares`."""
        self._link.send(0, "squares", dict(own))
        found: Squares = self._link.receive(0, "all squares")
        return found


class Node:
    """Does with the MemoryX of a rank that follows what the first node asks for."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self._memoryx, self._arrays = memoryx, memoryx.arrays
        calls: dict[str, Function] = {
            "initialize": self._initialize,
            "reserve": self._reserve,
            "drain": self._drain,
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
        self._shards = _Shards(), _Shards()
        calls |= self._shards[0].functions
        commits |= self._shards[1].functions
        self._answering = Answering(link, CALLS, calls), Answering(link, COMMITS, commits)
        link.on_failure(memoryx.commits.end)

    def _sizes(self) -> Answer:
        return Answer({sparse.weight.name: _size(sparse) for sparse in self._arrays.own_sparse()})

    def _initialize(self, seed: int) -> Answer:
        self._memoryx.initialize(seed)
        return self._sizes()

    def _reserve(self) -> Answer:
        self._memoryx.reserve()
        return Answer()

    def _drain(self) -> Answer:
        self._memoryx.drain()
        return self._sizes()

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
        return Answer(_size(self._arrays.sparse[name]))

    def _place_sparse(self, name: str, indices: Array) -> Answer:
        self._arrays.sparse[name].place(indices)
        return Answer(_size(self._arrays.sparse[name]))

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


def _drop(path: Path, name: str) -> Answer:
    with suppress(CheckpointError):
        drop_shard(path, name)
    return Answer()


def _size(sparse: SparseWeight) -> SparseSize:
    def of(pattern: Pattern) -> PatternSize:
        return PatternSize(pattern.shape, pattern.count, pattern.size_bytes)

    patterns = {} if sparse.capacity is None else {panel: of(sparse.pattern(panel)) for panel in sparse.panels}
    return SparseSize(sparse.capacity, patterns)
