"""Commands of the host to a simulated fabric: copies to and from symbols, streams, and launches of functions.

A command reaches the fabric when the fabric is idle, or 170,000 cycles after the command before it: 0.2 ms of the
host's latency (H16) at 0.85 GHz (H10). Copies and launches go through the command stream of each PE, in order: a launch
blocks that PE's stream until the program unblocks it (`unblock_cmd_stream`). Streams do not wait for it. Copies take no
cycles (direct); where the host is modelled, a word takes its time on the I/O channels: 7 Gb/s each (H16).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.deadlock import deadlock_report
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.streams import Streams
from cstool.csl.fabric.waiting import ThreadWait
from cstool.foundation.words import counted

if TYPE_CHECKING:
    from cstool.csl.fabric.simulation import Simulation

LATENCY = 170_000
"""cycles between two commands, unless the fabric is idle before"""
CYCLES_PER_WORD = 32 / (7 / 0.85)
"""cycles that a word of 32 bits takes on one I/O channel: 7 Gb/s at 0.85 GHz (H10, H16)"""
MOST_TASKS = 3
"""tasks that a hint names"""
MOST_LINES = 6
"""messages of different PEs alike that are shown"""


class Rectangle(NamedTuple):
    """PEs x to x + width - 1, y to y + height - 1."""

    x: int
    y: int
    width: int
    height: int

    def __str__(self) -> str:
        if self.width * self.height == 1:
            return f"PE {self.x}.{self.y}"
        return f"PEs {self.x}.{self.y} to {self.x + self.width - 1}.{self.y + self.height - 1}"


@dataclass(eq=False)
class Command:
    """A command of the host.

    Args:
        text: its description, for the log and for messages
        result: [height, width, elements] from the fabric; None for a command without a result
        left: parts that are not done; one of them is having begun
        started: the cycle at which it reached the fabric
        wavelets: wavelets of a stream
    """

    text: str
    result: NDArray[np.uint32] | None = None
    left: int = 1
    started: int = 0
    wavelets: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.left

    def part(self) -> None:
        """Note that one part is done."""
        self.left -= 1


Action = Callable[[int], bool]
"""effect of a command on a PE, by index; it returns whether the PE's stream is blocked from then on"""


