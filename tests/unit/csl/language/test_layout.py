import time
from pathlib import Path

import numpy as np
import pytest

from cstool.csl.fabric.program import ColorConfig, Exported, Route
from cstool.csl.language.instance import EmittedCode
from cstool.csl.language.source import CslError
from cstool.foundation.errors import CstoolError
from tests.unit.csl.language.comptime_cases import bad_layout, layout_of
from tests.unit.csl.language.shown import cases

EAST = ".{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }"
WEST = ".{ .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } } }"
ONE = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); %s }'


ROUTED = """
param w: u16;
const c = @get_color(3);
layout {
  @set_rectangle(w, 2);
  const R = .{ .routes = .{ .rx = .{ WEST }, .tx = .{ EAST, RAMP } } };
  for (@range(u16, w)) |x| {
    for (@range(u16, 2)) |y| {
      @set_tile_code(x, y, "pe.csl", .{ .first = x == 0, .extra = .{ .n = 4 } });
      if (x > 0) { @set_color_config(x, y, c, R); }
    }
  }
  @set_color_config(0, 1, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP, EAST } } });
  @export_name("a", [*]f32, true);
  @export_name("run", fn(u16)void);
}
"""
EXPORTING = """
param first: bool;
param extra;
var a: [4]f32;
var p: [*]f32 = &a;
fn run(n: u16) void {}
comptime { @export_symbol(p, "a"); @export_symbol(run); }
"""


def test_programs_routes_and_names(tmp_path: Path) -> None:
    program = layout_of(tmp_path, ROUTED, {"pe.csl": EXPORTING}, params={"w": "3"})
    assert (program.width, program.height, program.arch) == (3, 2, "wse3")
    assert program.tiles.tolist() == [[0, 1, 1], [0, 1, 1]]
    assert program.routes[3].tolist() == [[-1, 0, 0], [0, 0, 0]]
    assert program.routes[3].dtype == program.tiles.dtype == np.int32
    assert program.configs == (ColorConfig((Route(2, 5),)),)
    run = Exported("run", "function", parameters=("H",))
    assert program.exported == (Exported("a", "variable", "f", mutable=True), run)
    assert [each.name.endswith("pe.csl") for each in program.programs] == [True, True]


def test_local_configs_are_in_the_routes(tmp_path: Path) -> None:
    program = layout_of(
        tmp_path,
        f'layout {{ @set_rectangle(2, 1); @set_tile_code(0, 0, "a.csl"); @set_tile_code(1, 0, "pe.csl"); '
        f"@set_color_config(1, 0, @get_color(2), {WEST}); }}",
        {"a.csl": f"comptime {{ @set_local_color_config(@get_color(2), {EAST}); }}"},
    )
    assert [program.configs[number].positions[0].tx for number in program.routes[2][0]] == [4, 2]


ROWS = """
param c: color;
const turns = @import_module("<directions>");
fn one(x: i16, y: i16) void {
  const to = if (x == 0) .{ turns.rotate_180(WEST), RAMP } else .{ RAMP };
  @set_color_config(x, y, c, .{ .routes = .{ .rx = .{ if (x == 0) RAMP else WEST }, .tx = to } });
}
fn configure(width: i16, height: i16) void {
  var y: i16 = 0;
  while (y < height) : (y += 1) {
    for (@range(i16, width)) |x| one(x, y);
  }
}
"""


def test_functions_of_modules_configure_colors(tmp_path: Path) -> None:
    layout = (
        'const rows = @import_module("rows.csl", .{ .c = @get_color(5) });\n'
        'layout { @set_rectangle(2, 2); for (@range(i16, 4)) |k| @set_tile_code(k & 1, k >> 1, "pe.csl", .{}); '
        "const size = @get_rectangle(); rows.configure(size.width, size.height); }"
    )
    program = layout_of(tmp_path, layout, {"rows.csl": ROWS})
    assert program.routes[5].tolist() == [[0, 1], [0, 1]]
    assert program.configs == (ColorConfig((Route(1, 5),)), ColorConfig((Route(2, 1),)))


