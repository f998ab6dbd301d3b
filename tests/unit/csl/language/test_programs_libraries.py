"""Programs on small libraries and builtins: random numbers, printing, traces, priorities, control in DSDs."""

from pathlib import Path

from tests.unit.csl.language.many_pes import One, Run


def test_generators_of_random_bits_go_on_by_themselves(one: One) -> None:
    found = one("""
var mixed = @zeros([8]u16);
var alone = @zeros([4]u16);
---
for (@range(u16, 8)) |i| { @set_active_prng(i & 1); mixed[i] = @random16(); }
@set_active_prng(2);
for (@range(u16, 4)) |i| alone[i] = @random16();
""")
    numbers = [*found["mixed"].tolist(), *found["alone"].tolist()]
    assert len(set(numbers)) == len(numbers)
    # xorshift32 from the state 2463534242: 723471715, 2497366906, ... (Marsaglia 2003)
    assert [found["mixed"][0], found["mixed"][2]] == [723471715 >> 16, 2497366906 >> 16]


def test_priorities_are_taken(one: One) -> None:
    assert one("""
const tile_config = @import_module("<tile_config>");
const tasks = @import_module("<tile_config/task_priority>");
var kept = @zeros([2]u16);
---
tile_config.main_thread_priority.update_main_thread_priority(tile_config.main_thread_priority.level.MEDIUM_LOW);
tasks.update_task_priority(@get_local_task_id(20), tasks.level.HIGH);
kept[0] = @get_config(tile_config.addresses.MAIN_PRIORITY);
kept[1] = @get_config(tile_config.addresses.PRIORITIES + 20);
""")["kept"].tolist() == [1, 1]


def test_control_tasks_of_a_table_have_ids_of_their_own(on_wse3: One) -> None:
    pe = on_wse3("""
const control = @import_module("<control>");
var out = @zeros([3]u16);
var payload = @zeros([1]u32);
const c = @get_color(3);
const to = @get_output_queue(2);
const from = @get_input_queue(2);
const send = @get_dsd(fabout_dsd, .{ .extent = 1, .output_queue = to, .control = true });
task told(data: u16) void { out[0] = data; @activate(@get_local_task_id(10)); }
task local() void { out[1] = out[0] + 1; }
comptime {
  @bind_control_task(told, @get_control_task_id(10));
  @bind_local_task(local, @get_local_task_id(10));
  @set_control_task_table(.{ .instructions = 8, .stride = 2 });
  @initialize_queue(from, .{ .color = c });
  @initialize_queue(to, .{ .color = c });
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}
---
payload[0] = control.encode_single_payload(control.opcode.NOP, false, @get_control_task_id(10), 41);
@mov32(send, payload_dsd);
out[2] = control.MAX_CMDS;
comptime { @assert(control.MAX_CMDS == 8); }
""")
    assert pe["out"].tolist() == [41, 42, 8]


def test_a_task_of_high_priority_runs_first(one: One) -> None:
    assert one("""
const priority = @import_module("<tile_config/task_priority>");
const first = @get_local_task_id(21);
const second = @get_local_task_id(22);
var order = @zeros([2]u16);
var count: u16 = 0;
task one() void { order[count] = 1; count += 1; }
task two() void { order[count] = 2; count += 1; }
comptime {
  @bind_local_task(one, first);
  @bind_local_task(two, second);
}
---
priority.update_task_priority(second, priority.level.HIGH);
@activate(first);
@activate(second);
""")["order"].tolist() == [2, 1]


