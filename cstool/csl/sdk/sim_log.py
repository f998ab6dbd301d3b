"""`sim.log`: what the host did, and what programs traced or printed, a line each, with its cycle."""

from bisect import bisect_right

from cstool.foundation.plain_text import one_line


class SimLog:
    """The lines, in order.

    A PE's code runs at once, at the cycle at which it begins or goes on. Lines of several PEs whose code runs in the
    same cycle are in the order of the PEs, so the log does not depend on the engine, nor on its threads.

    Attributes:
        lines: cycle and text of each
    """

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self._places: list[tuple[int, int]] = []  # cycle in which each came, and its PE
        self._first = 0  # lines before this one stay where they are

    def note(self, cycle: int, text: str) -> None:
        """Add a line of the host."""
        self.lines.append((cycle, one_line(text)))
        self._places.append((cycle, -1))
        self._first = len(self.lines)

    def say(self, now: int, pe: int, cycle: int, text: str) -> None:
        """Add a line of a program.

        Args:
            now: the cycle in which it came
            pe: index of the PE
            cycle: the cycle that its code has come to
            text: the line
        """
        at = bisect_right(self._places, (now, pe), self._first)
        self.lines.insert(at, (cycle, one_line(text)))
        self._places.insert(at, (now, pe))

    def __str__(self) -> str:
        return "".join(f"@{cycle} {line}\n" for cycle, line in self.lines)
