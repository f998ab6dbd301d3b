"""The store in a file: an HDF5 file with two slots for every array, and a commit record that names the valid one.

An array that never changes once it has been filled has one slot.

HDF5 lays the file out (see `file_layout`) and never sees it again once it has been committed; bytes go to their
places directly, from several threads. Arrays that no commit keeps are in a file of its own, which has no name and goes
with the process.

Committed rows are never overwritten: a change goes to the other slot of its rows. A commit waits until the disk has
all changes, then replaces the record; from then on the slots that it no longer names are free.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import StoreError
from cstool.training.store.base_file import BaseFile
from cstool.training.store.block_file import BlockFile, Observer, Traffic, cannot
from cstool.training.store.commit_record import CommitRecord, Extent, Extents, write_record
from cstool.training.store.contiguous import Place
from cstool.training.store.crc32 import crc32
from cstool.training.store.file_layout import (
    ANOTHER_RUN,
    ScratchFile,
    SlotFile,
    check_extent,
    lock_path,
    record_path,
    records_to_adopt,
)
from cstool.training.store.folder import sweep_temporary
from cstool.training.store.panel_cache import PanelCache, Rows, TileBuffers
from cstool.training.store.protocol import check_like, check_rows, check_shape, written
from cstool.training.store.saved_state import Array, Progress, no_progress, summed_pieces
from cstool.training.store.store_lock import StoreLock


class FileStore:
    """A `Store` whose arrays are in a file.

    Args:
        path: of the HDF5 file; a new one has it from its first commit on
        memory_bytes: limit of the rows in memory
        slots: 2, so that commits are possible, or 1
        adopt: go on from the last commit of the file that is there; else make a new one, which takes its place as soon
            as anything is read or written
        at_step: with `adopt`, go on from the commit of this step; if it is the one before the last, the last one
        is given up, durably, before this returns
        direct: go past the page cache, where that can be
        base: has arrays that are only read where they lie, as long as the file does not have them; closed with the
            store
        check: called once no other run can use the file; raises if it must stay as it is

    Raises:
        StoreError: the file cannot be made or read, another run uses it, or it cannot be gone on from
        DamagedCheckpointError: it, or its commit record, is damaged
    """

    outlives = True
    in_place = False

    def __init__(
        self,
        path: Path,
        memory_bytes: int,
        *,
        slots: int = 2,
        adopt: bool = False,
        at_step: int | None = None,
        direct: bool = False,
        base: BaseFile | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.direct = direct
        """whether it was asked to go past the page cache"""
        self.base = base
        self.lock = StoreLock(lock_path(path))
        self.record: CommitRecord | None = None
        """the last commit; None before the first"""
        self._guard = threading.Lock()
        self._tiles = TileBuffers()
        self._closed = False
        self._failure: StoreError | None = None
        """the error after which nothing can be written"""
        self._settled = adopt
        """whether the disk has set the space aside"""
        with contextlib.ExitStack() as undo:
            undo.callback(self.lock.close)
            if base is not None:
                undo.callback(base.close)
            try:
                check()
                if base is not None and direct:
                    base.go_direct()
                last, self.record = records_to_adopt(path, at_step) if adopt else (None, None)
                sweep_temporary(path.parent, f"{path.name}.*.tmp", age_s=0)
                self._scratch = ScratchFile(path, direct=direct)
                undo.callback(self._scratch.close)
                self.file = SlotFile(path, slots, self.record, direct=direct)
                undo.callback(self.file.end)
                if self.record is not None and self.record is not last:
                    # Later writes go to slots that the last record names: it must not be found again.
                    write_record(record_path(path), self.record)
            except OSError as error:
                raise cannot(path, "be opened", error) from error
            undo.pop_all()
        self._places, self._adopted = dict(self.file.places), set(self.file.places)
        """of all arrays; arrays of the adopted file that have not been created again"""
        self._lent: dict[str, None] = {}
        """arrays that lie in the base"""
        arrays = {} if self.record is None else self.record.arrays
        self._committed, self._extents = ({name: Extents(each) for name, each in arrays.items()} for _ in range(2))
        self.cache = PanelCache(memory_bytes, self._layout_of, self._read_rows)

    # The protocol `Store`.

    def create(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, scratch: bool = False, fixed: bool = False
    ) -> None:
        """Create an array of zeros, as `Store.create` says; one that the last commit has is as it was then."""
        checked = check_shape(name, shape)
        with self._guard:
            self._check_open()
            if name in self._adopted:
                self._adopt(name, checked, dtype)
                return
            if name in self._places:
                raise ValueError(f"{name}: an array must be created once, it exists already")
            if self.base is not None and (lent := self.base.places.get(name)) is not None:
                if (lent.shape, lent.dtype) != (checked, dtype):
                    raise ValueError(f"{name}: must be as it lies in {self.base.path}, {written(*lent[:2])}")
                self._places[name], self._extents[name] = (lent,), Extents([Extent(0, lent.rows, 0, None)])
                self._lent[name] = None
                return
            try:
                if scratch:
                    self._places[name] = (self._scratch.make(name, checked, dtype),)
                else:
                    self._places[name] = self.file.make(name, checked, dtype, is_fixed=fixed)
            except OSError as error:
                raise cannot(self.path, "be laid out", error) from error
            self._extents[name] = Extents([Extent(0, checked[0], 0, None)])
            self._settled = False
            if not scratch:
                self._committed[name] = self._extents[name].copy()

    def names(self) -> list[str]:
        """Return the names of all arrays in the order of their creation."""
        with self._guard:
            self._check_open()
            return [name for name in self._places if name not in self._adopted]

    def lends(self, name: str) -> bool:
        """Whether an array lies in the base, so that it cannot be written."""
        return name in self._lent

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self._place(name).shape

    def dtype(self, name: str) -> str:
        """Return the name of an array's dtype."""
        return self._place(name).dtype

    def borrow(self, name: str, start: int, stop: int, *, fresh: bool = False) -> Array:
        """Return rows in memory, as `Store.borrow` says."""
        check_rows(name, self._place(name).shape[0], start, stop)
        self._settle()
        return self.cache.hold(Rows(name, start, stop), fresh=fresh)

    def give_back(self, name: str, start: int, stop: int, array: Array, *, changed: bool) -> None:
        """Give borrowed rows back, as `Store.give_back` says; changed ones have been written when it returns."""
        self._place(name)
        rows = Rows(name, start, stop)
        if not self.cache.is_held(rows, array):
            raise ValueError(f"{name}: rows {start}:{stop} must be given back as they were borrowed, they were not")
        try:
            if changed:
                self._write(name, start, stop, array)
        finally:
            if changed:
                self.cache.forget(name, start, stop, but=rows)
            self.cache.let_go(rows)

    def read(self, name: str, start: int, out: Array) -> None:
        """Copy rows from the file, as `Store.read` says."""
        self._check_like(name, start, out)
        self._settle()
        self._read_rows(Rows(name, start, start + len(out)), out)

    def write(self, name: str, start: int, rows: Array) -> None:
        """Copy rows to the file, as `Store.write` says."""
        self._check_like(name, start, rows)
        self._settle()
        self._write(name, start, start + len(rows), rows)
        self.cache.forget(name, start, start + len(rows))

    def rewrite(
        self,
        names: Sequence[str],
        start: int,
        stop: int,
        change: Callable[[list[Array], int, int], None],
        reads: Sequence[str] = (),
    ) -> None:
        """Change the same rows of several arrays, tile by tile, as `Store.rewrite` says."""
        for name in (*names, *reads):
            check_rows(name, self._place(name).shape[0], start, stop)
        self._settle()
        claims = [(rows, self.cache.claim(rows)) for rows in (Rows(name, start, stop) for name in names)]
        arrays = [*claims, *((Rows(name, start, stop), None) for name in reads)]
        try:
            checksums: list[int | None] = [0] * len(names)
            step = self._tiles.rows_of(max(self._places[rows.name][0].row_bytes for rows, _ in arrays))
            for first in range(start, stop, step):
                last = min(first + step, stop)
                tiles = [
                    self._tile(index, Rows(rows.name, first, last), held, start)
                    for index, (rows, held) in enumerate(arrays)
                ]
                change(list(tiles), first, last)
                for index, name in enumerate(names):
                    self._write_tile(name, first, tiles[index])
                    checksums[index] = self._checksum_of(name, tiles[index], checksums[index])
            with self._guard:
                for name, checksum in zip(names, checksums, strict=True):
                    self._moved(name, start, stop, checksum)
        finally:
            for rows, held in claims:
                self.cache.disclaim(rows, held)
                self.cache.forget(rows.name, start, stop, but=rows)

    def expect(
        self, order: Sequence[tuple[str, int, int]], apart: int, doubtful: Collection[str] = frozenset()
    ) -> None:
        """Announce the rows that will be borrowed, as `Store.expect` says: they are fetched ahead."""
        self._settle()
        self.cache.expect([Rows(*rows) for rows in order], apart, doubtful)

    def want(self, rows: Sequence[tuple[str, int, int]], times: int) -> None:
        """Announce the doubtful rows that will be borrowed, as `Store.want` says: they are fetched ahead, too."""
        self.cache.want([Rows(*each) for each in rows], times)

    def observe(self, observer: Observer) -> None:
        """Have an observer told of every request to any file."""
        for file in self._files:
            file.observer = observer

    def close(self) -> None:
        """Let go of everything, the lock last; uncommitted rows are lost, a file without any commit is removed."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self.cache.close()
        self.file.end()
        self._scratch.close()
        if self.base is not None:
            self.base.close()
        if not os.path.lexists(self.path):
            self.lock.remove()
        self.lock.close()

    @property
    def slots(self) -> int:
        """Number of places of every array."""
        return self.file.slots

    @property
    def allocated_bytes(self) -> int:
        """Of rows in memory and of the tiles of all threads [bytes]."""
        return self.cache.allocated_bytes + self._tiles.allocated_bytes

    @property
    def traffic(self) -> Traffic:
        """Bytes read and written so far."""
        return sum((file.traffic for file in self._files), Traffic())

    @property
    def _files(self) -> list[BlockFile]:
        return [self.file, self._scratch, *([] if self.base is None else [self.base])]

    # Commits.

    def commit(self, values: Mapping[str, Any], links: Mapping[str, str]) -> None:
        """Make the present content of the arrays the valid one, durably. Nothing may be changed meanwhile.

        Args:
            values: the other values of a checkpoint; `global_step` is the step
            links: tied names and the arrays that they are links to

        Raises:
            StoreError: the disk is full or fails; the commit before it is as it was
        """
        if self.slots != 2:
            raise ValueError(f"{self.path}: a commit must have two slots, this store has {self.slots}")
        self._settle()
        with self._guard:
            kept = {name: self._extents[name] for name in self._committed}
        for name, extents in kept.items():
            for extent in extents.all():
                if extent.crc32 is None:
                    checksum = self._checksum(name, extent)
                    with self._guard:
                        extents.replace(extent._replace(crc32=checksum))
        arrays = {name: extents.all() for name, extents in kept.items()}
        record = CommitRecord(self.file.identity, dict(values), dict(links), arrays, self.record)
        try:
            self.file.make_sure()
            write_record(record_path(self.path), record)
        except (OSError, StoreError) as error:
            # The record may be there or not: neither its slots nor the slots of the one before it are free.
            self._failure = error if isinstance(error, StoreError) else cannot(self.path, "be committed", error)
            raise self._failure from error
        self.record = record
        with self._guard:
            self._committed = {name: Extents(found) for name, found in arrays.items()}

    def amend(self, values: Mapping[str, Any]) -> None:
        """Replace the values of the last commit, durably.

        Raises:
            StoreError: the disk is full or fails; the commit is as it was
        """
        if self.record is None:
            raise ValueError(f"{self.path}: the store must have been committed, it has not")
        record = replace(self.record, values=dict(values))
        write_record(record_path(self.path), record)
        self.record = record

    @property
    def committed_bytes(self) -> int:
        """Of all arrays of the last commit [bytes]."""
        return sum(self._places[name][0].nbytes for name in self._committed)

    @property
    def lent_bytes(self) -> int:
        """Of the arrays that lie in the base [bytes]."""
        return sum(self._places[name][0].nbytes for name in self._lent)

    def committed_rows(self, name: str, count: int) -> Array:
        """Return the first rows of an array of the last commit, created again or not, or raise StoreError."""
        if name not in self._places or not 0 <= count <= self._places[name][0].shape[0]:
            raise StoreError(f"{self.path}: must have {count} rows of {name}, it has not")
        shape, dtype = self._layout_of(Rows(name, 0, count))
        rows = np.empty(shape, dtype)
        self._read_rows(Rows(name, 0, count), rows)
        return rows

    def unclaimed(self) -> list[str]:
        """Return the arrays of the last commit that have not been created again."""
        return sorted(self._adopted)

    def verify(self, progress: Progress = no_progress) -> None:
        """Read all of the last commit, and raise DamagedCheckpointError at the first array with another checksum."""
        done, total = 0, self.committed_bytes + self.lent_bytes
        with self.file.in_order():
            for name, extents in self._committed.items():
                for extent in extents.all():
                    check_extent(self.path, name, extent, self._checksum(name, extent))
                    done += (extent.stop - extent.start) * self._places[name][0].row_bytes
                    progress(done, total)
        if self.base is not None:
            with self.base.in_order():
                for name in self._lent:
                    place = self._places[name][0]
                    self.base.check(name, self._checksum(name, Extent(0, place.rows, 0, None)))
                    done += place.nbytes
                    progress(done, total)

    # The file.

    def _adopt(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        place = self._places[name][0]
        if (place.shape, place.dtype) != (shape, dtype):
            raise StoreError(
                f"{self.path}: {name} must be {written(shape, dtype)}, got {written(place.shape, place.dtype)}",
                ANOTHER_RUN,
            )
        self._adopted.discard(name)
        # In the order of creation.
        self._places[name] = self._places.pop(name)

    def _settle(self) -> None:
        """End the laying out: HDF5 writes its metadata, the file gets its name, the disk sets the space aside."""
        if self._settled and not self._closed and self._failure is None:
            return
        with self._guard:
            self._check_open()
            self._check_usable()
            if self._settled:
                return
            try:
                self.file.settle(self._scratch)
                self._settled = True
            except (OSError, StoreError) as error:
                self._failure = error if isinstance(error, StoreError) else cannot(self.path, "be laid out", error)
                raise self._failure from error

    def _place(self, name: str) -> Place:
        with self._guard:
            self._check_open()
            if name not in self._places or name in self._adopted:
                raise KeyError(f"{name}: there is no such array in the store")
            return self._places[name][0]

    def _check_like(self, name: str, start: int, rows: Array) -> None:
        place = self._place(name)
        check_like(name, place.shape, place.dtype, rows)
        check_rows(name, place.shape[0], start, start + len(rows))

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store must be open, it was closed")

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _file_of(self, name: str) -> BlockFile:
        if self.base is not None and name in self._lent:
            return self.base
        return self._scratch if name in self._scratch.names else self.file

    def _layout_of(self, rows: Rows) -> tuple[tuple[int, ...], np.dtype[Any]]:
        place = self._places[rows.name][0]
        return (rows.stop - rows.start, *place.shape[1:]), np.dtype(place.dtype)

    def _read_rows(self, rows: Rows, array: Array) -> None:
        with self._guard:
            extents = self._extents[rows.name].within(rows.start, rows.stop)
        for extent in extents:
            part = array[extent.start - rows.start : extent.stop - rows.start]
            self._file_of(rows.name).read(self._places[rows.name][extent.slot].at(extent.start), part)

    def _is_committed(self, name: str) -> bool:
        """Say whether commits have an array: one of two slots that is not scratch."""
        return self.slots == 2 and name in self._committed

    def _targets(self, name: str, start: int, stop: int) -> list[Extent]:
        """Slots for changes of rows: not the last commit's; an array of one slot can change before any commit alone."""
        if name in self._lent:
            raise ValueError(f"{name}: must not be written, it lies in a checkpoint")
        if len(self._places[name]) == 1 and self.record is not None and self._is_committed(name):
            raise ValueError(f"{name}: must not be written once it was committed: it is fixed, with one slot")
        if not self._is_committed(name) or len(self._places[name]) == 1:
            return [Extent(start, stop, 0, None)]
        return [extent._replace(slot=1 - extent.slot) for extent in self._committed[name].within(start, stop)]

    def _write(self, name: str, start: int, stop: int, array: Array) -> None:
        self._write_tile(name, start, array)
        with self._guard:
            self._moved(name, start, stop, self._checksum_of(name, array, 0))

    def _write_tile(self, name: str, first: int, tile: Array) -> None:
        self._check_usable()
        for target in self._targets(name, first, first + len(tile)):
            part = tile[target.start - first : target.stop - first]
            self._file_of(name).write(self._places[name][target.slot].at(target.start), part)

    def _checksum_of(self, name: str, tile: Array, before: int | None) -> int | None:
        """Return the checksum of rows that follow others; None for an array that is never committed."""
        return crc32(tile.reshape(-1).view(np.uint8).data, before or 0) if self._is_committed(name) else None

    def _moved(self, name: str, start: int, stop: int, checksum: int | None) -> None:
        targets = self._targets(name, start, stop)
        for target in targets:
            self._extents[name].replace(target._replace(crc32=checksum if len(targets) == 1 else None))

    def _tile(self, index: int, rows: Rows, held: Array | None, start: int) -> Array:
        """Return some rows: from the rows in memory, which begin at `start`, or read into a buffer of this thread."""
        if held is not None:
            return held[rows.start - start : rows.stop - start]
        tile = self._tiles.take(index, *self._layout_of(rows))
        self._read_rows(rows, tile)
        return tile

    def _checksum(self, name: str, extent: Extent) -> int:
        """Return the checksum of an extent, read in pieces."""
        checksums = [0]
        place = self._places[name][extent.slot]
        for _ in summed_pieces(place, extent.start, extent.stop, self._file_of(name).read, checksums.append):
            pass
        return checksums[-1]
