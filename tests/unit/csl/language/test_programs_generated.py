"""Programs in the style of compilers that print CSL: what xDSL prints, and the modules that its programs import."""

from pathlib import Path

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.many_pes import One, Run
from tests.unit.csl.language.test_programs_routes import ROW, pair


def test_a_parameter_may_be_a_task(tmp_path: Path, arch: str) -> None:
    """A module activates, and unblocks, the tasks of another one."""
    bus = """
param callback: task () void;
param first: bool;
fn go() void {
  if (first) { @activate(callback); } else { @unblock(callback); }
}
"""
    pe = """
var out = @zeros([2]i16);
const one = @import_module("bus.csl", .{ .callback = begun, .first = true });
const two = @import_module("bus.csl", .{ .callback = freed, .first = false });
task begun() void { out[0] += 1; two.go(); }
task freed() void { out[1] += 10; }
task start() void { one.go(); }
comptime {
  @bind_local_task(start, @get_local_task_id(8));
  @bind_local_task(begun, @get_local_task_id(9));
  @bind_local_task(freed, @get_local_task_id(10));
  @block(freed);
  @activate(freed);
  @activate(start);
}
"""
    layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }'
    assert Run(tmp_path, {"layout.csl": layout, "bus.csl": bus, "pe.csl": pe}, arch).row("out") == [[1, 10]]


def test_a_function_is_no_task(on_wse3: One) -> None:
    with pytest.raises(CslError) as error:
        on_wse3("""
fn f(t: task () void) void { @activate(t); }
fn g() void {}
---
f(g);
""")
    assert str(error.value.message).endswith("pe.csl:6:3: parameter 't' must be task()void, got fn()void g")


def test_a_route_without_outputs_drops_wavelets(tmp_path: Path, arch: str) -> None:
    """The last PE of the row takes none; the sender is not stopped."""
    config = """
    const tx = if (x == width - 1) .{} else .{ RAMP, EAST };
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx } });"""
    send = "  for (@range(u16, 12)) |k| { @mov16(one, k + 1); }"
    run = Run(tmp_path, {"layout.csl": ROW.replace("CONFIG", config), **pair(send)}, arch)
    assert [sum(got) for got in run.row("got")] == [0, 78, 78, 0]
    assert not run.simulation.network.in_flight()


def test_a_position_keeps_what_it_does_not_say_from_the_one_before(tmp_path: Path, arch: str) -> None:
    """Position 2 keeps the outputs of position 1, not those of position 0."""
    config = """
    const tx = if (x == width - 1) .{ RAMP } else .{ RAMP, EAST };
    const down = .{ .pos1 = .{ .rx = SOUTH, .tx = RAMP }, .pos2 = .{ .rx = WEST }, .current_switch_pos = 2 };
    if (x == 2) {
      @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx }, .switches = down });
    } else {
      @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx } });
    }"""
    run = Run(tmp_path, {"layout.csl": ROW.replace("CONFIG", config), **pair("  @mov16(one, 7);")}, arch)
    assert [got[0] for got in run.row("got")] == [0, 7, 7, 0]


