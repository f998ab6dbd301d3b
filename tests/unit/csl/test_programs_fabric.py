"""Programs of several PEs with a host, as users of the documentation write them, on both generations."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.csl.hosted import Hosted

ARCHS = pytest.mark.parametrize("arch", ["wse2", "wse3"])

CONTROL_LAYOUT = """
param n: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
const A: color = @get_color(1);
const B: color = @get_color(2);
const C: color = @get_color(3);
layout {
  @set_rectangle(2, 1);
  for (@range(i16, 2)) |x| {
    const common = .{ .memcpy_params = memcpy.get_params(x), .n = n, .A = A, .B = B, .C = C };
    @set_tile_code(x, 0, if (x == 0) "left.csl" else "right.csl", common);
    const rx = if (x == 0) .{ RAMP } else .{ WEST };
    const tx = if (x == 0) .{ EAST } else .{ RAMP };
    for ([3]color{ A, B, C }) |c| {
      @set_color_config(x, 0, c, .{ .routes = .{ .rx = rx, .tx = tx } });
    }
  }
  @export_name("data", [*]f32, true);
  @export_name("info", [*]u16, true);
  @export_name("go", fn(u16)void);
}
"""

CONTROL_LEFT = """
param memcpy_params: comptime_struct;
param n: u16; param A: color; param B: color; param C: color;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const ctrl = @import_module("<control>");
const qa = @get_output_queue(2);
const qb = @get_output_queue(3);
const qc = @get_output_queue(4);
var data = @zeros([16]f32);
var info = @zeros([16]u16);
var data_ptr: [*]f32 = &data;
var info_ptr: [*]u16 = &info;
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> data[i] });
const info_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> info[i] });
const a_out = @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = A, .output_queue = qa });
const a_ctl = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = A, .output_queue = qa, .control = true });
const b_out = @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = B, .output_queue = qb,
  .wavelet_index_offset = true });
const c_out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = C, .output_queue = qc });
const done_id = @get_local_task_id(9);
const next_id = @get_local_task_id(10);
const stop_task: control_task_id = @get_control_task_id(33);
fn go(k: u16) void {
  @fmovs(a_out, data_dsd, .{ .async = true, .activate = next_id });
  info[15] = k;
}
task next() void {
  @mov32(a_ctl, ctrl.encode_single_payload(ctrl.opcode.NOP, false, {}, 0));
  @mov16(b_out, info_dsd, .{ .async = true, .index = 3, .activate = done_id });
}
task done() void {
  const w: u32 = (@as(u32, 5) << 16) | 77;
  @mov32(c_out, w);
  const c_ctl = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = C, .output_queue = qc, .control = true });
  @mov32(c_ctl, ctrl.encode_single_payload(ctrl.opcode.NOP, false, stop_task, 99), .{ .async = true });
  sys_mod.unblock_cmd_stream();
}
comptime {
  @bind_local_task(next, next_id);
  @bind_local_task(done, done_id);
  if (@is_arch("wse3")) {
    @initialize_queue(qa, .{ .color = A });
    @initialize_queue(qb, .{ .color = B });
    @initialize_queue(qc, .{ .color = C });
  }
  @export_symbol(data_ptr, "data");
  @export_symbol(info_ptr, "info");
  @export_symbol(go);
}
"""

CONTROL_RIGHT = """
param memcpy_params: comptime_struct;
param n: u16; param A: color; param B: color; param C: color;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const qa = @get_input_queue(2);
const qb = @get_input_queue(3);
const qc = @get_input_queue(4);
var data = @zeros([16]f32);
var info = @zeros([16]u16);
var data_ptr: [*]f32 = &data;
var info_ptr: [*]u16 = &info;
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{16} -> data[i] });
var at_index = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> info[i], .wavelet_index_offset = true });
const a_in = @get_dsd(fabin_dsd, .{ .extent = 16, .fabric_color = A,  .input_queue = qa,
  .on_control = .{ .terminate = true, .activate = ended } });
