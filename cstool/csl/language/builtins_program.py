"""Builtins of a PE program's `comptime` blocks: tasks, queues, exports to the host, local configs of colors."""

from cstool.csl.fabric.program import Symbol
from cstool.csl.language import syntax, types, values
from cstool.csl.language.builtins_dsd import color_number, fields_of, task_number
from cstool.csl.language.builtins_table import COMPTIME, RUN, Called, builtin, special
from cstool.csl.language.builtins_values import string_of
from cstool.csl.language.evaluate_core import Code, Frame, Scope
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.instance import BoundTask, Instance
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.routes import color_config
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, FunctionType, PointerType, Type
from cstool.csl.language.values import FunctionValue, Value, describe

AT_START = (COMPTIME, RUN)
_NUMBERS = "bBhHiwqQef"
"""letters of all numbers"""


# --- tasks ---


def _task(called: Called, kind: str) -> FunctionValue:
    value = called.arguments[0][1]
    if not isinstance(value, FunctionValue) or value.declaration.kind != "task":
        is_function = isinstance(value, FunctionValue)
        hint = f"declare it with 'task': task {value.declaration.name}(...) void" if is_function else None
        raise CslError(f"@{called.node.name} takes a task, got {describe(called.arguments[0])}", called.at(0), hint)
    if any(parameter.comptime for parameter in value.declaration.parameters):
        raise CslError(f"a {kind} task has no comptime parameters", called.at(0))
    return value


def _letters_of(type_: Type, function: FunctionValue, allowed: str, rule: str) -> tuple[str, ...]:
    """The letters of a function's parameters, each one of `allowed`; `rule` is the beginning of the message."""
    assert isinstance(type_, FunctionType)
    letters = []
    for parameter, declared in zip(type_.parameters, function.declaration.parameters, strict=True):
        letter = None if parameter in (None, types.BF16, types.CB16) else parameter.letter
        if letter is None or letter not in allowed:
            raise CslError(f"{rule}, got '{declared.name}' of {parameter or 'anytype'}", declared.place)
        letters.append(letter)
    return tuple(letters)


def _letters(called: Called, kind: str) -> tuple[str, ...]:
    task, type_ = _task(called, kind), called.arguments[0][0]
    letters = _letters_of(type_, task, "wifHhe", "a task's parameter has 16 or 32 bits")
    if type_.result != types.VOID:  # type: ignore[attr-defined]
        raise CslError(f"a task returns void, got {type_.result}", task.declaration.result.place)  # type: ignore[attr-defined]
    return letters


def _bits(letters: tuple[str, ...]) -> int:
    return sum(32 if letter in "wif" else 16 for letter in letters)


def _id(called: Called, *allowed: Type) -> int:
    """The id of a task, of one of the types."""
    type_, number = called.arguments[1]
    if type_ not in allowed:
        message = f"@{called.node.name} takes a {allowed[0]}, got {describe((type_, number))}"
        raise CslError(message, called.at(1), f"@get_{allowed[0]}(...) makes one")
    return int(number)


def _bind(called: Called, kind: str, number: int, letters: tuple[str, ...]) -> Value:
    instance, place = called.instance, called.place
    task = _task(called, kind)
    own, others = instance.tasks, instance.control_tasks
    if kind == "control":
        own, others = others, own
    bound = own.get(number) or others.get(number)
    if bound is not None:
        clash = CslError(
            f"task id {number} has one task, got '{task.declaration.name}' after '{bound.root.name}'",
            place,
            notes=((bound.place, f"bound to '{bound.root.name}'"),),
        )
        if number in own:
            raise clash
        instance.shared_ids.append(clash)
    by_queue = instance.arch.data_tasks_by_queue
    own[number] = BoundTask(
        instance.root_of(task, kind, letters),
        place,
        number if kind == "data" and not by_queue else None,
        number if kind == "data" and by_queue else None,
    )
    return values.VOID


@builtin("bind_local_task", 2, 2, (COMPTIME,), "gives a local task its id")
def _bind_local_task(called: Called) -> Value:
    number = _id(called, types.LOCAL_TASK, types.COLOR)
    if number not in called.instance.arch.local_tasks:
        raise CslError(f"a local task id of {called.instance.arch.name} cannot be {number}", called.at(1))
    if _task(called, "local").declaration.parameters:
        raise CslError("a local task has no parameters", called.at(0), "a data task takes data: @bind_data_task")
    return _bind(called, "local", number, _letters(called, "local"))


