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
