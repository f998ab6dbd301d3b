"""Compilers of expressions: names, literals of one word, operators."""

from collections.abc import Callable
from typing import Any

from cstool.csl.fabric.arch import PORTS
from cstool.csl.language import arithmetic, syntax, types, values
from cstool.csl.language.evaluate_core import (
    EXPRESSIONS,
    Code,
    Frame,
    Local,
    NotKnown,
    Run,
    RunTime,
    Scope,
    constant,
    mapped,
)
from cstool.csl.language.guesses import hint_for
from cstool.csl.language.module import Constant, Module, Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import BOOL, COMPTIME_INT, IntType, Type
from cstool.csl.language.values import FALSE, TRUE, Value

LANGUAGE: dict[str, Value] = {
    "true": TRUE,
    "false": FALSE,
    "undefined": values.UNDEFINED,
    **{port: (types.DIRECTION, number) for number, port in enumerate(PORTS)},
}
"""Names that the language has, beside types."""


def language_name(name: str) -> Value | None:
    """The value of a name of the language; None if it is no such name."""
    found = LANGUAGE.get(name)
    if found is None:
        type_ = types.named_type(name)
        found = None if type_ is None else (types.TYPE, type_)
    return found


def resolve(node: syntax.Expression, scope: Scope) -> Local | Value | RunTime | Constant | Variable | None:
    """The meaning of a name, or a name of a module (`m.x`); None for any other expression.

    Raises:
        CslError: the name is unknown.
    """
    if isinstance(node, syntax.Name):
        return _resolve_name(node.name, node.place, scope)
    if isinstance(node, syntax.Field):
        base = resolve(node.base, scope)
        value: Any = base.value if isinstance(base, Constant) else base
        if isinstance(value, tuple) and not isinstance(value, Local) and value[0] == types.MODULE:
            module: Module = value[1]
            return module.lookup(node.name, node.place)
    return None


def _resolve_name(name: str, place: Place, scope: Scope) -> Local | Value | RunTime | Constant | Variable:
    found = scope.find(name)
    if found is not None:
        return found
    binding = scope.module.find(name)
    if binding is not None:
        return binding
    value = language_name(name)
    if value is None:
        known = [*scope.module.declarations, *_local_names(scope), *LANGUAGE, *types.NAMED]
        raise CslError(f"unknown name '{name}'", place, hint_for(name, scope.module, known))
    return value


def _local_names(scope: Scope) -> list[str]:
    names: list[str] = []
    inner: Scope | None = scope
    while inner is not None:
        names += inner.names
        inner = inner.parent
    return names


def not_known(name: str, place: Place) -> NotKnown:
    """The error of a variable whose value is needed at compile time."""
    return NotKnown(
        f"'{name}' must be known at compile time, it is a variable of run time",
        place,
        "const, param and comptime var are known at compile time",
    )


def load(what: Local | Value | RunTime | Constant | Variable, name: str, place: Place, scope: Scope) -> Code:
    """Code that gives the value of a result of `resolve`."""
    if isinstance(what, Local):
        slot = what.slot
        return Code((lambda frame: kept(frame[slot])) if what.changes else (lambda frame: frame[slot]))
    if isinstance(what, Constant):
        return constant(what.value)
    if isinstance(what, Variable | RunTime):
        raise not_known(name, place)
    holder = scope.holder(name)
    if holder is not None and name in holder.changing:
        names: dict[str, Any] = holder.names
        return Code(lambda frame: names[name])
    return constant(what)


def kept(value: Value) -> Value:
    """The value of a local: an array that is being filled is a list, and changes no more from now on."""
    return (value[0], tuple(value[1])) if value[1].__class__ is list else value


@EXPRESSIONS.at(syntax.Name)
def _name(node: syntax.Name, scope: Scope) -> Code:
    return load(_resolve_name(node.name, node.place, scope), node.name, node.place, scope)


@EXPRESSIONS.at(syntax.Number)
def _number(node: syntax.Number, scope: Scope) -> Code:  # noqa: ARG001
    return constant((types.COMPTIME_FLOAT if isinstance(node.value, float) else COMPTIME_INT, node.value))


