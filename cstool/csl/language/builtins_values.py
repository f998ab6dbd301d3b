"""Builtins that give a value: conversions, types, arrays, structs, strings, handles of the machine."""

import json
from collections.abc import Callable
from typing import Any

from cstool.csl.fabric.arch import COLORS
from cstool.csl.fabric.scalar import function
from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.builtins_table import INTRINSIC_ACTIONS, RUN, VALUE, Called, builtin, special
from cstool.csl.language.evaluate_core import Code, Frame, NotKnown, Scope, constant
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.evaluate_places import field_of
from cstool.csl.language.evaluate_types import as_type
from cstool.csl.language.intrinsics import INTRINSICS
from cstool.csl.language.limits import A_STRING, MOST_CHARACTERS, check_size
from cstool.csl.language.module import Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, OpaqueType, PointerType, StructType, Type
from cstool.csl.language.values import Value, describe, integer

ANYWHERE = (VALUE,)
ALSO_RUN = (VALUE, RUN)


def _bool(value: bool) -> Value:
    return values.TRUE if value else values.FALSE


def string_of(called: Called, index: int) -> str:
    """An argument that is a string."""
    type_, data = called.arguments[index]
    if type_ != types.STRING:
        raise CslError(f"@{called.node.name} takes a string, got {type_}", called.at(index))
    return str(data)


def number_of(called: Called, index: int) -> int:
    """An argument that is an integer."""
    type_, data = called.arguments[index]
    if not types.is_int(type_):
        raise CslError(f"@{called.node.name} takes an integer, got {describe((type_, data))}", called.at(index))
    return int(data)


def type_argument(called: Called, index: int) -> Type:
    """An argument that is a type."""
    return as_type(called.arguments[index], called.at(index))


# --- conversions ---


@builtin("as", 2, 2, ALSO_RUN, "converts numbers, bool, and between integers and enums")
def _as(called: Called) -> Value:
    return conversions.cast(called.arguments[1], type_argument(called, 0), called.place)


@builtin("bitcast", 2, 2, ALSO_RUN, "the same bits as another type")
def _bitcast(called: Called) -> Value:
    return conversions.bitcast(called.arguments[1], type_argument(called, 0), called.place)


@builtin("ptrcast", 2, 2, ALSO_RUN, "the same address as another pointer type")
def _ptrcast(called: Called) -> Value:
    target = type_argument(called, 0)
    source, data = called.arguments[1]
    if not isinstance(source, PointerType) or not isinstance(target, PointerType):
        raise CslError(f"@ptrcast converts pointers, got {source} to {target}", called.place)
    return target, data


# --- types ---


def type_of(node: syntax.Expression, scope: Scope) -> Type:
    """The type of an expression, known or not.

    Raises:
        NotKnown: the value is known at run time alone, and nothing tells its type.
    """
    try:
        code = scope.expression(node)
        if code.value is not None:
            return code.value[0]
    except NotKnown:
        what = resolve(node, scope)
        if isinstance(what, Variable):
            return what.type
        found = getattr(what, "type", None)
        if isinstance(found, Type):
            return found
        return scope.run_time_type(node) or _static_type(node, scope)
    raise NotKnown("the type must be known at compile time", node.place)


def _static_type(node: syntax.Expression, scope: Scope) -> Type:
    """The type of an element or of the target of a pointer."""
    if isinstance(node, syntax.Index):
        base = type_of(node.base, scope)
        if isinstance(base, PointerType):
            base = base.pointee
        if isinstance(base, ArrayType):
            return base.element
    if isinstance(node, syntax.Dereference):
        pointer = type_of(node.pointer, scope)
        if isinstance(pointer, PointerType):
            return pointer.pointee
    raise NotKnown("the type must be known at compile time", node.place)


