"""Documents in tables of CSV: the texts of one column, a document in each row.

A table begins with the names of its columns. Fields are quoted as in RFC 4180, and may have line ends in them; they
are divided by commas, semicolons or tabs, of which the first line has most.
"""

import csv
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from io import BytesIO

from cstool.foundation.errors import DataError
from cstool.training.data.file_kinds import CSV
from cstool.training.data.sources import SourceFile, decoded, read_bytes

_BLOCK_BYTES = 2**20
_DIVIDERS = ",;\t"


def has_csv_rows(file: SourceFile) -> bool:
    """Tell whether each row of a file is a document."""
    return file.kind == CSV


def columns_of(file: SourceFile) -> list[str]:
    """Return the names of the columns of a table, or raise DataError."""
    for _, _, names in _rows(file, BytesIO(_begin_of(file)), 0, 1):
        return names
    raise _no_names(file)


def cut_rows(file: SourceFile, most_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield start and stop of runs of whole rows, and the number of their first line; names of columns are in none.

    Raises:
        DataError: there is no row, or one is longer than `most_bytes`, or cannot be read
    """
    start = stop = first = 0
    for line, end, _ in _rows(file, _lines(file), 0, 1):
        if stop == 0:
            start = stop = end
            continue
        if end - stop > most_bytes:
            raise DataError(
                f"{file.path}:{line}: a row must have at most {most_bytes:,} bytes, got more",
                "cut its text, or give it as a file of text",
            )
        if end - start > most_bytes:
            yield start, stop, first
            start, first = stop, 0
        first, stop = first or line, end
    if stop == start:
        if stop == 0:
            raise _no_names(file)
        raise DataError(f"{file.path}: must have a row below the names of its columns, got none")
    yield start, stop, first


def texts_of_rows(file: SourceFile, column: str, start: int, stop: int, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield the texts of a run of rows that are not empty, with the numbers of the lines on which their rows begin.

    Raises:
        DataError: the table does not have the column once, or a row has too few fields
    """
    columns = columns_of(file)
    if columns.count(column) != 1:
        raise DataError(
            f"{file.path}:1: must have the column {column!r} once, got {', '.join(columns)}",
            "--csv_column names another one",
        )
    place = columns.index(column)
    for line, _, fields in _rows(file, BytesIO(read_bytes(file, start, stop)), start, first):
        if len(fields) <= place:
            raise DataError(
                f"{file.path}:{line}: must have a field for column {column!r}, number {place + 1:,}, got "
                f"{len(fields):,} fields"
            )
        if text := fields[place].encode():
            yield line, text


def records_of_rows(file: SourceFile) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a table by the names of its columns, with the numbers of the lines on which they begin.

    Raises:
        DataError: there is no row of names, or a row has another number of fields
    """
    columns: list[str] | None = None
    for line, _, fields in _rows(file, _lines(file), 0, 1):
        if columns is None:
            columns = fields
        elif len(fields) != len(columns):
            rule = f"must have {len(columns):,} fields, one for each column"
            raise DataError(f"{file.path}:{line}: {rule}, got {len(fields):,}")
        else:
            yield line, dict(zip(columns, fields, strict=True))
    if columns is None:
        raise _no_names(file)


def _no_names(file: SourceFile) -> DataError:
    return DataError(f"{file.path}: must begin with the names of its columns, got no row")


def _lines(file: SourceFile) -> Iterator[bytes]:
    """Yield the lines of a file, with one block of it in memory at a time."""
    rest = b""
    for start in range(0, file.size_bytes, _BLOCK_BYTES):
        rest += read_bytes(file, start, min(start + _BLOCK_BYTES, file.size_bytes))
        end = rest.rfind(b"\n") + 1
        yield from BytesIO(rest[:end])
        rest = rest[end:]
    if rest:
        yield rest


def _begin_of(file: SourceFile) -> bytes:
    return read_bytes(file, 0, min(file.size_bytes, _BLOCK_BYTES))


def _rows(file: SourceFile, content: Iterable[bytes], start: int, first: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the rows that are not blank: the line on which each begins, the byte at which it ends, its fields.

    Args:
        content: line by line
        start, first: byte and number of its first line
    """
    place, line = start, first

    def lines() -> Iterator[str]:
        nonlocal place, line
        for each in content:
            text = decoded(f"{file.path}:{line}", each.removeprefix(BOM_UTF8) if place == 0 else each)
            place, line = place + len(each), line + 1
            yield text

    head = _begin_of(file).partition(b"\n")[0]
    csv.field_size_limit(2**31 - 1)  # longer rows are refused with a message of our own
    reader = csv.reader(lines(), delimiter=max(_DIVIDERS, key=lambda each: head.count(each.encode())), strict=True)
    begin = line
    try:
        for fields in reader:
            if fields:
                yield begin, place, fields
            begin = line
    except csv.Error as error:
        raise DataError(f"{file.path}:{begin}: must be a row of CSV, got: {error}") from None
