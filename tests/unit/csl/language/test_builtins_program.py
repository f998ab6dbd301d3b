import pytest

from cstool.csl.fabric.program import ColorConfig, Route, Symbol
from cstool.csl.language.instance import Instance
from tests.unit.csl.language.comptime_cases import bad_program, program_of
from tests.unit.csl.language.shown import cases

TASKS = """
const q = @get_input_queue(2);
const c = @get_color(4);
const id = @get_local_task_id(12);
const data = if (@is_arch("wse3")) @get_data_task_id(q) else @get_data_task_id(c);
task local() void {}
task other() void {}
task word(x: f32) void {}
task halves(low: u16, high: i16) void {}
task wide(a: u32, b: u16) void {}
task short(x: u8) void {}
task result() u16 { return 1; }
task control(x: i16) void {}
fn plain() void {}
const to_east = .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } };
const to_west = .{ .routes = .{ .rx = .{RAMP}, .tx = .{WEST} } };
"""


def _program(block: str, arch: str = "wse3") -> Instance:
    return program_of(f"{TASKS}\ncomptime {{ {block} }}", arch)


def test_tasks_and_their_ids() -> None:
    instance = _program(
        "@bind_local_task(local, id); @bind_data_task(word, data); "
        "@bind_control_task(control, @get_control_task_id(40)); @block(id); @activate(id);"
    )
    tasks = {**instance.tasks, **instance.control_tasks}
    assert {n: (t.root.name, t.root.kind, t.root.letters, t.color, t.queue) for n, t in tasks.items()} == {
        12: ("local", "local", (), None, None),
        2: ("word", "data", ("f",), None, 2),
        40: ("control", "control", ("h",), None, None),
    }
    assert list(instance.blocked) == list(instance.activated) == [12]


def test_a_data_task_of_wse2_has_its_color() -> None:
    task = _program("@bind_data_task(halves, data);", "wse2").tasks[4]
    assert (task.color, task.queue, task.root.letters) == (4, None, ("H", "h"))


def test_tasks_by_themselves_and_blocked_queues_and_a_teardown_handler() -> None:
    instance = _program("@bind_local_task(local, id); @activate(local); @block(q); @block(id); @unblock(id);")
    assert (list(instance.activated), list(instance.blocked)) == ([12], [66])
    # One task under two ids is compiled once.
    instance = _program("@bind_local_task(local, id); @bind_local_task(local, @get_local_task_id(13));")
    assert [root.name for root in instance.roots.values()] == ["local"]
    instance = _program("@set_teardown_handler(local, c); @set_empty_queue_handler(@get_output_queue(3), other);")
    found = {key: bound.root.name for key, bound in instance.handlers.items()}
    assert found == {("color", 4): "local", ("output", 3): "other"}


REFUSED = r"""
@bind_local_task(local, id); @bind_local_task(other, id);
  task id 12 has one task, got 'other' after 'local' | bound to 'local'
@bind_local_task(plain, id); ==> @bind_local_task takes a task, got fn()void plain
  (declare it with 'task': task plain(...) void)
@bind_local_task(local, 5); ==> @bind_local_task takes a local_task_id, got comptime_int 5
  (@get_local_task_id(...) makes one)
@bind_local_task(word, id); ==> a local task has no parameters (a data task takes data: @bind_data_task)
@bind_data_task(word, id); ==> @bind_data_task takes a data_task_id, got local_task_id 12
  (@get_data_task_id(...) makes one)
@bind_data_task(wide, data); ==> a data task takes the 32 bits of a wavelet, its parameters have 48
@bind_data_task(short, data); ==> a task's parameter has 16 or 32 bits, got 'x' of u8
@bind_local_task(result, id); ==> a task returns void, got u16
@bind_control_task(control, id);
  @bind_control_task takes a control_task_id, got local_task_id 12 (@get_control_task_id(...) makes one)
@bind_control_task(word, @get_control_task_id(40)); ==> a control task takes the 16 bits of data of a control wavelet
@activate(local); ==> 'local' is not bound to a task id (@bind_local_task(local, ...))
@block(5); ==> expected a task id, got comptime_int 5
@initialize_queue(q, .{ .colour = c });
  @initialize_queue has the fields color, priority, control_transform, simd_mode, got .colour (did you mean color?)
@initialize_queue(q); ==> @initialize_queue of an input_queue of wse3 needs .color
@initialize_queue(@get_output_queue(2), .{}); ==> @initialize_queue of an output_queue of wse3 needs .color
@initialize_queue(c, .{ .color = c }); ==> @initialize_queue takes a queue, got color 4
@initialize_queue(q, .{ .color = 2.5 }); ==> expected a color, got comptime_float 2.5
@initialize_queue(q, .{ .color = c }); @initialize_queue(q, .{ .color = @get_color(5) });
  input queue 2 is bound to one color, got 5 after 4 | bound to color 4
@initialize_queue(q, .{ .color = c }); @initialize_queue(@get_input_queue(3), .{ .color = c });
  color 4 goes to one input queue, got 3 after 2 | bound to input queue 2
@set_teardown_handler(local, c); @set_teardown_handler(other, c);
  a color has one handler, got 'other' after 'local' | the other one
@set_teardown_handler(c, c); ==> @set_teardown_handler takes a function and a color
@set_teardown_handler(word, c); ==> a handler has no parameters
@set_empty_queue_handler(local, c); ==> @set_empty_queue_handler takes a function and a queue
@export_symbol(local); ==> the host calls functions, not tasks (export an fn, which may @activate the task)
@export_symbol(id); ==> the host can use functions and pointers, got local_task_id 12 (export a pointer: var p = &x;)
@export_symbol(plain); @export_symbol(plain); ==> a symbol is exported once, got 'plain' again | the other one
@set_color_config(0, 0, c, .{}); ==> @set_color_config stands in a layout block alone
@set_local_color_config(c, to_east); @set_local_color_config(c, to_west);
  a color is configured once at a PE, got color 4 again | the first one
@bind_data_task(local, @get_data_task_id(@get_input_queue(4)));
  a data task takes the data of a wavelet, got a task without parameters (task local(data: u32) void)
@assert(1 == 2); ==> @assert failed
"""


