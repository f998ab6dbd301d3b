import json
import math
from pathlib import Path

import pytest

from cstool.csl.language import types
from cstool.csl.language.types import ArrayType
from tests.unit.csl.language.comptime_cases import bad, constant, layout_of, module_of, told, value
from tests.unit.csl.language.shown import cases, columns

VALUES = """
@as(i16, 11.2) ==> i16 11    @as(i16, -10.8) ==> i16 -10    @as(bool, 0) ==> false    @as(bool, -5) ==> true
@as(u8, 300) ==> u8 44    @as(i8, 200) ==> i8 -56    @as(f32, 16777217) ==> f32 16777216.0
@as(f16, -65520) ==> f16 -inf    @as(f16, 1e9) ==> f16 inf    @as(u16, true) ==> u16 1
@bitcast(u32, @as(f32, 1.0)) ==> u32 1065353216    @bitcast(f16, @as(u16, 0x3C00)) ==> f16 1.0
@bitcast(i16, @as(u16, 65535)) ==> i16 -1    @bitcast(u16, @as(i16, -2)) ==> u16 65534
@bitcast(u16, -1) ==> u16 65535    @zeros([2, 2]f32) ==> [2, 2]f32{ 0.0, 0.0, 0.0, 0.0 }
@constants([3]f32, 2) ==> [3]f32{ 2.0, 2.0, 2.0 }    @element_count([2, 3]f32) ==> 6    @element_type([2, 3]f32) ==> f32
@rank([2, 3]f32) ==> 2    @dimensions([2, 3]f32) ==> [2]u16{ 2, 3 }
@is_same_type(@type_of(@as(i16, 1)), i16) ==> true    @is_same_type(@type_of(1), i16) ==> false
@has_field(.{ .a = 1 }, "a") ==> true    @has_field(.{ .a = 1 }, "b") ==> false
@field(.{ .a = 1 }, @strcat("a", "")) ==> 1    @concat_structs(.{ .a = 1 }, .{ .b = 2 }).b ==> 2
@concat_structs(.{ 1, 2 }, .{ 3 })[2] ==> 3    @strlen(@strcat("ab", "c", "de")) ==> 5
@get_array("AB") ==> [2]u8{ 65, 66 }    @is_arch("wse3") ==> true    @is_arch("wse2") ==> false
@get_color(23) ==> color 23    @get_int(@get_color(7)) ==> u16 7    @get_input_queue(7) ==> input_queue 7
@get_output_queue(7) ==> output_queue 7    @get_local_task_id(30) ==> local_task_id 30
@get_control_task_id(63) ==> control_task_id 63    @get_data_task_id(@get_input_queue(4)) ==> data_task_id 4
@get_ut_id(7) ==> ut_id 7    @get_dsr(dsr_src1, 15) ==> dsr_src1 Dsr(file='src1', number=15)    @fp16() ==> f16
@is_comptime() ==> true    RAMP ==> direction 0    SOUTH ==> direction 4
"""


@pytest.mark.parametrize(("expression", "expected"), columns(VALUES))
def test_values(expression: str, expected: str) -> None:
    assert told(expression) == expected


