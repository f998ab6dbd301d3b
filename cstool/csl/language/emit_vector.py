"""Vector operations, `@map`, DSDs made and changed at run time, and DSRs, as Python.

An operation on memory and scalars alone is done at once (`pe.run`). An operation on the fabric, a FIFO or a DSR waits
(`yield from pe.wait`), or goes to a microthread (`pe.start`) with `.async = true`: the task waits if that is busy.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cstool.csl.language import conversions, costs, evaluate, syntax, types, values
from cstool.csl.language.emit_builtins import BUILTINS, task_id
from cstool.csl.language.emit_code import NOTHING, Code, atom, tuple_of
from cstool.csl.language.emit_dsd import flag, settings_in, struct_fields, vector
from cstool.csl.language.emit_frame import Frame
from cstool.csl.language.operands import FORMS, Form, Operand, say
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import DSR_NAMES, ArrayType, OpaqueType, PointerType, Type
from cstool.csl.language.values import FunctionValue
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    pass

_MEMORY = (types.MEM1D, types.MEM4D, types.CIRCBUF)
_DROPPING = (types.FABIN, types.DSR_SRC1)
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
    made = frame.made(arguments)
    fields = settings_in(made[-1]) if len(arguments) > min(len(form) for form in forms) else None
    place = arguments[-1].place
    if fields is not None:
        del made[-1], arguments[-1]
    form = _form(node, forms, made)
    if node.name == "dfilt" and made[0].type not in _DROPPING:
        raise CslError(f"@dfilt takes a fabin_dsd or a dsr_src1, got {made[0].type}", place)
    operands = [
        operand(frame, code, each, which, argument)
        for code, each, which, argument in zip(made, form, _roles(form), arguments, strict=True)
    ]
    return _write(frame, node, operands, _settings(frame, fields or {}, place))


def _roles(form: Form) -> list[str]:
    return ["dest", *(f"src{at}" for at in range(len(form) - 1))] if len(form) > 1 else ["src0"]


def _form(node: syntax.Builtin, forms: Sequence[Form], made: Sequence[Code]) -> Form:
    for form in forms:
        if len(form) == len(made) and all(map(_fits, form, made)):
            return form
    got = ", ".join(str(code.type) for code in made)
    ways = " or ".join(f"({say(form)})" for form in forms)
    arrays = [each for each, code in zip(node.arguments, made, strict=False) if _is_array(code.type)]
    hint = None
    if arrays and isinstance(arrays[0], syntax.Name | syntax.Unary):
        name = arrays[0].name if isinstance(arrays[0], syntax.Name) else getattr(arrays[0].operand, "name", "x")
        hint = f"a DSD of '{name}' is @get_dsd(mem1d_dsd, .{{ .base_address = &{name}, .extent = ... }})"
    raise CslError(f"@{node.name} takes {ways}, got ({got})", node.place, hint)


def _is_array(type_: Type) -> bool:
    return isinstance(type_.pointee if isinstance(type_, PointerType) else type_, ArrayType)


def _fits(operand_: Operand, code: Code) -> bool:
    type_ = code.type
    if operand_.kind == "vector":
        return isinstance(type_, OpaqueType) and type_.is_dsd
    if operand_.kind == "pointer":
        return isinstance(type_, PointerType) and type_.pointee in _SCALARS[operand_.letter] and not type_.const
    return any(
        conversions.coerces(type_, each) or (code.known and isinstance(each, types.IntType) and types.is_int(type_))
        for each in _SCALARS[operand_.letter]
    )


def operand(frame: Frame, code: Code, form: Operand, role: str, node: syntax.Expression) -> Code:
    """One operand of an operation, checked, as Python.

    Raises:
        CslError: it is unfit for this place.
    """
    if form.kind == "vector":
        return vector(frame, code, role, node)
    if form.kind == "pointer":
        text = f"Pointer({code.python})"
        return atom(code.type, text, [code])
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


_WITHOUT_EFFECT = ("simd_mode", "control_transform")
"""settings of the hardware's speed or packing, which are not modelled"""


class Setting(NamedTuple):
    """Settings behind the operands: whether the operation is asynchronous, and the text of `Settings(...)`."""

    asynchronous: bool
    text: str


_PRIORITIES = ("high", "medium", "low")


def _settings(frame: Frame, fields: Mapping[str, Code], at: Place, extra: Sequence[str] = ()) -> Setting:
    asynchronous = False
    parts = []
    for name, code in fields.items():
        if name == "async":
            asynchronous = bool(flag(code, name, at))
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
            parts.append(f"saturate={flag(code, name, at)}")
        elif name == "on_control":
            parts.append(f"on_control={_on_control(frame, code, at)}")
        elif name not in (*_WITHOUT_EFFECT, *extra):
            names = ["async", "activate", "unblock", "on_control", "ut_id", "index", "priority", "saturate", *extra]
            raise CslError(f"there is no setting '.{name}'", at, did_you_mean(name, names))
    return Setting(asynchronous, f"Settings({', '.join(parts)})")


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
    fields = code.parts
    if fields is None:
        raise CslError(f"'.on_control' takes a struct, got {code.type}", place)
    parts = []
    for name, each in fields.items():
        if name == "terminate":
            parts.append(f"terminate={flag(each, name, place)}")
        elif name in ("activate", "unblock"):
            parts.append(f"{name}={_task_of(frame, each, name, place).python}")
        else:
            raise CslError(f"'.on_control' has no field '.{name}'", place, "terminate, activate, unblock")
    return f"OnControl({', '.join(parts)})"


