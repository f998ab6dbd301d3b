"""Operands of vector operations, as values: data structure descriptors (DSDs), their registers (DSRs), and FIFOs.

A DSD is immutable; code that changes one makes another. Addresses are bytes in the SRAM of one PE.
"""

from typing import NamedTuple


class Mem1d(NamedTuple):
    """A vector in SRAM: element k is at `address + k * stride` bytes.

    Args:
        address: bytes, of the first element
        extent: elements
        stride: bytes from one element to the next; 0 is one element, again and again
        width: bytes of an element of the array that it was made from, 2 or 4; where an operation has another size,
            `fitted` changes both
        indexed: `wavelet_index_offset`: the index of the k-th element is the upper half of the k-th wavelet of the
            operation's fabric input; without one, it is `Settings.first_index` + k
    """

    address: int
    extent: int
    stride: int
    width: int
    indexed: bool = False


class Mem4d(NamedTuple):
    """A tensor in SRAM of up to four dimensions, the last one fastest; lengths of extents and strides are equal.

    Args:
        address: bytes, of the first element
        extents: elements, the slowest dimension first
        strides: bytes, likewise
        width: bytes of an element
        indexed: as of `Mem1d`: the index counts elements in their order
        wrap: of a circular buffer, which has one dimension: its elements; 0: it is none
        first: likewise, the element that it begins with
    """

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    width: int
    indexed: bool = False
    wrap: int = 0
    first: int = 0


def fitted(operand: "Operand", size: int) -> "Operand":
    """An operand as an operation on elements of `size` bytes takes it: strides of vectors in memory count its elements.

    The vendor's `fft-1d-2d` moves pairs of f16 so, by `@fmovs` of a vector of f16 whose stride is 1.
    """
    if isinstance(operand, Mem1d) and operand.width != size:
        return operand._replace(stride=operand.stride // operand.width * size, width=size)
    if isinstance(operand, Mem4d) and operand.width != size:
        strides = tuple(stride // operand.width * size for stride in operand.strides)
        return operand._replace(strides=strides, width=size)
    return operand


class FabricIn(NamedTuple):
    """`extent` wavelets from an input queue, or from the own queue of a color (`arch.OWN_QUEUES`).

    Args:
        queue: the queue
        extent: wavelets
        on_control: the effect of a control wavelet
        color: the color that the queue gets if it is one of `PEProgram.recolored`; None: it keeps its color
    """

    queue: int
    extent: int
    on_control: "OnControl | None" = None
    color: int | None = None


class FabricOut(NamedTuple):
    """`extent` wavelets to an output queue.

    Args:
        queue: the output queue, or the own queue of their color (`arch.OWN_QUEUES`)
        color: their color
        extent: wavelets
        control: whether they are control wavelets
        advance_switch: whether the last one carries a command that advances the switches on its path
        indexed: whether the upper half of a wavelet is the index of its element (`wavelet_index_offset`)
    """

    queue: int
    color: int
    extent: int
    control: bool = False
    advance_switch: bool = False
    indexed: bool = False


class OnControl(NamedTuple):
    """Effect of a control wavelet on the operation that reads it: ends it, and activates or unblocks a task."""

    terminate: bool = True
    activate: int | None = None
    unblock: int | None = None


class Fifo(NamedTuple):
    """A FIFO of this PE, by its number in `PEProgram.fifos`."""

    number: int


class Dsr(NamedTuple):
    """A register that holds a DSD. Operations read it, and advance it where it was loaded to do so.

    Args:
        file: "dest", "src0" or "src1"
        number: in its file
    """

    file: str
    number: int


class Pointer(NamedTuple):
    """One scalar in SRAM as an operand: read, or written with the last element."""

    address: int


Operand = Mem1d | Mem4d | FabricIn | FabricOut | Fifo | Dsr | Pointer | int | float


class Settings(NamedTuple):
    """Settings behind the operands of a vector operation: `.{ .async = true, .activate = t }`.

    Args:
        activate: the task to activate at its end
        unblock: the task (or, from 64 on, input queue + 64) to unblock at its end
        microthread: `ut_id`, where the program names one (WSE-3)
        priority: "high", "medium" or "low"
        first_index: `.index`: the index of the first element: in the upper half of a wavelet that is sent, and of a
            vector in memory that takes an index where no wavelet brings one
        on_control: for its fabric input
        saturate: not wrapped but saturated, where the operation has that
    """

    activate: int | None = None
    unblock: int | None = None
    microthread: int | None = None
    priority: str = "medium"
    first_index: int | None = None
    on_control: OnControl | None = None
    saturate: bool = False
