"""Kernel calls written down as records of machine words, which `driver.py` executes without the interpreter.

While a thread records, calls of compiled kernels and of products compute nothing: each becomes a record of the address
of its machine code and of its arguments, flat, as that code takes them. A kernel of `table.py` that says it is `native`
does all its work by such calls, and looks at no number in an array, so its records do the same work as it does.

A `Cell` stands for an argument that is another number at each execution, such as the step of dropout.

Source: Numba's calling convention, `numba.core.callconv.CPUCallConv`: a status is returned, the first two arguments
are addresses for the result and for an exception; `numba.core.datamodel` for the parts of arrays and tuples. System V
ABI for AMD64, section 3.2.3, and AAPCS64, section 6.8: whole numbers and floats are counted apart, what finds no
register lies on the stack in order, a word each.
"""

from __future__ import annotations

import platform
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import typeof as _typeof
from numba import types

Array = np.ndarray[Any, Any]
typeof: Any = _typeof
_tuple_of: Any = types.BaseTuple.from_types

INTEGER_REGISTERS = 6 if platform.machine() in ("x86_64", "AMD64") else 8
FLOAT_REGISTERS = 8
HEADER = 4
"""words of a record before its arguments: kind, length [words], address of the code, number of the recorded op"""
REGISTERS = HEADER + INTEGER_REGISTERS + FLOAT_REGISTERS
"""words of a record before the arguments on the stack"""
SMALL_STACK, LARGE_STACK = 48, 160
"""words on the stack that the driver hands over, whether a record has as many or not"""
_DOUBLE, _SINGLE = struct.Struct("<d"), struct.Struct("<f4x")
KERNEL, FUNCTION, LARGE_KERNEL, LOAD, MARK = range(5)
"""kinds of records. A kernel of Numba, or what is like one, returns a status; the result of a function does not count.
A load copies a cell into a later record, a mark tells the time"""


class NotRecordableError(Exception):
    """A call cannot be written down: the interpreter makes it at each execution."""


class Cell(NamedTuple):
    """An argument that the driver reads from memory at each execution."""

    memory: Array
    """(1,) int64 or float64"""

    @property
    def type(self) -> Any:
        """Type of the argument."""
        return typeof(self.memory).dtype


class Record(NamedTuple):
    """Part of a recording."""

    start: int
    """first word"""
    scalars: tuple[int, ...]
    """words that hold whole numbers and floats, none of an array"""


class Recording:
    """Records, one after the other."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.number = 0
        """of an op, or of whatever else is recorded: the records that follow have it"""
        self.records: list[Record] = []
        self.left: list[Callable[[], None]] = []
        """what the interpreter does after the records so far"""
        self.kept: list[object] = []
        """arrays, code and other things whose addresses are in records"""
        self.threads: set[Callable[[], AbstractContextManager[object]]] = set()
        """make contexts in which a thread may execute the records"""
        self.prepared: dict[Any, Any] = {}
        """by key, what providers of products use in several records, one after the other"""
        self._exception, self._nothing = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.kept += [self._exception, self._nothing]

    def kernel(self, dispatcher: Any, arguments: Sequence[Any], result: Array | None = None) -> None:
        """Write down a call of a compiled kernel.

        Args:
            result: memory for its result; None where it has none

        Raises:
            NotRecordableError: an argument is none of arrays, numbers, None, and tuples of these
        """
        signature = tuple(map(_type_of, arguments))
        address = _address_of_code(dispatcher, signature)
        result = self._nothing if result is None else result
        self.kept.append(result)
        flat = _Flat(self)
        flat.put(address_of(result))
        flat.put(address_of(self._exception))
        for argument, of in zip(arguments, signature, strict=True):
            flat.add(argument, of)
        if tuple(flat.is_float) != _convention(dispatcher, signature):
            raise NotRecordableError("this Numba hands arguments over in another way")
        self._append(KERNEL, address, flat)

    def function(self, address: int, arguments: Sequence[int | np.float32], *, returns_status: bool = False) -> None:
        """Write down a call of a function of C; whole numbers are words, floats are float32.

        Args:
            returns_status: whether its result is 0 unless it failed
        """
        flat = _Flat(self)
        for argument in arguments:
            flat.add(argument, types.float32 if isinstance(argument, np.float32) else types.int64)
        self._append(KERNEL if returns_status else FUNCTION, address, flat)

    def leave(self, work: Callable[[], None]) -> None:
        """Leave the rest of an op to the interpreter."""
        self.left.append(work)

    def mark(self) -> None:
        """Write down that the time until here since the mark before is that mark's."""
        self.words += [MARK, HEADER, 0, self.number]

    def _append(self, kind: int, address: int, flat: _Flat) -> None:
        if len(flat.stack) > LARGE_STACK:
            raise NotRecordableError(f"a call has {len(flat.stack)} words on the stack, at most {LARGE_STACK} can be")
        if kind == KERNEL and len(flat.stack) > SMALL_STACK:
            kind = LARGE_KERNEL
        start = len(self.words) + HEADER * len(flat.cells)
        length = REGISTERS + len(flat.stack)
        for place, address_of_cell in flat.cells:
            self.words += [LOAD, HEADER, address_of_cell, start + flat.word(place)]
        self.words += [kind, length, address, self.number]
        self.words += [*flat.integers, *[0] * (INTEGER_REGISTERS - len(flat.integers))]
        self.words += [*flat.floats, *[0] * (FLOAT_REGISTERS - len(flat.floats))]
        self.words += flat.stack
        self.records.append(Record(start, tuple(flat.word(place) for place in flat.scalars)))

    def table(self) -> Array:
        """The records as the driver takes them: (n,) int64, with room behind for the words that it reads too many."""
        return np.array([*self.words, *[0] * LARGE_STACK], np.int64)


