"""A processing element: its interface to its program, its router, the host and reports, and its parts.

main        the main thread, and the task picker (`main_thread`)
datapath    operations in progress, and the cycles in which they go on (`datapath`)
issue       operations as code asks for them (`issue`)
ramp        queues from and to the router (`ramp`)
registers   registers of operands (`dsr_file`)
tile        the memory-mapped configuration (`registers.TileConfig`)
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.arch import ARCHS, SRAM_BYTES
from cstool.csl.fabric.counter import Counter
from cstool.csl.fabric.datapath import Datapath
from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.fabric.dsr_file import DsrFile
from cstool.csl.fabric.errors import Said, SimulationError, at_task, operand_outside
from cstool.csl.fabric.issue import Issue
from cstool.csl.fabric.lines import place_on
from cstool.csl.fabric.main_thread import MainThread
from cstool.csl.fabric.memory import Memory, bounds
from cstool.csl.fabric.microthread import Thread
from cstool.csl.fabric.program import PEProgram, Task
from cstool.csl.fabric.queues import Ring
from cstool.csl.fabric.ramp import Ramp
from cstool.csl.fabric.registers import TileConfig
from cstool.csl.fabric.scheduler import QUEUES_FROM, TEARDOWN_TASK
from cstool.csl.fabric.stats import PEStats
from cstool.csl.fabric.waiting import MAIN, PEWait, QueueWait, TaskWait, ThreadWait

if TYPE_CHECKING:
    from cstool.csl.fabric.simulation import Simulation

_CLOCK = (1 << 48) - 1


class ProcessingElement:
    """One PE of a simulation.

    Args:
        simulation: its simulation
        index: y * width + x
        program: its program

    Attributes:
        base: the cycle at which the running task began
        cycles: cycles since, those that code has added behind the last `settle` at the PE's own pace
        time_model: of its simulation
        trace: as `Simulation.on_trace`
        fifos: by number
    """

    def __init__(self, simulation: "Simulation", index: int, program: PEProgram) -> None:
        self.simulation = simulation
        self.index = index
        self.y, self.x = divmod(index, simulation.program.width)
        self.fabric_x, self.fabric_y = self.x + simulation.program.offset[0], self.y + simulation.program.offset[1]
        self.program = program
        self.arch = ARCHS[program.arch]
        self.trace = simulation.on_trace
        self.memory = memory = Memory(program.memory)
        self.u8, self.i8, self.u16, self.i16 = memory.u8, memory.i8, memory.u16, memory.i16
        self.u32, self.i32, self.f32, self.f16 = memory.u32, memory.i32, memory.f32, memory.f16
        self.load, self.store = memory.load, memory.store
        self.base = self.cycles = 0
        self._line = ""
        self.time_model = simulation.time_model
        self._pace, self._over = self.time_model.pace
        self._even = self._pace == self._over
        self._settled = self._beside = self._owed = 0
        self.counter = Counter(self.settle)
        self.fifos = [Ring(buffer, memory, self._fifo_changed) for buffer in program.fifos]
        self.registers = DsrFile(self)
        self.tile = TileConfig(self)
        self.ramp = ramp = Ramp(self)
        self.datapath = Datapath(self)
        self.main = main = MainThread(self)
        self.issue = issue = Issue(self)
        # Calls of code, the network and the host go straight to the part that serves them.
        self.room, self.accept, self.ramp_free = ramp.room, ramp.accept, ramp.free
        self.launch, self.pause = main.call, main.pause
        self.activate, self.block, self.unblock = main.activate, main.block, main.unblock
        self.run, self.wait, self.start = issue.run, issue.wait, issue.start
        self.map, self.map_wait = issue.map, issue.map_wait
        self.load_dsr, self.read_dsr = self.registers.load, self.registers.held_by
        self.config_read, self.config_write = self.tile.read, self.tile.write

    # --- the simulation and the host ---

    def begin(self) -> None:
        """Start the program: tasks that start activated may run.

        A color that starts in teardown calls nothing: the vendor's `benchmark-libs/allreduce` counts on that.
        """
        self.ramp.connect()
        self.main.wake(0)

    def teardown(self, color: int) -> None:  # noqa: ARG002
        """The router executed a TEARDOWN: the teardown task runs, if there is one."""
        if TEARDOWN_TASK in self.program.tasks:
            self.main.activate_at(TEARDOWN_TASK, self.simulation.events.now)

    def stats(self) -> PEStats:
        """Counts so far, unfinished tasks and operations included."""
        main, datapath = self.main, self.datapath
        running = max(0, self.simulation.events.now - self.base) if main.running is not None else 0
        elements = datapath.elements + sum(thread.done for thread in datapath.all())
        return PEStats(main.busy + running, main.tasks_run, elements, self.ramp.received, self.ramp.sent)

    def waiting(self) -> list[PEWait]:
        """Waits of the threads and tasks of this PE; none if it has nothing to do."""
        return waits_of(self)

    def place_of(self, thread: Thread) -> str:
        """Place of an operation in the source: its own, else that of its task; "" if unknown."""
        return place_of(self, thread)

    # --- the clock ---

    def settle(self) -> int:
        """The cycle that the code has come to. Its cycles beside an operation on memory take no time of their own."""
        code = self.cycles - self._settled
        if code:
            beside = self._beside
            if beside:
                hidden = min(code, beside)
                code -= hidden
                self._beside = beside - hidden
            self.cycles = self._settled = self._settled + (code if self._even else self._paced(code))
        return self.base + self.cycles

    def clock(self) -> int:
        """What `settle` would return. Nothing changes, so a look at the clock does not move it."""
        code = max(0, self.cycles - self._settled - self._beside)
        return self.base + self._settled + (code if self._even else (self._owed + code * self._pace) // self._over)

    def operate(self, start: int, elements: int) -> None:
        """Spend the cycles of an operation on memory; code behind it goes on beside its elements."""
        self.settle()
        self.cycles = self._settled = self.cycles + self._paced(start + elements)
        self._beside = elements

    def set_cycles(self, cycles: int) -> None:
        """Set the time since the begin of the task: a task begins, or has waited."""
        self.cycles = self._settled = cycles
        self._beside = 0

    def _paced(self, cycles: int) -> int:
        if self._even:
            return cycles
        taken, self._owed = divmod(self._owed + cycles * self._pace, self._over)
        return taken

    # --- asked for by code, beside the methods of the parts ---

    def fifo_length(self, number: int) -> int:
        """Elements in a FIFO."""
        return self.fifos[number].length

    def time(self) -> int:
        """Cycle counter, 48 bits."""
        return self.settle() & _CLOCK

    def host_unblock(self) -> None:
        """`memcpy.unblock_cmd_stream`: the next command of the host may reach this PE."""
        self.simulation.events.at(self.settle(), self.simulation.on_unblock, self.index)

    def queue_color(self, queue: int, output: bool) -> int | None:
        """The color that a queue is bound to now."""
        return self.ramp.color_of(queue, output)

    def queue_flush(self, queue: int, output: bool) -> None:
        """`@queue_flush`: activates the teardown task once the queue is empty."""
        self.ramp.flush(queue, output, self.settle())

    def say(self, text: str) -> None:
        """Write a line of the log, for <debug>."""
        self.simulation.on_say(self.settle(), self.index, text)

    def print(self, text: str) -> None:
        """Write to the log, for <simprint>: whole lines, each with its end."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self.simulation.on_print(self.settle(), self.index, line)

    def end_line(self) -> None:
        """End a line that the program has begun."""
        if self._line:
            self.print("\n")

    def fail(self, message: str, place: str) -> None:
        """End the simulation with an error: a failed `@assert`."""
        raise SimulationError(f"{self.simulation.program.name(self.index)}, {place}: {message}")

    # --- asked for by the parts ---

    def _fifo_changed(self, task: int | None) -> None:
        """Activate `task` after an operation put an element into a FIFO, or took one out."""
        self.datapath.stir()
        if task is not None:
            self.main.activate_at(task, self.simulation.events.now + 1)

    def check_bounds(self, name: str, operand: Mem1d | Mem4d, count: int, size: int, task: Task | None) -> None:
        """Raise an error if an operand's elements are not all in the SRAM."""
        if not count:
            return
        low, high = bounds(operand, count, size)
        if low < 0 or high > SRAM_BYTES:
            raise self.error(operand_outside(name, low, high), task)

    def error(self, said: Said, task: Task | None = None) -> SimulationError:
        """An error with this PE, the task (None: the one that runs) and its place."""
        return at_task(self.simulation.program, self.index, task or self.main.running, said)


