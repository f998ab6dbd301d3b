"""The source of a program: its files, its lines, and the statements that compiled code comes to."""

import os
import re
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path

from cstool.csl.fabric.program import FabricProgram, PEProgram
from cstool.csl.language.compile import LIBRARY
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import nearest

AROUND = 3
"""lines before and behind a line that is shown"""


def line_of(place: str) -> tuple[str, int]:
    """The file and the line of a place such as `pe.csl:40:5`."""
    file, line, _ = place.rsplit(":", 2)
    return file, int(line)


def _functions(program: PEProgram) -> dict[str, tuple[str, int]]:
    """The place of the first statement of each function of a program."""
    found: dict[str, tuple[str, int]] = {}
    name = ""
    for number, line in enumerate(program.code.splitlines(), start=1):
        head = re.match(r"    def (\w+)\(", line)
        if head is not None:
            name = head[1]
        elif name and number in program.statements:
            found.setdefault(name, line_of(program.statements[number]))
            name = ""
    return found


class Sources:
    """Files in CSL of a program.

    Args:
        program: the compiled program
        folder: the directory that it was compiled in

    Attributes:
        functions: file and line of the first statement of functions and tasks, by their names
    """

    def __init__(self, program: FabricProgram, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, list[str]] = {}
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self.functions: dict[str, tuple[str, int]] = {}
        for each in program.programs:
            self.functions |= _functions(each)
            for place in each.statements.values():
                file, line = line_of(place)
                self._lines[file].add(line)

    @property
    def files(self) -> list[str]:
        """Files with statements, the program's before the library's."""
        return sorted(self._lines, key=lambda file: (file.startswith("<"), file))

    def file_named(self, text: str) -> str:
        """A file by its name, or by the end of its path.

        Raises:
            CstoolError: no file with statements has that name, or several have
        """
        files = self.files
        found = [file for file in files if file == text] or [
            file for file in files if file.endswith(os.sep + text) or os.path.basename(file) == text
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise CstoolError(f"{text}: must be one file, it is {', '.join(found)}")
        near = nearest(text, [os.path.basename(file) for file in files])
        hint = f"did you mean {near}?" if near else f"its files: {', '.join(files) or 'none'}"
        raise CstoolError(f"{text}: must be a file with statements of this program, there is none", hint)

    def line_with_code(self, file: str, line: int) -> int:
        """A line, or the first one behind it with a statement that is compiled.

        Raises:
            CstoolError: there is none
        """
        lines = sorted(self._lines[file])
        at = bisect_left(lines, line)
        if at == len(lines):
            raise CstoolError(
                f"{file}:{line}: must be a line with code, or before one, the last one with code is {lines[-1]}"
            )
        return lines[at]

    def text(self, file: str) -> list[str]:
        """The lines of a file; [] if it cannot be found."""
        if file not in self._texts:
            self._texts[file] = self._read(file)
        return self._texts[file]

    def _read(self, file: str) -> list[str]:
        beside = self._folder / file
        if file.startswith("<"):
            paths = [LIBRARY / f"{file[1:-1]}.csl"]
        else:
            paths = [beside] if beside.is_file() else sorted(self._folder.rglob(os.path.basename(file)))
        for path in paths:
            try:
                return path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
        return []

    def line(self, place: str) -> str:
        """The line of a place, with its number; "" if its file cannot be found."""
        file, number = line_of(place)
        lines = self.text(file)
        return f"{number:5}  {lines[number - 1]}" if 0 < number <= len(lines) else ""

    def around(self, file: str, number: int, here: int | None = None) -> list[str]:
        """The lines around a line; `here` is marked.

        Raises:
            CstoolError: the file cannot be found, or has no such line
        """
        lines = self.text(file)
        if not lines:
            raise CstoolError(f"{file}: must be readable below {self._folder}, it is not there")
        if not 1 <= number <= len(lines):
            raise CstoolError(f"{file}:{number}: must be a line of the file, it has {len(lines)}")
        first = max(1, number - AROUND)
        return [
            f"{'->' if at == here else '  '}{at:4}  {lines[at - 1]}".rstrip()
            for at in range(first, min(len(lines), number + AROUND) + 1)
        ]
