"""A processing element: its main thread, its microthreads, and what compiled code asks of it (`interface.PE`).

A task's code runs at once, at the cycle at which the task starts; `cycles` says how long that takes, and the main
thread is not free before. Operations on microthreads go on meanwhile, one element a cycle and PE; each of these cycles
is one that the main thread loses. A task that waits, for an operation on the fabric, is a generator that stands still.

What a task changes in memory after it has started an asynchronous operation, that operation sees from its first element
on, even if on the wafer it would have been done by then: no program may count on either.
"""

import struct
import sys
from collections import deque
from collections.abc import Callable, Generator
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from cstool.fabric import registers, vector
from cstool.fabric.arch import ARCHS, COLORS, SRAM_BYTES
from cstool.fabric.dsd import Dsr, FabricIn, FabricOut, Fifo, Mem1d, Mem4d, Operand, Pointer, Settings
from cstool.fabric.errors import SimulationError
from cstool.fabric.interface import Wait
from cstool.fabric.memory import Memory, bounds, encode
from cstool.fabric.microthread import PRIORITIES, Thread, advanced, extent
from cstool.fabric.operations import BYTES, Operation
from cstool.fabric.program import PEProgram, Task
from cstool.fabric.queues import InputQueue, OutputQueue, Ring
from cstool.fabric.scheduler import CALL, QUEUES_FROM, SWITCH, TEARDOWN_TASK, Call, Picked, Picker
from cstool.fabric.waiting import MAIN, QueueWait, TaskWait, ThreadWait
from cstool.fabric.wavelet import Wavelet

if TYPE_CHECKING:
    from cstool.fabric.simulation import Simulation

MAP_ELEMENT = 4
"""Cycles of `@map` for an element, beside what its callback takes. Ours: nothing is published."""

OWN_QUEUE = 4
"""Wavelets that a color without a bound queue has room for (WSE-2). Ours: the middle of the queues' sizes (F12)."""

_CLOCK = (1 << 48) - 1
_PLAIN = Settings()


