"""Programs on routes: switches, control wavelets, filters, layouts of several modules, teardown, registers."""

from pathlib import Path

import pytest

from tests.unit.csl.many_pes import Run

pytestmark = pytest.mark.parametrize("arch", ["wse2", "wse3"])

SENDER = """
param c: color;
const ports = @import_module("ports.csl");
const ctrl = @import_module("<control>");
const queue = @get_output_queue(2);
const one = ports.fabout(c, queue, 1, false);
const command = ports.fabout(c, queue, 1, true);
var got = @zeros([1]u16);
var got_ptr: [*]u16 = &got;
task main() void {
BODY
}
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  if (@is_arch("wse3")) @initialize_queue(queue, .{ .color = c });
  @export_symbol(got_ptr, "got");
}
"""
RECEIVER = """
param c: color;
const ports = @import_module("ports.csl");
const tile_config = @import_module("<tile_config>");
const queue = @get_input_queue(2);
var got = @zeros([12]u16);
var got_ptr: [*]u16 = &got;
var count: u16 = 0;
task take(word: u16) void {
  got[count] = word;
  count += 1;
BODY
}
comptime {
  @bind_data_task(take, ports.data_task(c, queue));
  @initialize_queue(queue, .{ .color = c, .priority = .{ .high = true } });
  @export_symbol(got_ptr, "got");
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
  @export_name("got", [*]u16, true);
}
"""


def test_a_command_packed_by_hand_moves_the_switch(tmp_path: Path, arch: str) -> None:
    config = """
    const routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } };
    if (x == width - 1) {
      @set_color_config(x, 0, c, .{ .routes = routes });
    } else {
      const on = .{ .pos1 = .{ .tx = EAST }, .pop_mode = .{ .pop_on_advance = true } };
      @set_color_config(x, 0, c, .{ .routes = routes, .switches = on });
    }"""
    send = """
  for (@range(u16, 3)) |k| {
    @mov16(one, 10 + k);
    @mov32(command, @as(u32, 1) << 24 | @as(u32, 1) << 22);
  }"""
    run = Run(tmp_path, {"layout.csl": ROW.replace("CONFIG", config), **pair(send)}, arch)
    assert [got[0] for got in run.row("got")] == [0, 10, 11, 12]


