"""Vocabulary of layouts in Python: colors, routes, edges, ports and streams.

Names follow the vendor's reference (SDK 2.10 documentation, "SdkLayout API Reference").
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.arch import COLORS, EAST, NORTH, RAMP, SOUTH, WEST
from cstool.csl.sdk.checks import whole_numbers
from cstool.csl.sdk.client import SdkRuntimeError

if TYPE_CHECKING:
    from cstool.csl.sdk.layout_region import CodeRegion

MOST_POSITIONS = 4
"""switch positions of a color at a router"""


class Route(enum.Enum):
    """A port of a router."""

    RAMP = RAMP
    WEST = WEST
    EAST = EAST
    NORTH = NORTH
    SOUTH = SOUTH


class Edge(enum.Enum):
    """Edges of a code region; the value is the port of a router that leads out over it."""

    TOP = NORTH
    BOTTOM = SOUTH
    LEFT = WEST
    RIGHT = EAST


class FP16TYPE(enum.Enum):
    """Formats of 16-bit floats; F16 alone is simulated."""

    F16 = "f16"
    BF16 = "bf16"
    CB16 = "cb16"


class Color:
    """A color: routes and parameters of programs name it.

    Two colors of the same name are different colors.

    Args:
        name: of the parameter that it is given to, too
        value: its number; None: a number is chosen when the layout is compiled
        region: the region that it was made for, in messages

    Raises:
        SdkRuntimeError: there is no such color
    """

    def __init__(self, name: str, value: int | None = None, *, region: str = "") -> None:
        if not isinstance(name, str):
            raise SdkRuntimeError(f"Color: its name must be text, got {type(name).__name__}")
        if value is not None and whole_numbers(f"Color '{name}'", value)[0] not in range(COLORS):
            raise SdkRuntimeError(f"Color '{name}': its value must be 0 to {COLORS - 1}, got {value}")
        self.name = name
        self.value = value
        self.shown = f"{region}.{name}" if region else name

    def __repr__(self) -> str:
        return f"color '{self.shown}'"


class RoutingPosition:
    """Input ports and output ports of a router for a color, at one switch position."""

    def __init__(self) -> None:
        self.input: tuple[Route, ...] = ()
        self.output: tuple[Route, ...] = ()

    def set_input(self, routes: Sequence[Route]) -> "RoutingPosition":
        """Set the input ports; return this position."""
        self.input = _routes("set_input", routes)
        return self

    def set_output(self, routes: Sequence[Route]) -> "RoutingPosition":
        """Set the output ports; return this position."""
        self.output = _routes("set_output", routes)
        return self


Positions = tuple[tuple[frozenset[int], frozenset[int]], ...]
"""input and output ports of each switch position"""


@dataclass(frozen=True)
class EdgeRouteInfo:
    """Routing positions of the PEs on one edge of a region: `get_edge_routing`."""

    edge: Edge
    routes: tuple[RoutingPosition, ...]


def get_edge_routing(edge: Edge, routes: Sequence[RoutingPosition]) -> EdgeRouteInfo:
    """Routing positions for the PEs of an edge; `paint_all` and `paint_range` take them."""
    return EdgeRouteInfo(edge, tuple(routes))


@dataclass(frozen=True, eq=False)
class PortHandle:
    """A port of a region: data of one color goes in, or comes out, over one of its edges.

    Args:
        region: the region
        color: of the data
        edge: the edge
        is_input: whether data goes in
        routes: routes of the PEs on the edge
        size: wavelets, to compare ports
        prefix: makes its name unique
    """

    region: "CodeRegion"
    color: Color
    edge: Edge
    is_input: bool
    routes: Positions
    size: int
    prefix: str

    def __str__(self) -> str:
        kind = "input" if self.is_input else "output"
        return f"{kind} port '{self.prefix}{self.color.shown}' of region '{self.region.name}'"


@dataclass(eq=False)
class HostStream:
    """A stream of the host, for `SdkRuntime.send` and `SdkRuntime.receive`.

    Args:
        name: name for the host script
        color: color within the layout
        is_input: whether the host sends
        port: the port; None: the stream of `_from_loc`, which ends at `at`
        at: column and row of the fabric: of the PE that the host reaches, or of the stream's end; None: any PE does
        size: words that one transfer is made for; 0: any
    """

    name: str
    color: Color
    is_input: bool
    port: PortHandle | None = None
    at: tuple[int, int] | None = None
    size: int = 0

    def __str__(self) -> str:
        return f"{'input' if self.is_input else 'output'} stream '{self.name}'"


def positions_of(what: str, routes: Any, implied: tuple[str, int] | None = None) -> Positions:
    """The ports of routing positions.

    Args:
        what: their name in messages
        routes: one for each switch position
        implied: ("input" or "output", port): the side that follows from a port's edge

    Raises:
        SdkRuntimeError: a side is missing, or differs from `implied`
    """
    if not isinstance(routes, Sequence) or not 1 <= len(routes) <= MOST_POSITIONS:
        raise SdkRuntimeError(f"{what}: routes must be a list of 1 to {MOST_POSITIONS} RoutingPositions")
    result = []
    for position in routes:
        if not isinstance(position, RoutingPosition):
            raise SdkRuntimeError(f"{what}: routes must hold RoutingPositions, got {type(position).__name__}")
        sides = {
            "input": frozenset(route.value for route in position.input),
            "output": frozenset(route.value for route in position.output),
        }
        if implied is not None:
            side, port = implied
            if sides[side] - {port}:
                raise SdkRuntimeError(f"{what}: {side} of its routes must be left out, or be {Route(port).name}")
            sides[side] = frozenset({port})
        for side, ports in sides.items():
            if not ports:
                raise SdkRuntimeError(f"{what}: each RoutingPosition must have an {side}", f"set_{side}([Route...])")
        result.append((sides["input"], sides["output"]))
    return tuple(result)


def _routes(what: str, routes: Any) -> tuple[Route, ...]:
    if not isinstance(routes, Sequence) or not all(isinstance(route, Route) for route in routes):
        raise SdkRuntimeError(f"{what}: must get a list of Routes, got {routes!r}")
    return tuple(routes)