def test_what_is_printed_and_traced(one: One) -> None:
    found = one("""
const print = @import_module("<simprint>");
const silent = @import_module("<simprint>", .{ .enable = false });
const trace = @import_module("<debug>", .{ .key = "steps", .buffer_size = 50 });
---
const half: f32 = 2.5;
const minus: i16 = -3;
print.fmt("x = {d}, y = {f}", .{ minus, half });
silent.fmt("x = {}", .{minus});
silent.print_u16_decimal(1);
print.fmt_no_nl("{} and {d}", .{ half, minus });
print.print_string(", {as it is}\\n");
print.fmt_with_coords("{x} {s}", .{ @as(u16, 255), "end" });
print.fmt_no_nl_with_coords("bare ", .{});
print.print_i16_decimal(minus);
print.print_string(" ");
print.print_u32_hex(0xabcdef);
print.print_string("\\n");
trace.trace_f32(half);
trace.trace_i16(minus);
trace.trace_string("done");
print.print_f32(half);
""")
    found.simulation.end_lines()
    assert found.said == [
        "x = -3, y = 2.5",
        "2.5 and -3, {as it is}",
        "PE 0.0: ff end",
        "PE 0.0: bare -3 abcdef",
        "trace steps 2.5",
        "trace steps -3",
        "trace steps done",
        "2.5",
    ]


STREAM = """
const c = @get_color(3);
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "send.csl", .{ .c = c });
  @set_tile_code(1, 0, "take.csl", .{ .c = c });
  @set_color_config(0, 0, c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  @set_color_config(1, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
}
"""
SEND = """
param c: color;
const ports = @import_module("ports.csl");
const ctrl = @import_module("<control>");
const queue = @get_output_queue(2);
const out = ports.fabout(c, queue, 4, false);
const end = ports.fabout(c, queue, 1, true);
var got = [4]f32{ 1.0, 2.0, 3.0, 4.0 };
const data = @get_dsd(mem1d_dsd, .{ .base_address = &got, .extent = 4 });
const ids = [3]local_task_id{ @get_local_task_id(9), @get_local_task_id(10), @get_local_task_id(11) };
task first() void { @fmovs(out, data, .{ .async = true, .activate = ids[1] }); }
task second() void {
  const payload = ctrl.encode_control_task_payload(@get_control_task_id(43));
  @mov32(end, payload, .{ .async = true, .activate = ids[2] });
}
task third() void { @fmovs(out, data, .{ .async = true }); }
comptime {
  @bind_local_task(first, ids[0]);
  @bind_local_task(second, ids[1]);
  @bind_local_task(third, ids[2]);
  @activate(ids[0]);
  if (@is_arch("wse3")) @initialize_queue(queue, .{ .color = c });
}
"""
TAKE = """
param c: color;
const ports = @import_module("ports.csl");
const queue = @get_input_queue(2);
var got = @zeros([12]f32);
comptime {
  @initialize_queue(queue, .{ .color = c });
}
"""


def test_a_control_wavelet_ends_an_operation_of_unknown_length(tmp_path: Path, arch: str) -> None:
    take = """
const many = ports.fabin(c, queue, 100);
const start = @get_local_task_id(9);
const then = @get_local_task_id(10);
task main() void {
  const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{100} -> got[i] });
  @fmovs(to, many, .{ .async = true, .on_control = .{ .terminate = true }, .activate = then });
}
task rest() void {
  got[11] = 99.0;
  const to = @get_dsd(mem1d_dsd, .{ .base_address = &got, .offset = 5, .extent = 4 });
  @fmovs(to, @set_dsd_length(many, 4), .{ .async = true });
}
comptime {
  @bind_local_task(main, start);
  @bind_local_task(rest, then);
  @activate(start);
}
"""
    run = Run(tmp_path, {"layout.csl": STREAM, "send.csl": SEND, "take.csl": TAKE + take}, arch)
    assert run.row("got")[1] == [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 0, 99]


def test_data_and_control_of_one_color_call_different_tasks(tmp_path: Path, arch: str) -> None:
    take = """
var count: u16 = 0;
task each(value: f32) void {
  got[count] = value;
  count += 1;
}
task between() void {
  got[count] = -1.0;
  count += 1;
}
comptime {
  @bind_data_task(each, ports.data_task(c, queue));
  @bind_control_task(between, @get_control_task_id(43));
}
"""
    run = Run(tmp_path, {"layout.csl": STREAM, "send.csl": SEND, "take.csl": TAKE + take}, arch)
    assert run.row("got")[1] == [1, 2, 3, 4, -1, 1, 2, 3, 4, 0, 0, 0]
