"""Builtins that make and change DSDs, and FIFOs (SDK 2.10 documentation, "Data Structure Descriptors").

Where a part of a DSD is known at run time alone, `emit_dsd.py` makes code of it.
"""

from cstool.csl.fabric.arch import COLORS, OWN_QUEUES
from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl
from cstool.csl.fabric.interface import placed_dsd
from cstool.csl.fabric.program import FifoBuffer
from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.builtins_table import RUN, VALUE, Called, builtin, special
from cstool.csl.language.builtins_values import number_of, type_argument
from cstool.csl.language.evaluate_core import Code, Frame, Scope, constant, mapped
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.evaluate_places import address_of, addressed
from cstool.csl.language.instance import Instance
from cstool.csl.language.routes import choice, known_fields
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.tensors import CIRCULAR, FIELDS, check_element, circular_dsd, extent_of, memory_dsd
from cstool.csl.language.types import ArrayType, OpaqueType, PointerType
from cstool.csl.language.values import FunctionValue, Reference, Value, describe

UNKNOWN_COLOR = -1
"""Color of a `FabricOut` without one of its own: a later `comptime` block may bind its queue to a color (WSE-3)."""

FABIN_FIELDS = (
    *("extent", "input_queue", "fabric_color", "on_control", "control_transform", "simd_mode", "priority"),
    *("wavelet_index_offset", "control"),
)
FABOUT_FIELDS = (
    *("extent", "output_queue", "fabric_color", "control", "advance_switch", "wavelet_index_offset"),
    *("control_transform", "simd_mode", "priority"),
)
# `simd_mode`, `priority`, `control_transform` affect the speed or the order of operations in hardware, which are not
# modelled.


# --- @get_dsd ---


def fields_of(called: Called, index: int, known: tuple[str, ...]) -> dict[str, Value]:
    """The fields of a struct argument, all of which must be known."""
    return known_fields(called.arguments[index], f"@{called.node.name}", known, called.at(index), "takes")


@builtin("get_dsd", 2, 2, (VALUE, RUN), "a descriptor of a vector in SRAM or on the fabric", pure=False)
def _get_dsd(called: Called) -> Value:
    type_ = type_argument(called, 0)
    if type_ == types.MEM1D or type_ == types.MEM4D:
        return type_, memory_dsd(type_, fields_of(called, 1, FIELDS), called.at(1))
    if type_ == types.FABIN:
        return type_, _fabric_in(called)
    if type_ == types.FABOUT:
        return type_, _fabric_out(called)
    if type_ == types.CIRCBUF:
        return type_, circular_dsd(fields_of(called, 1, CIRCULAR), called.at(1))
    makes = "mem1d_dsd, mem4d_dsd, circbuf_dsd, fabin_dsd or fabout_dsd"
    raise CslError(f"@get_dsd makes {makes}, got {type_}", called.at(0))


def _fabric_in(called: Called) -> FabricIn:
    place = called.at(1)
    fields = fields_of(called, 1, FABIN_FIELDS)
    queue = _queue(called.instance, fields, "input_queue", types.INPUT_QUEUE, place)
    color = None
    if "fabric_color" in fields and queue < OWN_QUEUES:
        color = color_number(fields["fabric_color"], place)
        called.instance.bind_queue(queue, color, output=False, place=place, implied=True)
    on_control = None
    if "on_control" in fields:
        on_control = on_control_of(called.instance, fields["on_control"], place)
    return FabricIn(queue, _extent(fields, place), on_control, color)


def _extent(fields: dict[str, Value], place: Place) -> int:
    if "extent" not in fields:
        raise CslError("a DSD on the fabric needs .extent", place)
    return extent_of(fields["extent"], place)


