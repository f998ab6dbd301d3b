"""Routing: a path and a color for every transfer between regions.

An edge is a bundle of lanes, each one link wide: as many as it takes to pass a sample's wavelets in the time of the
slowest stage. A bundle goes straight where the two regions face each other, else with one bend, over other regions
where they are in between. A router knows one way for each color, so two routes that meet at a PE must differ in color,
even where they only cross. Paths are chosen one after the other, the long ones first, where the fewest others are; then
the graph of meetings is colored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cstool.model.ir import Region, Route

PLACES = 12
"""along a border that are tried for a bundle"""
MEETING_PES = 16
"""PEs by which a path may be longer for every route that it does not meet"""
Corner = tuple[int, int]
EAST, SOUTH, WEST, NORTH = (1, 0), (0, 1), (-1, 0), (0, -1)


@dataclass(frozen=True)
class Edge:
    """Transfer from one stage to another.

    Args:
        name: of the tensor
        source: number of the stage; -1 is the west edge of the replica
        target: number of the stage
        kind: "activation", "delta", "tie" or "input"
        wavelets: per sample
    """

    name: str
    source: int
    target: int
    kind: str
    wavelets: int


class NoColors(Exception):
    """Routes cannot be told apart, or a bundle is wider than the regions it connects; the message says which."""


@dataclass(frozen=True)
class _Run:
    """A straight piece of a bundle: `direction`, and the first of the columns (or rows) that it takes up."""

    direction: Corner
    band: int

    def first_lane(self, lanes: int) -> int:
        """Return the column (or row) of the first lane: the others lie to its right, seen along the path."""
        return self.band if self.direction in (EAST, NORTH) else self.band + lanes - 1


@dataclass(frozen=True)
class _Way:
    """A path by its runs, one or two, and where it starts and ends along the first and the last."""

    runs: tuple[_Run, ...]
    start: int
    end: int

    def mirrored(self) -> _Way:
        """Return the way with columns for rows."""
        return _Way(tuple(_Run(run.direction[::-1], run.band) for run in self.runs), self.start, self.end)

    def corners(self, lanes: int) -> tuple[Corner, ...]:
        """Return the corners of the first lane."""
        lines = [run.first_lane(lanes) for run in self.runs]
        across = self.runs[0].direction[1] == 0
        first = (self.start, lines[0]) if across else (lines[0], self.start)
        if len(lines) == 1:
            last = (self.end, lines[0]) if across else (lines[0], self.end)
            return (first, last) if first != last else (first,)
        middle, last = (
            ((lines[1], lines[0]), (lines[1], self.end)) if across else ((lines[0], lines[1]), (self.end, lines[1]))
        )
        return first, middle, last

    def boxes(self, lanes: int) -> list[tuple[int, int, int, int]]:
        """Extent of the runs: first and last column, first and last row of each."""
        ends = [self.start, *(self.runs[1].band + n for n in (0, lanes - 1) if len(self.runs) > 1)]
        found = []
        for number, run in enumerate(self.runs):
            if number == 1:
                ends = [self.end, *(self.runs[0].band + n for n in (0, lanes - 1))]
            elif len(self.runs) == 1:
                ends = [self.start, self.end]
            along, over = (min(ends), max(ends)), (run.band, run.band + lanes - 1)
            found.append((*along, *over) if run.direction[1] == 0 else (*over, *along))
        return found


def route(
    regions: Sequence[Region], edges: Sequence[Edge], bottleneck_cycles: int, colors: Sequence[int]
) -> tuple[Route, ...]:
    """Give every edge its lanes, path and color.

    Args:
        bottleneck_cycles: per sample; a lane carries one wavelet in each

    Raises:
        NoColors: they do not suffice
    """
    lanes = [max(1, -(-edge.wavelets // bottleneck_cycles)) for edge in edges]
    ways: dict[int, _Way] = {}
    boxes = _Boxes()
    for number in sorted(range(len(edges)), key=lambda n: (-_distance(regions, edges[n]), n)):
        tried = list(_ways(regions, edges[number], lanes[number]))
        if not tried:
            what = f"{edges[number].name} takes {lanes[number]:,} lanes"
            raise NoColors(f"{what}, more than its regions have PEs side by side")
        costs = boxes.meetings([way.boxes(lanes[number]) for way in tried]) * MEETING_PES
        costs += np.array([_length(way.corners(lanes[number])) for way in tried])
        ways[number] = tried[int(costs.argmin())]
        boxes.add(number, ways[number].boxes(lanes[number]))
    chosen = color_graph(boxes.neighbours(len(edges)), colors)
    return tuple(
        Route(
            name=edge.name,
            source=edge.source,
            target=edge.target,
            kind=edge.kind,
            color=chosen[number],
            lanes=lanes[number],
            path=ways[number].corners(lanes[number]),
        )
        for number, edge in enumerate(edges)
    )


def color_graph(neighbours: Sequence[set[int]], colors: Sequence[int]) -> list[int]:
    """Color a graph so that neighbours differ: always the node next whose neighbours have the most colors (DSATUR).

    Source: Brelaz, "New methods to color the vertices of a graph", Communications of the ACM 22 (4), 1979.

    Raises:
        NoColors: this order needs more
    """
    chosen: dict[int, int] = {}
    seen: list[set[int]] = [set() for _ in neighbours]
    left = set(range(len(neighbours)))
    while left:
        node = max(left, key=lambda n: (len(seen[n]), len(neighbours[n]), -n))
        color = next((color for color in colors if color not in seen[node]), None)
        if color is None:
            raise NoColors(f"a route that meets {len(neighbours[node]):,} others, of {len(seen[node])} colors")
        chosen[node] = color
        left.remove(node)
        for other in neighbours[node]:
            seen[other].add(color)
    return [chosen[node] for node in range(len(neighbours))]


class _Boxes:
    """Areas covered by the routes so far."""

    def __init__(self) -> None:
        self._boxes: list[tuple[int, int, int, int]] = []
        self._owners: list[int] = []

    def add(self, owner: int, boxes: Sequence[tuple[int, int, int, int]]) -> None:
        """Add a route's."""
        self._boxes += boxes
        self._owners += [owner] * len(boxes)

    def meetings(self, tried: Sequence[Sequence[tuple[int, int, int, int]]]) -> npt.NDArray[np.int64]:
        """Number of crossings of each of some ways with the routes so far."""
        sizes = [len(boxes) for boxes in tried]
        starts = np.cumsum([0, *sizes[:-1]])
        if not self._boxes:
            return np.zeros(len(tried), np.int64)
        meets = _meet(np.array([box for boxes in tried for box in boxes]), np.array(self._boxes))
        return np.add.reduceat(meets.sum(axis=1), starts)

    def neighbours(self, count: int) -> list[set[int]]:
        """Return, per route, the routes that it meets."""
        found: list[set[int]] = [set() for _ in range(count)]
        if self._boxes:
            boxes, owners = np.array(self._boxes), np.array(self._owners)
            for a, b in zip(*(owners[index] for index in np.nonzero(_meet(boxes, boxes))), strict=True):
                if a != b:
                    found[a].add(int(b))
        return found


