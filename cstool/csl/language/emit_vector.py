"""Vector operations, `@map`, DSDs made and changed at run time, and DSRs, as Python.

An operation on memory and scalars alone is done at once (`pe.run`). An operation on the fabric, a FIFO or a DSR waits
(`yield from pe.wait`), or goes to a microthread (`pe.start`) with `.async = true`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cstool.csl.fabric.dsd import FabricIn, FabricOut
from cstool.csl.language import conversions, costs, evaluate, syntax, types, values
from cstool.csl.language.builtins_dsd import UNKNOWN_COLOR
from cstool.csl.language.emit_builtins import BUILTINS, task_id
from cstool.csl.language.emit_code import NOTHING, Code, Level, joined, known
from cstool.csl.language.emit_frame import Frame
from cstool.csl.language.operands import FORMS, Form, Operand, say
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import DSR_NAMES, ArrayType, OpaqueType, PointerType, Type
from cstool.csl.language.values import FunctionValue, Value
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    from cstool.csl.language.emit import ProgramText

_MEMORY = (types.MEM1D, types.MEM4D)
_FIFOS = (str(types.FIFO), "dsr_fifo_dest", "dsr_fifo_src1")
_SCALARS: dict[str, tuple[Type, ...]] = {
    "H": (types.I16, types.U16),
    "h": (types.I16,),
    "w": (types.I32, types.U32),
    "e": (types.F16,),
    "f": (types.F32,),
}


# --- operations ---


@BUILTINS.at(*FORMS)
def _operation(frame: Frame, node: syntax.Builtin) -> Code:
    """`@fadds(dest, a, b, .{ ... })`."""
    arguments = list(node.arguments)
    forms = FORMS[node.name]
    settings_node = arguments.pop() if len(arguments) > min(len(form) for form in forms) else None
    made = frame.made(arguments)
    if settings_node is not None and not _is_settings(frame, settings_node):
        made.append(frame.expression(settings_node))
        arguments.append(settings_node)
        settings_node = None
    form = _form(node, forms, made)
    operands = [
        operand(frame, code, each, which, argument)
        for code, each, which, argument in zip(made, form, _roles(form), arguments, strict=True)
    ]
    settings = _settings(frame, settings_node, node.place)
    return _write(frame, node, operands, settings)


def _is_settings(frame: Frame, node: syntax.Expression) -> bool:
    if isinstance(node, syntax.StructLiteral):
        return node.type is None
    value = evaluate.try_comptime(node, frame.scope)
    return value is not None and isinstance(value[1], dict)


def _roles(form: Form) -> list[str]:
    return ["dest", *(f"src{at}" for at in range(len(form) - 1))] if len(form) > 1 else ["src0"]


def _form(node: syntax.Builtin, forms: Sequence[Form], made: Sequence[Code]) -> Form:
    for form in forms:
        if len(form) == len(made) and all(map(_fits, form, made)):
            return form
    got = ", ".join(str(code.type) for code in made)
    ways = " or ".join(f"({say(form)})" for form in forms)
    raise CslError(f"@{node.name} takes {ways}, got ({got})", node.place)


def _fits(operand_: Operand, code: Code) -> bool:
    type_ = code.type
    if operand_.kind == "vector":
        return isinstance(type_, OpaqueType) and type_.is_dsd
    if operand_.kind == "pointer":
        return isinstance(type_, PointerType) and type_.pointee in _SCALARS[operand_.letter] and not type_.const
    return any(conversions.coerces(type_, each) or _known_fits(code, each) for each in _SCALARS[operand_.letter])


def _known_fits(code: Code, target: Type) -> bool:
    return code.known and isinstance(target, types.IntType) and types.is_int(code.type)


def operand(frame: Frame, code: Code, form: Operand, role: str, node: syntax.Expression) -> Code:
    """One operand of an operation, checked, as Python.

    Raises:
        CslError: it is unfit for this place.
    """
    if form.kind == "vector":
        return vector(frame, code, role, node)
    if form.kind == "pointer":
        text = f"Pointer({code.python})"
        return joined(code.type, text, [code], level=0)
    for type_ in _SCALARS[form.letter]:
        if conversions.coerces(code.type, type_) and not types.is_int(code.type):
            return code.converted(type_, node.place)
        if code.type == type_:
            return code
    return _integer_scalar(code, _SCALARS[form.letter], node)


def _integer_scalar(code: Code, targets: Sequence[Type], node: syntax.Expression) -> Code:
    for type_ in targets:
        assert isinstance(type_, types.IntType)
        if code.known and not type_.least <= code.value <= type_.most:
            continue
        return code.converted(type_, node.place)
    return code.converted(targets[-1], node.place)


def vector(frame: Frame, code: Code, role: str, node: syntax.Expression) -> Code:
    """A DSD, DSR or FIFO as an operand.

    Raises:
        CslError: a source in the place of a destination, or the reverse.
    """
    name = str(code.type)
    if role == "dest" and name in ("fabin_dsd", "dsr_src1", "dsr_fifo_src1"):
        raise CslError(f"a destination cannot be {name}", node.place)
    if role != "dest" and name == "fabout_dsd":
        raise CslError("a source cannot be fabout_dsd", node.place)
    note(frame.program, code.value)
    if code.known:
        text = frame.program.constant(_title(node), code.type, code.value)
        return Code(code.type, text)
    return code


def _title(node: syntax.Expression) -> str:
    if isinstance(node, syntax.Name | syntax.Field):
        return node.name
    return "operand"


def note(program: "ProgramText", data: object) -> None:
    """Note the color that an operand sends or receives."""
    if isinstance(data, FabricIn):
        color = program.instance.queue_color(data.queue, False)
        if color is not None:
            program.inputs.add(color)
    elif isinstance(data, FabricOut):
        color = resolved(program, data).color
        if color != UNKNOWN_COLOR:
            program.outputs.add(color)


def resolved(program: "ProgramText", data: FabricOut) -> FabricOut:
    """A stream with its color: its queue's, where it names none itself. A queue never bound leaves it unknown."""
    if data.color != UNKNOWN_COLOR:
        return data
    color = program.instance.queue_color(data.queue, True)
    return data if color is None else data._replace(color=color)


