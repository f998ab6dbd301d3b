"""Checks of a host script's arguments, before the simulator is asked."""

import operator
from enum import Enum
from typing import Any

import numpy as np

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.fabric.program import Exported
from cstool.csl.sdk.artifact import LETTERS
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.geometry import IntVector

Cell = tuple[int, int]
"""column and row"""
Point = IntVector | tuple[int, int]


def listed(what: str, names: list[Any]) -> str:
    """The alternatives, for a message."""
    return f"{what}: {', '.join(map(str, names))}" if names else f"{what}: none"


def value_of(name: str, role: str, member: Any, kind: type[Enum]) -> Any:
    """The value of a member of an enum: bits of an element on the device, or NumPy's letter of an order."""
    if not isinstance(member, kind):
        raise SdkRuntimeError(f"{name}: {role} must be a {kind.__name__}, got {member!r}")
    return member.value


def check_array(name: str, role: str, array: Any, size: int | None = None, *, halves: bool = False) -> None:
    """Check that an array of the host has `size` words of 32 bits (None: any number but 0), or of 16 with `halves`."""
    if not isinstance(array, np.ndarray):
        raise SdkRuntimeError(f"{name}: {role} must be a NumPy array, got {type(array).__name__}")
    if array.dtype.itemsize not in ((2, 4) if halves else (4,)) or array.dtype.kind not in "uif":
        kinds = "a type of 16 or 32 bits" if halves else "uint32, int32 or float32"
        raise SdkRuntimeError(
            f"{name}: {role} must be an array of {kinds}, got {array.dtype}",
            "data_type=MemcpyDataType.MEMCPY_16BIT takes 16-bit data"
            if array.dtype.itemsize == 2
            else f"make it of np.{'float32' if array.dtype.kind == 'f' else 'uint32'}",
        )
    if size is None and not array.size:
        raise SdkRuntimeError(f"{name}: {role} must have at least 1 element, got none")
    if size is not None and array.size != size:
        raise SdkRuntimeError(f"{name}: {role} must have {size} elements, got {array.size}")


def check_target(name: str, dest: Any, size: int | None = None, *, halves: bool = False) -> None:
    """Check likewise that an array of the host can be filled."""
    check_array(name, "dest", dest, size, halves=halves)
    if not (dest.flags.c_contiguous and dest.flags.writeable):
        raise SdkRuntimeError(f"{name}: dest must be contiguous and writable, it is not")


def declared(function: Exported) -> str:
    """A function with the types of its parameters."""
    return f"{function.name}({', '.join(LETTERS[letter] for letter in function.parameters)})"


def argument_of(function: Exported, number: int, letter: str, value: Any) -> int | float:
    """A scalar converted to the type of a function's parameter."""
    where = f"launch: argument {number} of {declared(function)}"
    kind = np.dtype(DTYPES[letter])
    if kind.kind == "f":
        if not isinstance(value, (float, np.floating)):
            raise SdkRuntimeError(f"{where}: must be a float, got {type(value).__name__}", f"np.{kind}(...) makes one")
        return float(kind.type(value))
    if not isinstance(value, (int, np.integer)):
        raise SdkRuntimeError(f"{where}: must be an integer, got {type(value).__name__}")
    range_ = np.iinfo(kind)
    if not range_.min <= int(value) <= range_.max:
        raise SdkRuntimeError(f"{where}: must be {range_.min} to {range_.max}, got {int(value)}")
    return int(value)


def whole_numbers(name: str, *numbers: Any) -> tuple[int, ...]:
    """Columns, rows and counts of a command: Python's integers, or NumPy's.

    Raises:
        SdkRuntimeError: one is no whole number
    """
    try:
        return tuple(operator.index(number) for number in numbers)
    except TypeError:
        raise SdkRuntimeError(f"{name}: columns, rows, counts and ids must be whole numbers, got {numbers}") from None


def point_of(what: str, point: Point) -> Cell:
    """Column and row of an IntVector, or of a pair.

    Raises:
        SdkRuntimeError: it is neither
    """
    try:
        x, y = whole_numbers(what, *point)
    except (TypeError, ValueError):
        raise SdkRuntimeError(f"{what}: an IntVector must be given, got {point!r}", "IntVector(x, y)") from None
    return x, y