const b_in = @get_dsd(fabin_dsd, .{ .extent = n, .fabric_color = B, .input_queue = qb, .wavelet_index_offset = true });
const c_id = if (@is_arch("wse3")) @get_data_task_id(qc) else @get_data_task_id(C);
const ended_id = @get_local_task_id(9);
const got_id = @get_local_task_id(10);
const stop_task: control_task_id = @get_control_task_id(33);
const d = @get_dsr(dsr_dest, 6);
const s = @get_dsr(dsr_src1, 6);
fn go(k: u16) void {
  @load_to_dsr(d, data_dsd);
  @load_to_dsr(s, a_in, .{ .async = true, .activate = got_id });
  if (@is_arch("wse3")) {
    @fmuls(d, s, 2.0, .{ .async = true, .ut_id = @get_ut_id(5) });
  } else {
    @fmuls(d, s, 2.0, .{ .async = true });
  }
  @mov16(at_index, b_in, .{ .async = true });
  info[14] = k;
}
task ended() void { data[15] = 1.0; }
task got() void { data[14] += 1.0; }
task c_task(value: u16, index: u16) void { info[13] = value; info[12] = index; }
task stop(arg: u16) void { info[11] = arg; sys_mod.unblock_cmd_stream(); }
comptime {
  @bind_local_task(ended, ended_id);
  @bind_local_task(got, got_id);
  @bind_data_task(c_task, c_id);
  @bind_control_task(stop, stop_task);
  @initialize_queue(qa, .{ .color = A });
  @initialize_queue(qb, .{ .color = B });
  @initialize_queue(qc, .{ .color = C });
  @export_symbol(data_ptr, "data");
  @export_symbol(info_ptr, "info");
  @export_symbol(go);
}
"""


@ARCHS
def test_control_wavelets_indices_and_registers_with_settings(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": CONTROL_LAYOUT,
        "left.csl": CONTROL_LEFT,
        "right.csl": CONTROL_RIGHT,
    }
    grid = Hosted(tmp_path, files, arch, n=6)
    grid.put("data", np.r_[np.arange(1, 17), np.zeros(16)].astype(np.float32))
    grid.put("info", np.r_[np.arange(11, 27), np.zeros(16)].astype(np.uint16))
    grid.launch("go", 7)
    data = grid.get("data", 16)[0, 1]
    info = grid.get("info", 16, np.uint16)[0, 1]
    assert data.tolist() == [2, 4, 6, 8, 10, 12] + [0] * 8 + [1, 1], data
    assert info.tolist()[3:9] == [11, 12, 13, 14, 15, 16], info
    assert info.tolist()[11:15] == [99, 5, 77, 7], info
    assert grid.stop() == []


MAP_LAYOUT = """
param n: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 3, .height = 1 });
const A: color = @get_color(1);
const B: color = @get_color(2);
layout {
  @set_rectangle(3, 1);
  var x: i16 = 0;
  while (x < 3) : (x += 1) {
    const middle = x == 1;
    const route_a = if (x == 0) .{ .rx = .{ RAMP }, .tx = .{ EAST } }
      else if (middle) .{ .rx = .{ WEST }, .tx = .{ RAMP, EAST } }
      else .{ .rx = .{ WEST }, .tx = .{ RAMP } };
    const params = @concat_structs(.{ .memcpy_params = memcpy.get_params(@as(u16, x)), .n = n }, .{
       .role = @as(u16, x), .A = A, .B = B,
      .task_ids = .{ .first = @get_local_task_id(11), .second = @get_local_task_id(12) } });
    @set_tile_code(x, 0, "pe.csl", params);
    @set_color_config(x, 0, A, .{ .routes = route_a });
    if (x > 0) {
      @set_color_config(x, 0, B, if (x == 2) .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } } }
        else .{ .routes = .{ .rx = .{ EAST }, .tx = .{ RAMP } } });
    }
  }
  @export_name("data", [*]f32, true);
  @export_name("info", [*]u16, true);
  @export_name("go", fn()void);
}
"""

MAP_PE = """
param memcpy_params: comptime_struct;
param n: u16; param A: color; param B: color;
param role: u16;
param task_ids: comptime_struct;
const Role = enum(u16) { source = 0, relay = 1, sink = 2 };
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const qi = @get_input_queue(2);
const qi2 = @get_input_queue(3);
const qo = @get_output_queue(2);
const qo2 = @get_output_queue(3);
var data = @zeros([16]f32);
export var info = @zeros([16]u16);
const data_ptr: [*]f32 = &data;
const info_ptr: [*]u16 = &info;
const me = @as(u16, role);
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> data[i] });
const a_out = if (role == 0) @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = A, .output_queue = qo }) else {};
const a_in = @get_dsd(fabin_dsd, .{ .extent = n, .fabric_color = A, .input_queue = qi });
const half_in = @get_dsd(fabin_dsd, .{ .extent = n / 2, .fabric_color = A, .input_queue = qi });
const settings = if (@is_arch("wse3")) .{ .async = true, .activate = task_ids.first, .ut_id = @get_ut_id(4) }
  else .{ .async = true, .activate = task_ids.first };