class Setting(NamedTuple):
    """Settings behind the operands: whether the operation is asynchronous, and the text of `Settings(...)`."""

    asynchronous: bool
    text: str


_PRIORITIES = ("high", "medium", "low")


def _settings(frame: Frame, node: syntax.Expression | None, place: Place, extra: Sequence[str] = ()) -> Setting:
    fields = {} if node is None else struct_fields(frame, node)
    asynchronous = False
    parts = []
    for name, code in fields.items():
        at = place if node is None else node.place
        if name == "async":
            asynchronous = bool(_flag(code, name, at))
        elif name in ("activate", "unblock"):
            task = _task_of(frame, code, name, at)
            parts.append(f"{name}={task.python}")
        elif name == "ut_id":
            parts.append(f"microthread={code.python}")
        elif name == "index":
            parts.append(f"first_index={code.converted(types.U16, at, '.index').python}")
        elif name == "priority":
            parts.append(f"priority={_priority(code, at)!r}")
        elif name == "saturate":
            parts.append(f"saturate={_flag(code, name, at)}")
        elif name == "on_control":
            parts.append(f"on_control={_on_control(frame, code, at)}")
        elif name not in extra:
            names = ["async", "activate", "unblock", "on_control", "ut_id", "index", "priority", "saturate", *extra]
            raise CslError(f"there is no setting '.{name}'", at, did_you_mean(name, names))
    return Setting(asynchronous, f"Settings({', '.join(parts)})")


def struct_fields(frame: Frame, node: syntax.Expression) -> dict[str, Code]:
    """The fields of an anonymous struct, known or not.

    Raises:
        CslError: it is no such struct.
    """
    code = frame.expression(node)
    if code.fields is not None:
        return code.fields
    if code.known and values.is_unit(code.pair):
        return {}
    if not code.known or not isinstance(code.value, dict):
        raise CslError(f"a struct of settings stands here, got {code.type}", node.place)
    return {name: known(value) for name, value in code.value.items()}


