"""Vocabulary of layouts in Python: colors, routes, edges, ports and streams.

Names follow the vendor's reference (SDK 2.10 documentation, "SdkLayout API Reference").
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.arch import COLORS, EAST, NORTH, RAMP, SOUTH, WEST
from cstool.csl.sdk.client import SdkRuntimeError

if TYPE_CHECKING:
    from cstool.csl.sdk.layout_region import CodeRegion

HOST_IN, HOST_OUT = 22, 23
"""colors of host streams between the host and the PE where they reach the fabric; memcpy's own, elsewhere"""
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


class Color:
    """A color: routes and parameters of programs name it.

    Two colors of the same name are different colors.

    Args:
        name: for messages
        value: its number; None: a number is chosen when the layout is compiled

    Raises:
        SdkRuntimeError: no layout may use that number
    """

    def __init__(self, name: str, value: int | None = None) -> None:
        if value is not None and not 0 <= value < HOST_IN:
            raise SdkRuntimeError(f"Color '{name}': its value must be 0 to {HOST_IN - 1}, got {value}")
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"color '{self.name}'"


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
        return f"{kind} port '{self.prefix}{self.color.name}' of region '{self.region.name}'"


@dataclass(eq=False)
class Stream:
    """A stream between the host and a port, for `SdkRuntime.send` and `SdkRuntime.receive`.

    Args:
        port: its port
        at: column and row of the program at which it reaches the fabric; None before the layout is compiled
    """

    port: PortHandle
    at: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"the stream of the {self.port}"


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


assert HOST_OUT < COLORS
