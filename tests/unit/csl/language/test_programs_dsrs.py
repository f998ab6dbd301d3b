"""Registers for DSDs, circular buffers, lengths of FIFOs, `@dfilt`, `.saturate`, and names of older SDKs."""

from pathlib import Path

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.comptime_cases import bad_program, program_of, said, value
from tests.unit.csl.language.many_pes import One, Run
from tests.unit.csl.language.shown import cases


def test_circular_buffers(one: One) -> None:
    pe = one("""
var out = @zeros([6]i16);
var all = @zeros([8]i16);
var ring = [5]i16{ 1, 2, 3, 4, 5 };
const whole = @get_dsd(circbuf_dsd, .{ .base_address = &ring, .extent = 8 });
const part = @get_dsd(circbuf_dsd, .{ .base_address = &ring, .extent = 3, .wraparound = 4, .offset = 2 });
const source = @get_dsr(dsr_src1, 2);
comptime { @load_to_dsr_xdsr(source, @get_xdsr(3), part, .{ .save_address = true }); }
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> out[i] });
const second = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> out[i + 3] });
---
@mov16(first, source);
@mov16(second, source);
@mov16(all_dsd, whole);
@add16(part, part, 10);
@mov16(all_dsd, whole);
""")
    # The register goes on where the operation before ended.
    assert pe["out"].tolist() == [3, 4, 1, 2, 3, 4]
    assert pe["all"].tolist() == [11, 2, 13, 14, 5, 11, 2, 13]


def test_a_circular_buffer_that_is_written_more_than_once_around(one: One) -> None:
    pe = one("""
var ring = @zeros([3]i16);
var values = [5]i16{ 1, 2, 3, 4, 5 };
---
@mov16(@get_dsd(circbuf_dsd, .{ .base_address = &ring, .extent = 5 }), values_dsd);
""")
    assert pe["ring"].tolist() == [4, 5, 3]


def test_tensors_in_registers(one: One) -> None:
    pe = one("""
var out = @zeros([8]i16);
const corners = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> out[4 * i + j] });
const both = @get_dsr(dsr_src0, 0);
---
@load_to_dsr_xdsr_sr(@get_dsr(dsr_dest, 1), @get_xdsr(1), .{ @get_sr(0), @get_sr(1) }, corners);
@mov16(@get_dsr(dsr_dest, 1), 3);
@load_to_dsr_xdsr_sr(both, @get_xdsr(1), @get_sr(2), corners);
@add16(both, both, 4);
""")
    assert pe["out"].tolist() == [7, 7, 0, 0, 7, 7, 0, 0]


def test_numbers_of_registers() -> None:
    assert value("@get_int(@get_dsr(dsr_fifo_src1, @get_dsr(dsr_src1, 6)))") == 6


def test_lengths_of_fifos(one: One) -> None:
    pe = one("""
var out = @zeros([4]i16);
var one_buffer = @zeros([6]i16);
var other_buffer = @zeros([6]i16);
const one = @allocate_fifo(one_buffer, .{ .full_action = .{ .test_or_suspend = true } });
const other = @allocate_fifo(other_buffer);
var count: i16 = 0;
fn next() i16 { count += 1; return count; }
---
@set_fifo_write_length(one, 3);
@map(next, one);
@set_fifo_read_length(one, @as(u16, count) - 1);
@mov16(other, one);
@mov16(out_dsd, other);
""")
    assert pe["out"].tolist() == [1, 2, 0, 0]


def test_saturation(one: One) -> None:
    pe = one("""
var sum = [4]i16{ 30000, -30000, 5, 32767 };
var difference = [4]i16{ -30000, 30000, 5, -1 };
var b = [4]i16{ 30000, -30000, 5, -1 };
---
@add16(sum_dsd, sum_dsd, b_dsd, .{ .saturate = true });
@sub16(difference_dsd, difference_dsd, b_dsd, .{ .saturate = true, .async = true });
""")
    assert pe["sum"].tolist() == [32767, -32768, 10, 32766]
    assert pe["difference"].tolist() == [-32768, 32767, 0, 0]