def _flag(code: Code, name: str, place: Place) -> bool:
    if not code.known:
        raise CslError(f"'.{name}' must be known at compile time", place)
    return bool(conversions.coerce(code.pair, types.BOOL, place, f"'.{name}'")[1])


def _task_of(frame: Frame, code: Code, name: str, place: Place) -> Code:
    return task_id(frame, code, f"'.{name}'", queues=name == "unblock", place=place)


def _priority(code: Code, place: Place) -> str:
    value = code.value if code.known else None
    if isinstance(value, dict):
        chosen = [name for name, (_, on) in value.items() if on]
        value = chosen[0] if len(chosen) == 1 else None
    if value not in _PRIORITIES:
        raise CslError("'.priority' is .{ .high = true }, .{ .medium = true } or .{ .low = true }", place)
    return str(value)


def _on_control(frame: Frame, code: Code, place: Place) -> str:
    fields = code.fields
    if fields is None and code.known and isinstance(code.value, dict):
        fields = {name: known(value) for name, value in code.value.items()}
    if fields is None:
        raise CslError(f"'.on_control' takes a struct, got {code.type}", place)
    parts = []
    for name, each in fields.items():
        if name == "terminate":
            parts.append(f"terminate={_flag(each, name, place)}")
        elif name in ("activate", "unblock"):
            parts.append(f"{name}={_task_of(frame, each, name, place).python}")
        else:
            raise CslError(f"'.on_control' has no field '.{name}'", place, "terminate, activate, unblock")
    return f"OnControl({', '.join(parts)})"


def _write(frame: Frame, node: syntax.Builtin, operands: Sequence[Code], settings: Setting) -> Code:
    """Write the operation. With a FIFO, it has a value: whether all elements were done (SDK documentation, DSRs)."""
    text = ", ".join(code.python for code in operands)
    handed = f"{node.name!r}, ({text}{',' if len(operands) == 1 else ''})"
    waits = any(_waits(code.type) for code in operands) or settings.text != "Settings()"
    frame.instructions += len(operands)
    frame.flush()
    # By the comment at the end of its line an operation that stands still is found in the source.
    if settings.asynchronous:
        frame.line(f"pe.start({handed}, {settings.text})  # {node.place}")
    elif waits:
        frame.waits = True
        tells = any(str(code.type) in _FIFOS for code in operands)
        name = frame.fresh("all_done") if tells else ""
        result = f"{name} = " if tells else ""
        frame.line(f"{result}yield from pe.wait({handed}, {settings.text})  # {node.place}")
        return Code(types.BOOL, name) if tells else NOTHING
    else:
        frame.line(f"pe.run({handed})")
    return NOTHING


def _waits(type_: Type) -> bool:
    return isinstance(type_, OpaqueType) and type_.is_dsd and type_ not in _MEMORY


# --- @map ---


@BUILTINS.at("map")
def _map(frame: Frame, node: syntax.Builtin) -> Code:
    """`@map(callback, source, ..., dest)`: the callback takes an element of each source."""
    function = evaluate.evaluate(node.arguments[0], frame.scope)
    if types.points_to_function(function[0]):
        function = function[0], frame.program.instance.function_at(function[1])
    if not isinstance(function[1], FunctionValue):
        raise CslError(f"@map takes a function first, got {values.describe(function)}", node.arguments[0].place)
    made = frame.made(node.arguments[1:])
    parameters = _callback_types(function[1], made, node)
    written = frame.program.function(evaluate.specialise(function[1], parameters, node.place), node.place)
    if written.waits:
        raise CslError("what @map calls must not wait", node.arguments[0].place)
    gives = written.result != types.VOID
    if len(made) != len(parameters) + gives:
        raise CslError(
            f"@map of {function[1].declaration.name}() takes {len(parameters) + gives} operands, got {len(made)}",
            node.place,
        )
    letters = "".join(_letter(type_, node) for type_ in [*parameters, *([written.result] if gives else [])])
    roles = [*(f"src{at}" for at in range(len(parameters))), *(["dest"] if gives else [])]
    operands = []
    for code, role, argument, type_ in zip(
        made, roles, node.arguments[1:], [*parameters, written.result], strict=False
    ):
        operands.append(_map_operand(frame, code, role, argument, type_))
    text = ", ".join(code.python for code in operands)
    frame.flush()
    handed = f"{written.name}, ({text}{',' if len(operands) == 1 else ''}), {letters!r}"
    if any(_waits(code.type) for code in made):
        frame.waits = True
        frame.line(f"yield from pe.map_wait({handed})")
    else:
        frame.line(f"pe.map({handed})")
    return NOTHING


