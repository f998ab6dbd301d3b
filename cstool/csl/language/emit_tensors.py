"""Vectors and tensors in memory as DSDs, where a part is known at run time alone, as Python.

A tensor access, `|i, j|{m, n} -> p[i + k, 2 * j]`, gives its strides by its indices at the first elements.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cstool.csl.language import costs, syntax, types
from cstool.csl.language.emit_code import Code, atom, joined, known
from cstool.csl.language.emit_frame import EXPRESSIONS, Frame
from cstool.csl.language.emit_memory import address_in
from cstool.csl.language.emit_places import load, spot_of
from cstool.csl.language.evaluate_places import index_count
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.tensors import ACCESS, FIELDS, check_element, check_lists, check_rank, dense
from cstool.csl.language.types import ArrayType, PointerType, Type


class Tensor(NamedTuple):
    """A tensor in memory.

    Args:
        element: type of its elements
        address: of its first element, bytes
        extents: by dimension, the slowest first
        strides: likewise, elements
    """

    element: Type
    address: Code
    extents: Sequence[Code]
    strides: Sequence[Code]


def memory_dsd(frame: Frame, type_: Type, fields: dict[str, Code], indexed: bool, node: syntax.Builtin) -> Code:
    """`@get_dsd(mem1d_dsd, .{ ... })`, or of a `mem4d_dsd`.

    Raises:
        CslError: a field is wrong or missing.
    """
    for name in fields:
        if name not in FIELDS:
            raise CslError(f"a {type_} has no '.{name}'", node.place)
    tensor = _of_access(fields["tensor_access"]) if "tensor_access" in fields else _of_address(frame, fields, node)
    width = check_element(tensor.element, node.place)
    check_rank(type_, len(tensor.extents), node.place)
    extents = [each.python for each in tensor.extents]
    steps = [str(each.value * width) if each.known else f"{each.operand} * {width}" for each in tensor.strides]
    parts = [tensor.address, *tensor.extents, *tensor.strides]
    flag = ", True" if indexed else ""
    if type_ == types.MEM1D:
        text = f"Mem1d({tensor.address.python}, {extents[0]}, {steps[0]}, {width}{flag})"
    else:
        text = f"Mem4d({tensor.address.python}, {_tuple(extents)}, {_tuple(steps)}, {width}{flag})"
    return atom(type_, text, parts)


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def length(code: Code, what: str, place: Place) -> Code:
    """A number of elements: u16; or i16, known not to be negative or assumed so.

    Raises:
        CslError: it is no 16-bit integer.
    """
    if code.known or code.type == types.U16 or _fits(code.type):
        return code.converted(types.U16, place, what)
    if code.type == types.I16:
        return joined(types.U16, f"{code.operand} & 0xffff", [code])
    raise CslError(f"{what} must be u16, got {code.type}", place, "convert it: @as(u16, ...)")


def _fits(type_: Type) -> bool:
    return isinstance(type_, types.IntType) and not type_.signed and type_.bits <= types.U16.bits


def _moved(pointer: Code, by: Code, size: int) -> Code:
    """An address, moved by elements."""
    address = address_in(pointer)
    address = address.plus(by.value * size) if by.known else address.plus(0, [(by.operand, size)], [by])
    if not address.terms:
        return known((types.U16, address.base))
    return joined(types.U16, address.text(), address.parts)


# --- by base, extent, stride ---


def _of_address(frame: Frame, fields: dict[str, Code], node: syntax.Builtin) -> Tensor:
    base, extent = fields.get("base_address"), fields.get("extent")
    if base is None or extent is None:
        raise CslError("a DSD in memory needs .base_address and .extent, or .tensor_access", node.place)
    if not isinstance(base.type, PointerType):
        raise CslError(f"'.base_address' must be a pointer, got {base.type}", node.place)
    element = base.type.element
    offset = fields.get("offset", known((types.COMPTIME_INT, 0))).converted(types.I16, node.place, "'.offset'")
    extents = [length(each, "'.extent'", node.place) for each in _listed(frame, extent)]
    if "stride" in fields:
        listed = _listed(frame, fields["stride"])
        strides = [each.converted(types.I16, node.place, "'.stride'") for each in listed]
    elif all(each.known for each in extents[1:]):
        strides = [known((types.I16, each)) for each in dense([1, *[each.value for each in extents[1:]]])]
    else:
        raise CslError("a DSD needs .stride where an extent but the first is known at run time alone", node.place)
    check_lists(len(extents), len(strides), node.place)
    return Tensor(element, _moved(base, offset, element.size), extents, strides)


def _listed(frame: Frame, code: Code) -> list[Code]:
    """The elements of a list; a single value alone."""
    if isinstance(code.type, ArrayType):
        if code.known:
            return [known((code.type.element, each)) for each in code.value]
        kept = frame.variable(code, "listed")
        return [Code(code.type.element, f"{kept.operand}[{at}]") for at in range(code.type.count)]
    parts = code.parts
    return [code] if parts is None else list(parts.values())


# --- tensor accesses ---


@EXPRESSIONS.at(syntax.TensorAccess)
def _tensor_access(frame: Frame, node: syntax.TensorAccess, want: Type | None) -> Code:  # noqa: ARG001
    pointer, array = _base(frame, node.base)
    extents = [length(frame.expression(each), "an extent", each.place) for each in node.extents]
    rank = len(node.variables)
    start = _offset_at(frame, node, array, [0] * rank)
    strides = []
    for axis in range(rank):
        point = [int(axis == each) for each in range(rank)]
        at, lines, _ = frame.captured(lambda point=point: _offset_at(frame, node, array, point))  # type: ignore[misc]
        if lines:
            raise CslError("the indices of a tensor access are sums of multiples of its variables", node.place)
        strides.append(_difference(at, start))
    element = array.element if isinstance(array, ArrayType) else array
    numbered = [{str(at): each for at, each in enumerate(codes)} for codes in (extents, strides)]
    parts = [Code(types.STRUCT, fields=fields) for fields in numbered]
    address = _moved(pointer, start, element.size)
    fields = {"element": known((types.TYPE, element)), "address": address, "extents": parts[0], "strides": parts[1]}
    return Code(ACCESS, fields=fields)


def _of_access(code: Code) -> Tensor:
    if code.known:  # another field is not
        access = code.value
        size = access.element.size
        extents = [known((types.U16, each)) for each in access.extents]
        strides = [known((types.COMPTIME_INT, each // size)) for each in access.strides]
        return Tensor(access.element, known((types.U16, access.address)), extents, strides)
    fields = code.fields
    assert fields is not None
    extents, strides = (list((fields[name].fields or {}).values()) for name in ("extents", "strides"))
    return Tensor(fields["element"].value, fields["address"], extents, strides)


def _base(frame: Frame, node: syntax.Expression) -> tuple[Code, ArrayType | Type]:
    """The pointer to the elements of a tensor access, and the array; the element's type where its size is not known."""
    spot = spot_of(frame, node)
    if isinstance(spot.type, PointerType):
        pointer = load(frame, spot)
        if spot.type.many or isinstance(spot.type.pointee, ArrayType):
            return pointer, spot.type.pointee
    if isinstance(spot.type, ArrayType):
        return frame.expression(syntax.Unary(node.place, "&", node)), spot.type
    raise CslError(f"a tensor access goes over an array, got {spot.type}", node.place)


