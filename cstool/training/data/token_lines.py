"""Files of text whose lines are texts, cut into tokens with spaces between."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array
from cstool.training.data.row_files import LINE, Row, RowFile, RowFiles


def line_tokens(row: Row) -> list[str]:
    """Return the tokens of a line; zero bytes count as nothing."""
    return row.values[LINE].replace("\0", "").split()


def token_counts(rows: RowFiles) -> Array:
    """Return (rows,) int64: number of tokens of each line, or raise DataError. All of the files is read once."""
    counts = []
    for file, taken in zip(rows.files, rows.counts, strict=True):
        status = file.path.stat()
        counts.append(_counts(_Lines(file), file.path, status.st_size, status.st_mtime_ns)[:taken])
    return np.concatenate(counts)


class _Lines:
    """A file that equals another of the same path; a cache has its size and time as keys beside it."""

    def __init__(self, file: RowFile) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lines) and self.file.path == other.file.path

    def __hash__(self) -> int:
        return hash(self.file.path)


@lru_cache(maxsize=256)
def _counts(lines: _Lines, path: Path, _size_bytes: int, _changed_ns: int) -> Array:
    counts = np.zeros(len(lines.file.starts), np.int64)
    with path.open("rb") as stream:
        for number, line in zip(range(len(counts)), stream, strict=False):
            try:
                counts[number] = len(line.decode("utf-8").replace("\0", "").split())
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{lines.file.where(number)}: must be UTF-8, got byte {line[error.start]:#04x}"
                ) from None
    return counts
