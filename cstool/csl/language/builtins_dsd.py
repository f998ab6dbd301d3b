"""Builtins that make and change DSDs, and FIFOs (SDK 2.10 documentation, "Data Structure Descriptors").

Where a part of a DSD is known at run time alone, `emit_dsd.py` makes code of it.
"""

from typing import Any, NamedTuple

from cstool.csl.fabric.arch import COLORS, OWN_QUEUES
from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl
from cstool.csl.fabric.interface import placed_dsd
from cstool.csl.fabric.program import FifoBuffer
from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.builtins_table import RUN, VALUE, Called, builtin, special
from cstool.csl.language.builtins_values import number_of, type_argument
from cstool.csl.language.evaluate_core import EXPRESSIONS, Code, Frame, NotKnown, Scope, constant
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.evaluate_places import address_of, index_count
from cstool.csl.language.instance import Instance
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.routes import known_fields
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, OpaqueType, PointerType, Type
from cstool.csl.language.values import FunctionValue, Reference, Value, describe

ACCESS = types.BasicType("tensor access")
UNKNOWN_COLOR = -1
"""Color of a `FabricOut` without one of its own: a later `comptime` block may bind its queue to a color (WSE-3)."""

MEMORY_FIELDS = ("tensor_access", "base_address", "extent", "offset", "stride", "wavelet_index_offset")
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


class Access(NamedTuple):
    """A tensor access `|i, j|{M, N} -> A[i, 2 * j]`; addresses and strides are bytes.

    Args:
        element: type of the elements
        address: of the first one
        extents: by variable
        strides: likewise
    """

    element: Type
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


@EXPRESSIONS.at(syntax.TensorAccess)
def _tensor_access(node: syntax.TensorAccess, scope: Scope) -> Code:
    extents = [scope.expression(extent) for extent in node.extents]
    base = _base_pointer(node.base, scope)
    inner = scope.child()
    slots = [inner.local(name, node.place, changes=False) for name in node.variables]
    indices = [inner.expression(index) for index in node.indices]
    place = node.place
    extent_places = [extent.place for extent in node.extents]

    def run(frame: Frame) -> Value:
        scope.shape.fit(frame)
        counts = [extent_of(extent.run(frame), where) for extent, where in zip(extents, extent_places, strict=True)]
        type_, address = base.run(frame)
        if isinstance(address, Reference):
            raise CslError("a DSD is of an array in SRAM, got one of a function that runs at compile time", place)
        array = _array_behind(type_, node.base.place)

        def at(point: list[int]) -> int:
            for slot, value in zip(slots, point, strict=True):
                frame[slot] = (types.COMPTIME_INT, value)
            return element_offset(array, [index.run(frame) for index in indices], place)

        start, strides = affine(at, counts, place)
        element = array.element if isinstance(array, ArrayType) else array
        size = element.size
        return ACCESS, Access(
            element, address + start * size, tuple(counts), tuple(stride * size for stride in strides)
        )

    return Code(run)


def extent_of(value: Value, place: Place) -> int:
    """An extent of a DSD.

    Raises:
        CslError: it is no integer, or not of 16 bits.
    """
    if not types.is_int(value[0]):
        raise CslError(f"an extent is an integer, got {describe(value)}", place)
    if not 0 <= value[1] <= types.U16.most:
        raise CslError(f"an extent is 0 to {types.U16.most}, got {value[1]}", place)
    return int(value[1])


def _array_behind(type_: Type, place: Place) -> ArrayType | Type:
    """The array of a tensor access, or the element type where its size is not known."""
    if isinstance(type_, PointerType) and type_.many:
        return type_.pointee
    if isinstance(type_, PointerType) and isinstance(type_.pointee, ArrayType):
        return type_.pointee
    raise CslError(f"a tensor access goes over an array, got {type_}", place)