def test_streams_and_launches_of_memcpy(tmp_path: Path) -> None:
    layout = """
const m = @import_module("<memcpy/get_params>", .{
  .width = 1, .height = 1, .MEMCPYH2D_1 = @get_color(4), .LAUNCH = @get_color(8),
});
layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = m.get_params(0) }); }
"""
    pe = """
param memcpy_params: comptime_struct;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
comptime { @comptime_assert(@get_int(sys.MEMCPYH2D_1) == 4); @rpc(@get_data_task_id(sys.LAUNCH)); }
"""
    program = layout_of(tmp_path, layout, {"pe.csl": pe}, arch="wse2")
    assert program.streams == {"MEMCPYH2D_1": 4}


def test_imports(tmp_path: Path) -> None:
    # Each import is a copy of its own; files are relative to the importer, or in an import path.
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "far.csl").write_text("param n; const twice = 2 * n;")
    pe = """
const one = @import_module("near.csl", .{ .n = 1 });
const two = @import_module("near.csl", .{ .n = 2 });
const far = @import_module(@strcat("f", "ar.csl"), .{ .n = 5 });
comptime {
  @comptime_assert(one.n == 1 and two.n == 2 and far.twice == 10);
  @comptime_assert(&one.v != &two.v);
}
"""
    near = "param n; var v: [4]u32 = @constants([4]u32, n); comptime { const now = &v; }"
    layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "sub/pe.csl"); }'
    program = layout_of(tmp_path, layout, {"sub/pe.csl": pe, "sub/near.csl": near}, import_paths=[str(other)])
    assert [size for _, size in program.programs[0].sram] == [16, 16]
    assert program.programs[0].memory[64:] == b"\1\0\0\0" * 4 + b"\2\0\0\0" * 4


def test_a_param_that_an_imported_file_does_not_have_is_a_warning(tmp_path: Path) -> None:
    warnings: list[CslError] = []
    files = {"pe.csl": 'const m = @import_module("m.csl", .{ .cuont = 1 });', "m.csl": "param count: i16 = 0;"}
    layout_of(tmp_path, ONE % "", files, on_warning=warnings.append)
    assert [warning.message.split(": ", 1)[1].split("/")[-1] for warning in warnings] == ["m.csl has no param 'cuont'"]
    assert warnings[0].hint == "did you mean count?"


def test_sram_over_the_limit_names_the_largest(tmp_path: Path) -> None:
    pe = "var a: [11000]u32; var b: [100]u16; comptime { const now = .{ &a, &b }; }"
    text = bad_layout(tmp_path, ONE % "", {"pe.csl": pe}, emit=lambda *_: EmittedCode("", {"f": 6000}))
    assert text.replace(str(tmp_path), "DIR") == (
        "a PE has 49,152 bytes of SRAM, DIR/pe.csl takes 50,200: 44,200 of data, 6,000 of code (modelled) "
        "(largest: a: [11000]u32 44,000 bytes, f (code, modelled) 6,000 bytes, b: [100]u16 200 bytes) "
        "| program of PE 0,0"
    )