def _offset_at(frame: Frame, node: syntax.TensorAccess, array: ArrayType | Type, point: Sequence[int]) -> Code:
    """The offset of an element from the array's start, in elements; bounds are not checked, as hardware does not."""
    shape = array.shape if isinstance(array, ArrayType) else (0,)
    if len(node.indices) != len(shape):
        raise CslError(f"{array} takes {index_count(len(shape))}, got {len(node.indices)}", node.place)
    with frame.block():
        for name, value in zip(node.variables, point, strict=True):
            frame.declare(name, (types.COMPTIME_INT, value), node.place)
        indices = [frame.expression(each) for each in node.indices]
    start, terms = 0, []
    for code, scale, place in zip(indices, dense(shape), node.indices, strict=True):
        if not types.is_int(code.type):
            raise CslError(f"an index is an integer, got {code.type}", place.place)
        if code.known:
            start += code.value * scale
        else:
            terms.append(code.operand if scale == 1 else f"{code.operand} * {scale}")
    frame.cost(costs.ALU * len(terms))
    if not terms:
        return known((types.COMPTIME_INT, start))
    return joined(types.I16, " + ".join([*terms, *([str(start)] if start else [])]), indices)


def _difference(at: Code, start: Code) -> Code:
    if at.known and start.known:
        return known((types.COMPTIME_INT, at.value - start.value))
    return joined(types.I16, f"{at.operand} - {start.operand}", [at, start])
