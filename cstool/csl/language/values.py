"""Values known at compile time, and their bytes in SRAM.

A value is a pair (type, data). Data by type:

- integers, `comptime_int`, handles (color, task ids, queues, `ut_id`, direction), enum members: int
- floats: float, rounded to the type; bool: bool; strings: str; void: None; types: a `Type`
- arrays: a flat tuple of the elements' data, row-major
- structs, named or not: a dict from field name to value; positional fields are "0", "1", ...; a union has the one
  field that was set last
- pointers: int, the byte address in SRAM; or a `Reference` to a variable of a function that runs at compile time
- DSDs, DSRs, FIFOs: operands of `fabric.dsd`
- functions and tasks: `FunctionValue`; modules: `Module`; ranges: (element type, Python range)
- enum literals whose enum is not known yet: the member's name
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.csl.language import types
from cstool.csl.language.syntax import Function
from cstool.csl.language.types import Type

if TYPE_CHECKING:
    from cstool.csl.language.module import Module

Value = tuple[Type, Any]
"""A value known at compile time: its type, its data."""

VOID: Value = (types.VOID, None)
TRUE: Value = (types.BOOL, True)
FALSE: Value = (types.BOOL, False)
UNDEFINED: Value = (types.UNDEFINED, None)


class FunctionValue(NamedTuple):
    """A function or task of a module, not specialised."""

    declaration: Function
    module: "Module"


@dataclass(frozen=True, eq=False)
class Reference:
    """A pointer to a variable, or a part of one, of a function that runs at compile time."""

    get: Callable[[], Value]
    set: Callable[[Value], None]


def integer(value: int) -> Value:
    """A `comptime_int`."""
    return types.COMPTIME_INT, value


def fields_of(value: Value) -> dict[str, Value] | None:
    """The fields of a struct, by name; None for a value that is no struct."""
    data = value[1]
    return data if isinstance(data, dict) else None


def zero(type_: Type) -> Any:
    """Data of a type with all bits zero."""
    if isinstance(type_, types.ArrayType):
        return (zero(type_.element),) * type_.count
    if isinstance(type_, types.StructType):
        fields = type_.fields[:1] if type_.is_union else type_.fields
        return {name: (field, zero(field)) for name, field in fields}
    if types.is_float(type_):
        return 0.0
    if type_ == types.BOOL:
        return False
    if type_ in (types.MEM1D, types.MEM4D, types.FABIN, types.FABOUT, types.VOID):
        return None
    return 0


_CODES = {"w": "I"}
"""letters that are others in Python's `struct`"""
_FORMATS = {letter: struct.Struct("<" + _CODES.get(letter, letter)) for letter in "bBhHiwqQfe"}


def to_bytes(type_: Type, data: Any) -> bytes:
    """`data` as it is in SRAM, little-endian; `type_.size` bytes, zero for types that are not in SRAM (a DSD)."""
    if isinstance(type_, types.ArrayType):
        element, letter = type_.element, type_.element.letter
        if letter is None or element.size != _FORMATS[letter].size or element in (types.BF16, types.CB16):
            return b"".join(to_bytes(element, each) for each in data)
        return struct.pack(f"<{len(data)}{_CODES.get(letter, letter)}", *data)
    if isinstance(type_, types.StructType):
        return _struct_bytes(type_, data)
    letter = type_.letter
    if letter is None or data is None:
        return bytes(type_.size)
    if isinstance(type_, types.FloatType) and type_.name == "bf16":
        return struct.pack("<f", data)[2:]
    if letter in "fe":
        return _FORMATS[letter].pack(data)
    return int(data).to_bytes(type_.size, "little", signed=bool(data < 0))


def _struct_bytes(type_: types.StructType, data: dict[str, Value]) -> bytes:
    if type_.is_packed:
        bits = 0
        for name, (field, value) in data.items():
            width = types.bits_of(field)
            raw = int.from_bytes(to_bytes(field, value), "little") & ((1 << width) - 1)
            bits |= raw << type_.offset(name)
        return bits.to_bytes(type_.size, "little")
    result = bytearray(type_.size)
    for name, (field, value) in data.items():
        at = type_.offset(name)
        result[at : at + field.size] = to_bytes(field, value)
    return bytes(result)


