"""Compilers of expressions: names, literals, operators, fields, elements, types."""

from collections.abc import Callable
from typing import Any

from cstool.csl import arithmetic, syntax, types, values
from cstool.csl.evaluate_core import (
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
    lazy,
    run_of,
)
from cstool.csl.module import Constant, Module, Variable
from cstool.csl.source import CslError, Place
from cstool.csl.types import BOOL, COMPTIME_INT, ArrayType, EnumType, IntType, PointerType, StructType, Type
from cstool.csl.values import FALSE, TRUE, Reference, Value, describe
from cstool.fabric.arch import PORTS
from cstool.words import did_you_mean

LANGUAGE: dict[str, Value] = {
    "true": TRUE,
    "false": FALSE,
    "undefined": values.UNDEFINED,
    **{port: (types.DIRECTION, number) for number, port in enumerate(PORTS)},
}
"""Names that the language has, beside types."""


def language_name(name: str) -> Value | None:
    """What a name of the language is."""
    found = LANGUAGE.get(name)
    if found is None:
        type_ = types.named_type(name)
        found = None if type_ is None else (types.TYPE, type_)
    return found


def unknown_name(name: str, place: Place | None, known: list[str]) -> CslError:
    """The error of a name that nothing has."""
    return CslError(f"unknown name '{name}'", place, did_you_mean(name, [*known, *LANGUAGE, *types.NAMED]))


def resolve(node: syntax.Expression, env: Env) -> Local | Value | RunTime | Constant | Variable | None:
    """What a name, or a name of a module (`m.x`), stands for; None for any other expression.

    Raises:
        CslError: nothing has the name.
    """
    if isinstance(node, syntax.Name):
        return _resolve_name(node.name, node.place, env)
    if isinstance(node, syntax.Field):
        base = resolve(node.base, env)
        value: Any = base.value if isinstance(base, Constant) else base
        if isinstance(value, tuple) and not isinstance(value, Local | RunTime) and value[0] == types.MODULE:
            module: Module = value[1]
            return module.lookup(node.name, node.place)
    return None


def _resolve_name(name: str, place: Place, env: Env) -> Local | Value | RunTime | Constant | Variable:
    local = env.find(name)
    if local is not None:
        return local
    if env.outer is not None:
        found = env.outer.find(name)
        if found is not None:
            return found
    binding = env.module.find(name, place)
    if binding is not None:
        return binding
    value = language_name(name)
    if value is None:
        raise unknown_name(name, place, [*env.module.names, *_local_names(env)])
    return value


def _local_names(env: Env) -> list[str]:
    names: list[str] = []
    inner: Env | None = env
    while inner is not None:
        names += inner.names
        inner = inner.parent
    scope = env.outer
    while scope is not None:
        names += scope.names
        scope = scope.parent
    return names


def _not_known(name: str, place: Place) -> NotKnown:
    return NotKnown(
        f"'{name}' must be known at compile time, it is a variable of run time",
        place,
        "const, param and comptime var are known at compile time",
    )


def load(what: Local | Value | RunTime | Constant | Variable, name: str, place: Place, env: Env) -> Code:
    """Code that gives the value of what `resolve` found."""
    if isinstance(what, Local):
        slot = what.slot
        if not what.changes:
            return Code(lambda frame: frame[slot])

        def run(frame: Frame) -> Value:
            value: Value = frame[slot]
            return (value[0], tuple(value[1])) if value[1].__class__ is list else value

        return Code(run)
    if isinstance(what, Constant):
        return constant(what.value)
    if isinstance(what, Variable | RunTime):
        raise _not_known(name, place)
    scope = env.outer.holder(name) if env.outer is not None and env.find(name) is None else None
    if scope is not None and name in scope.changing:
        names = scope.names
        return Code(lambda frame: names[name])
    return constant(what)


@expression_of(syntax.Name)
def _name(node: syntax.Name, env: Env) -> Code:
    return load(_resolve_name(node.name, node.place, env), node.name, node.place, env)


@expression_of(syntax.Number)
def _number(node: syntax.Number, env: Env) -> Code:  # noqa: ARG001
    return constant((types.COMPTIME_FLOAT if isinstance(node.value, float) else COMPTIME_INT, node.value))


@expression_of(syntax.String)
def _string(node: syntax.String, env: Env) -> Code:  # noqa: ARG001
    return constant((types.STRING, node.value))


@expression_of(syntax.EnumLiteral)
def _enum_literal(node: syntax.EnumLiteral, env: Env) -> Code:  # noqa: ARG001
    return constant((types.ENUM_LITERAL, node.name))


@expression_of(syntax.Comptime)
def _comptime(node: syntax.Comptime, env: Env) -> Code:
    return compile_expression(node.expression, env.child(calls=True))


def fold(run: Run, parts: list[Code]) -> Code:
    """Code from parts: run now if all of them are constant."""
    return constant(run([])) if all(part.value is not None for part in parts) else Code(run)


# --- operators ---


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


@expression_of(syntax.Binary)
def _binary(node: syntax.Binary, env: Env) -> Code:
    if node.operator in arithmetic.LOGIC:
        return _logic(node, env)
    if node.operator == "...":
        raise CslError("a range a...b stands in a case of a switch alone", node.place, "for loops take @range(T, n)")
    left, right = compile_expression(node.left, env), compile_expression(node.right, env)
    if left.value is not None and right.value is not None:
        return constant(arithmetic.binary(node.operator, left.value, right.value, node.place))
    operator = node.operator
    if operator in arithmetic.ORDER or operator in arithmetic.EQUALITY:
        return Code(_comparison(operator, left.run, right, node.place))
    if operator in ("+", "-", "*"):
        return Code(_sum(operator, left.run, right, node.place))
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


