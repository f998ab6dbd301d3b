"""Places: variables, fields, elements, targets of pointers; reading and writing them, and their addresses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cstool.csl.language import costs, evaluate, syntax, types, values
from cstool.csl.language.emit_code import Code, Level, is_raw, joined, known, tuple_of, wrapped
from cstool.csl.language.emit_frame import EXPRESSIONS, Frame
from cstool.csl.language.module import Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import (
    ArrayType,
    FloatType,
    FunctionType,
    IntType,
    OpaqueType,
    PointerType,
    StructType,
    Type,
)
from cstool.foundation.words import did_you_mean

VIEWS = {"f": "F32", "e": "F16", "w": "U32", "i": "I32", "H": "U16", "h": "I16", "B": "U8", "b": "I8"}
"""Names of the views of SRAM in compiled code, by element letter."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address in SRAM: `base` bytes and the sum of text * scale over `terms`.

    Args:
        base: bytes
        terms: (operand, bytes for each unit of it)
        parts: codes that the terms are made of
    """

    base: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    parts: tuple[Code, ...] = ()

    def plus(self, base: int, terms: Sequence[tuple[str, int]] = (), parts: Sequence[Code] = ()) -> "Address":
        """The address plus bytes and terms."""
        return Address(self.base + base, self.terms + tuple(terms), self.parts + tuple(parts))

    def text(self, size: int = 1) -> str:
        """The address in units of `size` bytes; it must be a multiple of that."""
        shift = size.bit_length() - 1
        words, rest = [], []
        for text, scale in self.terms:
            if scale % size == 0:
                words.append(text if scale == size else f"{text} * {scale // size}")
            else:
                rest.append(text if scale == 1 else f"{text} * {scale}")
        base = self.base
        if rest and base % size:
            rest.append(str(base))
            base = 0
        if rest:
            inner = " + ".join(rest)
            single = len(rest) == 1 and "*" not in inner
            moved = f"{inner} >> {shift}" if single else f"({inner}) >> {shift}"
            words.insert(0, f"({moved})" if words or base else moved)
        if base or not words:
            words.insert(0, str(base // size))
        return " + ".join(words)

    def aligned(self, size: int) -> bool:
        """Whether it is surely a multiple of `size`."""
        return self.base % size == 0 and all(scale % size == 0 for _, scale in self.terms)


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
        return _pointed(frame, node)
    code = frame.expression(node)
    return Spot(code.type, "a value", True, code=code)


def _named(frame: Frame, node: syntax.Name) -> Spot:
    local = frame.find(node.name)
    if isinstance(frame.scope.find(node.name), evaluate.RunTime) and local is not None:
        name = f"'{node.name}'"
        if local.address is not None:
            return Spot(local.type, name, local.const, address=Address(local.address))
        return Spot(local.type, name, local.const, variable=local.variable, code=local.code)
    value = evaluate.try_comptime(node, frame.scope)
    if value is not None and frame.scope.find(node.name) is not None:
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
    if is_raw(struct):
        return Spot(type_, title, base.const, bit=struct.offset(name) if struct.is_packed else 0, inside=base)
    if base.address is not None:
        return Spot(type_, title, base.const, address=base.address.plus(struct.offset(name)))
    code = base.code
    if code is not None and code.known:
        return Spot(type_, title, True, code=known(code.value[name]))
    at = [field for field, _ in struct.fields].index(name)
    text = f"{base.variable if code is None else code.operand}[{at}]"
    return Spot(type_, title, True, code=joined(type_, text, [] if code is None else [code], level=0))


def _pointed(frame: Frame, node: syntax.Dereference) -> Spot:
    return pointed(frame.expression(node.pointer), node.place)


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


def address_in(pointer: Code) -> Address:
    """The value of a pointer as an address."""
    if pointer.known:
        return Address(int(pointer.value))
    return Address(0, ((pointer.operand, 1),), (pointer,))


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
    return Spot(array.element, title, True, code=joined(array.element, text, parts, level=0))


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
        return _load(frame, spot.type, spot.address)
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


def _load(frame: Frame, type_: Type, address: Address) -> Code:
    if isinstance(type_, StructType) and not is_raw(type_):
        items = [_load(frame, field, address.plus(type_.offset(name))) for name, field in type_.fields]
        return tuple_of(type_, items)
    if isinstance(type_, ArrayType):
        return _load_array(frame, type_, address)
    frame.cost(costs.LOAD * max(1, type_.size // 4))
    text, level = _read(frame, type_, address)
    reads = any(part.calls for part in address.parts)
    return Code(type_, text, level=level, reads=True, calls=reads)


def _read(frame: Frame, type_: Type, address: Address) -> tuple[str, int]:
    """Text that reads a scalar, and its level."""
    program = frame.program
    _simulated(type_, frame)
    size = type_.size
    if size == 8:
        program.views.add("w")
        text = f"load64(U32, {address.text()})"
        if isinstance(type_, IntType) and type_.signed:
            return wrapped(type_, text, 0, (1 << 64) - 1, [], level=Level.ATOM).text, Level.SUM
        return text, Level.ATOM
    letter = _letter(type_)
    if _odd(program.unaligned, address, size):
        text = f"pe.load({letter!r}, {address.text()})"
    else:
        program.views.add(letter)
        if letter == "e":
            program.views.add("H")
            text = f"HALVES[U16[{address.text(size)}]]"
        else:
            text = f"{VIEWS[letter]}[{address.text(size)}]"
    return (f"{text} != 0", Level.COMPARED) if type_ == types.BOOL else (text, Level.ATOM)


def _odd(unaligned: bool, address: Address, size: int) -> bool:
    """Whether an address may be no multiple of `size`."""
    if address.aligned(size):
        return False
    return unaligned or all(scale % size == 0 for _, scale in address.terms)


def _letter(type_: Type) -> str:
    if isinstance(type_, StructType):
        return {1: "B", 2: "H", 4: "w"}[type_.size]
    letter = type_.letter
    assert letter is not None, type_
    return letter


def _simulated(type_: Type, frame: Frame) -> None:
    if isinstance(type_, FloatType) and type_.name not in ("f16", "f32"):
        raise CslError(
            f"{type_} is known to the compiler, but not simulated at run time", frame.place, "use f16 or f32"
        )
    if type_.size > 8:
        raise CslError(f"what is wider than 64 bits is not simulated at run time, got {type_}", frame.place)


def _load_array(frame: Frame, type_: ArrayType, address: Address) -> Code:
    element = type_.element
    frame.cost(costs.LOAD * type_.count)
    letter = element.letter
    if letter in VIEWS and letter != "e" and element != types.BOOL and address.aligned(element.size):
        frame.program.views.add(letter)
        view, start = VIEWS[letter], address.text(element.size)
        return Code(type_, f"tuple({view}[{start}:{start} + {type_.count}])", reads=True)
    items = [_load(frame, element, address.plus(at * element.size)) for at in range(type_.count)]
    return tuple_of(type_, items)


# --- writing ---


def store(frame: Frame, spot: Spot, code: Code, place: Place) -> None:
    """Write a value of the place's type.

    Raises:
        CslError: it is only read.
    """
    if spot.const:
        raise CslError(f"{spot.name} is const and cannot be assigned to", place)
    if spot.inside is not None:
        _store_bits(frame, spot, code, place)
    elif spot.address is not None:
        _store(frame, spot.type, spot.address, code)
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
        store(frame, outer, piece.retyped(outer.type), place)
        return
    whole = load(frame, outer)
    keep = hex(((1 << width) - 1) & ~(((1 << bits) - 1) << spot.bit))
    text = f"{whole.at(Level.AND)} & {keep} | {shifted}"
    store(frame, outer, joined(outer.type, text, [whole, piece], level=Level.OR), place)


def _store(frame: Frame, type_: Type, address: Address, code: Code) -> None:
    if isinstance(type_, ArrayType) and code.known:
        _store_known(frame, type_, address, code)
    elif isinstance(type_, ArrayType) or (isinstance(type_, StructType) and not is_raw(type_)):
        _store_parts(frame, type_, address, code)
    else:
        frame.cost(costs.STORE * max(1, type_.size // 4))
        if type_ != types.F32:
            code = frame.settled(code)
        if code.calls or any(part.calls for part in address.parts):
            frame.flush()
        for line in _write(frame, type_, address, code):
            frame.line(line)


def _write(frame: Frame, type_: Type, address: Address, code: Code) -> list[str]:
    _simulated(type_, frame)
    size = type_.size
    if size == 8:
        frame.program.views.add("w")
        return [f"store64(U32, {address.text()}, {code.python})"]
    letter = _letter(type_)
    if _odd(frame.program.unaligned, address, size):
        return [f"pe.store({letter!r}, {address.text()}, {frame.settled(code).python})"]
    frame.program.views.add(letter)
    return [f"{VIEWS[letter]}[{address.text(size)}] = {code.python}"]


def _store_known(frame: Frame, type_: ArrayType, address: Address, code: Code) -> None:
    frame.cost(costs.STORE * max(1, type_.size // 4), 4)
    frame.program.views.add("B")
    raw = values.to_bytes(type_, values.zero(type_) if code.value is None else code.value)
    start = address.text()
    text = f"bytes({len(raw)})" if not any(raw) else repr(raw)
    frame.line(f"U8[{start}:{start} + {len(raw)}] = {text}")


def _store_parts(frame: Frame, type_: Type, address: Address, code: Code) -> None:
    """A struct or an array from a tuple."""
    source = frame.variable(code, "parts")
    for item, part_type, offset in parts_of(type_, source):
        _store(frame, part_type, address.plus(offset), item)


def parts_of(type_: Type, code: Code) -> list[tuple[Code, Type, int]]:
    """The parts of a struct or array that is a tuple in Python: each with its type and its offset in bytes."""
    if isinstance(type_, ArrayType):
        size = type_.element.size
        return [(Code(type_.element, f"{code.operand}[{at}]"), type_.element, at * size) for at in range(type_.count)]
    assert isinstance(type_, StructType)
    found = []
    for at, (name, field) in enumerate(type_.fields):
        part = known(code.value[name]) if code.known else Code(field, f"{code.operand}[{at}]")
        found.append((part, field, type_.offset(name)))
    return found


# --- expressions ---


@EXPRESSIONS.at(syntax.Name, syntax.Field, syntax.Index, syntax.Dereference)
def read(frame: Frame, node: syntax.Expression, want: Type | None) -> Code:  # noqa: ARG001
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
