"""The plan of a layout in Python: the place of each region, ways between ports, and all routes, by color and PE."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from cstool.csl.fabric.arch import OPPOSITE, RAMP
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_region import Cell, CodeRegion
from cstool.csl.sdk.layout_routing import Bounds, Colors, behind, find_way, routes_along
from cstool.csl.sdk.layout_text import layout_text, params_text
from cstool.csl.sdk.layout_types import HOST_IN, HOST_OUT, Color, PortHandle, Positions, Stream

_BEFORE = 1
"""columns and rows before the first region without a place: one of the ring around all regions"""


class Plan:
    """All decisions on a layout, in coordinates of the fabric.

    Args:
        regions: regions of the layout
        links: output ports, and the input ports that they go to
        streams: streams of the host; their `at` is set

    Attributes:
        bounds: first column and row of the program, and the column and row after the last

    Raises:
        SdkRuntimeError: a part of it is impossible
    """

    def __init__(
        self, regions: Sequence[CodeRegion], links: Sequence[tuple[PortHandle, PortHandle]], streams: Sequence[Stream]
    ) -> None:
        if not regions:
            raise SdkRuntimeError("compile: a layout must have at least one region", "create_code_region")
        self._regions = regions
        self._corners = _places(regions)
        self._owners = self._owned()
        self.bounds = self._bounds()
        self._colors = Colors()
        self._configs: dict[Color, dict[Cell, Positions]] = {}
        self._movers: dict[Cell, tuple[PortHandle, bool]] = {}
        self._check_ports({port for link in links for port in link} | {stream.port for stream in streams})
        for output, input_ in links:
            self._colors.join(output.color, input_.color)
        for region in regions:
            self._take_routes(region)
        for output, input_ in links:
            self._link(output, input_)
        for stream in streams:
            self._stream(stream)
        self._numbers = self._colors.numbers()

    def text(self, folder: Path) -> str:
        """The text of the layout's file; PEs outside all regions take their programs from `folder`."""
        left, top, right, bottom = self.bounds
        tiles: dict[Cell, tuple[str, str]] = {}
        for y, x in itertools.product(range(top, bottom), range(left, right)):
            cell = x, y
            region = self._owners.get(cell)
            if region is not None:
                corner = self._corners[region]
                params = region.params[x - corner[0], y - corner[1]]
                numbers = {value: self._number(value) for value in params.values() if isinstance(value, Color)}
                tiles[x - left, y - top] = region.path, params_text(params, numbers)
            elif cell in self._movers:
                port, is_input = self._movers[cell]
                ends = (HOST_IN, self._number(port.color)) if is_input else (self._number(port.color), HOST_OUT)
                params_ = f".{{ .source = @get_color({ends[0]}), .target = @get_color({ends[1]}) }}"
                tiles[x - left, y - top] = str(folder / "mover.csl"), params_
            else:
                tiles[x - left, y - top] = str(folder / "empty.csl"), ".{}"
        configs: dict[int, dict[Cell, Positions]] = {}
        for color, of_color in self._configs.items():
            configs.setdefault(self._numbers[color], {}).update(
                {(x - left, y - top): positions for (x, y), positions in of_color.items()}
            )
        return layout_text((right - left, bottom - top), tiles, configs)

    # --- regions ---

    def _owned(self) -> dict[Cell, CodeRegion]:
        owners: dict[Cell, CodeRegion] = {}
        for region, (left, top) in self._corners.items():
            for x, y in region.cells():
                other = owners.setdefault((left + x, top + y), region)
                if other is not region:
                    raise SdkRuntimeError(
                        f"compile: regions must not overlap, '{other.name}' and '{region.name}' both have "
                        f"PE {left + x}.{top + y}"
                    )
        return owners

    def _bounds(self) -> Bounds:
        columns = {x for x, _ in self._owners}
        rows = {y for _, y in self._owners}
        return min(columns) - 1, min(rows) - 1, max(columns) + 2, max(rows) + 2

    def _check_ports(self, connected: set[PortHandle]) -> None:
        for region in self._regions:
            for port in region.ports:
                if port not in connected:
                    raise SdkRuntimeError(
                        f"compile: each port must be connected, the {port} is not",
                        "connect, create_input_stream or create_output_stream",
                    )

    def _take_routes(self, region: CodeRegion) -> None:
        """Take routes and parameters of a region from its paints and ports."""
        left, top = self._corners[region]
        for color, paints in region.paints.items():
            for (x, y), positions in paints.items():
                self._route(color, (left + x, top + y), positions, f"region '{region.name}'")
        for port in region.ports:
            for x, y in region.edge_cells(port.edge):
                self._route(port.color, (left + x, top + y), port.routes, f"the {port}")
        for (x, y), params in region.params.items():
            for value in params.values():
                if isinstance(value, Color):
                    self._colors.add(value, [(left + x, top + y)])

    def _route(self, color: Color, cell: Cell, positions: Positions, what: str) -> None:
        known = self._configs.setdefault(self._colors.root(color), {}).setdefault(cell, positions)
        if known != positions:
            raise SdkRuntimeError(
                f"compile: a color has one route at a PE, {what} gives {color!r} another one at PE {cell[0]}.{cell[1]}"
            )
        # The neighbours that it is sent to count too: another color there must not have its number.
        sent = {behind(cell, port) for _, outputs in positions for port in outputs - {RAMP}}
        self._colors.add(color, [cell, *sorted(sent)])

    # --- ways ---

    def _link(self, output: PortHandle, input_: PortHandle) -> None:
        for start, end in zip(self._cells_of(output), self._cells_of(input_), strict=True):
            first, last = behind(start, output.edge.value), behind(end, input_.edge.value)
            if first == end and last == start:
                continue  # neighbours
            way = find_way(first, last.__eq__, self.bounds, self._taken(output.color))
            if way is None:
                raise SdkRuntimeError(f"compile: there must be a way from the {output} to the {input_}", _SPACE)
            self._lay(output, way, OPPOSITE[output.edge.value], OPPOSITE[input_.edge.value])

    def _stream(self, stream: Stream) -> None:
        """Route a way between a port and a PE of the ring, for a stream of the host."""
        port = stream.port
        left, top, right, bottom = self.bounds
        start = behind(self._cells_of(port)[0], port.edge.value)

        def is_end(cell: Cell) -> bool:
            on_ring = cell[0] in (left, right - 1) or cell[1] in (top, bottom - 1)
            return on_ring and cell not in self._movers

        way = find_way(start, is_end, self.bounds, self._taken(port.color))
        if way is None:
            raise SdkRuntimeError(f"compile: there must be a way between the host and the {port}", _SPACE)
        outside = OPPOSITE[port.edge.value]
        if port.is_input:
            self._lay(port, way[::-1], RAMP, outside)
        else:
            self._lay(port, way, outside, RAMP)
        self._movers[way[-1]] = port, port.is_input
        stream.at = way[-1][0] - left, way[-1][1] - top

    def _taken(self, color: Color) -> set[Cell]:
        return {*self._owners, *self._configs[self._colors.root(color)]}

    def _lay(self, port: PortHandle, way: list[Cell], first: int, last: int) -> None:
        for cell, positions in routes_along(way, first, last).items():
            self._route(port.color, cell, positions, f"the {port}")

    def _cells_of(self, port: PortHandle) -> list[Cell]:
        left, top = self._corners[port.region]
        return [(left + x, top + y) for x, y in port.region.edge_cells(port.edge)]

    def _number(self, color: Color) -> int:
        return self._numbers[self._colors.root(color)]


_SPACE = "PEs between regions are needed for it: place them further apart"


def _places(regions: Sequence[CodeRegion]) -> dict[CodeRegion, Cell]:
    """First PE of each region; regions without a place stand in a row behind the others, a column apart."""
    corners = {region: region.corner for region in regions}
    free = max((corner[0] + region.width + 1 for region, corner in corners.items() if corner), default=_BEFORE)
    result: dict[CodeRegion, Cell] = {}
    for region, corner in corners.items():
        if corner is None:
            corner = free, _BEFORE
            free += region.width + 1
        result[region] = corner
    return result