const s1 = @get_dsr(dsr_src1, 1);
const d1 = @get_dsr(dsr_dest, 1);
fn scale(x: f32) f32 { return x * 10.0 + 1.0; }
fn weigh(x: f32, y: f32) f32 { return x - y; }
fn note(x: f32) void { info[0] += @as(u16, x); }
fn go() void {
  switch (role) {
    0 => { @fmovs(a_out, data_dsd, settings); },
    1 => { @map(scale, a_in, data_dsd); @activate(task_ids.first); },
    2 => {
      @load_to_dsr(d1, @set_dsd_length(data_dsd, n / 2), .{ .save_address = true });
      @fmovs(d1, half_in);
      @fnegs(d1, half_in, .{ .async = true, .activate = task_ids.first });
    },
    else => @assert(false),
  }
}
task first() void {
  if (role == 2) {
    @map(note, data_dsd);
    const b_out = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = B, .output_queue = qo2 });
    var words = [2]u32{ 0x00050007, 0x00060008 };
    const words_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> words[i] });
    @mov32(b_out, words_dsd);
  }
  sys_mod.unblock_cmd_stream();
}
task pair(low: i16, high: i16) void {
  info[1] += @as(u16, low);
  info[2] += @as(u16, high);
}
const pair_id = if (@is_arch("wse3")) @get_data_task_id(qi2) else @get_data_task_id(B);
comptime {
  @bind_local_task(first, task_ids.first);
  if (role == 1) { @bind_data_task(pair, pair_id); }
  if (@is_arch("wse3")) {
    if (role == 0) { @initialize_queue(qo, .{ .color = A }); }
    if (role == 2) { @initialize_queue(qo2, .{ .color = B }); }
    if (role == 1) { @initialize_queue(qi2, .{ .color = B, .priority = .{ .high = true } }); }
    if (role > 0) { @initialize_queue(qi, .{ .color = A }); }
  }
  @export_symbol(data_ptr, "data");
  @export_symbol(info_ptr, "info");
  @export_symbol(go);
}
"""


@ARCHS
def test_map_over_the_fabric_and_operations_with_settings_of_their_own(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": MAP_LAYOUT,
        "pe.csl": MAP_PE,
    }
    grid = Hosted(tmp_path, files, arch, n=8)
    x = np.r_[np.arange(1, 17), np.zeros(32)].astype(np.float32)
    grid.put("data", x)
    grid.launch("go")
    data = grid.get("data", 16)
    info = grid.get("info", 16, np.uint16)
    assert data[0, 1].tolist()[:8] == [11, 21, 31, 41, 51, 61, 71, 81], data
    assert data[0, 2].tolist()[:8] == [1, 2, 3, 4, -5, -6, -7, -8], data
    assert info[0, 1, :3].tolist() == [0, 15, 11], info
    assert grid.stop() == []


TEARDOWN_LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
const A: color = @get_color(1);
layout {
  @set_rectangle(2, 1);
  for (@range(u16, 2)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .left = x == 0, .A = A });
  }
  @set_color_config(0, 0, A, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } }, .teardown = false });
  @set_color_config(1, 0, A, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  @export_name("info", [*]u16, true);
  @export_name("go", fn()void);
}
"""

TEARDOWN_PE = """
param memcpy_params: comptime_struct;
param left: bool; param A: color;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const ctrl = @import_module("<control>");
const tile_config = @import_module("<tile_config>");
const qi = @get_input_queue(2);
const qo = @get_output_queue(2);
var info = @zeros([8]u16);
const info_ptr: [*]u16 = &info;
const id = if (@is_arch("wse3")) @get_data_task_id(qi) else @get_data_task_id(A);
task got(x: u16) void { info[0] += x; }
fn torn() void { info[1] += 1; tile_config.teardown.exit(A); sys_mod.unblock_cmd_stream(); }
task torn_task() void { info[1] += 1; tile_config.teardown.exit(A); sys_mod.unblock_cmd_stream(); }
fn go() void {
  if (left) {
    const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = A, .output_queue = qo });
    const cout = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = A, .output_queue = qo, .control = true });
    for (@range(u16, 5)) |k| { @mov16(out, k); }
    @mov32(cout, ctrl.encode_single_payload(ctrl.opcode.TEARDOWN, false, {}, 0));

  }
}
comptime {
  if (!left) { @bind_data_task(got, id); @initialize_queue(qi, .{ .color = A }); }
  else if (@is_arch("wse3")) @initialize_queue(qo, .{ .color = A });
  @set_teardown_handler(torn, A);
  @export_symbol(info_ptr, "info");
  @export_symbol(go);
}
"""


