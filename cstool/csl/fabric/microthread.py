"""An operation in progress: it does one element a cycle, whenever its inputs and room for its output are there.

A wavelet that arrives in a cycle is read in the next one at the earliest, so the order inside a cycle cannot matter.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric import control
from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl, Operand, Pointer, Settings
from cstool.csl.fabric.errors import Said
from cstool.csl.fabric.memory import HALVES, bits_float, encode, float_bits, half_bits
from cstool.csl.fabric.operations import BYTES, raw
from cstool.csl.fabric.program import Task
from cstool.csl.fabric.queues import InputQueue, OutputQueue, Ring
from cstool.csl.fabric.waiting import MAIN

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

PRIORITIES = {"high": 0, "medium": 1, "low": 2}


@dataclass(slots=True, eq=False)
class Thread:
    """One operation on one thread of a PE.

    Args:
        pe: the PE
        name: name of the operation
        settings: as given behind its operands
        number: the microthread; None: the main thread
        count: elements

    Attributes:
        ready: cycle of the first element at the earliest
        done: elements done
        stalled: whether it waits for a change of a queue or FIFO of its
        step: `step(now)` does the next element in cycle `now`; false if it must wait
        in_memory: memory that `readers` read, by number of the reader
        colors: for each of `inputs` the color that the queue gets as the operation begins; None: it keeps its color
        operands: as the code named them: registers among them may be advanced at the end
        line: line of the compiled code that began it; 0 if unknown
    """

    pe: "ProcessingElement"
    name: str
    settings: Settings
    number: int | None
    count: int
    task: Task | None
    done: int = 0
    ready: int = 0
    index: int = 0
    indexed: bool = False
    call: bool = False
    stalled: bool = False
    step: Callable[[int], bool] = field(init=False)
    up: FabricOut | None = None
    inputs: list[InputQueue] = field(default_factory=list)
    colors: list[int | None] = field(default_factory=list)
    output: OutputQueue | None = None
    popped: list[Ring] = field(default_factory=list)
    pushed: Ring | None = None
    readers: list[Callable[[], Any]] = field(default_factory=list)
    in_memory: dict[int, Iterator[Any]] = field(default_factory=dict)
    put: Callable[[Any], None] | None = None
    compute: Callable[..., Any] = lambda value: value
    on_control: OnControl | None = None
    operands: tuple[Operand, ...] = ()
    line: int = 0

    def __post_init__(self) -> None:
        self.step = self._step
        self.on_control = self.settings.on_control

    @property
    def label(self) -> str:
        """Name of the thread in reports and traces."""
        return MAIN if self.number is None else f"microthread {self.number}"

    # --- its operands ---

    def add_source(self, operand: Operand, letter: str, move: bool) -> None:
        """Read elements of `operand` as type `letter`; with `move`, as bits without conversion."""
        self.readers.append(self._reader(operand, letter, move))

    def _reader(self, operand: Operand, letter: str, move: bool) -> Callable[[], Any]:
        pe, kind = self.pe, raw(letter) if move else letter
        if isinstance(operand, Pointer):
            operand = Mem1d(operand.address, self.count, 0, BYTES[letter])
        if isinstance(operand, (Mem1d, Mem4d)) and operand.indexed:
            self.indexed = True
            return partial(self._read_indexed, operand, kind)
        if isinstance(operand, (Mem1d, Mem4d)):
            pe.check_bounds(self.name, operand, self.count, BYTES[letter], self.task)
            elements = self.in_memory[len(self.readers)] = pe.memory.reader(operand, self.count, kind)
            return elements.__next__
        if isinstance(operand, FabricIn):
            queue = pe.ramp.input_queue(operand.queue, self.name)
            self.inputs.append(queue)
            self.colors.append(operand.color)
            self.on_control = self.on_control or operand.on_control
            return _decoded(queue.take, kind)
        if isinstance(operand, Fifo):
            ring = pe.fifos[operand.number]
            self.popped.append(ring)
            return _decoded(ring.pop, kind)
        if isinstance(operand, (int, float)):
            return repeat(encode(letter, operand) if move else operand).__next__
        raise pe.error(Said(f"@{self.name} cannot read from {operand!r}"), self.task)

    def add_reduced(self, start: float, pointer: Pointer, letter: str) -> None:
        """Take `start` as the first element of the first source, then elements of the destination."""
        place = Mem1d(pointer.address, self.count, 0, BYTES[letter])
        self.pe.check_bounds(self.name, place, self.count, BYTES[letter], self.task)
        rest: Iterator[Any] = self.pe.memory.reader(place, self.count, letter)
        self.readers.append(chain([start], rest).__next__)

    def set_dest(self, operand: Operand, letter: str, move: bool) -> None:
        """Write results of type `letter` to `operand`."""
        pe = self.pe
        if move:
            letter = raw(letter)
        if isinstance(operand, Pointer):
            operand = Mem1d(operand.address, self.count, 0, BYTES[letter])
        if isinstance(operand, (Mem1d, Mem4d)) and operand.indexed:
            self.indexed = True
            self.put = partial(self._write_indexed, operand, letter)
        elif isinstance(operand, (Mem1d, Mem4d)):
            pe.check_bounds(self.name, operand, self.count, BYTES[letter], self.task)
            places, store = pe.memory.writer(operand, self.count, letter)
            self.put = _stored(iter(places).__next__, store)
        elif isinstance(operand, FabricOut):
            self.output, self.up = pe.ramp.output_queue(operand, self.name)
            self.put = self._sender(self.up, letter)
        elif isinstance(operand, Fifo):
            self.pushed = ring = pe.fifos[operand.number]
            self.put = lambda value: ring.push(encode(letter, value))
        else:
            raise pe.error(Said(f"@{self.name} cannot write to {operand!r}"), self.task)

    def _sender(self, operand: FabricOut, letter: str) -> Callable[[Any], None]:
        assert self.output is not None
        output, items, sending = self.output, self.output.items, self.pe.ramp.sending
        as_bits: Callable[[Any], int]
        if letter == "f":
            as_bits = float_bits
        elif letter == "e":
            as_bits = half_bits
        elif BYTES[letter] == 4:
            as_bits = _word_bits
        else:
            as_bits = _short_bits
        color, is_control, first = operand.color, operand.control, self.settings.first_index
        traced = self.pe.trace is not None
        if BYTES[letter] == 2 and (operand.indexed or first is not None):
            start = first or 0

            def put_indexed(value: Any) -> None:
                if not items:
                    sending.append(output)
                items.append((color, as_bits(value) | (start + self.done & 0xFFFF) << 16, is_control))
                self._note("written", output)

            return put_indexed

        def put(value: Any) -> None:
            if not items:
                sending.append(output)
            items.append((color, as_bits(value), is_control))
            if traced:
                self._note("written", output)

        return put

    def _address(self, operand: Mem1d | Mem4d, size: int) -> int:
        if isinstance(operand, Mem1d):
            address = operand.address + self.index * operand.stride
        else:
            address, index = operand.address, self.index
            for extent_, stride in zip(operand.extents[:0:-1], operand.strides[:0:-1], strict=True):
                index, at = divmod(index, max(extent_, 1))
                address += at * stride
            address += index * operand.strides[0]
        if not 0 <= address <= SRAM_BYTES - size:
            self.pe.check_bounds(self.name, Mem1d(address, 1, 0, size), 1, size, self.task)
        return address

    def _read_indexed(self, operand: Mem1d | Mem4d, letter: str) -> int | float:
        return self.pe.memory.load(letter, self._address(operand, BYTES[letter]))

    def _write_indexed(self, operand: Mem1d | Mem4d, letter: str, value: Any) -> None:
        self.pe.memory.store(letter, self._address(operand, BYTES[letter]), value)

    def _note(self, act: str, queue: InputQueue | OutputQueue) -> None:
        """Tell the trace of an act at a queue: of the last wavelet written, or of the operation, which waits."""
        pe = self.pe
        if pe.trace is not None:
            last = queue.items[-1] if queue.items else (queue.color, 0, False)
            pe.trace(pe.simulation.events.now, pe.index, "queue", act, queue.number, *last)

    # --- its elements ---

    @property
    def sends_memory(self) -> bool:
        """Whether it reads memory, and writes none."""
        return bool(self.in_memory) and self.output is not None

    def read_ahead(self, most: int) -> None:
        """Read the next elements from memory now, `most` of them at most."""
        count = min(most, self.count - self.done)
        for number, rest in self.in_memory.items():
            elements = self.in_memory[number] = chain(list(islice(rest, count)), rest)
            self.readers[number] = elements.__next__

    def begin(self, ready: int) -> None:
        """Allow elements from cycle `ready` on."""
        self.ready = ready
        plain = not (self.indexed or self.popped or self.pushed is not None)
        if plain and len(self.inputs) == 1 and self.output is None and self.put is not None:
            self.step = self._receiving(self.inputs[0], self.put)
        elif plain and not self.inputs and self.output is not None and self.put is not None and len(self.readers) == 1:
            self.step = self._sending(self.output, self.put)

    def _receiving(self, queue: InputQueue, put: Callable[[Any], None]) -> Callable[[int], bool]:
        """`step` of an operation that reads one queue and writes memory: the most frequent kind."""
        items, compute, readers, count = queue.items, self.compute, self.readers, self.count
        first = readers[0]
        second = readers[1] if len(readers) == 2 else None
        single = len(readers) == 1

        def step(now: int) -> bool:
            if not items:
                self.stalled = True
                self._note("starved", queue)
                return False
            head = items[0]
            if head[0] >= now:
                return False
            if head[2]:
                return self._control(queue, head[1], now)
            if single:
                put(compute(first()))
            elif second is not None:
                put(compute(first(), second()))
            else:
                put(compute(*[read() for read in readers]))
            self.done = done = self.done + 1
            if done >= count:
                self.pe.datapath.finish(self, now + 1)
            return True

        return step

    def _sending(self, output: OutputQueue, put: Callable[[Any], None]) -> Callable[[int], bool]:
        """`step` of an operation that reads one vector in memory, or a scalar, and writes one queue."""
        items, capacity, compute, readers, count = output.items, output.capacity, self.compute, self.readers, self.count

        def step(now: int) -> bool:
            if len(items) >= capacity:
                self.stalled = True
                self._note("full", output)
                return False
            put(compute(readers[0]()))  # `read_ahead` may have replaced the reader
            self.done = done = self.done + 1
            if done >= count:
                self.pe.datapath.finish(self, now + 1)
            return True

        return step

    def _step(self, now: int) -> bool:
        """`step` for any operands."""
        for queue in self.inputs:
            items = queue.items
            if not items:
                self.stalled = True
                self._note("starved", queue)
                return False
            if items[0][0] >= now:
                return False
            if items[0][2]:
                return self._control(queue, items[0][1], now)
        output = self.output
        if output is not None and len(output.items) >= output.capacity:
            self.stalled = True
            self._note("full", output)
            return False
        for ring in self.popped:
            if not ring.length:
                return self._fifo_stops(now)
        if self.pushed is not None and self.pushed.length >= self.pushed.buffer.capacity:
            return self._fifo_stops(now)
        if self.indexed:
            first = self.settings.first_index or 0
            self.index = self.inputs[0].items[0][1] >> 16 if self.inputs else first + self.done & 0xFFFF
        result = self.compute(*[read() for read in self.readers])
        if self.put is not None:
            self.put(result)
        self.done += 1
        if self.done >= self.count:
            self.pe.datapath.finish(self, now + 1)
        return True

    def drop(self, now: int) -> bool:
        """`step` of `@dfilt`: drops a wavelet; each control wavelet counts, data does not."""
        (queue,) = self.inputs
        if not queue.items or queue.items[0][0] >= now:
            self.stalled = not queue.items
            return False
        self.done += queue.items[0][2]
        queue.take()
        if self.done >= self.count:
            self.pe.datapath.finish(self, now + 1)
        return True

    def _fifo_stops(self, now: int) -> bool:
        """A FIFO is empty or full: a microthread waits, the main thread's operation ends (SDK documentation, DSRs)."""
        if self.number is None and not self.call:
            self.pe.datapath.finish(self, now + 1)
            return True
        self.stalled = True
        return False

    def _control(self, queue: InputQueue, payload: int, now: int) -> bool:
        """A control wavelet is the head of an input queue."""
        action = self.on_control
        if action is None:
            # It is for a control task, which the task picker runs; one that names none is dropped.
            if control.decode(payload).task in self.pe.main.picker.controls:
                self.pe.main.wake(now)
                return False
            queue.take()
            return True
        queue.take()
        if action.activate is not None:
            self.pe.main.activate_at(action.activate, now + 1)
        if action.unblock is not None:
            self.pe.main.unblock_at(action.unblock, now + 1)
        if action.terminate:
            self.pe.datapath.finish(self, now + 1)
        return True

    def close(self) -> None:
        """Send the command of `advance_switch` at the end; no CE gets it."""
        if self.up is not None and self.up.advance_switch and self.output is not None:
            if not self.output.items:
                self.pe.ramp.sending.append(self.output)
            self.output.items.append((self.up.color, control.encode(((control.ADVANCE, True),)), True))


