"""Compilers of declarations and assignments."""

from typing import Any

from cstool.csl.language import arithmetic, conversions, syntax, types, values
from cstool.csl.language.evaluate_core import (
    STATEMENTS,
    Code,
    Frame,
    Local,
    NotKnown,
    Run,
    RunTime,
    Scope,
    Step,
    mapped,
    nothing,
)
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.evaluate_places import address_of, dereference, field_of, flat_index, no_target
from cstool.csl.language.evaluate_types import enum_type, struct_type, type_code
from cstool.csl.language.instance import Instance
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.together import keep_apart
from cstool.csl.language.types import ArrayType, PointerType, StructType
from cstool.csl.language.values import Reference, Value

# --- declarations ---


def declared(node: syntax.Declare, scope: Scope, place: Place) -> Code:
    """Code of a declaration's initial value, of its type; a type gets the declaration's name.

    Args:
        node: the declaration
        scope: names around it
        place: of a value of a wrong type, for messages

    Raises:
        CslError: it needs a value or a type, and has none.
    """
    if node.value is None and (node.keyword == "const" or node.type is None):
        missing = "a value" if node.keyword == "const" else "a type or a value"
        raise CslError(f"'{node.name}' needs {missing}", node.place)
    if node.value is None:
        code = Code(lambda frame: values.UNDEFINED)
    elif isinstance(node.value, syntax.StructType):
        code = struct_type(node.value, scope, node.name)
    elif isinstance(node.value, syntax.EnumType):
        code = enum_type(node.value, scope, node.name)
    else:
        code = scope.expression(node.value)
    if node.type is None:
        return code
    what = f"'{node.name}'"
    type_ = type_code(node.type, scope)
    return mapped(lambda value, type_: conversions.coerce(value, type_[1], place, what), code, type_)


@STATEMENTS.at(syntax.Declare)
def _declare(node: syntax.Declare, scope: Scope) -> Step:
    place = node.place
    code = declared(node, scope, place)
    if node.keyword == "const" and code.value is not None:
        scope.declare(node.name, code.value, place)
        return nothing
    slot, run = scope.local(node.name, place, node.keyword == "var"), code.run

    def step(frame: Frame) -> None:
        frame[slot] = run(frame)

    return step


# --- assignments ---


@STATEMENTS.at(syntax.Assign)
def _assign(node: syntax.Assign, scope: Scope) -> Step:
    value_run = scope.run_of(node.value)
    if isinstance(node.target, syntax.Name) and node.target.name == "_":

        def discard(frame: Frame) -> None:
            value_run(frame)

        return discard
    if node.operator is None:
        return _store(node.target, value_run, scope)
    old, operator, place = scope.run_of(node.target), node.operator, node.place
    return _store(node.target, lambda frame: arithmetic.binary(operator, old(frame), value_run(frame), place), scope)


def _store(target: syntax.Expression, new: Run, scope: Scope) -> Step:
    place, instance = target.place, scope.module.instance
    what = resolve(target, scope)
    if isinstance(what, Local):
        return _store_local(what, target, new, instance)
    if isinstance(target, syntax.Name) and what is not None:
        holder, name = scope.holder(target.name), target.name
        if holder is not None and name in holder.changing:
            names: dict[str, Any] = holder.names

            def step(frame: Frame) -> None:
                keep_apart(instance)
                now = names[name]
                names[name] = conversions.coerce(new(frame), now[0], place, f"'{name}'")

            return step
    if isinstance(what, Variable | RunTime):
        raise NotKnown(
            f"'{getattr(target, 'name', '')}' must be known at compile time, it is a variable of run time",
            place,
            "a var of a block or function that runs at compile time can be changed there",
        )
    if isinstance(what, Constant) or what is not None:
        name = getattr(target, "name", "")
        raise CslError(f"'{name}' is a constant and cannot be changed", place, "declare it with 'var'")
    if isinstance(target, syntax.Index):
        return _store_element(target, new, scope)
    if isinstance(target, syntax.Field):
        return _store_field(target, new, scope)
    if isinstance(target, syntax.Dereference):
        return _store_behind(scope.run_of(target.pointer), new, place, instance)
    raise CslError("only a variable, an element, a field or what a pointer points at can be assigned to", place)