@ARCHS
def test_a_teardown_handler(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": TEARDOWN_LAYOUT,
        "pe.csl": TEARDOWN_PE,
    }
    grid = Hosted(tmp_path, files, arch)
    grid.launch("go")
    info = grid.get("info", 8, np.uint16)
    assert info[0, 1, :2].tolist() == [10, 1], info
    assert grid.stop() == []


IMPORTS_LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 2 });
const colors = [4]color{ @get_color(1), @get_color(2), @get_color(3), @get_color(4) };
const dir = "./";
fn is_even(v: u16) bool { return v % 2 == 0; }
layout {
  @set_rectangle(2, 2);
  for (@range(u16, 2)) |y| {
    for (@range(u16, 2)) |x| {
      const file = @strcat(dir, if (is_even(x)) "a.csl" else "b.csl");
      @set_tile_code(x, y, file, .{ .memcpy_params = memcpy.get_params(x), .c = colors[y], .row = y });
      @set_color_config(x, y, colors[y], .{
        .routes = if (x == 0) .{ .rx = .{ RAMP }, .tx = .{ EAST } } else .{ .rx = .{ WEST }, .tx = .{ RAMP } },
      });
    }
  }
  @export_name("data", [*]f16, true);
  @export_name("n", [*]u16, true);
  @export_name("run", fn(u16, f32)void);
}
"""

IMPORTS_A = """
param memcpy_params: comptime_struct;
param c: color; param row: u16;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const common = @import_module("common.csl", .{ .size = 12 });
const q = @get_output_queue(3);
const data_ptr = common.data_ptr;
const n_ptr: [*]u16 = &common.n;
const ut = if (@is_arch("wse3")) @get_ut_id(3) else {};
fn run(len: u16, s: f32) void {
  common.n[0] = len;
  const src = @set_dsd_length(common.dsd, len);
  @fmulh(src, src, @as(f16, s));
  const out = @get_dsd(fabout_dsd, .{ .extent = len, .fabric_color = c, .output_queue = q });
  if (@is_arch("wse3")) {
    @fmovh(out, src, .{ .async = true, .activate = done, .ut_id = ut });
  } else {
    @fmovh(out, src, .{ .async = true, .activate = done });
  }
}
task done() void { sys_mod.unblock_cmd_stream(); }
comptime {
  @bind_local_task(done, @get_local_task_id(8));
  if (@is_arch("wse3")) { @initialize_queue(q, .{ .color = c }); }
  @export_symbol(data_ptr, "data");
  @export_symbol(n_ptr, "n");
  @export_symbol(run);
}
"""

IMPORTS_B = """
param memcpy_params: comptime_struct;
param c: color; param row: u16;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const common = @import_module("common.csl", .{ .size = 12 });
const q = @get_input_queue(3);
const n_ptr: [*]u16 = &common.n;
const dest = @get_dsr(dsr_dest, 2);
const src = @get_dsr(dsr_src1, 2);
fn run(len: u16, s: f32) void {
  const in = @get_dsd(fabin_dsd, .{ .extent = len, .fabric_color = c, .input_queue = q });
  @load_to_dsr(dest, @set_dsd_length(common.dsd, len));
  if (@is_arch("wse3")) {
    @load_to_dsr(src, in, .{ .async = true, .ut_id = @get_ut_id(@as(u16, 2)), .unblock = finish_id });
    @faddh(dest, dest, src, .{ .async = true });
  } else {
    @load_to_dsr(src, in, .{ .async = true, .unblock = finish_id });
    @faddh(dest, dest, src, .{ .async = true });
  }
  @activate(finish_id);
  common.n[1] = @as(u16, s);
}
const finish_id = @get_local_task_id(9);
task finish() void { @block(finish_id); sys_mod.unblock_cmd_stream(); }
comptime {
  @bind_local_task(finish, finish_id);
  @block(finish_id);
  @initialize_queue(q, .{ .color = c });
  @export_symbol(common.data_ptr, "data");
  @export_symbol(n_ptr, "n");
  @export_symbol(run);
}
"""

IMPORTS_COMMON = """
param size: u16;
var data = @zeros([size]f16);
var n = @zeros([2]u16);
const data_ptr: [*]f16 = &data;
const dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{size} -> data[i] });
"""


@ARCHS
def test_imports_by_computed_paths_and_registers_with_microthreads(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": IMPORTS_LAYOUT,
        "a.csl": IMPORTS_A,
        "b.csl": IMPORTS_B,
        "common.csl": IMPORTS_COMMON,
    }
    grid = Hosted(tmp_path, files, arch)
    x = np.arange(48).astype(np.float16)
    grid.put("data", x)
    grid.launch("run", 5, 2.0)
    d = grid.get("data", 12, np.float16)
    assert d[0, 1, :6].tolist() == [12, 15, 18, 21, 24, 17], d
    assert d[1, 1, :6].tolist() == [36 + 48, 37 + 50, 38 + 52, 39 + 54, 40 + 56, 41], d
    grid.launch("run", 2, 1.0)
    d = grid.get("data", 12, np.float16)
    assert d[0, 1, :3].tolist() == [12, 17, 18], d
    assert grid.stop() == []


EMPTIES_LAYOUT = """
param n: i16;
const IN = @get_color(5);
const OUT = @get_color(6);
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1,
  .MEMCPYH2D_1 = IN, .MEMCPYD2H_1 = OUT });
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .n = n });
  @export_name("sums", [*]i32, false);
}
"""

EMPTIES_PE = """
param memcpy_params;
param n: i16;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const in_q = @get_input_queue(2);
const out_q = @get_output_queue(3);
const task_id = @get_local_task_id(10);
const exit_id = @get_local_task_id(12);
var buf = @zeros([8]i32);
const fifo = @allocate_fifo(buf, .{ .activate_push = task_id });
var sums = @zeros([4]i32);
var sums_ptr: [*]i32 = &sums;
const in_dsd = @get_dsd(fabin_dsd, .{ .extent = n, .input_queue = in_q, .fabric_color = sys_mod.MEMCPYH2D_1 });
const out_dsd = @get_dsd(fabout_dsd, .{ .extent = n, .output_queue = out_q, .fabric_color = sys_mod.MEMCPYD2H_1 });
var item: [1]i32;
const item_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> item[i] });
fn double(x: i32) i32 { sums[1] += 1; return x * 2 + 1; }
var mapped: i16 = 0;
task start() void {
  @mov32(fifo, in_dsd, .{ .async = true, .activate = exit_id });
}
task pushed() void {
  while (@mov32(item_dsd, fifo)) { sums[0] += item[0]; mapped += 1; }
  if (mapped == n) {
    const two = @get_dsd(fabout_dsd, .{ .extent = 1, .output_queue = out_q, .fabric_color = sys_mod.MEMCPYD2H_1 });
    @map(double, sums[0], two);
    @mov32(two, @as(i32, mapped));
    mapped = 0; // this task may be activated once more
  }
}
task finished() void { sums[2] = 1; }
comptime {
  @bind_local_task(start, @get_local_task_id(9));
  @bind_local_task(pushed, task_id);
  @bind_local_task(finished, exit_id);
  @activate(@get_local_task_id(9));
  if (@is_arch("wse3")) {
    @initialize_queue(in_q, .{ .color = IN_color });
    @initialize_queue(out_q, .{ .color = sys_mod.MEMCPYD2H_1 });
  }
  @export_symbol(sums_ptr, "sums");
}
const IN_color = sys_mod.MEMCPYH2D_1;
"""


@ARCHS
def test_a_task_empties_a_fifo_until_it_is_told_to_stop(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": EMPTIES_LAYOUT,
        "pe.csl": EMPTIES_PE,
    }
    grid = Hosted(tmp_path, files, arch, n=20)
    x = np.arange(1, 21, dtype=np.int32)
    grid.send(5, x)
    y = grid.take(6, 2, np.int32)
    s = grid.get("sums", 4, np.int32).ravel()
    assert y.ravel().tolist() == [421, 20], (y, s)
    assert s.tolist()[:3] == [210, 1, 1], s
    assert grid.stop() == []
