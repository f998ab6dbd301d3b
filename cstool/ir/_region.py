"""Region and Route: rectangles of PEs, and what connects them."""

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

    The first lane begins in a PE at the border of the source's region, turns at the corners of `path`, and ends in a
    PE at the border of the target's. The others lie to its right, one PE each, seen along the path, and keep that order
    at corners: where the first lane turns from east to south at (x, y), lane k turns at (x - k, y + k). A path of a
    single PE counts as going east.

    Args:
        name: of what moves
        source: number of the stage; -1 is the west edge of the replica, column 0: each lane begins in a PE of it. How
            samples get there, over other replicas too, is not part of a plan: colors kept for I/O carry them
        target: number of the stage
        kind: "activation", "delta", "tie" or "input"
        color: of all its lanes, in every router they pass; no other route has it in any of these
        lanes: how many
        path: corners (x, y) of the first lane, with its first and last PE
    """

    name: str
    source: int
    target: int
    kind: str
    color: int
    lanes: int
    path: tuple[tuple[int, int], ...]
