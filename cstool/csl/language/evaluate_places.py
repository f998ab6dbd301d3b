"""Compilers of fields, elements, pointers, and addresses."""

from collections.abc import Callable

from cstool.csl.language import arithmetic, conversions, syntax, types, values
from cstool.csl.language.evaluate_core import (
    Code,
    Env,
    Frame,
    Local,
    NotKnown,
    Run,
    RunTime,
    compile_expression,
    constant,
    expression_of,
)
from cstool.csl.language.evaluate_expressions import fold, load, not_known, resolve
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, PointerType, StructType
from cstool.csl.language.values import FALSE, TRUE, Reference, Value, describe
from cstool.foundation.words import did_you_mean


@expression_of(syntax.Unary)
def _unary(node: syntax.Unary, env: Env) -> Code:
    if node.operator == "&":
        return address_of(node.operand, env)
    operand = compile_expression(node.operand, env)
    operator, place, inner = node.operator, node.place, operand.run
    if operator == "!":

        def run(frame: Frame) -> Value:
            value = inner(frame)
            if value is TRUE:
                return FALSE
            return TRUE if value is FALSE else arithmetic.unary("!", value, place)

    else:

        def run(frame: Frame) -> Value:
            return arithmetic.unary(operator, inner(frame), place)

    return fold(run, [operand])


@expression_of(syntax.Field)
def _field(node: syntax.Field, env: Env) -> Code:
    what = resolve(node, env)
    if what is not None:
        return load(what, node.name, node.place, env)
    base = compile_expression(node.base, env)
    name, place, inner = node.name, node.place, base.run

    def run(frame: Frame) -> Value:
        value = inner(frame)
        data = value[1]
        if data.__class__ is dict and name in data:
            return data[name]  # type: ignore[no-any-return]
        return field_of(value, name, place)

    return fold(run, [base])


def field_of(value: Value, name: str, place: Place | None) -> Value:
    """`value.name`.

    Raises:
        CslError: there is no such field.
    """
    type_, data = value
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
    raise NotKnown(f"what {type_} points at must be known at compile time, it is memory of run time", place)


@expression_of(syntax.Dereference)
def _dereference(node: syntax.Dereference, env: Env) -> Code:
    pointer = compile_expression(node.pointer, env)
    place, inner, instance = node.place, pointer.run, env.module.instance

    def run(frame: Frame) -> Value:
        value = inner(frame)
        if types.points_to_function(value[0]):
            return value[0].pointee, instance.function_at(value[1])  # type: ignore[attr-defined]
        return dereference(value, place)

    return Code(run)


def _pointer_to_function(function: values.FunctionValue, value: Value, env: Env) -> Code:
    """Code of `&f`; of `f` itself for a generic function or a task, since no pointer at run time can have it."""
    type_ = value[0]
    if not isinstance(type_, types.FunctionType) or type_.kind != "fn" or None in type_.parameters:
        return constant(value)
    return constant((PointerType(type_, const=True), env.module.instance.pointer_to(function)))


def index_count(count: int) -> str:
    """A count of indices, in words."""
    return f"{count} {'index' if count == 1 else 'indices'}"


def flat_index(type_: ArrayType, indices: list[Value], place: Place | None) -> int:
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


def element(value: Value, indices: list[Value], place: Place | None) -> Value:
    """`value[indices]`."""
    type_, data = value
    if isinstance(type_, ArrayType):
        return type_.element, data[flat_index(type_, indices, place)]
    if isinstance(type_, PointerType):
        if isinstance(data, Reference):
            return element(data.get(), indices, place)
        raise NotKnown(f"what {type_} points at must be known at compile time, it is memory of run time", place)
    if type_ == types.STRUCT and len(indices) == 1 and types.is_int(indices[0][0]):
        return field_of(value, str(indices[0][1]), place)
    raise CslError(f"only arrays have elements, got {describe(value)}", place)


@expression_of(syntax.Index)
def _index(node: syntax.Index, env: Env) -> Code:
    base = compile_expression(node.base, env)
    indices = [compile_expression(index, env) for index in node.indices]
    place, base_run = node.place, base.run
    if isinstance(node.base, syntax.Name):
        local = env.find(node.base.name)
        if isinstance(local, Local) and local.changes:
            slot = local.slot
            base_run = lambda frame: frame[slot]  # noqa: E731 - the list itself, not a copy
    runs = [index.run for index in indices]

    def run(frame: Frame) -> Value:
        return element(base_run(frame), [index(frame) for index in runs], place)

    return fold(run, [base, *indices])


def address_of(node: syntax.Expression, env: Env) -> Code:
    """Code of `&node`."""
    what = resolve(node, env)
    name = getattr(node, "name", "")
    if isinstance(what, Constant):
        if isinstance(what.value[1], values.FunctionValue):
            return _pointer_to_function(what.value[1], what.value, env)
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
        return compile_expression(node.pointer, env)
    if isinstance(node, syntax.Index):
        return _address_of_element(node, env)
    if isinstance(node, syntax.Field):
        return _address_of_field(node, env)
    if what is not None and env.outer is not None and env.outer.find(name) is not None:
        raise NotKnown(
            f"the address of '{name}' must be known at compile time, it is a constant of a function", node.place
        )
    raise CslError("& takes a variable, an element or a field", node.place)


def _local_reference(local: Local) -> Run:
    slot = local.slot

    def run(frame: Frame) -> Value:
        def get() -> Value:
            value: Value = frame[slot]
            return (value[0], tuple(value[1])) if value[1].__class__ is list else value

        def set_(value: Value) -> None:
            frame[slot] = value

        return PointerType(frame[slot][0], const=not local.changes), Reference(get, set_)

    return run


def _address_of_element(node: syntax.Index, env: Env) -> Code:
    try:
        base = address_of(node.base, env)
    except CslError:
        base = compile_expression(node.base, env)  # a pointer to many has elements itself
    indices = [compile_expression(index, env) for index in node.indices]
    place, base_run, runs = node.place, base.run, [index.run for index in indices]

    def run(frame: Frame) -> Value:
        type_, data = base_run(frame)
        at = [index(frame) for index in runs]
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

    return fold(run, [base, *indices])


def _replace_element(index: int) -> Callable[[Value, Value], Value]:
    def replace(whole: Value, part: Value) -> Value:
        data = list(whole[1])
        data[index] = part[1]
        return whole[0], tuple(data)

    return replace


def _part(whole: Reference, get: Callable[[Value], Value], replace: Callable[[Value, Value], Value]) -> Reference:
    return Reference(lambda: get(whole.get()), lambda value: whole.set(replace(whole.get(), value)))


def _address_of_field(node: syntax.Field, env: Env) -> Code:
    base = address_of(node.base, env)
    place, name, base_run = node.place, node.name, base.run

    def run(frame: Frame) -> Value:
        type_, data = base_run(frame)
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

    return fold(run, [base])
