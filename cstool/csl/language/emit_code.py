"""A piece of Python with its CSL type: known at compile time, or text.

Text has no side effect unless `calls` says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cstool.csl.language import conversions, types, values
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, FloatType, IntType, StructType, Type
from cstool.csl.language.values import Value


class Level:
    """Precedences of Python's operators, the tightest first."""

    ATOM, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARED, NEGATED, BOTH, EITHER, LOWEST = range(12)


@dataclass(frozen=True, slots=True)
class Code:
    """An expression.

    Args:
        type: type in CSL
        text: text in Python; "" where `value` is known
        value: data, where known at compile time
        known: whether `value` is known
        low, high: bounds of an integer, where they are closer than its type's
        level: precedence of the text, `ATOM` to `LOWEST`
        loose: of an integer that wraps: the unwrapped text, its level, its bounds
        reads: whether a store between its evaluation and its use could change it
        calls: whether its evaluation has side effects
        raw: whether it is a float32 not yet rounded
        fields: fields of an anonymous struct, some known at run time alone
    """

    type: Type
    text: str = ""
    value: Any = None
    known: bool = False
    low: int | None = None
    high: int | None = None
    level: int = 0
    loose: tuple[str, int, int, int] | None = None
    reads: bool = False
    calls: bool = False
    raw: bool = False
    fields: "dict[str, Code] | None" = None

    @property
    def operand(self) -> str:
        """The text, in parentheses unless it is an atom."""
        return self.at(Level.ATOM)

    def at(self, level: int) -> str:
        """The text for a place that takes operators that bind at least as tightly as `level`."""
        text = self.python
        return text if self.known or self.level <= level else f"({text})"

    @property
    def python(self) -> str:
        """The text."""
        return literal(self.type, self.value) if self.known else self.text

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        if self.known:
            return int(self.value), int(self.value)
        least, most = _bounds(self.type)
        return (least if self.low is None else self.low), (most if self.high is None else self.high)

    @property
    def pair(self) -> Value:
        """Type and data of a known value."""
        return self.type, self.value

    @property
    def parts(self) -> "dict[str, Code] | None":
        """The fields of an anonymous struct, known or not; None for any other value."""
        if self.known and isinstance(self.value, dict):
            return {name: known(value) for name, value in self.value.items()}
        return self.fields

    def in_variable(self, name: str) -> "Code":
        """The code, evaluated, by the name that keeps its value."""
        return replace(self, text=name, level=Level.ATOM, loose=None, raw=False, reads=False, calls=False)

    def retyped(self, type_: Type, **more: Any) -> "Code":
        """The same Python as a value of another type; its unwrapped text is dropped."""
        if isinstance(self.type, IntType) and isinstance(type_, IntType) and not self.known and not more:
            low, high = self.bounds
            more = {"low": low, "high": high}
        return replace(self, type=type_, loose=None, **more)

    def converted(self, target: Type, place: Place, what: str = "the value") -> "Code":
        """The code converted to `target` implicitly.

        Raises:
            CslError: it does not convert.
        """
        source = self.type
        if source is target or target == types.ANYTYPE or source == NEVER:
            return self
        if self.known:
            return known(conversions.coerce(self.pair, target, place, what))
        if self.fields is not None and isinstance(target, StructType | ArrayType):
            return _struct_of(self.fields, target, place, what)
        if source == target:
            return self
        if source == types.STRUCT or not conversions.coerces(source, target):
            raise conversions.mismatch(what, target, str(source), source, place)
        if isinstance(target, FloatType) and types.is_int(source):
            return self.cast(target)
        return self.retyped(target)

    def cast(self, target: Type) -> "Code":
        """`@as` between numbers and bool, both at run time types; the check is `conversions.check_cast`."""
        source = self.type
        if source == target:
            return self
        low, high = self.bounds if not isinstance(source, FloatType) else (0, 0)
        if target == types.BOOL:
            return joined(target, f"{self.at(Level.OR)} != 0", [self], level=Level.COMPARED)
        if isinstance(target, IntType):
            if isinstance(source, FloatType):
                widest = types.int_type(max(target.bits, 32), target.signed)
                text = f"integer({self.python}, {widest.least}, {widest.most})"
                if widest == target:
                    return atom(target, text, [self])
                return wrapped(target, text, widest.least, widest.most, [self], level=Level.ATOM)
            if source == types.BOOL:
                return atom(target, f"int({self.python})", [self], low=0, high=1)
            if target.least <= low and high <= target.most:
                return self.retyped(target)
            return wrapped(target, self.python, low, high, [self], level=self.level)
        assert isinstance(target, FloatType)
        if isinstance(source, FloatType):
            return self.retyped(target) if target.name == "f32" else rounded(target, self.python, [self])
        exact = {"f16": 11, "bf16": 8}.get(target.name, 24)
        text = f"float({self.python})"
        if -(1 << exact) <= low and high <= 1 << exact:
            return atom(target, text, [self])
        return rounded(target, text, [self], level=0)

    def to_bits(self) -> "Code":
        """The bits of a value as an unsigned integer."""
        type_ = self.type
        bits = types.bits_of(type_)
        unsigned = types.int_type(bits, False)
        if self.known:
            raw = int.from_bytes(values.to_bytes(type_, self.value), "little") & ((1 << bits) - 1)
            return known((unsigned, raw))
        if isinstance(type_, FloatType):
            name = "upper" if type_.name == "bf16" else f"bits{bits}"
            return atom(unsigned, f"{name}({self.python})", [self])
        if type_ == types.BOOL:
            return atom(unsigned, f"int({self.python})", [self])
        if isinstance(type_, IntType | EnumType) and self.bounds[0] < 0:
            return joined(unsigned, f"{self.at(Level.AND)} & {hex((1 << bits) - 1)}", [self], level=Level.AND)
        return self.retyped(unsigned)

    def from_bits(self, target: Type) -> "Code":
        """The value of `target` with the bits of an unsigned integer."""
        bits = types.bits_of(target)
        if self.known and is_raw(target):
            return known((target, values.from_bytes(target, int(self.value).to_bytes(target.size, "little"))))
        if isinstance(target, FloatType):
            return atom(target, f"{'b' if target.name == 'bf16' else ''}float{bits}({self.python})", [self])
        if target == types.BOOL:
            return joined(target, f"{self.at(Level.OR)} != 0", [self], level=Level.COMPARED)
        base = target.tag if isinstance(target, EnumType) else target
        if isinstance(base, IntType) and base.signed:
            return wrapped(base, self.python, *self.bounds, [self], level=self.level).retyped(target)
        return self.retyped(target, low=None, high=None)


