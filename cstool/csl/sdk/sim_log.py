"""The log of a run for people, `sim.log`: commands of the host and output of programs, with the cycle."""

from pathlib import Path

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.plain_text import one_line


class SimLog:
    """Lines with their cycle, kept until they are written.

    Args:
        path: path of the file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []

    def add(self, cycle: int, text: str) -> None:
        """Keep a line."""
        self._lines.append(f"@{cycle} {one_line(text)}")

    def write(self) -> None:
        """Write all lines so far."""
        write_replacing(self._path, "".join(line + "\n" for line in self._lines))