class ProcessingElement:
    """One PE of a simulation.

    Args:
        simulation: that it belongs to
        index: y * width + x
        program: what it runs

    Attributes:
        busy: cycles that tasks took
        tasks_run: tasks begun
        elements: elements of vector operations done
        received, sent: wavelets taken from input queues, and put on the ramp
    """

    def __init__(self, simulation: "Simulation", index: int, program: PEProgram) -> None:
        self.simulation = simulation
        self.index = index
        self.y, self.x = divmod(index, simulation.program.width)
        self.program = program
        self.arch = ARCHS[program.arch]
        self.memory = memory = Memory(program.memory)
        self.u8, self.i8, self.u16, self.i16 = memory.u8, memory.i8, memory.u16, memory.i16
        self.u32, self.i32, self.f32, self.f16 = memory.u32, memory.i32, memory.f32, memory.f16
        self.load, self.store = memory.load, memory.store
        self.cycles = 0
        self.busy = self.tasks_run = self.elements = self.received = self.sent = 0
        self._events = simulation.events
        self._operations = simulation.operations
        self._trace = simulation.on_trace
        self._functions: dict[str, Callable[..., Any]] | None = None
        self._registers: dict[Dsr, tuple[Operand, Settings, bool]] = {}
        self._config: dict[int, int] = {}
        self._carry = 0
        self.fifos = [Ring(buffer, memory) for buffer in program.fifos]
        self._make_queues()
        tasks = dict(program.tasks)
        self.picker = Picker(tasks, program.blocked, program.activated, list(self._inputs.values()))
        # Main thread.
        self._base = 0  # the cycle that `cycles` counts from
        self._free = 0  # the main thread is free from here on
        self._running: Task | None = None
        self._generator: Any = None
        self._main: Thread | None = None
        self._lost = 0  # cycles that microthreads took from the main thread, and that it has not made up yet
        self._held: tuple[Callable[..., None], tuple[Any, ...]] | None = None
        self._pick_at = -1  # when the task picker picks next; -1: not at all
        # Microthreads.
        self._threads: list[Thread] = []
        self._by_number: dict[int, Thread] = {}
        self._queued: dict[int, deque[tuple[Thread, int]]] = {}
        self._one_priority = True
        self._ticked = -1
        self._planned = -1  # the cycle that a tick was asked for last
        self.sending: list[OutputQueue] = []  # output queues that hold something, the longest waiting first
        self._sent_at = -1
        self._flushing: list[InputQueue | OutputQueue] = []

    def _make_queues(self) -> None:
        program, arch = self.program, self.arch
        self._inputs: dict[int, InputQueue] = {}  # by color
        self._input_numbers: dict[int, InputQueue] = {}
        self._outputs: dict[int, OutputQueue] = {}
        self._senders: dict[int, tuple[Callable[[int, int], bool], Callable[[int, Wavelet], None]]] = {}  # by color
        for number, color in sorted(program.input_queues.items()):
            queue = InputQueue(number, color, arch.input_queues[number])
            self._inputs[color] = self._input_numbers[number] = queue
        for task_id, task in sorted(program.tasks.items()):
            if task.kind != "data":
                continue
            color_of = task.color
            if task.queue is not None and color_of is None:
                color_of = program.input_queues.get(task.queue)
            if color_of is None:
                continue
            if color_of not in self._inputs:
                capacity = OWN_QUEUE if task.queue is None else arch.input_queues[task.queue]
                self._inputs[color_of] = own = InputQueue(task.queue, color_of, capacity)
                if task.queue is not None:
                    self._input_numbers[task.queue] = own
            self._inputs[color_of].task = task_id
        for color in sorted(program.inputs):
            # A control task may be all that takes wavelets of a color.
            if color not in self._inputs:
                self._inputs[color] = InputQueue(None, color, OWN_QUEUE)
        for number in sorted(program.output_queues):
            self._outputs[number] = OutputQueue(number, arch.output_queues[number])

    # --- for messages ---

    def error(self, message: str, task: Task | None = None, hint: str | None = None) -> SimulationError:
        """What is wrong, with the PE, the task and its place."""
        return SimulationError(f"{self.where(task)}: {message}", hint)

    def where(self, task: Task | None = None) -> str:
        """This PE, a task (the one that runs), and where that stands in the source."""
        task = task or self._running
        if task is None:
            return f"PE {self.x}.{self.y}"
        place = f" ({task.place})" if task.place else ""
        return f"PE {self.x}.{self.y}, task {task.function}{place}"

    def check_bounds(self, name: str, operand: Mem1d | Mem4d, count: int, size: int, task: Task | None) -> None:
        """Raise if an operand's elements are not all in the SRAM."""
        if not count:
            return
        low, high = bounds(operand, count, size)
        if low < 0 or high > SRAM_BYTES:
            raise self.error(
                f"@{name} must stay inside the {SRAM_BYTES} bytes of SRAM, its operand has bytes {low} to {high - 1}",
                task,
                "the operand's base address, offset, extent or stride is not what it should be",
            )

    # --- the network's side (`network.Endpoint`) ---

    def room(self, color: int) -> int:
        """Wavelets that the input queue of `color` holds; 0: nobody takes it."""
        queue = self._inputs.get(color)
        return 0 if queue is None else queue.capacity

    def accept(self, wavelet: Wavelet) -> None:
        """A wavelet has come down the ramp."""
        color, data, is_control = wavelet
        queue = self._inputs[color]
        now = self._events.now
        queue.items.append((now, data, is_control))
        self.received += 1
        if queue.user is not None:
            queue.user.stalled = False
            if queue.shared:
                self._stir()
            self._tick_at(now + 1)
        elif is_control or queue.task not in self.picker.blocked:
            self.wake(now)

    def ramp_free(self, color: int) -> None:
        """A color may be sent again."""
        now = self._events.now
        for queue in self.sending:
            if queue.items[0][0] == color:
                queue.stopped = False
        if not self.sending or self._sent_at == now:
            return
        if self._ticked != now:
            self._tick_at(now)  # an element first, then the ramp, whatever happened first in this cycle
        elif self._drain(now) and (self.sending or self._threads or self._main is not None):
            self._tick_at(now + 1)

    def teardown(self, color: int) -> None:  # noqa: ARG002
        """The router executed a TEARDOWN: the teardown task runs, if there is one."""
        if TEARDOWN_TASK in self.program.tasks:
            self.activate_at(TEARDOWN_TASK, self._events.now)

    # --- tasks ---

    def begin(self) -> None:
        """The program starts: what is activated at first may run."""
        for color, queue in self._inputs.items():
            queue.release = self.simulation.releaser(self.index, color)
        self.wake(0)

    def launch(self, function: str, arguments: tuple[int | float, ...]) -> None:
        """Run a function as a task, for the host."""
        now = self._events.now
        self.picker.calls.append(Call(now, function, arguments))
        self.wake(now)

    def wake(self, time: int) -> None:
        """Something may have become eligible at `time`."""
        if self._running is not None:
            return
        at = max(time, self._free) + SWITCH
        if self._pick_at < 0 or at < self._pick_at:
            self._pick_at = at
            self._events.at(at, self._begin)

    def _wake_for_events(self) -> None:
        """The main thread is free: what has come meanwhile may run."""
        time = self.picker.next_time()
        if time is not None:
            self.wake(time)

    def activate_at(self, task: int, time: int) -> None:
        """An event for a task, from the end of an operation."""
        self._check_task(task)
        self.picker.activate(task, time)
        self.wake(time)

    def unblock_at(self, task: int, time: int) -> None:
        """The end of an operation unblocks a task."""
        self.picker.unblock(task, time)
        self.wake(time)

    def _check_task(self, task: int) -> None:
        found = self.program.tasks.get(task)
        if found is None or found.kind == "data":
            what = "no task" if found is None else f"data task {found.function}"
            raise self.error(f"a local task must be bound to id {task} that is activated, {what} is")

    def _begin(self) -> None:
        """The task picker picks."""
        now = self._events.now
        if self._pick_at != now:
            return  # it was asked to pick sooner, and has
        self._pick_at = -1
        picked = self._pick(now)
        if picked is None:
            self._wake_for_events()
            return
        self._base, self.cycles, self._lost = now, 0, 0
        self._running = picked.task
        self.tasks_run += 1
        if self._trace is not None:
            self._trace(now, self.index, "task", picked.task.function)
        try:
            result = self.function(picked.task.function)(*picked.arguments)
        except (IndexError, struct.error) as error:
            raise self._outside() from error
        if type(result) is GeneratorType:
            self._generator = result
            self._go_on()
        else:
            self._code_done()

    def _pick(self, now: int) -> Picked | None:
        picked = None
        while picked is None:
            candidate = self.picker.candidate(now)
            if candidate is None:
                return None
            task, queue = candidate
            if task == CALL:
                call = self.picker.calls.popleft()
                return Picked(Task(call.function, "host"), call.arguments)
            picked = self.picker.take(task, queue)
            if queue is not None:
                if queue.flush:
                    self._flush_empty(now)
                if queue.user is not None:
                    self._tick_at(now + 1)
        return picked

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the compiled code."""
        if self._functions is None:
            self._functions = self.simulation.code(self.program)(self)
        return self._functions[name]

    def _go_on(self) -> None:
        """Let the task's generator run until it waits, or is done."""
        try:
            next(self._generator)
        except StopIteration:
            self._generator = None
            self._code_done()
        except (IndexError, struct.error) as error:
            raise self._outside() from error

    def _outside(self) -> SimulationError:
        """Code read or wrote a scalar where there is no memory."""
        return self.error(
            f"a pointer must stay inside the {SRAM_BYTES} bytes of SRAM, this task used one that does not",
            hint="look at what it adds to pointers, and at indices of many-item pointers",
        )

    def _code_done(self) -> None:
        end = self._base + self.cycles
        if self._threads or self._queued:
            self._events.at(end, self._reach, self._idle, ())
        else:
            self._idle(end)

    def _reach(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """The main thread has come to the end of what it does alone, but for what microthreads took from it."""
        if self._lost:
            lost, self._lost = self._lost, 0
            self.cycles += lost
            self._events.at(self._events.now + lost, self._reach, action, arguments)
        elif self._queued:
            self._held = (action, arguments)
        else:
            action(*arguments)

    def _idle(self, end: int | None = None) -> None:
        """The task is over."""
        if end is None:
            end = self._base + self.cycles
        self.busy += end - self._base
        if self._trace is not None and self._running is not None:
            self._trace(end, self.index, "task_end", self._running.function)
        self._free = end
        self._running = None
        self._wake_for_events()

    # --- what code asks of tasks ---

    def activate(self, task: int) -> None:
        """`@activate`."""
        self._check_task(task)
        self._do(self.activate_at, task)

    def block(self, task: int) -> None:
        """`@block`."""
        self._do(self._block, task)

    def _block(self, task: int, time: int) -> None:  # noqa: ARG002
        self.picker.blocked.add(task)

    def unblock(self, task: int) -> None:
        """`@unblock`."""
        self._do(self.unblock_at, task)

    def _do(self, action: Callable[[int, int], None], task: int) -> None:
        """Do it at the cycle that the code has come to: at once where nobody can tell the difference."""
        time = self._base + self.cycles
        if self._threads and self.cycles:
            self._events.at(time, action, task, time)
        else:
            action(task, time)

    # --- vector operations ---

    def run(self, name: str, operands: tuple[Operand, ...]) -> None:
        """An operation on memory and scalars."""
        self._in_memory(self._operations[name], operands)

    def wait(self, name: str, operands: tuple[Operand, ...], settings: Settings = _PLAIN) -> Generator[Any, Any, bool]:
        """A synchronous operation that may wait; whether it did all its elements (a FIFO may end it before)."""
        operation = self._operations[name]
        settings = self._settings(operands, settings)
        held = tuple(self._held_by(operand) for operand in operands)
        if not any(isinstance(operand, (FabricIn, FabricOut, Fifo)) for operand in held):
            self._in_memory(operation, operands)
            self._complete(settings, self._base + self.cycles)
            return True
        thread = self._thread(operation, operands, held, settings, None)
        thread.line = self._line_of(sys._getframe(1))
        if thread.count:
            yield from self._on_main(thread)
        else:
            self.cycles += vector.START
            self._complete(settings, self._base + self.cycles)
        return thread.done >= thread.count

    def pause(self) -> Wait:
        """A turn of a loop that polls memory: what microthreads do before this cycle happens before it goes on."""
        self._events.at(self._base + self.cycles, self._reach, self._go_on, ())
        yield None

    def start(self, name: str, operands: tuple[Operand, ...], settings: Settings = _PLAIN) -> None:
        """An asynchronous operation."""
        operation = self._operations[name]
        settings = self._settings(operands, settings)
        held = tuple(self._held_by(operand) for operand in operands)
        time = self._base + self.cycles
        self.cycles += vector.LAUNCH
        if not any(isinstance(operand, (FabricIn, FabricOut, Fifo)) for operand in held):
            # Done in bulk; only its end takes place later.
            before = self.cycles
            self._in_memory(operation, operands)
            took, self.cycles = self.cycles - before, before
            self._events.at(time + took, self._complete, settings, time + took)
            return
        number = self._number(held, settings)
        thread = self._thread(operation, operands, held, settings, number)
        thread.line = self._line_of(sys._getframe(1))
        if not thread.count:
            self._events.at(time + vector.START, self._complete, settings, time + vector.START)
        elif number in self._by_number or number in self._queued:
            self._queued.setdefault(number, deque()).append((thread, time))
        else:
            self._launch(thread, time)

    def map(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> None:
        """`@map` over memory and scalars."""
        for _ in self.map_wait(callback, operands, letters):
            raise self.error("@map waits for the fabric or a FIFO where it must not")

    def map_wait(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> Wait:
        """`@map` that may wait."""
        held = tuple(self._held_by(operand) for operand in operands)
        given = callback.__code__.co_argcount
        thread = Thread(self, "map", _PLAIN, None, extent(held), self._running)
        thread.call = True
        thread.registers = [operand for operand in operands if isinstance(operand, Dsr)]
        for operand, letter in zip(held[:given], letters, strict=False):
            thread.add_source(operand, letter, False)
        if len(held) > given:
            thread.set_dest(held[-1], letters[-1], False)
        waits = any(isinstance(operand, (FabricIn, FabricOut, Fifo)) for operand in held)
        if waits and thread.count:
            # The callback adds its own cycles to the task: what it takes, the next element waits.
            thread.compute = self._timed(callback, thread)
            yield from self._on_main(thread)
            return
        self.cycles += vector.START + MAP_ELEMENT * thread.count
        for _ in range(thread.count):
            result = callback(*[read() for read in thread.readers])
            if thread.put is not None:
                thread.put(result)
        self._save(thread.registers, thread.count)
        self.elements += thread.count

    def _timed(self, callback: Callable[..., Any], thread: Thread) -> Callable[..., Any]:
        def timed(*values: Any) -> Any:
            before, base = self.cycles, self._base
            self._base, self.cycles = self._events.now, 0
            result = callback(*values)
            thread.ready = self._events.now + MAP_ELEMENT + self.cycles
            self._tick_at(thread.ready)
            self._base, self.cycles = base, before
            return result

        return timed

    def _in_memory(self, operation: Operation, operands: tuple[Operand, ...]) -> None:
        """Do an operation on memory at once, and add its cycles."""
        task = self._running
        dest, *sources = (self._held_by(operand) for operand in operands)
        letters = _letters(operation, sources)
        count = extent((dest, *sources))
        reduced = operation.reduces and isinstance(dest, Pointer) and isinstance(sources[0], (int, float))
        first = sources[0]
        kept: list[Any] = []
        for operand, letter in zip((dest, *sources), (operation.dest, *letters), strict=True):
            if isinstance(operand, Pointer):
                operand = Mem1d(operand.address, count, 0, BYTES[letter])
            if isinstance(operand, (Mem1d, Mem4d)):
                self.check_bounds(operation.name, operand, count, BYTES[letter], task)
            kept.append(operand)
        place, *rest = kept
        if not isinstance(place, (Mem1d, Mem4d)):
            raise self.error(f"@{operation.name} cannot write to {dest!r}", task)
        if operation.move:
            letters = tuple("w" if BYTES[letter] == 4 else "H" for letter in letters)
            rest = [_as_bits(letter, value) for letter, value in zip(operation.sources, rest, strict=True)]
        if reduced and count:
            # The first element starts from the scalar, the others from what the one before left.
            letter = operation.dest
            self.store(letter, place.address, first)  # type: ignore[arg-type]
            rest[0] = place
        if count:
            self._carry = vector.compute(
                self.memory, operation, count, place, tuple(zip(rest, letters, strict=True)), self._carry
            )
        width = operation.width(self.arch)
        self.cycles += vector.START + vector.cycles(
            count, width, ((place, operation.dest), *zip(rest, letters, strict=True))
        )
        self.elements += count
        self._save([operand for operand in operands if isinstance(operand, Dsr)], count)

    # --- registers ---

    def load_dsr(self, register: Dsr, operand: Operand, settings: Settings, save_address: bool) -> None:
        """`@load_to_dsr`."""
        self._registers[register] = (self._held_by(operand), settings, save_address)

    def read_dsr(self, register: Dsr) -> Operand:
        """What a register holds."""
        return self._held_by(register)

    def _held_by(self, operand: Operand) -> Operand:
        if not isinstance(operand, Dsr):
            return operand
        held = self._registers.get(operand)
        if held is None:
            raise self.error(
                f"an operation uses DSR {operand.number} of file {operand.file}, @load_to_dsr must have loaded it, "
                "it has not"
            )
        return held[0]

    def _settings(self, operands: tuple[Operand, ...], settings: Settings) -> Settings:
        """The settings of an operation, and of the registers among its operands where it leaves something open."""
        for operand in operands:
            if isinstance(operand, Dsr) and operand in self._registers:
                of_register = self._registers[operand][1]
                if of_register is _PLAIN:
                    continue
                changes = {
                    name: value
                    for name, value in of_register._asdict().items()
                    if value != getattr(_PLAIN, name) and getattr(settings, name) == getattr(_PLAIN, name)
                }
                settings = settings._replace(**changes)
        return settings

    def _save(self, operands: list[Dsr], done: int) -> None:
        """Leave registers that are loaded so behind the last element."""
        for register in operands:
            held, settings, save_address = self._registers[register]
            if save_address:
                self._registers[register] = (advanced(held, done), settings, True)

    # --- threads ---

    def _thread(
        self,
        operation: Operation,
        operands: tuple[Operand, ...],
        held: tuple[Operand, ...],
        settings: Settings,
        number: int | None,
    ) -> Thread:
        thread = Thread(self, operation.name, settings, number, extent(held), self._running)
        thread.registers = [operand for operand in operands if isinstance(operand, Dsr)]
        thread.compute = operation.compute
        if operation.chained:
            thread.compute = self._chain(operation)
        sources = held[1:] if operation.dest else held
        letters = _letters(operation, sources)
        first = sources[0]
        if operation.reduces and isinstance(held[0], Pointer) and isinstance(first, (int, float)):
            thread.add_reduced(first, held[0], letters[0])
            sources, letters = sources[1:], letters[1:]
        for source, letter in zip(sources, letters, strict=True):
            thread.add_source(source, letter, operation.move)
        if operation.dest:
            thread.set_dest(held[0], operation.dest, operation.move)
        if settings.saturate and operation.dest == "H":
            raise self.error(f"@{operation.name} with .saturate is not simulated")
        return thread

    def _chain(self, operation: Operation) -> Callable[..., int]:
        def add(a: int, b: int) -> int:
            result: int = operation.compute(a, b, self._carry)
            self._carry = result >> 16
            return result

        return add

    def _number(self, held: tuple[Operand, ...], settings: Settings) -> int:
        """The microthread (F13): as the operation says, else of its first fabric operand."""
        if settings.microthread is not None:
            return settings.microthread
        for operand in held:
            if isinstance(operand, (FabricIn, FabricOut)):
                return operand.queue
        free = (number for number in reversed(range(self.arch.microthreads)) if number not in self._by_number)
        return next(free, self.arch.microthreads - 1)

    def input_queue(self, number: int, name: str) -> InputQueue:
        """An input queue that an operation reads."""
        queue = self._input_numbers.get(number)
        if queue is None:
            raise self.error(
                f"@{name} reads input queue {number}, @initialize_queue must bind a color to it, none is bound"
            )
        return queue

    def output_queue(self, operand: FabricOut, name: str) -> OutputQueue:
        """The output queue that an operation writes to."""
        queue = self._outputs.get(operand.queue)
        if queue is None:
            if operand.queue >= len(self.arch.output_queues):
                raise self.error(
                    f"@{name} writes to output queue {operand.queue}, {self.arch.name} must have it, "
                    f"it has {len(self.arch.output_queues)}"
                )
            queue = self._outputs[operand.queue] = OutputQueue(operand.queue, self.arch.output_queues[operand.queue])
        if operand.color not in self._senders:
            if not 0 <= operand.color < COLORS:
                raise self.error(
                    f"@{name} writes to output queue {operand.queue}, @initialize_queue must bind a color to it, "
                    "none is bound"
                )
            self._senders[operand.color] = self.simulation.sender(operand.color)
        return queue

    def _launch(self, thread: Thread, time: int) -> None:
        """A thread has its operation from `time` on."""
        thread.begin(time + vector.START)
        for queue in thread.inputs:
            queue.shared = queue.user is not None
            if queue.user is not None and self.arch.name == "wse2":
                raise self.error(
                    f"@{thread.name} reads input queue {queue.number}, no other operation may read it at the same "
                    f"time, @{queue.user.name} on {queue.user.label} does",
                    thread.task,
                )
            queue.user = thread
        if thread.number is not None:
            self._by_number[thread.number] = thread
            self._threads.append(thread)
            self._set_priorities()
        if self._trace is not None:
            self._trace(time, self.index, "op", thread.label, thread.name)
        self._tick_at(thread.ready)

    def _on_main(self, thread: Thread) -> Wait:
        """Let the main thread do an operation; the code goes on when it is done."""
        self._events.at(self._base + self.cycles, self._reach, self._main_begins, (thread,))
        yield thread

    def _main_begins(self, thread: Thread) -> None:
        self._main = thread
        self._launch(thread, self._base + self.cycles)

    def finish(self, thread: Thread, time: int) -> None:
        """An operation is over."""
        thread.close()
        self.elements += thread.done
        for queue in thread.inputs:
            if queue.user is thread:
                queue.user = self._other_user(queue, thread)
        if self._trace is not None:
            self._trace(time, self.index, "op_end", thread.label, thread.name)
        self._save(thread.registers, thread.done)
        number = thread.number
        if number is not None:
            self._threads.remove(thread)
            self._set_priorities()
            del self._by_number[number]
        self._complete(thread.settings, time)
        for queue in thread.inputs:
            if queue.user is None and queue.items:
                self.wake(time)
        if number is None:
            self._main = None
            self.cycles = max(time, thread.ready if thread.call else 0) - self._base
            self._go_on()
        elif number in self._queued:
            self._next_of(number, time)

    def _other_user(self, queue: InputQueue, ended: Thread) -> Thread | None:
        """Another operation that reads a queue (WSE-3 allows it)."""
        others = [*self._threads, self._main]
        return next((each for each in others if each is not None and each is not ended and queue in each.inputs), None)

    def _next_of(self, number: int, time: int) -> None:
        """A microthread is free: the operation that waits for it begins."""
        waiting = self._queued[number]
        thread, asked = waiting.popleft()
        if not waiting:
            del self._queued[number]
        self._launch(thread, max(time, asked))
        if not self._queued and self._held is not None:
            (action, arguments), self._held = self._held, None
            self.cycles = max(self.cycles, time - self._base)
            self._events.at(self._base + self.cycles, self._reach, action, arguments)

    def _complete(self, settings: Settings, time: int) -> None:
        """Do what an operation does at its end."""
        if settings.activate is not None:
            self.activate_at(settings.activate, time)
        if settings.unblock is not None:
            self.unblock_at(settings.unblock, time)

    # --- cycles ---

    def _tick_at(self, time: int) -> None:
        if time != self._planned:
            self._planned = time
            self._events.at(time, self._tick)

    def _tick(self) -> None:
        """One cycle: an element of one thread, and a wavelet from one output queue."""
        now = self._events.now
        if self._ticked == now:
            return
        self._ticked = now
        moved = False
        threads = self._threads
        if threads:
            taken = now < self._base + self.cycles + self._lost and self._main is None
            for thread in threads if self._one_priority else self._by_priority():
                if not thread.stalled and thread.ready <= now and thread.step(now):
                    moved = True
                    if len(threads) > 1 and thread.done < thread.count and thread in threads:
                        # The one that has waited longest goes first.
                        threads.remove(thread)
                        threads.append(thread)
                    if taken:
                        self._lost += 1
                    break
        main = self._main
        if main is not None and not moved and not main.stalled and main.ready <= now:
            moved = main.step(now)
        sent = bool(self.sending) and self._sent_at != now and self._drain(now)
        if self._flushing:
            self._flush_empty(now + 1)
        if moved or (sent and (self.sending or threads or self._main is not None)):
            self._tick_at(now + 1)

    def _by_priority(self) -> list[Thread]:
        return sorted(self._threads, key=lambda thread: PRIORITIES[thread.settings.priority])

    def _set_priorities(self) -> None:
        self._one_priority = len({thread.settings.priority for thread in self._threads}) < 2

    def _stir(self) -> None:
        """Something changed that several threads may wait for."""
        for thread in self._threads:
            thread.stalled = False
        if self._main is not None:
            self._main.stalled = False

    def _drain(self, now: int) -> bool:
        """Put a wavelet on the ramp, from the queue that has waited longest."""
        sending, index = self.sending, self.index
        for queue in sending:
            if queue.stopped:
                continue
            items = queue.items
            color = items[0][0]
            can_send, send = self._senders[color]
            if not can_send(index, color):
                queue.stopped = True
            else:
                if len(items) >= queue.capacity:
                    self._stir()
                wavelet = Wavelet(*items.popleft())
                if len(sending) > 1:
                    sending.remove(queue)
                    if items:
                        sending.append(queue)
                elif not items:
                    sending.clear()
                self._sent_at = now
                self.sent += 1
                send(index, wavelet)
                return True
        return False

    # --- FIFOs ---

    def push_fifo(self, ring: Ring, bits: int) -> None:
        """An operation puts an element into a FIFO."""
        ring.push(bits)
        self._stir()
        if ring.buffer.activate_push is not None:
            self.activate_at(ring.buffer.activate_push, self._events.now + 1)

    def pop_fifo(self, ring: Ring) -> int:
        """An operation takes an element out of a FIFO."""
        bits = ring.pop()
        self._stir()
        if ring.buffer.activate_pop is not None:
            self.activate_at(ring.buffer.activate_pop, self._events.now + 1)
        return bits

    def fifo_length(self, number: int) -> int:
        """Elements in a FIFO."""
        return self.fifos[number].length

    # --- the rest ---

    def time(self) -> int:
        """Cycle counter, 48 bits."""
        return (self._base + self.cycles) & _CLOCK

    def host_unblock(self) -> None:
        """`memcpy.unblock_cmd_stream`."""
        self._events.at(self._base + self.cycles, self.simulation.unblocked, self.index)

    def queue_color(self, queue: int, output: bool) -> int | None:
        """The color that a queue is bound to."""
        return (self.program.output_queues if output else self.program.input_queues).get(queue)

    def config_read(self, address: int) -> int:
        """A word of the configuration (`registers`)."""
        place = registers.color_word(address)
        if place is None:
            return self._config.get(address, 0)
        config = self.simulation.network.config(self.index, place[0])
        return 0 if config is None else registers.read(config, place[1])

    def config_write(self, address: int, value: int) -> None:
        """Likewise, written."""
        place = registers.color_word(address)
        if place is None:
            self._config[address] = value & 0xFFFF
            return
        network, (color, word) = self.simulation.network, place
        config = network.config(self.index, color)
        if config is None:
            raise self.error(
                f"a register of color {color} is written, the router of this PE must have that color, it has not"
            )
        changed = registers.write(config, word, value & 0xFFFF)
        if config.teardown and not changed.teardown:
            network.end_teardown(self.index, color)
            config = network.config(self.index, color)
            assert config is not None
            changed = registers.write(config, word, value & 0xFFFF)
        if changed != config:
            network.set_config(self.index, color, changed)

    def queue_flush(self, queue: int, output: bool) -> None:
        """`@queue_flush`."""
        found = self._outputs.get(queue) if output else self._input_numbers.get(queue)
        if found is None:
            raise self.error(
                f"@queue_flush of {'output' if output else 'input'} queue {queue}: no color is bound to it"
            )
        self._check_task(TEARDOWN_TASK)
        found.flush = True
        self._flushing.append(found)
        self._flush_empty(self._base + self.cycles)

    def _flush_empty(self, time: int) -> None:
        """Activate the teardown task for queues that are to be flushed and are empty."""
        for queue in list(self._flushing):
            if not queue.items:
                queue.flush = False
                self._flushing.remove(queue)
                word = registers.FLUSHED + isinstance(queue, OutputQueue)
                self._config[word] = self._config.get(word, 0) | 1 << (queue.number or 0)
                self.activate_at(TEARDOWN_TASK, time)

    def say(self, text: str) -> None:
        """A line of the log."""
        self.simulation.say(self._base + self.cycles, self.index, text)

    def fail(self, message: str, place: str) -> None:
        """A failed `@assert`."""
        raise SimulationError(f"PE {self.x}.{self.y}, {place}: {message}")

    def _line_of(self, frame: FrameType) -> int:
        """The line of this PE's code that a frame is in; 0 for other code."""
        return frame.f_lineno if frame.f_code.co_filename == self.program.name else 0

    def place_of(self, thread: Thread) -> str:
        """Where an operation stands in the source: what its line of the code ends with; else where its task does."""
        lines = self.program.code.splitlines()
        _, comment, place = lines[thread.line - 1].rpartition("  # ") if 0 < thread.line <= len(lines) else ("",) * 3
        return place if comment else thread.task.place if thread.task else ""

    def so_far(self, now: int) -> tuple[int, int]:
        """Cycles with a task, and elements done, of what has not ended, too."""
        unfinished = sum(thread.done for thread in [self._main, *self._threads] if thread is not None)
        running = max(0, now - self._base) if self._running is not None else 0
        return self.busy + running, self.elements + unfinished

    def waiting(self) -> list[ThreadWait | TaskWait | QueueWait]:
        """What the threads and tasks of this PE wait for; nothing if it has nothing to do."""
        found: list[ThreadWait | TaskWait | QueueWait] = []
        for thread in [self._main, *self._threads]:
            wait = None if thread is None else thread.waits()
            if wait is not None:
                found.append(wait)
        for number, queued in sorted(self._queued.items()):
            for thread, _ in queued:
                task = thread.task
                found.append(
                    ThreadWait(
                        self.index,
                        MAIN,
                        thread.name,
                        "thread",
                        task.function if task else "",
                        self.place_of(thread),
                        number=number,
                        extent=thread.count,
                    )
                )
        blocked = self.picker.blocked
        for task_id in sorted(self.picker.active):
            task = self.program.tasks[task_id]
            found.append(TaskWait(self.index, task_id, task.function, task.place, task_id in blocked))
        for color, queue in sorted(self._inputs.items()):
            if not queue.items or queue.user is not None:
                continue
            count = len(queue.items)
            task_of = None if queue.task is None else self.program.tasks[queue.task]
            is_blocked = queue.number is not None and queue.number + QUEUES_FROM in blocked
            if task_of is not None and queue.task is not None:
                is_blocked = is_blocked or queue.task in blocked
                found.append(
                    TaskWait(self.index, queue.task, task_of.function, task_of.place, is_blocked, count, color)
                )
            else:
                number = -1 if queue.number is None else queue.number
                found.append(QueueWait(self.index, number, color, count, is_blocked))
        return found


def _letters(operation: Operation, sources: "list[Operand] | tuple[Operand, ...]") -> tuple[str, ...]:
    """Types of the sources: `@faddhs` takes its two in either order, vectors say which is which."""
    letters = operation.sources
    if operation.name == "faddhs":
        first, second = (source.width if isinstance(source, (Mem1d, Mem4d)) else 0 for source in sources)
        if first == 2 or second == 4:
            return letters[::-1]
    return letters


def _as_bits(letter: str, value: Any) -> Any:
    """A scalar that is moved, as bits; a vector as it is."""
    return encode(letter, value) if isinstance(value, (int, float)) else value
