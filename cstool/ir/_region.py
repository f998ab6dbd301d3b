"""Region and Route: rectangles of PEs, and what connects them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A rectangle of PEs.

    Args:
        x: of its west column, counted east from 0
        y: of its north row, counted south from 0
        width: [PEs]
        height: [PEs]
    """

    x: int
    y: int
    width: int
    height: int

    @property
    def pes(self) -> int:
        """How many PEs it has."""
        return self.width * self.height


@dataclass(frozen=True)
class Route:
    """A bundle of parallel lanes, each one PE wide, from one region's border to another's.

    Args:
        name: of what moves
        source: number of the stage; -1 is the west edge of the wafer
        target: number of the stage
        kind: "activation", "delta", "tie" or "input"
        color: of all its lanes
        lanes: how many
        path: corners (x, y) of the first lane [PEs]
    """

    name: str
    source: int
    target: int
    kind: str
    color: int
    lanes: int
    path: tuple[tuple[int, int], ...]
