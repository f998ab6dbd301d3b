"""DSDs as operands; made, and changed, at run time, as Python."""

from collections.abc import Callable, Sequence

from cstool.csl.fabric.arch import ANY_COLOR, OWN_QUEUES
from cstool.csl.language import conversions, costs, evaluate, syntax, types
from cstool.csl.language.emit_builtins import BUILTINS
from cstool.csl.language.emit_code import Code, atom
from cstool.csl.language.emit_frame import Frame
from cstool.csl.language.emit_tensors import length, memory_dsd
from cstool.csl.language.evaluate_places import addressed
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import OpaqueType, PointerType, Type
from cstool.csl.language.values import Value

_MEMORY = (types.MEM1D, types.MEM4D)
_EXTENT = "'.extent'"
_LATE: dict[str, Value] = {
    "extent": (types.U16, 1),
    "input_queue": (types.INPUT_QUEUE, 2),
    "output_queue": (types.OUTPUT_QUEUE, 2),
    "fabric_color": (types.COLOR, 0),
}
"""Fields of a stream that may be known at run time alone, each with a placeholder for the checks of compile time."""


def struct_fields(frame: Frame, node: syntax.Expression) -> dict[str, Code]:
    """The fields of an anonymous struct, known or not.

    Raises:
        CslError: it is no such struct.
    """
    code = frame.expression(node)
    parts = settings_in(code)
    if parts is None:
        raise CslError(f"a struct of settings stands here, got {code.type}", node.place)
    return parts


def settings_in(code: Code) -> dict[str, Code] | None:
    """Likewise, of code; None if it is no such struct."""
    return {} if code.known and code.type == types.VOID else code.parts


def flag(code: Code, name: str, place: Place) -> bool:
    """A field that is true or false, known at compile time."""
    if not code.known:
        raise CslError(f"'.{name}' must be known at compile time", place)
    return bool(conversions.coerce(code.pair, types.BOOL, place, f"'.{name}'")[1])


def vector(frame: Frame, code: Code, role: str, node: syntax.Expression) -> Code:
    """A DSD, DSR or FIFO as an operand.

    Raises:
        CslError: a source in the place of a destination, or the reverse.
    """
    name = str(code.type)
    if role == "dest" and name in ("fabin_dsd", "dsr_src1", "dsr_fifo_src1"):
        raise CslError(f"a destination cannot be {name}", node.place, "the destination comes first")
    if role != "dest" and name == "fabout_dsd":
        raise CslError("a source cannot be fabout_dsd", node.place, "the destination comes first")
    return _noted(frame, code, node)


def _noted(frame: Frame, code: Code, node: syntax.Expression) -> Code:
    """The code, its color noted; if it is known, by its name in the program."""
    frame.program.note(code.value)
    if not code.known:
        return code
    title = node.name if isinstance(node, syntax.Name | syntax.Field) else "operand"
    return Code(code.type, frame.program.constant(title, code.type, code.value))


# --- DSDs ---


