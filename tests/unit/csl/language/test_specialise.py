from typing import Any

import pytest

from cstool.csl.language import evaluate, types
from cstool.csl.language.evaluate import RunTime, Scope
from cstool.csl.language.source import CslError, Place, Source
from cstool.csl.language.types import Type
from cstool.csl.language.values import FunctionValue, Value
from tests.unit.csl.language.comptime_cases import functions, module_of, said

FUNCTIONS = """
const n = 4;
fn plain(a: i16, b: f32) f32 { return b; }
fn typed(comptime T: type, a: T) T { return a; }
fn any(x: anytype, y: anytype) @type_of(x) { return x; }
fn counted(comptime count: u16, a: *[count]f32) void {}
fn makes(a: i16) comptime_struct { return .{ .a = a }; }
fn struct_in(options: comptime_struct, a: i16) void {}
"""


def _function(name: str) -> FunctionValue:
    return module_of(FUNCTIONS).lookup(name, None).value[1]  # type: ignore[union-attr, return-value]


def _specialise(name: str, *arguments: Value | Type) -> evaluate.Specialised:
    return evaluate.specialise(_function(name), arguments, Place(Source("call.csl", "f()"), 0, 3))


OPTIONS = (types.STRUCT, {"a": (types.I16, 1)})
THREE = types.PointerType(types.ArrayType((3,), types.F32))


@pytest.mark.parametrize(
    ("name", "arguments", "parameters", "bound"),
    [
        ("plain", (types.I16, (types.COMPTIME_INT, 2)), ((0, "a", types.I16), (1, "b", types.F32)), {}),
        ("typed", ((types.TYPE, types.F16), types.F16), ((1, "a", types.F16),), {"T": (types.TYPE, types.F16)}),
        # What exists at compile time alone is bound.
        ("any", (types.F32, (types.VOID, None)), ((0, "x", types.F32),), {"y": (types.VOID, None)}),
        (
            "any",
            ((types.I16, 5), (types.COMPTIME_INT, 5)),
            ((0, "x", types.I16),),
            {"x": RunTime(types.I16), "y": (types.COMPTIME_INT, 5)},
        ),
        # Later parameters see earlier ones.
        ("counted", ((types.COMPTIME_INT, 3), THREE), ((1, "a", THREE),), {}),
        ("struct_in", (OPTIONS, types.I16), ((1, "a", types.I16),), {"options": OPTIONS}),
    ],
)
def test_parameters(name: str, arguments: Any, parameters: Any, bound: dict[str, object]) -> None:
    copy = _specialise(name, *arguments)
    assert copy.parameters == parameters
    assert {each: copy.scope.find(each) for each in bound} == bound


def test_results() -> None:
    copy = _specialise("plain", types.I16, types.F32)
    assert (copy.result, copy.comptime_result) == (types.F32, False)
    assert _specialise("typed", (types.TYPE, types.F16), types.F16).result == types.F16
    assert _specialise("makes", (types.I16, 3)).comptime_result


def test_keys() -> None:
    function = _function("typed")
    types_ = (types.F16, types.F16, types.F32)
    same, again, other = (evaluate.specialise(function, [(types.TYPE, each), each], None).key for each in types_)
    assert same == again != other


I16, I32, F32, TRUE = types.I16, types.I32, types.F32, (types.BOOL, True)
NOT_I16 = "parameter 'a' of 'plain' must be i16, got a value of i32 (convert it: @as(i16, ...))"
RUN_TIME = "parameter 'count' of 'counted' must be known at compile time, got a value of run time (u16)"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("plain", [I16], "'plain' takes 2 arguments, got 1 | declared here"),
        ("plain", [I32, F32], NOT_I16),
        ("plain", [I16, TRUE], "parameter 'b' of 'plain' must be f32, got bool true"),
        ("counted", [types.U16, I16], RUN_TIME),
    ],
)
def test_refused(name: str, arguments: list[Value | Type], message: str) -> None:
    with pytest.raises(CslError) as error:
        _specialise(name, *arguments)
    assert said(error.value) == message


def test_comptime_variables_of_a_function() -> None:
    text = "var k: u16 = 1; const m = k; { k += 2; } const bad = v; for (@range(u16, 3)) |i| { k += i; }"
    scope = Scope(module_of("var v: i16 = 1;"))
    inner = Scope(scope.module, scope)
    declare, copy, block, bad, loop = functions(f"fn f() void {{ {text} }}")["f"].body.statements
    for statement, where in ((declare, scope), (copy, scope), (block, inner)):
        evaluate.execute(statement, where)
    assert (scope.find("k"), scope.find("m")) == ((types.U16, 3), (types.U16, 1))
    evaluate.execute(loop, inner)
    assert inner.find("k") == (types.U16, 6)
    with pytest.raises(evaluate.NotKnown, match="'v' must be known at compile time"):
        evaluate.execute(bad, scope)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("plain", "fn(i16, f32)f32"), ("typed", "fn(anytype, anytype)anytype"), ("struct_in", "fn(anytype, i16)void")],
)
def test_function_types(name: str, expected: str) -> None:
    assert str(evaluate.function_type(_function(name))) == expected