@pytest.mark.parametrize(("block", "message"), cases(REFUSED))
def test_refused(block: str, message: str) -> None:
    assert bad_program(f"{TASKS}\ncomptime {{ {block} }}") == message


def test_both_dialects_of_queues_and_data_tasks() -> None:
    # Output queues of WSE-2 need no color; a color may stand for a local task's id, as SDK 1.0 had it.
    instance = _program("@initialize_queue(@get_output_queue(2)); @bind_local_task(local, c); @rpc(data);", "wse2")
    assert instance.output_queues == {}
    assert list(instance.tasks) == [4]


def test_local_configs() -> None:
    instance = _program("@set_local_color_config(c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP, EAST } } });")
    assert instance.colors[4][0] == ColorConfig((Route(0b10, 0b101),))


def test_symbols() -> None:
    instance = program_of("""
var a: [6]f32;
var n: u16 = 3;
var a_ptr: [*]f32 = &a;
const half: [*]f32 = &a[2];
var n_ptr: *u16 = &n;
fn run(count: u16, scale: f32) void {}
comptime {
  @export_symbol(a_ptr, "a");
  @export_symbol(half);
  @export_symbol(n_ptr, "n");
  @export_symbol(run);
}
""")
    symbols = {name: symbol for name, (symbol, _, _) in instance.symbols.items()}
    assert symbols == {
        "a": Symbol("variable", 64, 88, "f", 6),
        "half": Symbol("variable", 72, None, "f", 4),
        "n": Symbol("variable", 90, 92, "H", 1),
        "run": Symbol("function", parameters=("H", "f"), function="run", place="pe.csl:7:1"),
    }
    assert instance.memory[88:94] == bytes([64, 0, 3, 0, 90, 0])


def test_variables_take_what_they_need_of_sram() -> None:
    instance = program_of("""
const Pair = struct { flag: bool, word: u32, half: f16 };
var a: [3]u8 = .{ 1, 2, 3 };
var p: Pair = .{ .flag = true, .word = 0x01020304, .half = 1.0 };
var aligned: i16 align(16) = -2;
var unused: [1000]u32;
comptime { const now = .{ &a, &p, &aligned }; }
""")
    assert [(block.name, block.address, block.type.size) for block in instance.blocks] == [
        ("a", 64, 3),
        ("p", 68, 12),
        ("aligned", 80, 2),
    ]
    assert instance.memory[64:] == bytes([1, 2, 3, 0, 1, 0, 0, 0, 4, 3, 2, 1, 0, 0x3C, 0, 0, 0xFE, 0xFF])
    assert instance.data_bytes == 17
    assert instance.sram({"f": 40}) == (
        ("f (code, modelled)", 40),
        ("p: Pair", 12),
        ("a: [3]u8", 3),
        ("aligned: i16", 2),
    )
    assert instance.region(70) is instance.blocks[1]


def test_sram_that_does_not_suffice() -> None:
    text = "var a: [6000]u32; var b: [7000]u32; comptime { const now = .{ &a, &b }; }"
    assert bad_program(text) == (
        "SRAM of a PE has 49,152 bytes: b ([7000]u32) takes 28,000, 24,000 are taken "
        "(largest: a: [6000]u32 24,000 bytes)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("var a = 5;", "a variable of run time cannot be of comptime_int: 'a' (give it a type: 'var x: i16 = ...')"),
        ("var a = .{ .b = 1 };", "a variable of run time cannot be of comptime_struct: 'a' (declare it with 'const')"),
        (
            "extern var a: i16;",
            "'a' is extern: a program is compiled from its CSL files, none exports it "
            "('export' before 'a' in a file that the program imports)",
        ),
        ("var a: i16 align(3) = 1;", "an alignment is a power of 2, got 3"),
        ("var a: [2]i16 = .{ 1 };", "'a' must have 2 elements ([2]i16), got 1"),
    ],
)
def test_refused_variables(text: str, message: str) -> None:
    assert bad_program(f"{text} comptime {{ const now = &a; }}") == message
