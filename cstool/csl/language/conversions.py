"""Conversions of known values to other types: implicit (`coerce`), and by builtins (`@as`, `@bitcast`).

Rules (SDK 2.10 documentation, "Type System in CSL" and "Builtins"; where it is silent, Zig's, as CSL comes from Zig):

- A type converts to another without `@as` if the other has all its values (i16 -> i32, u8 -> i16, f16 -> f32).
  A known value becomes another integer type if it fits. There are no other implicit conversions.
- `@as` converts numbers, bool, and between integers and enums; to an integer of fewer bits it drops bits; a float is
  rounded towards zero.
"""

import math
from typing import Any

from cstool.csl.fabric.numbers import bf16, f16, f32, wrap
from cstool.csl.language import types, values
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    ArrayType,
    EnumType,
    FloatType,
    FunctionType,
    IntType,
    OpaqueType,
    PointerType,
    StructType,
    Type,
)
from cstool.csl.language.values import Value, describe
from cstool.foundation.words import did_you_mean

# --- rounding and fitting ---


def round_float(type_: Type, value: float) -> float:
    """`value` rounded to the float type `type_`."""
    if type_ == types.F32:
        return f32(value)
    if type_ == types.F16:
        return f16(value)
    if type_ == types.BF16:
        return bf16(value)
    return value


def fit(type_: IntType, value: int, place: Place | None, what: str = "the value") -> int:
    """Return `value` if the integer type has it.

    Raises:
        CslError: it does not fit.
    """
    if type_.least <= value <= type_.most:
        return value
    raise CslError(
        f"{what} must fit {type_} ({type_.least} to {type_.most}), got {value}",
        place,
        f"use a wider type, or @as({type_}, ...) to drop bits" if value >= 0 or type_.signed else None,
    )


# --- unasked ---


def holds(wide: Type, narrow: Type) -> bool:
    """Whether the number type `wide` has every value of `narrow`, so that conversion is implicit."""
    if wide == narrow:
        return True
    if isinstance(wide, IntType) and isinstance(narrow, IntType):
        return wide.least <= narrow.least and narrow.most <= wide.most
    if isinstance(wide, FloatType):
        return narrow in (COMPTIME_INT, COMPTIME_FLOAT) or (wide.name == "f32" and isinstance(narrow, FloatType))
    if wide == COMPTIME_FLOAT:
        return narrow == COMPTIME_INT
    return isinstance(wide, IntType) and narrow == COMPTIME_INT


def pointer_coerces(source: PointerType, target: PointerType) -> bool:
    """Whether a pointer converts implicitly.

    So do pointers to an array, to many of its elements; to one, to an array of one; to anything, to anyopaque or const.
    """
    if source.const and not target.const:
        return False
    if target.pointee == types.ANYOPAQUE:
        return True
    if source.pointee == target.pointee and (source.many == target.many or target.many):
        return True
    pointee = source.pointee
    if isinstance(target.pointee, ArrayType) and target.pointee.shape == (1,):
        return not source.many and target.pointee.element == pointee
    if isinstance(pointee, FunctionType):
        return coerces(pointee, target.pointee)
    return target.many and isinstance(pointee, ArrayType) and pointee.element == target.pointee


def coerces(source: Type, target: Type) -> bool:
    """Whether any value of type `source`, known or not, converts to `target` implicitly."""
    if source == target or target == types.ANYTYPE or source == types.UNDEFINED:
        return True
    if types.is_number(source) and types.is_number(target):
        return holds(target, source)
    if isinstance(source, PointerType) and isinstance(target, PointerType):
        return pointer_coerces(source, target)
    return target == types.STRUCT and isinstance(source, StructType)


