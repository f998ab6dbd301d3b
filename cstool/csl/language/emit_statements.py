"""Statements of a function, its parameters, and its variables in SRAM."""

from dataclasses import replace
from typing import Any

from cstool.csl.language import costs, evaluate, syntax, types, values
from cstool.csl.language.emit_code import NEVER, Code, known
from cstool.csl.language.emit_expressions import operate
from cstool.csl.language.emit_frame import STATEMENTS, Frame, Local
from cstool.csl.language.emit_memory import Address
from cstool.csl.language.emit_places import IS_CONST, Spot, load, spot_of, store
from cstool.csl.language.operands import FORMS
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, FunctionType, StructType, Type

_AT_ONCE = ("comptime_assert", "comptime_print")
"""builtins that run at compile time where they stand in a function"""


@STATEMENTS.at(syntax.Declare)
def _declare(frame: Frame, node: syntax.Declare) -> bool:
    what = f"'{node.name}'"
    if node.comptime or node.linkage is not None:
        evaluate.execute(node, frame.scope)
        return True
    wanted = None if node.type is None else evaluate.evaluate_type(node.type, frame.scope)
    if node.value is None:
        assert wanted is not None
        code = known(values.UNDEFINED)
    else:
        code = frame.expression(node.value, wanted, raw=True)
    if code.type == NEVER:
        return False
    if wanted is not None:
        code = code.converted(wanted, node.place if node.value is None else node.value.place, what)
    if node.keyword == "const":
        _declare_const(frame, node, code)
    else:
        _declare_var(frame, node, code, what)
    return True


def _declare_const(frame: Frame, node: syntax.Declare, code: Code) -> None:
    if code.known:
        frame.declare(node.name, code.pair)
        return
    lives = node.name in frame.escaping and not code.type.comptime_only and frame.program.in_sram(code.type)
    if lives or isinstance(code.type, ArrayType):
        _in_sram(frame, node.name, code.type, node.place, code, const=True)
        return
    if code.fields is not None:
        kept = {name: frame.variable(each, f"{node.name}_{name}") for name, each in code.fields.items()}
        frame.declare(node.name, Local(code.type, code=replace(code, fields=kept)), node.place)
        return
    if code.type == types.VOID:
        if code.calls:
            frame.timed(_bare(code.text))
        frame.declare(node.name, values.VOID)
        return
    frame.cost(costs.ALU)
    code = frame.settled(code)
    name = frame.fresh(node.name)
    frame.assign(name, code, effect=code.calls)
    frame.declare(node.name, Local(code.type, code=code.in_variable(name)), node.place)


def _declare_var(frame: Frame, node: syntax.Declare, code: Code, what: str) -> None:
    _check_runtime(code, node.place, what)
    type_ = code.type
    if type_ == types.VOID:
        raise CslError(f"{what} needs a value, got void", node.place)
    # An array, a struct of parts or a union is in SRAM even without a pointer to it.
    has_parts = isinstance(type_, ArrayType) or (isinstance(type_, StructType) and not type_.is_packed)
    if frame.program.in_sram(type_) and (node.name in frame.escaping or has_parts):
        undefined = node.value is None or (isinstance(node.value, syntax.Name) and node.value.name == "undefined")
        _in_sram(frame, node.name, type_, node.place, None if undefined else code, const=False)
        return
    code = frame.settled(code)
    frame.cost(costs.ALU)
    name = frame.fresh(node.name)
    if code.calls:
        frame.flush()
    text = code.python
    if isinstance(type_, ArrayType):
        text = f"list({text})"
    frame.line(f"{name} = {text}")
    frame.declare(node.name, Local(type_, variable=name, const=False), node.place)


def _check_runtime(code: Code, place: Place, what: str) -> None:
    """Check that a type exists at run time.

    Raises:
        CslError: it does not: the program must name a type.
    """
    if code.known and code.type in (types.COMPTIME_INT, types.COMPTIME_FLOAT, types.ENUM_LITERAL, types.UNDEFINED):
        raise CslError(f"{what} is needed at run time and must have a type, got {code.type}", place, "@as gives one")
    if code.fields is not None or (code.type.comptime_only and not isinstance(code.type, FunctionType)):
        raise CslError(f"{what} must exist at run time, got {code.type}", place)


