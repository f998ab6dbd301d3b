"""Queues between a PE and its router, and the FIFOs in its SRAM."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cstool.csl.fabric.memory import Memory
from cstool.csl.fabric.program import FifoBuffer

if TYPE_CHECKING:
    from cstool.csl.fabric.microthread import Thread


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
