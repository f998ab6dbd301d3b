"""Control flow, memory, functions and vector operations of CSL as Python: what runs, and what is asked of the PE."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.dsd import Dsr, FabricIn, FabricOut, Fifo, Mem1d, Pointer, Settings
from cstool.csl.fabric.operations import FUSED
from cstool.csl.language.operands import FORMS
from cstool.csl.language.source import CslError
from cstool.foundation.errors import CstoolError
from tests.examples import examples
from tests.unit.csl.language.emit_cases import Failed, Program, emitted
from tests.unit.csl.language.many_pes import One
from tests.unit.csl.language.shown import columns

LOOPS = """
var trace: u32 = 0;
export fn f(n: i16, m: i16) u32 {
  trace = 1;
  var k: i16 = 0;
  outer: while (k < n) : (k += 1) {
    for (@range(i16, m)) |j| {
      if (j == 2 and k == 1) continue :outer;
      if (j * k > 6) break :outer;
      if (j == 3) break;
      trace = trace * 3 + @as(u32, j);
      if (k == 2) continue;
      trace ^= @as(u32, k);
    }
    const bonus: u32 = found: {
      if (k == 0) break :found 5;
      for (@range(i16, 4)) |i| { if (i == k) break :found @as(u32, i) * 7; }
      break :found 1;
    };
    trace += bonus;
  }
  return trace;
}
"""


def loops_twin(n: int, m: int) -> int:
    trace, k = 1, 0
    while k < n:
        skip = False
        for j in range(m):
            if j == 2 and k == 1:
                skip = True
                break
            if j * k > 6:
                return trace
            if j == 3:
                break
            trace = (trace * 3 + j) & 0xFFFFFFFF
            if k == 2:
                continue
            trace ^= k
        if not skip:
            trace = (trace + (5 if k == 0 else k * 7 if k < 4 else 1)) & 0xFFFFFFFF
        k += 1
    return trace


@examples(30)
@given(st.integers(0, 9), st.integers(0, 9))
def test_labels_steps_and_blocks_with_values(n: int, m: int) -> None:
    assert LOOPS_PROGRAM.run("f", n, m) == loops_twin(n, m)


LOOPS_PROGRAM = Program(LOOPS)


def test_what_is_decided_at_compile_time_leaves_one_branch_and_the_other_is_not_looked_at() -> None:
    text = """
    const big = false;
    export fn f(x: i16) i16 {
      if (@is_arch("wse2")) { return no_such_name; } else if (big) { return nor_this; }
      const y = if (@is_arch("wse3")) x else missing;
      switch (@as(i16, 3)) { 1 => return unknown, 3 => return y + 1, else => return also_unknown }
    }"""
    assert emitted(text) == (
        "def program(pe):\n\n"
        "    def f(x):  # pe.csl:3:5\n"
        "        y = x\n"
        "        pe.cycles += 3\n"
        "        return (y + 1 + 0x8000 & 0xffff) - 0x8000\n\n"
        "    return {'f': f}\n"
    )


def test_a_loop_of_equal_turns_adds_its_cycles_once() -> None:
    text = "var a: [8]f32;\nexport fn f(n: i16) void { for (@range(i16, n)) |i| { a[i] = 1.0; } }"
    program = Program(text)
    program.run("f", 8)
    assert program.pe.cycles == 1 + 8 * 5
    with pytest.raises(Failed) as caught:
        program.run("f", 9)
    assert str(caught.value) == "pe.csl:2:57: an index must be 0 to 7, got 8"


RUN = """
// Loops over arrays by value, by pointer, and with an index.
var fives = [4]i16{ 5, 6, 7, 8 };
export fn array_loops() i16 {
  var sum: i16 = 0;
  for (fives) |*p, i| { p.* += @as(i16, i); }
  for (fives) |x| sum += x;
  const both = [2]i16{ sum, 1 };
  for (both) |x| sum += x;
  return sum;
}
// Inline loops over tuples, arrays and ranges, and branches that agree on a type.
const info = .{ .{ .k = 1, .v = 10 }, .{ .k = 2, .v = 20 } };
export fn inline_loops(t: u32) u16 {
  var sum: u16 = 0;
  inline for (info) |it, i| { sum += it.k * 100 + it.v * (i + 1); }
  inline for ([2]u16{ 3, 4 }) |x| sum += x;
  inline for (@range(u16, 3)) |k| { sum += k; }
  const q = (if (t > 5) @as(u16, 1) else 2) + 3;
  return sum + q * 1000;
}
// Pointers to functions are called and changed; blocks run at compile time.
fn double(v: i16) i16 { return v * 2; }
fn triple(v: i16) i16 { return v * 3; }
var pointer: *const fn(i16) i16 = &double;
export fn function_pointers() i16 { const first = pointer.*(7); pointer = &triple; return first * 100 + pointer(7); }
fn through(p: *[3]i16) i16 { (p.*)[0] += 1; return p.*[0]; }
fn third(p: [*]i16) i16 { return p[2]; }
var three = [3]i16{ 4, 5, 6 };
const big: comptime_int = 1 << 40;
export fn array_pointers() i16 { comptime { @comptime_assert(big > 3); } return through(&three) + third(&three) * 10; }
// Pointers are bits, and bits are pointers; pointers to locals and to odd halves.
var floats = [4]f32{ 1.5, 2.5, 3.5, 4.5 };
const raw: [*]u32 = @ptrcast([*]u32, &floats);
var at: [*]f32 = &floats;
export fn moved() f32 {
  at = @bitcast([*]f32, @as(u16, @bitcast(u16, at) + 4));
  at[1] += 10.0;
  return at[0] + floats[2];
}
export fn bits() u32 { return raw[0]; }
var words = [6]u16{ 1, 2, 3, 4, 5, 6 };
fn bump(p: *i16) void { p.* += 1; }
export fn local() i16 { var x: i16 = 4; bump(&x); bump(&x); return x; }
export fn pair(at: u16) u32 { const p = @ptrcast(*u32, &words[at]); p.* += 1; return p.*; }
export fn many(i: u16) u16 { const p: [*]u16 = &words; return p[i] + p[1]; }
// Structs, enums, unions and packed bits.
const P = struct { a: i16, b: f32 = 0.5 };
const Q = packed struct { low: u4, mid: i4, high: u8 };
const E = enum(u16) { X, Y, Z = 7 };
const U = union { whole: u32, part: f32 };
var g: P;
var q: Q;
fn add(p: *P, by: i16) void { p.*.a += by; p.b *= 2.5; }
fn make(a: i16) P { return P{ .a = a }; }
fn lo_hi(k: i16) struct { lo: i16, hi: i16 } { return .{ .lo = k, .hi = k + 1 }; }
export fn fields(k: i16) i16 { const both = lo_hi(k); return both.lo * 10 + both.hi; }
export fn structs(a: i16) f32 {
  g = make(a);
  add(&g, 3);
  var h: P = .{ .a = a, .b = 1.5 };
  add(&h, 1);
  const c = make(9);
  return g.b + h.b * 10.0 + c.b * 100.0 + @as(f32, g.a + h.a);
}
export fn packed_bits(high: u8) u16 {
  q.low = 5; q.mid = -3; q.high = high; q.mid -= 1;
  var copy = q;
  copy.low += 12;
  return @bitcast(u16, copy) + @as(u16, q.low);
}
export fn known_bits(high: u8) u16 {
  const c = Q{ .low = 1, .mid = 2, .high = 3 };
  return @bitcast(u16, c) + @as(u16, high);
}
export fn choose(e: u16) i16 {
  const E_value = if (e == 0) E.X else if (e == 1) E.Y else E.Z;
  return switch (E_value) { .X => 1, .Y => 20, .Z => 300 };
}
export fn member(e: u16) i16 { return switch (@as(E, e)) { .X => 1, .Y => 20, .Z => 300 }; }
export fn same_bits(x: f32) u32 { var u = U{ .part = x }; return u.whole; }
// Functions for types, and functions that are handed over.
fn op(comptime T: type, a: T, b: T) T { if (@is_same_type(T, f32)) { return a * b; } else { return a + b; } }
fn twice(a: anytype) @type_of(a) { return a + a; }
fn apply(comptime f: fn(i16)i16, x: i16) i16 { return f(f(x)); }
fn next(x: i16) i16 { return x + 1; }
export fn handed(z: i16) f32 { return op(f32, 2.5, @as(f32, op(i16, z, 3))) + twice(@as(f32, apply(next, twice(z)))); }
// Operands are evaluated once, and in their order.
var calls: i16 = 0;
var four: [4]i16;
fn count() i16 { calls += 1; return calls; }
fn scale(x: f32) f32 { calls *= 2; return x * 2.0; }
export fn counted() i16 { const a = count() + count() * 10; return a + a; }
export fn scaled(x: f32) f32 { calls = 2; return @as(f32, calls) + scale(x) + x * x + @as(f32, calls); }
export fn indexed() i16 { four[count()] += 5; return four[1] + calls * 100; }
// Names of Python are no trouble.
var F32: i16 = 4;
fn def(pe: i16) i16 { return pe + F32; }
export fn lambda(R: i16) i16 { const range = def(R); for (@range(i16, 2)) |int| { _ = def(int); } return range; }
// Comparisons know NaN.
export fn compared(a: f32, b: f32) u16 {
  var found: u16 = 0;
  if (a < b) found |= 1; if (a <= b) found |= 2; if (a == b) found |= 4; if (a != b) found |= 8;
  if (!(a > b)) found |= 16; if (a >= b or b >= a) found |= 32;
  return found;
}
"""
RESULTS = """
array_loops() ==> (26 + 6) * 2 + 1    inline_loops(5) ==> 5000 + 360    inline_loops(6) ==> 4000 + 360
function_pointers() ==> 1421    array_pointers() ==> 65    moved() ==> 2.5 + 13.5    bits() ==> 0x3FC00000
local() ==> 6    pair(1) ==> 0x30003    pair(2) ==> 0x40004    many(5) ==> 6 + 2    fields(5) ==> 56
structs(4) ==> 1.25 + 37.5 + 50.0 + 12    packed_bits(0xAB) ==> 0xABC1 + 5    known_bits(7) ==> 0x321 + 7
choose(0) ==> 1    choose(1) ==> 20    choose(2) ==> 300    member(7) ==> 300    same_bits(1.0) ==> 0x3F800000
handed(4) ==> 17.5 + 20.0    counted() ==> 42    scaled(3.0) ==> 2 + 6 + 9 + 4    indexed() ==> 105    lambda(3) ==> 7
compared(nan, 1.0) ==> 8 + 16    compared(1.0, 2.0) ==> 1 + 2 + 8 + 16 + 32    compared(0.0, -0.0) ==> 2 + 4 + 16 + 32
"""


@pytest.fixture(scope="module")
def run() -> Program:
    return Program(RUN)


@pytest.mark.parametrize(("call", "result"), columns(RESULTS))
def test_what_functions_return(call: str, result: str, run: Program) -> None:
    run.start()
    name, arguments = call.split("(")
    assert run.run(name, *eval(f"[{arguments[:-1]}]", {"nan": math.nan})) == eval(result)


def test_a_function_is_compiled_once_for_each_type(run: Program) -> None:
    assert {name for name in run.code.code_bytes if name.startswith(("op", "twice"))} == {
        "op",
        "op_2",
        "twice",
        "twice_2",
    }


VECTORS = """
const out_q = @get_output_queue(2);
const in_q = @get_input_queue(3);
var a = @zeros([8]f32);
var h = @zeros([8]f16);
var a_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] });
const h_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> h[i] });
const in_dsd = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = in_q });
const out_dsd = @get_dsd(fabout_dsd, .{ .extent = 8, .output_queue = out_q });
const t_id = @get_local_task_id(10);
const reg = @get_dsr(dsr_dest, 2);
const src = @get_dsr(dsr_src1, 2);
var buf = @zeros([16]u32);
const fifo = @allocate_fifo(buf);
var total: f32 = 0.5;
task t() void {}
const how = .{ .async = true, .activate = t_id };
fn square(x: f32) f32 { return x * x; }
fn add_up(x: f32, k: i16) void { total += x * @as(f32, k); }
export fn f(n: i16, k: u16) void { %s }
comptime {
  const in_this_order = .{ &a, &h, &total };
  @bind_local_task(t, t_id);
  @initialize_queue(out_q, .{ .color = @get_color(5) });
  @initialize_queue(in_q, .{ .color = @get_color(6) });
}
"""
A = Mem1d(64, 8, 4, 4)
H = Mem1d(96, 8, 2, 2)
IN, OUT = FabricIn(3, 8), FabricOut(2, 5, 8)
PLAIN = Settings()


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("@fadds(a_dsd, a_dsd, a_dsd);", ("run", "fadds", (A, A, A))),
        ("@fmacs(a_dsd, a_dsd, a_dsd, a[k]);", ("run", "fmacs", (A, A, A, 0.0))),
        ("@fadds(&total, total, a_dsd);", ("run", "fadds", (Pointer(112), 0.5, A))),
        ("@fmacs(a_dsd, a_dsd, in_dsd, 2.5);", ("wait", "fmacs", (A, A, IN, 2.5), PLAIN)),
        ("@fmovs(out_dsd, total);", ("wait", "fmovs", (OUT, 0.5), PLAIN)),
        (
            "@fadds(out_dsd, a_dsd, in_dsd, .{ .async = true, .activate = t });",
            ("start", "fadds", (OUT, A, IN), Settings(activate=10)),
        ),
        (
            "@mov32(fifo, in_dsd, .{ .async = true, .unblock = in_q, .priority = .{ .high = true }, .index = 7 });",
            ("start", "mov32", (Fifo(0), IN), Settings(unblock=67, priority="high", first_index=7)),
        ),
        ("@load_to_dsr(reg, a_dsd, .{ .save_address = true });", ("load_dsr", Dsr("dest", 2), A, PLAIN, True)),
        ("@fmuls(reg, reg, src);", ("wait", "fmuls", (Dsr("dest", 2), Dsr("dest", 2), Dsr("src1", 2)), PLAIN)),
        ("@mov16(h_dsd, n);", ("run", "mov16", (H, -4))),
        ("@add16(h_dsd, h_dsd, 65535);", ("run", "add16", (H, H, 65535))),
        (
            "a_dsd = @increment_dsd_offset(a_dsd, n, f32); @fmovs(a_dsd, 0.0);",
            ("run", "fmovs", (A._replace(address=48), 0.0)),
        ),
        ("a_dsd = @set_dsd_length(a_dsd, k); @fmovs(a_dsd, 0.0);", ("run", "fmovs", (A._replace(extent=3), 0.0))),
        ("a_dsd = @set_dsd_stride(a_dsd, n); @fmovs(a_dsd, 0.0);", ("run", "fmovs", (A._replace(stride=-16), 0.0))),
        (
            "const d = @get_dsd(mem1d_dsd, .{ .base_address = &a, .extent = k, .offset = n, .stride = -1 });"
            "@fmovs(d, 1.0);",
            ("run", "fmovs", (Mem1d(48, 3, -4, 4), 1.0)),
        ),
        (
            "@fs2h(h_dsd, @get_dsd(fabin_dsd, .{ .extent = k, .input_queue = in_q }));",
            ("wait", "fs2h", (H, FabricIn(3, 3)), PLAIN),
        ),
        (
            "var w = [2]u32{ 5, 6 }; const d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> w[i] });"
            "@mov32(out_dsd, d, how);",
            ("start", "mov32", (OUT, Mem1d(116, 2, 4, 4)), Settings(activate=10)),
        ),
        ("@activate(t);", ("activate", 10)),
        ("@block(in_q);", ("block", 67)),
        ("@unblock(t_id);", ("unblock", 10)),
        ("@queue_flush(out_q);", ("queue_flush", 2, True)),
    ],
)
def test_what_is_asked_of_the_pe(body: str, asked: tuple[object, ...]) -> None:
    program = Program(VECTORS % body)
    program.run("f", -4, 3)
    assert program.pe.asked == [asked]


def test_map_hands_over_the_function_and_its_letters() -> None:
    program = Program(VECTORS % "@map(square, in_dsd, a_dsd); @map(add_up, a_dsd, 5);")
    program.run("f", 0, 0)
    (first, callback, operands, letters), (second, _, others, more) = program.pe.asked
    assert (first, operands[0], letters) == ("map_wait", IN, "ff")
    assert callback(3.0) == 9.0
    assert (second, others[1], more) == ("map", 5, "fh")


def test_colors_that_code_sends_and_takes_are_told() -> None:
    code = Program(VECTORS % "@fadds(out_dsd, a_dsd, in_dsd, .{ .async = true });").code
    assert (code.inputs, code.outputs) == (frozenset({6}), frozenset({5}))
    assert Program(VECTORS % "").code.inputs == frozenset()


def test_a_function_that_may_wait_is_a_generator_and_so_is_its_caller() -> None:
    text = VECTORS % "inner();" + "fn inner() void { @fmovs(out_dsd, a_dsd); }\n"
    program = Program(text)
    assert "(yield from inner())" not in program.code.text
    assert "        yield from inner()\n" in program.code.text
    program.run("f", 0, 0)
    assert program.pe.asked[0][0] == "wait"


def test_a_loop_that_polls_memory_lets_others_go_on() -> None:
    text = "var ready: u16 = 0;\nexport fn f() void { while (ready == 0) {} }"
    assert "            yield from pe.pause()\n" in Program(text).code.text


def test_every_operation_of_the_engine_has_forms_of_its_types() -> None:
    assert set(FORMS) == set(FUSED)
    for name, forms in FORMS.items():
        operation = FUSED[name]
        wide = {"i": "w", "h": "H"}
        expected = [wide.get(letter, letter) for letter in (operation.dest, *operation.sources) if letter]
        assert [wide.get(each.letter, each.letter) for each in forms[0]] == expected, name


def test_an_assert_that_does_not_hold_ends_the_simulation() -> None:
    program = Program("export fn f(x: i16) void { @assert(x > 3 and x < 9); }")
    program.run("f", 5)
    with pytest.raises(Failed) as caught:
        program.run("f", 2)
    assert str(caught.value) == "pe.csl:1:28: @assert(x > 3 and x < 9) does not hold"


def test_an_assert_of_a_known_condition_fails_where_the_program_runs_into_it() -> None:
    program = Program("export fn f(x: i16) void { if (x > 3) { @assert(true); } else { @assert(false); } }")
    program.run("f", 5)
    with pytest.raises(Failed) as caught:
        program.run("f", 2)
    assert str(caught.value) == "pe.csl:1:65: @assert(false) does not hold"


def test_a_division_by_a_float_of_zero_is_infinite_or_nan() -> None:
    program = Program("export fn f(x: f32, y: f32) f32 { return x / y; }")
    assert program.run("f", 1.0, -0.0) == -math.inf
    assert math.isnan(program.run("f", 0.0, 0.0))
    assert program.pe.cycles >= 100


def test_a_loop_polls_until_a_microthread_has_written(on_wse3: One) -> None:
    ran = on_wse3("""