def from_bytes(type_: Type, raw: bytes) -> Any:
    """Data of `type_` from `type_.size` bytes of SRAM."""
    if isinstance(type_, types.ArrayType):
        size = type_.element.size
        return tuple(from_bytes(type_.element, raw[at : at + size]) for at in range(0, type_.size, size or 1))
    if isinstance(type_, types.StructType):
        return _struct_from_bytes(type_, raw)
    if isinstance(type_, types.FloatType):
        if type_.name == "bf16":
            return struct.unpack("<f", b"\0\0" + raw[:2])[0]
        return float(_FORMATS["f" if type_.size == 4 else "e"].unpack(raw[: type_.size])[0])
    if type_ == types.BOOL:
        return raw[0] != 0
    signed = isinstance(type_, types.IntType) and type_.signed
    value = int.from_bytes(raw[: type_.size], "little", signed=signed)
    if isinstance(type_, types.IntType) and type_.bits < 8 * type_.size:
        value &= (1 << type_.bits) - 1
        if signed and type_.bits and value >> (type_.bits - 1):
            value -= 1 << type_.bits
    return value


def _struct_from_bytes(type_: types.StructType, raw: bytes) -> dict[str, Value]:
    fields = type_.fields[:1] if type_.is_union else type_.fields
    if not type_.is_packed:
        return {
            name: (field, from_bytes(field, raw[type_.offset(name) : type_.offset(name) + field.size]))
            for name, field in fields
        }
    bits = int.from_bytes(raw, "little")
    result = {}
    for name, field in fields:
        part = (bits >> type_.offset(name)) & ((1 << types.bits_of(field)) - 1)
        result[name] = (field, from_bytes(field, part.to_bytes(max(field.size, 1), "little")))
    return result


def union_field(type_: types.StructType, data: dict[str, Value], name: str) -> Value:
    """A field of a union: the bits of the one that was set."""
    if name in data:
        return data[name]
    field = dict(type_.fields)[name]
    raw = to_bytes(type_, data)
    if type_.is_packed:
        bits = int.from_bytes(raw, "little") & ((1 << types.bits_of(field)) - 1)
        raw = bits.to_bytes(max(field.size, 1), "little")
    return field, from_bytes(field, raw)


def key_of(value: Value) -> Any:
    """A hashable key, equal for equal values."""
    type_, data = value
    if isinstance(data, dict):
        return type_, tuple((name, key_of(field)) for name, field in data.items())
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return type_, tuple(key_of((type_, each)) if isinstance(each, dict) else each for each in data)
    if isinstance(data, float):
        return type_, struct.pack("<d", data)  # 0.0 is not -0.0, and a NaN is itself
    return type_, data


def show(value: Value) -> str:
    """A value for messages, without its type."""
    type_, data = value
    if type_ == types.STRING:
        return f'"{data}"'
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(type_, types.EnumType):
        return f".{type_.member(data) or data}"
    if type_ == types.ENUM_LITERAL:
        return f".{data}"
    if type_ == types.VOID:
        return "{}"
    if isinstance(data, dict):
        positional = all(name.isdigit() for name in data)
        inner = ", ".join(show(field) if positional else f".{name} = {show(field)}" for name, field in data.items())
        return f".{{ {inner} }}" if inner else ".{}"
    if isinstance(type_, types.ArrayType):
        shown = [show((type_.element, each)) for each in data[:8]]
        return f"{type_}{{ {', '.join(shown)}{', ...' if len(data) > 8 else ''} }}"
    if isinstance(data, FunctionValue):
        return data.declaration.name
    if isinstance(data, int | float):
        return repr(data)
    return str(data)


def describe(value: Value) -> str:
    """A value for messages, with its type: `i16 5`, `comptime_struct .{ .a = 1 }`."""
    type_ = value[0]
    if type_ in (types.TYPE, types.VOID, types.UNDEFINED, types.MODULE, types.ENUM_LITERAL):
        return show(value) if type_ in (types.TYPE, types.ENUM_LITERAL) else str(type_)
    text = show(value)
    return f"{type_} {text if len(text) <= 60 else text[:57] + '...'}"
