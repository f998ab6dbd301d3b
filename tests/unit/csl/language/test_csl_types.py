import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.numbers import f16, f32
from cstool.csl.language import arithmetic, conversions, types, values
from cstool.csl.language.source import CslError
from cstool.csl.language.types import ArrayType, IntType
from tests.examples import examples
from tests.unit.csl.language.comptime_cases import value
from tests.unit.csl.language.shown import columns, lines

INTS = [types.named_type(f"{sign}{bits}") for sign in "iu" for bits in (1, 3, 8, 16, 32, 64)]
DECLARED = """
const Point = struct { a: u8, b: u32, c: f16 };
const Packed = packed struct { a: u3, b: i5, c: u8 };
const Union = union { word: u32, half: i16 };
const Mode = enum(u16) { A };
"""
POINT, PACKED, UNION = (value(name, DECLARED) for name in ("Point", "Packed", "Union"))
TYPES = """
i16 ==> 2 2 h    u32 ==> 4 4 w    u3 ==> 1 1 B    i17 ==> 4 4 i    u64 ==> 8 4 Q    f16 ==> 2 2 e    f32 ==> 4 4 f
bool ==> 1 1 B    color ==> 2 2 H    mem1d_dsd ==> 8 4 -    comptime_int ==> 0 1 -    [2, 3]f32 ==> 24 4 -
[*]const f32 ==> 2 2 H    *[4]u8 ==> 2 2 H    fn(u16, anytype)void ==> 2 2 -    Mode ==> 2 2 H    Point ==> 12 4 -
Packed ==> 2 2 -    Union ==> 4 4 -
"""
"""by name: size, alignment, and the letter of an element in memory"""


@pytest.mark.parametrize(("text", "expected"), columns(TYPES))
def test_types(text: str, expected: str) -> None:
    found = value(text, DECLARED)
    assert (str(found), f"{found.size} {found.align} {found.letter or '-'}") == (text, expected)


def test_offsets_of_fields() -> None:
    assert [POINT.offset(name) for name in "abc"] == [0, 4, 8]
    assert [PACKED.offset(name) for name in "abc"] == [0, 3, 8]
    assert [UNION.offset(name) for name in ("word", "half")] == [0, 0]
    assert types.bits_of(PACKED) == 16


@pytest.mark.parametrize("name", ["i0x", "u", "i-1", "u016", "u99999999", "x16", "int"])
def test_names_that_are_no_types(name: str) -> None:
    assert types.named_type(name) is None


@examples(75)
@given(st.sampled_from(INTS), st.data())
def test_integers_survive_sram(type_: IntType, data: st.DataObject) -> None:
    value = data.draw(st.integers(type_.least, type_.most))
    raw = values.to_bytes(type_, value)
    assert len(raw) == type_.size
    assert values.from_bytes(type_, raw) == value


@examples(60)
@given(st.floats(width=16), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_structs_survive_sram(half: float, byte: int, word: int) -> None:
    data = {"a": (types.U8, byte), "b": (types.U32, word), "c": (types.F16, half)}
    raw = values.to_bytes(POINT, data)
    assert raw == struct.pack("<BxxxIexx", byte, word, half)
    back = values.from_bytes(POINT, raw)
    assert values.key_of((POINT, back)) == values.key_of((POINT, data)) or half != half


@examples(60)
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


def plain(operator: str, left: Any, right: Any) -> Any:
    """Python's sum, difference or product."""
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


@examples(120)
@given(st.sampled_from(["+", "-", "*", "/", "%", "&", "|", "^"]), st.integers(-(2**15), 2**15 - 1), st.data())
def test_integers_overflow_or_are_exact(operator: str, left: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(-(2**15), 2**15 - 1))
    operands = (types.I16, left), (types.I16, right)
    if operator in "/%" and right == 0:
        with pytest.raises(CslError, match="a divisor is not zero"):
            arithmetic.binary(operator, *operands, None)
        return
    quotient = int(left / (right or 1))  # exact enough: both have 16 bits
    exact = {"/": quotient, "%": left - quotient * right, "&": left & right, "|": left | right, "^": left ^ right}
    expected = exact[operator] if operator in exact else plain(operator, left, right)
    if types.I16.least <= expected <= types.I16.most:
        assert arithmetic.binary(operator, *operands, None) == (types.I16, expected)
    else:
        with pytest.raises(CslError, match="must fit i16"):
            arithmetic.binary(operator, *operands, None)


@examples(60)
@given(st.sampled_from(["+%", "-%", "*%"]), st.integers(0, 255), st.integers(0, 255))
def test_operators_that_wrap(operator: str, left: int, right: int) -> None:
    found = arithmetic.binary(operator, (types.U8, left), (types.U8, right), None)
    assert found == (types.U8, plain(operator[0], left, right) % 256)


@examples(75)
@given(st.sampled_from(["+", "-", "*"]), st.floats(width=16, allow_nan=False), st.floats(width=16, allow_nan=False))
def test_floats_are_rounded_to_their_type(operator: str, left: float, right: float) -> None:
    exact = plain(operator, left, right)
    for type_, rounded in ((types.F16, f16), (types.F32, f32)):
        got = arithmetic.binary(operator, (type_, left), (type_, right), None)[1]
        assert got == rounded(exact) or (got != got and exact != exact)


@examples(75)
@given(st.sampled_from(INTS), st.sampled_from(INTS), st.data())
def test_as_drops_bits_and_bitcast_keeps_them(source: IntType, target: IntType, data: st.DataObject) -> None:
    value = data.draw(st.integers(source.least, source.most))
    got = conversions.cast((source, value), target, None)[1]
    assert target.least <= got <= target.most
    assert (got - value) % (1 << target.bits) == 0
    if source.bits == target.bits:
        assert conversions.bitcast((source, value), target, None) == (target, got)


BECOMES = """
i16 -> i32    u8 -> i16    f16 -> f32    comptime_float -> f16    *[4]f32 -> [*]f32    *f32 -> *const f32
Point -> comptime_struct
"""
BECOMES_NOT = """
u16 -> i16    i16 -> u32    f32 -> f16    i16 -> f32    comptime_float -> i16    *[4]f32 -> [*]u32    *const f32 -> *f32
color -> u16
"""


@pytest.mark.parametrize("case", [*lines(BECOMES), *lines(BECOMES_NOT)])
def test_what_becomes_what_unasked(case: str) -> None:
    source, target = (value(each, DECLARED) for each in case.split(" -> "))
    assert conversions.coerces(source, target) is (case in lines(BECOMES))


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
