"""Tables of text that fit a width: cells are cut between words; where that is not enough, rows stand side by side."""

import re
from collections.abc import Collection, Sequence

_LEAST = 16
"""columns that a cell which is cut keeps, at least"""


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table under its titles, the columns of `right` aligned to the right.

    Args:
        columns: titles
        rows: cells
        right: titles of columns; they hold numbers and are never cut
        width: to fit [columns]; None for as wide as it gets
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
    """Return titles below each other, and beside them as many rows as there is room for; then the next ones."""
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
    """Return the parts of a cell that stay whole: words, with what ends them."""
    return re.findall(r"[^ ./_]*[ ./_]*", cell)