def test_eight_commands_packed_by_hand_reach_router_after_router(tmp_path: Path, arch: str) -> None:
    config = """
    const tx = if (x == width - 1) .{ RAMP } else .{ RAMP, EAST };
    const both = .{ .pos1 = .{ .tx = RAMP }, .ring_mode = true, .pop_mode = .{ .always_pop = true } };
    @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = tx }, .switches = both });"""
    # all eight are hidden from CEs; each router behind the sender's takes one off
    send = """
  const commands = [8]u32{ 0, 0, 0, 1, 1, 0, 0, 0 };
  var high: u32 = 0;
  var low: u32 = 0;
  for (@range(u16, 8)) |k| {
    const bits = commands[k] | 4;
    if (k < 3) { high |= bits << 3 * k; } else { low |= bits << 3 * (k - 3); }
  }
  @mov32(command, high << 22 | 31 << 16 | low);
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
      .init_counter = 0, .limit1 = x, .max_counter = 3,
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
  if (word == 5) tile_config.filters.set_active_limit(@get_filter_id(c), 0);
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


LAYOUT_OF_MODULES = """
param width: i16;
param height: i16;
param across: color;
const rows = @import_module("rows.csl", .{ .c = across, .width = width });
const columns = @import_module("helpers/columns.csl", .{ .c = @get_color(5) });
layout {
  @set_rectangle(width, height);
  const size = @get_rectangle();
  for (@range(i16, size.width)) |x| {
    for (@range(i16, size.height)) |y| {
      const place = .{ .x = x, .y = y };
      @set_tile_code(x, y, "pe.csl", @concat_structs(place, .{ .across = across, .down = @get_color(5) }));
    }
  }
  rows.configure(size.height);
  columns.configure(size.width, size.height);
  @export_name("got", [*]u32, true);
  @export_name("seen", [*]u16, true);
}
"""
ROWS = """
param c: color;
param width: i16;
fn one(x: i16, y: i16) void {
  const mine = .{ .kind = .{ .range = true }, .min_idx = 2 * x, .max_idx = 2 * x + 1 };
  if (x == 0) {
    @set_color_config(x, y, c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  } else if (x == width - 1) {
    @set_color_config(x, y, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } }, .filter = mine });
  } else {
    @set_color_config(x, y, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ EAST, RAMP } }, .filter = mine });
  }
}
fn configure(height: i16) void {
  var y: i16 = 0;
  while (y < height) : (y += 1) {
    for (@range(i16, width)) |x| one(x, y);
  }
}
"""
COLUMNS = """
param c: color;
const turns = @import_module("<directions>");
fn configure(width: i16, height: i16) void {
  for (@range(i16, width)) |x| {
    for (@range(i16, height)) |y| {
      const from = if (y == 0) RAMP else NORTH;
      const to = if (y == 0) .{ SOUTH } else if (y == height - 1) .{ RAMP } else .{ turns.rotate_180(NORTH), RAMP };
      @set_color_config(x, y, c, .{ .routes = .{ .rx = .{ from }, .tx = to } });
    }
  }
}
"""
PE_OF_MODULES = """
param x: i16;
param y: i16;
param across: color;
param down: color;
const ctrl = @import_module("<control>");
const ports = @import_module("ports.csl");
const out = ports.fabout(across, @get_output_queue(2), 8, false);
const out_down = ports.fabout(down, @get_output_queue(4), 1, true);
const in_queue = @get_input_queue(3);
const down_queue = @get_input_queue(5);
const with_data = @get_control_task_id(40);
const without = @get_control_task_id(41);
const start = @get_local_task_id(8);
const then = @get_local_task_id(10);
var words = @zeros([8]u32);
const words_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> words[i] });
var got = @zeros([2]u32);
var got_ptr: [*]u32 = &got;
var count: u16 = 0;
var seen = @zeros([3]u16);
var seen_ptr: [*]u16 = &seen;
task take(word: u32) void {
  got[count] = word;
  count += 1;
}
task told(data: u16) void {
  seen[0] += 1;
  seen[1] = data;
}
task called() void {
  seen[2] += 1;
}
task main() void {
  if (x == 0) {
    for (@range(u16, 8)) |i| words[i] = @as(u32, i) << 16 | 100 + @as(u32, i);
    @mov32(out, words_dsd, .{ .async = true });
  }
  if (y == 0) {
    const payload = ctrl.encode_single_payload(ctrl.opcode.NOP, false, with_data, 77);
    @mov32(out_down, payload, .{ .async = true, .activate = then });
  }
}
task second() void {
  @mov32(out_down, ctrl.encode_control_task_payload(without));
}
comptime {
  @bind_local_task(main, start);
  @bind_local_task(second, then);
  @activate(start);
  if (@is_arch("wse3")) {
    @initialize_queue(@get_output_queue(2), .{ .color = across });
    @initialize_queue(@get_output_queue(4), .{ .color = down });
  }
  if (x > 0) {
    @bind_data_task(take, ports.data_task(across, in_queue));
    @initialize_queue(in_queue, .{ .color = across });
  }
  if (y > 0) {
    @bind_control_task(told, with_data);
    @bind_control_task(called, without);
    @initialize_queue(down_queue, .{ .color = down });
  }
  @export_symbol(got_ptr, "got");
  @export_symbol(seen_ptr, "seen");
}
"""


def test_modules_configure_colors_and_control_wavelets_call_tasks(tmp_path: Path, arch: str) -> None:
    files = {
        "layout.csl": LAYOUT_OF_MODULES,
        "rows.csl": ROWS,
        "helpers/columns.csl": COLUMNS,
        "pe.csl": PE_OF_MODULES,
    }
    run = Run(tmp_path, files, arch, {"width": 3, "height": 2}, {"across": 4})
    for y in range(2):
        assert run.row("got", y) == [[0, 0], [2 << 16 | 102, 3 << 16 | 103], [4 << 16 | 104, 5 << 16 | 105]]
        assert run.row("seen", y) == [[0, 0, 0] if y == 0 else [1, 77, 1]] * 3


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
    count = "var handled = @zeros([1]u16);\nvar handled_ptr: [*]u16 = &handled;\n"
    count += 'comptime { @export_symbol(handled_ptr, "handled"); }\n'
    files = pair(send)
    library = 'const tile_config = @import_module("<tile_config>");\n'
    files["send.csl"] += library + count + handler.replace("FROM", "RAMP").replace("TO", "EAST")
    files["take.csl"] += count + handler.replace("FROM", "WEST").replace("TO", "RAMP")
    layout = ROW.replace("CONFIG", config).replace("width = 4", "width = 3")
    layout = layout.replace('@export_name("got"', '@export_name("handled", [*]u16, true);\n  @export_name("got"')
    run = Run(tmp_path, {"layout.csl": layout, **files}, arch)
    # the command has come everywhere; then PE 1 keeps for itself what it handed on before
    assert run.row("handled") == [[1], [1], [1]]
    assert [got[:2] for got in run.row("got")[1:]] == [[6, 0], [5, 0]]


def test_registers_of_a_color_are_written_at_run_time(tmp_path: Path, arch: str) -> None:
    layout = """
