"""Programs on routes: switches, control wavelets, filters, layouts of several modules, teardown, registers."""

from pathlib import Path

import pytest

from cstool.csl.fabric.errors import SimulationError
from tests.unit.csl.language.many_pes import Run

SENDER = """
param c: color;
const ports = @import_module("ports.csl");
const ctrl = @import_module("<control>");
const queue = @get_output_queue(2);
const one = ports.fabout(c, queue, 1, false);
const command = ports.fabout(c, queue, 1, true);
var got = @zeros([1]u16);
task main() void {
BODY
}
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  if (@is_arch("wse3")) @initialize_queue(queue, .{ .color = c });
}
"""
RECEIVER = """
param c: color;
const ports = @import_module("ports.csl");
const tile_config = @import_module("<tile_config>");
const queue = @get_input_queue(2);
var got = @zeros([12]u16);
var count: u16 = 0;
task take(word: u16) void {
  got[count] = word;
  count += 1;
BODY
}
comptime {
  @bind_data_task(take, ports.data_task(c, queue));
  @initialize_queue(queue, .{ .color = c, .priority = .{ .high = true } });
}
"""


def pair(sender: str, receiver: str = "") -> dict[str, str]:
    return {"send.csl": SENDER.replace("BODY", sender), "take.csl": RECEIVER.replace("BODY", receiver)}


ROW = """
const c: color = @get_color(3);
const width = 4;
layout {
  @set_rectangle(width, 1);
  @set_tile_code(0, 0, "send.csl", .{ .c = c });
  @set_color_config(0, 0, c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  for (@range(i16, 1, width, 1)) |x| {
    @set_tile_code(x, 0, "take.csl", .{ .c = c });
    CONFIG
  }
}
"""


def test_eight_commands_packed_by_hand_reach_router_after_router(tmp_path: Path, arch: str) -> None:
    config = """
    const tx = if (x == width - 1) .{ RAMP } else .{ RAMP, EAST };
    const both = .{ .pos1 = .{ .tx = RAMP }, .ring_mode = true, .pop_mode = .{ .always_pop = true } };
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx }, .switches = both });"""
    # all eight are hidden from CEs; each router behind the sender's takes one off
    send = """
  const commands = [8]u32{ 0, 0, 0, 1, 1, 0, 0, 0 };
  var bits: u32 = 0;
  for (@range(u16, 8)) |k| { bits |= (commands[k] | 4) << 3 * k; }
  @mov32(command, (bits & 0xff) << 22 | 31 << 16 | bits >> 8);
  @mov16(one, 7);"""
    layout = ROW.replace("CONFIG", config).replace("width = 4", "width = 6")
    run = Run(tmp_path, {"layout.csl": layout, **pair(send)}, arch)
    # PE 4 went on to position 1, from where nothing goes east
    assert [got[0] for got in run.row("got")] == [0, 7, 7, 7, 7, 0]


def test_a_filter_that_counts_is_set_anew_at_run_time(tmp_path: Path, arch: str) -> None:
    config = """
    const tx = if (x == width - 1) .{ RAMP } else .{ RAMP, EAST };
    const counter = .{
      .kind = .{ .counter = true }, .count_data = true, .count_control = false,
      .init_counter = 0, .limit1 = 3, .max_counter = x, .fast_mode = true,
    };
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx }, .filter = counter });"""
    # some time lies between two wavelets
    send = """
  sent += 1;
  @mov16(one, sent);
  var spin: u16 = 0;
  while (spin < 50) : (spin += 1) {}
  if (sent < 12) @activate(@get_local_task_id(9));"""
    change = """
  if (word == 5) tile_config.filters.set_max_counter(@get_filter_id(c), 0);
  if (word == 9) tile_config.filters.set_counter(@get_filter_id(c), 3);"""
    files = pair(send, change)
    files["send.csl"] = files["send.csl"].replace("task main", "var sent: u16 = 0;\ntask main")
    run = Run(tmp_path, {"layout.csl": ROW.replace("CONFIG", config), **files}, arch)
    # 5 and 9 begin a round of four; from 5 on one of a round passes; what follows 9 ends a round at once
    assert run.row("got")[1:] == [
        [1, 2, 5, 9, 11, *[0] * 7],
        [1, 2, 3, 5, 9, 11, *[0] * 6],
        [1, 2, 3, 4, 5, 9, 11, *[0] * 5],
    ]


