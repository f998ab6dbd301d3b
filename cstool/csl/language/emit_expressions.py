"""Operators, calls and literals as Python."""

from collections.abc import Sequence
from dataclasses import replace

from cstool.csl.language import arithmetic, costs, evaluate, syntax, types, values
from cstool.csl.language.emit_code import NOTHING, Code, Level, atom, joined, known, rounded, wrapped
from cstool.csl.language.emit_frame import EXPRESSIONS, Frame, Local
from cstool.csl.language.emit_places import address_of
from cstool.csl.language.evaluate import Scope
from cstool.csl.language.limits import FOLDED
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import FloatType, FunctionType, IntType, OpaqueType, PointerType, Type
from cstool.csl.language.values import FunctionValue
from cstool.foundation.words import counted

_ORDERED = arithmetic.ORDER | arithmetic.EQUALITY


@EXPRESSIONS.at(syntax.Unary)
def unary(frame: Frame, node: syntax.Unary, want: Type | None) -> Code:
    """`-x`, `!x`, `~x`, `&x`."""
    if node.operator == "&":
        return address_of(frame, node)
    operand = frame.expression(node.operand, want)
    type_ = arithmetic.unary_type(node.operator, operand.type, node.place)
    frame.cost(costs.ALU)
    if node.operator == "!":
        return joined(type_, f"not {operand.at(Level.NEGATED)}", [operand], level=Level.NEGATED)
    if node.operator == "-" and isinstance(type_, IntType):
        low, high = operand.bounds
        return wrapped(type_, f"-{operand.operand}", -high, -low, [operand], level=Level.PRODUCT)
    if node.operator == "~" and isinstance(type_, IntType) and not type_.signed:
        return joined(type_, f"{operand.at(Level.XOR)} ^ {hex(type_.most)}", [operand], level=Level.XOR)
    return joined(type_, f"{node.operator}{operand.operand}", [operand], level=Level.PRODUCT)


@EXPRESSIONS.at(syntax.Binary)
def binary(frame: Frame, node: syntax.Binary, want: Type | None) -> Code:
    """`a + b` and its kind."""
    if node.operator in arithmetic.LOGIC:
        return _logic(frame, node)
    hint = None if node.operator in _ORDERED else want
    left, right = frame.made((node.left, node.right), (hint, hint))
    return operate(frame, node.operator, left, right, node.place)


def operate(frame: Frame, operator: str, left: Code, right: Code, place: Place) -> Code:
    """`left operator right`; a float32 is not rounded yet."""
    if left.known and right.known:
        return known(arithmetic.binary(operator, left.pair, right.pair, place))
    left_data = left.value if left.known else None
    right_data = right.value if right.known else None
    how = arithmetic.operation(operator, left.type, right.type, place, left_data, right_data)
    frame.cost(_unit_cost(how.left, operator))
    if operator in arithmetic.SHIFTS:
        return _shift(frame, operator, left, right, place)
    left = frame.settled(left.converted(how.left, place, "the left side"))
    right = frame.settled(right.converted(how.right, place, "the right side"))
    parts = [left, right]
    if operator in _ORDERED:
        return joined(types.BOOL, f"{left.at(Level.OR)} {operator} {right.at(Level.OR)}", parts, level=Level.COMPARED)
    if isinstance(how.result, FloatType):
        return _float(how.result, operator, left, right)
    if isinstance(how.result, IntType):
        return _integer(frame, how.result, operator, left, right, place)
    if operator in arithmetic.BITWISE and how.result == types.BOOL:
        level = {"&": Level.AND, "^": Level.XOR, "|": Level.OR}[operator]
        return joined(types.BOOL, f"{left.at(level)} {operator} {right.at(level - 1)}", parts, level=level)
    raise CslError(f"no operator '{operator}' on {left.type} and {right.type} at run time", place)


def _float(type_: FloatType, operator: str, left: Code, right: Code) -> Code:
    parts = [left, right]
    if operator == "/":
        return rounded(type_, f"ratio({left.python}, {right.python})", parts, level=0)
    if operator == "%":
        return rounded(type_, f"modulo({left.python}, {right.python})", parts, level=0)
    level = Level.PRODUCT if operator == "*" else Level.SUM
    return rounded(type_, f"{left.at(level)} {operator} {right.at(level - 1)}", parts, level=level)