@BUILTINS.at("get_dsd")
def _get_dsd(frame: Frame, node: syntax.Builtin) -> Code:
    """`@get_dsd(type, .{ ... })` with parts known at run time alone."""
    type_ = evaluate.evaluate_type(node.arguments[0], frame.scope)
    fields = struct_fields(frame, node.arguments[1])
    frame.cost(costs.DSD_CHANGE * len(fields), 2)
    if type_ in _MEMORY:
        indexed = fields.get("wavelet_index_offset")
        by_index = indexed is not None and flag(indexed, "wavelet_index_offset", node.place)
        return memory_dsd(frame, type_, fields, by_index, node)
    return _fabric(frame, type_, fields, node)


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
    made = evaluate.evaluate(syntax.Builtin(node.place, "get_dsd", (node.arguments[0], literal)), scope)[1]
    if "output_queue" not in late:
        frame.program.note(made)
    parts = []
    if "extent" in late:
        parts.append(f"extent={length(fields['extent'], _EXTENT, node.place).python}")
    for name in ("input_queue", "output_queue"):
        if name in late:
            queue = fields[name].converted(_LATE[name][0], node.place, f"'.{name}'")
            parts.append(f"queue={queue.python}")
            if name == "output_queue" and "fabric_color" not in fields:
                parts.append(f"color=pe.queue_color({queue.python}, True)")
                frame.program.outputs.update(color for color, _ in frame.program.instance.output_queues.values())
    if "fabric_color" in fields and ("fabric_color" in late or "output_queue" in late):
        color = fields["fabric_color"].converted(types.COLOR, node.place, "'.fabric_color'")
        if type_ == types.FABOUT:
            parts.append(f"color={color.python}")
        else:
            frame.program.inputs.add(ANY_COLOR)
        if not fields.keys() & {"input_queue", "output_queue"}:
            parts.append(f"queue={OWN_QUEUES} + {color.operand}")
        if color.known:
            frame.program.outputs.add(color.value)
    text = frame.program.constant("stream", type_, made)
    return atom(type_, f"{text}._replace({', '.join(parts)})", [fields[name] for name in late])


def _changed(name: str, types_: Sequence[Type]) -> Callable[[Callable[..., Code]], Callable[..., Code]]:
    """Register the maker of a builtin that changes a DSD: (DSD, other arguments)."""

    def put(change: Callable[..., Code]) -> Callable[..., Code]:
        def make(frame: Frame, node: syntax.Builtin) -> Code:
            arguments = node.arguments[:2]
            if node.name == "set_dsd_base_addr":
                arguments = (arguments[0], addressed(arguments[1], frame.scope))
            dsd, value = frame.made(arguments)
            frame.cost(costs.DSD_CHANGE)
            if not isinstance(dsd.type, OpaqueType) or not dsd.type.is_dsd:
                raise CslError(f"@{node.name} takes a DSD, got {dsd.type}", node.arguments[0].place)
            dsd = _noted(frame, dsd, node.arguments[0])
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
    return atom(dsd.type, text, [dsd, value])


@_changed("set_dsd_base_addr", _MEMORY)
def _set_base(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:  # noqa: ARG001
    if not isinstance(value.type, PointerType):
        raise CslError(f"@{node.name} takes a pointer or an array, got {value.type}", node.arguments[1].place)
    element = value.type.element
    if dsd.type != types.MEM1D or element.size not in (2, 4):
        return atom(dsd.type, f"{dsd.operand}._replace(address={value.python})", [dsd, value])
    return atom(dsd.type, f"placed_dsd({dsd.python}, {value.python}, {element.size})", [dsd, value])


@_changed("set_dsd_length", (types.MEM1D, types.FABIN, types.FABOUT))
def _set_length(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:  # noqa: ARG001
    count = length(value, "the length", node.arguments[1].place)
    return atom(dsd.type, f"{dsd.operand}._replace(extent={count.python})", [dsd, value])


@_changed("set_dsd_stride", (types.MEM1D,))
def _set_stride(frame: Frame, node: syntax.Builtin, dsd: Code, value: Code) -> Code:
    step = value.converted(types.I16, node.arguments[1].place, "the stride")
    kept = dsd if dsd.text.isidentifier() else frame.variable(dsd, "dsd")
    text = f"{kept.text}._replace(stride={step.operand} * {kept.text}.width)"
    return atom(dsd.type, text, [kept, step])


@BUILTINS.at("set_fifo_read_length", "set_fifo_write_length")
def _set_fifo_length(frame: Frame, node: syntax.Builtin) -> Code:
    fifo, value = frame.made(node.arguments)
    if fifo.type != types.FIFO or not fifo.known:
        raise CslError(f"@{node.name} takes a FIFO that is known at compile time, got {fifo.type}", node.place)
    count = length(value, "the length", node.arguments[1].place)
    frame.cost(costs.DSD_CHANGE)
    return frame.timed(f"pe.fifos[{fifo.value.number}].lengths[{'write' in node.name}] = {count.python}")