def known(value: Value) -> Code:
    """A value of compile time as code."""
    return Code(value[0], value=value[1], known=True)


NOTHING = known(values.VOID)
NEVER = types.BasicType("noreturn")
"""The type of a branch that never ends: `return`, `break`."""


def _bounds(type_: Type) -> tuple[int, int]:
    """The least and the largest value of a type that is an integer in compiled code."""
    if isinstance(type_, IntType):
        return type_.least, type_.most
    if isinstance(type_, EnumType):
        return type_.tag.least, type_.tag.most
    return (0, 1) if type_ == types.BOOL else (0, 0xFFFF)


def is_raw(type_: Type) -> bool:
    """Whether a struct's value is one unsigned integer, its bits, in compiled code; others are tuples."""
    return isinstance(type_, StructType) and (type_.is_packed or type_.is_union)


def check_bits(type_: Type, what: str, place: Place) -> None:
    """Whether compiled code takes a value out of the bits of a union, or puts it there.

    Raises:
        CslError: it does that in SRAM alone.
    """
    if isinstance(type_, ArrayType) or (isinstance(type_, StructType) and not is_raw(type_)):
        raise CslError(
            f"{what} has parts, and is itself bits of a packed struct or a union: not simulated, got {type_}",
            place,
            "a union in a variable may have such fields",
        )


def literal(type_: Type, data: Any) -> str:
    """Known data as Python text."""
    if data is None and isinstance(type_, StructType | ArrayType):
        data = values.zero(type_)
    if isinstance(type_, ArrayType):
        items = [literal(type_.element, each) for each in data]
        if len(items) > 4 and len(set(items)) == 1:
            return f"({items[0]},) * {len(items)}"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(type_, StructType):
        if is_raw(type_):
            return hex(int.from_bytes(values.to_bytes(type_, data), "little"))
        items = [literal(*data[name]) for name, _ in type_.fields]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(data, float):
        if math.isfinite(data):
            return repr(data)
        return "NAN" if data != data else ("INFINITY" if data > 0 else "-INFINITY")
    return _named(data) if hasattr(data, "_field_defaults") else repr(data)


