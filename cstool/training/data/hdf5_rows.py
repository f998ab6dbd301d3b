"""HDF5 files with a sample in each row: checked before they are read, and read as the rows of one long table.

The data sets of such files have a common base; each adds the features of its rows.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from cstool.foundation.atomic_file import NO_LOCKS
from cstool.foundation.errors import DataError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.model.params import DataloaderParams
from cstool.training.data.dataset import NO_LIMIT, Array, Field, described, is_special, names_in_folder

OPEN_FILES_LIMIT = 64
"""handles kept open; below the usual limit of 1024 per process by far"""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SampleFileInfo:
    """The layout of a file of samples."""

    path: Path
    sample_count: int
    shapes: Mapping[str, Shape]
    """dataset -> shape of a sample; mostly features, and tokens of each"""

    @property
    def features(self) -> int:
        """Number of features of the dataset `data`."""
        return self.shapes["data"][0]

    @property
    def sequence_length(self) -> int:
        """Tokens of the features of the dataset `data`."""
        return self.shapes["data"][1]


class Hdf5Dataset(ABC):
    """Samples that are rows of checked files, one file after another; subclasses know their features.

    One thread at a time may read. A subclass opens the folders that a section of a dataloader names, or, to have their
    values checked, the `paths` of some files of theirs alone; it checks files, all but the values of the samples, and
    raises DataError if they are missing, damaged or do not fit.

    Args:
        folders: for `describe`
        files: all of the same layout
        fields: of a sample
        shapes: dataset -> as much of a sample as is read
        vocab_size: token ids must be below it; None for no limit
    """

    number_first = False
    """whether a message names the sample before its rule"""

    def __init__(
        self,
        folders: Sequence[Path],
        files: Sequence[SampleFileInfo],
        fields: Mapping[str, Field],
        shapes: Mapping[str, Shape],
        vocab_size: int | None,
    ) -> None:
        self.fields: Mapping[str, Field] = MappingProxyType({**fields})
        self._folders, self._files, self._shapes = tuple(folders), tuple(files), shapes
        self._edges = np.cumsum([0, *(file.sample_count for file in files)])
        self.sample_count = int(self._edges[-1])
        self.token_limit = NO_LIMIT if vocab_size is None else vocab_size
        self._open: OrderedDict[Path, h5py.File] = OrderedDict()

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return described(self._folders, self, self.told())

    def told(self) -> str:
        """Return the kind of the samples, for `describe`; "" for samples of tokens."""
        return ""

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        if len(indices) == 0:
            return
        order = np.argsort(indices, kind="stable")
        rows = indices[order]
        if not 0 <= rows[0] <= rows[-1] < self.sample_count:
            raise IndexError(f"samples are numbered from 0 to {self.sample_count - 1}, got {rows[0]} to {rows[-1]}")
        tables = {name: np.empty((len(rows), *shape), np.int32) for name, shape in self._shapes.items()}
        self._read_rows(rows, tables)
        for name, values in self.samples(rows, tables).items():
            out[name][order] = values

    @abstractmethod
    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array | int]:
        """Return the fields (n, ...) of samples, or raise DataError.

        Args:
            rows: (n,) their numbers, for messages
            tables: (n, ...) int32 of each dataset, which may be changed
        """

    def close(self) -> None:
        """Close all files. May be called twice."""
        while self._open:
            self._open.popitem()[1].close()

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file that a sample is in, and its number there."""
        file = int(np.searchsorted(self._edges, row, side="right")) - 1
        return self._files[file].path, row - int(self._edges[file])

    def check(self, rows: Array, name: str, values: Array, limit: int, hint: str | None, least: int = 0) -> None:
        """Check that values (n, ...) are in [least, limit), or raise DataError."""
        if values.min() >= least and values.max() < limit:
            return
        wrong = (values < least) | (values >= limit)
        rule = f"must be in [{least}, {limit})" if least == 0 else f"must be below {limit}"
        raise self.error(rows, wrong, lambda at: f"{name} {rule}, got {values[at]}", hint)

    def error(self, rows: Array, wrong: Array, told: Callable[[Shape], str], hint: str | None) -> DataError:
        """Error of the first place where `wrong` (n, ..., tokens) is true; `told` has the rule broken there."""
        at = tuple(np.argwhere(wrong)[0].tolist())
        path, number = self.place(int(rows[at[0]]))
        if self.number_first:
            return DataError(f"{path}: sample {number:,}: {told(at)} at position {at[-1]:,}", hint)
        return DataError(f"{path}: {told(at)} in sample {number:,} at position {at[-1]:,}", hint)

    def _read_rows(self, rows: Array, out: Mapping[str, Array]) -> None:
        """Read rows (n,), ascending, into arrays by the names of the datasets, of each row as much as fits."""
        file_of_row = np.searchsorted(self._edges, rows, side="right") - 1
        # A run ends where the next row is neither the same nor the one after it, or lies in another file.
        ends = np.flatnonzero((np.diff(rows) > 1) | (np.diff(file_of_row) > 0)) + 1
        for start, stop in pairwise([0, *ends.tolist(), len(rows)]):
            path, first = self.place(int(rows[start]))
            end = first + int(rows[stop - 1] - rows[start]) + 1
            for name, array in out.items():
                run = self._read_run(path, name, first, end, array.shape[1:])
                array[start:stop] = run if len(run) == stop - start else run[rows[start:stop] - rows[start]]

    def _read_run(self, path: Path, name: str, start: int, stop: int, shape: Shape) -> Array:
        try:
            rows: Array = self._file(path)[name][(slice(start, stop), *map(slice, shape))]
            return rows
        except (OSError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: samples {start} to {stop - 1} must be readable, got a damaged or missing file",
                "the file changed after it was opened, or is damaged; make or copy it again",
            ) from error

    def _file(self, path: Path) -> h5py.File:
        if path not in self._open:
            if len(self._open) >= OPEN_FILES_LIMIT:
                self._open.popitem(last=False)[1].close()
            self._open[path] = open_hdf5(path)
        self._open.move_to_end(path)
        return self._open[path]


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


def sample_paths(loader: DataloaderParams, hint: str) -> Iterator[Path]:
    """Yield the files of the folders of a dataloader, see `sample_files`."""
    for folder in loader.data_dir:
        yield from sample_files(folder, loader.tried, hint)


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


@contextmanager
def inspected(path: Path) -> Iterator[h5py.File]:
    """Open a file to look at its layout.

    Raises:
        DataError: it is no HDF5 file, damaged, or cannot be read, also where it is looked at
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
            yield file
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


def check_table(path: Path, name: str, found: h5py.Dataset, fits: bool, form: str, hint: str | None = None) -> None:
    """Check that a dataset of samples holds int32 in a shape that `fits` its `form`, or raise DataError."""
    if not fits:
        raise DataError(f'{path}: dataset "{name}" must have the shape {form}, got {found.shape}', hint)
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
