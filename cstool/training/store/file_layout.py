"""Places of arrays in a MemoryX file: laid out once, and read with care, since a file may come from anywhere.

`slot_0/NAME` and `slot_1/NAME` are the two places of every array; `fixed/NAME` is the only one of an array that never
changes. All datasets are contiguous, and datasets of a page and more begin on a page. Beside the file are its commit
record and its lock, named as it is with `.commit` and `.lock` after.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

import cstool
from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import DamagedCheckpointError, StoreError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.training.store.block_file import PAGE_BYTES, BlockFile
from cstool.training.store.checkpoint_format import LIBVER
from cstool.training.store.commit_record import CommitRecord, Extent, read_record
from cstool.training.store.contiguous import Place, create_contiguous, find_contiguous, place_of
from cstool.training.store.pending_file import PendingFile

ANOTHER_RUN = "the file is of another model or optimizer: choose another --model_dir"
FILE_NAME = "memoryx.h5"
"""name of the file in a model_dir"""
FIXED = "fixed"
"""group of the arrays that are written before the first commit alone"""
KIND = "cstool MemoryX"
VERSION = "1"
"""of the layout described above"""
TAKE_OLDER = "cstool checkpoint copy --older makes a checkpoint of the commit before it, if that one is whole"
"""hint for a damaged file"""

_LONGEST_TEXT_BYTES = 256
"""of the attributes that describe a file [bytes]"""


def record_path(path: Path) -> Path:
    """Path of the commit record of a file."""
    return path.parent / f"{path.name}.commit"


def lock_path(path: Path) -> Path:
    """Path of the lock of a file."""
    return path.parent / f"{path.name}.lock"


def is_store(path: Path) -> bool:
    """Tell whether a file is MemoryX's by its content."""
    try:
        _check_regular(path)
        with open_watched(path) as h5:
            return _text(h5, "kind") == KIND
    except MemoryError:
        raise
    except Exception:
        # With any error of HDF5 or h5py here it is none.
        return False