def test_teardown_stops_a_color_until_its_task_sets_new_routes(tmp_path: Path, arch: str) -> None:
    config = """
    const tx = if (x == width - 1) .{ RAMP } else .{ EAST };
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx } });"""
    send = """
  @mov16(one, 5);
  @mov32(command, ctrl.encode_single_payload(ctrl.opcode.TEARDOWN, true, {}, 0));
  @mov16(one, 6);"""
    handler = """
task ended() void {
  if (tile_config.teardown.is_pending(tile_config.teardown.get_pending(), c)) {
    handled[0] += 1;
    tile_config.color_config.reset_routes(c, .{ .rx = .{ FROM }, .tx = .{ TO } });
    tile_config.teardown.exit(c);
  }
}
comptime {
  @bind_local_task(ended, tile_config.teardown.get_task_id());
}
"""
    count = "var handled = @zeros([1]u16);\n"
    files = pair(send)
    library = 'const tile_config = @import_module("<tile_config>");\n'
    files["send.csl"] += library + count + handler.replace("FROM", "RAMP").replace("TO", "EAST")
    files["take.csl"] += count + handler.replace("FROM", "WEST").replace("TO", "RAMP")
    layout = ROW.replace("CONFIG", config).replace("width = 4", "width = 3")
    run = Run(tmp_path, {"layout.csl": layout, **files}, arch)
    # the command has come everywhere; then PE 1 keeps for itself what it handed on before
    assert run.row("handled") == [[1], [1], [1]]
    assert [got[:2] for got in run.row("got")[1:]] == [[6, 0], [5, 0]]


def test_on_wse2_a_stream_has_the_queue_of_its_color_and_control_needs_none(tmp_path: Path) -> None:
    send = """
param c: color;
const ctrl = @import_module("<control>");
const out = @get_dsd(fabout_dsd, .{ .extent = 3, .fabric_color = c });
const command = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(4), .control = true });
task main() void {
  @mov16(out, 7);
  @mov32(command, ctrl.encode_single_payload(ctrl.opcode.NOP, false, @get_control_task_id(40), 9));
}
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
}
"""
    take = """
param c: color;
const in = @get_dsd(fabin_dsd, .{ .extent = 3, .fabric_color = c });
var got = @zeros([4]u16);
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> got[i] });
task main() void { @mov16(first, in); }
task called(data: u16) void { got[3] = data; }
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @bind_control_task(called, @get_control_task_id(40));
}
"""
    config = """
    for (@range(u16, 2)) |k| {
      @set_color_config(x, 0, @get_color(3 + k), .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
    }
    @set_color_config(0, 0, @get_color(4), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });"""
    layout = ROW.replace("CONFIG", config).replace("width = 4", "width = 2")
    run = Run(tmp_path, {"layout.csl": layout, "send.csl": send, "take.csl": take}, "wse2")
    run.simulation.run_until()
    assert run.array("got", 1).tolist() == [7, 7, 7, 9]