def _meet(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Say which boxes of `a` have PEs in common with which of `b`."""
    first, other = a[:, None, :], b[None, :, :]
    columns = (first[..., 0] <= other[..., 1]) & (other[..., 0] <= first[..., 1])
    return columns & (first[..., 2] <= other[..., 3]) & (other[..., 2] <= first[..., 3])


def _length(corners: Sequence[Corner]) -> int:
    return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in zip(corners, corners[1:], strict=False))


def _distance(regions: Sequence[Region], edge: Edge) -> int:
    """Return the PEs between two regions; for inputs the PEs from the west edge."""
    b = regions[edge.target]
    if edge.source < 0:
        return b.x
    a = regions[edge.source]
    across = max(a.x - b.x - b.width, b.x - a.x - a.width, 0)
    return across + max(a.y - b.y - b.height, b.y - a.y - a.height, 0)


def _ways(regions: Sequence[Region], edge: Edge, lanes: int) -> Iterator[_Way]:
    """Return the ways that are tried: straight ones, or where none is wide enough, ways with one bend."""
    target = regions[edge.target]
    if edge.source < 0:
        edge_rows = Region(0, 0, 1, max(region.y + region.height for region in regions))
        bands = _spread(target.y, target.y + target.height, lanes, PLACES)
        yield from [_Way((_Run(EAST, band),), 0, target.x) for band in bands] or _bent(edge_rows, target, lanes)
        return
    source = regions[edge.source]
    straight = [*_straight(source, target, lanes), *_mirrored(_straight, source, target, lanes)]
    yield from straight or [*_bent(source, target, lanes), *_mirrored(_bent, source, target, lanes)]


def _straight(source: Region, target: Region, lanes: int) -> Iterator[_Way]:
    """Return the ways east or west."""
    if target.x >= source.x + source.width:
        direction, start, end = EAST, source.x + source.width - 1, target.x
    elif target.x + target.width <= source.x:
        direction, start, end = WEST, source.x, target.x + target.width - 1
    else:
        return
    top = max(source.y, target.y)
    bottom = min(source.y + source.height, target.y + target.height)
    for band in _spread(top, bottom, lanes, PLACES):
        yield _Way((_Run(direction, band),), start, end)


def _bent(source: Region, target: Region, lanes: int) -> Iterator[_Way]:
    """Return the ways that begin east or west and end south or north."""
    for band in _spread(source.y, source.y + source.height, lanes, PLACES // 2):
        for column in _spread(target.x, target.x + target.width, lanes, PLACES // 2):
            if column >= source.x + source.width:
                first, start = EAST, source.x + source.width - 1
            elif column + lanes <= source.x:
                first, start = WEST, source.x
            else:
                continue
            if target.y >= band + lanes:
                last, end = SOUTH, target.y
            elif target.y + target.height <= band:
                last, end = NORTH, target.y + target.height - 1
            else:
                continue
            yield _Way((_Run(first, band), _Run(last, column)), start, end)


def _mirrored(
    ways: Callable[[Region, Region, int], Iterator[_Way]], source: Region, target: Region, lanes: int
) -> Iterator[_Way]:
    """Return the ways in a world with columns for rows."""
    return (way.mirrored() for way in ways(source.turned(), target.turned(), lanes))


def _spread(start: int, stop: int, lanes: int, places: int) -> list[int]:
    """Candidate starts of bundles within a range, spread over it."""
    last = stop - lanes
    if last < start:
        return []
    return sorted({start + (last - start) * n // (places - 1) for n in range(places)})
