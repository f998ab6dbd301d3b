"""SRAM: addresses, and values that are read from them and written to them, as Python."""

from collections.abc import Sequence
from dataclasses import dataclass

from cstool.csl.language import costs, types, values
from cstool.csl.language.emit_code import Code, Level, is_raw, known, tuple_of, wrapped
from cstool.csl.language.emit_frame import Frame
from cstool.csl.language.source import CslError
from cstool.csl.language.types import ArrayType, FloatType, IntType, StructType, Type

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


def address_in(pointer: Code) -> Address:
    """The value of a pointer as an address."""
    if pointer.known:
        return Address(int(pointer.value))
    return Address(0, ((pointer.operand, 1),), (pointer,))


def read(frame: Frame, type_: Type, address: Address) -> Code:
    """The value of a type at an address."""
    if isinstance(type_, StructType) and not is_raw(type_):
        items = [read(frame, field, address.plus(type_.offset(name))) for name, field in type_.fields]
        return tuple_of(type_, items)
    if isinstance(type_, ArrayType):
        return _load_array(frame, type_, address)
    frame.cost(costs.LOAD * max(1, type_.size // 4))
    text, level = _scalar(frame, type_, address)
    reads = any(part.calls for part in address.parts)
    return Code(type_, text, level=level, reads=True, calls=reads)


def _scalar(frame: Frame, type_: Type, address: Address) -> tuple[str, int]:
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
    if type_ == types.BF16:
        return f"bfloat16({_scalar(frame, types.U16, address)[0]})", Level.ATOM
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
    if isinstance(type_, FloatType) and type_.name == "cb16":
        raise CslError(f"{type_} is known to the compiler, but not simulated at run time", frame.place, "use bf16")
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
    items = [read(frame, element, address.plus(at * element.size)) for at in range(type_.count)]
    return tuple_of(type_, items)


def write(frame: Frame, type_: Type, address: Address, code: Code) -> None:
    """Write a value of a type to an address."""
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
        for line in _assignment(frame, type_, address, code):
            frame.line(line)


def _assignment(frame: Frame, type_: Type, address: Address, code: Code) -> list[str]:
    _simulated(type_, frame)
    size = type_.size
    if size == 8:
        frame.program.views.add("w")
        return [f"store64(U32, {address.text()}, {code.python})"]
    if type_ == types.BF16:
        return _assignment(frame, types.U16, address, frame.settled(code).to_bits())
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
    for item, part_type, offset in _parts_of(type_, source):
        write(frame, part_type, address.plus(offset), item)


def _parts_of(type_: Type, code: Code) -> list[tuple[Code, Type, int]]:
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
