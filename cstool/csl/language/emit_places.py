"""Places: variables, fields, elements, targets of pointers; reading and writing them, and their addresses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cstool.csl.language import costs, evaluate, syntax, types
from cstool.csl.language.emit_code import Code, Level, atom, check_bits, is_raw, joined, known
from cstool.csl.language.emit_frame import EXPRESSIONS, Frame, Local
from cstool.csl.language.emit_memory import Address, address_in, read, write
from cstool.csl.language.module import Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, FunctionType, OpaqueType, PointerType, StructType, Type
from cstool.foundation.words import did_you_mean

IS_CONST = "const and parameters keep their values; a copy that changes is 'var copy = ...;'"
"""the hint where something is assigned to that cannot be"""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place that a value is read from, or written to.

    Args:
        type: of the value
        name: its name in messages
        const: whether it is only read
        variable: variable in Python that holds it
        address: its address in SRAM, if it is there
        code: its value, if it is no variable and nowhere in SRAM
        bit: of a field of a packed struct or a union: its first bit in `inside`
        inside: the struct, whose bits are one integer
    """

    type: Type
    name: str
    const: bool = False
    variable: str | None = None
    address: Address | None = None
    code: Code | None = None
    bit: int = 0
    inside: "Spot | None" = None


def spot_of(frame: Frame, node: syntax.Expression) -> Spot:
    """The place that an expression names; an expression without a place has `code` alone."""
    if isinstance(node, syntax.Name):
        return _named(frame, node)
    if isinstance(node, syntax.Field):
        return _field(frame, node)
    if isinstance(node, syntax.Index):
        return _element(frame, node)
    if isinstance(node, syntax.Dereference):
        return pointed(frame.expression(node.pointer), node.place)
    code = frame.expression(node)
    return Spot(code.type, "a value", True, code=code)


def _named(frame: Frame, node: syntax.Name) -> Spot:
    local = frame.scope.find(node.name)
    if isinstance(local, Local):
        name = f"'{node.name}'"
        if local.address is not None:
            return Spot(local.type, name, local.const, address=Address(local.address))
        return Spot(local.type, name, local.const, variable=local.variable, code=local.code)
    value = evaluate.try_comptime(node, frame.scope)
    if value is not None and local is not None:
        return Spot(value[0], f"'{node.name}'", True, code=known(value))
    return _global(frame, frame.scope.module.lookup(node.name, node.place))


def _global(frame: Frame, binding: Any) -> Spot:
    name = f"'{binding.name}'"
    if not isinstance(binding, Variable):
        aggregate = isinstance(binding.type, ArrayType | StructType) and not binding.type.comptime_only
        if aggregate and frame.program.in_sram(binding.type):
            return Spot(binding.type, name, True, address=Address(binding.address()), code=known(binding.value))
        return Spot(binding.type, name, True, code=known(binding.value))
    address = binding.address()
    if frame.program.in_sram(binding.type):
        return Spot(binding.type, name, address=Address(address))
    variable = frame.program.object(binding)
    frame.objects.add(variable)
    return Spot(binding.type, name, variable=variable)


def _field(frame: Frame, node: syntax.Field) -> Spot:
    value = evaluate.try_comptime(node.base, frame.scope)
    if value is not None and value[0] == types.MODULE:
        return _global(frame, value[1].lookup(node.name, node.place))
    base = spot_of(frame, node.base)
    if isinstance(base.type, PointerType) and not base.type.many:
        base = pointed(load(frame, base), node.place)
    if base.code is not None and base.code.fields is not None:
        fields = base.code.fields
        if node.name not in fields:
            raise CslError(f"there is no field '{node.name}'", node.place, did_you_mean(node.name, list(fields)))
        return Spot(fields[node.name].type, f"field '{node.name}'", True, code=fields[node.name])
    if not isinstance(base.type, StructType):
        if isinstance(base.type, ArrayType | OpaqueType) or base.code is None:
            raise CslError(f"{base.type} has no fields, got .{node.name}", node.place)
        return Spot(types.VOID, "a value", True, code=known(evaluate.evaluate(node, frame.scope)))
    return _field_of(base, node.name, node.place)


