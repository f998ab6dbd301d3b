"""Values in the SRAM of a PE, by the names of the source."""

import re
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, Pointer
from cstool.csl.fabric.operations import BYTES, DTYPES
from cstool.csl.fabric.pe import ProcessingElement
from cstool.csl.fabric.program import PEProgram, Symbol
from cstool.csl.sdk.artifact import LETTERS
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted, nearest

_UNNAMED = re.compile(r"operand(_\d+)?")
"""names in compiled code of DSDs that have none in the source"""
_INDEX = re.compile(r"(?P<name>[A-Za-z_]\w*)(\[(?P<index>[^\]]*)\])?")


class Range(NamedTuple):
    """Elements of a variable.

    Args:
        text: as the user wrote it
        address: byte address of the array
        letter: element type
        shape: of the whole variable; () for a scalar
        part: indices along the dimensions, as NumPy takes them
    """

    text: str
    address: int
    letter: str
    shape: tuple[int, ...]
    part: tuple[int | slice, ...]

    @property
    def kind(self) -> str:
        """The element type in CSL."""
        return LETTERS[self.letter]

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return BYTES[self.letter]

    def value(self, pe: ProcessingElement) -> NDArray[Any]:
        """The elements at a PE, a copy."""
        return np.array(self._whole(pe)[self.part])

    def _whole(self, pe: ProcessingElement) -> NDArray[Any]:
        return np.ndarray(self.shape, DTYPES[self.letter], pe.memory.bytes, self.address)

    def raw(self, pe: ProcessingElement) -> bytes:
        """Their bytes."""
        return bytes(self._whole(pe)[self.part].tobytes())

    def element(self, number: int) -> str:
        """The name of an element, by its number among these."""
        if not self.shape:
            return self.text
        numbers = np.arange(np.prod(self.shape)).reshape(self.shape)[self.part].reshape(-1)
        at = np.unravel_index(int(numbers[number]), self.shape)
        return f"{self.text.partition('[')[0]}[{', '.join(map(str, at))}]"


def find(program: PEProgram, text: str) -> Range:
    """Elements of a variable by `NAME`, `NAME[2]`, `NAME[2:5]`, `NAME[1, 0:4]`; the end of a range is not in it.

    Raises:
        CstoolError: the program has no such variable, or the variable no such elements
    """
    match = _INDEX.fullmatch(text.strip())
    if match is None:
        raise CstoolError(f"{text}: must be NAME or NAME[RANGE]", "for example y, y[3], y[2:5], A[1, 0:4]")
    name = match["name"]
    symbol = program.variable(name)
    if symbol is None:
        raise no_variable(program.name, name, variables(program))
    shape = _shape(program, name, symbol)
    return Range(text.strip(), symbol.address, symbol.letter, shape, _indices(text, match["index"], shape))


def no_variable(where: str, name: str, known: Iterable[str]) -> CstoolError:
    """The error of a name that no variable has."""
    names = sorted(known)
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else f"its variables: {', '.join(names) or 'none'}"
    return CstoolError(f"{name}: must be a variable of {where}, it has none of that name", hint)


def variables(program: PEProgram) -> list[str]:
    """Names of the variables that have memory and a name."""
    return [name for name in {**program.variables, **program.symbols} if program.variable(name)]


def _shape(program: PEProgram, name: str, symbol: Symbol) -> tuple[int, ...]:
    """The extents as the source declares them, where they are known."""
    for text, _ in program.sram:
        declared = re.fullmatch(rf"{re.escape(name)}: \[([\d, ]+)\]\w+", text)
        if declared is not None:
            shape = tuple(map(int, declared[1].split(",")))
            if int(np.prod(shape)) == symbol.count:
                return shape
    return () if symbol.count == 1 else (symbol.count,)