@builtin("bind_data_task", 2, 2, (COMPTIME,), "gives a data task its id")
def _bind_data_task(called: Called) -> Value:
    by_queue = called.instance.arch.data_tasks_by_queue
    number = _id(called, types.DATA_TASK, *([] if by_queue else [types.COLOR]))
    letters = _letters(called, "data")
    if not letters:
        raise CslError(
            "a data task takes the data of a wavelet, got a task without parameters",
            called.at(0),
            f"task {_task(called, 'data').declaration.name}(data: u32) void",
        )
    if _bits(letters) > 32:
        bits = _bits(letters)
        raise CslError(f"a data task takes the 32 bits of a wavelet, its parameters have {bits}", called.at(0))
    return _bind(called, "data", number, letters)


@builtin("bind_control_task", 2, 2, (COMPTIME,), "gives a control task its id")
def _bind_control_task(called: Called) -> Value:
    number = _id(called, types.CONTROL_TASK)
    letters = _letters(called, "control")
    if _bits(letters) > 16:
        raise CslError("a control task takes the 16 bits of data of a control wavelet", called.at(0))
    return _bind(called, "control", number, letters)


@builtin("bind_task", 2, 2, (COMPTIME,), "@bind_data_task or @bind_local_task, as SDK 0.9 named both")
def _bind_task(called: Called) -> Value:
    task = _task(called, "local")
    return _bind_data_task(called) if task.declaration.parameters else _bind_local_task(called)


@builtin("activate", 1, 1, AT_START, "lets a local task run")
def _activate(called: Called) -> Value:
    number = task_number(called.instance, called.arguments[0], called.at(0))
    called.instance.activated.setdefault(number, called.place)
    return values.VOID


@builtin("block", 1, 1, AT_START, "keeps a task from running")
def _block(called: Called) -> Value:
    number = task_number(called.instance, called.arguments[0], called.at(0))
    called.instance.blocked.setdefault(number, called.place)
    return values.VOID


@builtin("unblock", 1, 1, AT_START, "ends what @block did")
def _unblock(called: Called) -> Value:
    called.instance.blocked.pop(task_number(called.instance, called.arguments[0], called.at(0)), None)
    return values.VOID


@builtin("set_teardown_handler", 2, 2, (COMPTIME,), "what runs when a color is in teardown")
def _set_teardown_handler(called: Called) -> Value:
    return _set_handler(called, {types.COLOR: "color"}, "a color")


@builtin("set_empty_queue_handler", 2, 2, (COMPTIME,), "what runs when a flushed queue is empty", "wse3")
def _set_empty_queue_handler(called: Called) -> Value:
    return _set_handler(called, {types.INPUT_QUEUE: "input", types.OUTPUT_QUEUE: "output"}, "a queue")


def _set_handler(called: Called, kinds: dict[Type, str], what: str) -> Value:
    """Let the teardown task call a function for a color or a queue; the two arguments come in either order."""
    function, subject = called.arguments
    if not isinstance(function[1], FunctionValue):
        function, subject = subject, function
    kind = kinds.get(subject[0])
    if kind is None or not isinstance(function[1], FunctionValue):
        raise CslError(f"@{called.node.name} takes a function and {what}", called.place)
    if function[1].declaration.parameters:
        raise CslError("a handler has no parameters", called.place)
    instance, number = called.instance, int(subject[1])
    root = instance.root_of(function[1], "local")
    before = instance.handlers.setdefault((kind, number), BoundTask(root, called.place))
    if before.root is not root:
        raise CslError(
            f"{what} has one handler, got '{root.name}' after '{before.root.name}'",
            called.place,
            notes=((before.place, "the other one"),),
        )
    return values.VOID


@builtin("set_control_task_table", 0, 1, (COMPTIME,), "lets control tasks have ids of their own", "wse3")
def _set_control_task_table(called: Called) -> Value:
    if called.arguments:
        fields_of(called, 0, ("instructions", "stride"))
    called.instance.control_table = True
    return values.VOID


# --- queues and colors ---


@builtin("initialize_queue", 1, 2, (COMPTIME,), "binds a queue to a color")
def _initialize_queue(called: Called) -> Value:
    type_, number = called.arguments[0]
    instance, place = called.instance, called.place
    if type_ not in (types.INPUT_QUEUE, types.OUTPUT_QUEUE):
        raise CslError(f"@initialize_queue takes a queue, got {describe((type_, number))}", called.at(0))
    known = ("color", "priority", "control_transform", "simd_mode")
    fields = fields_of(called, 1, known) if len(called.arguments) > 1 else {}
    output = type_ == types.OUTPUT_QUEUE
    if "color" not in fields:
        # A data task of WSE-2 names its color itself.
        if instance.arch.name == "wse3":
            raise CslError(f"@initialize_queue of an {type_} of {instance.arch.name} needs .color", place)
        return values.VOID
    instance.bind_queue(number, color_number(fields["color"], called.at(1)), output, place)
    return values.VOID


