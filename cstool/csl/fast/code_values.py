"""Values of the translator: their types, and the places that they are in."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cstool.csl.fast.instructions import WORDS, Kind, Tag

INT, BOOL, U64, FLOAT, VOID = "int", "bool", "u64", "float", "void"
"""types of scalars; U64: an unsigned integer that may need all 64 bits, kept as an int64 of the same bits"""

Type: TypeAlias = str | tuple[Any, ...]
"""a scalar, the name of a class of `fabric.dsd`, "text", or the types of the parts of a tuple"""

_MOST = (1 << 63) - 1


class UntranslatableError(Exception):
    """Code that the translator does not know. Its text names it."""


class Reg(NamedTuple):
    """A word of a PE's region: `at` words behind the begin of the registers of a function; None: of the region."""

    owner: "object | None"
    at: int

    def plus(self, words: int) -> "Reg":
        """The word some words later."""
        return Reg(self.owner, self.at + words)


class Const(NamedTuple):
    """A word of the constants."""

    at: int

    def plus(self, words: int) -> "Const":
        """The word some words later."""
        return Const(self.at + words)


class Ref(NamedTuple):
    """An operand, see `instructions.Tag`."""

    place: "Reg | Const | None"
    tag: Tag


NO_REF = Ref(None, Tag.NONE)


class Label:
    """A row of the code that is not yet known."""

    def __init__(self) -> None:
        self.row = -1


class TextOf(NamedTuple):
    """A text by its number in the program."""

    at: int


@dataclass(slots=True)
class Val:
    """A value: a scalar known at translation, or a type and a place.

    Args:
        type: the type
        place: the register, or constant, of its first word
        const: the value, where it is known
        parts: of a tuple that is in no place: its parts
    """

    type: Type
    place: "Reg | Const | None" = None
    const: Any = None
    parts: "list[Val] | None" = field(default=None)


NOTHING = Val(VOID)


def size_of(type_: Type) -> int:
    """Words of a value."""
    if isinstance(type_, tuple):
        return sum(map(size_of, type_))
    return WORDS.get(type_, 0 if type_ in (VOID, "text") else 1)


def joined(one: Type | None, other: Type) -> Type:
    """The type of a variable that has values of both types."""
    if one is None or one == other:
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(joined(a, b) for a, b in zip(one, other, strict=True))
    scalars = {one, other} if isinstance(one, str) and isinstance(other, str) else {""}
    if scalars <= {INT, BOOL}:
        return INT
    if scalars <= {INT, BOOL, U64}:
        return U64
    if scalars <= {INT, BOOL, FLOAT}:
        return FLOAT
    raise UntranslatableError(f"values of types {one} and {other} in one place")


def type_of(value: Any) -> Type:
    """The type of a known scalar or text."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return U64 if value > _MOST else INT
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, str):
        return "text"
    if value is None:
        return VOID
    raise UntranslatableError(f"the constant {value!r}")


def word_of(value: Any) -> int:
    """A known scalar as a word, an int64."""
    if isinstance(value, float):
        found: int = struct.unpack("<q", struct.pack("<d", value))[0]
        return found
    number = int(value) & 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number > _MOST else number


def none_or(value: int | None) -> int:
    """A number; -1 for None."""
    return -1 if value is None else value


def record(operand: Any) -> list[int]:
    """The record of a known operand of `fabric.dsd`, see `instructions.Kind`."""
    name = type(operand).__name__
    if name == "Mem1d":
        return [Kind.MEM1D, operand.address, operand.extent, operand.stride, operand.width, operand.indexed]
    if name == "Mem4d":
        return mem4d(operand)
    if name == "FabricIn":
        return [Kind.FABIN, operand.queue, operand.extent, none_or(operand.color), *on_control(operand.on_control)]
    if name == "FabricOut":
        flags = [operand.control, operand.indexed, operand.advance_switch]
        return [Kind.FABOUT, operand.queue, operand.extent, operand.color, *map(int, flags)]
    if name == "Fifo":
        return [Kind.FIFO, operand.number]
    if name == "Pointer":
        return [Kind.POINTER, operand.address]
    raise UntranslatableError(f"the operand {operand!r}")


def on_control(action: Any) -> list[int]:
    """Four words of an `OnControl`, or of None."""
    if action is None:
        return [0, 0, -1, -1]
    return [1, int(action.terminate), none_or(action.activate), none_or(action.unblock)]


PRIORITIES = ("high", "medium", "low")


def settings_record(settings: Any) -> list[int]:
    """The words of known `Settings`."""
    return [
        none_or(settings.activate), none_or(settings.unblock), none_or(settings.microthread),
        PRIORITIES.index(settings.priority), none_or(settings.first_index), *on_control(settings.on_control),
        int(settings.saturate),
    ]  # fmt: skip


def mem4d(operand: Any) -> list[int]:
    """The record of a tensor."""
    rank = len(operand.extents)
    count = 1
    for extent in operand.extents:
        count *= extent
    extents, strides = [1] * (4 - rank) + list(operand.extents), [0] * (4 - rank) + list(operand.strides)
    return [
        Kind.MEM4D, operand.address, count, operand.first, operand.width, int(operand.indexed), rank,
        *extents, *strides, operand.wrap,
    ]  # fmt: skip


def types_text(types: Sequence[Type]) -> str:
    """Types for messages."""
    return ", ".join(str(type_) for type_ in types)