def _integer(frame: Frame, type_: IntType, operator: str, left: Code, right: Code, place: Place) -> Code:
    parts = [left, right]
    sign = operator[0]
    if sign in "+-*":
        return _ring(type_, sign, left, right)
    if sign in "/%":
        return _division(frame, type_, sign, left, right, place)
    a, b = left.bounds
    c, d = right.bounds
    level = {"&": Level.AND, "^": Level.XOR, "|": Level.OR}[sign]
    text = f"{left.at(level)} {sign} {right.at(level - 1)}"
    if sign == "&" and (a >= 0 or c >= 0):
        most = min(each for each, least in ((b, a), (d, c)) if least >= 0)
        return joined(type_, text, parts, level=level, low=0, high=most)
    return joined(type_, text, parts, level=level)


_LARGE = 1 << 60
"""bound below which integers are quick in Python"""


def _ring(type_: IntType, sign: str, left: Code, right: Code) -> Code:
    """`+`, `-`, `*`: operands need not wrap before the result does, as long as they are not large."""
    level = Level.PRODUCT if sign == "*" else Level.SUM
    for loose in (True, False):
        first, one, (a, b) = _side(left, loose)
        second, other, (c, d) = _side(right, loose)
        ends = {"+": (a + c, b + d), "-": (a - d, b - c), "*": (a * c, a * d, b * c, b * d)}[sign]
        if min(ends) > -_LARGE and max(ends) < _LARGE:
            break
    first = first if one <= level else f"({first})"
    second = second if other < level else f"({second})"
    return wrapped(type_, f"{first} {sign} {second}", min(ends), max(ends), [left, right], level=level)


def _side(code: Code, loose: bool) -> tuple[str, int, tuple[int, int]]:
    """Text, level and bounds of a side, before it wraps if it may be `loose`."""
    if loose and code.loose is not None:
        text, level, low, high = code.loose
        return text, level, (low, high)
    return code.python, Level.ATOM if code.known else code.level, code.bounds


def _division(frame: Frame, type_: IntType, sign: str, left: Code, right: Code, place: Place) -> Code:
    parts = [left, right]
    a, b = left.bounds
    c, d = right.bounds
    if a >= 0 and c > 0:
        text = f"{left.at(Level.PRODUCT)} {'//' if sign == '/' else '%'} {right.operand}"
        high = b // c if sign == "/" else min(b, d - 1)
        return joined(type_, text, parts, level=Level.PRODUCT, low=0, high=high)
    name = "quotient" if sign == "/" else "remainder"
    text = f"{name}(pe, {frame.where(place)}, {left.python}, {right.python})"
    if sign == "/" and a == type_.least and type_.signed and c <= -1 <= d:
        # The least integer divided by -1 is one more than the most.
        return wrapped(type_, text, type_.least, type_.most + 1, parts, level=Level.ATOM)
    return atom(type_, text, parts)


def _shift(frame: Frame, operator: str, left: Code, right: Code, place: Place) -> Code:
    type_ = left.type
    if not isinstance(type_, IntType):
        raise CslError(f"what is shifted at run time must have a type, got {type_}", place, "say @as(u16, ...)")
    if right.known:
        if not 0 <= right.value < max(type_.bits, 1):
            raise CslError(f"a shift of {type_} is by 0 to {type_.bits - 1} bits, got {right.value}", place)
        count, low, high = repr(right.value), right.value, right.value
    else:
        low, high = right.bounds
        count = right.at(Level.SUM)
        if low < 0 or high > 64:
            count, low, high = f"shift(pe, {frame.where(place)}, {right.python})", 0, 64
    a, b = left.bounds
    parts = [left, right]
    if operator == ">>":
        ends = (a >> low, a >> high, b >> low, b >> high)
        return joined(
            type_, f"{left.at(Level.SHIFT)} >> {count}", parts, level=Level.SHIFT, low=min(ends), high=max(ends)
        )
    corners = (a << low, a << high, b << low, b << high)
    return wrapped(type_, f"{left.at(Level.SHIFT)} << {count}", min(corners), max(corners), parts, level=Level.SHIFT)


def _logic(frame: Frame, node: syntax.Binary) -> Code:
    word = node.operator
    left = frame.typed(node.left, types.BOOL, f"the left side of '{word}'")
    if left.known:
        if left.value == (word == "or"):
            return left
        return frame.typed(node.right, types.BOOL, f"the right side of '{word}'")
    frame.cost(costs.ALU)
    right, lines, cycles = frame.captured(lambda: frame.typed(node.right, types.BOOL, f"the right side of '{word}'"))
    if not lines:
        frame.pending += cycles
        level = Level.BOTH if word == "and" else Level.EITHER
        return joined(types.BOOL, f"{left.at(level)} {word} {right.at(level)}", [left, right], level=level)
    name = frame.fresh("both" if word == "and" else "either")
    frame.timed(f"{name} = {left.text}")
    with frame.indented(f"if {name}:" if word == "and" else f"if not {name}:"):
        right = frame.typed(node.right, types.BOOL, f"the right side of '{word}'")
        frame.line(f"{name} = {right.python}")
    return Code(types.BOOL, name)


