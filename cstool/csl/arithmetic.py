"""What operators and conversions give: the types, and the values where they are known.

Rules (SDK 2.10 documentation, "Type System in CSL" and "Builtins", where it says; else Zig's, from which CSL comes):

- `comptime_int` never overflows. Beside an integer of fixed width it becomes that type and must fit; beside a float it
  becomes that float. `comptime_float` becomes the float beside it.
- Integers of fixed width: what is known at compile time must fit its type, so overflow is an error there. `+%`, `-%`
  and `*%` wrap. At run time all wrap.
- `/` and `%` on integers round towards zero; the remainder has the sign of the left side.
- A type becomes another without `@as` where all its values are among the other's (i16 -> i32, u8 -> i16, f16 -> f32).
  A known value becomes another integer type if it fits. Nothing else becomes something else unasked.
- `@as` converts between numbers and bool; to an integer of fewer bits it drops bits; a float is rounded towards zero.
"""

import math
import operator as python
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from cstool.csl import types, values
from cstool.csl.source import CslError, Place
from cstool.csl.types import (
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
from cstool.csl.values import Value, describe
from cstool.fabric.numbers import f16, f32, wrap
from cstool.words import did_you_mean

ARITHMETIC = frozenset({"+", "-", "*", "/", "%"})
WRAPPING = frozenset({"+%", "-%", "*%"})
BITWISE = frozenset({"&", "|", "^"})
SHIFTS = frozenset({"<<", ">>"})
ORDER = frozenset({"<", "<=", ">", ">="})
EQUALITY = frozenset({"==", "!="})
LOGIC = frozenset({"and", "or"})


class Operation(NamedTuple):
    """Types of a binary operation.

    Args:
        left, right: what each side is converted to first (`coerce`); equal, but for shifts, `++` and `**`
        result: of the operation
    """

    left: Type
    right: Type
    result: Type


def holds(wide: Type, narrow: Type) -> bool:
    """Whether every value of the number type `narrow` is one of `wide`, so that it converts unasked."""
    if wide == narrow:
        return True
    if isinstance(wide, IntType) and isinstance(narrow, IntType):
        return wide.least <= narrow.least and narrow.most <= wide.most
    if isinstance(wide, FloatType):
        return narrow in (COMPTIME_INT, COMPTIME_FLOAT) or (wide.name == "f32" and isinstance(narrow, FloatType))
    if wide == COMPTIME_FLOAT:
        return narrow == COMPTIME_INT
    return isinstance(wide, IntType) and narrow == COMPTIME_INT


def common_type(left: Type, right: Type, left_data: Any = None, right_data: Any = None) -> Type | None:
    """The type that two numbers are brought to, or None.

    Args:
        left, right: their types
        left_data, right_data: their data, where known: an integer that is known may take the other's type if it fits
    """
    if left == right:
        return left
    if holds(left, right):
        return left
    if holds(right, left):
        return right
    if isinstance(left, IntType) and isinstance(right, IntType):
        if right_data is not None and left.least <= right_data <= left.most:
            return left
        if left_data is not None and right.least <= left_data <= right.most:
            return right
    return None


def operation(
    operator: str, left: Type, right: Type, place: Place | None, left_data: Any = None, right_data: Any = None
) -> Operation:
    """The types of `left operator right`; the data of a side, where known, lets an integer take the other's type.

    Raises:
        CslError: the operator is not defined on them.
    """
    if operator in LOGIC:
        if left == right == BOOL:
            return Operation(BOOL, BOOL, BOOL)
        raise _no_operator(operator, left, right, place, "compare with 0, or use & and | on integers")
    if operator in SHIFTS:
        if types.is_int(left) and types.is_int(right):
            return Operation(left, right, left)
        raise _no_operator(operator, left, right, place)
    if operator in ("++", "**"):
        return _sequence_operation(operator, left, right, place)
    common = _common_operand(operator, left, right, left_data, right_data)
    if common is None:
        raise _no_operator(operator, left, right, place)
    return Operation(common, common, BOOL if operator in ORDER or operator in EQUALITY else common)


def result_type(operator: str, left: Type, right: Type, place: Place | None) -> Type:
    """The type of `left operator right`; see `operation`."""
    return operation(operator, left, right, place).result


def _common_operand(operator: str, left: Type, right: Type, left_data: Any, right_data: Any) -> Type | None:
    if types.is_number(left) and types.is_number(right):
        common = common_type(left, right, left_data, right_data)
        if common is not None and operator in BITWISE | WRAPPING and not types.is_int(common):
            return None
        return common
    if operator in BITWISE and left == right == BOOL:
        return BOOL
    if operator in EQUALITY:
        return _common_equal(left, right)
    return None


def _common_equal(left: Type, right: Type) -> Type | None:
    if left == right and not isinstance(left, ArrayType | StructType):
        return left
    for one, other in ((left, right), (right, left)):
        if isinstance(one, EnumType) and other == types.ENUM_LITERAL:
            return one
        if isinstance(one, PointerType) and isinstance(other, PointerType) and pointer_coerces(one, other):
            return other
    return None


def _sequence_operation(operator: str, left: Type, right: Type, place: Place | None) -> Operation:
    if operator == "++":
        if left == right == types.STRING:
            return Operation(left, right, left)
        if isinstance(left, ArrayType) and isinstance(right, ArrayType) and left.element == right.element:
            return Operation(left, right, ArrayType((left.count + right.count,), left.element))
    raise _no_operator(operator, left, right, place)


def _no_operator(operator: str, left: Type, right: Type, place: Place | None, hint: str | None = None) -> CslError:
    if hint is None and left != right and types.is_number(left) and types.is_number(right):
        hint = f"convert one side: @as({left if isinstance(left, IntType | FloatType) else right}, ...)"
    return CslError(f"no operator '{operator}' on {left} and {right}", place, hint)


# --- rounding and fitting ---


def round_float(type_: Type, value: float) -> float:
    """`value` as a float of `type_` has it."""
    if type_ == types.F32:
        return f32(value)
    if type_ == types.F16:
        return f16(value)
    if type_ == types.BF16:
        return _bf16(value)
    return value


def _bf16(value: float) -> float:
    raw = int.from_bytes(struct.pack("<f", f32(value)), "little")
    if math.isfinite(value):
        raw += 0x7FFF + ((raw >> 16) & 1)
    return float(struct.unpack("<f", (raw & 0xFFFF0000).to_bytes(4, "little"))[0])


def fit(type_: IntType, value: int, place: Place | None, what: str = "the value") -> int:
    """`value`, if it is one of `type_`.

    Raises:
        CslError: it is not.
    """
    if type_.least <= value <= type_.most:
        return value
    raise CslError(
        f"{what} must fit {type_} ({type_.least} to {type_.most}), got {value}",
        place,
        f"use a wider type, or @as({type_}, ...) to drop bits" if value >= 0 or type_.signed else None,
    )


# --- folding ---

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
    "==": python.eq,
    "!=": python.ne,
}
COMBINE: dict[str, Callable[[int, int], int]] = {
    "+": python.add,
    "-": python.sub,
    "*": python.mul,
    "&": python.and_,
    "|": python.or_,
    "^": python.xor,
}