@special("type_of", 1, 1, ANYWHERE, "the type of an expression")
def _type_of(node: syntax.Builtin, scope: Scope) -> Code:
    argument = node.arguments[0]
    try:
        return constant((types.TYPE, type_of(argument, scope)))
    except NotKnown:
        run = scope.expression(argument).run  # a local of code that runs now: its value tells
    pointer = scope.expression(argument.pointer).run if isinstance(argument, syntax.Dereference) else None

    def ask(frame: Frame) -> Value:
        try:
            return types.TYPE, run(frame)[0]
        except NotKnown:
            type_ = scope.run_time_type(argument)
            if type_ is None and pointer is not None:
                to = pointer(frame)[0]
                type_ = to.pointee if isinstance(to, PointerType) else None
            if type_ is None:
                raise
            return types.TYPE, type_

    return Code(ask)


_SHAPE_QUERIES: dict[str, tuple[str, Callable[[ArrayType], Value]]] = {
    "element_type": ("the type of an array's elements", lambda array: (types.TYPE, array.element)),
    "element_count": ("how many elements an array has", lambda array: integer(array.count)),
    "rank": ("how many dimensions an array has", lambda array: integer(len(array.shape))),
    "dimensions": ("the extents of an array", lambda array: (ArrayType((len(array.shape),), types.U16), array.shape)),
}


def _shape_query(node: syntax.Builtin, scope: Scope) -> Code:
    argument = node.arguments[0]

    def of(value: Value) -> Value:
        type_ = value[1] if value[0] == types.TYPE else value[0]
        if isinstance(type_, PointerType) and not type_.many and isinstance(type_.pointee, ArrayType):
            type_ = type_.pointee
        if isinstance(type_, PointerType) and node.name == "element_type":
            return types.TYPE, type_.pointee
        if not isinstance(type_, ArrayType):
            raise CslError(f"@{node.name} takes an array or its type, got {type_}", node.place)
        return _SHAPE_QUERIES[node.name][1](type_)

    try:
        code = scope.expression(argument)
    except NotKnown:
        return constant(of((types.TYPE, type_of(argument, scope))))
    if code.value is not None:
        return constant(of(code.value))

    def ask(frame: Frame) -> Value:
        try:
            value = code.run(frame)
        except NotKnown:
            value = types.TYPE, type_of(argument, scope)
        return of(value)

    return Code(ask)


for _name, (_meaning, _) in _SHAPE_QUERIES.items():
    special(_name, 1, 1, ANYWHERE, _meaning)(_shape_query)


@builtin("is_same_type", 2, 2, ANYWHERE, "whether two types are one")
def _is_same_type(called: Called) -> Value:
    return _bool(type_argument(called, 0) == type_argument(called, 1))


@builtin("fp16", 0, 0, ANYWHERE, "the 16-bit float type of `--fp16-format`")
def _fp16(called: Called) -> Value:
    return types.TYPE, types.NAMED[called.instance.compilation.options.fp16_format]


@special("is_comptime", 0, 1, ANYWHERE, "whether this runs, or the argument is known, at compile time")
def _is_comptime(node: syntax.Builtin, scope: Scope) -> Code:
    if not node.arguments:
        return constant(_bool(scope.calls))
    try:
        scope.expression(node.arguments[0])
    except NotKnown:
        return constant(values.FALSE)
    return constant(values.TRUE)


@builtin("is_arch", 1, 1, ANYWHERE, "whether this is compiled for a generation")
def _is_arch(called: Called) -> Value:
    name = string_of(called, 0)
    if name not in ("wse2", "wse3", "wse1"):
        raise CslError(f'@is_arch takes "wse2" or "wse3", got "{name}"', called.at(0))
    return _bool(name == called.instance.arch.name)


# --- arrays, structs, strings ---


def _array_argument(called: Called) -> ArrayType:
    type_ = type_argument(called, 0)
    if not isinstance(type_, ArrayType):
        raise CslError(f"@{called.node.name} takes an array type, got {type_}", called.at(0))
    return type_


@builtin("zeros", 1, 1, ALSO_RUN, "an array of zeros")
def _zeros(called: Called) -> Value:
    type_ = _array_argument(called)
    return type_, values.zero(type_)


@builtin("constants", 2, 2, ALSO_RUN, "an array of one value")
def _constants(called: Called) -> Value:
    type_ = _array_argument(called)
    data = conversions.coerce(called.arguments[1], type_.element, called.at(1), "the element")[1]
    return type_, (data,) * type_.count


