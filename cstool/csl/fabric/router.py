"""Parts of a router: links with credits, buffers, and the state of each color.

`network` moves wavelets between them, and says when.
"""

from dataclasses import dataclass, field

from cstool.csl.fabric import control
from cstool.csl.fabric.arch import EAST, PORTS, RAMP, WEST
from cstool.csl.fabric.filters import Counter, Range, start
from cstool.csl.fabric.program import ColorConfig, Filter, Route
from cstool.csl.fabric.wavelet import Wavelet

BUFFER = 2
"""wavelets that a router holds per input port and color: enough for one a cycle while credits take a cycle to return"""

BOTH_SWAPS = 3
"""`ColorConfig.swap` of a color with both swaps, which is swapped down the ramp, too"""

RAMP_REGISTERS = 2
"""wavelets that stand on a ramp itself, one for each of its two cycles: so it carries one a cycle into a queue of 2"""


@dataclass(slots=True, eq=False)
class Link:
    """One color on one way out of a router or CE, as the sender sees it.

    Attributes:
        source: the router that sends; None: the CE of `pe`
        pe: index of the sending PE
        port: the output port of the sender; RAMP: to the CE, or from it where `source` is None
        color: of the wavelets on it
        free: credits: wavelets that the other end still has room for
        wanted: whether the sender waits for a credit
        count: wavelets sent so far
    """

    source: "Router | None"
    pe: int
    port: int
    color: int
    free: int
    wanted: bool = field(default=False, init=False)
    count: int = field(default=0, init=False)


class Exit(Link):
    """The way down a ramp to the input queue of a CE.

    Attributes:
        room: wavelets that the queue holds; 0: no queue has that color
    """

    __slots__ = ("room",)

    def __init__(self, source: "Router", color: int, room: int) -> None:
        super().__init__(source, source.pe, RAMP, color, 0)
        self.set_room(room)

    def set_room(self, room: int) -> None:
        """Set the room of the queue, now known; 0: no queue has the color."""
        self.room = room = max(0, room)
        self.free = room + RAMP_REGISTERS if room else 0


class Buffer(Link):
    """A link, and the buffer at its end: one input port and color of a router.

    Attributes:
        flow: the color at the receiving router
        side: the receiving router's port
        order: sort key of the heads of a router: color, then port
        queue: wavelets, the head first
        fresh: when the last credit came back, for links from a CE: it counts from the next cycle on
    """

    __slots__ = ("flow", "fresh", "order", "queue", "side")

    def __init__(self, source: "Router | None", pe: int, port: int, flow: "Flow", side: int) -> None:
        super().__init__(source, pe, port, flow.color, BUFFER + RAMP_REGISTERS if source is None else BUFFER)
        self.flow = flow
        self.side = side
        self.order = flow.color * len(PORTS) + side
        self.queue: list[Wavelet] = []
        self.fresh = -1


@dataclass(slots=True, eq=False)
class Way:
    """The route of one switch position, with the links at its ends.

    Args:
        rx, tx: sets of ports, as in `program.Route`
        links: to other routers
        exit: to the CE
    """

    rx: int
    tx: int
    links: tuple[Buffer, ...] = ()
    exit: Exit | None = None


STOPPED = Way(0, 0)
"""A way for no wavelet: teardown, or a position that is not there."""


