"""Compilers of fields, elements, pointers, and addresses."""

from collections.abc import Callable, Sequence

from cstool.csl.language import arithmetic, conversions, syntax, types, values
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
from cstool.csl.language.evaluate_expressions import kept, load, not_known, resolve
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, PointerType, StructType, Type
from cstool.csl.language.values import Reference, Value, describe
from cstool.foundation.words import did_you_mean


@EXPRESSIONS.at(syntax.Unary)
def _unary(node: syntax.Unary, scope: Scope) -> Code:
    if node.operator == "&":
        return address_of(node.operand, scope)
    operator, place = node.operator, node.place
    return mapped(lambda value: arithmetic.unary(operator, value, place), scope.expression(node.operand))


@EXPRESSIONS.at(syntax.Field)
def _field(node: syntax.Field, scope: Scope) -> Code:
    what = resolve(node, scope)
    if what is not None:
        return load(what, node.name, node.place, scope)
    name, place = node.name, node.place
    return mapped(lambda value: field_of(value, name, place), scope.expression(node.base))


def field_of(value: Value, name: str, place: Place | None) -> Value:
    """`value.name`.

    Raises:
        CslError: there is no such field.
    """
    type_, data = value
    if data.__class__ is dict and name in data:
        return data[name]  # type: ignore[no-any-return]
    if type_ == types.MODULE:
        binding = data.lookup(name, place)
        if isinstance(binding, Variable):
            raise not_known(name, place) if place is not None else NotKnown(name, None)
        return binding.value  # type: ignore[no-any-return]
    if type_ == types.TYPE and isinstance(data, EnumType):
        return data, conversions.enum_member(data, name, place)
    if isinstance(type_, PointerType) and not type_.many:
        return field_of(dereference(value, place), name, place)
    fields = values.fields_of(value)
    if fields is None:
        raise CslError(f"{describe(value)} has no fields, got '.{name}'", place)
    if isinstance(type_, StructType) and type_.is_union and type_.field(name) is not None:
        return values.union_field(type_, fields, name)
    if name not in fields:
        shown = ", ".join(fields) or "none"
        raise CslError(f"no field '{name}' in {type_}; its fields: {shown}", place, did_you_mean(name, fields))
    return fields[name]


def dereference(value: Value, place: Place | None) -> Value:
    """`value.*`.

    Raises:
        CslError: it is no pointer.
        NotKnown: its target is known at run time alone.
    """
    type_, data = value
    if not isinstance(type_, PointerType) or type_.many:
        raise CslError(f".* follows a pointer to one thing, got {type_}", place)
    if isinstance(data, Reference):
        return data.get()
    raise no_target(type_, place)


def no_target(type_: Type, place: Place | None) -> NotKnown:
    """The error of a pointer whose target is needed at compile time."""
    return NotKnown(f"what {type_} points at must be known at compile time, it is memory of run time", place)


@EXPRESSIONS.at(syntax.Dereference)
def _dereference(node: syntax.Dereference, scope: Scope) -> Code:
    place, inner, instance = node.place, scope.run_of(node.pointer), scope.module.instance

    def run(frame: Frame) -> Value:
        value = inner(frame)
        if types.points_to_function(value[0]):
            return value[0].pointee, instance.function_at(value[1])  # type: ignore[attr-defined]
        return dereference(value, place)

    return Code(run)


def _pointer_to_function(function: values.FunctionValue, value: Value, scope: Scope) -> Code:
    """Code of `&f`; of `f` itself for a generic function, since no pointer at run time can have it."""
    type_ = value[0]
    if not isinstance(type_, types.FunctionType) or None in type_.parameters:
        return constant(value)
    return constant((PointerType(type_, const=True), scope.module.instance.pointer_to(function)))


def index_count(count: int) -> str:
    """A count of indices, in words."""
    return f"{count} {'index' if count == 1 else 'indices'}"


def flat_index(type_: ArrayType, indices: Sequence[Value], place: Place | None) -> int:
    """The index of an element in the flat tuple.

    Raises:
        CslError: wrong number of indices, one that is no integer, or out of bounds.
    """
    if len(indices) != len(type_.shape):
        raise CslError(f"{type_} takes {index_count(len(type_.shape))}, got {len(indices)}", place)
    at = 0
    for (index_type, index), extent in zip(indices, type_.shape, strict=True):
        if not types.is_int(index_type):
            raise CslError(f"an index is an integer, got {index_type}", place)
        if not 0 <= index < extent:
            raise CslError(f"an index of {type_} is 0 to {extent - 1}, got {index}", place)
        at = at * extent + index
    return at


def element(value: Value, indices: Sequence[Value], place: Place | None) -> Value:
    """`value[indices]`."""
    type_, data = value
    if isinstance(type_, ArrayType):
        return type_.element, data[flat_index(type_, indices, place)]
    if isinstance(type_, PointerType):
        if isinstance(data, Reference):
            return element(data.get(), indices, place)
        raise no_target(type_, place)
    if type_ == types.STRUCT and len(indices) == 1 and types.is_int(indices[0][0]):
        return field_of(value, str(indices[0][1]), place)
    raise CslError(f"only arrays have elements, got {describe(value)}", place)