def test_handlers_give_an_output_queue_another_color_once_it_is_empty(tmp_path: Path) -> None:
    send = """
param c: color;
const d = @get_color(4);
const tile_config = @import_module("<tile_config>");
const flush = @import_module("<queue_flush>");
const queue = @get_output_queue(2);
const out = @get_dsd(fabout_dsd, .{ .extent = 5, .output_queue = queue });
const next = @get_local_task_id(10);
var handled = @zeros([1]u16);
task main() void { @mov16(out, 7, .{ .async = true, .activate = next }); }
task flushes() void { @queue_flush(queue); }
fn empty() void {
  handled[0] += 1;
  tile_config.output_queue_config.encode_output_queue(queue, d);
  @mov16(out, 8, .{ .async = true });
  flush.exit(queue);
}
fn never() void { handled[0] += 100; }
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @bind_local_task(flushes, next);
  @activate(@get_local_task_id(9));
  @initialize_queue(queue, .{ .color = c });
  @set_empty_queue_handler(empty, queue);
  @set_teardown_handler(never, d);
}
"""
    take = """
const one_queue = @get_input_queue(2);
const two_queue = @get_input_queue(3);
var got = @zeros([2]u16);
task one(word: u16) void { got[0] += word; }
task two(word: u16) void { got[1] += word; }
comptime {
  @initialize_queue(one_queue, .{ .color = @get_color(3) });
  @initialize_queue(two_queue, .{ .color = @get_color(4) });
  @bind_data_task(one, @get_data_task_id(one_queue));
  @bind_data_task(two, @get_data_task_id(two_queue));
}
"""
    config = """
    for (@range(u16, 2)) |k| {
      @set_color_config(x, 0, @get_color(3 + k), .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
    }
    @set_color_config(0, 0, @get_color(4), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });"""
    layout = ROW.replace("CONFIG", config).replace('"take.csl", .{ .c = c }', '"take.csl", .{}')
    layout = layout.replace("width = 4", "width = 2")
    run = Run(tmp_path, {"layout.csl": layout, "send.csl": send, "take.csl": take})
    run.simulation.run_until()
    assert run.array("handled").tolist() == [1]
    assert run.array("got", 1).tolist() == [35, 40]


def test_an_input_queue_takes_another_color_once_it_is_empty(tmp_path: Path) -> None:
    send = """
param c: color;
const one_queue = @get_output_queue(2);
const two_queue = @get_output_queue(3);
task main() void {
  @mov16(@get_dsd(fabout_dsd, .{ .extent = 3, .output_queue = one_queue }), 7);
  @mov16(@get_dsd(fabout_dsd, .{ .extent = 1, .output_queue = two_queue }), 9);
}
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @initialize_queue(one_queue, .{ .color = c });
  @initialize_queue(two_queue, .{ .color = @get_color(4) });
}
"""
    take = """
param c: color;
const tile_config = @import_module("<tile_config>");
const queue = @get_input_queue(2);
const in = @get_dsd(fabin_dsd, .{ .extent = 3, .input_queue = queue });
var got = @zeros([4]u16);
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> got[i] });
const last = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> got[i + 3] });
task main() void {
  @mov16(first, in);
  tile_config.input_queue_config.encode_input_queue(queue, @get_color(4));
  @mov16(last, in);
}
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @initialize_queue(queue, .{ .color = c });
}
"""
    config = """
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
    for (@range(u16, 2)) |at| {
      const way = if (at == 0) .{ .rx = .{ RAMP }, .tx = .{ EAST } } else .{ .rx = .{ WEST }, .tx = .{ RAMP } };
      @set_color_config(at, 0, @get_color(4), .{ .routes = way });
    }"""
    layout = ROW.replace("CONFIG", config).replace("width = 4", "width = 2")
    run = Run(tmp_path, {"layout.csl": layout, "send.csl": send, "take.csl": take})
    run.simulation.run_until()
    assert run.array("got", 1).tolist() == [7, 7, 7, 9]


