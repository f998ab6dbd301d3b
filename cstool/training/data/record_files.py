"""Files of records, read one record at a time: JSON Lines, an array of JSON, tables of CSV and of Parquet."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cstool.foundation.errors import DataError
from cstool.foundation.words import counted
from cstool.training.data.csv_rows import has_csv_rows, records_of_rows
from cstool.training.data.json_lines import has_json_lines, lines_of, object_of
from cstool.training.data.sources import SourceFile, decoded, find_files, read_bytes

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
TEXT_LINES = ".txt"
"""suffix of files in which each line is the `text` of a record"""
_PARQUET_ROWS = 256
"""rows of Parquet in memory at a time"""
_TOLD_RECORDS = 2**8
"""records between two reports of progress"""
_LISTED = 5
"""broken lines whose numbers an error has"""


@dataclass(frozen=True)
class Record:
    """An object of a file.

    Args:
        where: file and line, or number, for messages
        name: file below its source, and line or number: the same wherever the source lies
        content: its keys and values
    """

    where: str
    name: str
    content: dict[str, Any]


@dataclass
class BrokenLines:
    """Lines of JSON Lines that are no objects.

    Args:
        numbers: of each file, by its path
        first: the error of the first of all
    """

    numbers: dict[Path, list[int]] = field(default_factory=dict)
    first: DataError | None = None

    @property
    def count(self) -> int:
        """Number of the lines."""
        return sum(map(len, self.numbers.values()))

    def add(self, file: SourceFile, line: int, error: DataError) -> None:
        """Count a line."""
        self.numbers.setdefault(file.path, []).append(line)
        self.first = self.first or error

    def refuse(self, remedy: str = "--skip_broken") -> None:
        """Raise DataError if there is such a line: number of all, places of some, the fault of the first."""
        hint = f"{remedy} leaves such lines out"
        if self.first is None:
            return
        path, lines = next(iter(self.numbers.items()))
        if self.count == 1:
            raise DataError(self.first.message, hint)
        more = f" and {self.count - _LISTED:,} more" if self.count > _LISTED else ""
        places = [f"{path}:{line}" for path, lines in self.numbers.items() for line in lines[:_LISTED]][:_LISTED]
        fault = self.first.message.removeprefix(f"{path}:{lines[0]}: ")
        raise DataError(
            f"{counted(self.count, 'line')} must be JSON objects, but are not: {', '.join(places)}{more}; the first: "
            f"{fault}",
            hint,
        )


Progress = Callable[[int, int], None]
"""told the bytes of files done, about, and in all"""


@dataclass
class RecordReader:
    """The reading of files of records, one record at a time.

    Args:
        files: of `record_files`
        progress: told how far it is
        broken: lines that are no objects
        count: of the records read so far
    """

    files: Sequence[SourceFile]
    progress: Progress | None
    broken: BrokenLines = field(default_factory=BrokenLines)
    count: int = 0

    def records(self) -> Iterator[tuple[SourceFile, Record, int]]:
        """Yield all records with their files and their bytes, about."""
        done_bytes = 0
        for file in self.files:
            file_bytes = 0
            for record in records_of(file, self.broken):
                self.count += 1
                size_bytes = sum(len(str(value)) for value in record.content.values())
                yield file, record, size_bytes
                file_bytes += size_bytes
                if self.count % _TOLD_RECORDS == 0:
                    self._tell(done_bytes + min(file_bytes, file.size_bytes))
            done_bytes += file.size_bytes
            self._tell(done_bytes)

    def _tell(self, done_bytes: int) -> None:
        if self.progress is not None:
            self.progress(done_bytes, sum(file.size_bytes for file in self.files))


def record_files(sources: Sequence[Path], more: Sequence[str] = ()) -> tuple[SourceFile, ...]:
    """Return the files of records among files and folders, sorted by name, or raise DataError.

    Args:
        sources: files and folders
        more: suffixes of further kinds of files: `TEXT_LINES`
    """
    suffixes = (*_SUFFIXES, *more)
    for source in sources:
        if source.is_file() and source.suffix.lower() not in suffixes:
            raise DataError(f"{source}: must be a file of {', '.join(suffixes)}, got another")
    found = find_files(sources, takes_json=True)
    files = tuple(file for file in found if PurePosixPath(file.name).suffix.lower() in suffixes)
    if not files:
        raise DataError(f"{', '.join(map(str, sources))}: must hold files of {', '.join(suffixes)}, got none")
    return files


def records_of(file: SourceFile, broken: BrokenLines) -> Iterator[Record]:
    """Yield the records of a file, in order.

    Args:
        file: of `record_files`
        broken: counts lines of JSON Lines that are no objects

    Raises:
        DataError: the file is of another kind than its name says, damaged, or cannot be read
    """
    if has_csv_rows(file):
        yield from (_record(file, line, row) for line, row in records_of_rows(file))
    elif file.path.suffix.lower() == ".parquet":
        yield from _rows_of_parquet(file)
    elif file.kind is not None:
        raise DataError(f"{file.path}: must be text, as its name says, got a file of {file.kind}")
    elif file.path.suffix.lower() == TEXT_LINES:
        for line, content in lines_of(file):
            yield _record(file, line, {"text": decoded(f"{file.path}:{line}", content)})
    elif has_json_lines(file) or not _is_array(file):
        for line, content in lines_of(file):
            try:
                found = object_of(f"{file.path}:{line}", content)
            except DataError as error:
                broken.add(file, line, error)
            else:
                yield _record(file, line, found)
    else:
        yield from _items(file)


def _record(file: SourceFile, number: int, content: dict[str, Any]) -> Record:
    return Record(f"{file.path}:{number}", f"{file.name}:{number}", content)


def _is_array(file: SourceFile) -> bool:
    """Tell whether a file of JSON is one array; objects, one on each line, are often called .json, too."""
    return read_bytes(file, 0, min(file.size_bytes, 2**12)).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _items(file: SourceFile) -> Iterator[Record]:
    """Yield the objects of an array, which is in memory as a whole; they are told by their number, from 1."""
    text = decoded(str(file.path), read_bytes(file, 0, file.size_bytes).removeprefix(b"\xef\xbb\xbf"))
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        rule = "must be an array of JSON objects"
        raise DataError(f"{file.path}:{error.lineno}: {rule}, got: {error.msg}, column {error.colno:,}") from None
    except RecursionError:
        raise DataError(f"{file.path}: must be an array of JSON objects, got one that is nested too deeply") from None
    for number, item in enumerate(found, 1):
        where = f"{file.path}: item {number:,}"
        if not isinstance(item, dict):
            raise DataError(f"{where}: must be a JSON object, got something else")
        yield Record(where, f"{file.name}:{number}", item)


def _rows_of_parquet(file: SourceFile) -> Iterator[Record]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DataError(
            f"{file.path}: reading Parquet needs the package pyarrow, which is not installed",
            "pip install 'cstool[parquet]', or pyarrow itself",
        ) from None
    number = 0
    try:
        with ParquetFile(file.path) as table:
            for batch in table.iter_batches(_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield Record(f"{file.path}: row {number:,}", f"{file.name}:{number}", row)
    except ArrowException as error:
        raise DataError(f"{file.path}: must be a file of Parquet, got: {error}") from None
