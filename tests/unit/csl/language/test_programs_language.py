"""The language: types, structs, enums, loops, imports, generic functions, pointers to functions."""

from pathlib import Path

import numpy as np

from tests.unit.csl.language.many_pes import One, Run


def test_ranges_with_names(one: One) -> None:
    pe = one("""
var out = @zeros([8]i16);
const part = @range_start(i16, 2, 5);
const down = @range(i16, 6, 0, -2);
---
for (part) |x| { out[0] += x; }
var lo: i16 = 3;
for (@range_start(i16, lo, lo + 3)) |x, k| { out[1] += x; out[2] += @as(i16, k); }
for (down) |x| { out[3] = out[3] * 10 + x; }
""")
    assert pe["out"].tolist()[:4] == [9, 12, 3, 642]


def test_pointers_to_functions_that_may_wait(one: One) -> None:
    pe = one("""
var out = @zeros([16]i16);
var src = @zeros([4]i16);
var fifo_buf = @zeros([4]i16);
const fifo = @allocate_fifo(fifo_buf);
fn plain(v: i16) void { out[0] += v; }
fn waits(v: i16) void { @mov16(fifo, v); out[1] += v; }
var table = [2]*const fn(i16) void{ &plain, &waits };
const Op = struct { f: *const fn(i16) void, k: i16 };
var op: Op = Op{ .f = &waits, .k = 3 };
fn each(f: *const fn(i16) void) void { f.*(100); }
const one = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> out[i + 4] });
var flag: bool = false;
---
for (@range(u16, 2)) |i| { table[i].*(5); }
each(&plain);
op.f.*(op.k);
const f = if (flag) &waits else &plain;
f.*(1);
@mov16(one, fifo);
@map(&square, src_dsd, src_dsd);
out[6] = src[0];
}
fn square(v: i16) i16 { return v * v + 1; }
fn unused() void {
""")
    assert pe["out"].tolist()[:7] == [106, 8, 0, 0, 5, 3, 1]


def test_conditions_that_need_lines(one: One) -> None:
    pe = one("""
var out = @zeros([8]i16);
var f: f32 = 2.0;
fn two(v: f32) f32 { f += 1.0; return v + f; }
---
var i: i16 = 0;
while (i < 3 or two(f) + 0.5 < 8.0) : (i += 1) { out[0] += 1; }
@assert(f > 1.0 and two(f) * 2.0 > f + 1.0);
if (i > 100 or (f + 1.0 > 2.0 and f * 2.0 < f + 100.0)) { out[1] = 1; }
const a = i > 0 and f + 1.0 > 3.0;
const b = a or two(f) > 3.0;
out[2] = @as(i16, a) + @as(i16, b);
lab: while (i < 20) : (i += 1) {
  for (@range(i16, 3)) |k| {
    if (k == 1 and f + 1.0 > two(f) * 0.0) continue :lab;
    if (i == 18 and f + 1.0 > 0.0) break :lab;
    out[3] += 1;
  }
}
out[4] = if (f + 1.0 > 0.0 and f + 2.0 > 1.0) 3 else 4;
out[5] = switch (i) { 18 => if (f + 1.0 > 0.0 and f > 1.0) @as(i16, 5) else 6, else => 7 };
f = 2.0;
while (f + 1.0 < 8.0) { f += 1.0; out[6] += 1; }
while (f * 0.5 > 1.0) : (f -= 1.0) { out[7] += 1; if (f + 0.5 < 5.0) break; }
""")
    assert pe["out"].tolist() == [5, 1, 2, 13, 3, 5, 5, 4]


def test_floats_in_every_place(one: One) -> None:
    pe = one("""
var out = @zeros([16]f32);
var f: f32 = 2.0;
var h: f16 = 1.5;
var k: i16 = 3;
const S = struct { v: f32, w: f16 };
var st = @constants([2]f32, 1.0);
fn g(a: f32, b: f32) f32 { return a * b + 1.0; }
fn rec(n: i16) f32 { var a: f32 = 1.0; var i = n; while (i > 0) : (i -= 1) { a *= @as(f32, i); } return a; }
const math = @import_module("<math>");
---
out[0] = g(f + 1.0, f * f) * g(1.0, 2.0 + f);
out[1] = if (f * 2.0 > 3.0) f / 3.0 + 1.0 else f - 1.0;
out[2] = switch (k) { 3 => f * 1.5 + 0.25, else => 0.0 };
var t: f32 = undefined;
t = f;
t += f * f - t / 3.0;
t *= t;
out[3] = t;
const s = S{ .v = f * 3.0 + 1.0, .w = h * h + h };
out[4] = s.v + @as(f32, s.w);
var arr = [3]f32{ f * 2.0 + 1.0, g(f, f), 0.5 };
out[5] = arr[0] + arr[1] * arr[2];
out[6] = rec(k + 1);
out[@as(u16, k) + 4] = f * 0.1 + 0.2;
for ([3]f32{ f, f * 2.0 + 1.0, 4.0 }) |e, i| { out[8] += e * @as(f32, i) + f * 0.5; }
out[9] = math.sqrt(f * f + 5.0);
const b = blk: { if (f + 1.0 > 100.0) break :blk f * 2.0; break :blk f * 3.0 + 1.0; };
out[10] = b;
out[11] = -(f + 1.0) * -f;
st[0] += g(st[1] + 1.0, st[1]);
out[12] = st[0];
const c = math.max(f * 2.0, @as(f32, 1.0)) + math.abs(-f);
out[13] = c;
if (!(f * 2.0 < 1.0) and !(h > 2.0)) { out[14] = f + 0.5 * f; }
else if (f * 3.0 > 2.0) { out[14] = 1.0; }
else { out[14] = 2.0; }
switch (@as(u16, f * 2.0)) { 4 => { out[15] = f * f * f; }, else => {} }
""")
    out = pe["out"]
    f = np.float32(2)
    third = f / np.float32(3)
    assert out[:3].tolist() == [65, third + np.float32(1), 3.25]
    squared = f + (np.float32(4) - third)
    assert out[3] == squared * squared
    assert out[4:7].tolist() == [10.75, 7.5, 24]
    assert out[7:].tolist() == [f * np.float32(0.1) + np.float32(0.2), 16, 3, 7, 6, 4, 6, 3, 8]


