"""The last commit of a MemoryX file, read as if it were a checkpoint, or written as one."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError, StoreError
from cstool.training.store.block_file import BlockFile, cannot
from cstool.training.store.checked_state import check_state
from cstool.training.store.checkpoint_format import INDICES, SPARSITY
from cstool.training.store.checkpoint_writer import CheckpointWriter
from cstool.training.store.commit_record import CommitRecord, Extent, Extents, read_record
from cstool.training.store.contiguous import Place
from cstool.training.store.file_layout import VERSION, check_extent, lock_path, read_store, record_path
from cstool.training.store.pending_file import FileRange
from cstool.training.store.saved_state import (
    PIECE,
    Array,
    Meter,
    Progress,
    SavedState,
    even_pieces,
    no_progress,
    summed_pieces,
)
from cstool.training.store.store_lock import StoreLock


class CommittedStore(SavedState):
    """A commit of a MemoryX file that no run uses, a context manager. It has the methods of `CheckpointReader`.

    Sparse weights are in the order of a checkpoint: by their position in the weight, not by panel. Of a shard, all
    arrays are as they lie in the file, with the room that is made for more; `CommittedShards` puts them together.

    Args:
        path: of the HDF5 file
        older: the commit before the last one; its slots may have been overwritten since
        at_step: the commit of this step, the last one or the one before it
        is_ours: whether the caller holds the lock of the file

    Raises:
        StoreError: there is no such commit, or a run uses the file
        DamagedCheckpointError: the file or its commit record is damaged
    """

    def __init__(self, path: Path, *, older: bool = False, at_step: int | None = None, is_ours: bool = False) -> None:
        self.path = path
        with ExitStack() as undo:
            if not is_ours and path.parent.is_dir():
                undo.callback(StoreLock(lock_path(path), shared=True).close)
            record = read_record(record_path(path))
            if record is not None and older:
                record = record.older
            if record is None:
                raise StoreError(f"{path}: the MemoryX file must have been committed{' twice' * older}, it has not")
            if at_step is not None:
                record = record.of_step(path, at_step)
            self.record: CommitRecord = record
            self.format_version, self.is_bound, self.cstool_version = f"MemoryX {VERSION}", True, "not said"
            with suppress(LookupError, TypeError):
                self.cstool_version = str(record.values["__metadata__"][0]["version"])
            self._keys = [*record.arrays, *record.links, *record.values]
            self._links, self._values = record.links, record.values
            self._places = read_store(path, record)
            self._extents = {name: Extents(extents) for name, extents in record.arrays.items()}
            self._orders: dict[str, Array] = {}
            """of sparse weights: places of their numbers in the file, in the order of a checkpoint"""
            sparse = {} if record.shard is not None else record.values.get(SPARSITY, {})
            self._counts = {f"model.{weight}": described["non_zeros"] for weight, described in sparse.items()}
            self._check_counts()
            try:
                # A whole commit is read only once: it would gain nothing from the page cache.
                self._file = BlockFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), uncached=True)
            except OSError as error:
                raise cannot(path, "be opened", error) from error
            undo.callback(self._file.close)
            undo.enter_context(self._file.in_order())
            self._undo = undo.pop_all()

    def close(self) -> None:
        """See `Opened.close`."""
        self._undo.close()

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        name = self._name(key)
        if self._owner(name) is None:
            extents = self._extents[name].all()
            yield from even_pieces(chain.from_iterable(self._verified(name, extent) for extent in extents))
            return
        for extent in self._extents[name].all():
            for _ in self._verified(name, extent):
                pass
        whole = self.read(name)
        for start in range(0, whole.size, PIECE):
            yield whole[start : start + PIECE]

    def ranges(self, key: str) -> list[FileRange] | None:
        """Ranges of the file with the bytes of a tensor; None where their order there is another one."""
        name = self._name(key)
        if self._owner(name) is not None:
            return None
        found = []
        for extent in self._extents[name].all():
            place = self._places[name][extent.slot]
            size_bytes = (extent.stop - extent.start) * place.row_bytes
            found.append(FileRange(self._file.fileno(), place.at(extent.start), size_bytes, extent.crc32 or 0))
        return found

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        check_state(self)
        meter = Meter(sum(places[0].nbytes for places in self._places.values()), progress)
        for name, extents in self._extents.items():
            for extent in extents.all():
                for _ in meter.through(self._verified(name, extent)):
                    pass

    def _verified(self, name: str, extent: Extent) -> Iterator[Array]:
        """Yield an extent in pieces, the last one when all are verified."""
        place, check = self._places[name][extent.slot], partial(check_extent, self.path, name, extent)
        return summed_pieces(place, extent.start, extent.stop, self._file.read, check)

    def _check_counts(self) -> None:
        for owner, count in self._counts.items():
            for name in [owner, f"{owner}{INDICES}", *(n for n in self._places if self._owner(n) == owner)]:
                if name not in self._places or len(self._places[name][0].shape) != 1:
                    raise DamagedCheckpointError(f"{self.path}: {name} is damaged: it must be one row of numbers")
                if not 0 <= count <= self._places[name][0].shape[0]:
                    raise DamagedCheckpointError(
                        f"{self.path}: {name} is damaged: {count} numbers must lie in it, it has room for "
                        f"{self._places[name][0].shape[0]}"
                    )

    def _tensor(self, key: str) -> Place:
        name = self._name(key)
        place, owner = self._places[name][0], self._owner(name)
        return place if owner is None else place._replace(shape=(self._counts[owner],))

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        """Fill an array with rows of a tensor. Nothing is verified: `verify_all` and `pieces` do that."""
        name = self._name(key)
        owner = self._owner(name)
        if owner is None:
            self._read_stored(name, first, out)
        else:
            # Panel by panel in the file, and in another order within a panel.
            whole = np.empty(self.shape(key), self.dtype(key))
            self._read_stored(name, 0, whole)
            np.copyto(out, whole[self._order(owner)[first:last]])

    def _name(self, key: str) -> str:
        name = self.record.links.get(key, key)
        if name not in self._places:
            raise CheckpointError(f"{self.path}: the commit has no tensor {key}")
        return name

    def _owner(self, name: str) -> str | None:
        """Return the key of the sparse weight that an array belongs to; None for a dense one."""
        weight = name.removesuffix(INDICES)
        if not weight.startswith("model."):
            weight = f"model.{name.removeprefix('optimizer.').rpartition('.')[0]}"
        return weight if weight in self._counts else None

    def _order(self, owner: str) -> Array:
        if owner not in self._orders:
            indices = np.empty(self._counts[owner], self.dtype(f"{owner}{INDICES}"))
            self._read_stored(f"{owner}{INDICES}", 0, indices)
            self._orders = {owner: np.argsort(indices, kind="stable")}
        return self._orders[owner]

    def _read_stored(self, name: str, first: int, out: Array) -> None:
        for extent in self._extents[name].within(first, first + len(out)):
            offset = self._places[name][extent.slot].at(extent.start)
            self._file.read(offset, out[extent.start - first : extent.stop - first])


def committed_step(path: Path) -> int | None:
    """Return the step of the last commit of a file; None where there is none. See `read_record`."""
    record = read_record(record_path(path))
    return None if record is None else record.step


def write_snapshot(path: Path, store: Path, names: Iterable[str]) -> int:
    """Write a checkpoint. Nothing of it passes through this process where the system can copy by itself.

    Args:
        path: of the file to be
        store: the MemoryX file of this process, whose last commit must stay as it is meanwhile
        names: of the arrays, in the order of the checkpoint

    Returns:
        bytes of its tensors

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
    """
    with CommittedStore(store, is_ours=True) as state:
        arrays = list(names)
        total_bytes = sum(map(state.nbytes, arrays))
        with CheckpointWriter(path, total_bytes) as writer:
            for name in arrays:
                writer.add_pieces(name, state.shape(name), state.dtype(name), state.ranges(name) or state.pieces(name))
            for alias, name in state.record.links.items():
                if name in arrays:
                    writer.link(alias, name)
            for key, value in state.values().items():
                writer.add_value(key, value)
    return total_bytes