def _map_operand(frame: Frame, code: Code, role: str, node: syntax.Expression, type_: Type) -> Code:
    if isinstance(code.type, OpaqueType) and code.type.is_dsd:
        return vector(frame, code, role, node)
    if role == "dest":
        if isinstance(code.type, PointerType) and code.type.pointee == type_ and not code.type.const:
            return joined(code.type, f"Pointer({code.python})", [code], level=0)
        raise CslError(f"the result of @map goes to a DSD or a *{type_}, got {code.type}", node.place)
    return code.converted(type_, node.place, "an operand of @map")


def _callback_types(function: FunctionValue, made: Sequence[Code], node: syntax.Builtin) -> list[Type]:
    declared = evaluate.function_type(function).parameters
    found = []
    for type_ in declared:
        if type_ is None:
            raise CslError("what @map calls must have parameters of fixed types", node.arguments[0].place)
        found.append(type_)
    if len(found) > len(made):
        raise CslError(
            f"@map of {function.declaration.name}() takes {len(found)} sources, got {len(made)} operands", node.place
        )
    return found


def _letter(type_: Type, node: syntax.Builtin) -> str:
    if type_.letter is None or type_.size > 4:
        raise CslError(f"@map works on numbers of 16 and 32 bits, got {type_}", node.place)
    return type_.letter


# --- DSDs ---


@BUILTINS.at("get_dsd")
def _get_dsd(frame: Frame, node: syntax.Builtin) -> Code:
    """`@get_dsd(type, .{ ... })` with parts known at run time alone."""
    type_ = evaluate.evaluate_type(node.arguments[0], frame.scope)
    fields = struct_fields(frame, node.arguments[1])
    frame.cost(costs.DSD_CHANGE * len(fields), 2)
    if type_ == types.MEM1D and "tensor_access" not in fields:
        return _memory(fields, node)
    return _fabric(frame, type_, fields, node)


def _memory(fields: dict[str, Code], node: syntax.Builtin) -> Code:
    """A vector in memory: base, extent, stride and offset may all be known at run time alone."""
    for name in fields:
        if name not in ("base_address", "extent", "stride", "offset", "wavelet_index_offset"):
            raise CslError(f"a mem1d_dsd has no '.{name}'", node.place)
    base, extent = fields.get("base_address"), fields.get("extent")
    if base is None or extent is None:
        raise CslError("a mem1d_dsd needs .base_address and .extent, or .tensor_access", node.place)
    if not isinstance(base.type, PointerType):
        raise CslError(f"'.base_address' must be a pointer, got {base.type}", node.place)
    element = base.type.pointee
    element = element.element if isinstance(element, types.ArrayType) else element
    width = element.size
    if width not in (2, 4):
        raise CslError(f"a DSD is over elements of 16 or 32 bits, got {element}", node.place)
    address = base.operand
    offset = fields.get("offset")
    if offset is not None:
        moved = offset.converted(types.I16, node.place, "'.offset'")
        address += f" + {moved.operand} * {width}"
    count = length(extent, _EXTENT, node.place)
    stride = fields.get("stride", known((types.COMPTIME_INT, 1)))
    step = stride.converted(types.I16, node.place, "'.stride'")
    step_text = str(step.value * width) if step.known else f"{step.operand} * {width}"
    indexed = fields.get("wavelet_index_offset")
    extra = ", True" if indexed is not None and _flag(indexed, "wavelet_index_offset", node.place) else ""
    text = f"Mem1d({address}, {count.python}, {step_text}, {width}{extra})"
    return joined(types.MEM1D, text, [base, extent, stride, *([] if offset is None else [offset])], level=0)


