"""Vectors and tensors in memory as DSDs, at compile time (SDK 2.10 documentation, "Data Structure Descriptors").

`emit_tensor.py` makes code of them where a part is known at run time alone.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.evaluate_core import EXPRESSIONS, Code, Frame, NotKnown, Scope, constant
from cstool.csl.language.evaluate_expressions import resolve
from cstool.csl.language.evaluate_places import address_of, index_count
from cstool.csl.language.module import Constant, Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, PointerType, Type
from cstool.csl.language.values import Reference, Value, describe

ACCESS = types.BasicType("tensor access")
FIELDS = ("tensor_access", "base_address", "extent", "offset", "stride", "wavelet_index_offset")
"""fields of a DSD in memory"""


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


# --- DSDs ---


def memory_dsd(type_: Type, fields: dict[str, Value], place: Place) -> Mem1d | Mem4d:
    """The DSD that the fields describe.

    Raises:
        CslError: a field is wrong or missing; it has too many variables, or its elements are unfit for DSDs.
    """
    if "tensor_access" in fields:
        kind, access = fields["tensor_access"]
        if kind != ACCESS:
            raise CslError(f".tensor_access is '|i|{{N}} -> A[i]', got {describe(fields['tensor_access'])}", place)
    else:
        access = _access_of_address(fields, place)
    width = check_element(access.element, place)
    check_rank(type_, len(access.extents), place)
    indexed = fields.get("wavelet_index_offset", values.FALSE)
    by_index = conversions.coerce(indexed, types.BOOL, place, ".wavelet_index_offset")[1]
    if type_ == types.MEM1D:
        return Mem1d(access.address, access.extents[0], access.strides[0], width, by_index)
    return Mem4d(access.address, access.extents, access.strides, width, by_index)


CIRCULAR = ("base_address", "extent", "offset", "stride", "wraparound")
"""fields of a circular buffer"""


def circular_dsd(fields: dict[str, Value], place: Place) -> Mem4d:
    """A circular buffer: elements of an array, again from its start behind `wraparound` elements, or its end.

    Raises:
        CslError: a field is wrong or missing; its elements are unfit for DSDs.
    """
    access = _access_of_address({name: value for name, value in fields.items() if name != "offset"}, place)
    width = check_element(access.element, place)
    check_rank(types.MEM1D, len(access.extents), place)
    target = fields["base_address"][0]
    if "wraparound" in fields:
        wrap = conversions.coerce(fields["wraparound"], types.U16, place, ".wraparound")[1]
    elif isinstance(target, PointerType) and isinstance(target.pointee, ArrayType):
        wrap = target.pointee.count
    else:
        raise CslError("a circbuf_dsd needs .wraparound, or the address of an array", place)
    if not wrap:
        raise CslError("a circbuf_dsd wraps around behind 1 element or more, got 0", place)
    first = conversions.coerce(fields.get("offset", values.integer(0)), types.U16, place, ".offset")[1]
    return Mem4d(access.address, access.extents, access.strides, width, wrap=wrap, first=first % wrap)


def check_rank(type_: Type, rank: int, place: Place) -> None:
    """Check the dimensions of a DSD.

    Raises:
        CslError: there are too many.
    """
    if type_ == types.MEM1D and rank != 1:
        raise CslError(f"a mem1d_dsd has one variable, got {rank}", place, "mem4d_dsd has up to 4")
    if not 1 <= rank <= 4:
        raise CslError(f"a mem4d_dsd has up to 4 variables, got {rank}", place)


def check_element(type_: Type, place: Place) -> int:
    """Bytes of an element of a DSD.

    Raises:
        CslError: it is not 2 or 4.
    """
    if type_ in (types.BF16, types.CB16):
        raise CslError(f"vector operations on {type_} are not simulated", place, "a loop over its elements does")
    if type_.size not in (2, 4) or type_.letter is None:
        raise CslError(f"a DSD has elements of 16 or 32 bits, got {type_}", place)
    return type_.size


def check_lists(extents: int, strides: int, place: Place) -> None:
    """Check that a DSD has as many strides as extents.

    Raises:
        CslError: it has not.
    """
    if extents != strides:
        raise CslError(f"a DSD has a stride for each extent, got {extents} and {strides}", place)


def dense(extents: Sequence[int]) -> list[int]:
    """Strides, in elements, of a tensor without gaps: the last dimension is the fastest."""
    return [math.prod(extents[at + 1 :]) for at in range(len(extents))]


def _listed(value: Value) -> list[Value]:
    """The elements of a list; a single value alone."""
    type_, data = value
    if isinstance(type_, ArrayType):
        return [(type_.element, each) for each in data]
    fields = values.fields_of(value)
    return [value] if fields is None else list(fields.values())


def _access_of_address(fields: dict[str, Value], place: Place) -> Access:
    """`.base_address = &A, .extent = n, .offset = k, .stride = s`, in elements; lists where it is a tensor."""
    for name in ("base_address", "extent"):
        if name not in fields:
            raise CslError(f"@get_dsd needs .{name}, or .tensor_access", place)
    type_, address = fields["base_address"]
    if not isinstance(type_, PointerType) or isinstance(address, Reference):
        raise CslError(f".base_address is a pointer, got {describe(fields['base_address'])}", place)
    element = type_.element
    offset = conversions.coerce(fields.get("offset", values.integer(0)), types.I32, place, ".offset")[1]
    extents = [extent_of(each, place) for each in _listed(fields["extent"])]
    strides = dense(extents)
    if "stride" in fields:
        strides = [conversions.coerce(each, types.I16, place, ".stride")[1] for each in _listed(fields["stride"])]
    check_lists(len(extents), len(strides), place)
    size = element.size
    return Access(element, address + offset * size, tuple(extents), tuple(stride * size for stride in strides))