class Flow:
    """A color at a router.

    Attributes:
        router: the router
        color: the color
        config: as it was set last
        pending: the config from the next cycle on
        position: switch position now
        teardown: whether it is in teardown now
        ending: whether its teardown ends with the next cycle
        filter: of wavelets that go down the ramp
        plain: whether data wavelets go as they are: no filter, no color swap
        buffers: by input port, made for the first wavelet
        way: the present way of wavelets; None: not looked up yet
    """

    __slots__ = (
        "_ways",
        "buffers",
        "color",
        "config",
        "ending",
        "filter",
        "pending",
        "plain",
        "position",
        "router",
        "teardown",
        "way",
    )

    def __init__(self, router: "Router", color: int, config: ColorConfig) -> None:
        self.router = router
        self.color = color
        self.buffers: list[Buffer | None] = [None] * len(PORTS)
        self.filter: Range | Counter | None = start(config.filter) if config.filter else None
        self.pending: ColorConfig | None = None
        self.ending = False
        self._set(config)

    def _set(self, config: ColorConfig) -> None:
        self.config = config
        self.teardown = config.teardown
        self.plain = config.filter is None and not config.swap
        self._ways: list[Way | None] = [None] * len(config.positions)
        self.position = config.current
        self.way: Way | None = None

    def change(self, config: ColorConfig | None) -> None:
        """Take another config; None: end teardown. A filter goes on counting if it is still the same object."""
        if config is None:
            self.teardown = self.ending = False
            self._turn(self.position)
            return
        if config.filter is not self.config.filter:
            self.filter = start(config.filter) if config.filter else None
        self.pending = None
        self._set(config)

    def filter_now(self) -> Filter | None:
        """The config of the filter in its present state."""
        return self.filter.now(self.config.filter) if self.filter and self.config.filter else None

    def route(self) -> Route | None:
        """The route of the position; None if nothing passes."""
        positions = self.config.positions
        route = positions[self.position] if self.position < len(positions) else None
        return None if self.teardown else route

    def color_at(self, port: int) -> int:
        """The color of its wavelets behind an output port."""
        swap = self.config.swap
        swaps = swap == BOTH_SWAPS if port == RAMP else swap >> (port not in (EAST, WEST)) & 1
        return self.color ^ swaps

    def found(self, way: Way) -> Way:
        """Keep the way of this position."""
        if way is not STOPPED:
            self._ways[self.position] = way
        self.way = way
        return way

    def goes_down(self, wavelet: Wavelet) -> bool:
        """Whether a wavelet for the CE gets there: the filter, and CE-ignore, may drop it here."""
        if wavelet.control and control.decode(wavelet.data).ce_ignore:
            return False
        return self.filter is None or self.filter.passes(wavelet)

    def command(self, payload: int) -> tuple[int, int]:
        """The command of a control wavelet at this router, and the payload that goes on.

        `always_pop` takes the command off; `pop_on_advance` only if it moves the switch: a switch at its last position
        leaves the command for later routers.
        """
        command = control.decode(payload).command
        pop = self.config.pop
        if pop == "always_pop" or (pop == "pop_on_advance" and command == control.ADVANCE and self._next() is not None):
            payload = control.pop(payload)
        return command, payload

    def execute(self, command: int) -> None:
        """Execute a command: the control wavelet has left by the old position, the next wavelet goes by the new one."""
        if command == control.ADVANCE:
            position = self._next()
            if position is not None:
                self._turn(position)
        elif command == control.RESET:
            self._turn(0)
        elif command == control.TEARDOWN:
            self.teardown = True
            self.way = STOPPED

    def _next(self) -> int | None:
        """The position that an advance leads to; None if it stays: at the last one, without ring."""
        last = len(self.config.positions) - 1
        if self.position < last:
            return self.position + 1
        return 0 if self.config.ring and last > 0 else None

    def _turn(self, position: int) -> None:
        self.position = position
        self.way = self._ways[position] if position < len(self._ways) else STOPPED


@dataclass(slots=True, eq=False)
class Router:
    """A router.

    Attributes:
        pe: its index
        flows: by color, if a wavelet or a change has come to it
        heads: buffers that hold something, by color and port
        exits: down the ramp, by the color that wavelets have there
        last: the color that was served first last time; the turn begins behind it
        awake: the last cycle in which it is to be looked at
        sent: the last cycle in which its CE sent
    """

    pe: int
    flows: dict[int, Flow] = field(default_factory=dict)
    heads: list[Buffer] = field(default_factory=list)
    exits: dict[int, Exit] = field(default_factory=dict)
    last: int = -1
    awake: int = -1
    sent: int = -1
