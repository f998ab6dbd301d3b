"""Where the rows of an array are when it has two slots: which range of them is in which, and its checksum."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Extent(NamedTuple):
    """Rows `start` to `stop` of an array, and the slot that they are in."""

    start: int
    stop: int
    slot: int
    crc32: int | None
    """of their bytes; None where nobody has computed it yet"""


class Extents:
    """All rows of one array, cut into extents in order, without gaps.

    Args:
        extents: of all rows; those without rows do not count
    """

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._set([extent for extent in extents if extent.start < extent.stop])

    def _set(self, extents: list[Extent]) -> None:
        self._extents = extents
        self._starts = [extent.start for extent in extents]

    def copy(self) -> Extents:
        """Return the same, to be changed apart."""
        return Extents(self._extents)

    def all(self) -> tuple[Extent, ...]:
        """Return all extents."""
        return tuple(self._extents)

    def within(self, start: int, stop: int) -> list[Extent]:
        """Return what a range of rows consists of. A part of an extent has no checksum."""
        found = []
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self._extents)):
            extent = self._extents[index]
            if extent.start >= stop:
                break
            if extent.stop <= start or start == stop:
                continue
            if start <= extent.start and extent.stop <= stop:
                found.append(extent)
            else:
                found.append(Extent(max(start, extent.start), min(stop, extent.stop), extent.slot, None))
        return found

    def replace(self, new: Extent) -> None:
        """Put a range of rows elsewhere."""
        if new.start == new.stop:
            return
        last = self._extents[-1].stop
        before, after = self.within(0, new.start), self.within(new.stop, last)
        self._set([*before, new, *after])