def read_store(path: Path, record: CommitRecord) -> dict[str, tuple[Place, ...]]:
    """Find the arrays of a file that a commit record names.

    Raises:
        StoreError: it is not the file of that record
        DamagedCheckpointError: it is damaged
    """
    try:
        _check_regular(path)
        with open_watched(path) as h5:
            _check_described(path, h5, record)
            file_bytes = os.stat(path).st_size
            # The shard of a node that has no rows has no arrays.
            fixed = _group(h5, FIXED) if record.arrays and FIXED in h5 else ()
            groups = [
                _group(h5, f"slot_{slot}") for slot in range(2 if any(n not in fixed for n in record.arrays) else 0)
            ]
            places = {}
            for name, extents in record.arrays.items():
                try:
                    own = [fixed] if name in fixed else groups
                    slots = tuple(find_contiguous(group, name, file_bytes)[0] for group in own)
                    _check_extents(slots, extents)
                except ValueError as error:
                    raise DamagedCheckpointError(f"{path}: {name} is damaged: {error}") from error
                places[name] = slots
            _check_apart(path, places)
            return places
    except (StoreError, DamagedCheckpointError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise StoreError(
            f"{path}: must be there, as its commit record is, found nothing", f"bring it back, or {_drop(path)}"
        ) from error
    except Exception as error:
        # All errors of HDF5 and h5py here are faults of the file.
        raise DamagedCheckpointError(f"{path}: the MemoryX file is damaged or cut short") from error


def records_to_adopt(path: Path, at_step: int | None) -> tuple[CommitRecord, CommitRecord]:
    """Return the last commit of a file, and the one to go on from: the last, or that of a step.

    Raises:
        StoreError: there is none
        DamagedCheckpointError: the record is damaged
    """
    last = read_record(record_path(path))
    if last is None:
        raise StoreError(f"{path}: the MemoryX file must have been committed, it has not")
    return last, last if at_step is None else last.of_step(path, at_step)


def check_extent(path: Path, name: str, extent: Extent, checksum: int) -> None:
    """Compare the checksum of the rows read with the commit's, or raise DamagedCheckpointError."""
    if checksum != extent.crc32:
        raise DamagedCheckpointError(
            f"{path}: {name} is damaged: the checksum of rows {extent.start} to {extent.stop} must be "
            f"{extent.crc32 or 0:08x}, got {checksum:08x}",
            TAKE_OLDER,
        )


def _check_regular(path: Path) -> None:
    # A pipe would keep a reader waiting.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise StoreError(f"{path}: the MemoryX file must be a regular file, this is not one")


def _check_described(path: Path, h5: h5py.File, record: CommitRecord) -> None:
    if "kind" not in h5.attrs or _text(h5, "kind") != KIND:
        raise StoreError(f"{path}: must be a MemoryX file, this is an HDF5 file of another kind")
    wanted = {"version": VERSION, "byteorder": sys.byteorder, "slots": "2", "identity": record.identity}
    hints = {
        "version": "it belongs to another version of cstool",
        "byteorder": "it was written on another kind of machine",
        "identity": f"the file and its commit record are of different runs: bring back what belongs together, or "
        f"{_drop(path)}",
    }
    for key, value in wanted.items():
        found = _text(h5, key)
        if found != value:
            raise StoreError(f"{path}: the {key} of the MemoryX file must be {value}, got {found}", hints.get(key))


def _drop(path: Path) -> str:
    return f"cstool checkpoint delete {shlex.quote(str(path))} drops what is there"


def _group(h5: h5py.File, name: str) -> h5py.Group:
    if not isinstance(h5.get(name, getlink=True), h5py.HardLink) or not isinstance(h5[name], h5py.Group):
        raise ValueError(f"{name} must be a group of the file itself")
    return h5[name]


def _check_extents(slots: Sequence[Place], extents: Sequence[Extent]) -> None:
    if any(slot[:2] != slots[0][:2] for slot in slots):
        raise ValueError("its two slots must be alike")
    row = 0
    for extent in extents:
        if extent.start != row or extent.stop <= row or extent.slot not in range(len(slots)):
            raise ValueError(f"the commit record must name all of its rows in order, it does not at row {row}")
        row = extent.stop
    if not slots[0].shape or row != slots[0].shape[0]:
        raise ValueError(f"the commit record must name all of its rows, it ends at {row}")


def _check_apart(path: Path, places: dict[str, tuple[Place, ...]]) -> None:
    """Check that no two datasets share bytes: writes to one of them would damage the other."""
    found = sorted((p.offset, p.offset + p.nbytes, name) for name in places for p in places[name] if p.nbytes)
    for (_, end, name), (begin, _, other) in zip(found, found[1:], strict=False):
        if begin < end:
            raise DamagedCheckpointError(f"{path}: {other} is damaged: it must not share bytes with {name}")


def _text(h5: h5py.File, name: str) -> str:
    found = h5.attrs.get_id(name)
    if found.shape != () or found.dtype.kind != "S" or found.dtype.itemsize > _LONGEST_TEXT_BYTES:
        raise ValueError(f"{name} must be short text of fixed length")
    value: bytes = h5.attrs[name]
    return value.decode("ascii", "replace")


class SlotFile(BlockFile):
    """A file with the slots of all arrays.

    The file that is there goes when a new one is settled for the first time, which has a temporary name until it is
    committed for the first time: under its own name it is always whole, and files left by others there are swept.

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
        """places of the arrays of the file that was there"""
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
        self._h5 = _open_layout(self._pending, "w")
        described = {"kind": KIND, "version": VERSION, "byteorder": sys.byteorder, "identity": self.identity}
        for key, value in {**described, "slots": str(slots), "cstool_version": cstool.__version__}.items():
            self._h5.attrs[key] = np.bytes_(value.encode("ascii"))

    def make(self, name: str, shape: tuple[int, ...], dtype: str, *, is_fixed: bool = False) -> tuple[Place, ...]:
        """Make the slots of an array, one for a fixed one, to be settled before use.

        Raises:
            OSError: the disk fails
            StoreError: the file has been committed
        """
        if self._pending is None:
            # HDF5 never writes to it again: a crash meanwhile would leave no whole file.
            raise StoreError(f"{self.path}: lacks {name}, which this run keeps", ANOTHER_RUN)
        try:
            if self._h5 is None:
                self._h5 = _open_layout(self._pending, "r+")
            names = [FIXED] if is_fixed else [f"slot_{slot}" for slot in range(self.slots)]
            groups = [self._h5.require_group(name) for name in names]
            return tuple(place_of(create_contiguous(group, name, shape, dtype).id) for group in groups)
        except Exception as error:
            # HDF5 is not told of errors of the disk, and trips over them when it reads.
            raise self._pending.first_error or error from error

    def settle(self, scratch: "ScratchFile") -> None:
        """Let HDF5 write its metadata, and have the disk set space aside for this file and the file of scratch arrays.

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
            # The record goes first: files that it names must be there.
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
        with contextlib.suppress(Exception):  # HDF5 complains about failed reads and writes
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


def _open_layout(file: PendingFile, mode: str) -> h5py.File:
    aligned = {"alignment_threshold": PAGE_BYTES, "alignment_interval": PAGE_BYTES}
    return h5py.File(file, mode, libver=LIBVER, locking=False, **aligned)


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
        """length that it is to have [bytes]"""

    def make(self, name: str, shape: Sequence[int], dtype: str) -> Place:
        """Make room for an array, and return where it is; space for it is to be reserved before its first use."""
        place = Place(tuple(shape), dtype, self.end)
        self.end += -(-place.nbytes // PAGE_BYTES) * PAGE_BYTES
        self.names.add(name)
        return place
