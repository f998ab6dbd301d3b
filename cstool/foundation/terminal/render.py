"""Results for people and scripts: columns that fit a terminal, or JSON.

Cells are cut between words; if that is not enough, rows are shown as columns.
"""

import json
import math
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from cstool.foundation.plain_text import one_line
from cstool.foundation.progress.screen import is_terminal

_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
"""settings for cuts between words alone"""
_LEAST = 16
"""least width of a cut cell [columns]"""


def print_json(document: Any) -> None:
    """Print one JSON document.

    Dataclasses and named tuples become objects, paths texts, NaN and infinity, unknown to JSON, null.
    """
    print(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_line(text: str) -> None:
    """Print one line at once; line ends and escape sequences in names and texts from files are shown."""
    print(one_line(text), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows under column titles, the columns named in `right` aligned to the right."""
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    for line in table_lines(columns, [[one_line(cell) for cell in row] for row in rows], right, width):
        print(line)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and values, one pair per line, the values below each other."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        line = f"{name:<{width}}  {one_line(value)}"
        if is_terminal(sys.stdout):
            line = fill(line, shutil.get_terminal_size().columns, subsequent_indent=" " * min(width + 2, 18), **_WORDS)
        print(line)


def shape_text(shape: Sequence[int], stored: int | None = None) -> str:
    """Return a shape in words, such as `4 x 5`; of a sparse tensor with `stored` elements, its zeros, too."""
    text = " x ".join(map(str, shape))
    return text if stored is None else f"{text}, {1 - stored / math.prod(shape):.1%} zeros"


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table under its titles, the columns of `right` aligned to the right.

    Args:
        columns: titles
        rows: cells
        right: titles of columns; they hold numbers and are never cut
        width: width to fit [columns]; None for no limit
    """
    table = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    if width is not None:
        for i in sorted(range(len(columns)), key=lambda i: -widths[i]):
            excess = sum(widths) + 2 * (len(widths) - 1) - width
            if excess > 0 and columns[i] not in right:
                longest_piece = max(len(piece) for row in table for piece in _pieces(row[i]))
                widths[i] = max(widths[i] - excess, min(widths[i], max(_LEAST, longest_piece)))
        if sum(widths) + 2 * (len(widths) - 1) > width:
            return _turned(columns, table[1:], width)
    lines = []
    for row in table:
        cut = [_cut(cell, size) for cell, size in zip(row, widths, strict=True)]
        for place in range(max(map(len, cut))):
            cells = [cell[place] if place < len(cell) else "" for cell in cut]
            aligned = (
                cell.rjust(size) if column in right else cell.ljust(size)
                for cell, size, column in zip(cells, widths, columns, strict=True)
            )
            lines.append("  ".join(aligned).rstrip())
    return lines


def _turned(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return titles as rows, with as many columns of values as there is room for; then the next ones."""
    size = max(map(len, columns))
    groups: list[list[Sequence[str]]] = []
    room = 0
    for row in rows:
        row_width = max(map(len, row)) + 2
        if row_width > room:
            groups.append([])
            room = width - size
        groups[-1].append(row)
        room -= row_width
    lines: list[str] = []
    for group in groups:
        widths = [max(map(len, row)) for row in group]
        lines += [""] * bool(lines)
        for i, title in enumerate(columns):
            cells = [f"{row[i]:<{cell_width}}" for row, cell_width in zip(group, widths, strict=True)]
            lines += ["  ".join((f"{title:<{size}}", *cells)).rstrip()] * any(row[i] for row in group)
    return lines


def _cut(cell: str, width: int) -> list[str]:
    """Return a cell in lines."""
    lines = [""]
    for piece in _pieces(cell):
        if len((lines[-1] + piece).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(cell: str) -> list[str]:
    """Return the parts of a cell that stay whole: words, each with the characters that end it."""
    return re.findall(r"[^ ./_]*[ ./_]*", cell)