def _field_of(base: Spot, name: str, place: Place) -> Spot:
    struct = base.type
    assert isinstance(struct, StructType)
    type_ = struct.field(name)
    if type_ is None:
        names = [field for field, _ in struct.fields]
        raise CslError(f"{struct} has the fields {', '.join(names)}, got .{name}", place, did_you_mean(name, names))
    title = f"field '{name}' of {base.name}"
    if is_raw(struct) and (struct.is_packed or base.address is None):
        check_bits(type_, title, place)
        return Spot(type_, title, base.const, bit=struct.offset(name) if struct.is_packed else 0, inside=base)
    if base.address is not None:
        return Spot(type_, title, base.const, address=base.address.plus(struct.offset(name)))
    code = base.code
    if code is not None and code.known:
        return Spot(type_, title, True, code=known(code.value[name]))
    at = [field for field, _ in struct.fields].index(name)
    text = f"{base.variable if code is None else code.operand}[{at}]"
    return Spot(type_, title, True, code=atom(type_, text, [] if code is None else [code]))


def pointed(pointer: Code, place: Place) -> Spot:
    """The target of a pointer.

    Raises:
        CslError: it is no pointer, or a pointer to many.
    """
    if not isinstance(pointer.type, PointerType):
        raise CslError(f".* needs a pointer, got {pointer.type}", place)
    if pointer.type.many:
        raise CslError(f".* needs a pointer to one value, got {pointer.type}", place, "p[0] is the first of many")
    return Spot(pointer.type.pointee, "what the pointer points to", pointer.type.const, address=address_in(pointer))


def _element(frame: Frame, node: syntax.Index) -> Spot:
    base = spot_of(frame, node.base)
    if isinstance(base.type, PointerType):
        pointer = load(frame, base)
        assert isinstance(pointer.type, PointerType)
        if not pointer.type.many:
            base = pointed(pointer, node.place)
        else:
            return _of_many(frame, pointer, node)
    if not isinstance(base.type, ArrayType):
        raise CslError(f"only arrays and pointers to many have elements, got {base.type}", node.place)
    array = base.type
    if len(node.indices) != len(array.shape):
        raise CslError(f"{array} takes {len(array.shape)} indices, got {len(node.indices)}", node.place)
    indices = frame.made(node.indices)
    offset, terms, parts = _flat(frame, array, indices, node)
    frame.cost(costs.ALU * len(terms))
    title = f"an element of {base.name}"
    size = array.element.size
    if base.address is not None and frame.program.in_sram(array):
        address = base.address.plus(offset * size, [(text, scale * size) for text, scale in terms], parts)
        return Spot(array.element, title, base.const, address=address)
    inner = " + ".join([*([str(offset)] if offset or not terms else []), *(_times(*term) for term in terms)])
    code = base.code
    if code is not None and code.known:
        text = frame.program.constant(base.name, array, code.value)
    else:
        text = code.operand if code is not None else str(base.variable)
    text = f"{text}[{inner}]"
    if base.variable is not None and not base.const:
        return Spot(array.element, title, variable=text)
    return Spot(array.element, title, True, code=atom(array.element, text, parts))


def _times(text: str, scale: int) -> str:
    return text if scale == 1 else f"{text} * {scale}"


def _flat(
    frame: Frame, array: ArrayType, indices: Sequence[Code], node: syntax.Index
) -> tuple[int, list[tuple[str, int]], list[Code]]:
    """The offset of an element from its indices, in elements: a number, and terms of (text, scale)."""
    offset, terms, parts = 0, [], []
    scale = array.count
    for code, extent, part in zip(indices, array.shape, node.indices, strict=True):
        scale = scale // extent if extent else 0
        if not types.is_int(code.type):
            raise CslError(f"an index must be an integer, got {code.type}", part.place)
        if code.known:
            if not 0 <= code.value < extent:
                raise CslError(f"an index must be 0 to {extent - 1} ({array}), got {code.value}", part.place)
            offset += code.value * scale
            continue
        terms.append((checked(frame, code, extent, part.place), scale))
        parts.append(code)
    return offset, terms, parts


def checked(frame: Frame, code: Code, extent: int, place: Place) -> str:
    """An index as an operand that fails where it is out of bounds."""
    low, high = code.bounds
    if low >= 0 and high < extent:
        return code.operand
    if code.text.isidentifier():
        name, first = code.text, code.text
    else:
        name = frame.fresh("at")
        first = f"({name} := {code.text})"
    test = f"{first} < {extent}" if low >= 0 else f"0 <= {first} < {extent}"
    return f"({name} if {test} else outside(pe, {frame.where(place)}, {name}, {extent}))"