class Numbers(Recording):
    """The numbers of one call, in the order of `Record.scalars`, as the words of its record have them."""

    packed: Array
    """(n,) int64"""

    def kernel(self, dispatcher: Any, arguments: Sequence[Any], result: Array | None = None) -> None:  # noqa: ARG002
        """See `Recording.kernel`."""
        numbers = [argument for argument in arguments if not isinstance(argument, np.ndarray)]
        forms = "".join([_FORMS[type(number)] for number in numbers])
        self.packed = np.frombuffer(struct.pack("<" + forms, *numbers), np.int64)


def _word(value: float, of: Any) -> int:
    """A number as a word."""
    if not isinstance(of, types.Float):
        return int(value)
    return int.from_bytes((_DOUBLE if of.bitwidth == 64 else _SINGLE).pack(value), "little", signed=True)  # noqa: PLR2004


class _Flat:
    """Arguments as words, in registers and on the stack."""

    def __init__(self, recording: Recording) -> None:
        self._kept = recording.kept
        self.integers: list[int] = []
        self.floats: list[int] = []
        self.stack: list[int] = []
        self.cells: list[tuple[tuple[int, int], int]] = []
        """place of a word, as `put` gives it, and address of its cell"""
        self.scalars: list[tuple[int, int]] = []
        self.is_float: list[bool] = []
        """by argument of the machine code"""

    def add(self, value: Any, of: Any) -> None:
        if isinstance(value, Cell):
            self._kept.append(value.memory)
            place = self.put(0, is_float=isinstance(of, types.Float))
            self.cells.append((place, address_of(value.memory)))
        elif value is None:
            self.put(0)
        elif isinstance(value, int):
            self.scalars.append(self.put(int(value)))
        elif isinstance(of, types.Array):
            self._kept.append(value)
            for word in (0, 0, value.size, value.itemsize, address_of(value), *value.shape, *value.strides):
                self.put(word)
        elif isinstance(of, types.BaseTuple):
            kinds: Any = of
            for element, kind in zip(value, kinds, strict=True):
                self.add(element, kind)
        else:
            self.scalars.append(self.put(_word(value, of), is_float=isinstance(of, types.Float)))

    def put(self, word: int, *, is_float: bool = False) -> tuple[int, int]:
        self.is_float.append(is_float)
        found, room = (self.floats, FLOAT_REGISTERS) if is_float else (self.integers, INTEGER_REGISTERS)
        first = HEADER + (INTEGER_REGISTERS if is_float else 0)
        if len(found) >= room:
            found, first = self.stack, REGISTERS
        found.append(word)
        return first, len(found) - 1

    @staticmethod
    def word(place: tuple[int, int]) -> int:
        """Position within the record."""
        return sum(place)


@cache
def _address_of_code(dispatcher: Any, signature: tuple[Any, ...]) -> int:
    """Address of the machine code of a compiled function, which stays as long as the process."""
    if signature not in dispatcher.overloads:
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address


@cache
def _convention(dispatcher: Any, signature: tuple[Any, ...]) -> tuple[bool, ...]:
    """Whether each argument of the machine code of a compiled function is a float, as Numba says."""
    compiled = dispatcher.overloads[signature]
    about, convention = compiled.fndesc, compiled.target_context.call_conv
    arguments = convention.get_function_type(about.restype, about.argtypes).args
    return tuple(isinstance(of, ir.FloatType | ir.DoubleType) for of in arguments)


_USUAL = {int: types.int64, float: types.float64, bool: types.boolean, np.float32: types.float32}
"""types of numbers, which Numba takes longer to find"""
_FORMS = {int: "q", float: "d", bool: "q", np.float32: "f4x"}
"""the same as words, as `struct` names them"""
_array_types: dict[Any, Any] = {}
"""likewise those of arrays, by all that they depend on"""


def _type_of(value: Any) -> Any:
    if (usual := _USUAL.get(type(value))) is not None:
        return usual
    if value is None:
        return types.none
    if isinstance(value, Cell):
        return value.type
    if isinstance(value, np.ndarray):
        flags = value.flags
        key = value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
        if (known := _array_types.get(key)) is None:
            known = _array_types[key] = typeof(value)
        return known
    if isinstance(value, tuple):
        named = type(value) if hasattr(value, "_fields") else None
        return _tuple_of([_type_of(element) for element in value], named)
    found = typeof(value)
    if not isinstance(found, types.Array | types.Integer | types.Float | types.Boolean):
        raise NotRecordableError(f"an argument of type {found} cannot be written down")
    return found


def address_of(array: Array) -> int:
    """Address of the first element; a record that has it must keep the array, see `Recording.kept`."""
    address: int = array.__array_interface__["data"][0]
    return address


class _State(threading.local):
    recording: Recording | None = None


_state = _State()


def recording() -> Recording | None:
    """The recording of this thread; None while it computes."""
    return _state.recording


@contextmanager
def recorded(into: Recording) -> Iterator[Recording]:
    """Have this thread write down the calls of kernels within the context, instead of making them."""
    before, _state.recording = _state.recording, into
    try:
        yield into
    finally:
        _state.recording = before


def needs_interpreter() -> None:
    """Say that a kernel does something that is none of its calls, or looks at numbers in arrays.

    Raises:
        NotRecordableError: this thread records
    """
    if _state.recording is not None:
        raise NotRecordableError("a kernel does more than to call others")