@EXPRESSIONS.at(syntax.Index)
def _index(node: syntax.Index, scope: Scope) -> Code:
    base, place = scope.expression(node.base), node.place
    local = scope.find(node.base.name) if isinstance(node.base, syntax.Name) else None
    if isinstance(local, Local):
        base = Code(lambda frame: frame[local.slot])  # of a `var` the list itself, not a copy
    indices = [scope.expression(index) for index in node.indices]
    return mapped(lambda value, *at: element(value, at, place), base, *indices)


def address_of(node: syntax.Expression, scope: Scope) -> Code:
    """Code of `&node`."""
    what = resolve(node, scope)
    name = getattr(node, "name", "")
    if isinstance(what, Constant):
        if isinstance(what.value[1], values.FunctionValue):
            return _pointer_to_function(what.value[1], what.value, scope)
        return constant((PointerType(what.type, const=True), what.address()))
    if isinstance(what, Variable):
        return constant((PointerType(what.type), what.address()))
    if isinstance(what, RunTime):
        if what.address is None:
            raise not_known(name, node.place)
        return constant((PointerType(what.type), what.address))
    if isinstance(what, Local):
        return Code(_local_reference(what))
    if isinstance(node, syntax.Dereference):
        return scope.expression(node.pointer)
    if isinstance(node, syntax.Index):
        return _address_of_element(node, scope)
    if isinstance(node, syntax.Field):
        return _address_of_field(node, scope)
    holder = None if what is None else scope.holder(name)
    if isinstance(what, tuple) and holder is not None and not holder.has_frame and name not in holder.changing:
        return constant((PointerType(what[0], const=True), scope.module.instance.constant(name, what, node.place)))
    raise CslError("& takes a variable, an element or a field", node.place)


def addressed(node: syntax.Expression, scope: Scope) -> syntax.Expression:
    """`&node` where it is the name of an array and a pointer may stand; else the node itself."""
    what: object = resolve(node, scope)
    type_ = what[0] if isinstance(what, tuple) and not isinstance(what, Local) else getattr(what, "type", None)
    return syntax.Unary(node.place, "&", node) if isinstance(type_, ArrayType) else node


def _local_reference(local: Local) -> Run:
    slot = local.slot

    def run(frame: Frame) -> Value:
        def get() -> Value:
            return kept(frame[slot])

        def set_(value: Value) -> None:
            frame[slot] = value

        return PointerType(frame[slot][0], const=not local.changes), Reference(get, set_)

    return run


def _address_of_element(node: syntax.Index, scope: Scope) -> Code:
    try:
        base = address_of(node.base, scope)
    except CslError:
        base = scope.expression(node.base)  # a pointer to many has elements itself
    indices = [scope.expression(index) for index in node.indices]
    place = node.place

    def make(value: Value, *at: Value) -> Value:
        type_, data = value
        if not isinstance(type_, PointerType):
            raise CslError(f"only arrays have elements, got {type_}", place)
        if type_.many:
            if isinstance(data, Reference) or len(at) != 1:
                raise CslError(f"& of an element of {type_} takes one index into SRAM", place)
            return PointerType(type_.pointee, const=type_.const), data + at[0][1] * type_.pointee.size
        array = type_.pointee
        if not isinstance(array, ArrayType):
            raise CslError(f"only arrays have elements, got {array}", place)
        index = flat_index(array, at, place)
        pointer = PointerType(array.element, const=type_.const)
        if isinstance(data, Reference):
            return pointer, _part(data, lambda value: (array.element, value[1][index]), _replace_element(index))
        return pointer, data + index * array.element.size

    return mapped(make, base, *indices)


def _replace_element(index: int) -> Callable[[Value, Value], Value]:
    def replace(whole: Value, part: Value) -> Value:
        data = list(whole[1])
        data[index] = part[1]
        return whole[0], tuple(data)

    return replace


def _part(whole: Reference, get: Callable[[Value], Value], replace: Callable[[Value, Value], Value]) -> Reference:
    return Reference(lambda: get(whole.get()), lambda value: whole.set(replace(whole.get(), value)))


def _address_of_field(node: syntax.Field, scope: Scope) -> Code:
    place, name = node.place, node.name

    def make(value: Value) -> Value:
        type_, data = value
        if not isinstance(type_, PointerType):
            raise CslError(f"only structs have fields, got {type_}", place)
        struct = type_.pointee
        if isinstance(struct, PointerType):
            raise NotKnown("& of a field behind a pointer must be known at compile time", place)
        if isinstance(data, Reference):
            get = data.get
            return PointerType(field_of(get(), name, place)[0]), _part(
                data,
                lambda value: field_of(value, name, place),
                lambda whole, part: (whole[0], {**whole[1], name: part}),
            )
        field = struct.field(name) if isinstance(struct, StructType) else None
        if not isinstance(struct, StructType) or field is None or struct.is_packed:
            raise CslError(f"no field '{name}' with an address in {struct}", place)
        return PointerType(field, const=type_.const), data + struct.offset(name)

    return mapped(make, address_of(node.base, scope))
