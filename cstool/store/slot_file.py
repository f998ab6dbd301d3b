"""The HDF5 file of a store: made or found, its arrays laid out, its name given, its space set aside."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

import h5py

from cstool.atomic_file import sync_folder
from cstool.errors import StoreError
from cstool.store.block_file import BlockFile
from cstool.store.commit_record import CommitRecord
from cstool.store.contiguous import Place, create_contiguous, place_of
from cstool.store.file_layout import describe, open_layout, read_store, record_path
from cstool.store.layout_file import LayoutFile
from cstool.store.pending_file import PendingFile

ANOTHER_RUN = "the file is of another model or optimizer: choose another --model_dir"


class SlotFile(BlockFile):
    """A file with the slots of all arrays.

    A new one takes the place of the file that is there when it is settled for the first time.

    Args:
        path: where it is, or will be
        slots: of every array in a new file
        record: of the file that is there; None for a new one
        uncached: keep what is read and written out of the page cache

    Raises:
        OSError: it cannot be made or opened
        StoreError: it is not the file of the record
        DamagedCheckpointError: it is damaged
    """

    def __init__(self, path: Path, slots: int, record: CommitRecord | None, *, uncached: bool = False) -> None:
        self.slots = slots if record is None else 2
        self.identity = secrets.token_hex(16) if record is None else record.identity
        self.places: dict[str, tuple[Place, ...]] = {}
        """where the arrays of the file that was there are"""
        self._committed = record is not None
        self._pending: PendingFile | None = None
        """a new file, until it has its name"""
        self._layout: LayoutFile | None = None
        self._h5: h5py.File | None = None
        """the file while HDF5 lays it out"""
        if record is not None:
            self.places = read_store(path, record)
            super().__init__(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), uncached=uncached)
            return
        self._layout = self._pending = PendingFile(path)
        super().__init__(path, os.dup(self._pending.fileno()), uncached=uncached)
        self._h5 = open_layout(self._pending, "w")
        describe(self._h5, self.identity, slots)

    def make(self, name: str, shape: tuple[int, ...], dtype: str) -> tuple[Place, ...]:
        """Make the slots of an array; `settle` comes before its first use.

        Raises:
            StoreError: the file has been committed, without this array
        """
        if self._committed:
            # HDF5 never writes to it again: a crash meanwhile would leave no whole file.
            raise StoreError(f"{self.path}: lacks {name}, which this run keeps", ANOTHER_RUN)
        if self._h5 is None:
            self._layout = LayoutFile(self.fileno())
            self._h5 = open_layout(self._layout, "r+")
        groups = [self._h5.require_group(f"slot_{slot}") for slot in range(self.slots)]
        return tuple(place_of(create_contiguous(group, name, shape, dtype)) for group in groups)

    def settle(self, beside: BlockFile, beside_bytes: int) -> None:
        """Let HDF5 write what it knows, give a new file its name, and have the disk set the space aside.

        Args:
            beside: another file, on the same disk
            beside_bytes: what that will take

        Raises:
            OSError: the disk fails
            StoreError: it has no room
        """
        if self._h5 is not None:
            self._h5.close()
            self._h5 = None
        size_bytes = 0
        if self._layout is not None:
            if self._layout.first_error is not None:
                raise self._layout.first_error
            size_bytes = self._layout.end
        self._check_room(size_bytes + beside_bytes, beside)
        if self._pending is not None:
            # The record goes first: nobody may take another file for what it names.
            record_path(self.path).unlink(missing_ok=True)
            sync_folder(self.path.parent)
            self.path.unlink(missing_ok=True)
            self._pending.commit()
            self._pending = None
        if size_bytes:
            self.reserve(size_bytes)
        if beside_bytes:
            beside.reserve(beside_bytes)
        self.sync()

    def committed(self) -> None:
        """Note that a commit record names the file now."""
        self._committed = True

    def end(self) -> None:
        """Let go of the file, and remove it if nobody can go on from it."""
        with contextlib.suppress(Exception):  # HDF5 complains about what it could not read or write
            if self._h5 is not None:
                self._h5.close()
        with contextlib.suppress(OSError):
            if self._pending is not None:
                self._pending.discard()
            elif not self._committed:
                self.path.unlink(missing_ok=True)
        self.close()

    def _check_room(self, need_bytes: int, beside: BlockFile) -> None:
        taken = [os.fstat(self.fileno()), os.fstat(beside.fileno())]
        if self._pending is not None:
            with contextlib.suppress(FileNotFoundError):
                taken.append(os.stat(self.path))
        free_bytes = shutil.disk_usage(self.path.parent).free + 512 * sum(found.st_blocks for found in taken)
        if need_bytes > free_bytes:
            raise StoreError(
                f"{self.path}: MemoryX needs {need_bytes:,} bytes of disk, {free_bytes:,} are free",
                "free some space, or choose another model_dir"
                + ("; memoryx.commit_steps: 0 needs about half" if self.slots == 2 else ""),
            )