TWO_COLORS = """
param c: color;
const d = @get_color(4);
const queue = @get_input_queue(0);
const in_c = @get_dsd(fabin_dsd, .{ .extent = 3, .fabric_color = c, .input_queue = queue });
const in_d = @get_dsd(fabin_dsd, .{ .extent = 2, .fabric_color = d, .input_queue = queue });
var got = @zeros([5]u16);
const first = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> got[i] });
const last = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> got[i + 2] });
const next = @get_local_task_id(10);
task main() void { BODY }
task more() void { @mov16(last, in_c); }
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @bind_local_task(more, next);
  @activate(@get_local_task_id(9));
}
"""
BOTH_COLORS = """
    const from = .{ .rx = .{ WEST }, .tx = .{ RAMP } };
    @set_color_config(x, 0, c, .{ .routes = from });
    @set_color_config(x, 0, @get_color(4), .{ .routes = from });
    @set_color_config(0, 0, @get_color(4), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });"""


def two_colors(path: Path, body: str) -> Run:
    """PE 0 sends 3 times 7 by color 3, then 8 and 9 by color 4; PE 1 takes all through one queue."""
    send = """
param c: color;
const d = @get_color(4);
const eight = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = d, .output_queue = @get_output_queue(3) });
const sevens = @get_dsd(fabout_dsd, .{ .extent = 3, .fabric_color = c, .output_queue = @get_output_queue(2) });
task main() void { @mov16(sevens, 7); @mov16(eight, 8); @mov16(eight, 9); }
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
}
"""
    layout = ROW.replace("CONFIG", BOTH_COLORS).replace("width = 4", "width = 2")
    return Run(path, {"layout.csl": layout, "send.csl": send, "take.csl": TWO_COLORS.replace("BODY", body)}, "wse2")


def test_an_input_queue_takes_the_color_that_each_operation_names(tmp_path: Path) -> None:
    # color 3 comes first, and waits in the router for the second operation
    run = two_colors(tmp_path, "@mov16(first, in_d); @mov16(last, in_c);")
    run.simulation.run_until()
    assert run.array("got", 1).tolist() == [8, 9, 7, 7, 7]


def test_an_operation_that_waits_for_the_microthread_of_its_queue_names_a_color_too(tmp_path: Path) -> None:
    run = two_colors(tmp_path, "@mov16(first, in_d, .{ .async = true }); @mov16(last, in_c, .{ .async = true });")
    run.simulation.run_until()
    assert run.array("got", 1).tolist() == [8, 9, 7, 7, 7]


def test_a_task_may_change_what_was_sent_before_the_operation_that_waits_for_the_same_microthread(
    tmp_path: Path,
) -> None:
    sender = """
  @mov16(four, values, .{ .async = true });
  again();
  for (@range(u16, 4)) |i| { data[i] = 0; }
}
fn again() void { @mov16(two, 9, .{ .async = true }); }
const four = ports.fabout(c, queue, 4, false);
const two = ports.fabout(c, queue, 2, false);
var data = [4]u16{ 1, 2, 3, 4 };
const values = @get_dsd(mem1d_dsd, .{ .base_address = &data, .extent = 4 });
fn unused() void {"""
    receives = "@set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });"
    layout = ROW.replace("CONFIG", receives).replace("width = 4", "width = 2")
    run = Run(tmp_path, {"layout.csl": layout, **pair(sender)}, "wse2")
    run.simulation.run_until()
    assert run.array("got", 1).tolist() == [1, 2, 3, 4, 9, 9, 0, 0, 0, 0, 0, 0]


def test_an_input_queue_that_holds_wavelets_of_one_color_takes_no_other(tmp_path: Path) -> None:
    short = "@set_dsd_length(in_c, 1)"
    spin = "var spin: u16 = 0; while (spin < 50) : (spin += 1) {}"
    run = two_colors(tmp_path, f"@mov16(@set_dsd_length(last, 1), {short}); {spin} @mov16(first, in_d);")
    with pytest.raises(SimulationError) as error:
        run.simulation.run_until()
    assert "input queue 0 gets another color, it must be empty, it has 2 wavelets" in str(error.value)
    assert error.value.hint == "take all wavelets of color 3 first, or give each color a queue"