var ready = @zeros([1]u16);
var one = [1]u16{ 1 };
var buffer = @zeros([4]u16);
const fifo = @allocate_fifo(buffer);
---
@mov16(fifo, one_dsd, .{ .async = true });
@mov16(ready_dsd, fifo, .{ .async = true });
while (ready[0] == 0) {}
ready[0] = 7;
""")
    assert list(ran["ready"]) == [7]


def test_a_pointer_to_no_function_is_an_error_where_it_is_called(on_wse3: One) -> None:
    with pytest.raises(CstoolError, match="a pointer that is called points to a function, got another"):
        on_wse3("""
fn one(v: i16) i16 { return v; }
var p: *const fn(i16) i16 = &one;
---
p = @bitcast(*const fn(i16) i16, @as(u16, 6));
_ = p.*(1);
""")


# Structs without a type that only run time knows, handed to a function: its body stands in the place of the call.
HANDED = """
var sums = @zeros([2]i16);
fn add(args: anytype, times: i16) void {
  for (@range(i16, times)) |_| { sums[0] += args.a * 2; }
  sums[1] = args.b;
}
fn give(args: anytype) i16 { return args.a; }
---
var x: i16 = 5;
"""


def test_body_in_the_place_of_the_call(on_wse3: One) -> None:
    body = "add(.{ .a = x, .b = 7 }, 3); add(.{ .a = 1, .b = x }, x);"
    assert on_wse3(HANDED + body)["sums"].tolist() == [40, 5]


def test_a_function_that_returns_something_does_not_take_one(tmp_path: Path, on_wse3: One) -> None:
    with pytest.raises(CslError) as caught:
        on_wse3(HANDED + "sums[0] = give(.{ .a = x });")
    message = (
        "give() is handed a struct without a type that is not known at compile time: "
        "only a function that returns nothing takes one"
    )
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{tmp_path}/pe.csl:11:13: {message}"
    assert lines[-1] == "hint: a struct type, or a parameter for each field"
