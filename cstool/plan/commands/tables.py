"""Shared by reports of estimates: tables with reasons for missing estimates, facts, rows in files."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import time_text
from cstool.plan.verbs.results import Tried

Row = TypeVar("Row", bound=Tried[Any, Any])


def print_tried(
    columns: Sequence[str],
    rows: Sequence[Row],
    cells: Callable[[Row, Any], Iterable[str]],
    label_text: Callable[[Any], str] = "{:,}".format,
    left: Sequence[str] = (),
) -> None:
    """Print a table of estimates, then why others are left out.

    Args:
        columns: titles
        rows: one or more, of which one has an estimate
        cells: of a row and its estimate
        label_text: the label of a row that is left out
        left: columns of words, which are aligned to the left
    """
    table = [tuple(cells(row, row.estimate)) for row in rows if row.estimate is not None]
    print_table(columns, table, right=[name for name in columns if name not in left])
    for row in rows:
        if row.estimate is None:
            print_line(f"{label_text(row.label)}: left out: {row.why}")


def print_named(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and texts, a pair to a line, the texts below each other."""
    rows = list(facts)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print_line(f"{name:{width}}  {text}")


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as comma-separated values under a line of names, whole or not at all. Units are in the names.

    Raises:
        EstimateError: the file cannot be written
    """
    from cstool.foundation.atomic_file import write_replacing

    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        write_replacing(path, out.getvalue())
    except OSError as error:
        raise EstimateError(f"{path}: cannot be written: {error.strerror}") from error


def short_time_text(seconds: float) -> str:
    """A time to four digits, without hours or days beside the seconds."""
    return time_text(seconds).partition(" (")[0]