@builtin("range", 2, 4, ALSO_RUN, "numbers to loop over: @range(T, end), @range(T, start, end, step)")
@builtin("range_start", 3, 3, ALSO_RUN, "numbers to loop over: @range_start(T, start, end)")
def _range(called: Called) -> Value:
    type_ = type_argument(called, 0)
    if not types.is_int(type_):
        raise CslError(f"@range counts in an integer type, got {type_}", called.at(0))
    bounds = [
        conversions.coerce(argument, type_, called.at(at), f"a bound of @{called.node.name}")[1]
        for at, argument in enumerate(called.arguments)
        if at
    ]
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0:
        raise CslError("the step of @range is not 0", called.at(3))
    return types.RANGE, (type_, range(start, end, step))


@builtin("has_field", 2, 2, ANYWHERE, "whether a struct, or a module, has a field")
def _has_field(called: Called) -> Value:
    type_, data = called.arguments[0]
    name = string_of(called, 1)
    if type_ == types.MODULE:
        return _bool(name in data.declarations)
    if type_ == types.TYPE and isinstance(data, StructType):
        return _bool(data.field(name) is not None)
    if type_ == types.TYPE and isinstance(data, EnumType):
        return _bool(data.value(name) is not None)
    fields = values.fields_of((type_, data))
    if fields is None:
        raise CslError(f"@has_field takes a struct, got {describe((type_, data))}", called.at(0))
    return _bool(name in fields)


@builtin("field", 2, 2, ALSO_RUN, "the field of a struct whose name is computed")
def _field(called: Called) -> Value:
    return field_of(called.arguments[0], string_of(called, 1), called.place)


@builtin("concat_structs", 2, 9, ANYWHERE, "the fields of several anonymous structs in one")
def _concat_structs(called: Called) -> Value:
    result: dict[str, Value] = {}
    positional = 0
    for at, (type_, data) in enumerate(called.arguments):
        if type_ == types.VOID:
            continue
        if type_ != types.STRUCT and not isinstance(type_, StructType):
            raise CslError(f"@concat_structs takes structs, got {type_}", called.at(at))
        for field, value in data.items():
            name = field
            if field.isdigit():
                name, positional = str(positional), positional + 1
            elif name in result:
                raise CslError(f"@concat_structs takes different fields, got '{name}' twice", called.at(at))
            result[name] = value
    return types.STRUCT, result


@builtin("strcat", 1, 64, ANYWHERE, "strings, one behind the other")
def _strcat(called: Called) -> Value:
    parts = [string_of(called, at) for at in range(len(called.arguments))]
    check_size(sum(map(len, parts)), MOST_CHARACTERS, A_STRING, called.place)
    return types.STRING, "".join(parts)


@builtin("get_string_from_byte", 1, 1, ANYWHERE, "the string of one byte")
def _get_string_from_byte(called: Called) -> Value:
    byte = conversions.coerce(called.arguments[0], types.U8, called.at(0), "a byte")[1]
    return types.STRING, chr(byte)


@builtin("strlen", 1, 1, ANYWHERE, "the bytes of a string")
def _strlen(called: Called) -> Value:
    return integer(len(string_of(called, 0).encode()))


@builtin("get_array", 1, 1, ANYWHERE, "the bytes of a string as an array of u8")
def _get_array(called: Called) -> Value:
    raw = string_of(called, 0).encode()
    return ArrayType((len(raw),), types.U8), tuple(raw)


@builtin("assert", 1, 1, ALSO_RUN, "ends the simulation, or compiling, if a condition is false", pure=False)
def _assert(called: Called) -> Value:
    if not called.scope.calls:
        raise NotKnown("@assert in code of run time fails when it runs", called.place)
    return _comptime_assert(called)


@builtin("comptime_assert", 1, 2, ANYWHERE, "an error if a condition is false", pure=False)
def _comptime_assert(called: Called) -> Value:
    type_, data = called.arguments[0]
    if type_ != types.BOOL:
        raise CslError(f"@{called.node.name} takes a bool, got {describe((type_, data))}", called.at(0))
    if not data:
        said = f": {string_of(called, 1)}" if len(called.arguments) > 1 else ""
        raise CslError(f"@{called.node.name} failed{said}", called.place)
    return values.VOID