const c = @get_color(2);
layout {
  @set_rectangle(2, 1);
  for (@range(i16, 2)) |x| @set_tile_code(x, 0, "pe.csl", .{ .first = x == 0, .c = c });
  @export_name("got", [*]u16, true);
}
"""
    pe = """
param first: bool;
param c: color;
const ports = @import_module("ports.csl");
const tile_config = @import_module("<tile_config>");
const switches = tile_config.switch_config;
const in_queue = @get_input_queue(3);
const out_queue = @get_output_queue(2);
const one = ports.fabout(c, out_queue, 1, false);
const go = @get_local_task_id(9);
var got = @zeros([6]u16);
var got_ptr: [*]u16 = &got;
var count: u16 = 0;
var step: u16 = 0;
task take(word: u16) void {
  got[count] = word;
  count += 1;
}
// One step after the other, with time between them for what is sent.
task main() void {
  if (!first) return;
  step += 1;
  if (step % 20 == 1) @mov16(one, step / 20);
  if (step == 10) tile_config.color_config.reset_routes(c, .{ .rx = .{ RAMP }, .tx = .{ EAST } });
  if (step == 30) tile_config.color_config.set_output_routes(c, .{ EAST, RAMP });
  if (step == 50) {
    switches.set_tx_switch_pos1(c, .{ RAMP });
    switches.set_position(c, 1);
  }
  if (step == 70) switches.clear_current_position(c);
  if (step == 90) {
    got[4] = switches.get_position(c) + 10;
    switches.set_pop_mode(c, switches.pop_mode.ALWAYS_POP);
    switches.set_ring_mode(c, true);
    switches.set_invalid_for_switch_pos1(c);
    got[5] = switches.get_route(c, 1) + 20;
    return;
  }
  @activate(go);
}
comptime {
  const here = if (first) RAMP else WEST;
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ here }, .tx = .{ RAMP } } });
  @bind_local_task(main, go);
  @activate(go);
  @bind_data_task(take, ports.data_task(c, in_queue));
  @initialize_queue(in_queue, .{ .color = c });
  if (@is_arch("wse3")) @initialize_queue(out_queue, .{ .color = c });
  @export_symbol(got_ptr, "got");
}
"""
    run = Run(tmp_path, {"layout.csl": layout, "pe.csl": pe}, arch)
    assert run.row("got") == [[0, 2, 3, 4, 10, 20], [1, 2, 4, 0, 0, 0]]


def test_colors_swap_from_column_to_column(tmp_path: Path, arch: str) -> None:
    layout = """