def _named(data: Any) -> str:
    """An operand of `fabric.dsd`, without its defaults."""
    parts = []
    for name, value in data._asdict().items():
        if name not in data._field_defaults or value != data._field_defaults[name]:
            parts.append(f"{name}={literal(types.VOID, value)}")
    return f"{type(data).__name__}({', '.join(parts)})"


def _struct_of(fields: dict[str, Code], target: Type, place: Place, what: str) -> Code:
    """A struct or array from fields, some known at run time alone."""
    if isinstance(target, ArrayType):
        if len(fields) != target.count:
            raise CslError(f"{what} must have {target.count} elements ({target}), got {len(fields)}", place)
        items = [
            each.converted(target.element, place, f"element {at} of {what}") for at, each in enumerate(fields.values())
        ]
        return tuple_of(target, items)
    assert isinstance(target, StructType)
    names = [name for name, _ in target.fields]
    for name in fields:
        if name not in names:
            raise CslError(f"{what}: {target} has the fields {', '.join(names)}, got .{name}", place)
    if target.is_union and len(fields) != 1:
        raise CslError(f"{what}: a union is given one of its fields, got {len(fields)}", place)
    defaults = dict(target.defaults)
    items = []
    for name, type_ in target.fields:
        if name in fields:
            items.append(fields[name].converted(type_, place, f"{what}, field '{name}'"))
        elif name in defaults:
            items.append(known((type_, defaults[name])))
        elif not target.is_union:
            raise CslError(f"{what}: {target} needs the field '{name}', which has no default", place)
    if not is_raw(target):
        return tuple_of(target, items)
    if target.is_union:
        if items[0].known:
            return known((target, dict.fromkeys(fields, items[0].pair)))
        check_bits(items[0].type, f"{what}, field '{next(iter(fields))}'", place)
        return items[0].to_bits().retyped(target)
    parts = []
    for (name, _), item in zip(target.fields, items, strict=True):
        shift = target.offset(name)
        parts.append(f"{item.to_bits().at(Level.SHIFT)} << {shift}" if shift else item.to_bits().at(Level.OR))
    return joined(target, " | ".join(parts), items, level=Level.OR)


def joined(type_: Type, text: str, parts: Sequence[Code], *, level: int = Level.LOWEST, **more: Any) -> Code:
    """Code made of other codes."""
    return Code(
        type_,
        text,
        level=level,
        reads=any(part.reads for part in parts),
        calls=any(part.calls for part in parts),
        **more,
    )


def atom(type_: Type, text: str, parts: Sequence[Code], **more: Any) -> Code:
    """Likewise, where the text is a call, an element, or has brackets around it."""
    return joined(type_, text, parts, level=Level.ATOM, **more)


def tuple_of(type_: Type, items: Sequence[Code]) -> Code:
    """A struct or an array from its elements."""
    text = ", ".join(item.python for item in items)
    return atom(type_, f"({text}{',' if len(items) == 1 else ''})", items)


def wrapped(
    type_: IntType, text: str, low: int, high: int, parts: Sequence[Code], *, level: int = Level.LOWEST
) -> Code:
    """An integer, `text` modulo 2**bits; `low` and `high` are bounds before that.

    An operation that wraps again may take the text unwrapped: sums and products are the same modulo 2**bits.
    """
    if type_.least <= low and high <= type_.most:
        return joined(type_, text, parts, low=low, high=high, level=level)
    mask = hex((1 << type_.bits) - 1)
    loose = (text, level, low, high)
    if not type_.signed or not type_.bits:
        inner = text if level <= Level.AND else f"({text})"
        return joined(type_, f"{inner} & {mask}", parts, level=Level.AND, loose=loose)
    half = hex(1 << (type_.bits - 1))
    inner = text if level <= Level.SUM else f"({text})"
    return joined(type_, f"({inner} + {half} & {mask}) - {half}", parts, level=Level.SUM, loose=loose)


def rounded(type_: FloatType, text: str, parts: Sequence[Code], *, level: int = Level.LOWEST) -> Code:
    """A float, `text` rounded to its type."""
    if type_.name != "f32":
        return atom(type_, f"{type_.name}({text})", parts)
    return joined(type_, text, parts, level=level, raw=True)
