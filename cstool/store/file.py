"""The store in a file: an HDF5 file with two slots for every array, and a commit record that says which one counts.

Layout: `slot_0/NAME` and `slot_1/NAME` for every array, `scratch/NAME` for what no commit keeps. All datasets are
contiguous, and those of a page and more begin on one. HDF5 lays the file out and never sees it again; from then on
bytes go to their places directly, from several threads.

What is committed is never overwritten: a change goes to the other slot of its rows. A commit waits until the disk has
all changes, then replaces the record; from then on the slots that it no longer names are free.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

import cstool
from cstool.atomic_file import sync_folder
from cstool.errors import DamagedCheckpointError, StoreError
from cstool.store.block_file import BlockFile, cannot
from cstool.store.checkpoint_format import LIBVER
from cstool.store.commit_record import CommitRecord, read_record, write_record
from cstool.store.contiguous import Place, create_contiguous, find_contiguous, place_of
from cstool.store.crc32 import crc32
from cstool.store.extents import Extent, Extents
from cstool.store.panel_cache import PanelCache, Rows
from cstool.store.protocol import check_like, check_rows, check_shape
from cstool.store.ram import aligned_empty
from cstool.store.saved_state import Progress, no_progress
from cstool.store.store_lock import StoreLock

Array = NDArray[Any]

FILE_NAME = "memoryx.h5"
"""name of the file in a model_dir; `.commit` and `.lock` stand after it for its commit record and its lock"""
KIND = "cstool MemoryX"
VERSION = "1"
"""of the layout described above"""
PAGE_BYTES = 4096
"""what datasets of this size and more are aligned to [bytes]"""
TILE_BYTES = 2**20
"""of each array that `rewrite` has in memory at a time: small enough to stay in a core's cache [bytes]"""
SCRATCH = "scratch"


