"""Results as people and scripts read them: tables on a terminal, plain columns elsewhere, JSON where asked for."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cstool.api.screen import is_terminal


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows under column titles, the columns named in `right` aligned to the right."""
    if is_terminal(sys.stdout):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        print("  ".join(cells).rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and values, one pair per line, the values below each other."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def bytes_text(count_bytes: int) -> str:
    """Return a number of bytes in the unit that suits it, such as `1.5 MiB`."""
    if count_bytes < 1024:
        return f"{count_bytes} B"
    power = min(int(math.log2(count_bytes) // 10), 6)
    return f"{count_bytes / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"


def shape_text(shape: Sequence[int], stored: int | None = None) -> str:
    """Return a shape in words, such as `4 x 5`; of a sparse tensor, of which `stored` elements are, its zeros, too."""
    text = " x ".join(map(str, shape))
    return text if stored is None else f"{text}, {1 - stored / math.prod(shape):.1%} zeros"