def _of_many(frame: Frame, pointer: Code, node: syntax.Index) -> Spot:
    assert isinstance(pointer.type, PointerType)
    if len(node.indices) != 1:
        raise CslError(f"{pointer.type} takes one index, got {len(node.indices)}", node.place)
    pointer, index = frame.ordered([lambda: pointer, lambda: frame.expression(node.indices[0])])
    if not types.is_int(index.type):
        raise CslError(f"an index must be an integer, got {index.type}", node.indices[0].place)
    element = pointer.type.pointee  # type: ignore[attr-defined]
    address = address_in(pointer)
    if index.known:
        address = address.plus(index.value * element.size)
    else:
        address = address.plus(0, [(index.operand, element.size)], [index])
        frame.cost(costs.ALU)
    return Spot(element, "an element", pointer.type.const, address=address)  # type: ignore[attr-defined]


# --- reading ---


def load(frame: Frame, spot: Spot) -> Code:
    """The value in a place."""
    if spot.inside is not None:
        return _load_bits(frame, spot)
    if spot.address is not None:
        if spot.code is not None and spot.code.known:
            return spot.code
        return read(frame, spot.type, spot.address)
    if spot.code is not None:
        return spot.code
    return Code(spot.type, str(spot.variable), reads=True)


def _raw_bits(type_: StructType) -> int:
    """Bits of the integer for a packed struct or a union."""
    return type_.bits if type_.is_packed else 8 * type_.size


def _load_bits(frame: Frame, spot: Spot) -> Code:
    assert spot.inside is not None
    whole = load(frame, spot.inside)
    bits = types.bits_of(spot.type)
    frame.cost(costs.ALU, 1)
    unsigned = types.int_type(bits, False)
    text, level = (f"{whole.at(Level.SHIFT)} >> {spot.bit}", Level.SHIFT) if spot.bit else (whole.python, whole.level)
    outer = _raw_bits(spot.inside.type)  # type: ignore[arg-type]
    if spot.bit + bits < outer:
        inner = text if level <= Level.AND else f"({text})"
        text, level = f"{inner} & {hex((1 << bits) - 1)}", Level.AND
    part = joined(unsigned, text, [whole], level=level)
    return part if is_raw(spot.type) and spot.type == part.type else part.from_bits(spot.type)


# --- writing ---


def store(frame: Frame, spot: Spot, code: Code, place: Place) -> None:
    """Write a value of the place's type.

    Raises:
        CslError: it is only read.
    """
    if spot.const:
        raise CslError(f"{spot.name} is const and cannot be assigned to", place, IS_CONST)
    if spot.inside is not None:
        _store_bits(frame, spot, code, place)
    elif spot.address is not None:
        write(frame, spot.type, spot.address, code)
    else:
        frame.assign(str(spot.variable), code)


def _store_bits(frame: Frame, spot: Spot, code: Code, place: Place) -> None:
    assert spot.inside is not None
    outer = spot.inside
    bits = types.bits_of(spot.type)
    width = _raw_bits(outer.type)  # type: ignore[arg-type]
    code = frame.settled(code)
    piece = code.to_bits()
    shifted = f"{piece.at(Level.SHIFT)} << {spot.bit}" if spot.bit else piece.at(Level.XOR)
    frame.cost(2 * costs.ALU, 2)
    if bits == width:
        store(frame, outer, piece.from_bits(outer.type), place)
        return
    whole = load(frame, outer)
    keep = hex(((1 << width) - 1) & ~(((1 << bits) - 1) << spot.bit))
    text = f"{whole.at(Level.AND)} & {keep} | {shifted}"
    store(frame, outer, joined(outer.type, text, [whole, piece], level=Level.OR), place)


# --- expressions ---


@EXPRESSIONS.at(syntax.Name, syntax.Field, syntax.Index, syntax.Dereference)
def value(frame: Frame, node: syntax.Expression, want: Type | None) -> Code:  # noqa: ARG001
    """The value in the place that an expression names."""
    return load(frame, spot_of(frame, node))


def address_of(frame: Frame, node: syntax.Unary) -> Code:
    """`&x`.

    Raises:
        CslError: x is nowhere in SRAM.
    """
    operand = node.operand
    spot = spot_of(frame, operand)
    if spot.code is not None and spot.code.known and isinstance(spot.type, FunctionType):
        return spot.code.retyped(PointerType(spot.type, const=True))
    if spot.address is None or spot.inside is not None:
        hint = "keep its value in an array" if isinstance(spot.type, OpaqueType) else None
        raise CslError(f"{spot.name} ({spot.type}) has no address in SRAM", node.place, hint)
    pointer = PointerType(spot.type, const=spot.const)
    if not spot.address.terms:
        return known((pointer, spot.address.base))
    return joined(pointer, spot.address.text(), spot.address.parts, level=Level.LOWEST)
