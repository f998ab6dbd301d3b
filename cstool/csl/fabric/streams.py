"""Streams between the host and PEs: MEMCPYH2D colors bring wavelets from the host, MEMCPYD2H colors take them to it.

A PE sees no difference from other colors: it takes from an input queue, and sends. The host sends as there is room in
the input queue; wavelets to the host wait for a command that reads them.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.network import RAMP_CYCLES
from cstool.csl.fabric.wavelet import Wavelet

if TYPE_CHECKING:
    from cstool.csl.fabric.simulation import Simulation


@dataclass
class _Feed:
    """Wavelets from the host to one PE by one color.

    Args:
        room: wavelets that the input queue takes
        due: the cycle of the next one at the earliest
        waiting: earliest cycle, data, call when sent
    """

    room: int
    due: int = 0
    waiting: deque[tuple[int, int, Callable[[], None]]] = field(default_factory=deque)


@dataclass
class _Drain:
    """Wavelets from one PE to the host by one color, and the functions that take the next ones."""

    buffer: deque[int] = field(default_factory=deque)
    wanted: deque[Callable[[int], None]] = field(default_factory=deque)


class Streams:
    """All streams of a simulation: `FabricProgram.streams`, of all PEs, and `FabricProgram.ports`.

    Args:
        simulation: the simulation, not yet run
    """

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._events = simulation.events
        self._feeds: dict[tuple[int, int], _Feed] = {}
        self._drains: defaultdict[tuple[int, int], _Drain] = defaultdict(_Drain)
        program = simulation.program
        everywhere = [(name.startswith("MEMCPYH2D"), color, None) for name, color in program.streams.items()]
        of_one = [(port.is_input, port.color, port.y * program.width + port.x) for port in program.ports]
        for is_input, color, pe in everywhere + of_one:
            if is_input:
                simulation.from_host(color, partial(self._taken, color), pe)
            else:
                simulation.to_host(color, self._sent, pe)

    def feed(self, pe: int, color: int, start: int, data: int, taken: Callable[[], None]) -> None:
        """Send a wavelet to a PE after all before it, not before cycle `start`; call `taken` once it is in the queue.

        Raises:
            SimulationError: the PE's program has no input queue for that color
        """
        feed = self._feeds.get((pe, color))
        if feed is None:
            room = self._simulation.pes[pe].room(color)
            if not room:
                raise SimulationError(
                    f"{self._simulation.program.name(pe)}: the host streams wavelets of color {color} to it, "
                    "its program must take them, no input queue is bound to that color",
                    "bind one with @initialize_queue, and read it with a data task or a fabin_dsd",
                )
            feed = self._feeds[pe, color] = _Feed(room)
        feed.waiting.append((start, data, taken))
        self._pump(pe, color, feed)

    def expect(self, pe: int, color: int, count: int, take: Callable[[int], None]) -> None:
        """Take `count` wavelets from a PE, behind earlier requests."""
        drain = self._drains[pe, color]
        drain.wanted.extend(repeat(take, count))
        while drain.buffer and drain.wanted:
            drain.wanted.popleft()(drain.buffer.popleft())

    def unread(self) -> list[tuple[int, int, int]]:
        """Wavelets that PEs sent and no command has read: (PE index, color, count)."""
        return [(pe, color, len(drain.buffer)) for (pe, color), drain in sorted(self._drains.items()) if drain.buffer]

    def _pump(self, pe: int, color: int, feed: _Feed) -> None:
        while feed.room and feed.waiting:
            start, data, taken = feed.waiting.popleft()
            feed.room -= 1
            feed.due = max(self._events.now + 1, feed.due + 1, start)
            self._events.at(feed.due, self._arrive, pe, Wavelet(color, data), taken)

    def _arrive(self, pe: int, wavelet: Wavelet, taken: Callable[[], None]) -> None:
        self._simulation.pes[pe].accept(wavelet)
        taken()

    def _taken(self, color: int, pe: int) -> None:
        """A PE took a wavelet out of its input queue."""
        feed = self._feeds[pe, color]
        feed.room += 1
        self._pump(pe, color, feed)

    def _sent(self, pe: int, wavelet: Wavelet) -> None:
        """A PE sent a wavelet to the host."""
        self._events.at(self._events.now + RAMP_CYCLES, self._come, pe, wavelet)

    def _come(self, pe: int, wavelet: Wavelet) -> None:
        drain = self._drains[pe, wavelet.color]
        if drain.wanted:
            drain.wanted.popleft()(wavelet.data)
        else:
            drain.buffer.append(wavelet.data)
