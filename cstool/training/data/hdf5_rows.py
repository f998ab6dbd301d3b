"""HDF5 files with a sample in each row: checked before they are read, and read as the rows of one long table."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np

from cstool.foundation.atomic_file import NO_LOCKS
from cstool.foundation.errors import DataError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.training.data.dataset import Array, is_special, names_in_folder

OPEN_FILES_LIMIT = 64
"""handles kept open; below the usual limit of 1024 per process by far"""

Found = TypeVar("Found")


class Hdf5Rows:
    """The rows of files, one file after another. One thread at a time may read.

    Args:
        paths: of the files
        counts: number of rows of each file
    """

    def __init__(self, paths: Sequence[Path], counts: Sequence[int]) -> None:
        self._paths = tuple(paths)
        self._edges = np.cumsum([0, *counts])
        self.count = int(self._edges[-1])
        """rows of all files"""
        self._open: OrderedDict[int, h5py.File] = OrderedDict()

    def read(self, rows: Array, out: Mapping[str, Array]) -> None:
        """Read rows of some datasets, of each row as much as fits into `out`.

        Args:
            rows: (n,) ascending, repetitions allowed
            out: arrays (n, ...) by the names of the datasets

        Raises:
            DataError: a file is damaged, or gone.
        """
        if len(rows) == 0:
            return
        if not 0 <= rows[0] <= rows[-1] < self.count:
            raise IndexError(f"samples are numbered from 0 to {self.count - 1}, got {rows[0]} to {rows[-1]}")
        file_of_row = np.searchsorted(self._edges, rows, side="right") - 1
        # A run ends where the next row is neither the same nor the one after it, or lies in another file.
        ends = np.flatnonzero((np.diff(rows) > 1) | (np.diff(file_of_row) > 0)) + 1
        for start, stop in pairwise([0, *ends.tolist(), len(rows)]):
            file = int(file_of_row[start])
            first, last = (int(rows[i] - self._edges[file]) for i in (start, stop - 1))
            for name, array in out.items():
                run = self._read_run(file, name, first, last + 1, array.shape[1:])
                array[start:stop] = run if len(run) == stop - start else run[rows[start:stop] - rows[start]]

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file that a row is in, and its number there."""
        file = int(np.searchsorted(self._edges, row, side="right")) - 1
        return self._paths[file], row - int(self._edges[file])

    def close(self) -> None:
        """Close all files. May be called twice."""
        while self._open:
            self._open.popitem()[1].close()

    def _read_run(self, file: int, name: str, start: int, stop: int, shape: Sequence[int]) -> Array:
        try:
            rows: Array = self._file(file)[name][(slice(start, stop), *map(slice, shape))]
            return rows
        except (OSError, KeyError, ValueError) as error:
            raise DataError(
                f"{self._paths[file]}: samples {start} to {stop - 1} must be readable, got a damaged or missing file",
                "the file changed after it was opened, or is damaged; make or copy it again",
            ) from error

    def _file(self, file: int) -> h5py.File:
        if file not in self._open:
            if len(self._open) >= OPEN_FILES_LIMIT:
                self._open.popitem(last=False)[1].close()
            self._open[file] = open_hdf5(self._paths[file])
        self._open.move_to_end(file)
        return self._open[file]


def is_sample_file(name: str) -> bool:
    """Tell whether a file of this name belongs to a data set."""
    return name.endswith(".h5") and not name.startswith(".")


def sample_files(folder: Path, tried: str, hint: str) -> Sequence[Path]:
    """Return the files of a folder in the order of their names, or raise DataError with a hint if there are none."""
    names = names_in_folder(folder, "files *.h5", tried, hint)
    if found := [folder / name for name in names if is_sample_file(name)]:
        return found
    inside = next((folder / name for name in names if any((folder / name).glob("*.h5"))), None)
    raise DataError(
        f"{folder}: must be a folder with files *.h5, got none among its entries ({len(names):,})",
        hint if inside is None else f"{inside} has some",
    )


def open_hdf5(path: Path, mode: str = "r") -> h5py.File:
    """Open an HDF5 file, locked where there are locks: no other process writes it meanwhile, or reads half of it.

    Raises:
        BlockingIOError: another process has it open otherwise
        OSError: as h5py does
    """
    try:
        return h5py.File(path, mode, locking="best-effort")
    except OSError as error:
        # The best effort of HDF5 knows one way of many to have no locks.
        if error.errno not in NO_LOCKS:
            raise
        return h5py.File(path, mode, locking=False)


def inspected(path: Path, inspect: Callable[[h5py.File], Found]) -> Found:
    """Open a file and return the result of `inspect` on it.

    Raises:
        DataError: it is no HDF5 file, damaged, or cannot be read; errors of `inspect`, too
    """
    try:
        # A pipe would keep a reader waiting.
        if is_special(path):
            raise DataError(f"{path}: must be an HDF5 file, got a pipe or a device", "remove it")
        with path.open("rb"):
            pass
        if not h5py.is_hdf5(path):
            raise DataError(f"{path}: must be an HDF5 file, got something else", "remove it, or make it again")
        with closing(open_hdf5(path)), closing(open_watched(path)) as file:
            return inspect(file)
    except IsADirectoryError:
        raise DataError(f"{path}: must be an HDF5 file, got a folder", "rename the folder") from None
    except PermissionError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    except BlockingIOError:
        raise DataError(
            f"{path}: must not be written to while it is read, another process has it open for that",
            "wait until the file is finished",
        ) from None
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(
            f"{path}: must be a whole HDF5 file, got a truncated or damaged one", "make or copy it again"
        ) from error


def dataset_in(path: Path, file: h5py.File, name: str, hint: str) -> h5py.Dataset:
    """Return a dataset of int32 that is in the file itself, or raise DataError, with a hint if it is not there."""
    if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
        raise DataError(f'{path}: dataset "{name}" must be in the file itself, it is a link to another')
    # `get` would take a damaged dataset for a missing one.
    found = file[name] if name in file else None  # noqa: SIM401
    if not isinstance(found, h5py.Dataset):
        names = ", ".join(f'"{there}"' for there in file) or "nothing"
        told = names if found is None else "a group of this name"
        raise DataError(f'{path}: must hold a dataset "{name}", got {told}', hint)
    if found.is_virtual or found.id.get_create_plist().get_external_count():
        raise DataError(f'{path}: dataset "{name}" must be in the file itself, its samples are in another')
    return found


def check_numbers(path: Path, found: h5py.Dataset, name: str) -> None:
    """Check that a dataset holds int32, or raise DataError."""
    if found.dtype != np.int32:
        raise DataError(f'{path}: dataset "{name}" must be int32, got {found.dtype}')


def check_count(path: Path, file: h5py.File, count: int) -> None:
    """Check that a file has samples, in the number that it states, or raise DataError."""
    if count == 0:
        raise DataError(f"{path}: must hold at least one sample, got 0", "remove the file")
    announced = file.attrs.get("n_examples", count)
    if np.size(announced) != 1 or announced != count:
        raise DataError(
            f"{path}: attribute n_examples must be the number of samples ({count:,}), got {announced}",
            "the file was not written to its end, or was changed; make it again",
        )