REFUSED = r"""
@zerso([2]i16) ==> unknown builtin @zerso (did you mean @zeros?)
@frobnicate() ==> unknown builtin @frobnicate
@__pe_x() ==> unknown builtin @__pe_x
@bind_rotating_tasks(1)
  @bind_rotating_tasks is not supported: tasks that take turns are not simulated; count in the task itself
@zeros() ==> @zeros takes 1 argument, got 0
@range(i16) ==> @range takes 2 to 4 arguments, got 1
@zeros(i16) ==> @zeros takes an array type, got i16
@constants([2]i16, 1.5) ==> the element must be i16, got comptime_float 1.5 (convert it: @as(i16, ...))
@range(f32, 3) ==> @range counts in an integer type, got f32
@range(i16, 0, 5, 0) ==> the step of @range is not 0
@as(i16, @get_color(1))
  @as converts numbers, bool, and between integers and enums, got color to i16 (the number behind it: @get_int(...))
@as(i16, @as(f32, 1.0) / 0.0) ==> @as to an integer needs a finite number, got inf
@bitcast(u16, @as(f32, 1.0)) ==> @bitcast keeps the number of bits, got f32 (32) to u16 (16)
@bitcast(color, 1) ==> @bitcast is for numbers, bool, packed structs and pointers, got color
@ptrcast([*]f32, 5) ==> @ptrcast converts pointers, got comptime_int to [*]f32
@concat_structs(.{ .a = 1 }, .{ .a = 2 }) ==> @concat_structs takes different fields, got 'a' twice
@has_field(5, "a") ==> @has_field takes a struct, got comptime_int 5
@element_count(5) ==> @element_count takes an array or its type, got comptime_int
@is_arch("wse4") ==> @is_arch takes "wse2" or "wse3", got "wse4"
@get_color(24) ==> a color is 0 to 23, got 24
@get_color(1.0) ==> @get_color takes an integer, got comptime_float 1.0
@get_input_queue(8) ==> an input queue of wse3 is 0 to 7, got 8
wse2: @get_output_queue(6) ==> an output queue of wse2 is 0 to 5, got 6
@get_local_task_id(7) ==> a local task id of wse3 is 8 to 30, got 7
wse2: @get_local_task_id(31) ==> a local task id of wse2 is 0 to 30, got 31
@get_data_task_id(@get_color(4))
  a data task id of wse3 is made of an input_queue (it differs by generation: if (@is_arch("wse3")) ... ; got color)
wse2: @get_data_task_id(@get_input_queue(4))
  a data task id of wse2 is made of a color (it differs by generation: if (@is_arch("wse3")) ... ; got input_queue)
wse2: @get_ut_id(1) ==> @get_ut_id exists on wse3 alone, this is compiled for wse2
@get_dsr(dsr_dest, 16) ==> a dsr_dest of wse3 is 0 to 15, got 16
@get_dsr(color, 1) ==> @get_dsr takes dsr_dest, dsr_src0 or dsr_src1, got color
@get_int(5) ==> @get_int takes a color, task id or queue, got comptime_int 5
@comptime_assert(1 == 2) ==> @comptime_assert failed
@comptime_assert(1 == 2, "too small") ==> @comptime_assert failed: too small
@comptime_assert(1) ==> @comptime_assert takes a bool, got comptime_int 1
@set_rectangle(1, 1) ==> @set_rectangle stands in a layout block alone
@bind_local_task(1, 2) ==> @bind_local_task stands in a comptime block alone
@fadds(1, 2, 3) ==> @fadds happens at run time: it has no value at compile time
@get_rectangle() ==> @get_rectangle needs a rectangle: @set_rectangle comes first
@import_module("<message_passing>")
  unknown library <message_passing> (messages from any PE to any other are not simulated:
  give each path a color and its routes)
@import_module("<kernels/fft/fft3d>")
  unknown library <kernels/fft/fft3d> (import a transform of your own: what this one offers is not public)
@import_module("<maths>") ==> unknown library <maths> (did you mean <math>?)
@import_module("<math") ==> a library is <name>, a file has no < or >, got <math
"""


@pytest.mark.parametrize(("expression", "message"), cases(REFUSED))
def test_refused(expression: str, message: str) -> None:
    arch = "wse2" if expression.startswith("wse2: ") else "wse3"
    assert bad(expression.removeprefix("wse2: "), arch=arch) == message


@pytest.mark.parametrize(
    ("call", "expected"),
    [("__sqrt(2.0)", math.sqrt(2)), ("__pow(2.0, 0.5)", math.sqrt(2)), ("__mod(-5.0, 3.0)", -2.0), ("__id(SOUTH)", 4)],
)
def test_intrinsics_of_the_library(call: str, expected: float) -> None:
    module = module_of(f"const x = @{call};", library=True)
    assert module.lookup("x", None).value[1] == expected


def test_comptime_print() -> None:
    module = module_of('const p = @comptime_print("n is", 5, .{ .a = true, .b = [2]i16{ 1, 2 } });')
    module.lookup("p", None)
    assert module.instance.compilation.said == ["pe.csl:1:11: n is 5 .{ .a = true, .b = [2]i16{ 1, 2 } }"]


def test_import_comptime_value(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps([1.5, 2, 3]))
    layout = """
const Rows = struct { count: u16, wide: bool };
const table = @import_comptime_value([3]f32, "table.json");
const rows = @import_comptime_value(Rows, "rows.json");
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl");
  @comptime_print(table, rows.count, rows.wide);
}
"""
    said: list[str] = []
    layout_of(tmp_path, layout, {"rows.json": '{"count": 7, "wide": true}'}, say=said.append)
    assert said[0].endswith("[3]f32{ 1.5, 2.0, 3.0 } 7 true")


def test_the_type_of_an_array_that_is_known_at_run_time_alone() -> None:
    assert value("@element_count(a)", "var a: [3, 4]f16;") == 12
    assert value("@element_type(@type_of(a))", "var a: [3, 4]f16;") == types.F16
    assert value("@type_of(a[1, 2])", "var a: [3, 4]f16;") == types.F16
    assert value("@type_of(p.*)", "var a: [3]f16; var p: *[3]f16 = &a;") == ArrayType((3,), types.F16)
    assert value("@type_of(p.*)", "var a: [3]f16; const p = &a;") == ArrayType((3,), types.F16)
    assert constant("var a: i16; const x = @is_comptime(a);")[1] is False
