"""Ways over the fabric between ports, and numbers for colors."""

from collections import deque
from collections.abc import Callable, Collection, Iterable

from cstool.csl.fabric.arch import COLORS, EAST, NORTH, OPPOSITE, SOUTH, STEP, WEST
from cstool.csl.sdk.checks import Cell
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_types import Color, Positions

Bounds = tuple[int, int, int, int]
"""first column and row, and the column and row after the last"""


def behind(cell: Cell, port: int) -> Cell:
    """The neighbour behind a port of a router."""
    return cell[0] + STEP[port][0], cell[1] + STEP[port][1]


def find_way(start: Cell, is_end: Callable[[Cell], bool], bounds: Bounds, taken: Collection[Cell]) -> list[Cell] | None:
    """A shortest way from a PE to an end, with both in it; None: there is none.

    Args:
        start: the first PE
        is_end: whether a PE is an end
        bounds: bounds of the fabric
        taken: PEs that it must not cross
    """
    left, top, right, bottom = bounds
    before: dict[Cell, Cell | None] = {start: None}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if cell in taken or not (left <= cell[0] < right and top <= cell[1] < bottom):
            continue
        if is_end(cell):
            way = [cell]
            while (previous := before[way[-1]]) is not None:
                way.append(previous)
            return way[::-1]
        for port in (EAST, WEST, SOUTH, NORTH):
            beside = behind(cell, port)
            if beside not in before:
                before[beside] = cell
                queue.append(beside)
    return None


def routes_along(way: list[Cell], first: int, last: int) -> dict[Cell, Positions]:
    """Routes of the routers of a way: they take from port `first`, at its start, and send by `last`, at its end."""
    result: dict[Cell, Positions] = {}
    come = first
    for number, cell in enumerate(way):
        if number + 1 < len(way):
            go = next(port for port in (EAST, WEST, SOUTH, NORTH) if behind(cell, port) == way[number + 1])
        else:
            go = last
        result[cell] = ((frozenset({come}), frozenset({go})),)
        come = OPPOSITE[go]
    return result


class Colors:
    """Colors united by connected ports, and the PEs of each."""

    def __init__(self) -> None:
        self._same: dict[Color, Color] = {}
        self._cells: dict[Color, set[Cell]] = {}

    def root(self, color: Color) -> Color:
        """The color that represents all colors united with it."""
        while (other := self._same.get(color, color)) is not color:
            color = other
        return color

    def join(self, first: Color, second: Color) -> None:
        """Make two colors one.

        Raises:
            SdkRuntimeError: their numbers differ
        """
        first, second = self.root(first), self.root(second)
        if first is second:
            return
        if first.value is None:
            first, second = second, first
        if second.value is not None and first.value != second.value:
            raise SdkRuntimeError(
                f"connect: colors of connected ports must be one, {first!r} is {first.value}, "
                f"{second!r} is {second.value}"
            )
        self._same[second] = first
        self._cells.setdefault(first, set()).update(self._cells.pop(second, set()))

    def add(self, color: Color, cells: Iterable[Cell]) -> None:
        """Add PEs of a color."""
        self._cells.setdefault(self.root(color), set()).update(cells)

    def numbers(self) -> dict[Color, int]:
        """A number for each representative color, the lowest that no other color has at its PEs.

        Raises:
            SdkRuntimeError: two with the same number meet, or there are more colors at a PE than numbers
        """
        result: dict[Color, int] = {}
        for color, cells in sorted(self._cells.items(), key=lambda item: item[0].value is None):
            near = {result[other]: other for other in result if not cells.isdisjoint(self._cells[other])}
            if color.value is None:
                free = next((number for number in range(COLORS) if number not in near), None)
                if free is None:
                    x, y = min(cells)
                    raise SdkRuntimeError(f"{color!r}: no number is free of {COLORS}, it begins at PE {x}.{y}")
                result[color] = free
                continue
            if color.value in near:
                other = near[color.value]
                x, y = min(cells & self._cells[other])
                raise SdkRuntimeError(
                    f"{color!r} and {other!r} must have different numbers at PE {x}.{y}, both are {color.value}"
                )
            result[color] = color.value
        return result
