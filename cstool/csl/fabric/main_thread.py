"""The main thread of one PE: it runs one task after another, as the task picker says.

A task's code runs at once, at the cycle at which the task starts; its duration is `pe.cycles`, and the main
thread is not free before. Operations on microthreads go on meanwhile, one element a cycle and PE; the main thread loses
each of these cycles. A task that waits for an operation on the fabric is a generator that stands still.

Operations that were on their way before see memory as it was until the code's end (`_at_once`): a task may overwrite
elements that such an operation has sent by then. Changes that a task makes after it has itself started an operation
are seen by that operation from its first element on, even if on the wafer it would have been done by then: no program
may count on either.
"""

import struct
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.dsd import Settings
from cstool.csl.fabric.errors import SimulationError, no_local_task, outside_sram
from cstool.csl.fabric.interface import Wait
from cstool.csl.fabric.lines import Lines
from cstool.csl.fabric.microthread import Thread
from cstool.csl.fabric.program import Symbol, Task
from cstool.csl.fabric.scalar import finished
from cstool.csl.fabric.scheduler import CALL, Call, Picked, Picker

HANDLER = 2
"""Cycles in which the teardown task finds out whether to call a handler. Ours: nothing is published."""

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement


class MainThread:
    """Tasks of one PE, and the running task.

    Args:
        pe: the PE; its ramp has its queues

    Attributes:
        picker: activated and blocked tasks
        running: the running task
        latest: the task that began last
        functions: functions of the compiled code for this PE, by name; None: none has run yet
        lost: cycles that microthreads took from the task, not yet added to its duration
        busy: cycles of ended tasks
        tasks_run: tasks begun
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        program = pe.program
        self._pe = pe
        self._events = pe.simulation.events
        self.picker = Picker(
            program.tasks,
            program.control_tasks or program.tasks,
            program.blocked,
            program.activated,
            list(pe.ramp.inputs.values()),
        )
        self.running: Task | None = None
        self.latest: Task | None = None
        self.lost = 0
        self.busy = self.tasks_run = 0
        self._free = 0  # no task runs from here on
        self.functions: dict[str, Callable[..., Any]] | None = None
        self._generator: Any = None
        self._held: tuple[Callable[..., None], tuple[Any, ...]] | None = None
        self._pick_at = -1  # when the task picker picks next; -1: not at all
        on_line = pe.simulation.on_line
        self._lines = None if on_line is None else Lines(pe, on_line)

    @property
    def busy_so_far(self) -> int:
        """Cycles of all tasks, of the running one as far as its code has come."""
        return self.busy + (self._pe.cycles if self.running is not None else 0)

    # --- the task picker ---

    def call(self, symbol: Symbol, arguments: tuple[int | float, ...]) -> None:
        """Run a function as a task, for the host."""
        now = self._events.now
        self.picker.calls.append(Call(now, symbol, arguments))
        self.wake(now)

    def wake(self, time: int) -> None:
        """A task may have become eligible at `time`."""
        if self.running is not None:
            return
        at = max(time, self._free) + 1
        if self._pick_at < 0 or at < self._pick_at:
            self._pick_at = at
            self._events.at(at, self._choose)

    def _wake_for_events(self) -> None:
        """The main thread is free: tasks that became eligible meanwhile may run."""
        time = self.picker.next_time()
        if time is not None:
            self.wake(time)

    def _pick(self, now: int) -> Picked | None:
        picked = None
        while picked is None:
            candidate = self.picker.candidate(now)
            if candidate is None:
                return None
            task, queue = candidate
            if task == CALL:
                call = self.picker.calls.popleft()
                return Picked(Task(call.symbol.function, "host", place=call.symbol.place), call.arguments)
            picked = self.picker.take(task, queue)
            if queue is not None:
                if queue.flush:
                    self._pe.ramp.flush_empty(now)
                if queue.user is not None:
                    self._pe.datapath.tick_at(now + 1)
        return picked

    # --- events of tasks ---

    def activate_at(self, task: int, time: int) -> None:
        """Activate a task at `time`."""
        self.check_task(task)
        self.picker.activate(task, time)
        self.wake(time)

    def unblock_at(self, task: int, time: int) -> None:
        """End the blocking of a task or queue."""
        self.picker.unblock(task, time)
        self.wake(time)

    def complete(self, settings: Settings, time: int) -> None:
        """Activate and unblock tasks at the end of an operation."""
        if settings.activate is not None:
            self.activate_at(settings.activate, time)
        if settings.unblock is not None:
            self.unblock_at(settings.unblock, time)

    def check_task(self, task: int) -> None:
        """Raise an error for an id that cannot be activated."""
        found = self._pe.program.tasks.get(task)
        if found is None or found.kind == "data":
            raise self._pe.error(no_local_task(task, found))

    def activate(self, task: int) -> None:
        """`@activate`; without effect on an id that is activated already."""
        self.check_task(task)
        self._do(self.activate_at, task)

    def block(self, task: int) -> None:
        """`@block`; ids from 64 on are input queues + 64."""
        self._do(self._block, task)

    def _block(self, task: int, time: int) -> None:  # noqa: ARG002
        self.picker.blocked.add(task)

    def unblock(self, task: int) -> None:
        """`@unblock`, likewise."""
        self._do(self.unblock_at, task)

    def _do(self, action: Callable[[int, int], None], task: int) -> None:
        """Do it at the cycle that the code has come to; at once if that makes no difference."""
        pe = self._pe
        time = pe.settle()
        if pe.datapath.threads and pe.cycles:
            self._events.at(time, action, task, time)
        else:
            action(task, time)

    # --- the task that runs ---

    def _choose(self) -> None:
        """Choose the next task. From now on it may be activated again, for once more."""
        now = self._events.now
        if self._pick_at != now:
            return  # it was asked to pick sooner, and has
        picked = self._pick(now)  # what it takes may wake the picker for the next cycle: not now
        self._pick_at = -1
        if picked is None:
            self._wake_for_events()
            return
        self.running = self.latest = picked.task
        self._events.at(now - 1 + self._pe.time_model.switch, self._begin, picked)

    def _begin(self, picked: Picked) -> None:
        """Begin a task."""
        now, pe = self._events.now, self._pe
        pe.base, self.lost = now, 0
        pe.set_cycles(0)
        self.tasks_run += 1
        if pe.trace is not None:
            pe.trace(now, pe.index, "task", picked.task.function)
        try:
            calls = picked.task.kind == "teardown"
            function = self._call_handlers if calls else self._function(picked.task.function)
            result = self._at_once(lambda: function(*picked.arguments))
        except (IndexError, struct.error) as error:
            raise self._outside() from error
        if type(result) is GeneratorType:
            self._generator = result
            self._run_on()
        else:
            self._code_done()

    def _function(self, name: str) -> Callable[..., Any]:
        """A function of the compiled code; the code is instantiated for this PE when the first one runs."""
        if self.functions is None:
            self.functions = self._pe.simulation.code(self._pe.program)(self._pe)
        return self.functions[name]

    def _call_handlers(self) -> Wait:
        """The teardown task of a program with handlers: it calls those of colors in teardown and of flushed queues."""
        pe = self._pe
        for handler in pe.program.handlers:
            pe.cycles += HANDLER
            if pe.tile.calls(handler):
                yield from finished(self._function(handler.function)())

    def _run_on(self) -> None:
        """Let the task's generator run until it waits, or is done."""
        try:
            self._at_once(lambda: next(self._generator))
        except StopIteration:
            self._generator = None
            self._code_done()
        except (IndexError, struct.error) as error:
            raise self._outside() from error

    def _at_once(self, code: Callable[[], Any]) -> Any:
        """Run code now; operations in progress read memory as it was before, for as long as the code takes."""
        pe = self._pe
        if self._lines is not None:
            code = self._lines.followed(code)
        senders = [thread for thread in pe.datapath.threads if thread.sends_memory]
        if not senders:
            return code()
        memory = pe.memory.bytes
        before = bytes(memory)
        try:
            return code()
        finally:
            if memory != before:
                after = bytes(memory)
                memory[:] = before
                for thread in senders:
                    thread.read_ahead(pe.settle() - self._events.now)
                memory[:] = after

    def _outside(self) -> SimulationError:
        """The error of code that read or wrote a scalar outside the SRAM."""
        return self._pe.error(outside_sram())

    def _code_done(self) -> None:
        pe = self._pe
        end = pe.settle()
        if pe.datapath.threads:
            self._events.at(end, self._reach, self._end, ())
        else:
            self._end()

    def _end(self) -> None:
        """End the task."""
        pe = self._pe
        end = pe.base + pe.cycles
        self.busy += pe.cycles
        if pe.trace is not None and self.running is not None:
            pe.trace(end, pe.index, "task_end", self.running.function)
        self._free = end
        self.running = None
        self._wake_for_events()

    # --- where it waits ---

    def reach(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` at the cycle that the code has come to, when nothing holds the main thread up."""
        self._events.at(self._pe.settle(), self._reach, action, arguments)

    def _reach(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """The main thread is at the end of its own work; add the cycles that microthreads took from it, and go on."""
        if self.lost:
            lost, self.lost = self.lost, 0
            self._pe.set_cycles(self._pe.cycles + lost)
            self._events.at(self._events.now + lost, self._reach, action, arguments)
        elif self._pe.datapath.begin_queued(self._events.now):
            action(*arguments)
        else:
            self._held = (action, arguments)

    def let_go(self, time: int) -> None:
        """Go on at `time`: the microthread is free that an operation of the task waits for."""
        if self._held is None:
            return
        (action, arguments), self._held = self._held, None
        self._pe.set_cycles(max(self._pe.cycles, time - self._pe.base))
        self.reach(action, *arguments)

    def do(self, thread: Thread) -> None:
        """Let the main thread do an operation; the caller yields, and is called on when it is done."""
        self.reach(self._do_now, thread)

    def _do_now(self, thread: Thread) -> None:
        self._pe.datapath.begin(thread, self._pe.base + self._pe.cycles)

    def pause(self) -> Wait:
        """Wait until this cycle has come, and stand still as long as an operation of the task waits for a microthread.

        So a turn of a loop that polls memory goes on after all that microthreads do before this cycle.
        """
        self.reach(self._run_on)
        yield None

    def go_on(self, time: int) -> None:
        """The wait of the task is over at `time`: its code goes on."""
        self._pe.set_cycles(time - self._pe.base)
        self._run_on()
