"""Files of the library: each parses, and what they ask of the simulator is listed; small modules, run."""

import re
from importlib import resources
from pathlib import Path

import cstool.csl.language
from cstool.csl.fabric import control
from cstool.csl.language.intrinsics import INTRINSICS
from cstool.csl.language.parse import parse
from cstool.csl.language.source import Source
from tests.unit.csl.language.many_pes import One

LIBRARY = Path(str(resources.files(cstool.csl.language))) / "library"
FILES = sorted(path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.csl"))


def test_files_parse() -> None:
    for name in FILES:
        parse(Source(f"<{name.removesuffix('.csl')}>", (LIBRARY / name).read_text()))


def test_intrinsics_are_those_that_files_use() -> None:
    used = {name for file in FILES for name in re.findall(r"@(__\w+)", (LIBRARY / file).read_text())}
    assert used - {"__say", "__print", "__stream", "__unblock"} <= INTRINSICS.keys()
    assert used <= INTRINSICS.keys()


def test_time_counts_while_it_is_enabled(on_wse3: One) -> None:
    program = """
const time = @import_module("<time>");
var stamp = @zeros([3]u16);
var stamps = @zeros([4]u16);
fn pause() void {
  var i: u16 = 0;
  while (i < 10) : (i += 1) {}
}
---
""" + "\n".join(
        f"{what} pause(); time.get_timestamp(&stamp); stamps[{k}] = stamp[0];"
        for k, what in enumerate(["", "time.enable_tsc();", "time.disable_tsc();", "time.reset_tsc_counter();"])
    )
    never, counted, stopped, reset = on_wse3(program)["stamps"].tolist()
    assert never == 0
    assert 10 < counted < 300
    assert counted <= stopped < counted + 60
    assert reset == 0


def test_layout_and_random(on_wse3: One) -> None:
    found = on_wse3("""
const where = @import_module("<layout>");
const random = @import_module("<random>");
var at = @zeros([2]u16);
var numbers = @zeros([3]u32);
var uniform = @zeros([64]f32);
var normal = @zeros([64]f32);
---
at[0] = where.get_x_coord();
at[1] = where.get_y_coord();
random.set_global_seed(1);
for (numbers) |_, i| { numbers[i] = random.random_u32(); }
for (uniform) |_, i| { uniform[i] = random.random_f32(-2.0, 3.0); }
for (normal) |_, i| { normal[i] = random.random_normal_f32(); }
""")
    assert found["at"].tolist() == [0, 0]
    # the first three of xorshift32 from seed 1 (Marsaglia's shifts 13, 17, 5)
    assert found["numbers"].tolist() == [270369, 67634689, 2647435461]
    uniform, normal = found["uniform"], found["normal"]
    assert uniform.min() >= -2
    assert uniform.max() < 3
    assert uniform.std() > 1
    assert abs(normal.mean()) < 0.5
    assert 0.7 < normal.std() < 1.3


def test_pieces_of_memory_and_complex_numbers(on_wse3: One) -> None:
    found = on_wse3("""
const memory = @import_module("<malloc>", .{ .buffer_num_words = 8 });
const complex = @import_module("<complex>");
var left = @zeros([2]u16);
var values = @zeros([3]f32);
var product = @zeros([2]f32);
---
const first = memory.malloc(f32, 3);
const second = memory.malloc(u16, 3);
left[0] = memory.available();
memory.free_all();
left[1] = memory.available();
first[2] = 2.5;
second[0] = 7;
values[0] = first[2];
values[1] = @as(f32, second[0]);
const x = complex.get_complex_64(1.0, 2.0);
const y = complex.multiply_complex_64(x, complex.get_complex_64(3.0, -1.0));
product[0] = y.real;
product[1] = y.imag;
""")
    assert found["left"].tolist() == [3, 8]
    assert found["values"].tolist() == [2.5, 7, 0]
    assert found["product"].tolist() == [5, 5]


def test_registers_of_a_color(on_wse3: One) -> None:
    found = on_wse3("""
const tile = @import_module("<tile_config>");
const c = @get_color(3);
var words = @zeros([14]u16);
comptime {
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}
---
words[0] = tile.switch_config.get_route(c, 0);
words[1] = tile.switch_config.get_position(c);
tile.switch_config.set_route(c, 1, 1 | 1 << 5);
tile.switch_config.set_position(c, 1);
words[2] = tile.switch_config.get_position(c);
words[3] = @as(u16, tile.teardown.get_pending());
tile.color_config.set_output_routes(c, .{ RAMP, EAST });
words[4] = tile.switch_config.get_route(c, 0);
tile.color_config.reset_routes(c, .{ .rx = .{ WEST }, .tx = .{ EAST } });
words[5] = tile.switch_config.get_route(c, 0);
tile.switch_config.set_tx_switch_pos1(c, .{ RAMP });
words[6] = tile.switch_config.get_route(c, 1);
tile.switch_config.set_position(c, 1);
tile.switch_config.clear_current_position(c);
words[7] = tile.switch_config.get_position(c);
tile.switch_config.set_pop_mode(c, tile.switch_config.pop_mode.ALWAYS_POP);
tile.switch_config.set_ring_mode(c, true);
words[8] = @get_config(0x200 + 8 * 3 + 4); // the color's switch
tile.switch_config.set_invalid_for_switch_pos1(c);
words[9] = tile.switch_config.get_route(c, 1);
const address = tile.color_config.get_color_config_addr(c);
tile.color_config.reset_routes(address, .{ .tx = [2]direction{ WEST, RAMP }, .rx = SOUTH });
words[10] = tile.switch_config.get_route(c, 0);
tile.switch_config.set_rx_switch_pos1(address, RAMP);
words[11] = tile.switch_config.get_route(c, 1);
tile.switch_config.set_invalid_for_all_switch_positions(c);
words[12] = tile.switch_config.get_route(c, 1);
words[13] = tile.get_fabric_coord().x + tile.get_fabric_coord_y();
""")["words"].tolist()
    assert found[:8] == [1 | 1 << 5, 0, 1, 0, 1 | 5 << 5, 2 | 4 << 5, 2 | 1 << 5, 0]
    assert found[8:] == [4 | 8, 0, 16 | 3 << 5, 1 | 3 << 5, 0, 0]


def test_characters_and_directions(on_wse3: One) -> None:
    assert on_wse3("""
const ascii = @import_module("<ascii>");
const turn = @import_module("<directions>");
var words = @zeros([8]u16);
---
words[0] = ascii.to_upper(97);
words[1] = @as(u16, ascii.is_space(9));
words[2] = @as(u16, ascii.is_alnum(58));
words[3] = @as(u16, turn.rotate_180(EAST) == WEST);
words[4] = @as(u16, turn.rotate_clockwise(NORTH) == EAST);
words[5] = @as(u16, turn.flip_vertical(EAST) == EAST);
words[6] = @as(u16, turn.flip(NORTH) == SOUTH and turn.is_horizontal(WEST) and turn.is_vertical(SOUTH));
words[7] = turn.route_bits(.{ .rx = WEST, .tx = .{ EAST, RAMP } });
""")["words"].tolist() == [65, 1, 0, 1, 1, 1, 1, 2 | 5 << 5]


def test_payloads_of_control_wavelets(on_wse3: One) -> None:
    found = on_wse3("""
const ctrl = @import_module("<control>");
const op = ctrl.opcode;
const advance = ctrl.encode_single_payload(op.SWITCH_ADV, true, {}, 0);
const many = ctrl.encode_payload([4]op{ op.NOP, op.SWITCH_ADV, op.SWITCH_RST, op.TEARDOWN },
                                 [4]bool{ true, false, true, false }, @get_control_task_id(40), 0, 0);
const three = [3]op{ op.SWITCH_ADV, op.SWITCH_RST, op.TEARDOWN };
const two = ctrl.encode_payload(2, three, @constants([3]bool, true), {}, 0);
const switches = @import_module("<memcpy/memcpy_switches>");
var payloads = @zeros([9]u32);
---
var data: u16 = 0xbeef;
payloads[0] = advance;
payloads[1] = ctrl.encode_single_payload(op.SWITCH_RST, false, @get_control_task_id(41), data);
payloads[2] = ctrl.encode_control_task_payload(@get_control_task_id(42));
payloads[3] = many;
payloads[4] = two;
payloads[5] = ctrl.encode_single_payload(op.TEARDOWN, data == 0xbeef, {}, 1);
payloads[6] = ctrl.encode_payload([1]op{ op.SWITCH_ADV }, [1]bool{ false }, @get_control_task_id(40), 77, 0);
payloads[7] = switches.ctrl(switches.switch_cmd_11());
payloads[8] = switches.ctrl(switches.teardown_cmd_1());
""")["payloads"].tolist()
    assert found == [
        control.encode(((control.ADVANCE, True),)),
        control.encode(((control.RESET, False),), 41, 0xBEEF),
        control.encode((), 42),
        control.encode(((0, True), (1, False), (2, True), (3, False)), 40),
        control.encode(((1, True), (2, True))),
        control.encode(((control.TEARDOWN, True),), data=1),
        control.encode(((control.ADVANCE, False),), 40, 77),
        control.encode((*((control.ADVANCE, True),) * 2, *((control.NOP, True),) * 6)),
        0x9DF9249,
    ]
    # documented: data is the lower half
    assert found[1] & 0xFFFF == 0xBEEF


def test_timers(one: One) -> None:
    found = one("""
const timer = @import_module("<timer>", .{ .timerCount = 2 });
const time = @import_module("<time>");
var lasted = @zeros([6]u16);
var before: timer.timerType = [3]u16{ 0, 0, 0 };
fn pause(count: u16) void {
  var i: u16 = 0;
  while (i < count) : (i += 1) {}
}
---
timer.start(0);
pause(100);
timer.start(1);
pause(20000);
timer.stop(1);
pause(100);
timer.stop(0);
timer.elapsed(0, &before);
for (@range(u16, 3)) |k| lasted[k] = before[k];
timer.elapsed(1, &before);
for (@range(u16, 3)) |k| lasted[k + 3] = before[k];
""")["lasted"].tolist()
    long, short = (found[k] + (found[k + 1] << 16) + (found[k + 2] << 32) for k in (0, 3))
    assert 65536 < short < long < short + 4000


def test_timers_count_over_the_end_of_a_word(one: One) -> None:
    found = one("""
const timer = @import_module("<timer>", .{ .timerCount = 1 });
var lasted = @zeros([3]u16);
---
timer.starts[0, 0] = 65535;
timer.starts[0, 1] = 65535;
timer.stops[0, 0] = 4;
timer.stops[0, 2] = 1;
var result: timer.timerType = [3]u16{ 0, 0, 0 };
timer.elapsed(0, &result);
for (@range(u16, 3)) |k| lasted[k] = result[k];
""")["lasted"].tolist()
    assert found == [5, 0, 0]