def extent(operands: Sequence[Operand], lengths: Sequence[int] = ()) -> int:
    """Elements of an operation: the shortest of its vectors in memory, else of its streams; 1 if there is neither.

    `lengths`: set by the program for its FIFOs; they count like extents of streams.

    The documentation says nothing of extents that differ. Memory counts here, as the vendor's game-of-life needs: it
    sends a vector of two elements to an output of extent 1, and needs both at the other side.
    """
    in_memory = [
        operand.extent if isinstance(operand, Mem1d) else math.prod(operand.extents)
        for operand in operands
        if isinstance(operand, (Mem1d, Mem4d))
    ]
    streams = [operand.extent for operand in operands if isinstance(operand, (FabricIn, FabricOut))]
    return min(in_memory or [*streams, *lengths], default=1)


def _word_bits(value: int) -> int:
    return value & 0xFFFFFFFF


def _short_bits(value: int) -> int:
    return value & 0xFFFF


def _stored(place: Callable[[], int], store: Callable[[int, Any], None]) -> Callable[[Any], None]:
    return lambda value: store(place(), value)


def _decoded(take: Callable[[], int], letter: str) -> Callable[[], Any]:
    """Read the words of `take` as type `letter`."""
    if letter in "wi":
        return take if letter == "w" else lambda: (take() ^ 0x80000000) - 0x80000000
    if letter == "f":
        return lambda: bits_float(take())
    if letter == "e":
        return lambda: HALVES[take() & 0xFFFF]
    if letter == "H":
        return lambda: take() & 0xFFFF
    return lambda: (take() & 0xFFFF ^ 0x8000) - 0x8000
