"""The network with the host at its edge: colors that memcpy streams lead to the host and nowhere else.

A PE sees no difference: it sends, and takes from an input queue. Behind a MEMCPYH2D color stands the host, which
sends as there is room in the input queue; behind a MEMCPYD2H color stands a buffer that the host reads.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cstool.fabric.errors import SimulationError
from cstool.fabric.network import Endpoint, Network, OnHop
from cstool.fabric.program import FabricProgram
from cstool.fabric.wavelet import Events, Wavelet

RAMP = 2
"""cycles from the CE to its router, or back (F04)"""
BUFFER = 2
"""wavelets towards the host that wait where no command reads them: as many as a router's buffer takes"""


class _Feed:
    """What the host sends to one PE by one color."""

    def __init__(self, room: int) -> None:
        self.credit = room
        self.due = 0  # the cycle of the next one at the earliest
        self.waiting: deque[tuple[int, int, Callable[[], None]]] = deque()  # earliest cycle, data, what to do then


class _Want:
    """A command of the host that reads: how many wavelets it still wants, and what takes each."""

    def __init__(self, count: int, take: Callable[[int], None]) -> None:
        self.count = count
        self.take = take


class _Drain:
    """What one PE sends to the host by one color."""

    def __init__(self) -> None:
        self.buffer: deque[int] = deque()
        self.wanted: deque[_Want] = deque()
        self.total = 0  # all of them
        self.refused = False


class HostedNetwork(Network):
    """A `Network` whose stream colors end at the host.

    Args:
        program: its `streams` say which colors: "MEMCPYH2D..." from the host, "MEMCPYD2H..." to it
        events: when everything happens
        pes: by index
        on_hop: as `Network` has it; wavelets of streams take no hops
    """

    def __init__(
        self, program: FabricProgram, events: Events, pes: Sequence[Endpoint], on_hop: OnHop | None = None
    ) -> None:
        super().__init__(program, events, pes, on_hop)
        self._ends = pes
        self._clock = events
        self._width = program.width
        self._inward = frozenset(_colors(program.streams, "MEMCPYH2D"))
        self._outward = frozenset(_colors(program.streams, "MEMCPYD2H"))
        self._feeds: dict[tuple[int, int], _Feed] = {}
        self._drains: dict[tuple[int, int], _Drain] = {}
        self._sent: dict[int, int] = {}

    # --- what a PE asks ---

    def can_send(self, pe: int, color: int) -> bool:
        """As `Network` has it."""
        if color not in self._outward:
            return super().can_send(pe, color)
        drain = self._drain(pe, color)
        if self._sent.get(pe) == self._clock.now:
            self._clock.at(self._clock.now + 1, self._ends[pe].ramp_free, color)
            return False
        drain.refused = not drain.total and len(drain.buffer) >= BUFFER
        return not drain.refused

    def send(self, pe: int, wavelet: Wavelet) -> None:
        """As `Network` has it."""
        if wavelet.color not in self._outward:
            super().send(pe, wavelet)
            return
        self._sent[pe] = self._clock.now
        drain = self._drain(pe, wavelet.color)
        if drain.total:
            drain.total -= 1
            self._clock.at(self._clock.now + RAMP, self._take, drain, wavelet.data)
        else:
            drain.buffer.append(wavelet.data)

    def release(self, pe: int, color: int) -> None:
        """As `Network` has it."""
        if color not in self._inward:
            super().release(pe, color)
            return
        self._feeds[pe, color].credit += 1
        self._pump(pe, color)

    # --- what the host asks ---

    def feed(self, pe: int, color: int, start: int, data: int, taken: Callable[[], None]) -> None:
        """Send a wavelet to a PE after all before it, not before cycle `start`; call `taken` when its queue has it.

        Raises:
            SimulationError: the PE's program takes nothing of that color
        """
        feed = self._feeds.get((pe, color))
        if feed is None:
            feed = self._feeds[pe, color] = _Feed(self._ends[pe].room(color))
        if not feed.credit and not feed.waiting and not self._ends[pe].room(color):
            raise SimulationError(
                f"PE {pe % self._width}.{pe // self._width}: the host streams wavelets of color {color} to it, its "
                "program has no input queue that takes them",
                "bind a queue to the color with @initialize_queue, and a data task or a fabin DSD to that",
            )
        feed.waiting.append((start, data, taken))
        self._pump(pe, color)

    def expect(self, pe: int, color: int, count: int, take: Callable[[int], None]) -> None:
        """Take `count` wavelets from a PE after those that were asked for before."""
        drain = self._drain(pe, color)
        drain.wanted.append(_Want(count, take))
        drain.total += count
        while drain.buffer and drain.total:
            drain.total -= 1
            self._clock.at(self._clock.now + RAMP, self._take, drain, drain.buffer.popleft())
        if drain.refused and (drain.total or len(drain.buffer) < BUFFER):
            drain.refused = False
            self._clock.at(self._clock.now + 1, self._ends[pe].ramp_free, color)

    def left(self, pe: int, color: int) -> int:
        """Wavelets of the host that a PE has not yet taken."""
        feed = self._feeds.get((pe, color))
        return len(feed.waiting) if feed is not None else 0

    def unread(self) -> list[tuple[int, int, int]]:
        """Wavelets that PEs sent and no command of the host has read: (PE index, color, how many)."""
        return [(pe, color, len(drain.buffer)) for (pe, color), drain in sorted(self._drains.items()) if drain.buffer]

    # --- inside ---

    def _drain(self, pe: int, color: int) -> _Drain:
        drain = self._drains.get((pe, color))
        if drain is None:
            drain = self._drains[pe, color] = _Drain()
        return drain

    def _pump(self, pe: int, color: int) -> None:
        feed = self._feeds[pe, color]
        while feed.credit and feed.waiting:
            start, data, taken = feed.waiting.popleft()
            feed.credit -= 1
            feed.due = max(self._clock.now + 1, feed.due + 1, start)
            self._clock.at(feed.due, self._arrive, pe, Wavelet(color, data), taken)

    def _arrive(self, pe: int, wavelet: Wavelet, taken: Callable[[], None]) -> None:
        self._ends[pe].accept(wavelet)
        taken()

    def _take(self, drain: _Drain, data: int) -> None:
        first = drain.wanted[0]
        first.count -= 1
        if not first.count:
            drain.wanted.popleft()
        first.take(data)


def _colors(streams: Mapping[str, int], start: str) -> list[int]:
    return [color for name, color in streams.items() if name.startswith(start)]
