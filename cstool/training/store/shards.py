"""A MemoryX that is spread over several nodes: a file each, a shard, and all of them together as one saved state."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from cstool.foundation.words import counted
from cstool.training.store.checked_state import check_state
from cstool.training.store.commit_record import Extent, Extents
from cstool.training.store.committed_store import CommittedStore
from cstool.training.store.contiguous import Place
from cstool.training.store.crc32 import combine_crc32, crc32
from cstool.training.store.file_layout import VERSION, check_extent
from cstool.training.store.saved_state import PIECE, Array, Progress, SavedState, even_pieces, no_progress
from cstool.training.store.shard_folder import ShardFound, choose_shards
from cstool.training.store.shard_record import SHARD
from cstool.training.store.shard_tensors import Part, ShardSource, ShardTensor, join_shards


class CommittedShards(SavedState):
    """A commit of all shards of a MemoryX, a context manager. It has the methods of `CheckpointReader`.

    It equals the same commit in one file, in the order of a checkpoint. Links and values are the first shard's.

    Args:
        sources: of all shards, by node; closed with this object, or at once where they do not belong together

    Raises:
        StoreError: they do not belong together, are not of one step, or lack rows of a weight
        DamagedCheckpointError: an array differs from its description in the commit record of its shard
        ValueError: they do not come by node
    """

    def __init__(self, sources: Sequence[ShardSource]) -> None:
        self._sources = tuple(sources)
        with self._or_closed():
            self._tensors = join_shards(self._sources)
        record = self._sources[0].record
        self.path = self._sources[0].path
        self.step = record.step
        """last step before the commit"""
        self.format_version = f"MemoryX {VERSION} in {counted(len(self._sources), 'shard')}"
        self.is_bound, self.cstool_version = True, "not said"
        with suppress(LookupError, TypeError):
            self.cstool_version = str(record.values["__metadata__"][0]["version"])
        self._links = record.links
        self._values = {key: value for key, value in record.values.items() if key != SHARD}
        self._keys = [*self._tensors, *self._links, *self._values]
        self._orders: dict[str, Array] = {}
        """of a sparse weight: places of its numbers in the shard, in the order of a checkpoint"""

    @property
    def paths(self) -> tuple[Path, ...]:
        """See `SavedState.paths`."""
        return tuple(source.path for source in self._sources)

    def close(self) -> None:
        """See `Opened.close`."""
        with ExitStack() as all_of_them:
            for source in self._sources:
                all_of_them.callback(source.close)

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`. Every row is read once."""
        tensor = self._named(key)
        if tensor.owner is None:
            return even_pieces(self._verified(tensor))
        return self._sorted_pieces(tensor)

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        check_state(self)
        sizes = [sum(_array_bytes(source, name) for name in source.record.arrays) for source in self._sources]
        for number, source in enumerate(self._sources):
            before, total = sum(sizes[:number]), sum(sizes)

            def tell(done_bytes: int, _total_bytes: int, before: int = before, total: int = total) -> None:
                progress(before + done_bytes, total)

            source.verify_all(tell)

    def _named(self, key: str) -> ShardTensor:
        found = self._tensors.get(self._links.get(key, key))
        if found is None:
            raise self._lacks("tensor", key, [*self._tensors, *self._links])
        return found

    def _tensor(self, key: str) -> Place:
        return self._named(key).place

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        """Fill an array with rows of a tensor. Nothing is verified: `verify_all` and `pieces` do that."""
        tensor = self._named(key)
        if tensor.owner is not None:
            whole = np.empty(tensor.place.shape, tensor.place.dtype)
            tensor.parts[0].source.read(tensor.name, whole, 0, len(whole))
            np.copyto(out, whole[self._order(tensor.owner)[first:last]])
            return
        for part in tensor.parts:
            start, stop = max(first, part.first), min(last, part.last)
            if start < stop:
                at = part.at - part.first
                part.source.read(tensor.name, out[start - first : stop - first], start + at, stop + at)

    def _sorted_pieces(self, tensor: ShardTensor) -> Iterator[Array]:
        """Yield the numbers of an array of a sparse weight in the order of a checkpoint."""
        assert tensor.owner is not None, "it is sparse"
        whole, done = np.empty(tensor.place.shape, tensor.place.dtype), 0
        for piece in self._verified(tensor):
            some = piece[: max(0, len(whole) - done)]
            whole[done : done + len(some)] = some
            done += len(some)
        whole = whole[self._order(tensor.owner)]
        for start in range(0, whole.size, PIECE):
            yield whole[start : start + PIECE]

    def _order(self, owner: str) -> Array:
        if owner not in self._orders:
            tensor = self._tensors[owner]
            indices = np.empty(tensor.place.shape, tensor.place.dtype)
            tensor.parts[0].source.read(owner, indices, 0, len(indices))
            self._orders = {owner: np.argsort(indices, kind="stable")}
        return self._orders[owner]

    def _verified(self, tensor: ShardTensor) -> Iterator[Array]:
        """Yield the parts of a tensor in pieces of whole rows; an extent comes only after all of it is verified."""
        checksums = _Checksums(tensor.name)
        row_elements = math.prod(tensor.place.shape[1:])
        step = max(1, PIECE // max(1, row_elements))
        buffer = np.empty(0, tensor.place.dtype)
        for part in tensor.parts:
            extents, end = Extents(part.source.record.arrays[tensor.name]), part.at + part.last - part.first
            for found in extents.within(part.at, end):
                extent, checksum = extents.holding(found.start), 0
                for start in range(found.start, found.stop, step):
                    stop = min(start + step, found.stop)
                    if buffer.size < (stop - start) * row_elements:
                        buffer = np.empty((stop - start) * row_elements, tensor.place.dtype)
                    rows = buffer[: (stop - start) * row_elements]
                    part.source.read(tensor.name, rows.reshape(stop - start, *tensor.place.shape[1:]), start, stop)
                    checksum = crc32(rows.view(np.uint8).data, checksum)
                    if stop == found.stop:
                        checksums.add(
                            part, extent, found, checksum, (stop - found.start) * row_elements * rows.itemsize
                        )
                    yield rows


def _array_bytes(source: ShardSource, name: str) -> int:
    return math.prod(source.shape(name)) * np.dtype(source.dtype(name)).itemsize


class _Checksums:
    """Checksums of the extents of an array, whose parts come in any order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: defaultdict[tuple[int, Extent], list[tuple[int, int, int, int]]] = defaultdict(list)
        """of each extent: its parts read so far: first row and number of rows, checksum, bytes"""

    def add(self, part: Part, extent: Extent, found: Extent, checksum: int, size_bytes: int) -> None:
        """Note a part of an extent that was read; compare once all of it was, or raise DamagedCheckpointError."""
        parts = self._found[id(part.source), extent]
        parts.append((found.start, found.stop - found.start, checksum, size_bytes))
        if sum(rows for _, rows, _, _ in parts) == extent.stop - extent.start:
            whole = 0
            for _, _, each, each_bytes in sorted(parts):
                whole = combine_crc32(whole, each, each_bytes)
            check_extent(part.source.path, self._name, extent, whole)


def open_shards(folder: Path, found: Sequence[ShardFound], step: int, is_ours: bool = False) -> CommittedShards:
    """Open all shards of a folder as one saved state.

    Args:
        folder: that they are in
        found: of `find_shards`
        step: that all of them hold
        is_ours: whether the caller holds their locks

    Raises:
        StoreError: there are no such shards, they do not belong together, or a run uses them
        DamagedCheckpointError: one is damaged
    """
    with ExitStack() as undo:
        sources = [
            undo.enter_context(CommittedStore(folder / shard.name, at_step=step, is_ours=is_ours))
            for shard in choose_shards(folder, found, step)
        ]
        state = CommittedShards(sources)
        undo.pop_all()
    return state
