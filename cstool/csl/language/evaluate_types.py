"""Compilers of literals of structs and arrays, and of types."""

from typing import Any

from cstool.csl.language import conversions, syntax, types
from cstool.csl.language.evaluate_core import EXPRESSIONS, Code, Scope, constant, mapped
from cstool.csl.language.limits import AN_ARRAY, MOST_ELEMENTS, check_size
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, IntType, PointerType, StructType, Type
from cstool.csl.language.values import Value, describe


@EXPRESSIONS.at(syntax.StructLiteral)
def _struct_literal(node: syntax.StructLiteral, scope: Scope) -> Code:
    names = [name for name, _ in node.fields]
    parts = [scope.expression(field) for _, field in node.fields]
    type_node, place = node.type, node.place
    if type_node is None:
        return mapped(lambda *data: (types.STRUCT, dict(zip(names, data, strict=True))), *parts)
    if isinstance(type_node, syntax.ArrayType) and None in type_node.extents:
        return _counted_array(node, type_node, parts, scope)

    def make(type_: Value, *data: Value) -> Value:
        fields = dict(zip(names, data, strict=True))
        return conversions.coerce((types.STRUCT, fields), type_[1], place, "the literal")

    return mapped(make, type_code(type_node, scope), *parts)


def _counted_array(node: syntax.StructLiteral, array: syntax.ArrayType, parts: list[Code], scope: Scope) -> Code:
    """`[_]T{...}`: an array whose extent is the number of its elements."""
    if len(array.extents) != 1:
        raise CslError("'_' counts the elements of an array of one dimension", array.place)
    place = node.place

    def make(element: Value, *data: Value) -> Value:
        type_ = ArrayType((len(data),), element[1])
        fields = {str(at): value for at, value in enumerate(data)}
        return conversions.coerce((types.STRUCT, fields), type_, place, "the literal")

    return mapped(make, type_code(array.element, scope), *parts)


def as_type(value: Value, place: Place | None) -> Type:
    """The type in a value.

    Raises:
        CslError: it is no type.
    """
    if value[0] == types.TYPE:
        return value[1]  # type: ignore[no-any-return]
    raise CslError(f"expected a type, got {describe(value)}", place)


def type_code(node: syntax.Expression, scope: Scope) -> Code:
    """Code of an expression that is a type."""
    place = node.place
    return mapped(lambda value: (types.TYPE, as_type(value, place)), scope.child(calls=True).expression(node))


def elements(type_: Type) -> int:
    """Number of elements of an array, inner arrays counted; of a struct the sum over its fields, else 1."""
    if isinstance(type_, ArrayType):
        return type_.count * elements(type_.element)
    return sum(elements(field) for _, field in type_.fields) if isinstance(type_, StructType) else 1


@EXPRESSIONS.at(syntax.ArrayType)
def _array_type(node: syntax.ArrayType, scope: Scope) -> Code:
    extents = []
    for extent in node.extents:
        if extent is None:
            raise CslError("[_]T stands before the elements of an array literal alone", node.place)
        extents.append(scope.child(calls=True).expression(extent))
    places = [extent.place for extent in node.extents if extent is not None]

    def make(element: Value, *counts: Value) -> Value:
        for count, place in zip(counts, places, strict=True):
            if not types.is_int(count[0]) or count[1] < 0:
                raise CslError(f"an array has 0 or more elements, got {describe(count)}", place)
        found = ArrayType(tuple(count for _, count in counts), element[1])
        check_size(elements(found), MOST_ELEMENTS, AN_ARRAY, node.place)
        return types.TYPE, found

    return mapped(make, type_code(node.element, scope), *extents)


@EXPRESSIONS.at(syntax.PointerType)
def _pointer_type(node: syntax.PointerType, scope: Scope) -> Code:
    return mapped(
        lambda pointee: (types.TYPE, PointerType(pointee[1], node.many, node.const)), type_code(node.pointee, scope)
    )


@EXPRESSIONS.at(syntax.FunctionType)
def _function_type(node: syntax.FunctionType, scope: Scope) -> Code:
    def make(*data: Value) -> Value:
        *parameters, result = [type_ for _, type_ in data]
        return types.TYPE, types.FunctionType(tuple(parameters), result, node.kind)

    return mapped(make, *[type_code(each, scope) for each in (*node.parameters, node.result)])


@EXPRESSIONS.at(syntax.StructType)
def _struct_type(node: syntax.StructType, scope: Scope) -> Code:
    return struct_type(node, scope, "struct")


def struct_type(node: syntax.StructType, scope: Scope, name: str) -> Code:
    """Code of a struct type, under the name of its declaration."""
    parts = [type_code(type_, scope) for _, type_, _ in node.fields]
    defaults = [(field, default) for field, _, default in node.fields if default is not None]

    def make(*data: Value) -> Value:
        fields = {field: type_ for (field, _, _), (_, type_) in zip(node.fields, data, strict=False)}
        given = tuple(
            (field, conversions.coerce(value, fields[field], node.place, f"the default of '{field}'")[1])
            for (field, _), value in zip(defaults, data[len(fields) :], strict=True)
        )
        return types.TYPE, StructType(name, node.kind, tuple(fields.items()), _hashable(given))

    return mapped(make, *parts, *[scope.expression(default) for _, default in defaults])


def _hashable(defaults: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    if any(isinstance(data, dict) for _, data in defaults):
        return tuple((name, FrozenData(data) if isinstance(data, dict) else data) for name, data in defaults)
    return defaults


class FrozenData(dict[str, Value]):
    """Read-only fields, hashable, so that they can be part of a type."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


@EXPRESSIONS.at(syntax.EnumType)
def _enum_type(node: syntax.EnumType, scope: Scope) -> Code:
    return enum_type(node, scope, "enum")


def enum_type(node: syntax.EnumType, scope: Scope, name: str) -> Code:
    """Code of an enum type, under the name of its declaration."""
    tag = types.U16 if node.tag is None else type_code(node.tag, scope).run([])[1]
    if not isinstance(tag, IntType):
        raise CslError(f"the tag of an enum is an integer type, got {tag}", node.place)
    members: list[tuple[str, int]] = []
    following = 0
    for member, expression in node.members:
        if expression is not None:
            value = scope.expression(expression).run([])
            following = conversions.coerce(value, tag, expression.place, f"the member '{member}'")[1]
        conversions.fit(tag, following, node.place, f"the member '{member}'")
        if any(following == number for _, number in members):
            raise CslError(f"members of an enum have different numbers, got {following} twice", node.place)
        members.append((member, following))
        following += 1
    return constant((types.TYPE, EnumType(name, tag, tuple(members))))
