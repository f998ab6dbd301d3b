"""Interface of compiled code to its processing element.

A compiled program is Python text with one function, `program(pe)`, that returns its functions by name. A plain function
never waits; a function that may wait (a synchronous operation on the fabric) is a generator, and its callers say
`yield from`. Scalars are Python's: int (within their width), bool, float (rounded to their type), and operands of
`fabric.dsd`. Memory is `pe.u16[address >> 1]` and its kind; an element of `pe.f16` is passed through float() after a
read. `pe.x` and `pe.y` are the column and row in the rectangle. Code calls the methods of `pe.ProcessingElement`.

Time: code adds the cost of its scalar instructions to `pe.cycles`; vector operations add their own. Effects of a task
on tasks and queues happen at the task's start plus `pe.cycles`.
"""

from collections.abc import Generator
from typing import Any

from cstool.csl.fabric.dsd import Mem1d

Wait = Generator[Any, Any, None]


def offset_dsd(dsd: Mem1d, elements: int, width: int) -> Mem1d:
    """`@increment_dsd_offset`: a DSD moved by `elements` of `width` bytes; the stride does not count."""
    return dsd._replace(address=dsd.address + elements * width)


def placed_dsd(dsd: Mem1d, address: int, width: int) -> Mem1d:
    """`@set_dsd_base_addr` with a pointer to elements of `width` bytes: at another address, its stride in these.

    The old element type does not matter: the vendor's residual makes a DSD from an i16 array and gives it the address
    of an f32 array.
    """
    return dsd._replace(address=address, stride=dsd.stride // dsd.width * width, width=width)