@EXPRESSIONS.at(syntax.Comptime)
def comptime(frame: Frame, node: syntax.Comptime, want: Type | None) -> Code:  # noqa: ARG001
    """`comptime x`: x must be known."""
    return known(evaluate.evaluate(node.expression, frame.scope))


@EXPRESSIONS.at(syntax.StructLiteral)
def struct_literal(frame: Frame, node: syntax.StructLiteral, want: Type | None) -> Code:
    """`.{ .a = x }`, `T{ .a = x }`, `[3]i16{ x, y, z }`, some parts known at run time alone."""
    type_ = None if node.type is None else _literal_type(frame, node)
    names = [name for name, _ in node.fields]
    wants = [_field_want(want if type_ is None else type_, name) for name in names]
    made = frame.made([each for _, each in node.fields], wants)
    code = Code(types.STRUCT, fields=dict(zip(names, made, strict=True)))
    return code if type_ is None else code.converted(type_, node.place)


def _literal_type(frame: Frame, node: syntax.StructLiteral) -> Type:
    assert node.type is not None
    if isinstance(node.type, syntax.ArrayType) and None in node.type.extents:
        element = evaluate.evaluate_type(node.type.element, frame.scope)
        return types.ArrayType((len(node.fields),), element)
    return evaluate.evaluate_type(node.type, frame.scope)


def _field_want(type_: Type | None, name: str) -> Type | None:
    if isinstance(type_, types.StructType):
        return type_.field(name)
    return type_.element if isinstance(type_, types.ArrayType) else None