def test_the_address_of_a_constant_of_a_function(one: One) -> None:
    """It is in SRAM once; its value is known at compile time, too."""
    pe = one("""
var out = @zeros([6]f32);
var sizes = @zeros([2]u16);
var kept: *const [3]f32;
fn keep(values: *const [3]f32) void { kept = values; }
fn first(value: *const u16) u16 { return value.*; }
---
const north: [3]f32 = [3]f32{ 0.5, 1.0, 2.0 };
const pointer: *const [3]f32 = &north;
keep(pointer);
for (@range(u16, 3)) |i| { out[i] = kept.*[i]; }
const vector = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> north[i] });
@fmuls(@set_dsd_length(@increment_dsd_offset(out_dsd, 3, f32), 3), vector, 10.0);
const count: u16 = 4;
const four = @zeros([count]u16);
sizes[0] = first(&count);
sizes[1] = @element_count(@type_of(four));
""")
    assert pe["out"].tolist() == [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    assert pe["sizes"].tolist() == [4, 4]


XDSL_LAYOUT = """// -----
// FILE: gemv_layout
param LAUNCH : i16 = 2;
const init : comptime_struct = .{
  .width = 1,
  .height = 2,
};
const memcpy : imported_module = @import_module("<memcpy/get_params>", init);
const x_dim : i32 = 1;
layout {
  @set_rectangle(x_dim, 2);
  const v0 : comptime_struct = memcpy.get_params(0);
  const v1 : comptime_struct = @concat_structs(.{
    .memcpy_params = v0,
  }, .{
    .rows = @as(i16, 3),
  });
  @set_tile_code(0, 0, "gemv.csl", v1);
  @set_tile_code(0, 1, "empty.csl", );
  @export_name("y", [*]f32, true);
  @export_name("gemv", fn(f32, i16) void, );
}
"""
XDSL_PROGRAM = """// FILE: gemv_program
param memcpy_params : comptime_struct;
param rows : i16;
const none : comptime_struct = .{
};
const memcpy : imported_module = @import_module("<memcpy/memcpy>", @concat_structs(none, memcpy_params));
const thing : imported_module = @import_module("thing.csl");
var A : [6]f32 = @constants([6]f32, 0);
var x : [2]f32 = @constants([2]f32, 0);
var y : [4]f32 = @zeros([4]f32);
const y_ptr : [*]f32 = &y;
var y_used : [*]f32 = &(y[0]);
var turn : bool = false;

fn initialize() void {
  const lb : i16 = 0;
  const ub : i16 = 6;
  const step : i16 = 1;

  for(@range(i16, lb, ub, step)) |idx| {
    const idx_f32 : f32 = @as(f32, idx);
    A[@as(i32, idx)] = idx_f32;
  }
  const ub2 : i16 = 2;

  for(@range(i16, 0, ub2, 1)) |idx1| {
    x[idx1] = (@as(f32, idx1)  +  1.0);
  }
  return;
}

fn choose() mem1d_dsd {
  const y_dsd : mem1d_dsd = @get_dsd( mem1d_dsd, .{
    .tensor_access = | d0 | { 2 } -> y[ d0 + 1 ]
  });
  const y_dsd3 : mem1d_dsd = @get_dsd( mem1d_dsd, .{
    .base_address = y_ptr,
    .extent = 3,
    .offset = 0,
  });
  const picked : mem1d_dsd = if (turn) y_dsd else y_dsd3;
  return picked;
}

fn gemv(scale : f32, limit : i16) void {
  initialize();
  const lb : i32 = 0;
  const ub : i32 = 2;

  for(@range(i16, 0, rows, 1)) |i| {
    const tmp : f32 = 0.0;
    var tmp1 : f32 = tmp;

    for(@range(i32, lb, ub, 1)) |j| {
      const ix : i32 = ((@as(i32, i)  *  ub)  +  j);
      tmp1 = (tmp1  +  (A[ix]  *  x[j]));
    }
    y[i] = tmp1;
  }
  const const3 : f32 = thing.twice(scale, );
  const v4 : mem1d_dsd = choose();
  @fmuls(v4, v4, const3);
  turn = !turn;
  const v5 : mem1d_dsd = choose();
  const v6 : mem1d_dsd = @set_dsd_length(v5, @as(u16, 1));
  const v7 : mem1d_dsd = @set_dsd_stride(@increment_dsd_offset(v6, 1, f32), 2);
  if (((limit  >  rows)  and  (limit  !=  9))  or  turn) {
    @fadds(v7, v7, @as(f32, 100));
  }
  else {
  }
  const if4 : u32 = (@as(u32, 48)  >>  4);
  y_used[@as(i16, if4)] = @as(f32, 0.0) - 7.0;
  memcpy.unblock_cmd_stream();
  return;
}
comptime {
  @export_symbol(y_ptr, "y");
}
comptime {
  @export_symbol(gemv, );
}
"""


def test_what_xdsl_prints(tmp_path: Path, arch: str) -> None:
    """Keywords as parts of names, double blanks, trailing commas, types with blanks, DSDs that an `if` chooses."""
    files = {
        "layout.csl": XDSL_LAYOUT,
        "gemv.csl": XDSL_PROGRAM,
        "empty.csl": "",
        "thing.csl": "fn twice(x : f32, ) f32 {\n  return (x  *  2.0);\n}\n",
    }
    run = Run(tmp_path, files, arch)
    run.host.finish(run.host.launch("gemv", (0.5, 4)))
    # rows of [0 1; 2 3; 4 5] by [1 2] are 2, 8, 14; 100 goes to the third
    assert run.array("y").tolist() == [2, 8, 114, -7]


SPADA_LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{
.width = 4,
.height = 1,
});
layout {
    @set_rectangle(4, 1);
    for (@range(i16, 0, 3, 1)) |pe_x| {
        for (@range(i16, 0, 1, 1)) |pe_y| {
            @set_tile_code(pe_x, pe_y, "code_0_0.csl", .{ .memcpy_params = memcpy.get_params(pe_x), });
        }
    }
    for (@range(i16, 3, 4, 1)) |pe_x| {
        for (@range(i16, 0, 1, 1)) |pe_y| {
            @set_tile_code(pe_x, pe_y, "code_3_0.csl", .{ .memcpy_params = memcpy.get_params(pe_x), });
        }
    }

    for (@range(i16, 3, 4, 1)) |pe_x| {
        for (@range(i16, 0, 1, 1)) |pe_y| {
            @set_color_config(pe_x, pe_y, @get_color(0), .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });
            @set_color_config(pe_x + -1, pe_y, @get_color(0), .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} }, \
.switches = .{ .pos1 = .{ .rx = WEST } } });
            @set_color_config(pe_x + -2, pe_y, @get_color(0), .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} }, \
.switches = .{ .pos1 = .{ .rx = WEST } } });
            @set_color_config(pe_x + -3, pe_y, @get_color(0), .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
        }
    }

    @export_name("x", [*]f32, true);
    @export_name("y", [*]f32, true);
    @export_name("__clock_stop", [*]u16, true);

    @export_name("gather", fn(f32, i32)void);
}
"""
SPADA_HEADER = """
param memcpy_params;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);