def coerce(value: Value, target: Type, place: Place | None, what: str = "the value") -> Value:
    """Convert a known value to the type `target` implicitly.

    Args:
        value: the value
        target: the type
        place: place of the value, for messages
        what: its name in messages: "parameter 'x'"

    Raises:
        CslError: it does not convert.
    """
    source, data = value
    if source is target or source == target or target == types.ANYTYPE:
        return value
    if isinstance(target, IntType) and types.is_int(source):
        return target, fit(target, data, place, what)
    if types.is_float(target) and holds(target, source):
        return target, round_float(target, _to_float(data))
    if source == types.UNDEFINED:
        return target, values.zero(target)
    if isinstance(target, EnumType) and source == types.ENUM_LITERAL:
        return target, enum_member(target, data, place)
    if isinstance(target, StructType) and isinstance(data, dict):
        return target, _struct(source, data, target, place, what)
    if isinstance(target, ArrayType):
        return target, _array(value, target, place, what)
    if coerces(source, target):
        return target, data
    raise mismatch(what, target, describe(value), source, place)


def mismatch(what: str, target: Type, got: str, source: Type, place: Place | None) -> CslError:
    """The error of a value of a wrong type."""
    hint = None
    if types.is_number(source) and types.is_number(target):
        hint = f"convert it: @as({target}, ...)"
    elif types.is_int(source) and target == types.BOOL:
        hint = "compare it: x != 0"
    elif isinstance(source, PointerType) and isinstance(target, PointerType):
        hint = f"convert it: @ptrcast({target}, ...)"
    elif target == types.COLOR and types.is_int(source):
        hint = "make a color of it: @get_color(...)"
    return CslError(f"{what} must be {target}, got {got}", place, hint)


def enum_member(type_: EnumType, name: str, place: Place | None) -> int:
    """The number of a member.

    Raises:
        CslError: the enum has no such member.
    """
    value = type_.value(name)
    if value is None:
        members = [member for member, _ in type_.members]
        raise CslError(f"{type_} has the members {', '.join(members)}, got .{name}", place, did_you_mean(name, members))
    return value


def _to_float(data: Any) -> float:
    try:
        return float(data)
    except OverflowError:
        return math.inf if data > 0 else -math.inf


def _struct(
    source: Type, data: dict[str, Value], target: StructType, place: Place | None, what: str
) -> dict[str, Value]:
    if source != types.STRUCT:
        raise CslError(f"{what} must be {target}, got {source}", place)
    names = [name for name, _ in target.fields]
    for name in data:
        if name not in names:
            raise CslError(
                f"{what}: {target} has the fields {', '.join(names)}, got .{name}", place, did_you_mean(name, names)
            )
    if target.is_union:
        if len(data) != 1:
            raise CslError(f"{what}: a union is given one of its fields, got {len(data)}", place)
        name, field = next(iter(data.items()))
        return {name: coerce(field, dict(target.fields)[name], place, f"{what}, field '{name}'")}
    defaults = dict(target.defaults)
    result = {}
    for name, type_ in target.fields:
        if name in data:
            result[name] = coerce(data[name], type_, place, f"{what}, field '{name}'")
        elif name in defaults:
            result[name] = (type_, defaults[name])
        else:
            raise CslError(f"{what}: {target} needs the field '{name}', which has no default", place)
    return result


def _array(value: Value, target: ArrayType, place: Place | None, what: str) -> tuple[Any, ...]:
    source, data = value
    if source == types.STRUCT and all(name.isdigit() for name in data):
        elements = list(data.values())
        if len(elements) != target.count and len(target.shape) > 1:
            return _rows(elements, target, place, what)
    elif isinstance(source, ArrayType) and source.shape == target.shape:
        elements = [(source.element, each) for each in data]
    else:
        raise mismatch(what, target, describe(value), source, place)
    if len(elements) != target.count:
        raise CslError(f"{what} must have {target.count} elements ({target}), got {len(elements)}", place)
    return tuple(coerce(each, target.element, place, f"element {at} of {what}")[1] for at, each in enumerate(elements))


def _rows(elements: list[Value], target: ArrayType, place: Place | None, what: str) -> tuple[Any, ...]:
    if len(elements) != target.shape[0]:
        raise CslError(f"{what} must have {target.shape[0]} rows ({target}), got {len(elements)}", place)
    row = ArrayType(target.shape[1:], target.element)
    parts = [coerce(each, row, place, f"row {at} of {what}")[1] for at, each in enumerate(elements)]
    return tuple(element for part in parts for element in part)