def _queue(instance: Instance, fields: dict[str, Value], name: str, type_: OpaqueType, place: Place) -> int:
    if name not in fields and "fabric_color" in fields and instance.arch.name == "wse2":
        return OWN_QUEUES + color_number(fields["fabric_color"], place)
    if name not in fields:
        raise CslError(f"a DSD on the fabric needs .{name}", place)
    value = fields[name]
    if value[0] != type_:
        raise CslError(f".{name} is an {type_}, got {describe(value)}", place, f"make one: @get_{name}(2)")
    return int(value[1])


def color_number(value: Value, place: Place) -> int:
    """The number of a color, or of an integer in its place.

    Raises:
        CslError: it is neither, or out of range.
    """
    if value[0] != types.COLOR and not types.is_int(value[0]):
        raise CslError(f"expected a color, got {describe(value)}", place)
    if not 0 <= value[1] < COLORS:
        raise CslError(f"a color is 0 to {COLORS - 1}, got {value[1]}", place)
    return int(value[1])


def on_control_of(instance: Instance, value: Value, place: Place) -> OnControl:
    """The setting `.on_control = .{ .terminate = true, .activate = t }`."""
    fields = values.fields_of(value)
    if fields is None:
        raise CslError(f".on_control is a struct, got {describe(value)}", place)
    known = ("terminate", "activate", "unblock")
    for name in fields:
        if name not in known:
            raise CslError(f".on_control has the fields {', '.join(known)}, got .{name}", place)
    terminate = fields.get("terminate", values.TRUE)
    activate = task_number(instance, fields["activate"], place) if "activate" in fields else None
    unblock = task_number(instance, fields["unblock"], place) if "unblock" in fields else None
    return OnControl(bool(terminate[1]), activate, unblock)


def task_number(instance: Instance, value: Value, place: Place) -> int:
    """The number of a task id, or of the task itself, once it is bound; of an input queue, its number + 64.

    Raises:
        CslError: it is neither, or the task has no id yet.
    """
    type_, data = value
    if types.points_to_function(type_):
        data = instance.function_at(data)
    if isinstance(data, FunctionValue):
        return instance.task_id(data, place)
    if type_ == types.INPUT_QUEUE:
        return int(data) + 64
    if type_ in (types.LOCAL_TASK, types.DATA_TASK, types.CONTROL_TASK, types.COLOR):
        return int(data)
    raise CslError(f"expected a task id, got {describe(value)}", place)


def _fabric_out(called: Called) -> FabricOut:
    place, instance = called.at(1), called.instance
    fields = fields_of(called, 1, FABOUT_FIELDS)
    queue = _queue(instance, fields, "output_queue", types.OUTPUT_QUEUE, place)
    bound = instance.queue_color(queue, output=True)
    if "fabric_color" in fields:
        color = color_number(fields["fabric_color"], place)
        if bound is not None and bound != color and instance.arch.name == "wse3":
            raise CslError(
                f".fabric_color is the color of the queue, got {color} for output queue {queue} of color {bound}", place
            )
    elif bound is None and instance.arch.name == "wse2":
        raise CslError("a fabout_dsd of wse2 needs .fabric_color", place)
    else:
        color = UNKNOWN_COLOR if bound is None else bound
    flags = [fields.get(name, values.FALSE)[1] for name in ("control", "advance_switch")]
    indexed = "wavelet_index_offset" in fields and bool(fields["wavelet_index_offset"][1])
    return FabricOut(queue, color, _extent(fields, place), bool(flags[0]), bool(flags[1]), indexed)


# --- changes of DSDs ---


@special("set_dsd_base_addr", 2, 2, (VALUE, RUN), "the DSD at another address")
def _set_dsd_base_addr(node: syntax.Builtin, scope: Scope) -> Code:
    places = [argument.place for argument in node.arguments]

    def make(value: Value, pointer: Value) -> Value:
        type_, dsd = value
        if not isinstance(dsd, Mem1d | Mem4d):
            raise CslError(f"@set_dsd_base_addr takes a DSD in SRAM, got {type_}", places[0])
        target, address = pointer
        if not isinstance(target, PointerType) or isinstance(address, Reference):
            raise CslError(f"@set_dsd_base_addr takes a pointer or an array, got {describe(pointer)}", places[1])
        width = target.element.size
        if isinstance(dsd, Mem1d) and width in (2, 4):
            return type_, placed_dsd(dsd, address, width)
        return type_, dsd._replace(address=address)

    return mapped(make, *map(scope.expression, (node.arguments[0], addressed(node.arguments[1], scope))))


