"""Interface of compiled code to its processing element.

A compiled program is Python text with one function, `program(pe)`, that returns its functions by name. A plain function
never waits; a function that may wait (a synchronous operation on the fabric) is a generator, and its callers say
`yield from`. Scalars are Python's: int (within their width), bool, float (rounded to their type), and operands of
`fabric.dsd`. Memory is `pe.u16[address >> 1]` and its kind.

Time: code adds the cost of its scalar instructions to `pe.cycles`; vector operations add their own. Effects of a task
on tasks and queues happen at the task's start plus `pe.cycles`.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np

from cstool.csl.fabric.dsd import Dsr, Mem1d, Operand, Settings

Wait = Generator[Any, Any, None]


class PE(Protocol):
    """A processing element, as compiled code sees it."""

    x: int
    """Column in the rectangle."""
    y: int
    """Row in the rectangle."""
    cycles: int
    """Cycles since the running task started; code adds to it."""
    u8: memoryview
    i8: memoryview
    u16: memoryview
    i16: memoryview
    u32: memoryview
    i32: memoryview
    f32: "memoryview[float]"
    f16: "np.ndarray[Any, np.dtype[np.float16]]"
    """pass an element through float() after a read"""

    def load(self, letter: str, address: int) -> int | float:
        """A scalar from any address, aligned or not; letters as in `program.Task`, "B" and "b" for bytes."""
        ...

    def store(self, letter: str, address: int, value: float) -> None:
        """Likewise, written."""
        ...

    # --- tasks ---

    def activate(self, task: int) -> None:
        """`@activate`; without effect on an id that is activated already."""
        ...

    def block(self, task: int) -> None:
        """`@block`; ids from 64 on are input queues + 64."""
        ...

    def unblock(self, task: int) -> None:
        """`@unblock`, likewise."""
        ...

    # --- vector operations; `name` without the @, operands as CSL orders them: the destination first ---

    def run(self, name: str, operands: tuple[Operand, ...]) -> None:
        """Do an operation on memory and scalars alone at once, and add its cycles."""
        ...

    def wait(self, name: str, operands: tuple[Operand, ...], settings: Settings) -> Generator[Any, Any, bool]:
        """A synchronous operation that may wait (fabric, FIFO, DSR): `yield from pe.wait(...)`.

        Its value: false if an empty or full FIFO ended it before its last element.
        """
        ...

    def pause(self) -> Wait:
        """A turn of a loop that polls memory: it goes on after all that microthreads do before this cycle."""
        ...

    def start(self, name: str, operands: tuple[Operand, ...], settings: Settings) -> None:
        """Start an asynchronous operation on a microthread."""
        ...

    def map(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> None:
        """`@map` over memory and scalars: `callback` gets an element of each source.

        Its result, if any, goes to the last operand. `letters`: element types, sources first.
        """
        ...

    def map_wait(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> Wait:
        """`@map` that may wait."""
        ...

    def load_dsr(self, register: Dsr, operand: Operand, settings: Settings, save_address: bool) -> None:
        """`@load_to_dsr`. With `save_address` an operation leaves the register behind its last element."""
        ...

    def read_dsr(self, register: Dsr) -> Operand:
        """The operand in a register."""
        ...

    def fifo_length(self, number: int) -> int:
        """Elements in a FIFO."""
        ...

    # --- the rest of the machine ---

    def time(self) -> int:
        """Cycle counter, 48 bits."""
        ...

    def host_unblock(self) -> None:
        """`memcpy.unblock_cmd_stream`: the next command of the host may reach this PE."""
        ...

    def queue_color(self, queue: int, output: bool) -> int | None:
        """The color that a queue is bound to."""
        ...

    def config_read(self, address: int) -> int:
        """A word of the memory-mapped configuration (`<tile_config>`), by word address."""
        ...

    def config_write(self, address: int, value: int) -> None:
        """Likewise, written: routes, switches, filters, teardown."""
        ...

    def queue_flush(self, queue: int, output: bool) -> None:
        """`@queue_flush`: activates the teardown task once the queue is empty."""
        ...

    def say(self, text: str) -> None:
        """Write a line of the log, for <debug> and <simprint>."""
        ...

    def fail(self, message: str, place: str) -> None:
        """End the simulation with an error: a failed `@assert`."""
        ...


def offset_dsd(dsd: Mem1d, elements: int, width: int) -> Mem1d:
    """`@increment_dsd_offset`: a DSD moved by `elements` of `width` bytes; the stride does not count."""
    return dsd._replace(address=dsd.address + elements * width)


def placed_dsd(dsd: Mem1d, address: int, width: int) -> Mem1d:
    """`@set_dsd_base_addr` with a pointer to elements of `width` bytes: at another address, its stride in these.

    The old element type does not matter: the vendor's residual makes a DSD from an i16 array and gives it the address
    of an f32 array.
    """
    return dsd._replace(address=address, stride=dsd.stride // dsd.width * width, width=width)