REFUSED = r"""
const x = 1; ==> DIR/layout.csl has no layout block (cslc takes the file with 'layout { ... }')
layout {} ==> a layout needs @set_rectangle(width, height)
layout {} layout {} ==> a file has one layout block | the first one
layout { @set_rectangle(0, 1); } ==> a rectangle has at least one PE, got 0 x 1
layout { @set_rectangle(1, 1); @set_rectangle(1, 1); } ==> the rectangle is set once | the first @set_rectangle
layout { @set_rectangle(2, 2); }
  each PE of the rectangle needs a program, got none for 0,0, and 3 more (write @set_tile_code(0, 0, ...);
  in the layout block)
layout { @set_tile_code(0, 0, "pe.csl"); } ==> @set_rectangle comes first
  (write @set_rectangle(width, height); at the top of the layout block)
layout { @set_rectangle(2, 1); @set_tile_code(2, 0, "pe.csl"); } ==> a PE of the rectangle is 0,0 to 1,0, got 2,0
layout { @set_rectangle(2, 1); @set_tile_code(1.5, 0, "pe.csl"); }
  a coordinate is an integer, got comptime_float 1.5
ONE: @set_tile_code(0, 0, "pe.csl", .{}); ==> a PE has one program, got another for 0,0 | the first one
layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pee.csl", .{}); }
  no file pee.csl in DIR (did you mean pe.csl?)
layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "needs.csl", .{}); }
  param 'count' of DIR/needs.csl is not given, and has no default | declared here
layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "needs.csl", .{ .count = 1, .cont = 2 }); }
  DIR/needs.csl has no param 'cont' (did you mean count?)
layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "needs.csl", .{ .count = 1.5 }); }
  param 'count' must be i16, got comptime_float 1.5 (convert it: @as(i16, ...)) | declared here
ONE: @set_color_config(0, 0, @get_color(1), EAST_ONLY); @set_color_config(0, 0, @get_color(1), EAST_ONLY);
  a color is configured once at a PE, got color 1 again at PE 0,0 | the first one
ONE: @set_color_config(0, 0, @get_color(22), EAST_ONLY); ==> color 22 is memcpy's own, like 21 to 23
  (take another color, or compile without --memcpy)
ONE: @set_color_config(0, 0, true, EAST_ONLY); ==> expected a color, got bool true
ONE: @set_color_config(0, 0, @get_color(1), 5); ==> a color's config is a struct, got comptime_int 5
ONE: @export_name("a", [*]f32, true); ==> no program exports 'a'
  (write @export_symbol(..., "a"); in a comptime block of a program that has it)
ONE: @export_name("a", i16); ==> @export_name takes a type [*]T or fn(...)void, got i16
ONE: @export_name("a", [*]color, 5); ==> whether the host may write is true or false, got comptime_int
ONE: @export_name("a", [*]f32); @export_name("a", [*]i32); ==> a name is exported once, got 'a' again | the other one
ONE: @bind_local_task(1, 2); ==> @bind_local_task stands in a comptime block alone
ONE: @export_symbol(1); ==> @export_symbol stands in a comptime block of a PE program alone
ONE: return; ==> 'return' cannot lead out of code that runs at compile time
"""


@pytest.mark.parametrize(("layout", "message"), cases(REFUSED))
def test_refused_layouts(tmp_path: Path, layout: str, message: str) -> None:
    if layout.startswith("ONE: "):
        layout = ONE % layout.removeprefix("ONE: ")
    layout = layout.replace("EAST_ONLY", EAST).replace("WEST_ONLY", WEST)
    text = bad_layout(tmp_path, layout, {"needs.csl": "param count: i16; comptime { const now = count; }"})
    assert text.replace(str(tmp_path), "DIR") == message


EXPORTS = 'var a: [4]f32; var p: [*]f32 = &a; comptime { @export_symbol(p, "a"); }'
REFUSED_PROGRAMS = r"""
comptime { @comptime_assert(false); } ==> @comptime_assert failed | program of PE 0,0
task t(x: u32) void {} comptime { @bind_data_task(t, @get_data_task_id(@get_input_queue(3))); }
  the input queue 3 of data task 't' must be bound to a color (@initialize_queue(queue, .{ .color = c }))
  | program of PE 0,0
comptime { @set_local_color_config(@get_color(2), EAST_ONLY); } & @set_color_config(0, 0, @get_color(2), EAST_ONLY);
  a color is configured once at a PE, got color 2 again at PE 0,0 | the layout's
const a = @import_module("pe.csl"); ==> pe.csl imports itself | program of PE 0,0
EXPORTS & @export_name("aa", [*]f32, true);
  what a program exports is named in the layout too, 'a' is not (did you mean aa?)
EXPORTS ==> what a program exports is named in the layout too, 'a' is not
  (write @export_name("a", [*]f32); in the layout block)
EXPORTS & @export_name("a", [*]u32, true); ==> 'a' must be [*]u32, as the layout has it, got [*]f32 | named here
EXPORTS & @export_name("a", fn()void); ==> 'a' must be fn()void, as the layout has it, got [*]f32 | named here
"""


@pytest.mark.parametrize(("program", "message"), cases(REFUSED_PROGRAMS))
def test_refused_programs(tmp_path: Path, program: str, message: str) -> None:
    program = program.replace("EAST_ONLY", EAST).replace("WEST_ONLY", WEST).replace("EXPORTS", EXPORTS)
    pe, _, more = program.partition(" & ")
    assert bad_layout(tmp_path, ONE % more, {"pe.csl": pe}) == message


