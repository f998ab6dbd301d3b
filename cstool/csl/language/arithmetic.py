"""Results of operators: types, and values where they are known. Conversions of operands: `conversions`.

Rules (SDK 2.10 documentation, "Type System in CSL" and "Builtins"; where it is silent, Zig's, as CSL comes from Zig):

- `comptime_int` never overflows. Beside an integer of fixed width it becomes that type and must fit; beside a float it
  becomes that float. `comptime_float` becomes the float beside it.
- Integers of fixed width: a value known at compile time must fit its type, so overflow is an error there. `+%`, `-%`
  and `*%` wrap. At run time all wrap.
- `/` and `%` on integers round towards zero; the remainder has the sign of the left side.
"""

import operator as python
from collections.abc import Callable
from typing import Any, NamedTuple

from cstool.csl.fabric import scalar
from cstool.csl.fabric.numbers import wrap
from cstool.csl.language import types
from cstool.csl.language.conversions import coerce, fit, holds, pointer_coerces, round_float
from cstool.csl.language.limits import A_STRING, AN_ARRAY, MOST_BITS, MOST_CHARACTERS, MOST_ELEMENTS, check_size, whole
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import (
    BOOL,
    COMPTIME_INT,
    ArrayType,
    EnumType,
    FloatType,
    IntType,
    PointerType,
    StructType,
    Type,
)
from cstool.csl.language.values import FALSE, TRUE, Value

WRAPPING = frozenset({"+%", "-%", "*%"})
BITWISE = frozenset({"&", "|", "^"})
SHIFTS = frozenset({"<<", ">>"})
ORDER = frozenset({"<", "<=", ">", ">="})
EQUALITY = frozenset({"==", "!="})
LOGIC = frozenset({"and", "or"})


class Operation(NamedTuple):
    """Types of a binary operation.

    Args:
        left, right: type that each side is converted to first (`coerce`); equal, but for shifts, `++` and `**`
        result: of the operation
    """

    left: Type
    right: Type
    result: Type


def common_type(left: Type, right: Type, left_data: Any = None, right_data: Any = None) -> Type | None:
    """The type that two numbers are converted to, or None.

    Args:
        left, right: their types
        left_data, right_data: their data, where known: a known integer may take the other's type if it fits
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
    """The remainder of `divide`: it has the sign of `left`."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def binary(operator: str, left: Value, right: Value, place: Place | None) -> Value:
    """`left operator right`, folded.

    Raises:
        CslError: the operator is not defined on them, an integer overflows, or a divisor is zero.
    """
    if left[0] is right[0] and left[0] is COMPTIME_INT and operator in COMBINE:
        return COMPTIME_INT, whole(COMBINE[operator](left[1], right[1]), place)
    if left[0] == types.TYPE and right[0] == types.TYPE and operator in EQUALITY:
        return BOOL, (left[1] == right[1]) == (operator == "==")
    how = operation(operator, left[0], right[0], place, left[1], right[1])
    if operator in SHIFTS:
        return how.result, _shift(operator, how.result, left[1], right[1], place)
    if operator == "++":
        is_text = how.result == types.STRING
        most, what = (MOST_CHARACTERS, A_STRING) if is_text else (MOST_ELEMENTS, AN_ARRAY)
        check_size(len(left[1]) + len(right[1]), most, what, place)
        return how.result, left[1] + right[1]
    left_data = coerce(left, how.left, place)[1]
    right_data = coerce(right, how.right, place)[1]
    if operator in COMPARE:
        return TRUE if COMPARE[operator](left_data, right_data) else FALSE
    if operator in LOGIC:
        return BOOL, (left_data and right_data) if operator == "and" else (left_data or right_data)
    if types.is_float(how.result):
        return how.result, _float_operation(operator, how.result, left_data, right_data, place)
    return how.result, _integer_operation(operator, how.result, left_data, right_data, place)


def _integer_operation(operator: str, type_: Type, left: int, right: int, place: Place | None) -> int | bool:
    if operator in WRAPPING:
        result = COMBINE[operator[0]](left, right)
        return wrap(result, type_.bits, type_.signed) if isinstance(type_, IntType) else whole(result, place)
    if operator in ("/", "%"):
        if right == 0:
            raise CslError(f"a divisor is not zero, got {left} {operator} 0", place)
        result = divide(left, right) if operator == "/" else remainder(left, right)
    else:
        result = COMBINE[operator](left, right)
    if not isinstance(type_, IntType):
        return whole(result, place)
    if not type_.least <= result <= type_.most:
        fit(type_, result, place, f"{left} {operator} {right}")
    return result


def _float_operation(operator: str, type_: Type, left: float, right: float, place: Place | None) -> float:
    if operator == "/":
        result = scalar.ratio(left, right)
    elif operator == "%":
        result = scalar.modulo(left, right)
    elif operator in "+-*":
        result = {"+": python.add, "-": python.sub, "*": python.mul}[operator](left, right)
    else:
        raise _no_operator(operator, type_, type_, place)
    # SDK documentation, "Type System in CSL": only comptime_float refuses these two.
    if type_ == types.COMPTIME_FLOAT and (result != result or (operator in "/%" and right == 0)):
        what = "a divisor is not zero" if right == 0 else "a comptime_float is a number"
        raise CslError(f"{what}, got {left} {operator} {right}", place)
    return round_float(type_, result)


def _shift(operator: str, type_: Type, left: int, right: int, place: Place | None) -> int:
    if right < 0:
        raise CslError(f"a shift is by 0 or more bits, got {right}", place)
    if isinstance(type_, IntType):
        if right >= type_.bits:
            raise CslError(f"a shift of {type_} is by less than {type_.bits} bits, got {right}", place)
        return wrap(left << right, type_.bits, type_.signed) if operator == "<<" else left >> right
    if right > MOST_BITS:
        raise CslError(f"a shift is by at most {MOST_BITS:,} bits, got {right}", place)
    return whole(left << right, place) if operator == "<<" else left >> right


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
        return FALSE if data else TRUE
    if operator == "-":
        if isinstance(type_, IntType):
            return type_, fit(type_, -data, place, f"-({data})")
        return type_, -data
    if isinstance(type_, IntType):
        return type_, wrap(~data, type_.bits, type_.signed)
    return type_, ~data
