import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.numbers import f16, f32
from cstool.csl.language import arithmetic, conversions, types, values
from cstool.csl.language.source import CslError
from cstool.csl.language.types import ArrayType, EnumType, FunctionType, IntType, PointerType, StructType
from tests.examples import examples

INTS = [types.named_type(f"{sign}{bits}") for sign in "iu" for bits in (1, 3, 8, 16, 32, 64)]
POINT = StructType("Point", "struct", (("a", types.U8), ("b", types.U32), ("c", types.F16)))
PACKED = StructType("Packed", "packed struct", (("a", IntType(3, False)), ("b", IntType(5, True)), ("c", types.U8)))
UNION = StructType("Union", "union", (("word", types.U32), ("half", types.I16)))


@pytest.mark.parametrize(
    ("type_", "text", "size", "align", "letter"),
    [
        (types.I16, "i16", 2, 2, "h"),
        (types.U32, "u32", 4, 4, "w"),
        (IntType(3, False), "u3", 1, 1, "B"),
        (IntType(17, True), "i17", 4, 4, "i"),
        (types.U64, "u64", 8, 4, "Q"),
        (types.F16, "f16", 2, 2, "e"),
        (types.F32, "f32", 4, 4, "f"),
        (types.BOOL, "bool", 1, 1, "B"),
        (types.COLOR, "color", 2, 2, "H"),
        (types.MEM1D, "mem1d_dsd", 8, 4, None),
        (types.COMPTIME_INT, "comptime_int", 0, 1, None),
        (ArrayType((2, 3), types.F32), "[2, 3]f32", 24, 4, None),
        (PointerType(types.F32, True, True), "[*]const f32", 2, 2, "H"),
        (PointerType(ArrayType((4,), types.U8)), "*[4]u8", 2, 2, "H"),
        (FunctionType((types.U16, None), types.VOID), "fn(u16, anytype)void", 2, 2, None),
        (EnumType("Mode", types.U16, (("A", 0),)), "Mode", 2, 2, "H"),
        (POINT, "Point", 12, 4, None),
        (PACKED, "Packed", 2, 2, None),
        (UNION, "Union", 4, 4, None),
    ],
)
def test_types(type_: types.Type, text: str, size: int, align: int, letter: str | None) -> None:
    assert (str(type_), type_.size, type_.align, type_.letter) == (text, size, align, letter)


def test_offsets_of_fields() -> None:
    assert [POINT.offset(name) for name in "abc"] == [0, 4, 8]
    assert [PACKED.offset(name) for name in "abc"] == [0, 3, 8]
    assert [UNION.offset(name) for name in ("word", "half")] == [0, 0]
    assert types.bits_of(PACKED) == 16


@pytest.mark.parametrize("name", ["i0x", "u", "i-1", "u016", "u99999999", "x16", "int"])
def test_names_that_are_no_types(name: str) -> None:
    assert types.named_type(name) is None


@examples(150)
@given(st.sampled_from(INTS), st.data())
def test_integers_survive_sram(type_: IntType, data: st.DataObject) -> None:
    value = data.draw(st.integers(type_.least, type_.most))
    raw = values.to_bytes(type_, value)
    assert len(raw) == type_.size
    assert values.from_bytes(type_, raw) == value