def _base_pointer(node: syntax.Expression, scope: Scope) -> Code:
    """Code of a pointer to the array of a tensor access."""
    what = resolve(node, scope)
    if isinstance(what, Constant) and isinstance(what.type, PointerType):
        return constant(what.value)
    if isinstance(what, Variable) and isinstance(what.type, PointerType):
        raise NotKnown(f"the pointer '{what.name}' must be known at compile time, it is a variable", node.place)
    if what is not None and not isinstance(what, Constant | Variable):
        type_ = getattr(what, "type", None)
        if isinstance(type_, PointerType):
            raise NotKnown("the pointer must be known at compile time, it is a variable", node.place)
        if type_ is None:
            code = scope.expression(node)
            if code.value is None or isinstance(code.value[0], PointerType):
                return code
            raise NotKnown("the address of a constant of a function is known at run time alone", node.place)
    return address_of(node, scope)


def element_offset(array: ArrayType | Type, indices: list[Value], place: Place) -> int:
    """Offset of an element in its array, in elements; bounds are not checked, as hardware does not."""
    shape = array.shape if isinstance(array, ArrayType) else (0,)
    if len(indices) != len(shape):
        raise CslError(f"{array} takes {index_count(len(shape))}, got {len(indices)}", place)
    at = 0
    for (type_, index), extent in zip(indices, shape, strict=True):
        if not types.is_int(type_):
            raise CslError(f"an index is an integer, got {type_}", place)
        at = at * extent + index
    return at


def affine(at: Any, counts: list[int], place: Place) -> tuple[int, list[int]]:
    """Start and strides of an index function of the variables, which must be affine.

    Args:
        at: elements from the array's start, given the variables
        counts: extents
        place: for messages
    """
    start = at([0] * len(counts))
    strides = []
    for axis, count in enumerate(counts):
        step = [int(axis == k) for k in range(len(counts))]
        try:
            strides.append(at(step) - start)
        except CslError:  # a table of indices may end here
            if count > 1:
                raise
            strides.append(0)
    last = [max(count - 1, 0) for count in counts]
    if at(last) != start + sum(stride * each for stride, each in zip(strides, last, strict=True)):
        raise CslError("the indices of a tensor access are sums of multiples of its variables", place)
    return start, strides


# --- @get_dsd ---


def fields_of(called: Called, index: int, known: tuple[str, ...]) -> dict[str, Value]:
    """The fields of a struct argument, all of which must be known."""
    return known_fields(called.arguments[index], f"@{called.node.name}", known, called.at(index), "takes")


@builtin("get_dsd", 2, 2, (VALUE, RUN), "a descriptor of a vector in SRAM or on the fabric", pure=False)
def _get_dsd(called: Called) -> Value:
    type_ = type_argument(called, 0)
    if type_ == types.MEM1D or type_ == types.MEM4D:
        return type_, _memory_dsd(called, type_)
    if type_ == types.FABIN:
        return type_, _fabric_in(called)
    if type_ == types.FABOUT:
        return type_, _fabric_out(called)
    if type_ == types.CIRCBUF:
        raise CslError("circular buffers (circbuf_dsd) are not simulated", called.at(0), "a FIFO or a mem1d_dsd may do")
    raise CslError(f"@get_dsd makes mem1d_dsd, mem4d_dsd, fabin_dsd or fabout_dsd, got {type_}", called.at(0))


def _memory_dsd(called: Called, type_: Type) -> Mem1d | Mem4d:
    place = called.at(1)
    fields = fields_of(called, 1, MEMORY_FIELDS)
    if "tensor_access" in fields:
        kind, access = fields["tensor_access"]
        if kind != ACCESS:
            raise CslError(f".tensor_access is '|i|{{N}} -> A[i]', got {describe(fields['tensor_access'])}", place)
    else:
        access = _access_of_address(fields, place)
    dsd = memory_dsd(type_, access, place)
    indexed = fields.get("wavelet_index_offset")
    if indexed is None or not conversions.coerce(indexed, types.BOOL, place, ".wavelet_index_offset")[1]:
        return dsd
    if isinstance(dsd, Mem4d):
        raise CslError("a mem4d_dsd with .wavelet_index_offset is not simulated", place, "use a mem1d_dsd")
    return dsd._replace(indexed=True)


