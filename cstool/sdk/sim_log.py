"""What a run leaves behind for people: `sim.log`, what was done and said, and `sim_stats.json`, what it cost."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.atomic_file import write_replacing
from cstool.fabric.stats import stats_document
from cstool.plain_text import one_line

if TYPE_CHECKING:
    from cstool.fabric.simulation import Simulation


class SimLog:
    """Lines with their cycle, kept until they are written.

    Args:
        path: where to
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


def write_stats(simulation: "Simulation", path: Path) -> None:
    """Write what `Simulation.stats` counts."""
    write_replacing(path, json.dumps(stats_document(simulation)) + "\n")
