"""The tensors that the shards of a MemoryX make up: places of all rows, after a check that none is missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from cstool.foundation.errors import DamagedCheckpointError, StoreError
from cstool.training.store.checkpoint_format import INDICES, SPARSITY
from cstool.training.store.commit_record import CommitRecord
from cstool.training.store.contiguous import Place
from cstool.training.store.protocol import written
from cstool.training.store.saved_state import Progress
from cstool.training.store.shard_folder import shard_name
from cstool.training.store.shard_record import Shard

_TOGETHER = "bring back those that belong together"


class ShardSource(Protocol):
    """A commit of one shard, open for reading: a `CommittedStore` of its file, or a client of the node that has it.

    Arrays are as they lie in the shard: a dense one has the rows of the shard one after the other, one of a sparse
    weight has its numbers panel by panel, and behind them the room that is made for more.
    """

    @property
    def record(self) -> CommitRecord:
        """The commit."""

    @property
    def path(self) -> Path:
        """The file, for errors."""

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of an array: a dense one has the rows of the shard, a sparse one the room."""

    def dtype(self, key: str) -> str:
        """Name of an array's dtype."""

    def read(self, key: str, out: NDArray[Any], start: int, stop: int) -> object:
        """Fill `out` (stop - start, *shape[1:]), C-contiguous, with rows of the shard; nothing is verified.

        Raises:
            StoreError: they cannot be read
        """

    def verify_all(self, progress: Progress) -> None:
        """Verify all checksums of the commit, or raise DamagedCheckpointError."""

    def close(self) -> None:
        """Let go of it. Closing twice is fine."""


class Part(NamedTuple):
    """Rows of a tensor that lie one after the other in a shard."""

    source: ShardSource
    first: int
    """row of the tensor"""
    last: int
    """row after them"""
    at: int
    """row of the shard's array that they begin at"""


@dataclass(frozen=True)
class ShardTensor:
    """A tensor of a checkpoint, and the places of its rows."""

    name: str
    place: Place
    """its shape and dtype in a checkpoint"""
    parts: tuple[Part, ...]
    """in the order of its rows; of a sparse weight one, the array with its room"""
    owner: str | None = None
    """of arrays of a sparse weight: the name of the array with the positions of its numbers"""


def join_shards(sources: Sequence[ShardSource]) -> dict[str, ShardTensor]:
    """Return the tensors that shards make up, in the order of a checkpoint.

    Args:
        sources: of all shards, by node

    Raises:
        StoreError: they do not belong together, or not every row of every weight is in one of them
        DamagedCheckpointError: an array differs from its description in the commit record
        ValueError: they do not come by node
    """
    if not sources:
        raise ValueError("a MemoryX must have shards, got none")
    shards = [_shard_of(source) for source in sources]
    _check_together(sources, shards)
    tensors: dict[str, ShardTensor] = {}
    arrays = [_by_weight(source) for source in sources]
    for weight in shards[0].weights:
        holders = [
            _Holder(s, shard, found.pop(weight, [])) for s, shard, found in zip(sources, shards, arrays, strict=True)
        ]
        rows = _check_rows(sources[0].path, weight, holders)
        for tensor in _tensors_of(weight, [holder for holder in holders if holder.shard.rows.get(weight)], rows):
            tensors[tensor.name] = tensor
    for source, found in zip(sources, arrays, strict=True):
        for names in found.values():
            raise StoreError(f"{source.path}: {names[0]} must be of a weight that the shard has rows of, it is not")
    return tensors


class _Holder(NamedTuple):
    """A shard, and its arrays of a weight."""

    source: ShardSource
    shard: Shard
    arrays: list[str]


def _shard_of(source: ShardSource) -> Shard:
    if source.record.shard is None:
        raise StoreError(f"{source.path}: must be a shard of a MemoryX, it has a whole one")
    return source.record.shard


def _check_together(sources: Sequence[ShardSource], shards: Sequence[Shard]) -> None:
    first, newest = sources[0], max(sources, key=lambda source: source.record.step)
    for source, shard in zip(sources, shards, strict=True):
        if (shard.set, shard.nodes, shard.weights) != (shards[0].set, shards[0].nodes, shards[0].weights):
            raise StoreError(f"{source.path}: must be of the same run as {first.path}, it is of another", _TOGETHER)
    for node in range(shards[0].nodes):
        if all(shard.node != node for shard in shards):
            raise StoreError(
                f"{first.path}: all {shards[0].nodes} shards of its MemoryX must be there, "
                f"{shard_name(node, shards[0].nodes)} is not"
            )
    if [shard.node for shard in shards] != [*range(shards[0].nodes)]:
        raise ValueError(f"shards must come by node, each once, got {[shard.node for shard in shards]}")
    for source in sources:
        if source.record.step != newest.record.step:
            raise StoreError(
                f"{source.path}: must be of step {newest.record.step}, as {newest.path}, got step {source.record.step}",
                _TOGETHER,
            )