def _store_local(local: Local, target: syntax.Expression, new: Run, instance: Instance) -> Step:
    name, place, slot = getattr(target, "name", ""), target.place, local.slot
    if not local.changes:
        raise CslError(f"'{name}' is a constant and cannot be changed", place, "declare it with 'var'")
    what = f"'{name}'"

    def step(frame: Frame) -> None:
        value = new(frame)
        keep_apart(instance, frame, slot)
        type_ = frame[slot][0]
        if value[0] is not type_ and type_ != types.UNDEFINED:
            value = conversions.coerce(value, type_, place, what)
        frame[slot] = value

    return step


def _store_element(target: syntax.Index, new: Run, scope: Scope) -> Step:
    runs = [scope.run_of(index) for index in target.indices]
    place, instance = target.place, scope.module.instance
    local = resolve(target.base, scope) if isinstance(target.base, syntax.Name) else None
    if isinstance(local, Local):
        slot = local.slot
        if not local.changes:
            raise CslError("an element of a constant cannot be changed", place, "declare the array with 'var'")

        def step(frame: Frame) -> None:
            type_, data = frame[slot]
            if isinstance(type_, PointerType):
                keep_apart(instance)
                _set_element(frame[slot], [run(frame) for run in runs], new(frame), place)
                return
            if not isinstance(type_, ArrayType):
                raise CslError(f"only arrays have elements, got {type_}", place)
            keep_apart(instance, frame, slot)
            at = flat_index(type_, [run(frame) for run in runs], place)
            value = conversions.coerce(new(frame), type_.element, place, "the element")[1]
            if data.__class__ is not list:  # a list from the first change on, so that filling an array is no copying
                data = list(data)
                frame[slot] = (type_, data)
            data[at] = value

        return step
    pointer = address_of(target.base, scope).run

    def step_behind(frame: Frame) -> None:
        keep_apart(instance)
        _set_element(pointer(frame), [run(frame) for run in runs], new(frame), place)

    return step_behind


def _set_element(pointer: Value, indices: list[Value], value: Value, place: Place) -> None:
    type_, data = pointer
    if not isinstance(data, Reference):
        raise no_target(type_, place)
    whole, elements = data.get()
    if not isinstance(whole, ArrayType):
        raise CslError(f"only arrays have elements, got {whole}", place)
    at = flat_index(whole, indices, place)
    changed = list(elements)
    changed[at] = conversions.coerce(value, whole.element, place, "the element")[1]
    data.set((whole, tuple(changed)))


def _store_field(target: syntax.Field, new: Run, scope: Scope) -> Step:
    pointer = address_of(target.base, scope).run
    name, place, instance = target.name, target.place, scope.module.instance

    def step(frame: Frame) -> None:
        keep_apart(instance)
        type_, data = pointer(frame)
        if not isinstance(data, Reference):
            raise no_target(type_, place)
        whole = data.get()
        if isinstance(whole[1], Reference):
            data = whole[1]
            whole = data.get()
        old = field_of(whole, name, place)
        value = conversions.coerce(new(frame), old[0], place, f"field '{name}'")
        union = isinstance(whole[0], StructType) and whole[0].is_union
        data.set((whole[0], {name: value} if union else {**whole[1], name: value}))

    return step


def _store_behind(pointer: Run, new: Run, place: Place, instance: Instance) -> Step:
    def step(frame: Frame) -> None:
        keep_apart(instance)
        at = pointer(frame)
        type_, data = at
        if isinstance(type_, PointerType) and type_.const:
            raise CslError(f"what {type_} points at cannot be changed", place)
        old = dereference(at, place)
        data.set(conversions.coerce(new(frame), old[0], place, "the value"))

    return step