@EXPRESSIONS.at(syntax.String)
def _string(node: syntax.String, scope: Scope) -> Code:  # noqa: ARG001
    return constant((types.STRING, node.value))


@EXPRESSIONS.at(syntax.EnumLiteral)
def _enum_literal(node: syntax.EnumLiteral, scope: Scope) -> Code:  # noqa: ARG001
    return constant((types.ENUM_LITERAL, node.name))


@EXPRESSIONS.at(syntax.Comptime)
def _comptime(node: syntax.Comptime, scope: Scope) -> Code:
    return scope.child(calls=True).expression(node.expression)


# --- operators ---


@EXPRESSIONS.at(syntax.Binary)
def _binary(node: syntax.Binary, scope: Scope) -> Code:
    if node.operator in arithmetic.LOGIC:
        return _logic(node, scope)
    if node.operator == "...":
        raise CslError("a range a...b stands in a case of a switch alone", node.place, "for loops take @range(T, n)")
    left, right = scope.expression(node.left), scope.expression(node.right)
    if left.value is not None and right.value is not None:
        return constant(arithmetic.binary(node.operator, left.value, right.value, node.place))
    operator = node.operator
    if operator in arithmetic.COMPARE or operator in ("+", "-", "*"):
        return Code(_fast(operator, left.run, right, node.place))
    place, left_run, right_run = node.place, left.run, right.run
    if operator == "%" and right.value is not None and isinstance(right.value[1], int) and right.value[1] > 0:
        return Code(_modulo(left_run, right.value, place))
    return Code(lambda frame: arithmetic.binary(operator, left_run(frame), right_run(frame), place))


def _modulo(left: Run, right: Value, place: Place) -> Run:
    divisor = right[1]
    known: Type | None = None

    def run(frame: Frame) -> Value:
        nonlocal known
        value = left(frame)
        if value[0] is known and value[1] >= 0:
            return value[0], value[1] % divisor
        result = arithmetic.binary("%", value, right, place)
        if types.is_int(value[0]) and result[0] is value[0]:
            known = value[0]
        return result

    return run


def _fast(operator: str, left: Run, right_code: Code, place: Place) -> Run:
    """Both types are checked once; while they stay the same, integers are compared, added and multiplied at once."""
    compares = operator in arithmetic.COMPARE
    compute: Callable[[Any, Any], Any] = (arithmetic.COMPARE if compares else arithmetic.COMBINE)[operator]
    right = right_code.run
    known_left: Type | None = None
    known_right: Type | None = None
    least = most = 0

    def run(frame: Frame) -> Value:
        nonlocal known_left, known_right, least, most
        a, b = left(frame), right(frame)
        if a[0] is known_left and b[0] is known_right:
            result = compute(a[1], b[1])
            if compares:
                return TRUE if result else FALSE
            if least <= result <= most:
                return a[0], result
        value = arithmetic.binary(operator, a, b, place)
        type_ = a[0]
        if _stay_ints(type_, b[0], right_code):
            if isinstance(type_, IntType):
                known_left, known_right, least, most = type_, b[0], type_.least, type_.most
            elif compares:
                known_left, known_right = type_, b[0]
        return value

    return run


def _stay_ints(left: Type, right: Type, right_code: Code) -> bool:
    """Whether integers of these types never need conversion: a constant that fits once does ever."""
    return types.is_int(left) and (left is right or (right is COMPTIME_INT and right_code.value is not None))


def _logic(node: syntax.Binary, scope: Scope) -> Code:
    left = scope.expression(node.left)
    stop = FALSE if node.operator == "and" else TRUE
    place, left_run = node.place, left.run

    def check(value: Value) -> Value:
        if value[0] is not BOOL and value[0] != BOOL:
            arithmetic.operation(node.operator, value[0], BOOL, place)
        return value

    if left.value is not None:
        if check(left.value)[1] == stop[1]:
            return constant(stop)
        return mapped(check, scope.expression(node.right))
    later = scope.lazy(node.right, Scope.run_of)

    def run(frame: Frame) -> Value:
        value = left_run(frame)
        if check(value)[1] == stop[1]:
            return stop
        return check(later(frame))

    return Code(run)