def cast(value: Value, target: Type, place: Place | None) -> Value:
    """`@as(target, value)`.

    Raises:
        CslError: there is no such conversion.
    """
    source, data = value
    check_cast(source, target, place)
    if source == target:
        return value
    if target == BOOL:
        return BOOL, data != 0
    if isinstance(target, IntType) and types.is_int(source) and target.least <= data <= target.most:
        return target, data
    if isinstance(target, IntType):
        return target, wrap(_truncate(data, place), target.bits, target.signed)
    if target == COMPTIME_INT:
        return target, _truncate(data, place)
    if types.is_float(target):
        return target, round_float(target, _to_float(data))
    if isinstance(target, EnumType) and types.is_int(source):
        if target.member(data) is None:
            numbers = ", ".join(f"{name} = {number}" for name, number in target.members)
            raise CslError(f"{target} has no member {data}", place, f"its members: {numbers}")
        return target, data
    return coerce(value, target, place)


def check_cast(source: Type, target: Type, place: Place | None) -> None:
    """Whether `@as(target, x)` is defined for an x of type `source`; values need not be known.

    Raises:
        CslError: it is not defined.
    """
    numeric = (types.is_number(source) or source == BOOL) and (types.is_number(target) or target == BOOL)
    if numeric or coerces(source, target) or (isinstance(source, EnumType) and types.is_int(target)):
        return
    if (isinstance(target, EnumType) and (source == types.ENUM_LITERAL or types.is_int(source))) or (
        source == types.STRUCT and isinstance(target, StructType | ArrayType)
    ):
        return
    hint = "the number behind it: @get_int(...)" if isinstance(source, OpaqueType) and types.is_int(target) else None
    raise CslError(f"@as converts numbers, bool, and between integers and enums, got {source} to {target}", place, hint)


def _truncate(data: Any, place: Place | None) -> int:
    if isinstance(data, float) and not math.isfinite(data):
        raise CslError(f"@as to an integer needs a finite number, got {data}", place)
    return int(data)


def bitcast(value: Value, target: Type, place: Place | None) -> Value:
    """`@bitcast(target, value)`: the same bits.

    Raises:
        CslError: the types differ in width, or have no bits.
    """
    source, data = value
    check_bitcast(source, target, place)
    if isinstance(source, PointerType) or isinstance(target, PointerType):
        return target, data
    if source == COMPTIME_INT:
        bits = types.bits_of(target)
        source, data = types.int_type(bits, False), data & ((1 << bits) - 1)
    elif source == COMPTIME_FLOAT:
        source, data = types.F32, f32(data)
    raw = values.to_bytes(source, data)
    if isinstance(source, IntType):
        raw = (data & ((1 << source.bits) - 1)).to_bytes(max(source.size, target.size, 1), "little")
    return target, values.from_bytes(target, raw)


def check_bitcast(source: Type, target: Type, place: Place | None) -> None:
    """Whether `@bitcast(target, x)` is defined for an x of type `source`.

    Raises:
        CslError: it is not defined.
    """
    for type_ in (source, target):
        if isinstance(type_, OpaqueType) or (type_.comptime_only and type_ not in (COMPTIME_INT, COMPTIME_FLOAT)):
            raise CslError(f"@bitcast is for numbers, bool, packed structs and pointers, got {type_}", place)
    if target in (COMPTIME_INT, COMPTIME_FLOAT):
        raise CslError(f"@bitcast needs a type of fixed width, got {target}", place)
    if source == COMPTIME_INT or (source == COMPTIME_FLOAT and types.bits_of(target) == 32):
        return
    if types.bits_of(source) != types.bits_of(target):
        raise CslError(
            f"@bitcast keeps the number of bits, got {source} ({types.bits_of(source)}) to "
            f"{target} ({types.bits_of(target)})",
            place,
        )
