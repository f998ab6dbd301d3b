"""Scalar expressions as Python, against twins: Python's integers that wrap after every operation, NumPy's floats."""

import math
import struct
from operator import add, and_, mul, or_, sub, xor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.csl.language.emit_cases import Failed, Program

INTEGERS = [f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64, 5)]
FLOATS = {"f32": np.float32, "f16": np.float16}


def wrap(name: str, value: int) -> int:
    bits = int(name[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if name[0] == "i" and value >> (bits - 1) else value


def bounds(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "i" else (0, (1 << bits) - 1)


Tree = Any
LEAF = st.one_of(st.sampled_from("abc"), st.integers(0, 15))


def trees(operators: list[str]) -> st.SearchStrategy[Tree]:
    return st.recursive(
        LEAF,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(operators), inner, inner), st.tuples(st.sampled_from(["-", "~"]), inner)
        ),
        max_leaves=10,
    )


def text(name: str, tree: Tree) -> str:
    if isinstance(tree, tuple):
        inner = [text(name, each) for each in tree[1:]]
        if len(inner) == 1:
            return f"({tree[0]}{inner[0]})"
        return f"({inner[0]} {tree[0]} {inner[1]})"
    return tree if isinstance(tree, str) else f"(b ^ b | {tree})"  # no constant, that would be folded


def value(name: str, tree: Tree, given_: dict[str, int]) -> int:
    if isinstance(tree, str):
        return given_[tree]
    if isinstance(tree, int):
        return tree
    sides = [value(name, each, given_) for each in tree[1:]]
    if len(sides) == 1:
        return wrap(name, -sides[0] if tree[0] == "-" else ~sides[0])
    left, right = sides
    operator = tree[0]
    if operator in "/%":
        if right == 0:
            raise ZeroDivisionError
        quotient = abs(left) // abs(right)
        quotient = quotient if (left < 0) == (right < 0) else -quotient
        return wrap(name, quotient if operator == "/" else left - quotient * right)
    return wrap(name, {"+": add, "-": sub, "*": mul, "&": and_, "|": or_, "^": xor}[operator](left, right))


@examples(120)
@given(st.sampled_from(INTEGERS), trees([*"+-*/%&|^"]), st.data())
def test_integers_wrap_after_every_operation(name: str, tree: Tree, data: st.DataObject) -> None:
    program = Program(f"export fn f(a: {name}, b: {name}, c: {name}) {name} {{ return {text(name, tree)}; }}")
    low, high = bounds(name)
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, max(low, -1), 1]))
    for _ in range(4):
        given_ = {letter: data.draw(number) for letter in "abc"}
        try:
            expected = value(name, tree, given_)
        except ZeroDivisionError:
            with pytest.raises(Failed, match="a divisor is not zero, got"):
                program.run("f", *given_.values())
        else:
            assert program.run("f", *given_.values()) == expected


@examples(40)
@given(st.sampled_from(INTEGERS), st.sampled_from(["<<", ">>"]), st.data())
def test_shifts(name: str, operator: str, data: st.DataObject) -> None:
    program = Program(f"export fn f(a: {name}, n: u8) {name} {{ return (a {operator} n) + 0; }}")
    a = data.draw(st.integers(*bounds(name)))
    n = data.draw(st.integers(0, 70))
    assert program.run("f", a, n) == wrap(name, a << n if operator == "<<" else a >> n)


def same(left: float, right: float) -> bool:
    return struct.pack("<d", left) == struct.pack("<d", right) or (math.isnan(left) and math.isnan(right))