def _indices(text: str, inside: str | None, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    if inside is None:
        return ()
    parts = [part.strip() for part in inside.split(",")]
    if len(parts) > len(shape):
        has = f"{len(shape)} dimensions" if len(shape) > 1 else "one dimension" if shape else "no dimension"
        raise CstoolError(f"{text}: must have an index for each dimension at most, it has {has}")
    found: list[int | slice] = []
    for part, extent in zip(parts, shape, strict=False):
        first, colon, last = part.partition(":")
        if not all(each.strip().isdecimal() for each in ([first] if not colon else filter(None, (first, last)))):
            raise CstoolError(f"{text}: an index must be a number or FROM:TO, got {part!r}")
        begin, end = int(first or 0), int(last or extent) if colon else int(first) + 1
        if not 0 <= begin < end <= extent:
            raise CstoolError(f"{text}: must be within 0 to {extent - 1}, got {part}")
        found.append(slice(begin, end) if colon else begin)
    return tuple(found)


def values_text(values: NDArray[Any]) -> str:
    """Values as they are shown."""
    with np.printoptions(threshold=200, linewidth=100, floatmode="unique"):
        return str(values) if values.shape else str(values[()])


def locals_of(frame: FrameType | None) -> dict[str, Any]:
    """Variables of the function that stands at a statement, and of its callers, by names in compiled code.

    The innermost function counts first. DSDs that functions share are among them.
    """
    found: dict[str, Any] = {}
    file = None if frame is None else frame.f_code.co_filename
    while frame is not None and frame.f_code.co_filename == file:
        for name, value in frame.f_locals.items():
            if isinstance(value, (int, float, Mem1d, Mem4d, FabricIn, FabricOut, Fifo, Pointer)):
                found.setdefault(name, value)
        frame = frame.f_back
    return found


def dsds_of(pe: ProcessingElement) -> dict[str, Any]:
    """DSDs of the program that its functions use, as they are now, by their names in compiled code."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    todo = list((pe.main.functions or {}).values())
    while todo:
        function = todo.pop()
        if id(function) in seen or not hasattr(function, "__code__"):
            continue
        seen.add(id(function))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if callable(value):
                todo.append(value)
            elif isinstance(value, (Mem1d, Mem4d, FabricIn, FabricOut, Fifo)) and not _UNNAMED.fullmatch(name):
                found[name] = value
    return dict(sorted(found.items()))


def operand_text(operand: Any, program: PEProgram) -> str:
    """An operand of an operation, in words."""
    if isinstance(operand, Mem1d):
        step = "" if operand.stride == operand.width else f", {operand.stride} bytes apart"
        return f"{counted(operand.extent, 'element')} from {address_text(operand.address, program)} on{step}"
    if isinstance(operand, Mem4d):
        extents = " x ".join(map(str, operand.extents))
        strides = ", ".join(map(str, operand.strides))
        return f"{extents} elements from {address_text(operand.address, program)} on, strides {strides} bytes"
    if isinstance(operand, FabricIn):
        return f"{counted(operand.extent, 'wavelet')} from input queue {operand.queue}"
    if isinstance(operand, FabricOut):
        return f"{counted(operand.extent, 'wavelet')} of color {operand.color} to output queue {operand.queue}"
    if isinstance(operand, Fifo):
        return f"FIFO {operand.number}"
    if isinstance(operand, Pointer):
        return f"the scalar at {address_text(operand.address, program)}"
    return str(operand)


def address_text(address: int, program: PEProgram) -> str:
    """An address by the variable that it lies in: `y[2]`, or `byte 136`."""
    named: Mapping[str, Symbol] = {**program.symbols, **program.variables}
    for name, symbol in sorted(named.items()):
        width = BYTES[symbol.letter]
        if symbol.kind == "variable" and symbol.address <= address < symbol.address + width * max(symbol.count, 1):
            number, rest = divmod(address - symbol.address, width)
            shape = _shape(program, name, symbol)
            at = ", ".join(map(str, np.unravel_index(number, shape))) if shape else ""
            return f"{name}[{at}]" + (f" + {rest} bytes" if rest else "") if shape else name
    return f"byte {address}"