def length(code: Code, what: str, place: Place) -> Code:
    """A number of elements: u16; or i16, known not to be negative or assumed so.

    Raises:
        CslError: it is no 16-bit integer.
    """
    if code.known or code.type == types.U16 or conversions.coerces(code.type, types.U16):
        return code.converted(types.U16, place, what)
    if code.type == types.I16:
        return joined(types.U16, f"{code.operand} & 0xffff", [code])
    raise CslError(f"{what} must be u16, got {code.type}", place, "convert it: @as(u16, ...)")


def _fabric(frame: Frame, type_: Type, fields: dict[str, Code], node: syntax.Builtin) -> Code:
    """A stream of wavelets whose extent, queue or color is known at run time alone.

    All other fields are checked, and set, at compile time: with an extent of 1 and queue 2 as placeholders.
    """
    late = [name for name, code in fields.items() if not code.known]
    if type_ not in (types.FABIN, types.FABOUT) or any(name not in _LATE for name in late):
        shown = ", ".join(f".{name}" for name in late if name not in _LATE or type_ not in (types.FABIN, types.FABOUT))
        raise CslError(f"{shown} of a {type_} must be known at compile time", node.place)
    scope = evaluate.Scope(frame.scope.module, frame.scope)
    shown_fields: list[tuple[str, syntax.Expression]] = []
    place = node.arguments[1].place
    for name, code in fields.items():
        value = code.pair if code.known else _LATE[name]
        scope.declare(f".{name}", value, None)  # a name that no program can have
        if not (name == "fabric_color" and "output_queue" in late):
            shown_fields.append((name, syntax.Name(place, f".{name}")))
    literal = syntax.StructLiteral(place, None, tuple(shown_fields))
    known_queue = "output_queue" not in late
    made = evaluate.evaluate(syntax.Builtin(node.place, "get_dsd", (node.arguments[0], literal)), scope)[1]
    if known_queue:
        note(frame.program, made)
    return _replaced(frame, type_, made, fields, late, node)


_LATE: dict[str, Value] = {
    "extent": (types.U16, 1),
    "input_queue": (types.INPUT_QUEUE, 2),
    "output_queue": (types.OUTPUT_QUEUE, 2),
    "fabric_color": (types.COLOR, 0),
}


def _replaced(
    frame: Frame,
    type_: Type,
    made: tuple[object, ...],
    fields: dict[str, Code],
    late: Sequence[str],
    node: syntax.Builtin,
) -> Code:
    """The text of a stream with fields known at run time alone."""
    parts = []
    if "extent" in late:
        parts.append(f"extent={length(fields['extent'], _EXTENT, node.place).python}")
    for name in ("input_queue", "output_queue"):
        if name in late:
            queue = fields[name].converted(cast_type(name), node.place, f"'.{name}'")
            parts.append(f"queue={queue.python}")
            if name == "output_queue" and "fabric_color" not in fields:
                parts.append(f"color=pe.queue_color({queue.python}, True)")
                frame.program.outputs.update(color for color, _ in frame.program.instance.output_queues.values())
    if "fabric_color" in fields and ("fabric_color" in late or "output_queue" in late):
        color = fields["fabric_color"].converted(types.COLOR, node.place, "'.fabric_color'")
        parts.append(f"color={color.python}")
        if color.known:
            frame.program.outputs.add(color.value)
    text = frame.program.constant("stream", type_, made)
    return joined(type_, f"{text}._replace({', '.join(parts)})", [fields[name] for name in late], level=Level.ATOM)


_EXTENT = "'.extent'"


def cast_type(name: str) -> Type:
    """The type of a queue's field."""
    return types.INPUT_QUEUE if name == "input_queue" else types.OUTPUT_QUEUE


def _dsd(frame: Frame, code: Code, node: syntax.Builtin) -> Code:
    """A DSD as an argument of a builtin that changes one."""
    if not isinstance(code.type, OpaqueType) or not code.type.is_dsd:
        raise CslError(f"@{node.name} takes a DSD, got {code.type}", node.arguments[0].place)
    note(frame.program, code.value)
    if code.known:
        return Code(code.type, frame.program.constant(_title(node.arguments[0]), code.type, code.value))
    return code