@builtin("comptime_print", 1, 64, ANYWHERE, "says values while compiling", pure=False)
def _comptime_print(called: Called) -> Value:
    text = " ".join(str(v[1]) if v[0] == types.STRING else values.show(v) for v in called.arguments)
    called.instance.compilation.say(f"{called.place}: {text}")
    return values.VOID


@builtin("import_comptime_value", 2, 2, ANYWHERE, "a value from a JSON file")
def _import_comptime_value(called: Called) -> Value:
    type_ = type_argument(called, 0)
    path = string_of(called, 1)
    text = called.instance.compilation.read_text(path, called.scope.module, called.at(1))
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise CslError(f"{path} must be JSON: {error}", called.at(1)) from None
    return conversions.coerce(_from_json(parsed, called.at(1)), type_, called.at(1), f"the value of {path}")


def _from_json(parsed: Any, place: Place) -> Value:
    if isinstance(parsed, bool):
        return _bool(parsed)
    if isinstance(parsed, int):
        return integer(parsed)
    if isinstance(parsed, float):
        return types.COMPTIME_FLOAT, parsed
    if isinstance(parsed, str):
        return types.STRING, parsed
    if isinstance(parsed, dict):
        return types.STRUCT, {str(name): _from_json(each, place) for name, each in parsed.items()}
    if isinstance(parsed, list):
        return types.STRUCT, {str(at): _from_json(each, place) for at, each in enumerate(parsed)}
    raise CslError("null has no value in CSL", place)


def is_handle(type_: Type) -> bool:
    """Whether a type is a number under another name: a color, task id, queue, microthread, direction."""
    return isinstance(type_, OpaqueType) and not type_.is_dsd and not type_.comptime_only


# --- intrinsics of the library ---


@INTRINSIC_ACTIONS.at("__id")
def _id(called: Called) -> Value:
    type_, data = called.arguments[0]
    if not (is_handle(type_) or types.is_int(type_) or isinstance(type_, EnumType)):
        raise CslError(f"expected a color, task id, queue or integer, got {describe((type_, data))}", called.place)
    return types.U16, conversions.fit(types.U16, data, called.place, "the number")


@INTRINSIC_ACTIONS.at("__stream")
def _stream(called: Called) -> Value:
    type_, data = called.arguments[1]
    if called.instance.phase == "value":
        raise NotKnown("@__stream is for layouts", called.place)
    if type_ != types.COLOR and not types.is_int(type_):
        raise CslError(f"a stream is a color, got {describe((type_, data))}", called.place)
    if not 0 <= data < COLORS:
        raise CslError(f"a color is 0 to {COLORS - 1}, got {data}", called.place)
    called.instance.compilation.add_stream(string_of(called, 0), data, called.place)
    return values.VOID


@INTRINSIC_ACTIONS.at("__memcpy_rectangle")
def _memcpy_rectangle(called: Called) -> Value:
    if called.instance.phase == "value":
        raise NotKnown("@__memcpy_rectangle is for layouts", called.place)
    for at, (type_, data) in enumerate(called.arguments):
        if not types.is_int(type_):
            raise CslError(
                f"the rectangle of memcpy has whole numbers of PEs, got {describe((type_, data))}", called.at(at)
            )
    called.instance.compilation.memcpy_rectangle = (called.arguments[0][1], called.arguments[1][1])
    return values.VOID


@INTRINSIC_ACTIONS.at(*[name for name, each in INTRINSICS.items() if each.comptime and each.parameters[0] == "float"])
def _float_function(called: Called) -> Value:
    for at, argument in enumerate(called.arguments):
        if not types.is_float(argument[0]):
            raise CslError(f"expected a float, got {describe(argument)}", called.at(at))
    type_, data = called.arguments[0][0], [float(data) for _, data in called.arguments]
    return type_, conversions.round_float(type_, function(called.node.name.removeprefix("__"), *data))
