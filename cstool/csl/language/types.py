"""The types of CSL: frozen, comparable, each with its size in SRAM and its letter for the fabric.

Where the vendor gives no size, this project does: an integer takes the smallest of 1, 2, 4, 8 bytes that hold
it; a handle (color, task id, queue, enum without a tag) is a u16; a DSD takes 8 bytes.
"""

from dataclasses import dataclass
from functools import cache
from math import prod

LETTERS = {
    (True, 8): "b",
    (False, 8): "B",
    (True, 16): "h",
    (False, 16): "H",
    (True, 32): "i",
    (False, 32): "w",
    (True, 64): "q",
    (False, 64): "Q",
}
_DSD_BYTES = 8


@dataclass(frozen=True)
class Type:
    """The type of a value. `str()` gives it as CSL writes it."""

    @property
    def size(self) -> int:
        """Bytes in SRAM; 0 for a type of compile time alone."""
        return self._size()

    @property
    def align(self) -> int:
        """Bytes; addresses are multiples of it."""
        return self._align()

    @property
    def letter(self) -> str | None:
        """The element letter of `fabric.interface` for a scalar in SRAM; None for any other type."""
        return self._letter()

    @property
    def comptime_only(self) -> bool:
        """Whether values of it exist at compile time alone."""
        return self._comptime_only()

    def _size(self) -> int:
        return 0

    def _align(self) -> int:
        return max(1, min(self.size, 4))

    def _letter(self) -> str | None:
        return None

    def _comptime_only(self) -> bool:
        return True


