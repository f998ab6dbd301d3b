"""Tables in files of text, a row to each line after that with the names of the columns: read by number.

Tables are CSV, a comma between columns, quotes around values that have one inside, or TSV, a tabulator between columns
and no quotes; or text, whose lines are rows of one column from the first line on. The starts of the rows of a file are
found once, when it is opened, and kept in memory: 8 bytes for a row.
"""

import csv
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from cstool.foundation.errors import DataError
from cstool.foundation.words import counted
from cstool.training.data.dataset import Array, is_special

OPEN_FILES_LIMIT = 64
"""handles kept open; below the usual limit of 1024 per process by far"""
META = "meta.dat"
"""the file in a folder of CSV files that lists them, and the number of rows of each that count"""
LINE = "text"
"""the column of files of text"""

Layout = Literal["csv", "tsv", "text"]

_BLOCK_BYTES = 2**22
_BOM = b"\xef\xbb\xbf"
_META_HINTS = {
    1: "it has a line for each file, its name and how many rows it has: `train.csv 1000`",
    2: "it has a line for each two files, their names and how many rows they have: `train.en train.de 1000`",
}
"""by the number of files on a line"""
# It guards against quotes that never end; here a row ends with its line.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Row:
    """A row of a table; `where` says file and line, `number` counts the rows of all files from 0."""

    number: int
    where: str
    values: dict[str, str]
    """by the names of the columns"""


@dataclass(frozen=True)
class RowFile:
    """A file whose rows have been found.

    Args:
        starts, stops: (rows,) int64, place of each row in the file [bytes], its line end not included
    """

    path: Path
    columns: tuple[str, ...]
    starts: Array
    stops: Array
    layout: Layout

    def where(self, row: int) -> str:
        """Return file and line of a row, for messages."""
        return f"{self.path}:{row + (1 if self.layout == 'text' else 2)}"

    def values(self, line: bytes) -> list[str]:
        """Return the values of a row, or raise ValueError."""
        text = line.decode("utf-8").removesuffix("\r")
        if self.layout == "text":
            return [text]
        if self.layout == "tsv":
            return text.split("\t")
        try:
            [values] = csv.reader([text], strict=True)
        except csv.Error as error:
            raise ValueError(str(error)) from None
        return values


