"""Kinds of tables of data sets, recognized by their columns, and the checks of their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.training.data import drawn_masks, masked_text, summaries, token_classes
from cstool.training.data.row_dataset import integer, integers, of_length, texts
from cstool.training.data.row_files import (
    LINE,
    META,
    Row,
    RowFile,
    RowFiles,
    csv_rows,
    index_file,
    line_tokens,
    read_meta,
    text_rows,
)
from cstool.training.data.sentences import TASKS, Task

_TABLES = (".csv", ".tsv")
"""suffixes of files that begin with the names of their columns; others have lines"""


@dataclass(frozen=True)
class RowKind:
    """A kind of table.

    Args:
        name: for people to read
        columns: columns by which it is recognized
        tokens: (row, limit of numbers of tokens) -> number of tokens, after checks of the row; None where that takes a
        vocabulary
        words: the tokens of a row, where they are written out
    """

    name: str
    columns: Sequence[str]
    tokens: Callable[[Row, int], int | None]
    words: Callable[[Row], list[str]] | None = None


def kind_of(file: RowFile) -> RowKind:
    """Return the kind of a table, or raise DataError."""
    for kind in (*CSV_KINDS, *(task_kind(task) for task in TASKS.values())):
        if set(kind.columns) <= set(file.columns):
            return kind
    raise DataError(
        f"{file.path}: must have the columns of a known kind of data, got {', '.join(file.columns) or 'none'}",
        "; ".join(f"{kind.name}: {', '.join(kind.columns)}" for kind in CSV_KINDS),
    )


def task_of(folder: Path) -> Task | None:
    """Return the task of GLUE whose tables are in a folder, if there are any, or raise DataError."""
    names = (name for task in TASKS.values() for files in task.files.values() for name in files)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        return None
    file = index_file(found, "tsv")
    kind = kind_of(file)
    return next((task for task in TASKS.values() if task.name == kind.name), None)


def rows_of(folder: Path, part: str) -> tuple[RowKind, RowFiles]:
    """Open the tables of a part, and return their kind, too; raise DataError."""
    if (folder / META).is_file():
        listed = read_meta(folder)
        if not listed:
            raise DataError(f"{folder / META}: must list files, got none")
        [path] = listed[0][0]
        pair = path.name.split()
        if len(pair) == 2 and not path.exists() and all((folder / name).exists() for name in pair):
            raise DataError(
                f"{folder / META}: must list one file on each line, got the pair {' and '.join(pair)}",
                "a run reads pairs of files, and checks them as it does",
            )
        if path.suffix not in _TABLES:
            [rows] = text_rows([folder])
            return LINES, rows
        kind = kind_of(index_file(path))
        return kind, csv_rows([folder], kind.columns)
    task = task_of(folder)
    if task is None:
        raise DataError(f"{folder}: must have tables of SST-2 or MNLI, got none")
    files = [index_file(path, "tsv") for name in task.files[part] if (path := folder / name).is_file()]
    return task_kind(task), RowFiles(files, [len(file.starts) for file in files])


def task_kind(task: Task) -> RowKind:
    """Return the kind of the tables of a task."""

    def check(row: Row, _below: int) -> None:
        if row.values[task.label] not in task.classes:
            rule = f"{task.label} must be {', '.join(task.classes)}"
            raise DataError(f"{row.where}: {rule}, got {row.values[task.label]!r:.60}")

    return RowKind(task.name, [*task.sentences, task.label], check)


def _masked(row: Row, _below: int) -> int:
    count = len(texts(row, masked_text.TOKENS))
    if masked_text.SEGMENTS in row.values:
        _flags(row, masked_text.SEGMENTS, count, "one for each token")
    if masked_text.IS_RANDOM in row.values:
        integer(row, masked_text.IS_RANDOM, below=2)
    return count


def _drawn(row: Row, below: int) -> int:
    count = len(integers(row, drawn_masks.INPUT_IDS, below=below))
    attention = _flags(row, drawn_masks.ATTENTION, count, "one for each token")
    labels = integers(row, drawn_masks.LABELS, least=None, below=below)
    if drawn_masks.POSITIONS in row.values:
        positions = integers(row, drawn_masks.POSITIONS, below=max(1, count))
        of_length(row, drawn_masks.LABELS, labels, len(positions), "one for each position")
        if drawn_masks.WEIGHTS in row.values:
            _flags(row, drawn_masks.WEIGHTS, len(positions), "one for each position")
    else:
        of_length(row, drawn_masks.LABELS, labels, count, "one for each token")
    if drawn_masks.SEGMENTS in row.values:
        _flags(row, drawn_masks.SEGMENTS, count, "one for each token")
    if drawn_masks.NEXT in row.values:
        integer(row, drawn_masks.NEXT, below=2)
    return sum(attention)


def _flags(row: Row, name: str, count: int, like: str) -> Sequence[int]:
    """Return `count` zeros and ones."""
    return of_length(row, name, integers(row, name, below=2), count, like)


def _classes(row: Row, _below: int) -> int:
    tokens, labels = (row.values[name].split() for name in token_classes.NEEDED)
    of_length(row, token_classes.LABELS, [0] * len(labels), len(tokens), "one for each token")
    return len(tokens)


def _summaries(row: Row, below: int) -> int:
    count = len(integers(row, summaries.TOKENS, below=below))
    _flags(row, summaries.SEGMENTS, count, "one for each token")
    positions = integers(row, summaries.POSITIONS, below=max(1, count))
    labels = integers(row, summaries.LABELS, below=2)
    of_length(row, summaries.LABELS, labels, len(positions), "one for each [CLS]")
    return count


LINES = RowKind("lines of tokens", [LINE], lambda row, _below: len(line_tokens(row)), line_tokens)
MASKED = RowKind("CSV, masked as it is read", [masked_text.TOKENS], _masked, lambda row: texts(row, masked_text.TOKENS))
CSV_KINDS = (
    RowKind("CSV with masks", drawn_masks.NEEDED, _drawn),
    RowKind("CSV of texts to summarize", summaries.NEEDED, _summaries),
    RowKind("CSV of tokens with classes", token_classes.NEEDED, _classes),
    MASKED,
)
"""the most particular first"""
