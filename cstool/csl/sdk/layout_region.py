"""`CodeRegion`: a rectangle of PEs that run one CSL file, with its parameters, routes and ports."""

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.geometry import IntRectangle, IntVector
from cstool.csl.sdk.layout_types import Color, Edge, EdgeRouteInfo, PortHandle, Positions, RoutingPosition, positions_of

Cell = tuple[int, int]
"""column and row"""
Param = bool | int | float | str | Color


class CodeRegion:
    """A rectangle of PEs; `SdkLayout.create_code_region` makes it. Coordinates are the region's own.

    Args:
        path: the CSL file
        name: name of the region
        width, height: PEs

    Raises:
        SdkRuntimeError: from every method: an argument is invalid
    """

    def __init__(self, path: str, name: str, width: int, height: int) -> None:
        if min(width, height) < 1:
            raise SdkRuntimeError(f"region '{name}': it must have at least one PE, got {width} x {height}")
        self.path = path
        self.name = name
        self.width = width
        self.height = height
        self.corner: Cell | None = None
        self.params: dict[Cell, dict[str, Param]] = {cell: {} for cell in self.cells()}
        self.paints: dict[Color, dict[Cell, Positions]] = {}
        self.ports: list[PortHandle] = []

    def cells(self) -> Iterator[Cell]:
        """All PEs, row by row."""
        return ((x, y) for y in range(self.height) for x in range(self.width))

    def edge_cells(self, edge: Edge) -> list[Cell]:
        """PEs of an edge, from left to right, or from the top down."""
        x, y = {Edge.LEFT: (0, None), Edge.RIGHT: (self.width - 1, None), Edge.TOP: (None, 0)}.get(
            edge, (None, self.height - 1)
        )
        return [cell for cell in self.cells() if x in (None, cell[0]) and y in (None, cell[1])]

    # --- place and parameters ---

    def place(self, x: int, y: int) -> None:
        """Set the column and row of the fabric of its first PE."""
        if min(x, y) < 0:
            raise SdkRuntimeError(f"place: region '{self.name}' must lie on the fabric, got {x},{y}")
        self.corner = int(x), int(y)

    def color(self, name: str, value: int | None = None) -> Color:
        """Make a color of this region's own."""
        return Color(f"{self.name}.{name}", value)

    def set_param_all(self, name: str, value: Any) -> None:
        """Set a parameter of the program for all PEs: a number, bool, text, or a color."""
        given = self._param("set_param_all", name, value)
        for params in self.params.values():
            params[name] = given

    def set_param(self, x: int, y: int, name: str, value: Any) -> None:
        """Set a parameter of the program for one PE."""
        given = self._param("set_param", name, value)
        self.params[self._cell("set_param", (x, y))][name] = given

    # --- routes ---

    def paint_all(self, color: Color, routes: Sequence[RoutingPosition], edges: Sequence[EdgeRouteInfo] = ()) -> None:
        """Route a color at all PEs; PEs at `edges` have routes of their own. A later call overwrites an earlier one."""
        corner = IntVector(self.width - 1, self.height - 1)
        self.paint_range(IntRectangle(IntVector(0, 0), corner), color, routes)
        for info in edges:
            positions = positions_of(f"paint_all of {color!r}", info.routes)
            for cell in self.edge_cells(info.edge):
                self.paints[color][cell] = positions

    def paint_range(self, at: IntRectangle, color: Color, routes: Sequence[RoutingPosition]) -> None:
        """Route a color at the PEs of a rectangle."""
        _check_kind("paint", color, Color)
        positions = positions_of(f"paint of {color!r}", routes)
        cells = [(x, y) for y in range(at.min.y, at.max.y + 1) for x in range(at.min.x, at.max.x + 1)]
        for cell in cells:
            self._cell("paint", cell)
        self.paints.setdefault(color, {}).update(dict.fromkeys(cells, positions))

    def paint(self, at: IntVector, color: Color, routes: Sequence[RoutingPosition]) -> None:
        """Route a color at one PE."""
        self.paint_range(IntRectangle(at, at), color, routes)

    # --- ports ---

    def create_input_port(
        self, color: Color, edge: Edge, routes: Sequence[RoutingPosition], data_size: int, prefix: str = ""
    ) -> PortHandle:
        """Make a port through which wavelets of a color come in over an edge.

        Args:
            color: their color, within the region
            edge: the edge; each PE of it takes them from outside
            routes: routes that its PEs send them by
            data_size: wavelets; connected ports have the same size
            prefix: makes the name of one more port of the same color unique
        """
        return self._port(color, edge, routes, data_size, prefix, True)

    def create_output_port(
        self, color: Color, edge: Edge, routes: Sequence[RoutingPosition], data_size: int, prefix: str = ""
    ) -> PortHandle:
        """Make a port through which wavelets of a color go out; `routes` give the inputs of its PEs."""
        return self._port(color, edge, routes, data_size, prefix, False)

    def _port(
        self, color: Color, edge: Edge, routes: Sequence[RoutingPosition], size: int, prefix: str, is_input: bool
    ) -> PortHandle:
        _check_kind(f"a port of region '{self.name}'", color, Color)
        _check_kind(f"a port of region '{self.name}'", edge, Edge)
        if size < 1:
            raise SdkRuntimeError(f"a port of region '{self.name}' must have a data_size of at least 1, got {size}")
        side = "input" if is_input else "output"
        what = f"{side} port '{prefix}{color.name}' of region '{self.name}'"
        port = PortHandle(
            self, color, edge, is_input, positions_of(what, routes, (side, edge.value)), int(size), prefix
        )
        if any(str(each) == str(port) for each in self.ports):
            raise SdkRuntimeError(f"{port}: there is one already", "a prefix makes it one of its own")
        self.ports.append(port)
        return port

    # --- inside ---

    def _cell(self, what: str, cell: Cell) -> Cell:
        if cell not in self.params:
            raise SdkRuntimeError(
                f"{what}: a PE of region '{self.name}' is 0,0 to {self.width - 1},{self.height - 1}, "
                f"got {cell[0]},{cell[1]}"
            )
        return cell

    def _param(self, what: str, name: Any, value: Any) -> Param:
        if not isinstance(name, str) or not name.isidentifier():
            raise SdkRuntimeError(f"{what}: the name of a parameter must be given, got {name!r}")
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, (bool, str, Color)):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            return float(value)
        raise SdkRuntimeError(
            f"{what}: parameter '{name}' must be a number, bool, text or Color, got {type(value).__name__}"
        )


def _check_kind(what: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise SdkRuntimeError(f"{what}: one of type {kind.__name__} must be given, got {type(value).__name__}")