def waits_of(pe: Any) -> list[PEWait]:
    """Waits of the threads and tasks of a PE, of this engine or in its likeness; none if it has nothing to do."""
    begun = (_wait_of(pe, thread) for thread in pe.datapath.all())
    picker = pe.main.picker
    tasks = ((number, pe.program.tasks[number]) for number in sorted(picker.active))
    activated = (
        TaskWait(pe.index, number, task.function, task.place, number in picker.blocked) for number, task in tasks
    )
    return [*(wait for wait in begun if wait is not None), *_queued(pe), *activated, *_arrived(pe)]


def _wait_of(pe: ProcessingElement, thread: Thread) -> ThreadWait | None:
    """The wait of an operation that has begun; None if it can go on."""
    activate, unblock = thread.settings.activate, thread.settings.unblock
    wait = partial(
        ThreadWait,
        pe=pe.index,
        thread=thread.label,
        operation=thread.name,
        task=thread.task.function if thread.task else "",
        place=place_of(pe, thread),
        done=thread.done,
        extent=thread.count,
        activates=() if activate is None else (activate,),
        unblocks=() if unblock is None else (unblock,),
    )
    for queue in thread.inputs:
        if not queue.items or queue.items[0][2]:
            return wait(kind="receive", queue=queue.number, color=queue.color)
    output, pushed = thread.output, thread.pushed
    if output is not None and len(output.items) >= output.capacity:
        return wait(kind="send", queue=output.number, color=thread.up.color if thread.up else None)
    for ring in thread.popped:
        if not ring.length:
            return wait(kind="pop", number=pe.fifos.index(ring))
    if pushed is not None and pushed.length >= pushed.buffer.capacity:
        return wait(kind="push", number=pe.fifos.index(pushed))
    return None


