"""Limits of compile time: turns of loops, calls, sizes of values. A program beyond them is taken for endless."""

from collections.abc import Iterator
from contextlib import contextmanager

from cstool.csl.language.source import CslError, Place

MOST_TURNS = 1_000_000
"""turns of a loop at compile time, more than the PEs of a wafer; they take some seconds"""
MOST_INLINED = 10_000
"""turns of a loop that is written out"""
DEEPEST_CALL = 200
"""calls inside calls"""
MOST_STEPS = 20_000_000
"""turns and calls of a whole compilation; they take about a minute"""
INLINED, FUNCTION, IMPORT = 20, 100, 1000
"""steps of an unrolled turn, of a function, and of an import"""
FOLDED = 1000
"""steps of a call in a function whose arguments are known: beyond, it is left to run time"""
MOST_BITS = 8192
"""bits of a `comptime_int`"""
MOST_CHARACTERS = 2**20
"""characters of a string"""
MOST_ELEMENTS = 2**24
"""elements of an array, over all dimensions and inner arrays together"""
A_STRING, AN_ARRAY = "a string has at most {} characters", "an array has at most {} elements"


class Limits:
    """The limits of one compilation, and the steps left.

    Args:
        turns: most turns of one loop; None for the defaults
        depth: most calls inside calls; None for the default
    """

    def __init__(self, turns: int | None = None, depth: int | None = None) -> None:
        self.turns = MOST_TURNS if turns is None else turns
        self.inlined = MOST_INLINED if turns is None else turns
        self.depth = DEEPEST_CALL if depth is None else depth
        self._left = MOST_STEPS

    def take(self, place: Place | None, steps: int = 1) -> None:
        """Take steps.

        Raises:
            CslError: there are none left
        """
        self._left -= steps
        if self._left < 0:
            raise CslError(
                f"compile time must end within {MOST_STEPS:,} turns of loops and calls, it goes on",
                place,
                "fewer turns of the loops around this place do",
            )

    @contextmanager
    def within(self, steps: int) -> Iterator[None]:
        """Run the body of the `with` in no more than these steps: an attempt."""
        kept, self._left = self._left, min(steps, self._left)
        given = self._left
        try:
            yield
        finally:
            self._left = kept - (given - max(self._left, 0))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Give back the steps that the body of the `with` takes."""
        left = self._left
        try:
            yield
        finally:
            self._left = left

    def check_turns(self, turns: int, what: str, place: Place, most: int) -> None:
        """Check the turns of a loop; `what` is its subject in the message: "a 'while' at compile time".

        Raises:
            CslError: there are too many
        """
        if turns > most:
            raise CslError(
                f"{what} must end within {most:,} turns, it goes on",
                place,
                "does its step, or its body, change what its end depends on? --max-inlined-iterations allows more",
            )

    def check_depth(self, depth: int, what: str, name: str, place: Place | None) -> None:
        """Check the depth of a call inside others.

        Raises:
            CslError: too deep
        """
        if depth > self.depth:
            raise CslError(
                f"{what} are at most {self.depth:,} deep, '{name}' is deeper",
                place,
                "does it call itself without an end? --comptime-func-depth-limit allows more",
            )


def whole(number: int, place: Place | None) -> int:
    """Return a `comptime_int` if its size is allowed.

    Raises:
        CslError: it is too large
    """
    if number.bit_length() > MOST_BITS:
        raise CslError(f"a comptime_int has at most {MOST_BITS:,} bits, got {number.bit_length():,}", place)
    return number


def check_size(size: int, most: int, what: str, place: Place | None) -> None:
    """Check a size; `what` is the beginning of the message, with the limit in it, such as `A_STRING`.

    Raises:
        CslError: it is too large
    """
    if size > most:
        raise CslError(f"{what.format(f'{most:,}')}, got {size:,}", place)
