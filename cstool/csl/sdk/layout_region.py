"""`CodeRegion`: a rectangle of PEs that run one CSL file, with its parameters, routes and ports."""

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.sdk.checks import Cell, Point, point_of, whole_numbers
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.geometry import IntRectangle, IntVector
from cstool.csl.sdk.layout_types import Color, Edge, EdgeRouteInfo, PortHandle, Positions, RoutingPosition, positions_of

Param = bool | int | float | str | Color
_NOTHING: Any = object()


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
        width, height = whole_numbers(f"region '{name}'", width, height)
        if min(width, height) < 1:
            raise SdkRuntimeError(f"region '{name}': it must have at least one PE, got {width} x {height}")
        self.path = path
        self.name = name
        self.width = width
        self.height = height
        self.corner: Cell | None = None
        self.params: dict[Cell, dict[str, Param]] = {cell: {} for cell in self.cells()}
        self.data: dict[str, dict[Cell, NDArray[Any]]] = {}
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
        self.corner = point_of(f"place of region '{self.name}'", (x, y))
        if min(self.corner) < 0:
            raise SdkRuntimeError(f"place: region '{self.name}' must lie on the fabric, got {x},{y}")

    def color(self, name: str, value: int | None = None) -> Color:
        """Make a color of this region's own."""
        return Color(name, value, region=self.name)

    def set_param_all(self, name: str | Color, value: Any = _NOTHING) -> None:
        """Set a parameter of the program for all PEs: a number, bool, text, or a color.

        A color alone is the value of the parameter of its name.
        """
        name, given = self._param("set_param_all", name, value)
        for params in self.params.values():
            params[name] = given

    def set_param(self, pe: Point, name: str | Color, value: Any = _NOTHING) -> None:
        """Set a parameter of the program for one PE, as `set_param_all`."""
        name, given = self._param("set_param", name, value)
        self.params[self._cell("set_param", pe)][name] = given

    def set_symbol_all(self, symbol: str, data: NDArray[Any], width: int, height: int) -> None:
        """Set the values that a variable has at the start, of all PEs: each gets its block of a matrix.

        Args:
            symbol: a variable of the program
            data: [height * width], row by row, or [height, width]; of the variable's type
            width, height: columns and rows of the matrix; multiples of the region's own
        """
        what = f"set_symbol_all of '{symbol}'"
        width, height = whole_numbers(what, width, height)
        values = np.asarray(data)
        if values.size != width * height:
            raise SdkRuntimeError(f"{what}: data must have {width} x {height} elements, got {values.size}")
        if width < 1 or height < 1 or width % self.width or height % self.height:
            raise SdkRuntimeError(
                f"{what}: width and height must be multiples of the region's {self.width} x {self.height} PEs, "
                f"got {width} x {height}"
            )
        columns, rows = width // self.width, height // self.height
        matrix = values.reshape(height, width)
        self.data[symbol] = {
            (x, y): matrix[y * rows : (y + 1) * rows, x * columns : (x + 1) * columns].ravel().copy()
            for x, y in self.cells()
        }

    def set_symbol(self, pe: Point | str, *values: Any) -> None:
        """Set the values that a variable has at the start, of one PE.

        Args:
            pe: the PE; the name of a variable here makes it `set_symbol_all`
            values: the variable, and its data [elements], of its type
        """
        if isinstance(pe, str):
            self.set_symbol_all(pe, *values)
            return
        if len(values) != 2 or not isinstance(values[0], str):
            raise SdkRuntimeError("set_symbol: a PE, the name of a variable, and its data must be given")
        cell = self._cell("set_symbol", pe)
        self.data.setdefault(values[0], {})[cell] = np.asarray(values[1]).ravel().copy()

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
        for cell in (cells[0], cells[-1]) if cells else ():
            self._cell("paint", cell)
        self.paints.setdefault(color, {}).update(dict.fromkeys(cells, positions))

    def paint(self, at: Point, color: Color, routes: Sequence[RoutingPosition]) -> None:
        """Route a color at one PE."""
        pe = IntVector(*self._cell("paint", at))
        self.paint_range(IntRectangle(pe, pe), color, routes)

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
        what = f"{side} port '{prefix}{color.shown}' of region '{self.name}'"
        port = PortHandle(
            self, color, edge, is_input, positions_of(what, routes, (side, edge.value)), int(size), prefix
        )
        if any(str(each) == str(port) for each in self.ports):
            raise SdkRuntimeError(f"{port}: there is one already", "a prefix makes it one of its own")
        self.ports.append(port)
        return port

    # --- inside ---

    def _cell(self, what: str, pe: Point) -> Cell:
        cell = point_of(what, pe)
        if cell not in self.params:
            raise SdkRuntimeError(
                f"{what}: a PE of region '{self.name}' is 0,0 to {self.width - 1},{self.height - 1}, "
                f"got {cell[0]},{cell[1]}"
            )
        return cell

    def _param(self, what: str, name: str | Color, value: Any) -> tuple[str, Param]:
        if isinstance(name, Color) and value is _NOTHING:
            return name.name, name
        if not isinstance(name, str) or not name.isidentifier():
            raise SdkRuntimeError(f"{what}: the name of a parameter must be given, got {name!r}")
        if isinstance(value, np.bool_):
            return name, bool(value)
        if isinstance(value, (bool, str, Color)):
            return name, value
        if isinstance(value, numbers.Integral):
            return name, int(value)
        if isinstance(value, numbers.Real):
            return name, float(value)
        given = "none" if value is _NOTHING else type(value).__name__
        raise SdkRuntimeError(f"{what}: parameter '{name}' must be a number, bool, text or Color, got {given}")


def _check_kind(what: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise SdkRuntimeError(f"{what}: one of type {kind.__name__} must be given, got {type(value).__name__}")