def _in_sram(frame: Frame, name: str, type_: Type, place: Place, code: Code | None, *, const: bool) -> None:
    """A local on the stack area of SRAM, at an address of its own: functions do not call themselves."""
    if type_.size > 2048 and code is not None and code.known and const:
        address = frame.program.instance.allocate(f"{frame.name}.{name}", type_, place, code.value)
    else:
        address = frame.program.stack(f"{frame.name}.{name}", type_, place)
        if code is not None:
            store(frame, Spot(type_, f"'{name}'", address=Address(address)), code, place)
    frame.declare(name, Local(type_, address, const=const), place)


# --- assignment ---


@STATEMENTS.at(syntax.Assign)
def _assign(frame: Frame, node: syntax.Assign) -> bool:
    target = node.target
    if isinstance(target, syntax.Name):
        if target.name == "_":
            code = frame.expression(node.value)
            if code.calls:
                frame.timed(code.text)
            return code.type != NEVER
        found = frame.scope.find(target.name)
        if found is not None and not isinstance(found, evaluate.RunTime):
            evaluate.execute(node, frame.scope)
            return True
    spot = spot_of(frame, target)
    if spot.const:
        raise CslError(f"{spot.name} is const and cannot be assigned to", target.place, IS_CONST)
    if node.operator is None:
        code = frame.expression(node.value, spot.type, raw=True)
        if code.type == NEVER:
            return False
        code = code.converted(spot.type, node.value.place, spot.name)
    else:
        spot = _steady(frame, spot)
        before = load(frame, spot)
        left, right = frame.ordered([lambda: before, lambda: frame.expression(node.value, spot.type)])
        code = operate(frame, node.operator, left, right, node.place)
        code = code.converted(spot.type, node.place, spot.name)
    store(frame, spot, code, target.place)
    return True


def _steady(frame: Frame, spot: Spot) -> Spot:
    """A place whose index is evaluated once, for a read and a write of it."""
    if spot.inside is not None:
        return replace(spot, inside=_steady(frame, spot.inside))
    address = spot.address
    if address is None or all(text.isidentifier() for text, _ in address.terms):
        return spot
    terms = []
    for text, scale in address.terms:
        if text.isidentifier():
            terms.append((text, scale))
            continue
        name = frame.fresh("at")
        frame.timed(f"{name} = {_bare(text)}")
        terms.append((name, scale))
    return replace(spot, address=Address(address.base, tuple(terms)))


def _bare(text: str) -> str:
    """A text without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]


# --- the rest ---


@STATEMENTS.at(syntax.Evaluate)
def _evaluate(frame: Frame, node: syntax.Evaluate) -> bool:
    inner = node.expression
    if isinstance(inner, syntax.Builtin) and inner.name in _AT_ONCE:
        evaluate.execute(node, frame.scope)
        return True
    code = frame.expression(inner)
    if code.calls:
        frame.timed(_bare(code.text))
    elif isinstance(inner, syntax.Builtin) and inner.name in FORMS:
        pass  # whether an operation on a FIFO did all its elements
    elif code.type not in (types.VOID, NEVER) and not code.known:
        raise CslError(f"a value is not used, got {code.type}", node.place, "_ = ...; says that it is not needed")
    return code.type != NEVER


@STATEMENTS.at(syntax.Return)
def _return(frame: Frame, node: syntax.Return) -> bool:
    result = frame.result
    if node.value is None:
        if result != types.VOID:
            raise CslError(f"this function returns {result}, got 'return' without a value", node.place)
        frame.timed("return")
        return False
    code = frame.expression(node.value, result)
    if code.type == NEVER:
        return False
    if result == types.VOID and code.type != types.VOID:
        raise CslError(f"this function returns void, got {code.type}", node.place)
    code = frame.settled(code.converted(result, node.value.place, "what is returned"))
    frame.cost(costs.RETURN)
    if result == types.VOID and code.calls:
        frame.timed(_bare(code.text))
    frame.timed("return" if result == types.VOID else f"return {code.python}")
    return False


@STATEMENTS.at(syntax.ComptimeBlock)
def _comptime(frame: Frame, node: syntax.ComptimeBlock) -> bool:
    evaluate.execute(node, frame.scope)
    return True


# --- facts from a function's text, before it is written ---


def escaping(body: syntax.Node) -> set[str]:
    """Names whose address is taken somewhere in a function."""
    found = set()
    for node in syntax.walk(body):
        inner: Any = None
        if isinstance(node, syntax.Unary) and node.operator == "&":
            inner = node.operand
        elif isinstance(node, syntax.TensorAccess):
            inner = node.base
        elif isinstance(node, syntax.For) and node.variables[0][1]:
            inner = node.values
        while isinstance(inner, syntax.Field | syntax.Index):
            inner = inner.base
        if isinstance(inner, syntax.Name):
            found.add(inner.name)
    return found
