"""Builtins on scalars, tasks and queues, and the library's intrinsics, as Python."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from cstool.csl.language import conversions, costs, evaluate, syntax, types, values
from cstool.csl.language.builtins_handles import HANDLES
from cstool.csl.language.emit_code import NOTHING, Code, Level, atom, is_raw, joined, known, rounded
from cstool.csl.language.emit_frame import EXPRESSIONS, Frame
from cstool.csl.language.emit_memory import address_in
from cstool.csl.language.intrinsics import INTRINSICS
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, FloatType, IntType, OpaqueType, PointerType, Type
from cstool.csl.language.values import FunctionValue

BUILTINS: syntax.Table[str, Callable[[Frame, syntax.Builtin], Code]] = syntax.Table()
"""The maker of each builtin, by its name without the @; `builtins_table.check_builtin` has counted the arguments."""


@EXPRESSIONS.at(syntax.Builtin)
def make(frame: Frame, node: syntax.Builtin, want: Type | None) -> Code:  # noqa: ARG001
    """`@name(...)`, known at run time alone."""
    maker = BUILTINS.get(node.name)
    if maker is not None:
        return maker(frame, node)
    if node.name in INTRINSICS:
        return _intrinsic(frame, node)
    return known(evaluate.evaluate(node, frame.scope))


# --- conversions ---


@BUILTINS.at("as")
def _as(frame: Frame, node: syntax.Builtin) -> Code:
    target = evaluate.evaluate_type(node.arguments[0], frame.scope)
    code = frame.expression(node.arguments[1], target)
    conversions.check_cast(code.type, target, node.place)
    if code.known:
        return known(conversions.cast(code.pair, target, node.place))
    if isinstance(target, types.EnumType) and types.is_int(code.type):
        frame.cost(costs.ALU)
        return code.cast(target.tag).retyped(target)
    if target.comptime_only:
        raise CslError(f"@as({target}, ...) needs a value that is known at compile time, got {code.type}", node.place)
    if code.fields is not None or not types.is_number(target) and target != types.BOOL:
        return code.converted(target, node.place)
    frame.cost(costs.ALU)
    if isinstance(code.type, types.EnumType):
        code = code.retyped(code.type.tag)
    return code.cast(target)


@BUILTINS.at("bitcast")
def _bitcast(frame: Frame, node: syntax.Builtin) -> Code:
    target = evaluate.evaluate_type(node.arguments[0], frame.scope)
    code = frame.expression(node.arguments[1])
    conversions.check_bitcast(code.type, target, node.place)
    if isinstance(target, PointerType):
        frame.program.need_unaligned(target)
        return code.to_bits().retyped(target, low=None, high=None)
    if is_raw(code.type):
        code = code.retyped(types.int_type(types.bits_of(code.type), False))
    bits = code.to_bits()
    if is_raw(target):
        return bits.retyped(target)
    return bits.from_bits(target)


@BUILTINS.at("ptrcast")
def _ptrcast(frame: Frame, node: syntax.Builtin) -> Code:
    target = evaluate.evaluate_type(node.arguments[0], frame.scope)
    code = frame.expression(node.arguments[1])
    if not isinstance(target, PointerType) or not isinstance(code.type, PointerType):
        raise CslError(f"@ptrcast makes a pointer of a pointer, got {code.type} to {target}", node.place)
    if code.type.const and not target.const:
        raise CslError(f"@ptrcast keeps const, got {code.type} to {target}", node.place)
    if code.type.pointee.align < target.pointee.align:
        frame.program.need_unaligned(target)
    return code.retyped(target)


@BUILTINS.at("get_int", "get_color_id", "__id")
def _number(frame: Frame, node: syntax.Builtin) -> Code:
    code = frame.expression(node.arguments[0])
    if not isinstance(code.type, OpaqueType | types.EnumType | IntType):
        raise CslError(f"@{node.name} takes a color, an id, a queue or an enum, got {code.type}", node.place)
    if isinstance(code.type, OpaqueType):
        return code.retyped(types.U16)
    return (code.retyped(code.type.tag) if isinstance(code.type, types.EnumType) else code).cast(types.U16)


_IDS = {name: type_ for name, (type_, _) in HANDLES.items()} | {
    "get_local_task_id": types.LOCAL_TASK,
    "get_data_task_id": types.DATA_TASK,
}


@BUILTINS.at(*_IDS)
def _id(frame: Frame, node: syntax.Builtin) -> Code:
    code = frame.typed(node.arguments[0], types.U16, f"the number of @{node.name}")
    return code.retyped(_IDS[node.name], low=None, high=None)


@BUILTINS.at("field")
def _field(frame: Frame, node: syntax.Builtin) -> Code:
    name = evaluate.evaluate(node.arguments[1], frame.scope)
    if name[0] != types.STRING:
        raise CslError(f"@field takes the name of a field, got {values.describe(name)}", node.arguments[1].place)
    return frame.expression(syntax.Field(node.place, node.arguments[0], name[1]))


@BUILTINS.at("constants")
def _constants(frame: Frame, node: syntax.Builtin) -> Code:
    """Of a value known at run time alone."""
    array = evaluate.evaluate_type(node.arguments[0], frame.scope)
    if not isinstance(array, ArrayType):
        raise CslError(f"@constants makes an array, got {array}", node.arguments[0].place)
    value = frame.typed(node.arguments[1], array.element)
    return atom(array, f"({value.python},) * {array.count}", [value])


@BUILTINS.at("concat_structs")
def _concat_structs(frame: Frame, node: syntax.Builtin) -> Code:
    """Of structs with fields that are known at run time alone."""
    joint: dict[str, Code] = {}
    for code, argument in zip(frame.made(node.arguments), node.arguments, strict=True):
        parts = {} if code.type == types.VOID else code.parts
        if parts is None:
            raise CslError(f"@concat_structs takes anonymous structs here, got {code.type}", argument.place)
        for name, part in parts.items():
            if name in joint:
                raise CslError(f"@concat_structs takes different fields, got '{name}' twice", argument.place)
            joint[name] = part
    return Code(types.STRUCT, fields=joint)


# --- assertions ---


@BUILTINS.at("assert")
def _assert(frame: Frame, node: syntax.Builtin) -> Code:
    condition = frame.typed(node.arguments[0], types.BOOL, "the condition of @assert")
    text = _source_text(node.arguments[0].place)
    frame.cost(costs.ALU + costs.BRANCH, 2)
    if condition.known and condition.value:
        return NOTHING
    with frame.indented(f"if not {condition.at(Level.NEGATED)}:"):
        frame.line(f"pe.fail({f'@assert({text}) does not hold'!r}, {frame.where(node.place)})")
    return NOTHING


def _source_text(place: Place) -> str:
    text = " ".join(place.source.text[place.start : place.end].split())
    return text if len(text) <= 60 else text[:57] + "..."


# --- tasks ---


@BUILTINS.at("activate", "block", "unblock")
def _task(frame: Frame, node: syntax.Builtin) -> Code:
    code = frame.expression(node.arguments[0])
    task = task_id(frame, code, f"@{node.name}", queues=node.name != "activate", place=node.arguments[0].place)
    frame.cost(costs.TASK_CALL)
    return frame.timed(f"pe.{node.name}({task.python})")


_TASKS = (types.LOCAL_TASK, types.DATA_TASK, types.CONTROL_TASK)


def task_id(frame: Frame, code: Code, what: str, *, queues: bool, place: Place) -> Code:
    """The id of a task, also by the task itself; or of an input queue, plus 64.

    Raises:
        CslError: it is neither.
    """
    instance = frame.program.instance
    if types.points_to_function(code.type):
        if not code.known:
            return atom(types.U16, f"TASKS[{code.python}]", [code])
        code = known((code.type, instance.function_at(code.value)))
    if code.known and isinstance(code.value, FunctionValue):
        return known((types.U16, instance.task_id(code.value, place)))
    if code.type in _TASKS or (queues and code.type == types.COLOR):
        return code.retyped(types.U16)
    if queues and code.type == types.INPUT_QUEUE:
        if code.known:
            return known((types.U16, 64 + code.value))
        return joined(types.U16, f"64 + {code.operand}", [code])
    kinds = "a task, its id or an input queue" if queues else "a task or its id"
    raise CslError(f"{what} takes {kinds}, got {code.type}", place)


@BUILTINS.at("queue_flush")
def _flush(frame: Frame, node: syntax.Builtin) -> Code:
    code = frame.expression(node.arguments[0])
    if code.type not in (types.INPUT_QUEUE, types.OUTPUT_QUEUE):
        raise CslError(f"@queue_flush takes an input or output queue, got {code.type}", node.place)
    frame.cost(costs.TASK_CALL)
    return frame.timed(f"pe.queue_flush({code.python}, {code.type == types.OUTPUT_QUEUE})")


@BUILTINS.at("random16")
def _random16(frame: Frame, node: syntax.Builtin) -> Code:  # noqa: ARG001
    frame.cost(costs.ALU)
    name = frame.fresh("random")
    frame.line(f"{name} = random16(pe)")
    return Code(types.U16, name)


@BUILTINS.at("set_active_prng")
def _set_active_prng(frame: Frame, node: syntax.Builtin) -> Code:
    number = frame.typed(node.arguments[0], types.U16, "the generator of @set_active_prng")
    frame.cost(costs.STORE)
    frame.line(f"set_active_prng(pe, {number.python})")
    return NOTHING


@BUILTINS.at("get_config", "get_config_unchecked")
def _get_config(frame: Frame, node: syntax.Builtin) -> Code:
    address = frame.typed(node.arguments[0], types.U16, "the address of @get_config")
    frame.cost(costs.LOAD)
    return Code(types.U16, f"pe.config_read({address.python})", reads=True)


@BUILTINS.at("set_config", "set_config_unchecked")
def _set_config(frame: Frame, node: syntax.Builtin) -> Code:
    made = _arguments(frame, node, (types.U16, types.U16))
    frame.cost(costs.STORE)
    return frame.timed(f"pe.config_write({made[0].python}, {made[1].python})")


def _arguments(frame: Frame, node: syntax.Builtin, wanted: Sequence[Type]) -> list[Code]:
    return frame.ordered(
        [
            partial(frame.typed, each, type_, f"argument {at} of @{node.name}")
            for at, (each, type_) in enumerate(zip(node.arguments, wanted, strict=True), 1)
        ]
    )


# --- intrinsics ---

_CALLS = {
    "__activate": "activate",
    "__unblock": "unblock",
    "__config_write": "config_write",
    "__counter": "counter.set",
}


def _intrinsic(frame: Frame, node: syntax.Builtin) -> Code:
    name = node.name
    what = INTRINSICS[name]
    if name in ("__say", "__print"):
        return _say(frame, node)
    if name in ("__time", "__clock"):
        return _time(frame, node, "counter.shows" if name == "__time" else "time")
    frame.cost(what.cycles, 4)
    if name in ("__pe_x", "__pe_y"):
        return Code(types.U16, f"pe.{name[-1]}")
    if name in ("__fabric_x", "__fabric_y"):
        return Code(types.U16, f"pe.{name[2:]}")
    if what.parameters[:1] == ("float",):
        return _function(frame, node)
    made = _arguments(frame, node, [types.U16] * len(node.arguments))
    if name == "__config_read":
        return Code(types.U16, f"pe.config_read({made[0].python})", reads=True)
    return frame.timed(f"pe.{_CALLS.get(name, name[2:])}({', '.join(code.python for code in made)})")


def _function(frame: Frame, node: syntax.Builtin) -> Code:
    first = frame.expression(node.arguments[0])
    if not isinstance(first.type, FloatType):
        raise CslError(f"@{node.name} takes f16 or f32, got {first.type}", node.place)
    type_ = first.type
    made = frame.ordered([lambda: first, *(partial(frame.typed, each, type_) for each in node.arguments[1:])])
    text = ", ".join(code.python for code in made)
    return rounded(type_, f"function({node.name[2:]!r}, {text})", made, level=0)


def _time(frame: Frame, node: syntax.Builtin, reading: str) -> Code:
    pointer = frame.expression(node.arguments[0])
    frame.flush()
    clock, at = frame.fresh("clock"), address_in(pointer)
    frame.program.views.add("H")
    frame.line(f"{clock} = pe.{reading}()")
    for word in range(3):
        shifted = f"{clock} >> {16 * word}" if word else clock
        frame.line(f"U16[{at.plus(2 * word).text(2)}] = {shifted} & 0xffff")
    frame.cost(INTRINSICS[node.name].cycles, 6)
    return NOTHING


def _say(frame: Frame, node: syntax.Builtin) -> Code:
    """`@__say(text, fields)`, and `@__print`: the k-th `{}` is the k-th field."""
    text = evaluate.evaluate(node.arguments[0], frame.scope)
    fields = list((frame.expression(node.arguments[1]).parts or {}).values())
    pieces = re.split(r"\{([a-z]*)\}", str(text[1]))
    if len(pieces) // 2 != len(fields):
        raise CslError(
            f"the text has {len(pieces) // 2} places for values ({{}}), got {len(fields)} values", node.place
        )
    out = [
        f"shown({piece!r}, {fields[at // 2].python})" if at % 2 else repr(piece)
        for at, piece in enumerate(pieces)
        if at % 2 or piece
    ]
    return frame.timed(f"pe.{node.name[2:]}({' + '.join(out) or repr('')})")