class FileStore:
    """A `Store` whose arrays are in a file.

    Args:
        path: of the HDF5 file
        memory_bytes: what the rows in memory may take
        slots: 2, so that commits are possible, or 1
        adopt: go on from the last commit of the file that is there; else begin with a new one
        uncached: keep what is read and written out of the page cache

    Raises:
        StoreError: the file cannot be made or read, another run uses it, or it cannot be gone on from
    """

    outlives = True

    def __init__(
        self, path: Path, memory_bytes: int, *, slots: int = 2, adopt: bool = False, uncached: bool = False
    ) -> None:
        self.path = path
        self.slots = slots
        self.lock = StoreLock(path.with_name(f"{path.name}.lock"))
        self.record: CommitRecord | None = None
        """the last commit; None before the first"""
        self._identity = secrets.token_hex(16)
        self._places: dict[str, tuple[Place, ...]] = {}
        self._adopted: set[str] = set()
        """arrays of the file that was there which nobody has created again"""
        self._scratch_there: dict[str, Place] = {}
        """scratch arrays of that file: creating these again changes nothing in it"""
        self._committed: dict[str, Extents] = {}
        self._extents: dict[str, Extents] = {}
        self._guard = threading.Lock()
        self._tiles = threading.local()
        self._tile_bytes = 0
        self._closed = False
        self._h5: h5py.File | None = None
        try:
            self._open(adopt)
            self.file = BlockFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), uncached=uncached)
        except OSError as error:
            self.lock.close()
            raise cannot(path, "be opened", error) from error
        except BaseException:
            self.lock.close()
            raise
        self.cache = PanelCache(memory_bytes, self._layout_of, self._read_rows)

    # The protocol `Store`.

    def create(self, name: str, shape: Sequence[int], dtype: str = "float32", *, scratch: bool = False) -> None:
        """Create an array of zeros, as `Store.create` says; one that the last commit has is as it was then."""
        checked = check_shape(name, shape)
        with self._guard:
            self._check_open()
            if name in self._adopted:
                self._adopt(name, checked, dtype)
                return
            if name in self._places:
                raise ValueError(f"{name}: an array must be created once, it exists already")
            there = self._scratch_there.pop(name, None) if scratch else None
            if there is not None and there[:2] == (checked, dtype):
                self._places[name] = (there,)
            else:
                groups = [SCRATCH] if scratch else [f"slot_{slot}" for slot in range(self.slots)]
                self._places[name] = self._lay_out(groups, name, checked, dtype)
            self._extents[name] = Extents([Extent(0, checked[0], 0, None)])
            if not scratch:
                self._committed[name] = self._extents[name].copy()

    def names(self) -> list[str]:
        """Return the names of all arrays in the order of their creation."""
        with self._guard:
            self._check_open()
            return [name for name in self._places if name not in self._adopted]

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
                self.cache.forget(name, start, stop, but=rows)
        finally:
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
        self._settle()
        claims = [(rows, self.cache.claim(rows)) for rows in (Rows(name, start, stop) for name in names)]
        arrays = [*claims, *((Rows(name, start, stop), None) for name in reads)]
        try:
            checksums = [0] * len(names)
            step = max(1, TILE_BYTES // max(1, max(self._row_bytes(rows.name) for rows, _ in arrays)))
            for first in range(start, stop, step):
                last = min(first + step, stop)
                tiles = [
                    self._tile(index, Rows(rows.name, first, last), held, start)
                    for index, (rows, held) in enumerate(arrays)
                ]
                change(list(tiles), first, last)
                for index, name in enumerate(names):
                    self._write_tile(name, first, tiles[index])
                    checksums[index] = crc32(tiles[index].reshape(-1).view(np.uint8).data, checksums[index])
            with self._guard:
                for name, checksum in zip(names, checksums, strict=True):
                    self._moved(name, start, stop, checksum)
        finally:
            for rows, held in claims:
                self.cache.disclaim(rows, held)
                self.cache.forget(rows.name, start, stop, but=rows)

    def expect(self, order: Sequence[tuple[str, int, int]], apart: int) -> None:
        """Say what will be borrowed, as `Store.expect` says: it is fetched ahead."""
        self._settle()
        self.cache.expect([Rows(*rows) for rows in order], apart)

    def close(self) -> None:
        """Let go of everything, the lock last; what was not committed is lost."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self.cache.close()
        if self._h5 is not None:
            self._h5.close()
        self.file.close()
        self.lock.close()

    def remove(self) -> None:
        """Close the store and delete its files; the lock goes last."""
        self.close()
        for path in (self.record_path, self.path, self.lock.path):
            path.unlink(missing_ok=True)

    @property
    def allocated_bytes(self) -> int:
        """Of rows in memory and of the tiles of all threads [bytes]."""
        return self.cache.allocated_bytes + self._tile_bytes

    # Commits.

    @property
    def record_path(self) -> Path:
        """Where the commit record is."""
        return record_path(self.path)

    def commit(self, values: Mapping[str, Any], links: Mapping[str, str]) -> None:
        """Make what the arrays hold now what counts, durably. Nothing may be changed meanwhile.

        Args:
            values: what else a checkpoint would hold; `global_step` is the step
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
        self.file.sync()
        record = CommitRecord(self._identity, dict(values), dict(links), arrays, self.record)
        write_record(self.record_path, record)
        self.record = record
        with self._guard:
            self._committed = {name: Extents(found) for name, found in arrays.items()}

    @property
    def committed_bytes(self) -> int:
        """Of all arrays of the last commit [bytes]."""
        return sum(self._places[name][0].nbytes for name in self._committed)

    def committed_rows(self, name: str, count: int) -> Array:
        """Return the first rows of an array of the last commit, whether it has been created again or not.

        Raises:
            StoreError: there is no such array
        """
        if name not in self._places or not 0 <= count <= self._places[name][0].shape[0]:
            raise StoreError(f"{self.path}: must have {count} rows of {name}, it has not")
        shape, dtype = self._layout_of(Rows(name, 0, count))
        rows = np.empty(shape, dtype)
        self._read_rows(Rows(name, 0, count), rows)
        return rows

    def unclaimed(self) -> list[str]:
        """Return the arrays of the last commit that nobody has created again."""
        return sorted(self._adopted)

    def verify(self, progress: Progress = no_progress) -> None:
        """Read all of the last commit and compare its checksums.

        Raises:
            DamagedCheckpointError: naming the first array that is damaged
            StoreError: the disk fails
        """
        done, total = 0, self.committed_bytes
        for name, extents in self._committed.items():
            for extent in extents.all():
                check_extent(self.path, name, extent, self._checksum(name, extent))
                done += (extent.stop - extent.start) * self._row_bytes(name)
                progress(done, total)

    # The file.

    def _open(self, adopt: bool) -> None:
        record = read_record(self.record_path) if adopt else None
        if record is not None:
            self._go_on_from(record)
            return
        # The record goes first: nobody may take a file that is not whole for what it names.
        self.record_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self._h5 = _open_hdf5(self.path, "x")
        described = {"kind": KIND, "version": VERSION, "byteorder": sys.byteorder, "identity": self._identity}
        for key, value in {**described, "slots": str(self.slots), "cstool_version": cstool.__version__}.items():
            self._h5.attrs[key] = np.bytes_(value.encode("ascii"))

    def _lay_out(self, groups: Sequence[str], name: str, shape: tuple[int, ...], dtype: str) -> tuple[Place, ...]:
        try:
            h5 = self._h5 = self._h5 or _open_hdf5(self.path, "r+")
            places = []
            for group in map(h5.require_group, groups):
                if name in group:
                    del group[name]
                places.append(place_of(create_contiguous(group, name, shape, dtype)))
        except OSError as error:
            raise cannot(self.path, "be laid out", error) from error
        return tuple(places)

    def _go_on_from(self, record: CommitRecord) -> None:
        found, self._scratch_there = read_store(self.path, record), find_scratch(self.path)
        self.slots, self._identity, self.record = 2, record.identity, record
        self._places, self._adopted = found, set(found)
        self._committed = {name: Extents(extents) for name, extents in record.arrays.items()}
        self._extents = {name: Extents(extents) for name, extents in record.arrays.items()}

    def _adopt(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        place = self._places[name][0]
        if (place.shape, place.dtype) != (shape, dtype):
            raise StoreError(
                f"{self.path}: {name} must be {_written(shape, dtype)}, got {_written(place.shape, place.dtype)}",
                "the file is of another model: choose another --model_dir",
            )
        self._adopted.discard(name)
        # In the order of creation.
        self._places[name] = self._places.pop(name)

    def _settle(self) -> None:
        """End the laying out: HDF5 writes what it knows, and the disk sets the space aside."""
        if self._h5 is None and not self._closed:
            return
        with self._guard:
            self._check_open()
            if self._h5 is None:
                return
            try:
                size_bytes = self._h5.id.get_filesize()
                here = os.fstat(self.file.fileno()).st_blocks * 512
                free_bytes = shutil.disk_usage(self.path.parent).free
                if size_bytes - here > free_bytes:
                    raise StoreError(
                        f"{self.path}: MemoryX needs {size_bytes:,} bytes of disk ({self.slots} slots), "
                        f"{free_bytes + here:,} are free",
                        "free some space, choose another model_dir, or set memoryx.commit_steps to 0 for one slot",
                    )
                self._h5.close()
                self._h5 = None
                self.file.reserve(size_bytes)
                self.file.sync()
                sync_folder(self.path.parent)
            except OSError as error:
                raise cannot(self.path, "be laid out", error) from error

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

    def _layout_of(self, rows: Rows) -> tuple[tuple[int, ...], np.dtype[Any]]:
        place = self._places[rows.name][0]
        return (rows.stop - rows.start, *place.shape[1:]), np.dtype(place.dtype)

    def _row_bytes(self, name: str) -> int:
        place = self._places[name][0]
        return math.prod(place.shape[1:]) * np.dtype(place.dtype).itemsize

    def _offset(self, name: str, slot: int, row: int) -> int:
        return self._places[name][slot].offset + row * self._row_bytes(name)

    def _read_rows(self, rows: Rows, array: Array) -> None:
        with self._guard:
            extents = self._extents[rows.name].within(rows.start, rows.stop)
        for extent in extents:
            part = array[extent.start - rows.start : extent.stop - rows.start]
            self.file.read(self._offset(rows.name, extent.slot, extent.start), part)

    def _targets(self, name: str, start: int, stop: int) -> list[Extent]:
        """Return where changes of rows go: to the slots that the last commit does not name."""
        if self.slots == 1 or name not in self._committed:
            return [Extent(start, stop, 0, None)]
        return [extent._replace(slot=1 - extent.slot) for extent in self._committed[name].within(start, stop)]

    def _write(self, name: str, start: int, stop: int, array: Array) -> None:
        self._write_tile(name, start, array)
        with self._guard:
            self._moved(name, start, stop, crc32(array.reshape(-1).view(np.uint8).data))

    def _write_tile(self, name: str, first: int, tile: Array) -> None:
        for target in self._targets(name, first, first + len(tile)):
            part = tile[target.start - first : target.stop - first]
            self.file.write(self._offset(name, target.slot, target.start), part)

    def _moved(self, name: str, start: int, stop: int, checksum: int) -> None:
        targets = self._targets(name, start, stop)
        for target in targets:
            self._extents[name].replace(target._replace(crc32=checksum if len(targets) == 1 else None))

    def _tile(self, index: int, rows: Rows, held: Array | None, start: int) -> Array:
        """Return some rows: of those in memory, which begin at `start`, or read into a buffer of this thread."""
        if held is not None:
            return held[rows.start - start : rows.stop - start]
        shape, dtype = self._layout_of(rows)
        size_bytes = math.prod(shape) * dtype.itemsize
        buffers: dict[int, Array] = self._tiles.__dict__.setdefault("buffers", {})
        if index not in buffers or buffers[index].nbytes < size_bytes:
            buffers[index] = aligned_empty(max(size_bytes, TILE_BYTES))
            with self._guard:
                self._tile_bytes += buffers[index].nbytes
        tile = buffers[index][:size_bytes].view(dtype).reshape(shape)
        self._read_rows(rows, tile)
        return tile

    def _checksum(self, name: str, extent: Extent) -> int:
        """Return the checksum of an extent, read in pieces."""
        return extent_checksum(self.file, self._places[name][extent.slot], extent)


def _open_hdf5(path: Path, mode: str) -> h5py.File:
    aligned = {"alignment_threshold": PAGE_BYTES, "alignment_interval": PAGE_BYTES}
    return h5py.File(path, mode, libver=LIBVER, locking=False, **aligned)


def record_path(path: Path) -> Path:
    """Return where the commit record of a file is."""
    return path.with_name(f"{path.name}.commit")


def extent_checksum(file: BlockFile, place: Place, extent: Extent) -> int:
    """Return the checksum of rows of a dataset, read in pieces.

    Raises:
        StoreError: they cannot be read
    """
    row_bytes = math.prod(place.shape[1:]) * np.dtype(place.dtype).itemsize
    offset, left, checksum = place.offset + extent.start * row_bytes, (extent.stop - extent.start) * row_bytes, 0
    buffer = aligned_empty(min(left, 4 * TILE_BYTES))
    while left:
        part = buffer[:left]
        file.read(offset, part)
        checksum = crc32(part.data, checksum)
        offset, left = offset + part.nbytes, left - part.nbytes
    return checksum


def check_extent(path: Path, name: str, extent: Extent, checksum: int) -> None:
    """Compare the checksum of what was read with that of the commit.

    Raises:
        DamagedCheckpointError: they differ
    """
    if checksum != extent.crc32:
        raise DamagedCheckpointError(
            f"{path}: {name} is damaged: the checksum of rows {extent.start} to {extent.stop} must be "
            f"{extent.crc32 or 0:08x}, got {checksum:08x}"
        )


def read_store(path: Path, record: CommitRecord) -> dict[str, tuple[Place, ...]]:
    """Return where the arrays of a file are that a commit record names.

    Raises:
        StoreError: it is not the file of that record
        DamagedCheckpointError: it is damaged
    """
    try:
        with h5py.File(path, "r", locking=False) as h5:
            found = {key: _text(h5, key) for key in ("kind", "version", "byteorder", "identity", "slots")}
            _check_described(path, found, record)
            file_bytes = os.stat(path).st_size
            groups = [_own_group(h5, f"slot_{slot}") for slot in range(2)]
            places = {}
            for name, extents in record.arrays.items():
                try:
                    slots = tuple(find_contiguous(group, name, file_bytes) for group in groups)
                    _check_extents(slots, extents)
                except ValueError as error:
                    raise DamagedCheckpointError(f"{path}: {name} is damaged: {error}") from error
                places[name] = slots
            return places
    except (StoreError, DamagedCheckpointError):
        raise
    except FileNotFoundError as error:
        raise StoreError(
            f"{path}: must be there, as its commit record is, found nothing", "bring it back, or delete the record"
        ) from error
    except Exception as error:
        # Whatever HDF5 or h5py trip over here, they trip over the file.
        raise DamagedCheckpointError(f"{path}: the MemoryX file is damaged or cut short") from error


def find_scratch(path: Path) -> dict[str, Place]:
    """Return where the scratch arrays of a file are that `read_store` has read; those that are not whole are left out.

    Raises:
        StoreError: it cannot be opened
    """
    try:
        with h5py.File(path, "r", locking=False) as h5:
            found: dict[str, Place] = {}
            with contextlib.suppress(KeyError, ValueError):
                group = _own_group(h5, SCRATCH)
                for name in group:
                    found[name] = find_contiguous(group, name, os.stat(path).st_size)
            return found
    except OSError as error:
        raise cannot(path, "be read", error) from error


def _own_group(h5: h5py.File, name: str) -> h5py.Group:
    group = h5[name] if isinstance(h5.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(group, h5py.Group):
        raise ValueError(f"{name} must be a group in the file itself")
    return group


def _check_described(path: Path, found: Mapping[str, str], record: CommitRecord) -> None:
    wanted = {"kind": KIND, "version": VERSION, "byteorder": sys.byteorder, "identity": record.identity, "slots": "2"}
    for key, value in wanted.items():
        if found[key] != value:
            hint = "the file and its record are of different runs" if key == "identity" else None
            raise StoreError(f"{path}: the {key} of the MemoryX file must be {value}, got {found[key]}", hint)


def _check_extents(slots: Sequence[Place], extents: Sequence[Extent]) -> None:
    if slots[0][:2] != slots[1][:2]:
        raise ValueError("its two slots must be alike")
    row = 0
    for extent in extents:
        if extent.start != row or extent.stop <= row or extent.slot not in (0, 1):
            raise ValueError(f"the commit record must name all of its rows in order, it does not at row {row}")
        row = extent.stop
    if not slots[0].shape or row != slots[0].shape[0]:
        raise ValueError(f"the commit record must name all of its rows, it ends at {row}")


def _text(owner: Any, name: str) -> str:
    value = owner.attrs[name]
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _written(shape: Sequence[int], dtype: str) -> str:
    return f"{' x '.join(map(str, shape))} {dtype}"
