"""DSDs of memory with parts known at run time, lists, constants; registers loaded at compile time; settings."""

from pathlib import Path

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.comptime_cases import layout_of, said
from tests.unit.csl.language.many_pes import One, Run
from tests.unit.csl.language.shown import cases


def test_one_element_has_a_stride(one: One) -> None:
    pe = one("""
var out = @zeros([6]i16);
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> out[2 * i + 1] });
---
@mov16(@set_dsd_length(first, 3), 7);
""")
    assert pe["out"].tolist() == [0, 7, 0, 7, 0, 7]


def test_tensor_accesses_of_pointers_and_of_numbers_of_run_time(one: One) -> None:
    pe = one("""
var out = @zeros([8]i16);
var m = @zeros([16]i16);
var grid = @zeros([4, 4]i16);
fn fill(p: [*]i16, k: i16, n: u16) void {
  @mov16(@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> p[2 * i + k] }), 7);
}
fn corner(p: *[4, 4]i16, k: i16) void {
  @mov16(@get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> p[i + k, j * k] }), 3);
}
fn row(k: i16) void { @mov16(@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> grid[k, i] }), k); }
const all = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{4, 4} -> grid[i, j] });
---
fill(&out, 3, 2);
corner(&grid, 1);
row(3);
@mov16(m_dsd, all);
""")
    assert pe["out"].tolist() == [0, 0, 0, 7, 0, 7, 0, 0]
    assert pe["m"].reshape(4, 4).tolist() == [[0, 0, 0, 0], [3, 3, 0, 0], [3, 3, 0, 0], [3, 3, 0, 0]]


def test_lists_of_extents_and_strides(one: One) -> None:
    pe = one("""
var out = @zeros([16]i16);
var n: u16 = 2;
const known = @get_dsd(mem4d_dsd, .{ .base_address = &out, .extent = .{ 2, 2 }, .stride = [2]i16{ 8, 1 } });
const dense = @get_dsd(mem4d_dsd, .{ .base_address = &out, .offset = 4, .extent = .{ 2, 2 } });
---
@mov16(known, 1);
@mov16(dense, 2);
@mov16(@get_dsd(mem4d_dsd, .{ .base_address = &out, .offset = 3, .extent = .{ n, 2 }, .stride = .{ 10, 0 } }), 5);
@mov16(@get_dsd(mem4d_dsd, .{ .base_address = &out[14], .extent = .{ n - 1, 2 } }), 6);
""")
    assert pe["out"].tolist() == [1, 1, 0, 5, 2, 2, 2, 2, 1, 1, 0, 0, 0, 5, 6, 6]


def test_indices_of_wavelets_count_elements_of_a_tensor(tmp_path: Path, arch: str) -> None:
    layout = """layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{});
  @set_color_config(0, 0, @get_color(3), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } }); }"""
    pe = """
const ports = @import_module("ports.csl");
const c = @get_color(3);
const oq = @get_output_queue(3);
const iq = @get_input_queue(4);
var out = @zeros([8]u16);
var words = [3]u32{ 0x10005, 0x30006, 0x20007 };  // index, value
const sent = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> words[i] });
const grid = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> out[4 * i + j], .wavelet_index_offset = true });
task start() void {
  @mov32(ports.fabout(c, oq, 3, false), sent, .{ .async = true });
  @mov16(grid, ports.fabin(c, iq, 3), .{ .async = true });
}
comptime {
  @bind_local_task(start, @get_local_task_id(20));
  @activate(@get_local_task_id(20));
  if (@is_arch("wse3")) { @initialize_queue(oq, .{ .color = c }); @initialize_queue(iq, .{ .color = c }); }
}
"""
    run = Run(tmp_path, {"layout.csl": layout, "pe.csl": pe}, arch)
    # Elements 1, 3, 2 of the tensor are 1, 5, 4 of the array; a fourth element never comes.
    assert run.row("out") == [[0, 5, 0, 0, 7, 6, 0, 0]]


def test_constants_of_functions_have_addresses(one: One) -> None:
    pe = one("""
var out = @zeros([6]i16);
var i: i16 = 2;
const rest = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> out[i + 2] });
---
const table = [3]i16{ 4, 5, 6 };
const p: [*]const i16 = &table;
const q: *const [3]i16 = &table;
out[0] = p[i];
out[1] = q.*[i - 1];
@mov16(rest, @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> table[i] }));
""")
    assert pe["out"].tolist() == [6, 5, 4, 5, 6, 0]


def test_a_dsd_is_moved_to_an_array_by_its_name(one: One) -> None:
    pe = one("""
var out = @zeros([4]i16);
var other = @zeros([4]i16);
const moved = @set_dsd_base_addr(out_dsd, other);
---
@mov16(moved, 3);
var dsd = moved;
dsd = @set_dsd_length(@set_dsd_base_addr(dsd, out), 2);
@mov16(dsd, 4);
""")
    assert (pe["out"].tolist(), pe["other"].tolist()) == ([4, 4, 0, 0], [3, 3, 3, 3])


