"""The strokes of one color's routes: lines, heads of arrows, routes to nowhere, and letters of switch positions.

Coordinates are in PEs, y to the south; the middle of PE x.y is at x + 0.5, y + 0.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cstool.csl.fabric.arch import OPPOSITE, PORTS, RAMP, STEP
from cstool.csl.fabric.program import ColorConfig

HALF = 0.3
"""half the side of a PE's square, in PEs"""
LANE = 0.08
"""offset of a direction from the middle of a link that is used in both, in PEs"""
LETTERS = "abcd"
"""letters of switch positions"""
Corner = tuple[float, float]
Configs = Mapping[tuple[int, int], ColorConfig]
"""by column and row"""


@dataclass
class Strokes:
    """The drawing of one color.

    Args:
        lines: ways of wavelets
        heads: heads of arrows, triangles
        faint: inputs of routers at ports that no wavelet comes by
        dead: outputs of routers to a neighbour that does not take them
        letters: position, text, and the side of the text that is at the position
        sources, sinks: middles of PEs that send, and take
    """

    lines: list[list[Corner]] = field(default_factory=list)
    heads: list[list[Corner]] = field(default_factory=list)
    faint: list[list[Corner]] = field(default_factory=list)
    dead: list[list[Corner]] = field(default_factory=list)
    letters: list[tuple[Corner, str, str]] = field(default_factory=list)
    sources: list[Corner] = field(default_factory=list)
    sinks: list[Corner] = field(default_factory=list)


def union(config: ColorConfig) -> tuple[int, int]:
    """Ports in and out, bit sets, of all switch positions together."""
    rx = tx = 0
    for route in config.positions:
        rx, tx = rx | route.rx, tx | route.tx
    return rx, tx


def positions(config: ColorConfig, side: str, port: int) -> str:
    """Letters of the switch positions whose `side`, "rx" or "tx", has a port."""
    return "".join(
        letter for letter, route in zip(LETTERS, config.positions, strict=False) if getattr(route, side) >> port & 1
    )


def strokes_of(configs: Configs, size: tuple[int, int], scale: float, *, is_host: bool = False) -> Strokes:
    """All strokes of a color.

    Args:
        configs: configs of its routers
        size: columns and rows of the rectangle
        scale: points from one PE to the next
        is_host: whether wavelets of the color come and go beyond the edges, from and to the host
    """
    made = Strokes()
    two_way = any(rx & tx & ~1 for rx, tx in map(union, configs.values()))
    for at, config in configs.items():
        _Router(made, at, config, configs, size, LANE if two_way else 0.0, scale, is_host).stroke()
    return made


@dataclass(frozen=True)
class _Router:
    """One router of a color, and the strokes that it adds to."""

    made: Strokes
    at: tuple[int, int]
    config: ColorConfig
    configs: Configs
    size: tuple[int, int]
    lane: float
    scale: float
    is_host: bool

    def stroke(self) -> None:
        rx, tx = union(self.config)
        middle = self.at[0] + 0.5, self.at[1] + 0.5
        if rx & 1:
            self.made.sources.append(middle)
        if tx & 1:
            self.made.sinks.append(middle)
        for port in range(RAMP + 1, len(PORTS)):
            beside = self.at[0] + STEP[port][0], self.at[1] + STEP[port][1]
            other_rx, other_tx = union(self.configs[beside]) if beside in self.configs else (0, 0)
            if self.is_host and not (0 <= beside[0] < self.size[0] and 0 <= beside[1] < self.size[1]):
                other_rx = other_tx = -1
            if rx >> port & 1:
                self._in(middle, port, bool(other_tx >> OPPOSITE[port] & 1))
            if tx >> port & 1:
                self._out(middle, port, bool(other_rx >> OPPOSITE[port] & 1))
        if len(self.config.positions) > 1:
            # Between the squares, off the lines: letters of senders to the upper right, of receivers to the lower left.
            aside, off = HALF + 0.02, 0.2
            if letters := positions(self.config, "rx", RAMP):
                self.made.letters.append(((middle[0] + aside, middle[1] - off), f"●{letters}", "left"))
            if letters := positions(self.config, "tx", RAMP):
                self.made.letters.append(((middle[0] - aside, middle[1] + off), f"○{letters}", "right"))

    def _in(self, middle: Corner, port: int, comes: bool) -> None:
        """Draw a line from the border of the cell to its middle, with the arrow's head at the edge of the square."""
        out = STEP[port]
        heading = -out[0], -out[1]
        border, edge = (self._beside(middle, out, far, heading) for far in (0.5, HALF))
        (self.made.lines if comes else self.made.faint).append([border, edge, middle])
        if comes:
            self.made.heads.append(self._head(edge, heading))
        self._letter("rx", port, middle, heading)

    def _out(self, middle: Corner, port: int, goes: bool) -> None:
        out = STEP[port]
        border, edge = (self._beside(middle, out, far, out) for far in (0.5, HALF))
        (self.made.lines if goes else self.made.dead).append([middle, edge, border])
        if not goes:
            size = min(3.0, 0.15 * self.scale) / self.scale
            x, y = self._beside(middle, out, 0.5 - size, out)
            self.made.dead += [
                [(x - size, y - size), (x + size, y + size)],
                [(x - size, y + size), (x + size, y - size)],
            ]
        self._letter("tx", port, middle, out)

    def _beside(self, middle: Corner, out: Corner, far: float, heading: Corner, more: float = 0.0) -> Corner:
        """A point so far from the middle towards a port, on the right hand in the direction of travel."""
        aside = self.lane + more
        return middle[0] + far * out[0] - aside * heading[1], middle[1] + far * out[1] + aside * heading[0]

    def _head(self, tip: Corner, heading: Corner) -> list[Corner]:
        length = min(5.0, 0.24 * self.scale) / self.scale
        half = 0.45 * length
        x, y = tip[0] - length * heading[0], tip[1] - length * heading[1]
        return [tip, (x - half * heading[1], y + half * heading[0]), (x + half * heading[1], y - half * heading[0])]

    def _letter(self, side: str, port: int, middle: Corner, heading: Corner) -> None:
        """The letters of an arrow: to the west and east within the square, to the north and south before it."""
        if len(self.config.positions) == 1:
            return
        out = STEP[port]
        if out[0]:
            (x, y), align = self._beside(middle, out, HALF - 0.03, heading, 0.09), "left" if out[0] < 0 else "right"
        else:
            (x, y), align = self._beside(middle, out, HALF + 0.09, heading, 0.05), "left" if heading[1] < 0 else "right"
        self.made.letters.append(((x, y), positions(self.config, side, port), align))
