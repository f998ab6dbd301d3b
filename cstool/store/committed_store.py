"""The last commit of a MemoryX file, read as if it were a checkpoint, or written as one."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.errors import CheckpointError, DamagedCheckpointError, StoreError
from cstool.store.block_file import BlockFile, cannot
from cstool.store.checked_state import check_state
from cstool.store.checkpoint_format import INDICES, SPARSITY
from cstool.store.checkpoint_reader import CheckpointReader
from cstool.store.checkpoint_writer import CheckpointWriter
from cstool.store.commit_record import CommitRecord, Extent, Extents, read_record
from cstool.store.crc32 import crc32
from cstool.store.file_layout import VERSION, check_extent, lock_path, read_store, record_path
from cstool.store.pending_file import FileRange
from cstool.store.protocol import check_rows
from cstool.store.saved_state import PIECE, Meter, Progress, SavedState, no_progress
from cstool.store.store_lock import StoreLock

Array = NDArray[Any]


class CommittedStore(SavedState):
    """A commit of a MemoryX file that no run uses, a context manager. It has the methods of `CheckpointReader`.

    Sparse weights are in the order of a checkpoint: by their position in the weight, not by panel.

    Args:
        path: of the HDF5 file
        older: the commit before the last one; its slots may have been overwritten since
        is_ours: whether the caller holds the lock of the file

    Raises:
        StoreError: there is no such commit, or a run uses the file
        DamagedCheckpointError: the file or its commit record is damaged
    """

    def __init__(self, path: Path, *, older: bool = False, is_ours: bool = False) -> None:
        self.path = path
        with ExitStack() as undo:
            if not is_ours and path.parent.is_dir():
                undo.callback(StoreLock(lock_path(path), shared=True).close)
            record = read_record(record_path(path))
            if record is not None and older:
                record = record.older
            if record is None:
                raise StoreError(f"{path}: the MemoryX file must have been committed{' twice' * older}, it has not")
            self.record: CommitRecord = record
            self.format_version, self.is_bound, self.cstool_version = f"MemoryX {VERSION}", True, _written_by(record)
            self._keys = [*record.arrays, *record.links, *record.values]
            self._links, self._values = record.links, record.values
            self._places = read_store(path, record)
            self._extents = {name: Extents(extents) for name, extents in record.arrays.items()}
            self._orders: dict[str, Array] = {}
            """of sparse weights: where in the file the number is that comes next in a checkpoint"""
            self._counts = {f"model.{k}": v["non_zeros"] for k, v in record.values.get(SPARSITY, {}).items()}
            self._check_counts()
            try:
                # Whoever reads a whole commit does so once: nobody gains from having it in the page cache.
                self._file = BlockFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), uncached=True)
            except OSError as error:
                raise cannot(path, "be opened", error) from error
            undo.callback(self._file.close)
            undo.enter_context(self._file.in_order())
            self._undo = undo.pop_all()

    def close(self) -> None:
        """See `Opened.close`."""
        self._undo.close()

    def shape(self, key: str) -> tuple[int, ...]:
        """See `SavedState.shape`."""
        name = self._name(key)
        owner = self._owner(name)
        return self._places[name][0].shape if owner is None else (self._counts[owner],)

    def dtype(self, key: str) -> str:
        """See `SavedState.dtype`."""
        return self._places[self._name(key)][0].dtype

    def nbytes(self, key: str) -> int:
        """See `SavedState.nbytes`."""
        return int(np.prod(self.shape(key))) * np.dtype(self.dtype(key)).itemsize

    def read(self, key: str, out: Array | None = None, start: int | None = None, stop: int | None = None) -> Array:
        """Read a tensor, or a range of its rows. Nothing is verified: `verify` does that.

        Args:
            key: of a tensor or a link
            out: receives the rows, C-contiguous; None for a new array
            start, stop: the range of rows; None for the first and the end

        Raises:
            CheckpointError: there is no such tensor
            StoreError: the disk fails
            ValueError: the rows are out of range
        """
        name, shape = self._name(key), self.shape(key)
        first, last = start or 0, shape[0] if stop is None else stop
        check_rows(key, shape[0], first, last)
        if out is None:
            out = np.empty((last - first, *shape[1:]), self.dtype(key))
        owner = self._owner(name)
        if owner is None:
            self._read_stored(name, first, out)
        else:
            # Panel by panel in the file, and in another order within a panel.
            whole = np.empty(shape, self.dtype(key))
            self._read_stored(name, 0, whole)
            np.copyto(out, whole[self._order(owner)[first:last]])
        return out

    def in_order(self, key: str) -> Callable[[Array, int, int], object]:
        """Return a function read(out, start, stop)."""
        return lambda out, start, stop: self.read(key, out, start, stop)

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        name = self._name(key)
        if self._owner(name) is None:
            for extent in self._extents[name].all():
                yield from self._verified(name, extent)
            return
        for extent in self._extents[name].all():
            for _ in self._verified(name, extent):
                pass
        whole = self.read(name)
        for start in range(0, whole.size, PIECE):
            yield whole[start : start + PIECE]

    def ranges(self, key: str) -> list[FileRange] | None:
        """Ranges of the file with the bytes of a tensor; None where their order there is another one.

        Raises:
            CheckpointError: there is no such tensor
        """
        name = self._name(key)
        if self._owner(name) is not None:
            return None
        found = []
        for extent in self._extents[name].all():
            place = self._places[name][extent.slot]
            row_bytes = place.nbytes // max(1, place.shape[0])
            size_bytes, offset = (extent.stop - extent.start) * row_bytes, place.offset + extent.start * row_bytes
            found.append(FileRange(self._file.fileno(), offset, size_bytes, extent.crc32 or 0))
        return found

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        check_state(self)
        meter = Meter(sum(self._places[name][0].nbytes for name in self._places), progress)
        for name, extents in self._extents.items():
            for extent in extents.all():
                for _ in meter.through(self._verified(name, extent)):
                    pass

    def _verified(self, name: str, extent: Extent) -> Iterator[Array]:
        """Yield an extent in pieces, the last one when all are verified."""
        place = self._places[name][extent.slot]
        row_elements = math.prod(place.shape[1:])
        offset = place.offset + extent.start * row_elements * np.dtype(place.dtype).itemsize
        count, checksum = (extent.stop - extent.start) * row_elements, 0
        buffer = np.empty(min(PIECE, count), place.dtype)
        for start in range(0, count, PIECE):
            piece = buffer[: count - start]
            self._file.read(offset + start * buffer.itemsize, piece)
            checksum = crc32(piece.view(np.uint8).data, checksum)
            if start + PIECE >= count:
                check_extent(self.path, name, extent, checksum)
            yield piece

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
            place = self._places[name][extent.slot]
            row_bytes = place.nbytes // max(1, place.shape[0])
            self._file.read(place.offset + extent.start * row_bytes, out[extent.start - first : extent.stop - first])


def _written_by(record: CommitRecord) -> str:
    try:
        return str(record.values["__metadata__"][0]["version"])
    except (LookupError, TypeError):
        return "not said"


def committed_step(path: Path) -> int | None:
    """Return the step of the last commit of a file; None where there is none.

    Raises:
        StoreError: its commit record cannot be read
        DamagedCheckpointError: that is damaged
    """
    record = read_record(record_path(path))
    return None if record is None else record.step


def open_checkpoint(path: str | os.PathLike[str], *, older: bool = False) -> SavedState:
    """Open the file of a saved state for reading.

    Args:
        path: of the file
        older: of a MemoryX file, the commit before the last one

    Raises:
        DamagedCheckpointError: it is such a file, but damaged or not whole
        CheckpointError: it cannot be read, or is of no kind that is known
    """
    if os.path.lexists(record_path(Path(path))):
        return CommittedStore(Path(path), older=older)
    if older:
        raise CheckpointError(f"{path}: must be a MemoryX file with a commit record for --older, this has none")
    return CheckpointReader(path)


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
        StoreError: the file cannot be read
    """
    with CommittedStore(store, is_ours=True) as state:
        arrays = list(names)
        total_bytes = sum(map(state.nbytes, arrays))
        with CheckpointWriter(path, total_bytes) as writer:
            for name in arrays:
                ranges = state.ranges(name)
                if ranges is None:
                    writer.add_pieces(name, state.shape(name), state.dtype(name), state.pieces(name))
                else:
                    writer.add_ranges(name, state.shape(name), state.dtype(name), ranges)
            for alias, name in state.record.links.items():
                writer.link(alias, name)
            for key, value in state.values().items():
                writer.add_value(key, value)
    return total_bytes