def memory_dsd(type_: Type, access: Access, place: Place) -> Mem1d | Mem4d:
    """The DSD of a tensor access.

    Raises:
        CslError: it has too many variables, or its elements are unfit for DSDs.
    """
    width = check_element(access.element, place)
    if type_ == types.MEM1D:
        if len(access.extents) != 1:
            raise CslError(f"a mem1d_dsd has one variable, got {len(access.extents)}", place, "mem4d_dsd has up to 4")
        return Mem1d(access.address, access.extents[0], access.strides[0], width)
    if len(access.extents) > 4:
        raise CslError(f"a mem4d_dsd has up to 4 variables, got {len(access.extents)}", place)
    return Mem4d(access.address, access.extents, access.strides, width)


def check_element(type_: Type, place: Place) -> int:
    """Bytes of an element of a DSD.

    Raises:
        CslError: it is not 2 or 4.
    """
    if type_.size not in (2, 4) or type_.letter is None:
        raise CslError(f"a DSD has elements of 16 or 32 bits, got {type_}", place)
    return type_.size


def _access_of_address(fields: dict[str, Value], place: Place) -> Access:
    """`.base_address = &A, .extent = n, .offset = k, .stride = s`: offset and stride in elements."""
    for name in ("base_address", "extent"):
        if name not in fields:
            raise CslError(f"@get_dsd needs .{name}, or .tensor_access", place)
    type_, address = fields["base_address"]
    if not isinstance(type_, PointerType) or isinstance(address, Reference):
        raise CslError(f".base_address is a pointer, got {describe(fields['base_address'])}", place)
    element = type_.element
    offset = conversions.coerce(fields.get("offset", values.integer(0)), types.I32, place, ".offset")[1]
    stride = conversions.coerce(fields.get("stride", values.integer(1)), types.I16, place, ".stride")[1]
    extent = extent_of(fields["extent"], place)
    return Access(element, address + offset * element.size, (extent,), (stride * element.size,))


def _fabric_in(called: Called) -> FabricIn:
    place = called.at(1)
    fields = fields_of(called, 1, FABIN_FIELDS)
    queue = _queue(called.instance, fields, "input_queue", types.INPUT_QUEUE, place)
    if "fabric_color" in fields and queue < OWN_QUEUES:
        color = color_number(fields["fabric_color"], place)
        called.instance.bind_queue(queue, color, output=False, place=place, implied=True)
    on_control = None
    if "on_control" in fields:
        on_control = on_control_of(called.instance, fields["on_control"], place)
    return FabricIn(queue, _extent(fields, place), on_control)


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
    if isinstance(data, FunctionValue):
        for number, task in instance.tasks.items():
            if task.root.function == data:
                return number
        raise CslError(f"'{data.declaration.name}' is not bound to a task id", place, "@bind_local_task binds it")
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


@builtin("set_dsd_base_addr", 2, 2, (VALUE, RUN), "the DSD at another address")
def _set_dsd_base_addr(called: Called) -> Value:
    type_, dsd = called.arguments[0]
    if not isinstance(dsd, Mem1d | Mem4d):
        raise CslError(f"@set_dsd_base_addr takes a DSD in SRAM, got {type_}", called.at(0))
    target, address = called.arguments[1]
    if not isinstance(target, PointerType) or isinstance(address, Reference):
        raise CslError(f"@set_dsd_base_addr takes a pointer, got {describe((target, address))}", called.at(1))
    width = target.element.size
    if isinstance(dsd, Mem1d) and width in (2, 4):
        return type_, placed_dsd(dsd, address, width)
    return type_, dsd._replace(address=address)


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
        fields = fields_of(called, 1, names) if len(node.arguments) > 1 else {}
        push, pop = (task_number(instance, fields[name], place) if name in fields else None for name in names)
        instance.fifos.append(FifoBuffer(address, array.count, width, push, pop))
        return types.FIFO, Fifo(len(instance.fifos) - 1)

    return Code(run)
