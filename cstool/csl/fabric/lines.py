"""Places in the source of compiled code: from the comments at the ends of its lines.

`Lines` follows code while it runs, line by line. That costs several times the time of the code, so it is for records.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

_COMMENT = "  # "


def place_on(code: str, line: int) -> str:
    """The place that the comment on a line of compiled code names, "pe.csl:40:5"; "" for a line without one.

    Args:
        code: Python text of a program (`PEProgram.code`)
        line: from 1; 0 is no line
    """
    own, _ = _places(code)
    return own[line] if line < len(own) else ""


def files_of(code: str) -> set[str]:
    """Names of the source files that the places of compiled code are in."""
    own, _ = _places(code)
    return {place.rsplit(":", 2)[0] for place in own if place}


@lru_cache(maxsize=1024)
def _places(code: str, statements: tuple[tuple[int, str], ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The place of each line of compiled code, line 1 at index 1: as its own comment has it, or "".

    And the nearest one: a line without a place, and without one among `statements`, counts to the line above it.
    """
    known = dict(statements)
    own, nearest = [""], [""]
    for number, line in enumerate(code.splitlines(), start=1):
        _, comment, place = line.rpartition(_COMMENT)
        own.append(place if comment else "")
        nearest.append(known.get(number) or own[-1] or nearest[-1])
    return tuple(own), tuple(nearest)


class Lines:
    """Follows the code of one PE.

    Args:
        pe: the PE
        on_line: called with the cycle, the index of the PE, and a place, as a line of that place begins
    """

    def __init__(self, pe: "ProcessingElement", on_line: Callable[[int, int, str], None]) -> None:
        self._pe = pe
        self._on_line = on_line
        self._file = pe.program.name
        _, self._places = _places(pe.program.code, tuple(pe.program.statements.items()))

    def followed(self, code: Callable[[], Any]) -> Callable[[], Any]:
        """The same code, that tells its lines; what it calls runs as before."""

        def run() -> Any:
            before = sys.gettrace()
            sys.settrace(self._called)
            try:
                return code()
            finally:
                sys.settrace(before)

        return run

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:  # noqa: ARG002
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:  # noqa: ARG002
        if event == "line":
            self._on_line(self._pe.settle(), self._pe.index, self._places[frame.f_lineno])
        return self._line
