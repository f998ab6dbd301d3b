"""The text of `--help`, fitted to the terminal: rows of words and their meanings, and examples that can be pasted.

The epilog of a command has its examples, a line `Example: cstool ...` for each, and text in paragraphs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer import Context

EXAMPLE = "Example: "
LEAST_WIDTH = 20
"""width of the narrowest help [columns]"""
_WORDS_WIDTH, _MEANING_WIDTH = 30, 36
"""the widest column of words, and the narrowest column of meanings beside it [columns]"""


def examples_of(epilog: str | None) -> list[str]:
    """Return the commands in the examples of an epilog."""
    lines = (epilog or "").splitlines()
    return [line.removeprefix(EXAMPLE).strip() for line in lines if line.startswith(EXAMPLE)]


def new_formatter(ctx: Context) -> Any:
    """A formatter of help, as wide as the terminal but no wider than a readable line."""
    formatter = ctx.make_formatter()
    columns = min(shutil.get_terminal_size().columns, ctx.max_content_width or 80)
    formatter.width = max(columns - 2, LEAST_WIDTH)
    return formatter


def write_rows(formatter: Any, rows: Sequence[tuple[str, str]]) -> None:
    """Write words and their meanings, in two columns where there is room for them."""
    indent = " " * formatter.current_indent
    words_width = max((len(word) for word, _ in rows if len(word) <= _WORDS_WIDTH), default=0)
    room = formatter.width - len(indent) - words_width - 2
    is_beside = room >= _MEANING_WIDTH
    hanging = indent + " " * (words_width + 2 if is_beside else 4)
    for word, meaning in rows:
        lines = _fill(meaning, formatter.width - len(hanging))
        if is_beside and lines and len(word) <= words_width:
            formatter.write(f"{indent}{word:{words_width}}  {lines.pop(0)}\n")
        else:
            formatter.write(f"{indent}{word}\n")
        for line in lines:
            formatter.write(f"{hanging}{line}\n")


def write_text(formatter: Any, text: str | None) -> None:
    """Write paragraphs, slightly indented."""
    for paragraph in filter(None, (part.strip() for part in (text or "").split("\n\n"))):
        formatter.write_paragraph()
        for line in _fill(paragraph, formatter.width - 2):
            formatter.write(f"  {line}\n")


def write_epilog(formatter: Any, epilog: str | None) -> None:
    """Write the examples of an epilog, then its text."""
    if examples := examples_of(epilog):
        with formatter.section("Examples" if len(examples) > 1 else "Example"):
            for command in examples:
                for line in command_lines(command, formatter.width - formatter.current_indent):
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
    lines = (epilog or "").splitlines()
    write_text(formatter, "\n".join(line for line in lines if not line.startswith(EXAMPLE)))


def _fill(text: str, width: int) -> list[str]:
    """Cut a text into lines between words; flags and paths stay whole."""
    return wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def command_lines(command: str, width: int) -> list[str]:
    r"""Cut a command into lines that a shell joins again, a flag beside its value: `cstool run \`, `--params x`."""
    pieces: list[str] = []
    words = re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", command)
    for before, word in zip(["", *words], words, strict=False):
        if before.startswith(("-", ">")) and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [pieces[0]]
    for place, piece in enumerate(pieces[1:], start=2):
        room = width if place == len(pieces) else width - len(" \\")
        if len(lines[-1]) + 1 + len(piece) <= room:
            lines[-1] += f" {piece}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
    return lines