@builtin("set_dsd_length", 2, 2, (VALUE, RUN), "the DSD with another extent")
def _set_dsd_length(called: Called) -> Value:
    type_, dsd = called.arguments[0]
    if not isinstance(dsd, Mem1d | FabricIn | FabricOut):
        raise CslError(f"@set_dsd_length takes a DSD of one extent, got {type_}", called.at(0))
    length = conversions.coerce(called.arguments[1], types.U16, called.at(1), "the length")[1]
    return type_, dsd._replace(extent=length)


@builtin("set_dsd_stride", 2, 2, (VALUE, RUN), "the DSD with another stride, in elements")
def _set_dsd_stride(called: Called) -> Value:
    dsd = called.arguments[0][1]
    if not isinstance(dsd, Mem1d):
        raise CslError(f"@set_dsd_stride takes a mem1d_dsd, got {describe(called.arguments[0])}", called.at(0))
    stride = conversions.coerce(called.arguments[1], types.I16, called.at(1), "the stride")[1]
    return types.MEM1D, dsd._replace(stride=stride * dsd.width)


@builtin("increment_dsd_offset", 3, 3, (VALUE, RUN), "the DSD moved by elements of a type")
def _increment_dsd_offset(called: Called) -> Value:
    type_, dsd = called.arguments[0]
    if not isinstance(dsd, Mem1d | Mem4d):
        raise CslError(f"@increment_dsd_offset takes a DSD in SRAM, got {type_}", called.at(0))
    by = number_of(called, 1)
    size = type_argument(called, 2).size
    return type_, dsd._replace(address=dsd.address + by * size)


# --- FIFOs ---

_FIFO_ACTIONS = ("full_action", "empty_action")


@special("allocate_fifo", 1, 2, (VALUE,), "a FIFO in the memory of an array")
def _allocate_fifo(node: syntax.Builtin, scope: Scope) -> Code:
    instance, place = scope.module.instance, node.place
    buffer = node.arguments[0]
    is_pointer = isinstance(buffer, syntax.Unary) or isinstance(
        getattr(resolve(buffer, scope), "type", None), PointerType
    )
    pointer = scope.expression(buffer) if is_pointer else address_of(buffer, scope)
    options = scope.expression(node.arguments[1]) if len(node.arguments) > 1 else constant(values.VOID)

    def run(frame: Frame) -> Value:
        called = Called(instance, node, [pointer.run(frame), options.run(frame)], scope)
        type_, address = called.arguments[0]
        array = type_.pointee if isinstance(type_, PointerType) else type_
        if not isinstance(array, ArrayType) or isinstance(address, Reference):
            raise CslError(f"@allocate_fifo takes a global array, got {type_}", buffer.place)
        width = check_element(array.element, buffer.place)
        names = ("activate_push", "activate_pop")
        fields = fields_of(called, 1, (*names, *_FIFO_ACTIONS)) if len(node.arguments) > 1 else {}
        for name in _FIFO_ACTIONS:
            kinds = ("test_or_suspend", "terminate", "suspend", "fault")
            if name in fields and choice(fields[name], f".{name}", kinds, place) != kinds[0]:
                raise CslError(f".{name} is simulated as test_or_suspend alone, got {describe(fields[name])}", place)
        push, pop = (task_number(instance, fields[name], place) if name in fields else None for name in names)
        instance.fifos.append(FifoBuffer(address, array.count, width, push, pop))
        return types.FIFO, Fifo(len(instance.fifos) - 1)

    return Code(run)
