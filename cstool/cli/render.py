"""Results as people and scripts read them: columns that fit a terminal, JSON where asked for."""

import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from cstool.cli.table import table_lines
from cstool.plain_text import one_line
from cstool.verbs.screen import is_terminal

_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
"""how a line is cut: between words alone"""


def print_json(document: Any) -> None:
    """Print one JSON document.

    Dataclasses and named tuples become objects, paths texts, NaN and infinity, which JSON does not have, null.
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
    """Print one line at once, whatever it holds of names and texts that came from files."""
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
    """Return a shape in words, such as `4 x 5`; of a sparse tensor, of which `stored` elements are, its zeros, too."""
    text = " x ".join(map(str, shape))
    return text if stored is None else f"{text}, {1 - stored / math.prod(shape):.1%} zeros"
