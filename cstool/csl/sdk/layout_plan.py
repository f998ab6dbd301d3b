"""The plan of a layout in Python: the place of each region, ways between ports, and all routes, by color and PE."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cstool.csl.fabric.arch import COLORS, OPPOSITE, RAMP
from cstool.csl.fabric.program import HostPort
from cstool.csl.sdk.checks import Cell
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_routing import Bounds, Colors, behind, find_way, routes_along
from cstool.csl.sdk.layout_text import layout_text, params_text
from cstool.csl.sdk.layout_types import Color, HostStream, PortHandle, Positions, Route

FABRIC = {"wse2": (757, 996), "wse3": (762, 1172)}
"""columns and rows of the whole fabric (H11)"""


class Plan:
    """All decisions on a layout, in coordinates of the fabric.

    Args:
        arch: name of the generation
        regions: regions of the layout
        links: output ports, and the input ports that they go to
        streams: streams of the host

    Attributes:
        bounds: first column and row of the program, and the column and row after the last: all regions, and a ring
            around them where there are ways

    Raises:
        SdkRuntimeError: a part of it is impossible
    """

    def __init__(
        self,
        arch: str,
        regions: Sequence[CodeRegion],
        links: Sequence[tuple[PortHandle, PortHandle]],
        streams: Sequence[HostStream],
    ) -> None:
        if not regions:
            raise SdkRuntimeError("compile: a layout must have at least one region", "create_code_region")
        self._regions = regions
        self._corners = _places(regions)
        self._owners = self._owned(arch)
        self.bounds = self._bounds(bool(links or streams), [each.at for each in streams if each.at is not None])
        self._colors = Colors()
        self._configs: dict[Color, dict[Cell, Positions]] = {}
        self._movers: dict[Cell, HostStream] = {}
        self._ends: dict[HostStream, Cell] = {}
        self._check_ports([*itertools.chain.from_iterable(links), *(stream.port for stream in streams)])
        for output, input_ in links:
            self._colors.join(output.color, input_.color)
        for region in regions:
            self._take_routes(region)
        for output, input_ in links:
            self._link(output, input_)
        for stream in streams:
            if stream.port is None:
                self._stream_at(stream)
            else:
                self._stream(stream, stream.port)
        self._numbers = self._colors.numbers()

    def text(self, folder: Path, numbers: Mapping[str, Set[str]]) -> str:
        """The text of the layout's file.

        Args:
            folder: where the programs of PEs outside all regions are
            numbers: by path of a program: parameters that take the number of a color, not the color
        """
        left, top, right, bottom = self.bounds
        tiles: dict[Cell, tuple[str, str]] = {}
        for y, x in itertools.product(range(top, bottom), range(left, right)):
            cell = x, y
            region = self._owners.get(cell)
            if region is not None:
                corner = self._corners[region]
                params = region.params[x - corner[0], y - corner[1]]
                colors = {value: self._number(value) for value in params.values() if isinstance(value, Color)}
                tiles[x - left, y - top] = region.path, params_text(params, colors, numbers[region.path])
            elif cell in self._movers:
                stream = self._movers[cell]
                ends = self._host_color(cell), self._number(stream.color)
                source, target = ends if stream.is_input else ends[::-1]
                params_ = f".{{ .source = @get_color({source}), .target = @get_color({target}) }}"
                tiles[x - left, y - top] = str(folder / "mover.csl"), params_
            else:
                tiles[x - left, y - top] = str(folder / "empty.csl"), ".{}"
        configs: dict[int, dict[Cell, Positions]] = {}
        for color, of_color in self._configs.items():
            configs.setdefault(self._numbers[color], {}).update(
                {(x - left, y - top): positions for (x, y), positions in of_color.items()}
            )
        return layout_text((right - left, bottom - top), tiles, configs)

    def ports(self) -> tuple[HostPort, ...]:
        """The streams of the host, in coordinates of the program."""
        return tuple(
            HostPort(
                stream.name,
                cell[0] - self.bounds[0],
                cell[1] - self.bounds[1],
                self._host_color(cell) if self._movers.get(cell) is stream else self._number(stream.color),
                stream.is_input,
                stream.size,
            )
            for stream, cell in self._ends.items()
        )

    def data(self) -> Iterator[tuple[str, int, NDArray[Any]]]:
        """Values of variables at the start: name, PE of the program, elements."""
        left, top, right, _ = self.bounds
        for region, corner in self._corners.items():
            for symbol, of_region in region.data.items():
                for (x, y), elements in of_region.items():
                    yield symbol, (corner[1] + y - top) * (right - left) + corner[0] + x - left, elements

    # --- regions ---

    def _owned(self, arch: str) -> dict[Cell, CodeRegion]:
        owners: dict[Cell, CodeRegion] = {}
        width, height = FABRIC[arch]
        for region, (left, top) in self._corners.items():
            if left + region.width > width or top + region.height > height:
                raise SdkRuntimeError(
                    f"compile: regions must lie on the fabric of {arch}, {width} x {height} PEs, '{region.name}' has "
                    f"PE {left + region.width - 1}.{top + region.height - 1}"
                )
            for x, y in region.cells():
                other = owners.setdefault((left + x, top + y), region)
                if other is not region:
                    raise SdkRuntimeError(
                        f"compile: regions must not overlap, '{other.name}' and '{region.name}' both have "
                        f"PE {left + x}.{top + y}"
                    )
        return owners

    def _bounds(self, ring: bool, more: Sequence[Cell]) -> Bounds:
        columns = {x for x, _ in (*self._owners, *more)}
        rows = {y for _, y in (*self._owners, *more)}
        return min(columns) - ring, min(rows) - ring, max(columns) + 1 + ring, max(rows) + 1 + ring

    def _check_ports(self, connected: Sequence[PortHandle | None]) -> None:
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
            way = self._way(output.color, first, last.__eq__)
            if way is None:
                raise SdkRuntimeError(f"compile: there must be a way from the {output} to the {input_}", _SPACE)
            self._lay(output, way, OPPOSITE[output.edge.value], OPPOSITE[input_.edge.value])

    def _stream(self, stream: HostStream, port: PortHandle) -> None:
        """Route a way between a port and a PE that is its stream's end: any of the ring, or one that is given."""
        left, top, right, bottom = self.bounds
        start = behind(self._cells_of(port)[0], port.edge.value)

        def is_end(cell: Cell) -> bool:
            if cell in self._movers or cell in self._owners:
                return False
            if stream.at is not None:
                return cell == stream.at
            return cell[0] in (left, right - 1) or cell[1] in (top, bottom - 1)

        way = self._way(port.color, start, is_end)
        if way is None:
            at = "the host" if stream.at is None else f"the host at PE {stream.at[0]}.{stream.at[1]}"
            raise SdkRuntimeError(f"compile: there must be a way between {at} and the {port}", _SPACE)
        outside = OPPOSITE[port.edge.value]
        if port.is_input:
            self._lay(port, way[::-1], RAMP, outside)
        else:
            self._lay(port, way, outside, RAMP)
        self._movers[way[-1]] = stream
        self._ends[stream] = way[-1]

    def _stream_at(self, stream: HostStream) -> None:
        """Give a stream of a color at a PE of a region its end: a neighbour outside all regions, or the PE itself.

        The color's route at the PE decides. Where it leads over the region's edge, the neighbour there is the end.
        """
        assert stream.at is not None
        if stream.at not in self._owners:
            raise SdkRuntimeError(
                f"compile: the {stream} must end in a region, none has PE {stream.at[0]}.{stream.at[1]}",
                "place the region, or use create_input_stream and create_output_stream",
            )
        self._colors.add(stream.color, [stream.at])
        positions = self._configs.get(self._colors.root(stream.color), {}).get(stream.at)
        ports = frozenset({RAMP}) if positions is None else positions[0][not stream.is_input]
        for port in sorted(ports - {RAMP}):
            cell = behind(stream.at, port)
            if cell not in self._owners and cell not in self._movers:
                inward, ramp = frozenset({OPPOSITE[port]}), frozenset({RAMP})
                route = (ramp, inward) if stream.is_input else (inward, ramp)
                self._route(stream.color, cell, (route,), f"the {stream}")
                self._movers[cell] = stream
                self._ends[stream] = cell
                return
        if RAMP not in ports:
            x, y = stream.at
            names = ", ".join(Route(port).name for port in sorted(ports))
            raise SdkRuntimeError(
                f"compile: the {stream} must pass over the edge of its region, or the ramp of PE {x}.{y}, "
                f"{stream.color!r} goes by {names} there"
            )
        self._ends[stream] = stream.at

    def _host_color(self, cell: Cell) -> int:
        """A color that no route at a PE has: the one between the host and a PE that moves its words."""
        taken = {self._numbers[color] for color, of_color in self._configs.items() if cell in of_color}
        return next(number for number in reversed(range(COLORS)) if number not in taken)

    def _way(self, color: Color, start: Cell, is_end: Callable[[Cell], bool]) -> list[Cell] | None:
        """A shortest way outside all regions; if there is none, a shortest one, across regions, too."""
        own = self._configs[self._colors.root(color)]
        outside = find_way(start, is_end, self.bounds, {*self._owners, *own})
        return find_way(start, is_end, self.bounds, own) if outside is None else outside

    def _lay(self, port: PortHandle, way: list[Cell], first: int, last: int) -> None:
        for cell, positions in routes_along(way, first, last).items():
            self._route(port.color, cell, positions, f"the {port}")

    def _cells_of(self, port: PortHandle) -> list[Cell]:
        left, top = self._corners[port.region]
        return [(left + x, top + y) for x, y in port.region.edge_cells(port.edge)]

    def _number(self, color: Color) -> int:
        return self._numbers[self._colors.root(color)]


_SPACE = "PEs without a route of the same color are needed for it: place regions further apart"


def _places(regions: Sequence[CodeRegion]) -> dict[CodeRegion, Cell]:
    """First PE of each region; regions without a place stand in a row behind the others, a column apart."""
    corners = {region: region.corner for region in regions}
    free = max((corner[0] + region.width + 1 for region, corner in corners.items() if corner), default=0)
    result: dict[CodeRegion, Cell] = {}
    for region, corner in corners.items():
        if corner is None:
            corner = free, 0
            free += region.width + 1
        result[region] = corner
    return result