def test_wavelets_are_dropped_up_to_some_control_wavelets(tmp_path: Path, arch: str) -> None:
    layout = """layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{});
  @set_color_config(0, 0, @get_color(3), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } }); }"""
    pe = """
const ports = @import_module("ports.csl");
const control = @import_module("<control>");
color c = @get_color(3);
const oq = @get_output_queue(3);
const iq = @get_input_queue(4);
const nothing = comptime control.encode_single_payload(control.opcode.NOP, false, {}, 0);
const one = ports.fabout(c, oq, 1, false);
const command = ports.fabout(c, oq, 1, true);
const two_in = ports.fabin(c, iq, 2);
var out = @zeros([2]u32);
const two = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> out[i] });
task take() void { @mov32(two, two_in, .{ .async = true }); }
task start() void {
  @dfilt(two_in, .{ .async = true, .activate = take });
  @mov32(one, 5);
  @mov32(command, nothing);
  @mov32(one, 6);
  @mov32(command, nothing);
  @mov32(one, 7);
  @mov32(one, 8);
}
comptime {
  @bind_task(take, @get_local_task_id(19));
  @bind_task(start, @get_local_task_id(20));
  @activate(start);
  if (@is_arch("wse3")) { @initialize_queue(oq, .{ .color = c }); @initialize_queue(iq, .{ .color = c }); }
}
"""
    assert Run(tmp_path, {"layout.csl": layout, "pe.csl": pe}, arch).row("out") == [[7, 8]]


def test_names_of_older_sdks() -> None:
    """As SDK 0.9 has them: a color in the place of a task's id, and of a parameter's type."""
    instance = program_of(
        """
color data;
color done = @get_color(9);
task take(x: f32) void {}
task stop() void {}
comptime {
  @bind_task(take, data);
  @bind_task(stop, done);
  @comptime_assert(@get_color_id(data) == 4);
  @comptime_assert(@strlen(@get_string_from_byte(65)) == 1);
}
""",
        "wse2",
        data=value("@get_color(4)") and (value("color"), 4),
    )
    assert [(number, bound.root.kind) for number, bound in instance.tasks.items()] == [(4, "data"), (9, "local")]


def test_a_pointer_to_one_is_one_to_an_array_of_one(one: One) -> None:
    pe = one("""
var out = @zeros([2]i16);
fn set(p: *[1]i16) void { (p.*)[0] = 4; }
---
set(&out[1]);
""")
    assert pe["out"].tolist() == [0, 4]


REFUSED = r"""
const d = @get_dsd(circbuf_dsd, .{ .base_address = p, .extent = 4 });
  a circbuf_dsd needs .wraparound, or the address of an array
const d = @get_dsd(circbuf_dsd, .{ .base_address = p, .extent = 4, .wraparound = 0 });
  a circbuf_dsd wraps around behind 1 element or more, got 0
const d = @allocate_fifo(out, .{ .full_action = .{ .fault = true } });
  .full_action is simulated as test_or_suspend alone, got comptime_struct .{ .fault = true }
@get_dsr(dsr_src1, @get_dsr(dsr_dest, 1));
  @get_dsr takes an integer, got dsr_dest Dsr(file='dest', number=1)
@set_dsr_length(1, 2);
  @set_dsr_length is of an SDK before 1.0 (load the register again: @load_to_dsr(r, @set_dsd_length(d, n)))
@bind_rotating_tasks(1, 2, 3);
  @bind_rotating_tasks is not supported: tasks that take turns are not simulated; count in the task itself
"""


@pytest.mark.parametrize(("block", "message"), cases(REFUSED))
def test_refused(block: str, message: str) -> None:
    before = "var out = @zeros([4]i16); const p: [*]i16 = &out;"
    assert bad_program(f"{before}\ncomptime {{ {block} }}") == message


REFUSED_AT_RUN_TIME = r"""
@dfilt(out_dsd); ==> @dfilt takes a fabin_dsd or a dsr_src1, got mem1d_dsd
@load_to_dsr_xdsr(@get_dsr(dsr_dest, 0), @get_sr(0), out_dsd);
  @load_to_dsr_xdsr takes an xdsr here, got sr (@get_xdsr(0))
@set_fifo_read_length(out_dsd, 3); ==> @set_fifo_read_length takes a FIFO that is known at compile time, got mem1d_dsd
"""


@pytest.mark.parametrize(("body", "message"), cases(REFUSED_AT_RUN_TIME))
def test_refused_at_run_time(on_wse3: One, body: str, message: str) -> None:
    with pytest.raises(CslError) as error:
        on_wse3(f"var out = @zeros([4]i16);\n---\n{body}")
    assert said(error.value).partition(" | ")[0] == message
