"""Queues between a PE and its router, and the FIFOs in its SRAM."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cstool.csl.fabric.arch import ANY_COLOR, ARCHS, OWN_QUEUE
from cstool.csl.fabric.memory import Memory
from cstool.csl.fabric.program import FifoBuffer, PEProgram

if TYPE_CHECKING:
    from cstool.csl.fabric.microthread import Thread

NOT_YET = -1
"""room of a color without a queue, where the program may bind one while it runs"""


@dataclass(slots=True, eq=False)
class InputQueue:
    """Wavelets that came up the ramp.

    Args:
        number: its number; None for the own queue of a color that is bound to none (WSE-2)
        color: color of its wavelets
        capacity: wavelets

    Attributes:
        items: (cycle of arrival, data, whether control)
        user: the operation that reads it
        task: id of the data task that reads it
        release: tells the sender that there is room for one more
        shared: whether several operations have read it at once (WSE-3)
        flush: whether the teardown task is to be activated once it is empty
    """

    number: int | None
    color: int
    capacity: int
    items: deque[tuple[int, int, bool]] = field(default_factory=deque)
    user: "Thread | None" = None
    task: int | None = None
    release: Callable[[], None] = lambda: None
    shared: bool = False
    flush: bool = False

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"the queue of color {self.color}" if self.number is None else f"input queue {self.number}"

    def take(self) -> int:
        """Take the head; return its data."""
        data = self.items.popleft()[1]
        self.release()
        return data


@dataclass(slots=True, eq=False)
class OutputQueue:
    """Wavelets that wait for the ramp, of any color: (color, data, whether control).

    Args:
        number: its number; None for the own queue of a color (WSE-2)
        capacity: wavelets
        color: the color that it is bound to; None where each operation names its own

    Attributes:
        stopped: whether the ramp refused its head, and the network has not reported room since
        flush: whether the teardown task is to be activated once it is empty
    """

    number: int | None
    capacity: int
    color: int | None = None
    items: deque[tuple[int, int, bool]] = field(default_factory=deque)
    stopped: bool = False
    flush: bool = False


def input_queues(program: PEProgram) -> tuple[dict[int, InputQueue], dict[int, InputQueue]]:
    """The input queues that a PE has at the start: by number, and by color in the order of the task picker.

    An input queue that operations recolor has no color yet.
    """
    capacities = ARCHS[program.arch].input_queues
    numbered: dict[int, InputQueue] = {}
    by_color: dict[int, InputQueue] = {}
    for number, color in sorted(program.input_queues.items()):
        numbered[number] = queue = InputQueue(number, color, capacities[number])
        if number not in program.recolored:
            by_color[color] = queue
    for task_id, task in sorted(program.tasks.items()):
        if task.kind != "data":
            continue
        color_of = task.color
        if task.queue is not None and color_of is None:
            color_of = program.input_queues.get(task.queue)
        if color_of is None:
            continue
        if color_of not in by_color:
            capacity = OWN_QUEUE if task.queue is None else capacities[task.queue]
            by_color[color_of] = own = InputQueue(task.queue, color_of, capacity)
            if task.queue is not None:
                numbered[task.queue] = own
        by_color[color_of].task = task_id
    for color in sorted(program.inputs - {ANY_COLOR}):
        if color not in by_color and not may_recolor(program, color):
            by_color[color] = InputQueue(None, color, OWN_QUEUE)
    return numbered, by_color


def output_queues(program: PEProgram) -> dict[int, OutputQueue]:
    """The output queues that are bound at the start, by number; on WSE-2 each stream names a color of its own."""
    arch = ARCHS[program.arch]
    return {
        number: OutputQueue(number, arch.output_queues[number], color if program.arch == "wse3" else None)
        for number, color in sorted(program.output_queues.items())
    }


def may_recolor(program: PEProgram, color: int) -> bool:
    """Whether an operation may give an input queue this color (WSE-2)."""
    return any(color in colors for colors in program.recolored.values())


def takes_any(program: PEProgram) -> bool:
    """Whether a program may take a wavelet of any color: WSE-2 needs no queue for what a control task takes."""
    controlled = any(task.kind == "control" for task in program.tasks.values())
    return program.arch == "wse2" and (controlled or ANY_COLOR in program.inputs)


def may_bind(program: PEProgram) -> bool:
    """Whether a program may bind a queue while it runs."""
    return "config_write" in program.code


@dataclass(slots=True, eq=False)
class Ring:
    """A FIFO in SRAM.

    Args:
        buffer: its place, and the tasks that it activates
        memory: memory of its PE
        changed: called after a push or pop, with the task to activate

    Attributes:
        lengths: elements of operations that write it (True) or read it (False), where the program has set them
    """

    buffer: FifoBuffer
    memory: Memory
    changed: Callable[[int | None], None]
    head: int = 0
    length: int = 0
    lengths: dict[bool, int] = field(default_factory=dict)

    def push(self, bits: int) -> None:
        """Put an element behind the last; there must be room."""
        at = (self.head + self.length) % self.buffer.capacity
        self.memory.store("w" if self.buffer.width == 4 else "H", self.buffer.address + at * self.buffer.width, bits)
        self.length += 1
        self.changed(self.buffer.activate_push)

    def pop(self) -> int:
        """Take the first element's bits; there must be one."""
        at = self.buffer.address + self.head * self.buffer.width
        self.head = (self.head + 1) % self.buffer.capacity
        self.length -= 1
        bits = int(self.memory.load("w" if self.buffer.width == 4 else "H", at))
        self.changed(self.buffer.activate_pop)
        return bits