def test_params_of_the_command_line(tmp_path: Path) -> None:
    layout = "param n: i16; param c: color; param f: f32 = 0.0; " + ONE % "@comptime_assert(n == 3 and f == 1.5);"
    layout_of(tmp_path, layout, params={"n": 3, "f": "1.5"}, colors={"c": 4})
    layout_of(tmp_path, layout, params={"n": "3", "f": 1.5, "c": 4})
    assert bad_layout(tmp_path, layout) == "param 'n' has no value and no default (give it one: --params=n:...)"
    unknown = bad_layout(tmp_path, layout, params={"m": 1, "n": 3, "c": 1})
    assert unknown == f"--params: {tmp_path}/layout.csl has no param 'm'"
    assert bad_layout(tmp_path, layout, params={"n": 70000, "c": 1}) == (
        "--params: n must be i16, -32768 to 32767, got 70000"
    )
    assert (
        bad_layout(tmp_path, layout, params={"n": 1.5, "c": 1}) == "--params: n must be i16, -32768 to 32767, got 1.5"
    )
    assert (
        bad_layout(tmp_path, layout, params={"n": True, "c": 1})
        == "--params: n must be i16, -32768 to 32767, got bool true"
    )


def test_the_fabric_has_room_for_memcpy(tmp_path: Path) -> None:
    layout_of(tmp_path, ONE % "", fabric_dims=(8, 3), fabric_offsets=(4, 1))
    assert bad_layout(tmp_path, ONE % "", fabric_dims=(7, 3), fabric_offsets=(4, 1)) == (
        "the rectangle must fit the fabric of 7 x 3 PEs, got 1 x 1 at 4,1, "
        "with 3 columns and 1 row for memcpy behind it (--fabric-dims=8,3 is enough)"
    )
    layout_of(tmp_path, ONE % "", fabric_dims=(1, 1), memcpy=False)
    assert bad_layout(tmp_path, ONE % "", fabric_dims=(1, 1), fabric_offsets=(1, 0), memcpy=False) == (
        "the rectangle must fit the fabric of 1 x 1 PEs, got 1 x 1 at 1,0 (--fabric-dims=2,1 is enough)"
    )


def test_no_such_generation_or_file(tmp_path: Path) -> None:
    with pytest.raises(CstoolError) as error:
        layout_of(tmp_path, ONE % "", arch="wse33")
    assert str(error.value) == "arch: must be one of wse2, wse3, got wse33\nhint: did you mean wse3?"


@pytest.mark.lab
def test_a_large_layout_takes_little(tmp_path: Path) -> None:
    # A wafer is 745,500 PEs; here 16,000, at most 100 microseconds each on a slow core.
    layout = """
const c0 = @get_color(0);
const c1 = @get_color(1);
layout {
  @set_rectangle(200, 80);
  const R = .{ .rx = .{ WEST }, .tx = .{ EAST, RAMP } };
  const S = .{ .rx = .{ NORTH }, .tx = .{ SOUTH } };
  for (@range(u16, 200)) |x| {
    for (@range(u16, 80)) |y| {
      @set_tile_code(x, y, "pe.csl", .{ .a = x == 0, .b = y == 79, .n = 4, .m = .{ .p = 1 } });
      @set_color_config(x, y, c0, .{ .routes = if (y % 2 == 0) R else S });
      if (x > 0) { @set_color_config(x, y, c1, .{ .routes = S }); }
    }
  }
}
"""
    start = time.process_time()
    program = layout_of(tmp_path, layout, {"pe.csl": "param a: bool; param b: bool; param n: i16; param m;"})
    assert time.process_time() - start < 1.6
    assert len(program.programs) == 4
    assert len(program.configs) == 2


def test_the_rectangle_is_the_one_that_memcpy_serves(tmp_path: Path) -> None:
    layout = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
layout {
  @set_rectangle(%s);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(%s) });
}
"""
    for size, column, message in (
        ("1, 1", "0", "the rectangle must be that of <memcpy/get_params>, 2 x 1, got 1 x 1"),
        ("2, 1", "2", "@comptime_assert failed: memcpy.get_params takes a column of the rectangle"),
    ):
        with pytest.raises(CslError) as caught:
            layout_of(tmp_path, layout % (size, column), {"pe.csl": "param memcpy_params;"})
        assert caught.value.message.endswith(message)