def _comparison(operator: str, left: Run, right_code: Code, place: Place) -> Run:
    """Both types are checked once; while they stay what they are, numbers are compared at once."""
    compare: Callable[[Any, Any], bool] = arithmetic.COMPARE[operator]
    right = right_code.run
    known_left: Type | None = None
    known_right: Type | None = None

    def run(frame: Frame) -> Value:
        nonlocal known_left, known_right
        a, b = left(frame), right(frame)
        if a[0] is known_left and b[0] is known_right:
            return TRUE if compare(a[1], b[1]) else FALSE
        result = arithmetic.binary(operator, a, b, place)
        if _stay_ints(a[0], b[0], right_code):
            known_left, known_right = a[0], b[0]
        return TRUE if result[1] else FALSE

    return run


def _stay_ints(left: Type, right: Type, right_code: Code) -> bool:
    """Whether integers of these types need no conversion, whatever they are: a constant that fits once does ever."""
    return types.is_int(left) and (left is right or (right is COMPTIME_INT and right_code.value is not None))


def _sum(operator: str, left: Run, right_code: Code, place: Place) -> Run:
    combine = arithmetic.COMBINE[operator]
    right = right_code.run
    known_left: Type | None = None
    known_right: Type | None = None
    least = most = 0

    def run(frame: Frame) -> Value:
        nonlocal known_left, known_right, least, most
        a, b = left(frame), right(frame)
        if a[0] is known_left and b[0] is known_right:
            result = combine(a[1], b[1])
            if least <= result <= most:
                return a[0], result
        value = arithmetic.binary(operator, a, b, place)
        type_ = value[0]
        if isinstance(type_, IntType) and a[0] is type_ and _stay_ints(a[0], b[0], right_code):
            known_left, known_right, least, most = a[0], b[0], type_.least, type_.most
        return value

    return run


def _logic(node: syntax.Binary, env: Env) -> Code:
    left = compile_expression(node.left, env)
    stop = FALSE if node.operator == "and" else TRUE
    place, left_run = node.place, left.run

    def right_code(right: syntax.Node, inner: Env) -> Run:
        return run_of(right, inner)

    def check(value: Value) -> Value:
        if value[0] is not BOOL and value[0] != BOOL:
            arithmetic.operation(node.operator, value[0], BOOL, place)
        return value

    if left.value is not None:
        if check(left.value)[1] == stop[1]:
            return constant(stop)
        right = compile_expression(node.right, env)
        right_run = right.run
        return fold(lambda frame: check(right_run(frame)), [right])
    later = lazy(node.right, env, right_code)

    def run(frame: Frame) -> Value:
        value = left_run(frame)
        if check(value)[1] == stop[1]:
            return stop
        return check(later(frame))

    return Code(run)


# --- fields, elements, pointers ---


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
            raise _not_known(name, place) if place is not None else NotKnown(name, None)
        return binding.value  # type: ignore[no-any-return]
    if type_ == types.TYPE and isinstance(data, EnumType):
        return data, arithmetic.enum_member(data, name, place)
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
        NotKnown: what it points at is known at run time alone.
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
    place, inner = node.place, pointer.run
    return Code(lambda frame: dereference(inner(frame), place))


def index_count(count: int) -> str:
    """A count of indices, in words."""
    return f"{count} {'index' if count == 1 else 'indices'}"


def flat_index(type_: ArrayType, indices: list[Value], place: Place | None) -> int:
    """Where an element is in the flat tuple.

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
            return constant(what.value)
        return constant((PointerType(what.type, const=True), what.address()))
    if isinstance(what, Variable):
        return constant((PointerType(what.type), what.address()))
    if isinstance(what, RunTime):
        if what.address is None:
            raise _not_known(name, node.place)
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


# --- literals and types ---


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
        return arithmetic.coerce((types.STRUCT, data), type_, place, "the literal")

    return fold(run, [type_code, *parts])


def _counted_array(node: syntax.StructLiteral, array: syntax.ArrayType, parts: list[Code], env: Env) -> Code:
    """`[_]T{...}`: as many elements as there are."""
    if len(array.extents) != 1:
        raise CslError("'_' counts the elements of an array of one dimension", array.place)
    element_code = compile_expression(array.element, env.child(calls=True))
    place = node.place

    def run(frame: Frame) -> Value:
        type_ = ArrayType((len(parts),), as_type(element_code.run(frame), array.element.place))
        data = {str(at): part.run(frame) for at, part in enumerate(parts)}
        return arithmetic.coerce((types.STRUCT, data), type_, place, "the literal")

    return fold(run, [element_code, *parts])


def as_type(value: Value, place: Place | None) -> Type:
    """The type that a value is.

    Raises:
        CslError: it is none.
    """
    if value[0] == types.TYPE:
        return value[1]  # type: ignore[no-any-return]
    raise CslError(f"expected a type, got {describe(value)}", place)


def type_run(node: syntax.Expression, env: Env) -> tuple[Callable[[Frame], Type], Type | None]:
    """What gives the type that an expression stands for; and it, where it is constant."""
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
        return types.TYPE, ArrayType(tuple(shape), element_run(frame))

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
            (field, arithmetic.coerce(default.run(frame), type_, node.place, f"the default of '{field}'")[1])
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
    """Fields that are never changed, so that they can be part of a type."""

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
            following = arithmetic.coerce(value, tag, expression.place, f"the member '{member}'")[1]
        arithmetic.fit(tag, following, node.place, f"the member '{member}'")
        if any(following == number for _, number in members):
            raise CslError(f"members of an enum have different numbers, got {following} twice", node.place)
        members.append((member, following))
        following += 1
    return constant((types.TYPE, EnumType(name, tag, tuple(members))))