class Host:
    """The host of one simulation.

    Args:
        simulation: the simulation, not yet run
        on_log: called with the cycle and a line for every act of the host
        modelled: whether words take their time on the I/O channels
    """

    def __init__(
        self, simulation: "Simulation", on_log: Callable[[int, str], None] | None = None, *, modelled: bool = False
    ) -> None:
        self._simulation = simulation
        self._program = simulation.program
        self._events = simulation.events
        self._streams = Streams(simulation)
        self._log = on_log
        self._last = 0
        self._word_cycles = CYCLES_PER_WORD / simulation.program.channels if modelled else 0.0
        self._channel_free = 0.0
        self._blocked: dict[int, str] = {}  # PE index: the function that it is in, and its place
        self._queues: defaultdict[int, deque[tuple[Command, Action]]] = defaultdict(deque)
        self._open: list[Command] = []
        self._sent: defaultdict[tuple[int, int, int], int] = defaultdict(int)  # wavelets, by column, row and color
        simulation.on_unblock = self._unblock

    # --- commands: each returns as soon as the fabric has it ---

    def copy_in(self, name: str, at: Rectangle, values: NDArray[np.uint32], bits: int, words: int) -> Command:
        """Copy values [height, width, elements] to a symbol; of 16-bit elements the low halves.

        `words` come over the channels: fewer than the values where rows or columns are alike.
        """
        self._check(at)
        elements = values.shape[2]
        command = Command(f"memcpy_h2d to '{name}', {elements} x {bits} bits, {at}")
        data = values.astype("<u2") if bits == 16 else values.astype("<u4")

        def write(pe: int) -> bool:
            y, x = divmod(pe, self._program.width)
            address = self._target(pe, name, elements, bits)
            raw = data[y - at.y, x - at.x].tobytes()
            self._simulation.pes[pe].u8[address : address + len(raw)] = raw
            return False

        self._begin(command, at, write, words)
        return command

    def copy_out(self, name: str, at: Rectangle, elements: int, bits: int) -> Command:
        """Copy elements of a symbol to `result`; 16-bit elements to the low halves."""
        self._check(at)
        command = Command(
            f"memcpy_d2h from '{name}', {elements} x {bits} bits, {at}",
            np.zeros((at.height, at.width, elements), "<u4"),
        )
        result = command.result
        assert result is not None

        def read(pe: int) -> bool:
            y, x = divmod(pe, self._program.width)
            address = self._target(pe, name, elements, bits)
            raw = self._simulation.pes[pe].u8[address : address + elements * bits // 8]
            result[y - at.y, x - at.x] = np.frombuffer(raw, "<u2" if bits == 16 else "<u4")
            return False

        self._begin(command, at, read, result.size)
        return command

    def launch(self, name: str, arguments: tuple[float, ...]) -> Command:
        """Start a function on every PE that exports it. The command is done when all of them have unblocked."""
        command = Command(f"launch {name}({', '.join(map(str, arguments))})")
        everywhere = Rectangle(0, 0, self._program.width, self._program.height)

        def start(pe: int) -> bool:
            symbol = self._simulation.pes[pe].program.symbols.get(name)
            if symbol is None or symbol.kind != "function":
                return False
            self._blocked[pe] = f"{name}()" + (f" ({symbol.place})" if symbol.place else "")
            command.left += 1
            self._queues[pe].appendleft((command, lambda _: False))  # done once the PE comes back to its stream
            self._simulation.launch(pe, symbol, arguments)
            return True

        self._begin(command, everywhere, start, 0)
        return command

    def stream_in(self, color: int, at: Rectangle, values: NDArray[np.uint32], text: str | None = None) -> Command:
        """Send values [height, width, elements] as wavelets, all 32 bits; done when input queues have them all.

        Of 16-bit data, too: programs give its upper half an index.
        """
        self._check(at)
        command = Command(text or f"memcpy_h2d streams {values.shape[2]} wavelets of color {color} to {at}")
        command.wavelets = values.size
        if at.width * at.height == 1:
            self._sent[at.x, at.y, color] += values.size
        self._arrive(command)
        command.left += values.size
        start = max(self._channel_free, float(self._events.now))
        number = 0
        for element in range(values.shape[2]):
            for pe, y, x in self._inside(at):
                number += 1
                due = int(start + number * self._word_cycles)
                self._streams.feed(pe, color, due, int(values[y - at.y, x - at.x, element]), command.part)
        self._channel_free = start + number * self._word_cycles
        command.part()
        return command

    def stream_out(self, color: int, at: Rectangle, elements: int, bits: int, text: str | None = None) -> Command:
        """Take wavelets into `result`; of 16-bit elements the low halves."""
        self._check(at)
        mask = 0xFFFF if bits == 16 else 0xFFFFFFFF
        result = np.zeros((at.height, at.width, elements), np.uint32)
        command = Command(text or f"memcpy_d2h takes {elements} wavelets of color {color} from {at}", result)
        command.wavelets = result.size
        self._arrive(command)
        command.left += result.size
        for pe, y, x in self._inside(at):
            places = iter(range(elements))

            def take(
                data: int, row: NDArray[np.uint32] = result[y - at.y, x - at.x], at: Iterator[int] = places
            ) -> None:
                row[next(at)] = data & mask
                command.part()

            self._streams.expect(pe, color, elements, take)
        command.part()
        return command

    # --- time ---

    def settle(self) -> None:
        """Let time pass until the cycle at which the next command could reach the fabric."""
        due = self._last + LATENCY
        if self._simulation.run_until(until=due):
            # Nothing may happen in that very cycle, but it is the one in which the command comes.
            self._events.at(due, lambda: None)
            self._simulation.run_until(until=due)

    def poll(self) -> None:
        """Let time pass as for a command that asks the fabric something."""
        self.settle()
        self._last = self._events.now
        self._simulation.heard()

    def finish(self, command: Command) -> None:
        """Let time pass until a command is done.

        Raises:
            SimulationError: it can never be done
        """
        if not command.done:
            self._simulation.run_until(lambda: command.done)
        if not command.done and not command.text.startswith("launch"):
            raise self._stuck(command)

    def stop(self) -> list[str]:
        """Run the fabric until nothing is left to happen; return warnings about its end, a line each.

        Raises:
            SimulationError: a command is not done, or a function that was launched stands still in an operation
        """
        self._simulation.run_until()
        for command in self._open:
            if not command.done and (self._stands_still() or not command.text.startswith("launch")):
                raise self._stuck(command)
        blocked = [
            f"{self._program.name(pe)}: {function} never unblocked the command stream; on a wafer the host's next "
            "command would wait for ever"
            for pe, function in sorted(self._blocked.items())
        ]
        unread = [
            f"{self._program.name(pe)}: nobody read {counted(count, 'wavelet')} of color {color}"
            for pe, color, count in self._streams.unread()
        ]
        return _first(blocked) + _first(unread)

    # --- looked at ---

    def under_way(self) -> list[str]:
        """The commands that are not done, in words."""
        return [command.text for command in self._open if not command.done]

    # --- inside ---

    def _stands_still(self) -> bool:
        """Whether a PE that has not unblocked its command stream is in an operation that cannot go on."""
        waits = (wait for pe in sorted(self._blocked) for wait in self._simulation.pes[pe].waiting())
        return any(isinstance(wait, ThreadWait) for wait in waits)

    def _check(self, at: Rectangle) -> None:
        width, height = self._program.width, self._program.height
        inside = at.x >= 0 and at.y >= 0 and at.width > 0 and at.height > 0
        if not inside or at.x + at.width > width or at.y + at.height > height:
            raise SimulationError(
                f"a command must stay inside the program's {width} x {height} PEs, "
                f"got x = {at.x}, y = {at.y}, width = {at.width}, height = {at.height}"
            )

    def _inside(self, at: Rectangle) -> Iterator[tuple[int, int, int]]:
        """PE index, y and x of all PEs of a rectangle."""
        for y in range(at.y, at.y + at.height):
            for x in range(at.x, at.x + at.width):
                yield y * self._program.width + x, y, x

    def _arrive(self, command: Command) -> None:
        """Let time pass until a command reaches the fabric."""
        self.settle()
        self._last = command.started = self._events.now
        self._simulation.heard()
        self._open = [other for other in self._open if not other.done]
        self._open.append(command)
        if self._log is not None:
            self._log(self._events.now, f"host: {command.text}")

    def _begin(self, command: Command, at: Rectangle, action: Action, words: int) -> None:
        """Give a command to the streams of the PEs, once its words have come over the channels."""
        self._arrive(command)
        start = max(self._channel_free, float(self._events.now))
        self._channel_free = start + words * self._word_cycles
        if self._channel_free > start:
            command.left += 1
            self._events.at(int(self._channel_free) + 1, command.part)
        for pe, _, _ in self._inside(at):
            command.left += 1
            self._queues[pe].append((command, action))
            self._advance(pe)
        command.part()

    def _advance(self, pe: int) -> None:
        """Let a PE take commands as long as its stream is not blocked."""
        queue = self._queues[pe]
        while queue and pe not in self._blocked:
            command, action = queue.popleft()
            action(pe)
            command.part()
        if not queue:
            self._queues.pop(pe, None)

    def _unblock(self, pe: int) -> None:
        """A program has unblocked the stream of its PE."""
        if self._blocked.pop(pe, None) is not None:
            self._events.at(self._events.now, self._advance, pe)

    def _target(self, pe: int, name: str, elements: int, bits: int) -> int:
        """Address of elements that an exported pointer points to."""
        place = self._program.name(pe)
        endpoint = self._simulation.pes[pe]
        symbol = endpoint.program.symbols.get(name)
        if symbol is None or symbol.kind != "variable":
            raise SimulationError(f"{place}: its program must export '{name}', {endpoint.program.name} does not")
        size = elements * bits // 8
        if bits == 16 and BYTES[symbol.letter] == 4:
            raise SimulationError(
                f"{place}: MEMCPY_16BIT is for elements of 16 bits, those of '{name}' have 32",
                "MEMCPY_32BIT copies them",
            )
        known = symbol.count * BYTES[symbol.letter]
        if known and size > known:
            raise SimulationError(f"{place}: '{name}' has {known} bytes, the host asks for {size}")
        address = symbol.address if symbol.pointer is None else int(endpoint.load("H", symbol.pointer))
        if address + size > len(endpoint.u8):
            raise SimulationError(
                f"{place}: {size} bytes from '{name}' on must lie in its {len(endpoint.u8)} bytes of SRAM, "
                f"it points to {address}"
            )
        return address

    def _stuck(self, command: Command) -> SimulationError:
        """The error of a command that can never be done, with the reason."""
        hint = None
        if self._blocked:
            pe, function = min(self._blocked.items())
            hint = f"{self._program.name(pe)} is in {function}, which has not called unblock_cmd_stream()"
            if never := self._never_ran(pe):
                hint += f"; never ran there: {never}"
        for port in self._program.ports:
            sent = self._sent[port.x, port.y, port.color] if port.is_input else 0
            if port.size and sent % port.size:
                sent_text = counted(sent, "word")
                hint = f"the host sent {sent_text} to '{port.name}', whose port is made for {port.size} at a time"
        text = command.text
        if command.wavelets:
            text += f", {command.wavelets - command.left} of {counted(command.wavelets, 'wavelet')} passed"
        simulation = self._simulation
        waits = [*simulation.network.waiting(), *(wait for each in simulation.pes for wait in each.waiting())]
        return SimulationError(
            f"the fabric stands still, and the host's command is not done: {text}",
            hint,
            deadlock_report(self._program, self._events.now, waits, simulation.network.config, self.under_way()),
        )

    def _never_ran(self, pe: int) -> str:
        """The tasks of a PE's program that have not run, in words."""
        end = self._simulation.pes[pe]
        picker = end.main.picker
        never = [task for number, task in picker.tasks.items() if number not in picker.ran][:MOST_TASKS]
        return ", ".join(f"task {task.function} ({task.place})" for task in never)


def _first(lines: list[str]) -> list[str]:
    """The first of many lines, and the number of the others."""
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"{counted(more, 'more PE')} likewise"]
