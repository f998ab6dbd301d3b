"""Data sets whose samples are rows of tables."""

import ast
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from cstool.foundation.errors import DataError
from cstool.foundation.words import counted
from cstool.training.data.dataset import Array, Field, described
from cstool.training.data.row_files import Row, RowFiles

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class TableDataset(ABC):
    """Samples that are made of the rows of tables; subclasses read them.

    A subclass opens the tables that a section of a dataloader names, for a model of some size, and checks their files,
    all but the values of most rows. It raises DataError if files are missing, damaged or do not fit.

    Args:
        rows: closed with the data set
        fields: of a sample
        folders: for `describe`
    """

    def __init__(self, rows: RowFiles, fields: Mapping[str, Field], folders: Sequence[Path]) -> None:
        self.fields: Mapping[str, Field] = MappingProxyType(dict(fields))
        self.sample_count = rows.count
        self.rows = rows
        self._folders = tuple(folders)

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return described(self._folders, self)

    @abstractmethod
    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""

    def close(self) -> None:
        """Close all files. May be called twice."""
        self.rows.close()


class RowDataset(TableDataset):
    """Samples that are made of a row each."""

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        for place, number in enumerate(indices.tolist()):
            self.fill(self.rows.read(number), {name: array[place] for name, array in out.items()})

    @abstractmethod
    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill the arrays of one sample, or raise DataError if its row makes none."""


def put(target: Array, values: Sequence[int] | Array, padding: int = 0) -> None:
    """Write values to the first places of an array, and padding to the rest."""
    target[: len(values)] = values
    target[len(values) :] = padding


def integers(row: Row, name: str, *, least: int | None = 0, below: int = 2**31, hint: str | None = None) -> list[int]:
    """Return the whole numbers in a list, such as `[1, 2]`, or alone, or raise DataError.

    Args:
        name: of the column
        least: lower limit of the numbers; None for all that int32 holds
        below: upper limit of the numbers, exclusive
        hint: source of the limit
    """
    text = row.values[name]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    values = found if isinstance(found, list) else [found]
    if not all(type(value) is int or (type(value) is float and value.is_integer()) for value in values):
        raise DataError(f"{row.where}: {name} must be a list of whole numbers, such as [1, 2], got {text!r:.60}")
    values, lowest = [int(value) for value in values], -(2**31) if least is None else least
    if values and not (lowest <= min(values) and max(values) < below):
        wrong = next(value for value in values if not lowest <= value < below)
        rule = f"must be below {below}" if least is None and wrong >= below else f"must be in [{lowest}, {below})"
        raise DataError(f"{row.where}: {name} {rule}, got {wrong}", hint)
    return values


def integer(row: Row, name: str, *, below: int) -> int:
    """Return the whole number of a column, or raise DataError."""
    values = integers(row, name, below=below)
    if len(values) != 1:
        raise DataError(f"{row.where}: {name} must be one whole number, got {row.values[name]!r:.60}")
    return values[0]


def of_length(row: Row, name: str, values: Sequence[int], length: int, like: str) -> Sequence[int]:
    """Return values of the right number, or raise DataError that names the list of that length (`like`)."""
    if len(values) != length:
        raise DataError(f"{row.where}: {name} must have {counted(length, 'value')}, {like}, got {len(values):,}")
    return values


def texts(row: Row, name: str) -> list[str]:
    """Return the texts of a list as Python writes it, such as `['a', "b's"]`, or raise DataError."""
    text = row.values[name].strip()
    if text.startswith("[") and text.endswith("]"):
        # Evaluating is ten times as slow; only lists with escapes need it. Brackets, quotes, a comma and a space
        # between two make four for each.
        found = [] if "\\" in text else [one or other for one, other in _QUOTED.findall(text)]
        if found and sum(map(len, found)) + 4 * len(found) == len(text):
            return found
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            values = None
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            return values
    raise DataError(f"{row.where}: {name} must be a list of texts, such as ['a', 'b'], got {text!r:.60}")