@builtin("set_local_color_config", 2, 2, (COMPTIME,), "the route of a color at this PE, from its own program")
def _set_local_color_config(called: Called) -> Value:
    color = color_number(called.arguments[0], called.at(0))
    config = color_config(called.arguments[1], called.at(1))
    instance = called.instance
    before = instance.colors.get(color)
    if before is not None:
        raise CslError(
            f"a color is configured once at a PE, got color {color} again",
            called.place,
            notes=((before[1], "the first one"),),
        )
    instance.colors[color] = (config, called.place)
    return values.VOID


# --- the host ---


@special("export_symbol", 1, 2, (COMPTIME,), "lets the host use a variable or function")
def _export_symbol(node: syntax.Builtin, scope: Scope) -> Code:
    instance = scope.module.instance
    subject = node.arguments[0]
    what = resolve(subject, scope)
    name = scope.expression(node.arguments[1]) if len(node.arguments) > 1 else None

    def run(frame: Frame) -> Value:
        if instance.is_layout or instance.phase == "value":
            raise CslError("@export_symbol stands in a comptime block of a PE program alone", node.place)
        exported = getattr(subject, "name", None)
        if name is not None:
            called = Called(instance, node, [values.VOID, name.run(frame)], scope)
            exported = string_of(called, 1)
        if exported is None:
            raise CslError("@export_symbol of something without a name needs one", node.place)
        if isinstance(what, Variable | Constant) and isinstance(what.type, PointerType):
            type_: Type = what.type
            symbol = _pointer_symbol(instance, what, subject.place)
        elif isinstance(what, Variable):
            element = f"[*]{what.type.element}" if isinstance(what.type, ArrayType) else f"*{what.type}"
            hint = f"export a pointer to it: const {what.name}_ptr: {element} = &{what.name};"
            message = f"the host can use functions and pointers, got the variable '{what.name}'"
            raise CslError(message, subject.place, hint)
        else:
            value = scope.expression(subject).run(frame)
            type_ = value[0]
            symbol = _symbol(instance, value, subject.place)
        before = instance.symbols.get(exported)
        if before is not None:
            raise CslError(
                f"a symbol is exported once, got '{exported}' again", node.place, notes=((before[2], "the other one"),)
            )
        instance.symbols[exported] = (symbol, type_, node.place)
        return values.VOID

    return Code(run)


def _pointer_symbol(instance: Instance, what: Variable | Constant, place: Place) -> Symbol:
    data = what.value[1] if isinstance(what, Constant) else what.initial
    if not isinstance(data, int):
        raise CslError(f"'{what.name}' must point at something in SRAM", place)
    pointer = what.address() if isinstance(what, Variable) else None
    assert isinstance(what.type, PointerType)
    pointee = what.type.pointee
    element = what.type.element
    if element.letter is None:
        raise CslError(f"the host can use numbers, got {what.type}", place)
    count = pointee.count if isinstance(pointee, ArrayType) else _count_behind(instance, data, element)
    return Symbol("variable", data, pointer, element.letter, count)


def _count_behind(instance: Instance, address: int, element: Type) -> int:
    block = instance.region(address)
    return 0 if block is None else (block.address + block.type.size - address) // max(element.size, 1)


def _symbol(instance: Instance, value: Value, place: Place) -> Symbol:
    type_, data = value
    if isinstance(data, FunctionValue):
        if data.declaration.kind == "task" or not isinstance(type_, FunctionType):
            hint = "export an fn, which may @activate the task"
            raise CslError("the host calls functions, not tasks", place, hint)
        letters = _letters_of(type_, data, _NUMBERS, "the host gives numbers to a function")
        root = instance.root_of(data, "function", letters)
        return Symbol("function", parameters=letters, function=root.name, place=str(data.declaration.place))
    raise CslError(
        f"the host can use functions and pointers, got {describe(value)}", place, "export a pointer: var p = &x;"
    )


@builtin("rpc", 1, 1, (COMPTIME,), "what SDK 1.0 to 1.2 needed for launches; does nothing")
def _rpc(called: Called) -> Value:  # noqa: ARG001
    return values.VOID