const timestamp = @import_module("<time>");
var x: [2, 2]f32;
var y: [4]f32;
var __clock_stop: [3]u16;
var __x_ptr: [*]f32 = &x;
var __y_ptr: [*]f32 = &y;
var ____clock_stop_ptr: [*]u16 = &__clock_stop;
var scale: f32;
var most: i32;
"""
SPADA_SENDER = """
const s_color_out: color = @get_color(0);

const s_out_dsd = @get_dsd(fabout_dsd, .{ .extent = 4, .fabric_color = s_color_out, \
.output_queue = @get_output_queue(2) });
const x_dsd = @get_dsd(mem4d_dsd, .{ .tensor_access = |__index_0,__index_1|{2,2} -> x[__index_0, __index_1] });
const y_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |__index|{4} -> y[__index] });

const ctrl = @import_module("<control>");
const s_switch_dsd = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(0), .control = true, \
.output_queue = @get_output_queue(2) });

fn map_140234112(arg0: f32, arg1: f32) f32 {
    return (arg0 * arg1);
}

const task_0_id = @get_local_task_id(8);
var task_0_state: u16 = 65535;
const task_1_id = @get_local_task_id(9);
task task_0() void {
    if (task_0_state == 0) {
        @map(map_140234112, x_dsd, scale, x_dsd);
        task_0_state = 1;
        @activate(task_0_id);
    }
    else if (task_0_state == 1) {
        for (@range(i32, 0, 2, 1)) |__it_k| {
            const k: i32 = 1 - 1 * __it_k;
            for (@range(i32, 0, 2, 1)) |j| {
                x[k, j] = (if (k > most) (x[k, j] + 1.0) else x[k, j]);
            }
        }
        {
            @fmovs(y_dsd, x_dsd);
        }
        @fmovs(s_out_dsd, x_dsd, .{ .async = true, .activate = task_1_id });
    }
}
task task_1() void {
    @mov32(s_switch_dsd, ctrl.encode_single_payload(ctrl.opcode.SWITCH_ADV, true, {}, 0));
    @unblock(exit_task_id);
}

fn gather(__arg_scale: f32, __arg_most: i32) void {
    timestamp.enable_tsc();
    scale = __arg_scale;
    most = __arg_most;
    task_0_state = 0;
    @activate(task_0_id);
    @activate(exit_task_id);
}
"""
SPADA_RECEIVER = """
const s_color_in: color = @get_color(0);

const dtask_0_id = if (@is_arch("wse3")) @get_data_task_id(@get_input_queue(2)) else @get_data_task_id(@get_color(0));
var __num_dtask_0: i32 = 0;
task dtask_0(v: f32) void {
    var i: i32 = __num_dtask_0;
    y[(i % 4)] = (y[(i % 4)] + v);
    __num_dtask_0 += 1;
    if (__num_dtask_0 == 12) {
        @block(dtask_0_id);
        @activate(exit_task_id);
    }
}

fn gather(__arg_scale: f32, __arg_most: i32) void {
    timestamp.enable_tsc();
    scale = __arg_scale;
    __num_dtask_0 = 0;
}
"""
SPADA_FOOTER = """
const exit_task_id = @get_local_task_id(10);
task exit_task() void {
    timestamp.get_timestamp(&__clock_stop);
    timestamp.disable_tsc();
    sys_mod.unblock_cmd_stream();
}
comptime {
    if (@is_arch("wse3")) @initialize_queue(@get_QUEUE(2), .{ .color = COLOR });
    @export_symbol(__x_ptr, "x");
    @export_symbol(__y_ptr, "y");
    @export_symbol(____clock_stop_ptr, "__clock_stop");
    BINDINGS
    @bind_local_task(exit_task, exit_task_id);

    @export_symbol(gather, "gather");
}
"""


def spada(body: str, queue: str, color: str, bindings: str) -> str:
    footer = SPADA_FOOTER.replace("QUEUE", queue).replace("COLOR", color).replace("BINDINGS", bindings)
    return SPADA_HEADER + body + footer


def test_what_spada_prints(tmp_path: Path, arch: str) -> None:
    """Values of three PEs go over one color, one PE after the other: each becomes a relay by its own command."""
    tasks = "@bind_local_task(task_0, task_0_id); @bind_local_task(task_1, task_1_id); @block(exit_task_id);"
    files = {
        "layout.csl": SPADA_LAYOUT,
        "code_0_0.csl": spada(SPADA_SENDER, "output_queue", "s_color_out", tasks),
        "code_3_0.csl": spada(SPADA_RECEIVER, "input_queue", "s_color_in", "@bind_data_task(dtask_0, dtask_0_id);"),
    }
    run = Run(tmp_path, files, arch)
    for place in range(3):
        run.array("x", place)[:] = [place, 10 * place, 5, 1]
    run.host.finish(run.host.launch("gather", (2.0, 0)))
    assert [run.array("y", place).tolist() for place in range(3)] == [[2 * p, 20 * p, 11, 3] for p in range(3)]
    assert run.array("y", 3).tolist() == [6, 60, 33, 9]
    assert run.array("__clock_stop", 3)[0] > 0
