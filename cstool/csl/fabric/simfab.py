"""A recorded trace as lines of text, in the form that the vendor's simulator writes and wse-viz, a viewer of it, reads.

Each line begins with its cycle. What is not simulated is not there: registers, memory, stalls within the pipeline.
Addresses of instructions are numbers of operations in the trace.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from cstool.csl.fabric.arch import OPPOSITE, RAMP
from cstool.csl.fabric.memory import decode
from cstool.csl.fabric.network import RAMP_CYCLES
from cstool.csl.fabric.trace import ACTS, Recorded
from cstool.csl.fabric.trace_view import spans

_LETTERS = "RWENS"
"""letters of the ports, in the order of `arch.PORTS`"""
_SLOTS = "ENWSR"
"""the places of departures in a line of a wavelet"""
_STEPS = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
_ADDRESS = 4
"""from one operation's address to the next"""
Line = tuple[int, str]


class _Wavelet(NamedTuple):
    """A wavelet at a router: its number, data, whether control, the port it came by, and the cycle."""

    ident: int
    data: int
    control: bool
    port: int
    time: int


def lines(trace: Recorded) -> Iterator[str]:
    """All lines of a trace, by cycle."""
    yield f"@0 dimX={trace.width}, dimY={trace.height}"
    parts = [_wavelets(trace), *(_operations(trace, pe) for pe in sorted(set(trace.marks["pe"].tolist())))]
    for time, text in heapq.merge(*parts, key=lambda line: line[0]):
        yield f"@{time} {text}"


# --- wavelets ---


def _wavelets(trace: Recorded) -> Iterator[Line]:
    """Lines of wavelets at routers and queues; a line may come up to two cycles before others in time."""
    return iter(sorted(_Routers(trace).lines(), key=lambda line: line[0]))