def place_of(pe: ProcessingElement, thread: Thread) -> str:
    """Place of an operation in the source: its own, else that of its task; "" if unknown."""
    return place_on(pe.program.code, thread.line) or (thread.task.place if thread.task else "")


def _queued(pe: ProcessingElement) -> Iterator[PEWait]:
    """The operation that waits for a busy microthread: the main thread waits with it."""
    if pe.datapath.queued is not None:
        thread = pe.datapath.queued
        yield ThreadWait(
            pe.index,
            MAIN,
            thread.name,
            "thread",
            thread.task.function if thread.task else "",
            place_of(pe, thread),
            number=thread.number,
            extent=thread.count,
        )


def _arrived(pe: ProcessingElement) -> Iterator[PEWait]:
    """Queues with wavelets that no operation reads, and their tasks."""
    blocked = pe.main.picker.blocked
    for color, queue in sorted(pe.ramp.inputs.items()):
        if not queue.items or queue.user is not None:
            continue
        count = len(queue.items)
        is_blocked = queue.number is not None and queue.number + QUEUES_FROM in blocked
        if queue.task is None:
            yield QueueWait(pe.index, -1 if queue.number is None else queue.number, color, count, is_blocked)
        else:
            task = pe.program.tasks[queue.task]
            is_blocked = is_blocked or queue.task in blocked
            yield TaskWait(pe.index, queue.task, task.function, task.place, is_blocked, count, color)
