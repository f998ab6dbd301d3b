"""Tutorials of the documentation: their files, written as the reader would, and their commands, typed."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.end_to_end.pages import typed

_BLOCK = re.compile(r"(?:^`([\w/.]+)`(, changed)?:\n\n)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def check_console(console: str, folder: Path) -> Path:
    """Type the commands of a block, and compare what they print, cycles too; return the folder afterwards."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", console, re.MULTILINE):
        if command.startswith("cd "):
            folder = (folder / command.removeprefix("cd ")).resolve()
        else:
            assert typed(f"exec 2>&1; {command}", folder).stdout == shown, command
    return folder


def changed(text: str, fragment: str) -> str:
    """A file in which a fragment, a function or lines `const NAME =`, takes the place of what is there."""
    if fragment.startswith("fn "):
        head = re.escape(fragment.partition("\n")[0])
        new, count = re.subn(rf"^{head}\n.*?^\}}\n", lambda _: fragment, text, flags=re.DOTALL | re.MULTILINE)
        assert count == 1
        return new
    for line in fragment.splitlines():
        head = re.escape(line.partition("=")[0])
        text, count = re.subn(rf"^{head}=.*$", lambda _, line=line: line, text, flags=re.MULTILINE)
        assert count == 1, line
    return text


def blocks_of(text: str) -> Iterator[tuple[str, bool, str, str]]:
    """The blocks of a part of a page: name of the file, whether it changes one, kind, text."""
    for name, more, kind, body in _BLOCK.findall(text):
        yield name, bool(more), kind, body


def write_block(folder: Path, name: str, is_change: bool, body: str) -> None:
    """Write a file, or change it."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(changed(path.read_text(), body) if is_change else body)


def type_all(text: str, folder: Path, *counts: int) -> Path:
    """Write the files of a part of the page, and type its commands; `counts` counts both. Return the last folder."""
    where, files, consoles = folder, 0, 0
    for name, is_change, kind, body in blocks_of(text):
        if kind == "console":
            where = check_console(body, where)
            consoles += 1
        else:
            write_block(folder, name, is_change, body)
            files += 1
    assert (files, consoles) == counts
    return where