@dataclass(frozen=True)
class IntType(Type):
    """`i16`, `u3`."""

    bits: int
    signed: bool

    def __str__(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits}"

    def _size(self) -> int:
        return next((size for size in (1, 2, 4, 8) if self.bits <= 8 * size), -(-self.bits // 64) * 8)

    def _letter(self) -> str | None:
        return LETTERS.get((self.signed, 8 * self.size))

    def _comptime_only(self) -> bool:
        return False

    @property
    def least(self) -> int:
        """Its smallest value."""
        return -(1 << (self.bits - 1)) if self.signed and self.bits else 0

    @property
    def most(self) -> int:
        """Its largest value."""
        return (1 << (self.bits - (1 if self.signed and self.bits else 0))) - 1


@dataclass(frozen=True)
class NamedType(Type):
    """A type with a name, as in CSL, or as in messages."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FloatType(NamedType):
    """`f16`, `f32`, `bf16`, `cb16`."""

    def _size(self) -> int:
        return 4 if self.name == "f32" else 2

    def _letter(self) -> str | None:
        return "f" if self.name == "f32" else "e"

    def _comptime_only(self) -> bool:
        return False


@dataclass(frozen=True)
class BasicType(NamedType):
    """A type without parameters that is no number of fixed width: `bool`, `void`, `type`, `comptime_int`, ..."""

    def _size(self) -> int:
        return 1 if self.name == "bool" else 0

    def _letter(self) -> str | None:
        return "B" if self.name == "bool" else None

    def _comptime_only(self) -> bool:
        return self.name not in ("bool", "void", "anyopaque")


@dataclass(frozen=True)
class OpaqueType(NamedType):
    """A handle of the machine: `color`, `local_task_id`, `input_queue`, `mem1d_dsd`, `dsr_dest`, ...

    A handle is a u16 in SRAM. A DSD is a value of `fabric.dsd`: it has no letter, but its bytes count.
    """

    def _size(self) -> int:
        return _DSD_BYTES if self.is_dsd else 0 if self.comptime_only else 2

    def _letter(self) -> str | None:
        return None if self.is_dsd or self.comptime_only else "H"

    def _comptime_only(self) -> bool:
        return self.name in _COMPTIME_OPAQUE

    @property
    def is_dsd(self) -> bool:
        """Whether a value is an operand of `fabric.dsd`."""
        return self.name in DSD_NAMES or self.name in DSR_NAMES


DSD_NAMES = ("mem1d_dsd", "mem4d_dsd", "fabin_dsd", "fabout_dsd", "fifo", "circbuf_dsd")
DSR_NAMES = ("dsr_dest", "dsr_src0", "dsr_src1", "dsr_fifo_dest", "dsr_fifo_src1")
_COMPTIME_OPAQUE = frozenset({"imported_module", "comptime_struct"})


@dataclass(frozen=True)
class ArrayType(Type):
    """`[4]f32`, `[2, 3]i16`. Elements are row-major."""

    shape: tuple[int, ...]
    element: Type

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}]{self.element}"

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def _size(self) -> int:
        return self.count * self.element.size

    def _align(self) -> int:
        return self.element.align

    def _comptime_only(self) -> bool:
        return self.element.comptime_only


@dataclass(frozen=True)
class PointerType(Type):
    """`*T`, `[*]T` (many); with `const` its target is only read."""

    pointee: Type
    many: bool = False
    const: bool = False

    @property
    def element(self) -> Type:
        """Type of its target; of the elements, where the target is an array."""
        return self.pointee.element if isinstance(self.pointee, ArrayType) else self.pointee

    def __str__(self) -> str:
        return f"{'[*]' if self.many else '*'}{'const ' if self.const else ''}{self.pointee}"

    def _size(self) -> int:
        return 2

    def _letter(self) -> str | None:
        return "H"

    def _comptime_only(self) -> bool:
        return self.pointee.comptime_only and not isinstance(self.pointee, FunctionType)


@dataclass(frozen=True)
class FunctionType(Type):
    """`fn(u16, f32)void`; a task's has kind "task". A parameter of None is generic (`comptime`, `type`, `anytype`)."""

    parameters: tuple[Type | None, ...]
    result: Type | None
    kind: str = "fn"

    def __str__(self) -> str:
        names = ", ".join("anytype" if parameter is None else str(parameter) for parameter in self.parameters)
        return f"{self.kind}({names}){self.result or 'anytype'}"

    def _size(self) -> int:
        return 2

    def _comptime_only(self) -> bool:
        return True


def points_to_function(type_: Type) -> bool:
    """Whether a type is `*fn(..)..`."""
    return isinstance(type_, PointerType) and isinstance(type_.pointee, FunctionType)


@dataclass(frozen=True)
class StructType(NamedType):
    """`struct {..}`, `packed struct {..}`, `union {..}`: nominal, by `name`, its declaration's place and arguments.

    Args:
        name: as in messages; it tells a struct from another one with the same fields
        kind: "struct", "packed struct", "union", "packed union", "extern struct"
        fields: name and type
        defaults: by name, data of the field's type, in the order of the fields
    """

    kind: str
    fields: tuple[tuple[str, Type], ...]
    defaults: tuple[tuple[str, object], ...] = ()

    def field(self, name: str) -> Type | None:
        """The type of a field; None if there is none of the name."""
        return dict(self.fields).get(name)

    @property
    def is_packed(self) -> bool:
        """Whether fields are bits without gaps."""
        return self.kind.startswith("packed")

    @property
    def is_union(self) -> bool:
        """Whether all fields begin at its start."""
        return self.kind.endswith("union")

    @property
    def bits(self) -> int:
        """Bits, if it is packed."""
        each = [bits_of(type_) for _, type_ in self.fields]
        return (max(each, default=0)) if self.is_union else sum(each)

    def offset(self, name: str) -> int:
        """Offset of a field: bytes, or bits if it is packed."""
        at = 0
        for field, type_ in self.fields:
            if not self.is_packed:
                at = -(-at // type_.align) * type_.align
            if field == name or self.is_union:
                return 0 if self.is_union else at
            at += bits_of(type_) if self.is_packed else type_.size
        raise KeyError(name)

    def _size(self) -> int:
        if self.is_packed:
            return IntType(self.bits, False).size
        if self.is_union:
            end = max((type_.size for _, type_ in self.fields), default=0)
        else:
            end = 0
            for _, type_ in self.fields:
                end = -(-end // type_.align) * type_.align + type_.size
        return -(-end // self.align) * self.align

    def _align(self) -> int:
        if self.is_packed:
            return IntType(self.bits, False).align
        return max((type_.align for _, type_ in self.fields), default=1)

    def _comptime_only(self) -> bool:
        return any(type_.comptime_only for _, type_ in self.fields)


@dataclass(frozen=True)
class EnumType(NamedType):
    """`enum(u16) { A, B = 5 }`: nominal, by `name`."""

    tag: IntType
    members: tuple[tuple[str, int], ...]

    def value(self, member: str) -> int | None:
        """The number of a member; None if there is none of the name."""
        return dict(self.members).get(member)

    def member(self, value: int) -> str | None:
        """The member with a number."""
        return next((name for name, number in self.members if number == value), None)

    def _size(self) -> int:
        return self.tag.size

    def _letter(self) -> str | None:
        return self.tag.letter

    def _comptime_only(self) -> bool:
        return False


BOOL = BasicType("bool")
VOID = BasicType("void")
TYPE = BasicType("type")
STRING = BasicType("comptime_string")
COMPTIME_INT = BasicType("comptime_int")
COMPTIME_FLOAT = BasicType("comptime_float")
ENUM_LITERAL = BasicType("enum literal")
"""`.name` whose enum is not known yet."""
RANGE = BasicType("range")
"""Type of `@range` and `@range_start`; data: (element type, Python range)."""
UNDEFINED = BasicType("undefined")
ANYTYPE = BasicType("anytype")
"""The type of a parameter that takes any value; no value has it."""

ANYOPAQUE = BasicType("anyopaque")
"""The target of a pointer to anything; no value has it."""

F16, F32, BF16, CB16 = (FloatType(name) for name in ("f16", "f32", "bf16", "cb16"))
STRUCT = OpaqueType("comptime_struct")
MODULE = OpaqueType("imported_module")
COLOR = OpaqueType("color")
LOCAL_TASK = OpaqueType("local_task_id")
DATA_TASK = OpaqueType("data_task_id")
CONTROL_TASK = OpaqueType("control_task_id")
INPUT_QUEUE = OpaqueType("input_queue")
OUTPUT_QUEUE = OpaqueType("output_queue")
UT_ID = OpaqueType("ut_id")
XDSR, SR = OpaqueType("xdsr"), OpaqueType("sr")
DIRECTION = OpaqueType("direction")
MEM1D, MEM4D, FABIN, FABOUT, FIFO, CIRCBUF = (OpaqueType(name) for name in DSD_NAMES)
DSR_DEST, DSR_SRC0, DSR_SRC1, DSR_FIFO_DEST, DSR_FIFO_SRC1 = (OpaqueType(name) for name in DSR_NAMES)


@cache
def int_type(bits: int, signed: bool) -> IntType:
    """`iN` or `uN`; the same object every time."""
    return IntType(bits, signed)


I8, I16, I32, I64 = (int_type(bits, True) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (int_type(bits, False) for bits in (8, 16, 32, 64))

NAMED: dict[str, Type] = {
    str(type_): type_
    for type_ in (
        *(BOOL, VOID, TYPE, STRING, COMPTIME_INT, COMPTIME_FLOAT, ANYTYPE, ANYOPAQUE),
        *(F16, F32, BF16, CB16, I8, I16, I32, I64, U8, U16, U32, U64),
        *(STRUCT, MODULE, COLOR, LOCAL_TASK, DATA_TASK, CONTROL_TASK, INPUT_QUEUE, OUTPUT_QUEUE, UT_ID, DIRECTION),
        *(XDSR, SR),
        *(MEM1D, MEM4D, FABIN, FABOUT, FIFO, CIRCBUF, DSR_DEST, DSR_SRC0, DSR_SRC1, DSR_FIFO_DEST, DSR_FIFO_SRC1),
    )
}
"""Types by their names in CSL; `iN` and `uN` of other widths are found by `named_type`."""


def named_type(name: str) -> Type | None:
    """The type with a name in CSL, or None."""
    found = NAMED.get(name)
    if found is None and name[:1] in ("i", "u") and name[1:].isdecimal() and name.isascii() and len(name) <= 9:
        bits = int(name[1:])
        if str(bits) == name[1:] and bits < 1 << 24:
            return int_type(bits, name[0] == "i")
    return found


def bits_of(type_: Type) -> int:
    """Bits of a value in `@bitcast` and packed structs."""
    if isinstance(type_, IntType):
        return type_.bits
    if isinstance(type_, StructType) and type_.is_packed:
        return type_.bits
    if isinstance(type_, EnumType):
        return type_.tag.bits
    if isinstance(type_, ArrayType):
        return type_.count * bits_of(type_.element)
    return 1 if type_ == BOOL else 8 * type_.size


def is_number(type_: Type) -> bool:
    """Whether arithmetic is defined on it."""
    return isinstance(type_, IntType | FloatType) or type_ in (COMPTIME_INT, COMPTIME_FLOAT)


def is_int(type_: Type) -> bool:
    """`iN`, `uN` or `comptime_int`."""
    return isinstance(type_, IntType) or type_ == COMPTIME_INT


def is_float(type_: Type) -> bool:
    """`f16`, `f32`, ... or `comptime_float`."""
    return isinstance(type_, FloatType) or type_ == COMPTIME_FLOAT
