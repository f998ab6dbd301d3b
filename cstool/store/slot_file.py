"""The files of a store: the HDF5 file (made or found, laid out, its space set aside, named), and one without a name."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import h5py

from cstool.atomic_file import sync_folder
from cstool.errors import StoreError
from cstool.store.block_file import PAGE_BYTES, BlockFile
from cstool.store.commit_record import CommitRecord
from cstool.store.contiguous import Place, create_contiguous, place_of
from cstool.store.file_layout import describe, open_layout, read_store, record_path
from cstool.store.pending_file import PendingFile

ANOTHER_RUN = "the file is of another model or optimizer: choose another --model_dir"


class SlotFile(BlockFile):
    """A file with the slots of all arrays.

    The file that is there goes when a new one is settled for the first time, which has a temporary name until it is
    committed for the first time: under its own name it is always whole, and what others leave there is swept.

    Args:
        path: where it is, or will be
        slots: of every array in a new file
        record: of the file that is there; None for a new one
        direct: go past the page cache, where that can be

    Raises:
        OSError: it cannot be made or opened
        StoreError: it is not the file of the record
        DamagedCheckpointError: it is damaged
    """

    def __init__(self, path: Path, slots: int, record: CommitRecord | None, *, direct: bool = False) -> None:
        self.slots = slots if record is None else 2
        self.identity = secrets.token_hex(16) if record is None else record.identity
        self.places: dict[str, tuple[Place, ...]] = {}
        """where the arrays of the file that was there are"""
        self._pending: PendingFile | None = None
        """a new file, until it is committed"""
        self._h5: h5py.File | None = None
        """the file while HDF5 lays it out"""
        if record is not None:
            self.places = read_store(path, record)
            super().__init__(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), direct=direct)
            return
        self._pending = PendingFile(path)
        super().__init__(path, os.dup(self._pending.fileno()), direct=direct)
        self._h5 = open_layout(self._pending, "w")
        describe(self._h5, self.identity, slots)

    def make(self, name: str, shape: tuple[int, ...], dtype: str) -> tuple[Place, ...]:
        """Make the slots of an array, to be settled before use; raises OSError, or StoreError for a committed file."""
        if self._pending is None:
            # HDF5 never writes to it again: a crash meanwhile would leave no whole file.
            raise StoreError(f"{self.path}: lacks {name}, which this run keeps", ANOTHER_RUN)
        try:
            if self._h5 is None:
                self._h5 = open_layout(self._pending, "r+")
            groups = [self._h5.require_group(f"slot_{slot}") for slot in range(self.slots)]
            return tuple(place_of(create_contiguous(group, name, shape, dtype)) for group in groups)
        except Exception as error:
            # HDF5 is not told what the disk refuses, and trips over it when it reads.
            raise self._pending.first_error or error from error

    def settle(self, scratch: "ScratchFile") -> None:
        """Let HDF5 write what it knows, and have the disk set space aside for this file and that of scratch arrays.

        Raises:
            OSError: the disk fails
            StoreError: it has no room
        """
        if self._h5 is not None:
            self._h5.close()
            self._h5 = None
        size_bytes = 0
        if self._pending is not None:
            if self._pending.first_error is not None:
                raise self._pending.first_error
            size_bytes = self._pending.end
        self._check_room(size_bytes + scratch.end, scratch)
        if self._pending is not None:
            # The record goes first: what it names must be there.
            record_path(self.path).unlink(missing_ok=True)
            sync_folder(self.path.parent)
            self.path.unlink(missing_ok=True)
            self.reserve(size_bytes)
        if scratch.end:
            scratch.reserve(scratch.end)

    def make_sure(self) -> None:
        """Wait until the disk has all that was written and the name of the file, or raise OSError or StoreError."""
        self.sync()
        if self._pending is not None:
            self._pending.commit()
            self._pending = None

    def end(self) -> None:
        """Let go of the file; one that has no name yet goes with it."""
        with contextlib.suppress(Exception):  # HDF5 complains about what it could not read or write
            if self._h5 is not None:
                self._h5.close()
        with contextlib.suppress(OSError):
            if self._pending is not None:
                self._pending.discard()
        self.close()

    def _check_room(self, need_bytes: int, scratch: BlockFile) -> None:
        taken = [os.fstat(self.fileno()), os.fstat(scratch.fileno())]
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


class ScratchFile(BlockFile):
    """Arrays of zeros in an unnamed file in the folder of another, which errors name; raises OSError."""

    def __init__(self, beside: Path, *, direct: bool = False) -> None:
        # The name is one that is swept, should the process end between the two lines.
        temporary = beside.with_name(f"{beside.name}.{secrets.token_hex(4)}.tmp")
        super().__init__(
            beside, os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), direct=direct
        )
        os.unlink(temporary)
        self.names: set[str] = set()
        """of the arrays in it"""
        self.end = 0
        """how long it is to be [bytes]"""

    def make(self, name: str, shape: Sequence[int], dtype: str) -> Place:
        """Make room for an array, and return where it is; space for it is to be reserved before its first use."""
        place = Place(tuple(shape), dtype, self.end)
        self.end += -(-place.nbytes // PAGE_BYTES) * PAGE_BYTES
        self.names.add(name)
        return place