def _by_weight(source: ShardSource) -> dict[str, list[str]]:
    """Return the arrays of a shard by their weight, in the order of a checkpoint: indices, weight, optimizer state."""
    found: dict[str, list[str]] = {}
    for name in source.record.arrays:
        part, _, rest = name.removesuffix(INDICES).partition(".")
        found.setdefault(rest.rpartition(".")[0] if part == "optimizer" else rest, []).append(name)
    for weight, names in found.items():
        firsts = [name for name in (f"model.{weight}{INDICES}", f"model.{weight}") if name in names]
        found[weight] = [*firsts, *(name for name in names if name not in firsts)]
    return found


def _check_rows(path: Path, weight: str, holders: Sequence[_Holder]) -> int:
    """Check that each row of a weight is in one shard, and return the number of its rows."""
    end = 0
    for start, stop in sorted(rows for holder in holders for rows in holder.shard.rows.get(weight, ())):
        if start != end:
            where = f"rows {end} to {start} are in none" if start > end else f"row {start} is in two"
            raise StoreError(f"{path}: the shards must have all rows of {weight} once, {where}")
        end = stop
    if not end:
        raise StoreError(f"{path}: the shards must have all rows of {weight} once, they have none")
    for holder in holders:
        if not holder.shard.rows.get(weight) and holder.arrays:
            raise StoreError(
                f"{holder.source.path}: {holder.arrays[0]} must be of a weight that the shard has rows of, it is not"
            )
        if holder.shard.rows.get(weight) and f"model.{weight}" not in holder.arrays:
            raise StoreError(f"{holder.source.path}: must have rows of {weight}, as its commit record says, it has not")
    return end


def _tensors_of(weight: str, holders: Sequence[_Holder], rows: int) -> Iterator[ShardTensor]:
    """Yield the tensors of a weight of `rows` rows."""
    first = holders[0]
    for holder in holders[1:]:
        if holder.arrays != first.arrays:
            raise StoreError(
                f"{holder.source.path}: must have the same arrays of {weight} as {first.source.path}, it has others"
            )
    described = first.source.record.values.get(SPARSITY, {}).get(weight)
    is_whole = first.shard.rows[weight] == ((0, rows),)
    if described is not None:
        if not is_whole:
            raise StoreError(f"{first.source.path}: all rows of {weight} must lie in one shard in order: it is sparse")
        yield from _sparse_tensors(weight, first, described)
        return
    for name in first.arrays:
        shape, dtype = first.source.shape(name), first.source.dtype(name)
        if is_whole and name != f"model.{weight}":
            yield ShardTensor(name, Place(shape, dtype, 0), (Part(first.source, 0, shape[0], 0),))
            continue
        parts = []
        for source, shard, _ in holders:
            wanted, got = (shard.row_count(weight), *shape[1:]), source.shape(name)
            if (got, source.dtype(name)) != (wanted, dtype):
                raise DamagedCheckpointError(
                    f"{source.path}: {name} is damaged: it must be {written(wanted, dtype)}, got "
                    f"{written(got, source.dtype(name))}"
                )
            at = 0
            for start, stop in shard.rows[weight]:
                parts.append(Part(source, start, stop, at))
                at += stop - start
        ordered = tuple(sorted(parts, key=lambda part: part.first))
        yield ShardTensor(name, Place((rows, *shape[1:]), dtype, 0), ordered)


def _sparse_tensors(weight: str, holder: _Holder, described: Mapping[str, Any]) -> Iterator[ShardTensor]:
    source, count, owner = holder.source, described["non_zeros"], f"model.{weight}{INDICES}"
    if owner not in holder.arrays:
        raise DamagedCheckpointError(f"{source.path}: {owner} is damaged: it must be there, {weight} is sparse")
    for name in holder.arrays:
        shape, dtype = source.shape(name), source.dtype(name)
        if len(shape) != 1:
            raise DamagedCheckpointError(f"{source.path}: {name} is damaged: it must be one row of numbers")
        if not 0 <= count <= shape[0]:
            raise DamagedCheckpointError(
                f"{source.path}: {name} is damaged: {count} numbers must lie in it, it has room for {shape[0]}"
            )
        yield ShardTensor(name, Place((count,), dtype, 0), (Part(source, 0, shape[0], 0),), owner)