def _changed(name: str, types_: Sequence[Type]) -> Callable[[Callable[..., Code]], Callable[..., Code]]:
    """Register the maker of a builtin that changes a DSD: (DSD, other arguments)."""

    def put(change: Callable[..., Code]) -> Callable[..., Code]:
        def make(frame: Frame, node: syntax.Builtin) -> Code:
            dsd, value = frame.made(node.arguments[:2])
            frame.cost(costs.DSD_CHANGE)
            dsd = _dsd(frame, dsd, node)
            if dsd.type not in types_:
                raise CslError(f"@{node.name} takes {' or '.join(map(str, types_))}, got {dsd.type}", node.place)
            return change(frame, node, dsd, value)

        BUILTINS[name] = make
        return change

    return put


@_changed("increment_dsd_offset", _MEMORY)
def _increment(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:
    element = evaluate.evaluate_type(node.arguments[2], frame.scope)
    if not types.is_int(value.type):
        raise CslError(f"@{node.name} moves by an integer, got {value.type}", node.arguments[1].place)
    text = f"offset_dsd({dsd.python}, {value.python}, {element.size})"
    return joined(dsd.type, text, [dsd, value], level=0)


@_changed("set_dsd_base_addr", _MEMORY)
def _set_base(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:  # noqa: ARG001
    if not isinstance(value.type, PointerType):
        raise CslError(f"@{node.name} takes a pointer, got {value.type}", node.arguments[1].place)
    pointee = value.type.pointee
    element = pointee.element if isinstance(pointee, ArrayType) else pointee
    if dsd.type != types.MEM1D or element.size not in (2, 4):
        return joined(dsd.type, f"{dsd.operand}._replace(address={value.python})", [dsd, value], level=0)
    return joined(dsd.type, f"placed_dsd({dsd.python}, {value.python}, {element.size})", [dsd, value], level=0)


@_changed("set_dsd_length", (types.MEM1D, types.FABIN, types.FABOUT))
def _set_length(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:  # noqa: ARG001
    count = length(value, "the length", node.arguments[1].place)
    return joined(dsd.type, f"{dsd.operand}._replace(extent={count.python})", [dsd, value], level=0)


@_changed("set_dsd_stride", (types.MEM1D,))
def _set_stride(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:
    step = value.converted(types.I16, node.arguments[1].place, "the stride")
    kept = dsd if dsd.text.isidentifier() else frame.variable(dsd, "dsd")
    text = f"{kept.text}._replace(stride={step.operand} * {kept.text}.width)"
    return joined(dsd.type, text, [kept, step], level=0)


# --- DSRs ---


@BUILTINS.at("load_to_dsr")
def _load_to_dsr(frame: Frame, node: syntax.Builtin) -> Code:
    register, dsd = frame.made(node.arguments[:2])
    if str(register.type) not in DSR_NAMES:
        raise CslError(f"@load_to_dsr loads into a DSR, got {register.type}", node.arguments[0].place)
    if not isinstance(dsd.type, OpaqueType) or not dsd.type.is_dsd or str(dsd.type) in DSR_NAMES:
        raise CslError(f"@load_to_dsr takes a DSD, got {dsd.type}", node.arguments[1].place)
    settings_node = node.arguments[2] if len(node.arguments) == 3 else None
    save = False
    if settings_node is not None:
        flag = struct_fields(frame, settings_node).get("save_address")
        save = flag is not None and _flag(flag, "save_address", settings_node.place)
    settings = _settings(frame, settings_node, node.place, ("save_address",))
    role = "dest" if dsd.type == types.FABOUT else "operand"
    made = [
        vector(frame, register, "register", node.arguments[0]),
        vector(frame, dsd, role, node.arguments[1]),
    ]
    frame.cost(costs.DSD_CHANGE)
    return frame.timed(f"pe.load_dsr({made[0].python}, {made[1].python}, {settings.text}, {save})")