class RowFiles:
    """The rows of files, one file after another. One thread at a time may read.

    Args:
        files: from `index_file`
        counts: number of rows taken of each, from the first
    """

    def __init__(self, files: Sequence[RowFile], counts: Sequence[int]) -> None:
        self.files, self.counts = tuple(files), tuple(counts)
        self._edges = np.cumsum([0, *counts])
        self.count = int(self._edges[-1])
        """rows taken of all files"""
        self._open: OrderedDict[int, int] = OrderedDict()

    def read(self, number: int) -> Row:
        """Return a row.

        Raises:
            DataError: it has not one value for each column, or the file cannot be read.
        """
        if not 0 <= number < self.count:
            raise IndexError(f"samples are numbered from 0 to {self.count - 1}, got {number}")
        place = int(np.searchsorted(self._edges, number, side="right")) - 1
        file, row = self.files[place], number - int(self._edges[place])
        start, stop = int(file.starts[row]), int(file.stops[row])
        where = file.where(row)
        try:
            line = os.pread(self._descriptor(place), stop - start, start)
        except OSError as error:
            raise DataError(f"{file.path}: must be readable, got: {error.strerror}") from None
        try:
            values = file.values(line)
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: must be UTF-8, got byte {line[error.start]:#04x}") from None
        except ValueError as error:
            raise DataError(f"{where}: must be a whole row of CSV on one line, got: {error}", _DAMAGED) from None
        if len(values) != len(file.columns):
            wanted = counted(len(file.columns), "value")
            raise DataError(f"{where}: must have {wanted}, {', '.join(file.columns)}, got {len(values)}", _DAMAGED)
        return Row(number, where, dict(zip(file.columns, values, strict=True)))

    def close(self) -> None:
        """Close all files. May be called twice."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, place: int) -> int:
        if place not in self._open:
            if len(self._open) >= OPEN_FILES_LIMIT:
                os.close(self._open.popitem(last=False)[1])
            self._open[place] = os.open(self.files[place].path, os.O_RDONLY | os.O_CLOEXEC)
        self._open.move_to_end(place)
        return self._open[place]


_DAMAGED = "the file is damaged, or changed after it was opened; make or copy it again"


def csv_rows(
    folders: Sequence[Path],
    needed: Sequence[str],
    *,
    of_pairs: Sequence[str] = (),
    tried: str = "",
    hint: str = "",
) -> RowFiles:
    """Open the CSV files that the `meta.dat` of each folder lists.

    Args:
        folders: read in this order
        needed: columns that every file must have
        of_pairs: columns that pairs of texts need besides
        tried: all places where the folders were looked for, for messages
        hint: advice to get columns of pairs, or do without

    Raises:
        DataError: a file is missing, damaged, or has other columns or fewer rows.
    """
    [rows] = _listed_rows(folders, "csv", 1, tried)
    for file in rows.files:
        check_columns(file, needed, of_pairs, hint)
    return rows


def text_rows(folders: Sequence[Path], *, columns: int = 1, tried: str = "") -> list[RowFiles]:
    """Open the files of text that the `meta.dat` of each folder lists.

    Args:
        folders: read in this order
        columns: number of files on each line of `meta.dat`; their lines belong together
        tried: all places where the folders were looked for, for messages

    Returns:
        The rows of the files of each column, the same number in all of them

    Raises:
        DataError: a file is missing, or has fewer lines.
    """
    return _listed_rows(folders, "text", columns, tried)


def _listed_rows(folders: Sequence[Path], layout: Layout, columns: int, tried: str) -> list[RowFiles]:
    listed = [entry for folder in folders for entry in read_meta(folder, tried, columns)]
    counts = [count for _, count in listed]
    if sum(counts) == 0:
        raise DataError(f"{folders[0] / META}: must list at least one row, got none", _META_HINTS[columns])
    found = []
    for column in range(columns):
        files = [index_file(paths[column], layout) for paths, _ in listed]
        for file, count in zip(files, counts, strict=True):
            if len(file.starts) < count:
                raise DataError(
                    f"{file.path}: must have {count:,} rows, as {META} says, got {len(file.starts):,}",
                    f"the file was cut short, copy it again; or it is {META} that is wrong",
                )
        found.append(RowFiles(files, counts))
    return found


def line_tokens(row: Row) -> list[str]:
    """Return the tokens of a line of text, which have spaces between; zero bytes count as nothing."""
    return row.values[LINE].replace("\0", "").split()


def token_counts(rows: RowFiles) -> Array:
    """Return (rows,) int64: number of tokens of each line, or raise DataError. All of the files is read once."""
    counts = []
    for file, taken in zip(rows.files, rows.counts, strict=True):
        status = file.path.stat()
        counts.append(_counts(file.path, len(file.starts), status.st_size, status.st_mtime_ns)[:taken])
    return np.concatenate(counts)


@lru_cache(maxsize=256)
def _counts(path: Path, rows: int, _size_bytes: int, _changed_ns: int) -> Array:
    counts = np.zeros(rows, np.int64)
    with path.open("rb") as stream:
        for number, line in zip(range(rows), stream, strict=False):
            try:
                counts[number] = len(line.decode("utf-8").replace("\0", "").split())
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number + 1}: must be UTF-8, got byte {line[error.start]:#04x}") from None
    return counts


def check_columns(file: RowFile, needed: Sequence[str], of_pairs: Sequence[str] = (), hint: str = "") -> None:
    """Check that a file has these columns, or raise DataError, with the hint where only columns of pairs lack."""
    wanted = (*needed, *of_pairs)
    if missing := [name for name in wanted if name not in file.columns]:
        only_pairs = set(missing) <= set(of_pairs)
        raise DataError(
            f"{file.path}: must have the columns {', '.join(wanted)}, got {', '.join(file.columns) or 'none'}",
            hint if only_pairs else f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        )


def read_meta(folder: Path, tried: str = "", columns: int = 1) -> list[tuple[tuple[Path, ...], int]]:
    """Return the files on each line of a folder's `meta.dat`, and the number of rows that count, or raise DataError.

    A name counts from the folder. One that is not found there is looked for in it by its last part alone: some tools
    write whole paths, of the machine that the files were made on.
    """
    path, hint = folder / META, _META_HINTS[columns]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        places = f" (looked for its folder as {tried})" if tried not in ("", str(folder)) else ""
        found = "found no such folder" if not folder.is_dir() else "found nothing there"
        inside = sorted(each.parent for each in folder.glob(f"*/{META}"))
        told = f"{' and '.join(map(str, inside))} {'has' if len(inside) == 1 else 'have'} one" if inside else hint
        raise DataError(f"{path}: must be there and list the files, {found}{places}", told) from None
    except (NotADirectoryError, IsADirectoryError):
        raise DataError(f"{path}: must be a file and list others, got something else", hint) from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: must be text, got something else", hint) from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        before, _, count = line.strip().rpartition(" ")
        names = [before.strip()] if columns == 1 else before.split()
        if len(names) != columns or not all(names) or not count.isascii() or not count.isdigit():
            what = "a name" if columns == 1 else f"{columns} names"
            raise DataError(f"{path}:{number}: must be {what} and a number of rows, got {line.strip()!r:.60}", hint)
        named = [folder / name for name in names]
        entries.append((tuple(each if each.exists() else folder / each.name for each in named), int(count)))
    return entries


def index_file(path: Path, layout: Layout = "csv") -> RowFile:
    """Find the rows of a file, or raise DataError. The rows of an unchanged file are remembered."""
    if is_special(path):
        raise DataError(f"{path}: must be a file of rows, got a pipe or a device", "remove it")
    try:
        status = path.stat()
        return _index(path, layout, status.st_size, status.st_mtime_ns)
    except FileNotFoundError:
        raise DataError(f"{path}: must be a file of rows, found nothing there") from None
    except IsADirectoryError:
        raise DataError(f"{path}: must be a file of rows, got a folder") from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None


@lru_cache(maxsize=256)
def _index(path: Path, layout: Layout, _size_bytes: int, _changed_ns: int) -> RowFile:
    ends, size_bytes = [], 0
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK_BYTES):
            ends.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + size_bytes)
            size_bytes += len(block)
        # The last line need not have an end.
        stops = np.concatenate([*ends, [size_bytes]]).astype(np.int64)
        starts = np.concatenate([[0], stops[:-1] + 1])
        filled = len(stops)
        while filled > 1 and _is_blank(stream.fileno(), int(starts[filled - 1]), int(stops[filled - 1])):
            filled -= 1
        header = os.pread(stream.fileno(), int(stops[0]), 0).removeprefix(_BOM)
    if layout == "text":
        filled = 0 if len(stops) == 1 and size_bytes == 0 else filled
        return RowFile(path, (LINE,), starts[:filled], stops[:filled], layout)
    file = RowFile(path, (), starts[1:filled], stops[1:filled], layout)
    try:
        return replace(file, columns=tuple(name.strip() for name in file.values(header)))
    except ValueError:
        raise DataError(f"{path}: must begin with the names of its columns, got no text") from None


def _is_blank(descriptor: int, start: int, stop: int) -> bool:
    """Tell whether a line has no row: nothing, or half of a line end."""
    return stop - start < 2 and os.pread(descriptor, stop - start, start) in (b"", b"\r")