@examples(100)
@given(st.floats(width=16), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_structs_survive_sram(half: float, byte: int, word: int) -> None:
    data = {"a": (types.U8, byte), "b": (types.U32, word), "c": (types.F16, half)}
    raw = values.to_bytes(POINT, data)
    assert raw == struct.pack("<BxxxIexx", byte, word, half)
    back = values.from_bytes(POINT, raw)
    assert values.key_of((POINT, back)) == values.key_of((POINT, data)) or half != half


@examples(100)
@given(st.integers(0, 7), st.integers(-16, 15), st.integers(0, 255))
def test_packed_structs_survive_sram(a: int, b: int, c: int) -> None:
    data = {"a": (IntType(3, False), a), "b": (IntType(5, True), b), "c": (types.U8, c)}
    raw = values.to_bytes(PACKED, data)
    assert int.from_bytes(raw, "little") == a | (b & 31) << 3 | c << 8
    assert values.from_bytes(PACKED, raw) == data


def test_arrays_in_sram() -> None:
    array = ArrayType((2, 2), types.F16)
    raw = values.to_bytes(array, (1.0, 2.0, -0.5, 0.0))
    assert raw == struct.pack("<4e", 1, 2, -0.5, 0)
    assert values.from_bytes(array, raw) == (1.0, 2.0, -0.5, 0.0)
    assert values.to_bytes(types.BF16, 1.0) == b"\x80\x3f"
    assert values.from_bytes(types.BF16, b"\x80\x3f") == 1.0


@examples(200)
@given(st.sampled_from(["+", "-", "*", "/", "%", "&", "|", "^"]), st.integers(-(2**15), 2**15 - 1), st.data())
def test_integers_overflow_or_are_exact(operator: str, left: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(-(2**15), 2**15 - 1))
    exact = arithmetic.binary if operator in "&|^" else None
    if operator in "/%":
        if right == 0:
            with pytest.raises(CslError, match="a divisor is not zero"):
                arithmetic.binary(operator, (types.I16, left), (types.I16, right), None)
            return
        quotient = int(left / right)  # exact enough: both have 16 bits
        expected = quotient if operator == "/" else left - quotient * right
    elif exact is None:
        expected = {"+": left + right, "-": left - right, "*": left * right}[operator]
    else:
        expected = {"&": left & right, "|": left | right, "^": left ^ right}[operator]
    if types.I16.least <= expected <= types.I16.most:
        assert arithmetic.binary(operator, (types.I16, left), (types.I16, right), None) == (types.I16, expected)
    else:
        with pytest.raises(CslError, match="must fit i16"):
            arithmetic.binary(operator, (types.I16, left), (types.I16, right), None)


@examples(100)
@given(st.sampled_from(["+%", "-%", "*%"]), st.integers(0, 255), st.integers(0, 255))
def test_operators_that_wrap(operator: str, left: int, right: int) -> None:
    expected = {"+": left + right, "-": left - right, "*": left * right}[operator[0]] % 256
    assert arithmetic.binary(operator, (types.U8, left), (types.U8, right), None) == (types.U8, expected)


@examples(150)
@given(st.sampled_from(["+", "-", "*"]), st.floats(width=16, allow_nan=False), st.floats(width=16, allow_nan=False))
def test_floats_are_rounded_to_their_type(operator: str, left: float, right: float) -> None:
    exact = {"+": left + right, "-": left - right, "*": left * right}[operator]
    for type_, rounded in ((types.F16, f16), (types.F32, f32)):
        got = arithmetic.binary(operator, (type_, left), (type_, right), None)[1]
        assert got == rounded(exact) or (got != got and exact != exact)


@examples(150)
@given(st.sampled_from(INTS), st.sampled_from(INTS), st.data())
def test_as_drops_bits_and_bitcast_keeps_them(source: IntType, target: IntType, data: st.DataObject) -> None:
    value = data.draw(st.integers(source.least, source.most))
    got = conversions.cast((source, value), target, None)[1]
    assert target.least <= got <= target.most
    assert (got - value) % (1 << target.bits) == 0
    if source.bits == target.bits:
        assert conversions.bitcast((source, value), target, None) == (target, got)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (types.I16, types.I32, True),
        (types.U8, types.I16, True),
        (types.U16, types.I16, False),
        (types.I16, types.U32, False),
        (types.F16, types.F32, True),
        (types.F32, types.F16, False),
        (types.I16, types.F32, False),
        (types.COMPTIME_FLOAT, types.F16, True),
        (types.COMPTIME_FLOAT, types.I16, False),
        (PointerType(ArrayType((4,), types.F32)), PointerType(types.F32, many=True), True),
        (PointerType(ArrayType((4,), types.F32)), PointerType(types.U32, many=True), False),
        (PointerType(types.F32, const=True), PointerType(types.F32), False),
        (PointerType(types.F32), PointerType(types.F32, const=True), True),
        (POINT, types.STRUCT, True),
        (types.COLOR, types.U16, False),
    ],
)
def test_what_becomes_what_unasked(source: types.Type, target: types.Type, expected: bool) -> None:
    assert conversions.coerces(source, target) is expected


def test_types_of_operations() -> None:
    assert arithmetic.operation("<", types.I16, types.I32, None).result == types.BOOL
    assert arithmetic.operation("+", types.I16, types.I32, None) == (types.I32, types.I32, types.I32)
    assert arithmetic.operation("<<", types.U32, types.U16, None) == (types.U32, types.U16, types.U32)
    assert arithmetic.operation("*", types.F32, types.COMPTIME_INT, None).result == types.F32
    with pytest.raises(CslError) as error:
        arithmetic.operation("+", types.U16, types.I16, None)
    assert str(error.value) == "no operator '+' on u16 and i16\nhint: convert one side: @as(u16, ...)"


def test_keys_tell_values_apart() -> None:
    def key(value: object) -> object:
        return values.key_of((types.STRUCT, {"x": value}))

    different = [(types.F32, 0.0), (types.F32, -0.0), (types.I16, 0), (types.U16, 0), (types.BOOL, False)]
    assert len({key(value) for value in different}) == len(different)
    assert key((types.F32, 1.5)) == key((types.F32, 1.5))