def _unit_cost(type_: Type, operator: str) -> int:
    """Cycles of an operator."""
    if operator in ("/", "%"):
        if types.is_float(type_):
            return costs.DIVIDE_F32 if type_ == types.F32 else costs.DIVIDE_F16
        return costs.DIVIDE_INT
    return costs.ALU * max(1, -(-types.bits_of(type_) // 32))


# --- calls ---


@EXPRESSIONS.at(syntax.Call)
def call(frame: Frame, node: syntax.Call, want: Type | None) -> Code:  # noqa: ARG001
    """`f(a, b)`."""
    function = _callee(frame, node)
    if isinstance(function, Code):
        return _call_by_pointer(frame, function, node)
    generic = evaluate.function_type(function)
    declared = function.declaration
    if declared.kind == "task":
        raise CslError(
            f"a task is activated, not called, got {declared.name}()", node.place, "bind it to an id and @activate that"
        )
    made = frame.made(node.arguments, generic.parameters)
    return call_with(frame, function, made, node)


def _callee(frame: Frame, node: syntax.Call) -> FunctionValue | Code:
    """The called function; or, where it is known at run time alone, the pointer to it."""
    target = node.function.pointer if isinstance(node.function, syntax.Dereference) else node.function
    value = evaluate.try_comptime(target, frame.scope)
    if value is None:
        pointer = frame.expression(target)
        if types.points_to_function(pointer.type):
            return pointer
        raise CslError(f"only a function can be called, got {pointer.type}", node.place)
    if types.points_to_function(value[0]):
        return frame.program.instance.function_at(value[1])
    if not isinstance(value[1], FunctionValue):
        raise CslError(f"only a function can be called, got {values.describe(value)}", node.place)
    return value[1]


def _call_by_pointer(frame: Frame, pointer: Code, node: syntax.Call) -> Code:
    assert isinstance(pointer.type, PointerType)
    function = pointer.type.pointee
    assert isinstance(function, FunctionType)
    assert function.result is not None
    if function.kind == "task":
        raise CslError("a task is activated, not called", node.place, "@activate(p)")
    if len(node.arguments) != len(function.parameters):
        wanted = counted(len(function.parameters), "argument")
        raise CslError(f"{function} takes {wanted}, got {len(node.arguments)}", node.place)
    passed = []
    made = frame.made(node.arguments, function.parameters)
    for argument, code, type_ in zip(node.arguments, made, function.parameters, strict=True):
        assert type_ is not None
        passed.append(frame.settled(code.converted(type_, argument.place)))
    failure = f"pe.fail('a pointer that is called points to a function, got another', {frame.where(node.place)})"
    target = f"(FUNCTIONS.get({pointer.python}) or {failure})"
    waiting = "(yield from finished({}))" if frame.program.pointers_wait else None
    return _called(frame, function.result, target, passed, waiting)


def _called(frame: Frame, result: Type, target: str, passed: Sequence[Code], waiting: str | None) -> Code:
    """The value of a call; `waiting` is the form of one that may wait."""
    frame.cost(costs.CALL + len(passed) * costs.ALU, 1 + len(passed))
    frame.tick()
    text = f"{target}({', '.join(code.python for code in passed)})"
    if waiting is not None:
        frame.waits = True
        text = waiting.format(text)
    frame.effects += 1
    return Code(result, text, calls=True, reads=True)


def call_with(frame: Frame, function: FunctionValue, arguments: Sequence[Code], node: syntax.Expression) -> Code:
    """A call with arguments that are made already."""
    if any(code.fields is not None for code in arguments):
        return _in_place(frame, function, arguments, node)
    handed = [code.pair if code.known else code.type for code in arguments]
    chosen = evaluate.specialise(function, handed, node.place)
    if chosen.comptime_result:
        if all(code.known for code in arguments):
            return known(evaluate.call(function, [code.pair for code in arguments], node.place))
        raise CslError(
            f"{function.declaration.name}() gives {chosen.result}, so all its arguments must be known at compile time",
            node.place,
        )
    folded = _folded(frame, function, chosen.result, arguments, node)
    if folded is not None:
        return folded
    written = frame.program.function(chosen, node.place)
    passed = []
    for at, name, type_ in chosen.parameters:
        code = arguments[at].converted(type_, node.place, f"parameter '{name}'")
        passed.append(frame.settled(code))
    return _called(frame, written.result, written.name, passed, "(yield from {})" if written.waits else None)


def _folded(
    frame: Frame, function: FunctionValue, result: Type, arguments: Sequence[Code], node: syntax.Expression
) -> Code | None:
    """The value of a call whose arguments are known, unless its code reads or changes memory, or takes long.

    Optimising compilers do so. A known DSD, color or id also tells the colors that the code sends or takes.
    """
    scalar = isinstance(result, IntType | FloatType | types.EnumType | OpaqueType) or result == types.BOOL
    if not scalar or not all(code.known for code in arguments):
        return None
    try:
        with frame.program.instance.limits.within(FOLDED):
            return known(evaluate.call(function, [code.pair for code in arguments], node.place))
    except CslError:  # if its code is wrong, run time says so
        return None


def _in_place(frame: Frame, function: FunctionValue, arguments: Sequence[Code], node: syntax.Expression) -> Code:
    """The body of a function in the place of its call `f(x, .{ a, b })`, for a struct known at run time alone.

    In practice it prints; it returns nothing.

    Raises:
        CslError: it returns a value, or returns early; its parameters are of other types.
    """
    declared = function.declaration
    if (
        declared.body is None
        or evaluate.function_type(function).result != types.VOID
        or any(isinstance(each, syntax.Return) for each in syntax.walk(declared.body))
    ):
        raise CslError(
            f"{declared.name}() is handed a struct without a type that is not known at compile time: "
            "only a function that returns nothing takes one",
            node.place,
            "a struct type, or a parameter for each field",
        )
    if len(arguments) != len(declared.parameters):
        raise CslError(
            f"{declared.name}() takes {len(declared.parameters)} arguments, got {len(arguments)}", node.place
        )
    made = [
        code.converted(type_, node.place, f"parameter '{parameter.name}'") if type_ is not None else code
        for parameter, type_, code in zip(
            declared.parameters, evaluate.function_type(function).parameters, arguments, strict=True
        )
    ]
    outer, loops = frame.scope, frame.loops
    frame.scope = Scope(function.module, None, outer.type_of)
    frame.loops = []
    for parameter, code in zip(declared.parameters, made, strict=True):
        if code.known:
            frame.declare(parameter.name, code.pair)
            continue
        if code.fields is not None:
            kept = {name: frame.variable(each, f"{parameter.name}_{name}") for name, each in code.fields.items()}
            code = replace(code, fields=kept)
        else:
            code = frame.variable(code, parameter.name)
        frame.declare(parameter.name, Local(code.type, code=code), parameter.place)
    frame.statement(declared.body)
    frame.scope, frame.loops = outer, loops
    return NOTHING