def divide(left: int, right: int) -> int:
    """`left / right`, rounded towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int, right: int) -> int:
    """What `divide` leaves: it has the sign of `left`."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def binary(operator: str, left: Value, right: Value, place: Place | None) -> Value:
    """`left operator right`, folded.

    Raises:
        CslError: the operator is not defined on them, an integer overflows, or a divisor is zero.
    """
    if left[0] is right[0] and left[0] is COMPTIME_INT and operator in COMBINE:
        return COMPTIME_INT, COMBINE[operator](left[1], right[1])
    if left[0] == types.TYPE and right[0] == types.TYPE and operator in EQUALITY:
        return BOOL, (left[1] == right[1]) == (operator == "==")
    how = operation(operator, left[0], right[0], place, left[1], right[1])
    if operator in SHIFTS:
        return how.result, _shift(operator, how.result, left[1], right[1], place)
    if operator == "++":
        return how.result, left[1] + right[1]
    left_data = coerce(left, how.left, place)[1]
    right_data = coerce(right, how.right, place)[1]
    if operator in COMPARE:
        return BOOL, bool(COMPARE[operator](left_data, right_data))
    if operator in LOGIC:
        return BOOL, (left_data and right_data) if operator == "and" else (left_data or right_data)
    if types.is_float(how.result):
        return how.result, _float_operation(operator, how.result, left_data, right_data, place)
    return how.result, _integer_operation(operator, how.result, left_data, right_data, place)


def _integer_operation(operator: str, type_: Type, left: int, right: int, place: Place | None) -> int | bool:
    if operator in WRAPPING:
        result = COMBINE[operator[0]](left, right)
        return wrap(result, type_.bits, type_.signed) if isinstance(type_, IntType) else result
    if operator in ("/", "%"):
        if right == 0:
            raise CslError(f"a divisor is not zero, got {left} {operator} 0", place)
        result = divide(left, right) if operator == "/" else remainder(left, right)
    else:
        result = COMBINE[operator](left, right)
    if isinstance(type_, IntType) and not type_.least <= result <= type_.most:
        fit(type_, result, place, f"{left} {operator} {right}")
    return result


def _float_operation(operator: str, type_: Type, left: float, right: float, place: Place | None) -> float:
    if operator == "/":
        if right == 0.0:
            if left == 0.0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        result = left / right
    elif operator == "%":
        result = math.nan if right == 0.0 or math.isinf(left) else math.fmod(left, right)
    elif operator in "+-*":
        result = {"+": python.add, "-": python.sub, "*": python.mul}[operator](left, right)
    else:
        raise _no_operator(operator, type_, type_, place)
    return round_float(type_, result)