@examples(60)
@given(
    st.sampled_from(["f32", "f16"]),
    st.recursive(
        st.sampled_from("abc"),
        lambda inner: st.one_of(st.tuples(st.sampled_from("+-*/"), inner, inner), st.tuples(st.just("-"), inner)),
        max_leaves=8,
    ),
    st.data(),
)
def test_floats_round_after_every_operation(name: str, tree: Tree, data: st.DataObject) -> None:
    program = Program(
        f"var kept: {name};\n"
        f"export fn f(a: {name}, b: {name}, c: {name}) {name} {{ return {text(name, tree)}; }}\n"
        f"export fn keep(a: {name}, b: {name}, c: {name}) void {{ kept = {text(name, tree)}; }}\n"
        f"export fn get() {name} {{ return kept; }}\n"
    )
    kind = FLOATS[name]
    number = st.floats(width=32 if name == "f32" else 16, allow_subnormal=True)

    def twin(part: Tree) -> Any:
        if isinstance(part, str):
            return given_[part]
        sides = [twin(each) for each in part[1:]]
        if len(sides) == 1:
            return -sides[0]
        return {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[part[0]](*sides, dtype=kind)

    for _ in range(4):
        given_ = {letter: kind(data.draw(number)) for letter in "abc"}
        with np.errstate(all="ignore"):
            expected = float(twin(tree))
        arguments = [float(each) for each in given_.values()]
        assert same(program.run("f", *arguments), expected)
        program.run("keep", *arguments)
        assert same(program.run("get"), expected)


@examples(60)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_as_between_integers_drops_bits(source: str, target: str, data: st.DataObject) -> None:
    program = Program(f"export fn f(a: {source}) {target} {{ return @as({target}, a); }}")
    a = data.draw(st.integers(*bounds(source)))
    assert program.run("f", a) == wrap(target, a)


@examples(40)
@given(st.sampled_from(INTEGERS), st.sampled_from(["f16", "f32"]), st.data())
def test_as_between_integers_and_floats(integer: str, name: str, data: st.DataObject) -> None:
    program = Program(
        f"export fn to(a: {integer}) {name} {{ return @as({name}, a); }}\n"
        f"export fn back(x: {name}) {integer} {{ return @as({integer}, x); }}\n"
    )
    low, high = bounds(integer)
    a = data.draw(st.integers(low, high))
    with np.errstate(over="ignore"):
        rounded = float(FLOATS[name](np.float64(a))) if abs(a) < 1 << 53 else float(FLOATS[name](a))
    assert program.run("to", a) == rounded
    x = float(FLOATS[name](data.draw(st.floats(max(low, -2000), min(high, 2000)))))
    if low <= math.trunc(x) <= high:
        assert program.run("back", x) == math.trunc(x)


@pytest.mark.parametrize(
    ("type_", "float_type", "bits", "number"),
    [
        ("u32", "f32", 0x3FC00000, 1.5),
        ("i32", "f32", -1, math.nan),
        ("i32", "f32", -(1 << 31), -0.0),
        ("u16", "f16", 0xBC00, -1.0),
        ("i16", "f16", -0x4400, -1.0),
        ("u16", "i16", 0xFFFF, -1),
    ],
)
def test_bitcast_keeps_the_bits(type_: str, float_type: str, bits: int, number: float) -> None:
    program = Program(
        f"export fn to(a: {type_}) {float_type} {{ return @bitcast({float_type}, a); }}\n"
        f"export fn back(x: {float_type}) {type_} {{ return @bitcast({type_}, x); }}\n"
    )
    assert same(program.run("to", bits), number)
    if not math.isnan(number):
        assert program.run("back", number) == bits


@examples(30)
@given(st.data())
def test_what_wraps_in_its_own_type_has_wrapped_before_it_is_widened(data: st.DataObject) -> None:
    program = Program(
        "export fn f(a: i16, b: i16) i32 { const c = a * b; const d: i32 = a + b;"
        " return @as(i32, a - b) * 3 + d + c; }\n"
        "export fn g(a: u8, b: u8) i16 { const k: i16 = a + b; return k - @as(i16, a * b); }\n"
    )
    a, b = data.draw(st.integers(*bounds("i16"))), data.draw(st.integers(*bounds("i16")))
    assert program.run("f", a, b) == wrap("i16", a - b) * 3 + wrap("i16", a + b) + wrap("i16", a * b)
    a, b = data.draw(st.integers(0, 255)), data.draw(st.integers(0, 255))
    assert program.run("g", a, b) == wrap("u8", a + b) - wrap("u8", a * b)