const width = 4;
layout {
  @set_rectangle(width, 1);
  const pair = [2]color{ @get_color(0), @get_color(1) };
  for (@range(i16, width)) |x| {
    @set_tile_code(x, 0, if (x == 0) "send.csl" else "take.csl", .{ .c = pair[@as(u16, x & 1)] });
    const from = if (x == 0) RAMP else WEST;
    const to = if (x == 0) .{ EAST } else if (x == width - 1) .{ RAMP } else .{ EAST, RAMP };
    for (pair) |c| {
      @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ from }, .tx = to, .color_swap_x = true } });
    }
  }
  @export_name("got", [*]u16, true);
}
"""
    run = Run(tmp_path, {"layout.csl": layout, **pair("  @mov16(one, 7);")}, arch)
    assert [got[0] for got in run.row("got")] == [0, 7, 7, 7]


@pytest.mark.parametrize("pop", ["always_pop", "pop_on_advance"])
def test_pes_of_a_row_take_turns_on_one_color(tmp_path: Path, arch: str, pop: str) -> None:
    """Each sends, then opens its router to what comes from the east; the last one closes them all again."""
    layout = """
param width: i16;
const c: color = @get_color(8);
layout {
  @set_rectangle(width, 1);
  for (@range(i16, width)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .x = x, .width = width, .c = c });
    if (x == 0) {
      @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ EAST }, .tx = .{ RAMP } } });
    } else {
      @set_color_config(x, 0, c, .{
        .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } },
        .switches = .{ .pos1 = .{ .rx = EAST }, .ring_mode = false, .pop_mode = .{ .POP = true } },
      });
    }
  }
  @export_name("got", [*]f32, true);
}
""".replace("POP", pop)
    pe = """
param x: i16;
param width: i16;
param c: color;
const ports = @import_module("ports.csl");
const ctrl = @import_module("<control>");
const rounds = ROUNDS;
const total = @as(u16, width - 1) * 2 * rounds;
const out_queue = @get_output_queue(2);
const in_queue = @get_input_queue(3);
const out = ports.fabout(c, out_queue, 2, false);
const command = ports.fabout(c, out_queue, 1, true);
const opcode = if (x == width - 1) ctrl.opcode.SWITCH_RST else ctrl.opcode.SWITCH_ADV;
const payload = ctrl.encode_single_payload(opcode, true, {}, 0);
const go = @get_local_task_id(9);
const then = @get_local_task_id(10);
var got = @zeros([total]f32);
var got_ptr: [*]f32 = &got;
var mine = @zeros([2]f32);
const mine_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> mine[i] });
var round: u16 = 0;
task main() void {
  if (x == 0) {
    const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{total} -> got[i] });
    @fmovs(to, ports.fabin(c, in_queue, total), .{ .async = true });
  } else if (round < rounds) {
    mine[0] = @as(f32, x) + 10.0 * @as(f32, round);
    mine[1] = -mine[0];
    round += 1;
    @fmovs(out, mine_dsd, .{ .async = true, .activate = then });
  }
}
task finish() void {
  @mov32(command, payload, .{ .async = true, .activate = go });
}
comptime {
  @bind_local_task(main, go);
  @bind_local_task(finish, then);
  @activate(go);
  if (x == 0) {
    @initialize_queue(in_queue, .{ .color = c });
  } else if (@is_arch("wse3")) {
    @initialize_queue(out_queue, .{ .color = c });
  }
  @export_symbol(got_ptr, "got");
}
"""
    # a reset that is popped ends at the sender's own router: then there is one round
    rounds = 1 if pop == "always_pop" else 2
    files = {"layout.csl": layout, "pe.csl": pe.replace("ROUNDS", str(rounds))}
    run = Run(tmp_path, files, arch, {"width": 5})
    turns = [x + 10 * round_ for round_ in range(rounds) for x in range(1, 5)]
    assert run.at(0, 0, "got") == [value for turn in turns for value in (turn, -turn)]
