from typing import Any

import pytest

from cstool.csl.language import evaluate, types
from cstool.csl.language.evaluate import RunTime, Scope
from cstool.csl.language.module import Module
from cstool.csl.language.parse import parse
from cstool.csl.language.source import CslError, Place, Source
from cstool.csl.language.syntax import Function
from cstool.csl.language.types import Type
from cstool.csl.language.values import FunctionValue, Value
from tests.unit.csl.language.comptime_cases import module_of, said

FUNCTIONS = """
const n = 4;
fn plain(a: i16, b: f32) f32 { return b; }
fn typed(comptime T: type, a: T) T { return a; }
fn any(x: anytype, y: anytype) @type_of(x) { return x; }
fn counted(comptime count: u16, a: *[count]f32) void {}
fn makes(a: i16) comptime_struct { return .{ .a = a }; }
fn struct_in(options: comptime_struct, a: i16) void {}
"""


def _specialise(name: str, *arguments: Value | Type) -> evaluate.Specialised:
    module = module_of(FUNCTIONS)
    function = module.lookup(name, None).value[1]  # type: ignore[union-attr]
    return evaluate.specialise(function, arguments, Place(Source("call.csl", "f()"), 0, 3))


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
    module = module_of(FUNCTIONS)
    function = module.lookup("typed", None).value[1]  # type: ignore[union-attr]

    def key(type_: Type) -> object:
        return evaluate.specialise(function, [(types.TYPE, type_), type_], None).key

    assert key(types.F16) == key(types.F16)
    assert len({key(types.F16), key(types.F32)}) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("plain", [types.I16], "'plain' takes 2 arguments, got 1 | declared here"),
        (
            "plain",
            [types.I32, types.F32],
            "parameter 'a' of 'plain' must be i16, got a value of i32 (convert it: @as(i16, ...))",
        ),
        ("plain", [types.I16, (types.BOOL, True)], "parameter 'b' of 'plain' must be f32, got bool true"),
        (
            "counted",
            [types.U16, types.I16],
            "parameter 'count' of 'counted' must be known at compile time, got a value of run time (u16)",
        ),
    ],
)
def test_refused(name: str, arguments: list[Value | Type], message: str) -> None:
    with pytest.raises(CslError) as error:
        _specialise(name, *arguments)
    assert said(error.value) == message


def _scope() -> tuple[Scope, dict[str, Function]]:
    text = (
        "fn f() void { var k: u16 = 1; const m = k; { k += 2; } const bad = v; for (@range(u16, 3)) |i| { k += i; } }"
    )
    module: Module = module_of("var v: i16 = 1;")
    file = parse(Source("body.csl", text))
    function = file.declarations[0]
    assert isinstance(function, Function)
    assert function.body is not None
    return Scope(module), {str(at): each for at, each in enumerate(function.body.statements)}  # type: ignore[misc]


def test_comptime_variables_of_a_function() -> None:
    scope, statements = _scope()
    inner = Scope(scope.module, scope)
    evaluate.execute(statements["0"], scope)
    evaluate.execute(statements["1"], scope)
    evaluate.execute(statements["2"], inner)
    assert scope.find("k") == (types.U16, 3)
    assert scope.find("m") == (types.U16, 1)
    evaluate.execute(statements["4"], inner)
    assert inner.find("k") == (types.U16, 6)
    with pytest.raises(evaluate.NotKnown, match="'v' must be known at compile time"):
        evaluate.execute(statements["3"], scope)


def test_function_types() -> None:
    module = module_of(FUNCTIONS)

    def type_of(name: str) -> str:
        value = module.lookup(name, None).value[1]  # type: ignore[union-attr]
        assert isinstance(value, FunctionValue)
        return str(evaluate.function_type(value))

    assert type_of("plain") == "fn(i16, f32)f32"
    assert type_of("typed") == "fn(anytype, anytype)anytype"
    assert type_of("struct_in") == "fn(anytype, i16)void"
