"""Compilers of literals of structs and arrays, and of types."""

from collections.abc import Callable
from typing import Any

from cstool.csl.language import conversions, syntax, types
from cstool.csl.language.evaluate_core import Code, Env, Frame, compile_expression, constant, expression_of
from cstool.csl.language.evaluate_expressions import fold
from cstool.csl.language.limits import AN_ARRAY, MOST_ELEMENTS, check_size
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, IntType, PointerType, StructType, Type
from cstool.csl.language.values import Value, describe


@expression_of(syntax.StructLiteral)
def _struct_literal(node: syntax.StructLiteral, env: Env) -> Code:
    names = [name for name, _ in node.fields]
    parts = [compile_expression(field, env) for _, field in node.fields]
    runs = [part.run for part in parts]
    place = node.place
    if node.type is None:
        pairs = list(zip(names, runs, strict=True))
        return fold(lambda frame: (types.STRUCT, {name: run(frame) for name, run in pairs}), parts)
    type_node = node.type
    if isinstance(type_node, syntax.ArrayType) and None in type_node.extents:
        return _counted_array(node, type_node, parts, env)
    type_code = compile_expression(type_node, env.child(calls=True))

    def run(frame: Frame) -> Value:
        type_ = as_type(type_code.run(frame), type_node.place)
        data = {name: part(frame) for name, part in zip(names, runs, strict=True)}
        return conversions.coerce((types.STRUCT, data), type_, place, "the literal")

    return fold(run, [type_code, *parts])


def _counted_array(node: syntax.StructLiteral, array: syntax.ArrayType, parts: list[Code], env: Env) -> Code:
    """`[_]T{...}`: an array whose extent is the number of its elements."""
    if len(array.extents) != 1:
        raise CslError("'_' counts the elements of an array of one dimension", array.place)
    element_code = compile_expression(array.element, env.child(calls=True))
    place = node.place

    def run(frame: Frame) -> Value:
        type_ = ArrayType((len(parts),), as_type(element_code.run(frame), array.element.place))
        data = {str(at): part.run(frame) for at, part in enumerate(parts)}
        return conversions.coerce((types.STRUCT, data), type_, place, "the literal")

    return fold(run, [element_code, *parts])


def as_type(value: Value, place: Place | None) -> Type:
    """The type in a value.

    Raises:
        CslError: it is no type.
    """
    if value[0] == types.TYPE:
        return value[1]  # type: ignore[no-any-return]
    raise CslError(f"expected a type, got {describe(value)}", place)


def type_run(node: syntax.Expression, env: Env) -> tuple[Callable[[Frame], Type], Type | None]:
    """A function that gives the type of an expression; and the type, where it is constant."""
    code = compile_expression(node, env.child(calls=True))
    place, inner = node.place, code.run
    if code.value is not None:
        known = as_type(code.value, place)
        return (lambda frame: known), known
    return (lambda frame: as_type(inner(frame), place)), None


def _typed(run: Callable[[Frame], Type], known: list[Type | None]) -> Code:
    if None not in known:
        return constant((types.TYPE, run([])))
    return Code(lambda frame: (types.TYPE, run(frame)))


def elements(type_: Type) -> int:
    """Number of elements of an array, inner arrays counted; of a struct the sum over its fields, else 1."""
    if isinstance(type_, ArrayType):
        return type_.count * elements(type_.element)
    return sum(elements(field) for _, field in type_.fields) if isinstance(type_, StructType) else 1


@expression_of(syntax.ArrayType)
def _array_type(node: syntax.ArrayType, env: Env) -> Code:
    element_run, _ = type_run(node.element, env)
    extents = []
    for extent in node.extents:
        if extent is None:
            raise CslError("[_]T stands before the elements of an array literal alone", node.place)
        extents.append(compile_expression(extent, env.child(calls=True)))
    places = [extent.place for extent in node.extents if extent is not None]

    def run(frame: Frame) -> Value:
        shape = []
        for extent, place in zip(extents, places, strict=True):
            type_, count = extent.run(frame)
            if not types.is_int(type_) or count < 0:
                raise CslError(f"an array has 0 or more elements, got {describe((type_, count))}", place)
            shape.append(count)
        found = ArrayType(tuple(shape), element_run(frame))
        check_size(elements(found), MOST_ELEMENTS, AN_ARRAY, node.place)
        return types.TYPE, found

    element_code = compile_expression(node.element, env.child(calls=True))
    return fold(run, [element_code, *extents])


@expression_of(syntax.PointerType)
def _pointer_type(node: syntax.PointerType, env: Env) -> Code:
    run, known = type_run(node.pointee, env)
    return _typed(lambda frame: PointerType(run(frame), node.many, node.const), [known])


@expression_of(syntax.FunctionType)
def _function_type(node: syntax.FunctionType, env: Env) -> Code:
    parameters = [type_run(parameter, env) for parameter in node.parameters]
    result, known = type_run(node.result, env)

    def run(frame: Frame) -> Type:
        return types.FunctionType(tuple(parameter(frame) for parameter, _ in parameters), result(frame))

    return _typed(run, [known, *(each for _, each in parameters)])


@expression_of(syntax.StructType)
def _struct_type(node: syntax.StructType, env: Env) -> Code:
    return struct_type(node, env, "struct")


def struct_type(node: syntax.StructType, env: Env, name: str) -> Code:
    """Code of a struct type, under the name of its declaration."""
    names = [field for field, _, _ in node.fields]
    runs = [type_run(type_, env) for _, type_, _ in node.fields]
    defaults = [None if default is None else compile_expression(default, env) for _, _, default in node.fields]

    def run(frame: Frame) -> Type:
        fields = tuple((field, run(frame)) for field, (run, _) in zip(names, runs, strict=True))
        given = tuple(
            (field, conversions.coerce(default.run(frame), type_, node.place, f"the default of '{field}'")[1])
            for (field, type_), default in zip(fields, defaults, strict=True)
            if default is not None
        )
        return StructType(name, node.kind, fields, _hashable(given))

    known: list[Type | None] = [type_ for _, type_ in runs]
    if any(default is not None and default.value is None for default in defaults):
        known.append(None)
    return _typed(run, known)


def _hashable(defaults: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    if any(isinstance(data, dict) for _, data in defaults):
        return tuple((name, FrozenData(data) if isinstance(data, dict) else data) for name, data in defaults)
    return defaults


class FrozenData(dict[str, Value]):
    """Read-only fields, hashable, so that they can be part of a type."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


@expression_of(syntax.EnumType)
def _enum_type(node: syntax.EnumType, env: Env) -> Code:
    return enum_type(node, env, "enum")


def enum_type(node: syntax.EnumType, env: Env, name: str) -> Code:
    """Code of an enum type, under the name of its declaration."""
    tag_run, _ = (lambda frame: types.U16, types.U16) if node.tag is None else type_run(node.tag, env)
    tag = tag_run([])
    if not isinstance(tag, IntType):
        raise CslError(f"the tag of an enum is an integer type, got {tag}", node.place)
    members: list[tuple[str, int]] = []
    following = 0
    for member, expression in node.members:
        if expression is not None:
            value = compile_expression(expression, env).run([])
            following = conversions.coerce(value, tag, expression.place, f"the member '{member}'")[1]
        conversions.fit(tag, following, node.place, f"the member '{member}'")
        if any(following == number for _, number in members):
            raise CslError(f"members of an enum have different numbers, got {following} twice", node.place)
        members.append((member, following))
        following += 1
    return constant((types.TYPE, EnumType(name, tag, tuple(members))))