def test_a_union_has_the_bits_of_its_fields(one: One) -> None:
    pe = one("""
var out = @zeros([12]u32);
const Half = struct { low: u16, high: u16 };
const Word = union { f: f32, u: u32, half: Half, parts: [2]u16 };
var word = Word{ .f = 1.0 };
fn bits(w: Word) u32 { return w.u; }
fn of(x: f32) Word { return Word{ .f = x }; }
---
out[0] = word.u;
word.u = 0x40000000;
out[1] = @as(u32, word.f);
word.half.high = 5;
word.parts[0] = 7;
out[2] = word.u;
out[3] = bits(of(2.0));
out[4] = bits(Word{ .u = 9 });
var own = word;
own.half = Half{ .low = 1, .high = 2 };
out[5] = own.u;
own.f = 1.0;
out[6] = own.parts[1];
""")
    assert pe["out"].tolist()[:7] == [0x3F800000, 2, 0x00050007, 0x40000000, 9, 0x00020001, 0x3F80]


def test_enums_and_integers(one: One) -> None:
    pe = one("""
var out = @zeros([4]i16);
const Mode = enum(u16) { off, on = 7 };
var mode: Mode = .on;
---
out[0] = @as(i16, mode);
out[1] = @as(i16, Mode.off);
mode = @as(Mode, out[1]);
out[2] = if (mode == Mode.off) 3 else 4;
out[3] = 'a';
""")
    assert pe["out"].tolist() == [7, 0, 3, 97]


def test_void_is_a_value(one: One) -> None:
    pe = one("""
var out = @zeros([2]i16);
fn count() void { out[0] += 1; }
const nothing = {};
---
const called: void = count();
const also = {};
@comptime_assert(@is_same_type(@type_of(called), @type_of(nothing)));
""")
    assert pe["out"].tolist() == [1, 0]


def test_pointers_to_anything(one: One) -> None:
    pe = one("""
var out = @zeros([2]i32);
var x: i32 = 4;
fn add(p: *anyopaque, k: i32) void { const q = @ptrcast(*i32, p); q.* += k; }
---
add(&x, 3);
add(@ptrcast(*anyopaque, &out[1]), 5);
out[0] = x;
""")
    assert pe["out"].tolist() == [7, 5]


def test_an_array_of_one_value_of_run_time(one: One) -> None:
    pe = one("""
var out = @zeros([3]i16);
var k: i16 = 7;
noinline fn next() i16 { k += 1; return k; }
inline fn twice(x: i16) i16 { return x + x; }
---
out = @constants([3]i16, twice(next()));
""")
    assert pe["out"].tolist() == [16, 16, 16]


def test_what_is_extern_is_exported_by_another_file(tmp_path: Path) -> None:
    layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }'
    other = """
export var sum: i16 = 40;
export fn add(x: i16) void { sum += x; }
"""
    pe = """
const other = @import_module("other.csl");
extern var sum: i16;
extern fn add(x: i16) void;
var out = @zeros([1]i16);
task start() void { add(2); out[0] = sum; }
comptime { @bind_local_task(start, @get_local_task_id(20)); @activate(start); }
"""
    assert Run(tmp_path, {"layout.csl": layout, "other.csl": other, "pe.csl": pe}).row("out") == [[42]]


def test_bfloat16_rounds_to_eight_bits(one: One) -> None:
    pe = one("""
var out = @zeros([5]f32);
var bits = @zeros([1]u16);
var two: [2]bf16 = @zeros([2]bf16);
var k: u16 = 1;
var i: i16 = 257;
fn third(x: bf16) bf16 { return x / 3.0; }
---
two[k] = 1.0;
var x: bf16 = two[1];
x += 0.00390625;
out[0] = x;
out[1] = third(x + 2.5);
two[0] = @as(bf16, i);
out[2] = two[0];
bits[0] = @bitcast(u16, x);
out[3] = @bitcast(bf16, bits[0] + 1);
out[4] = @as(f32, @as(f16, x) * 0.5);
""")
    # Half of a unit in the last place, 2**-8, goes to the even neighbour; 3.5 / 3 is 1 + 21.33 / 128.
    assert pe["out"].tolist() == [1.0, 1.0 + 21 / 128, 256.0, 1.0 + 1 / 128, 0.5]
    assert pe["bits"].tolist() == [0x3F80]