def test_registers_loaded_before_the_program_begins(one: One) -> None:
    pe = one("""
var out = @zeros([4]i16);
comptime {
  const register = @get_dsr(dsr_dest, 2);
  @load_to_dsr(register, out_dsd, .{ .save_address = true });
}
---
@mov16(@get_dsr(dsr_dest, 2), 7);
""")
    assert pe["out"].tolist() == [7, 7, 7, 7]


def test_settings_in_several_structs(one: One) -> None:
    pe = one("""
var out = @zeros([2]i16);
task done() void { out[1] += 1; }
comptime { @bind_local_task(done, @get_local_task_id(12)); }
fn add(id: local_task_id) void {
  const settings = .{ .activate = id, .simd_mode = .{ .simd_64 = true } };
  @add16(first, first, 5, @concat_structs(.{ .async = true }, settings));
}
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> out[i] });
---
add(@get_local_task_id(12));
""")
    assert pe["out"].tolist() == [5, 1]


def test_tasks_by_pointer(one: One) -> None:
    pe = one("""
var out = @zeros([4]i16);
task one() void { out[0] += 1; }
task two() void { out[1] += 1; }
task three() void { out[2] += 1; }
comptime {
  @bind_local_task(one, @get_local_task_id(12));
  @bind_local_task(two, @get_local_task_id(13));
  @bind_local_task(three, @get_local_task_id(14));
}
const Callback = *const task () void;
var table: [2]Callback = .{ &one, &two };
fn then(comptime callback: task () void) void { @mov16(out_dsd, out_dsd, .{ .async = true, .activate = callback }); }
---
for (@range(u16, 2)) |k| { @activate(table[k]); }
then(three);
""")
    assert pe["out"].tolist() == [1, 1, 1, 0]


def test_calls_with_known_arguments_take_no_cycles(on_wse3: One) -> None:
    pe = on_wse3("""
var out = @zeros([4]f32);
var sum: f32 = 0.0;
fn square(x: f32) f32 { return x * x; }
fn counted(x: f32) f32 { sum += x; return sum; }
fn long(n: u16) f32 { var x: f32 = 0.0; for (@range(u16, n)) |_| { x += 1.0; } return x; }
---
out[0] = square(3.0);
out[1] = counted(2.0) + counted(2.0);
out[2] = long(2000);
""")
    assert pe["out"].tolist() == [9.0, 6.0, 2000.0, 0.0]
    code = pe.program.programs[0].code
    assert ("def square" in code, "def counted" in code, "def long" in code) == (False, True, True)


def test_files_beside_the_layout_and_params_that_nobody_uses(tmp_path: Path) -> None:
    layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "kernels/pe.csl", .{}); }'
    pe = 'param unused: i16; const m = @import_module("shared/m.csl"); comptime { @comptime_assert(m.n == 3); }'
    layout_of(tmp_path, layout, {"kernels/pe.csl": pe, "shared/m.csl": "param also; const n = 3;"})


REFUSED = r"""
var n: u16 = 2;↵---↵@mov16(@get_dsd(mem4d_dsd, .{ .base_address = &out, .extent = .{ 2, n } }), 1);
  a DSD needs .stride where an extent but the first is known at run time alone
var n: u16 = 2;↵---↵@mov16(@get_dsd(mem4d_dsd, .{ .base_address = &out, .extent = .{ n, 2 }, .stride = 1 }), 1);
  a DSD has a stride for each extent, got 2 and 1
var n: u16 = 2;↵---↵@mov16(@get_dsd(mem1d_dsd, .{ .base_address = &out, .extent = .{ n, 2 }, .stride = .{ 1, 2 } }), 1);
  a mem1d_dsd has one variable, got 2 (mem4d_dsd has up to 4)
var n: u16 = 2;↵---↵@mov16(@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> out[i, i] }), 1);
  [4]i16 takes 1 index, got 2
var x: i16 = 2;↵---↵@mov16(@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> x[i] }), 1);
  a tensor access goes over an array, got *i16
const d = @get_dsd(mem4d_dsd, .{ .base_address = &out, .extent = .{ 2, 2 }, .stride = .{ 1 } });↵---↵@mov16(d, 1);
  a DSD has a stride for each extent, got 2 and 1
var n: u16 = 2;↵---↵@mov16(out_dsd, n, @concat_structs(.{ .async = true }, .{ .async = true, .index = n }));
  @concat_structs takes different fields, got 'async' twice
var n: u16 = 2;↵---↵@mov16(out_dsd, n, @concat_structs(.{ .index = n }, n));
  @concat_structs takes anonymous structs here, got u16
task t() void {}↵comptime { @bind_local_task(t, @get_local_task_id(9)); }↵var p: *const task () void = &t;↵---↵p();
  a task is activated, not called (@activate(p))
task t() void {}↵---↵@activate(&t); ==> 't' is not bound to a task id (@bind_local_task(t, ...))
comptime { @load_to_dsr(@get_dsr(dsr_dest, 0), 5); }↵---↵ ==> @load_to_dsr takes a DSD, got comptime_int
"""


@pytest.mark.parametrize(("program", "message"), cases(REFUSED))
def test_refused(on_wse3: One, program: str, message: str) -> None:
    with pytest.raises(CslError) as error:
        on_wse3(f"var out = @zeros([4]i16);\n{program}")
    assert said(error.value).partition(" | ")[0] == message