def _write(frame: Frame, node: syntax.Builtin, operands: Sequence[Code], settings: Setting) -> Code:
    """Write the operation. With a FIFO, it has a value: whether all elements were done (SDK documentation, DSRs)."""
    handed = f"{node.name!r}, {tuple_of(types.VOID, operands).text}"
    waits = any(_waits(code.type) for code in operands) or settings.text != "Settings()"
    frame.instructions += len(operands)
    # By the comment at the end of its line an operation that stands still is found in the source.
    if settings.asynchronous:
        frame.waits = True
        with frame.indented(f"if pe.start({handed}, {settings.text}):  # {node.place}"):
            frame.line("yield from pe.pause()")
        return NOTHING
    if not waits:
        return frame.timed(f"pe.run({handed})")
    frame.waits = True
    text = f"yield from pe.wait({handed}, {settings.text})  # {node.place}"
    if not any(str(code.type) in _FIFOS for code in operands):
        return frame.timed(text)
    name = frame.fresh("all_done")
    frame.timed(f"{name} = {text}")
    return Code(types.BOOL, name)


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
        raise CslError(
            "what @map calls must not wait",
            node.arguments[0].place,
            "it must use no fabric and no FIFO, and start no asynchronous operation",
        )
    types_ = parameters if written.result == types.VOID else [*parameters, written.result]
    if len(made) != len(types_):
        name = function[1].declaration.name
        raise CslError(f"@map of {name}() takes {len(types_)} operands, got {len(made)}", node.place)
    letters = "".join(_letter(type_, node) for type_ in types_)
    roles = [*(f"src{at}" for at in range(len(parameters))), "dest"]
    operands = [
        _map_operand(frame, code, role, argument, type_)
        for code, role, argument, type_ in zip(made, roles, node.arguments[1:], types_, strict=False)
    ]
    handed = f"{written.name}, {tuple_of(types.VOID, operands).text}, {letters!r}"
    if any(_waits(code.type) for code in made):
        frame.waits = True
        return frame.timed(f"yield from pe.map_wait({handed})")
    return frame.timed(f"pe.map({handed})")


def _map_operand(frame: Frame, code: Code, role: str, node: syntax.Expression, type_: Type) -> Code:
    if isinstance(code.type, OpaqueType) and code.type.is_dsd:
        return vector(frame, code, role, node)
    if role == "dest":
        if isinstance(code.type, PointerType) and code.type.pointee == type_ and not code.type.const:
            return atom(code.type, f"Pointer({code.python})", [code])
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


# --- DSRs ---


@BUILTINS.at("load_to_dsr_xdsr", "load_to_dsr_xdsr_sr")
def _load_with_more(frame: Frame, node: syntax.Builtin) -> Code:
    """Registers for strides and bounds are named and checked; the one of the DSD has all that is simulated."""
    count = 1 + node.name.count("_", len("load_to_dsr"))
    for argument, wanted in zip(node.arguments[1:count], (types.XDSR, types.SR), strict=False):
        code = frame.expression(argument)
        parts = list((code.parts or {"0": code}).values())
        if any(part.type != wanted for part in parts):
            got = ", ".join(str(part.type) for part in parts)
            raise CslError(f"@{node.name} takes an {wanted} here, got {got}", argument.place, f"@get_{wanted}(0)")
    return _load_to_dsr(frame, syntax.Builtin(node.place, node.name, (node.arguments[0], *node.arguments[count:])))


@BUILTINS.at("load_to_dsr")
def _load_to_dsr(frame: Frame, node: syntax.Builtin) -> Code:
    register, dsd = frame.made(node.arguments[:2])
    if str(register.type) not in DSR_NAMES:
        raise CslError(f"@{node.name} loads into a DSR, got {register.type}", node.arguments[0].place)
    if not isinstance(dsd.type, OpaqueType) or not dsd.type.is_dsd or str(dsd.type) in DSR_NAMES:
        raise CslError(f"@{node.name} takes a DSD, got {dsd.type}", node.arguments[1].place)
    place = node.arguments[-1].place
    fields = struct_fields(frame, node.arguments[2]) if len(node.arguments) == 3 else {}
    save = "save_address" in fields and flag(fields["save_address"], "save_address", place)
    settings = _settings(frame, fields, place, ("save_address", "single_step"))
    role = "dest" if dsd.type == types.FABOUT else "operand"
    made = [
        vector(frame, register, "register", node.arguments[0]),
        vector(frame, dsd, role, node.arguments[1]),
    ]
    frame.cost(costs.DSD_CHANGE)
    return frame.timed(f"pe.load_dsr({made[0].python}, {made[1].python}, {settings.text}, {save})")