def _shift(operator: str, type_: Type, left: int, right: int, place: Place | None) -> int:
    if right < 0:
        raise CslError(f"a shift is by 0 or more bits, got {right}", place)
    if isinstance(type_, IntType):
        if right >= type_.bits:
            raise CslError(f"a shift of {type_} is by less than {type_.bits} bits, got {right}", place)
        return wrap(left << right, type_.bits, type_.signed) if operator == "<<" else left >> right
    if right > 1 << 16:
        raise CslError(f"a shift is by at most 65536 bits, got {right}", place)
    return left << right if operator == "<<" else left >> right


def unary_type(operator: str, type_: Type, place: Place | None) -> Type:
    """The type of `operator x`: `-`, `~` or `!`.

    Raises:
        CslError: the operator is not defined on it.
    """
    if (
        (operator == "-" and types.is_number(type_))
        or (operator == "~" and types.is_int(type_))
        or (operator == "!" and type_ == BOOL)
    ):
        return type_
    raise CslError(f"no operator '{operator}' on {type_}", place)


def unary(operator: str, value: Value, place: Place | None) -> Value:
    """`operator value`, folded."""
    type_, data = value
    unary_type(operator, type_, place)
    if operator == "!":
        return BOOL, not data
    if operator == "-":
        if isinstance(type_, IntType):
            return type_, fit(type_, -data, place, f"-({data})")
        return type_, -data
    if isinstance(type_, IntType):
        return type_, wrap(~data, type_.bits, type_.signed)
    return type_, ~data


# --- conversions ---


def pointer_coerces(source: PointerType, target: PointerType) -> bool:
    """Whether a pointer becomes another unasked: to an array -> to many of its elements; to const."""
    if source.const and not target.const:
        return False
    if source.pointee == target.pointee and (source.many == target.many or target.many):
        return True
    pointee = source.pointee
    if isinstance(pointee, FunctionType):
        return coerces(pointee, target.pointee)
    return target.many and isinstance(pointee, ArrayType) and pointee.element == target.pointee


def coerces(source: Type, target: Type) -> bool:
    """Whether any value of type `source`, known or not, becomes `target` unasked."""
    if source == target or target == types.ANYTYPE or source == types.UNDEFINED:
        return True
    if types.is_number(source) and types.is_number(target):
        return holds(target, source)
    if isinstance(source, PointerType) and isinstance(target, PointerType):
        return pointer_coerces(source, target)
    if isinstance(source, FunctionType) and isinstance(target, FunctionType):
        return source.parameters == target.parameters and source.result == target.result
    return target == types.STRUCT and isinstance(source, StructType)


def coerce(value: Value, target: Type, place: Place | None, what: str = "the value") -> Value:
    """A known value as a value of type `target`, unasked.

    Args:
        value: it
        target: type
        place: of the value, for messages
        what: as messages call it: "parameter 'x'"

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
    """The error of something that is not of the type that it must be."""
    hint = None
    if types.is_number(source) and types.is_number(target):
        hint = f"convert it: @as({target}, ...)"
    elif isinstance(source, PointerType) and isinstance(target, PointerType):
        hint = f"convert it: @ptrcast({target}, ...)"
    elif target == types.COLOR and types.is_int(source):
        hint = "make a color of it: @get_color(...)"
    return CslError(f"{what} must be {target}, got {got}", place, hint)


def enum_member(type_: EnumType, name: str, place: Place | None) -> int:
    """The number of a member.

    Raises:
        CslError: the enum has none of the name.
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
    if isinstance(target, IntType):
        return target, wrap(_truncate(data, place), target.bits, target.signed)
    if target == COMPTIME_INT:
        return target, _truncate(data, place)
    if types.is_float(target):
        return target, round_float(target, _to_float(data))
    return coerce(value, target, place)


def check_cast(source: Type, target: Type, place: Place | None) -> None:
    """Whether `@as(target, x)` is defined for an x of type `source`; values need not be known.

    Raises:
        CslError: it is not.
    """
    numeric = (types.is_number(source) or source == BOOL) and (types.is_number(target) or target == BOOL)
    if numeric or coerces(source, target):
        return
    if (isinstance(target, EnumType) and source == types.ENUM_LITERAL) or (
        source == types.STRUCT and isinstance(target, StructType | ArrayType)
    ):
        return
    hint = "the number behind it: @get_int(...)" if isinstance(source, OpaqueType) and types.is_int(target) else None
    raise CslError(f"@as converts between numbers and bool, got {source} to {target}", place, hint)


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
        source, data = int_of_bits(types.bits_of(target)), data & ((1 << types.bits_of(target)) - 1)
    elif source == COMPTIME_FLOAT:
        source, data = types.F32, f32(data)
    raw = values.to_bytes(source, data)
    if isinstance(source, IntType):
        raw = (data & ((1 << source.bits) - 1)).to_bytes(max(source.size, target.size, 1), "little")
    return target, values.from_bytes(target, raw)


def int_of_bits(bits: int) -> IntType:
    """The unsigned integer with so many bits."""
    return types.int_type(bits, False)


def check_bitcast(source: Type, target: Type, place: Place | None) -> None:
    """Whether `@bitcast(target, x)` is defined for an x of type `source`.

    Raises:
        CslError: it is not.
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