class _Routers:
    """Follows wavelets from router to router: a link, or a ramp, keeps the order of the wavelets of a color."""

    def __init__(self, trace: Recorded) -> None:
        self.trace = trace
        self._coming: defaultdict[tuple[int, int, int], deque[_Wavelet]] = defaultdict(deque)  # by PE, port and color
        self._down: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)  # by PE and color, to its queue
        self._idents = 0

    def lines(self) -> Iterator[Line]:
        for time, is_queue, pe, *fields in sorted(self._events()):
            yield from self._act(time, pe, *fields) if is_queue else self._hop(time, pe, *fields)

    def _events(self) -> Iterator[tuple[int, ...]]:
        """Departures from routers, those of a wavelet by several ports in one, and acts at queues."""
        hops, queues = self.trace.hops, self.trace.queues
        ports: defaultdict[tuple[int, ...], int] = defaultdict(int)
        for time, pe, port, *wavelet in zip(*(column.tolist() for column in hops.values()), strict=True):
            ports[time, pe, *wavelet] |= 1 << port
        for (time, pe, *wavelet), set_ in ports.items():
            yield time, 0, pe, *wavelet, set_
        for time, pe, *fields in zip(*(column.tolist() for column in queues.values()), strict=True):
            yield time, 1, pe, *fields

    def _name(self, pe: int) -> str:
        return f"P{pe % self.trace.width}.{pe // self.trace.width}"

    def _new(self) -> int:
        self._idents += 1
        return self._idents

    def _hop(self, time: int, pe: int, color: int, data: int, control: int, ports: int) -> Iterator[Line]:
        wavelet = self._arrived(time, pe, color, data, control)
        name = self._name(pe)
        departing = "".join(each if ports >> _LETTERS.index(each) & 1 else " " for each in _SLOTS)
        landing = _LETTERS[wavelet.port]
        yield wavelet.time, f"{name} (hwtile) landing C{color} from link {landing}, ident={wavelet.ident:016x}"
        if wavelet.time < time:
            yield wavelet.time, f"{name} (hwtile) {_wavelet_text(color, wavelet)} landing={landing} departing=/     /"
            landing = "-"
        yield time, f"{name} (hwtile) {_wavelet_text(color, wavelet)} landing={landing} departing=/{departing}/"
        for port, (x, y) in _STEPS.items():
            if ports >> port & 1:
                beside = pe + x + y * self.trace.width
                coming = wavelet._replace(port=OPPOSITE[port], time=time + 1)
                self._coming[beside, OPPOSITE[port], color].append(coming)
        if ports >> RAMP & 1:
            self._down[pe, color].append(wavelet.ident)

    def _arrived(self, time: int, pe: int, color: int, data: int, control: int) -> _Wavelet:
        """The leaving wavelet: the first one like it among the arrivals."""
        for port in (1, 2, 3, 4, RAMP):
            queue = self._coming[pe, port, color]
            for place, each in enumerate(queue):
                if each.time <= time and (each.data, each.control) == (data, bool(control)):
                    for _ in range(place + 1):  # those before it were dropped: their route had no output
                        queue.popleft()
                    return each
        return _Wavelet(self._new(), data, bool(control), RAMP, time)

    def _act(self, time: int, pe: int, act: int, queue: int, color: int, data: int, control: int) -> Iterator[Line]:
        name, did = self._name(pe), ACTS[act]
        if did == "written":
            yield time, f"{name}: Writing wavelet C{color} data={data:08x} to OUT_Q[{queue}]"
        elif did == "sent":
            wavelet = _Wavelet(self._new(), data, bool(control), RAMP, time + RAMP_CYCLES)
            self._coming[pe, RAMP, color].append(wavelet)
            text = f"Sending wavelet C{color} data={data:08x} ident:{wavelet.ident:016x} on OUT_Q[{queue}]"
            yield time, f"{name}: {text}"
        elif did == "refused":
            yield time, f"{name}: Backpressure on C{color} for OUT_Q[{queue}]"
        elif did == "full":
            yield time, f"{name}: Pipe: 2, Msg: stall: OUT_Q[{queue}] full"
        elif did == "starved":
            yield time, f"{name}: Not enough wavelets (0/1) for SRC0 with C{color}, IN_Q[{queue}], SIMD-1"
        elif did == "came" and self._down[pe, color]:
            wavelet = _Wavelet(self._down[pe, color].popleft(), data, bool(control), RAMP, time)
            text = _wavelet_text(color, wavelet)
            yield time, f"{name} (hwtile) {text} landing=- departing=/     /, to_ce_from_router"


def _wavelet_text(color: int, wavelet: _Wavelet) -> str:
    index, low = wavelet.data >> 16, wavelet.data & 0xFFFF
    value = f"(f32({decode('f', wavelet.data)}))"
    return (
        f"wavelet C{color} ctrl={int(wavelet.control)}, idx={index:04x}, data={low:04x} {value}, half=0, "
        f"ident={wavelet.ident:016x}"
    )


# --- operations ---


def _operations(trace: Recorded, pe: int) -> Iterator[Line]:
    """What a PE does, from one change to the next: its latest operation, else its task; IDLE without either."""
    name = f"P{pe % trace.width}.{pe // trace.width}"
    number = {word: place * _ADDRESS for place, word in enumerate(trace.words)}
    changes = sorted(
        change
        for place, span in enumerate(spans(trace, pe))
        for change in ((span.begin, 1, place, span), (span.end, 0, place, span))
    )
    open_ones: dict[int, str] = {}
    before = ""
    yield 0, f"{name}: [EX OP] IDLE"
    for at, (time, begins, place, span) in enumerate(changes):
        word = span.name.removeprefix("task ").removeprefix("@")
        thread = span.thread.removeprefix("main").replace("microthread ", ".UT")
        opcode = word.upper() if span.name.startswith("@") else f"TASK.{word}"
        text = f"^ 0x{number[word]:04x}: T0{thread} {opcode}"
        if begins:
            open_ones[place] = text
            yield time, f"{name}: [IS OP] {text}"
        else:
            del open_ones[place]
        is_last = at + 1 == len(changes) or changes[at + 1][0] > time
        now = next(reversed(open_ones.values()), "IDLE")
        if is_last and now != before:
            before = now
            yield time, f"{name}: [EX OP] {now}"
