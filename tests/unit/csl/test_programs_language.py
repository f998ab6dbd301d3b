"""The language: types, structs, enums, loops, imports, generic functions, pointers to functions."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.csl.one_pe import OnePE

ARCHS = pytest.mark.parametrize("arch", ["wse2", "wse3"])


@ARCHS
def test_structs_enums_pointers_and_loops(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
const Mode = enum(u16) { idle = 1, run = 4, stop };
const P = struct { x: i16, y: f32, t: [2]i16 };
var out = @zeros([16]i16);
var fl = @zeros([4]f32);
var pts: [3]P;
var mode: Mode = Mode.idle;
const conf = .{ .n = 3, .deep = .{ .k = @as(i16, 4) } };
const more = @concat_structs(conf, .{ .m = 7 });
fn pick(m: Mode) i16 {
  switch (m) { Mode.idle => return 10, Mode.run => return 20, else => return 30 }
}
fn sum(p: *P) i16 { return p.x + p.t[0] + p.t[1]; }
fn bump(p: *i16) void { p.* += 1; }
fn twice(f: *const fn(i16) i16, v: i16) i16 { return f.*(f.*(v)); }
fn inc3(v: i16) i16 { return v + 3; }
fn mx(comptime T: type, a: T, b: T) T { return if (a > b) a else b; }
fn id(x: i16) i16 { if (false) { const nope: i16 = "text"; @nonsense(nope); } return x; }
""",
        """
pts[1].x = 5; pts[1].y = 2.5; pts[1].t[1] = 6;
out[0] = sum(&pts[1]);
mode = Mode.run;
out[1] = pick(mode);
mode = Mode.stop;
out[2] = pick(mode);
out[3] = 0;
bump(&out[3]);
bump(&pts[2].x);
out[4] = pts[2].x;
out[5] = more.m + more.deep.k;
out[6] = mx(i16, 4, 9);
fl[0] = mx(f32, 4.0, 9.5);
out[7] = id(3);
const p = P{ .x = 1, .y = 2.0, .t = [2]i16{ 3, 4 } };
out[8] = p.t[1];
fl[1] = p.y;
blk: { if (out[8] == 4) break :blk; out[8] = 99; }
const v = val: { if (out[8] > 3) break :val @as(i16, 11); break :val @as(i16, 12); };
out[9] = v;
outer: for (@range(i16, 4)) |i| {
  for (@range(i16, 4)) |j| { if (j == 2) continue :outer; if (i == 3) break :outer; out[10] += 1; }
}
for (@range(i16, 10, 0, -3)) |i| { out[11] += i; }
for (@range(u16, 2, 10, 3)) |i, idx| { out[12] += @as(i16, i * idx); }
const arr = [3]i16{ 5, 6, 7 };
for (arr) |e, i| { out[13] += e * @as(i16, i); }
var cnt: i16 = 0;
while (cnt < 5) : (cnt += 2) { out[14] += cnt; }
""",
        arch,
    )
    out, fl = pe["out"], pe["fl"]
    assert out.tolist()[:15] == [11, 20, 30, 1, 1, 11, 9, 3, 4, 11, 6, 10 + 7 + 4 + 1, 0 * 2 + 5 + 16, 6 + 14, 6], out
    assert fl[:2].tolist() == [9.5, 2]


@ARCHS
def test_modules_parameters_and_saved_registers(tmp_path: Path, arch: str) -> None:
    (tmp_path / "other.csl").write_text(
        """
param scale: i16;
param T: type;
param cfg;
param opt: i16 = 1;
var counter: T = @as(T, cfg.a);
fn go(x: T) T { return x * scale + opt; }
fn set(x: T) void { counter += x + 3; }
"""
    )
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
const buf = @zeros([8]i16);
var ring = @zeros([8]i16);
var n: i16 = 0;
const d0 = @get_dsr(dsr_dest, 2);
const s1 = @get_dsr(dsr_src1, 2);
const out_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> out[i] });
const ring_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> ring[i] });
export var exported: i16 = 3;

const cs = @constants([4]i16, 6);
var two = @constants([2, 2]i16, 5);
const T = u16;
fn f(comptime n: u16) u16 { return n * 2; }
const table = gen();
fn gen() [4]i16 { var r = @zeros([4]i16); for (@range(i16, 4)) |i| { r[i] = i * i; } return r; }
const other = @import_module("other.csl", .{ .scale = 3, .T = i16, .cfg = .{ .a = 1 } });
const Dir = struct { a: i16 = 0, b: i16 = 9 };
""",
        """
@load_to_dsr(s1, ring_dsd, .{ .save_address = true });
@load_to_dsr(d0, out_dsd, .{ .save_address = true });
for (@range(i16, 8)) |i| { ring[i] = i + 1; }
@mov16(d0, s1);
@mov16(d0, s1);
out[10] = cs[3] + two[1, 1];
out[11] = table[3];
out[12] = other.go(5);
other.set(4);
out[13] = other.counter;
out[14] = @as(i16, f(21));
exported += 1;
out[15] = exported;
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 11, 9, 16, 8, 42, 4], out


@ARCHS
def test_conversions_and_bits(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([32]i32);
var u = @zeros([8]u16);
var fo = @zeros([8]f32);
var h = @zeros([8]f16);
const ax: [4]i16 = .{ 1, 2, 3, 4 };
var neg: i16 = -7;
var i32v: i32 = 70000;
var fv: f32 = -2.75;
var hv: f16 = 65504.0;
var bv: bool = true;
""",
        """
out[0] = @as(i32, neg);
u[0] = @as(u16, neg);
out[1] = @as(i32, @as(i16, i32v));
out[2] = @as(i32, fv);
u[1] = @as(u16, bv);
out[3] = neg / 2;
out[4] = neg % 2;
out[5] = neg >> 1;
u[2] = u[0] >> 12;
fo[0] = @as(f32, hv);
h[0] = hv + hv;
h[1] = @as(f16, fv) * 3.0;
fo[1] = @bitcast(f32, @as(u32, 0x40490fdb));
u[3] = @bitcast(u16, neg);
out[6] = @bitcast(i32, fv);
out[7] = if (neg < 0 and !(fv > 0.0) or false) 1 else 2;
u[4] = ~u[0];
u[5] = u[0] ^ 0xff;
u[6] = u[0] & 0xf0 | 1;
out[8] = @as(i32, i32v << 2) - -3;
fo[2] = @as(f32, i32v);
fo[3] = -fv;
const p: *i16 = &neg;
out[13] = p.* * 2;
var arr = [2, 3]i16{ 1, 2, 3, 4, 5, 6 };
out[14] = arr[1, 2];
const q = &arr;
q.*[0, 1] = 40;
out[15] = (q.*)[0, 1];
const pp: [*]i16 = @ptrcast([*]i16, &arr);
out[16] = pp[4];
out[17] = @as(i32, @element_count(arr)) * 10 + @rank(arr);
out[18] = @dimensions(arr)[1];
out[19] = @as(i32, ax[2]);
var s: u16 = 65535;
s += 1;
out[20] = @as(i32, s);
out[21] = @as(i32, @is_same_type(@type_of(s), u16));
""",
        arch,
    )
    out, u, fo, h = pe["out"], pe["u"], pe["fo"], pe["h"]
    assert out.tolist()[:9] == [-7, 70000 - 65536, -2, -3, -1, -4, int(np.float32(-2.75).view(np.int32)), 1, 280003], (
        out
    )
    assert out.tolist()[13:22] == [-14, 6, 40, 5, 62, 3, 3, 0, 1], out
    assert u.tolist()[:7] == [65529, 1, 15, 65529, 6, 65529 ^ 255, 65529 & 0xF0 | 1], u
    assert h[:2].tolist() == [np.inf, -8.25]
    assert fo[:4].tolist() == [65504, np.float32(np.pi), 70000, 2.75]


@ARCHS
def test_generic_functions_and_pointers_to_functions(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var h = @zeros([8]f16);
var f = @zeros([4]f32);
fn make(n: u16, comptime T: type) T { return @as(T, n) * 2; }
fn any(x: anytype) @type_of(x) { return x + 1; }
const S = struct { a: i16, b: i16 };
fn mk(a: i16, b: i16) S { return S{ .a = a, .b = b }; }
var global_s: S = S{ .a = 1, .b = 2 };
var fn_ptr: *const fn(i16) i16 = &dbl;
fn dbl(v: i16) i16 { return v * 2; }
fn trp(v: i16) i16 { return v * 3; }
var byte: u8 = 255;
var i8v: i8 = -3;
var g3: [2, 2, 3]i16;
const names = "hello";
var aligned: i16 align(32) = 10;
var sect: i16 linksection(".mine") = 12;
const E = enum { a, b, c };
var e: E = E.b;
fn ptr_arr(p: *[3]i16) i16 { (p.*)[0] += 1; return p.*[0]; }
fn ptr_many(p: [*]i16) i16 { return p[2]; }
var arr3 = [3]i16{ 4, 5, 6 };
const big: comptime_int = 1 << 40;
""",
        """
out[0] = make(4, i16);
f[0] = make(4, f32);
out[1] = any(@as(i16, 4));
f[1] = any(@as(f32, 1.5));
const s = mk(5, 6);
out[2] = s.a + s.b;
global_s = s;
global_s.b += 1;
out[3] = global_s.b;
out[4] = fn_ptr.*(7);
fn_ptr = &trp;
out[5] = fn_ptr(7);
byte += 1;
out[6] = @as(i16, byte);
out[7] = @as(i16, i8v);
g3[1, 0, 2] = 9;
out[8] = g3[1, 0, 2];
out[9] = @as(i16, @strlen(names));
out[10] = aligned + sect;
switch (e) { E.a => { out[11] = 1; }, E.b => { out[11] = 2; }, E.c => { out[11] = 3; } }
out[12] = ptr_arr(&arr3);
out[13] = ptr_many(&arr3);
out[14] = @as(i16, big >> 38);
const n: u16 = 5;
switch (n) { 1, 2 => out[15] = 1, 5 => out[15] = 5, else => out[15] = 9 }
comptime { @comptime_assert(big > 3, "no"); }
var local = [4]f16{ 0.5, 1.5, 2.5, 3.5 };
const ld = @get_dsd(mem1d_dsd, .{ .base_address = &local, .extent = 4 });
const hd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> h[i] });
@fmulh(hd, ld, @as(f16, 2.0));
inline for (@range(i16, 2)) |k| { h[4 + k] = @as(f16, k); }
const t = if (s.a > 3) @as(i16, 4) else @as(i16, 5);
h[6] = @as(f16, t);
const r = @range(u16, 4);
for (r) |x| { h[7] += @as(f16, x); }
""",
        arch,
    )
    out, h, f = pe["out"], pe["h"], pe["f"]
    assert out.tolist() == [8, 5, 11, 7, 14, 21, 0, -3, 9, 5, 22, 2, 5, 6, 4, 5], out
    assert f.tolist()[:2] == [8.0, 2.5]
    assert h.tolist() == [1, 3, 5, 7, 0, 1, 4, 6], h


@ARCHS
def test_ranges_with_names(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([8]i16);
const part = @range_start(i16, 2, 5);
const down = @range(i16, 6, 0, -2);
""",
        """
for (part) |x| { out[0] += x; }
var lo: i16 = 3;
for (@range_start(i16, lo, lo + 3)) |x, k| { out[1] += x; out[2] += @as(i16, k); }
for (down) |x| { out[3] = out[3] * 10 + x; }
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist()[:4] == [9, 12, 3, 642], out


@ARCHS
def test_pointers_to_functions_that_may_wait(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var src = @zeros([4]i16);
const src_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> src[i] });
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
""",
        """
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
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist()[:7] == [106, 8, 0, 0, 5, 3, 1], out


@ARCHS
def test_packed_structs_unions_defaults(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
const P = packed struct { a: u4, b: u12 };
const U = union { f: f32, w: u32 };
var out = @zeros([16]u16);
var h = @zeros([4]f16);
var f = @zeros([4]f32);
const Vec = struct { x: f32 = 1.0, y: f32 = 2.0 };
fn Pair(comptime T: type) type { return struct { a: T, b: T }; }
const PI = Pair(i16);
var pair: PI = .{ .a = 3, .b = 4 };
const E = enum(u16) { red = 2, green = 5 };
fn name(e: E) u16 { return switch (e) { E.red => 1, E.green => 2 }; }
const Mat = [2, 2]f32;
var m: Mat = @constants(Mat, 1.5);
fn defaults(comptime cfg: comptime_struct) u16 { return if (@has_field(cfg, "n")) cfg.n else 17; }
const dims = @dimensions([3, 4]f32);
var big: u32 = 0x12345678;
var neg: i32 = -5;
const str = @strcat("ab", "cd");
var bits: u16 = 0xF0F0;
""",
        """
var p: P = P{ .a = 5, .b = 100 };
p.b += 1;
out[0] = @bitcast(u16, p);
var u: U = U{ .f = 1.0 };
out[1] = @as(u16, u.w >> 16);
out[2] = @as(u16, pair.a + pair.b);
out[3] = name(E.green);
out[4] = @get_int(E.green);
f[0] = m[1, 1];
out[5] = defaults(.{}) + defaults(.{ .n = 3 });
out[6] = dims[0] * 10 + dims[1];
out[7] = @as(u16, big & 0xffff);
out[8] = @as(u16, big >> 16);
out[9] = @as(u16, neg + 6);
f[1] = @as(f32, neg) / 2.0;
h[0] = @as(f16, f[1]);
h[1] = h[0] * h[0] + 0.25;
h[2] = -h[1];
h[3] = if (h[1] > h[2]) h[1] else h[2];
out[10] = @as(u16, @as(bool, bits)) + @as(u16, bits == 0xF0F0 and bits > 3);
bits <<= 4; bits |= 1; bits ^= 3; bits >>= 1; bits &= 0x7fff;
out[11] = bits;
const v = Vec{};
f[2] = v.x + v.y;
const vs = [2]Vec{ Vec{}, Vec{ .x = 5.0, .y = 6.0 } };
f[3] = vs[1].x;
var k: u16 = 0;
while (true) { k += 1; if (k == 7) { break; } else { continue; } }
out[12] = k;
const a16: f16 = 2049.0;
out[14] = @bitcast(u16, a16);
out[15] = @as(u16, 3.99);
""",
        arch,
    )
    out, h, f = pe["out"], pe["h"], pe["f"]
    assert out[:2].tolist() == [101 * 16 + 5, 0x3F80], out
    assert out[2:11].tolist() == [7, 2, 5, 20, 34, 0x5678, 0x1234, 1, 2], out
    assert out[11] == (((0xF0F0 << 4) & 0xFFFF | 1) ^ 3) >> 1
    assert f.tolist() == [1.5, -2.5, 3, 5], f
    assert h.tolist() == [-2.5, 6.5, -6.5, 6.5], h
    assert out[12:].tolist() == [7, 0, int(np.float16(2049).view(np.uint16)), 3], out


@ARCHS
def test_nested_structs_blocks_and_numbers(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]u16);
var f = @zeros([8]f32);
const S = struct { n: u16, p: [*]f32 };
fn total(s: *const S) f32 { var t: f32 = 0.0; for (@range(u16, s.n)) |i| { t += s.p[i]; } return t; }
fn bump(s: *S) void { s.n += 1; s.*.n += 1; }
var st: S = S{ .n = 2, .p = &f };
const K = enum { a, b };
const info = .{ .{ .k = 1, .v = 10 }, .{ .k = 2, .v = 20 } };
fn swap(p: *u16, q: *u16) void { const t = p.*; p.* = q.*; q.* = t; }
fn choose(comptime k: K) u16 { switch (k) { K.a => { return 5; }, K.b => { return 6; } } }
fn early(x: u16) u16 {
  if (x == 0) return 1;
  var r: u16 = 1;
  for (@range(u16, x)) |i| { if (i == 3) { break; } r *= 2; }
  return r;
}
extern const none: u16;
var arr2 = [_]u16{ 1, 2, 3 };
var nested: [2]struct { a: u16, b: [2]u16 } = undefined;
fn opt(comptime debug: bool) void { if (debug) { undefined_fn(); } }
const c = comptime blk: { var r: u16 = 0; for (@range(u16, 5)) |i| { r += i; } break :blk r; };
export fn visible(a: i16) i16 { return a; }
const neg_one: i16 = -1;
const hex = 0x7FFF; const bin = 0b101; const oct = 0o17; const e = 1.5e-3; const us = 1_000;
""",
        """
f[0] = 1.5; f[1] = 2.0; f[2] = 0.25; f[3] = 0.25;
bump(&st);
f[4] = total(&st);
out[0] = st.n;
out[1] = 7; swap(&out[1], &out[0]);
out[2] = choose(K.b);
out[3] = early(9) + early(0);
out[4] = arr2[2];
nested[1].b[1] = 8; out[5] = nested[1].b[1];
out[6] = c;
inline for (info) |it, i| { out[7 + i] = it.k * 100 + it.v; }
var t: u32 = 70000; out[9] = @as(u16, t / 1000); out[10] = @as(u16, t % 1000 >> 2);
const q = (if (t > 5) @as(u16, 1) else 2) + 3;
out[11] = q;
out[12] = bin + oct + us;
var w: i32 = @as(i32, neg_one); out[13] = @as(u16, w);
out[14] = @bitcast(u16, neg_one) >> 8;
var u64v: u64 = 1; u64v <<= 33; out[15] = @as(u16, u64v >> 30);
""",
        arch,
    )
    out, f = pe["out"], pe["f"]
    assert out.tolist() == [7, 4, 6, 9, 3, 8, 10, 110, 220, 70, 0, 4, 1020, 65535, 255, 8], out
    assert f[4] == 4.0


@ARCHS
def test_conversions_pointers_and_sections(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var f = @zeros([8]f32);
var w = @zeros([8]u32);
var x: f32 = -0.0;
var y: f32 = 3.7;
var big: f32 = 300000.0;
var linked: i16 linkname("other_name") = 5;
var both: i16 align(8) linksection(".s") = 6;
var p: [*]f32 = &f;
const addr_of = @bitcast(u16, &f);
const raw: [*]u32 = @ptrcast([*]u32, &f);
var h: f16 = 1.0;
var s: i16 = -300;
var u: u16 = 65535;
var l: i32 = -1;
var n: u16 = 3;
var m2 = @zeros([3, 4]i16);
const dyn = [4]u16{ 3, 2, 1, 0 };
fn row(i: u16) mem1d_dsd {
  return @increment_dsd_offset(@get_dsd(mem1d_dsd, .{ .tensor_access = |j|{4} -> m2[0, j] }), i * 4, i16);
}
fn ret_struct(a: i16) struct { lo: i16, hi: i16 } { return .{ .lo = a, .hi = a + 1 }; }
""",
        """
out[0] = @as(i16, @as(bool, x)) + 2 * @as(i16, @as(bool, y));
out[1] = @as(i16, y);
out[2] = @as(i16, -y);
f[0] = @as(f32, h) + 1.0;
w[0] = raw[0];
p = @bitcast([*]f32, @as(u16, @bitcast(u16, p) + 4));
p[0] = 9.0;
out[3] = @as(i16, @as(i32, big) >> 4 & 0x7f);
w[1] = @as(u32, u) << 16 | @as(u32, @bitcast(u16, s));
out[4] = linked + both;
w[2] = @as(u32, l);
out[5] = @as(i16, s % 7);
out[6] = s / 7;
for (@range(u16, n)) |i| { @mov16(row(i), @as(i16, i + 1)); m2[i, dyn[i]] += 10; }
out[7] = m2[0, 3] * 10000 + m2[1, 2] * 100 + m2[2, 1];
out[8] = m2[2, 0];
const fields = ret_struct(5);
out[9] = fields.lo * 10 + fields.hi;
const third = @get_dsd(mem1d_dsd, .{ .base_address = &f[2], .extent = n });
@fmacs(third, third, @get_dsd(mem1d_dsd, .{ .base_address = &f, .extent = n, .stride = 0 }), y);
var g: f32 = 16777216.0; g += 1.0; f[6] = g;
var hh: f16 = 0.1; hh += 0.2; f[7] = @as(f32, hh);
out[10] = if (x == 0.0 and y != y + 1.0) 1 else 0;
const z = 5.0 / 2.0; out[11] = @as(i16, z * 2.0);
out[12] = 7 / 2 + (-7) / 2 + 7 % 4;
out[13] = @as(i16, u >> 15) + @as(i16, n << 2);
""",
        arch,
    )
    out, f, w = pe["out"], pe["f"], pe["w"]
    assert out.tolist()[:3] == [2, 3, -3], out
    assert f[:2].tolist() == [2, 9]
    assert out[3] == (300000 >> 4) & 0x7F
    assert w[:3].tolist() == [0x40000000, 0xFFFF0000 | (65536 - 300), 0xFFFFFFFF]
    assert out[4:7].tolist() == [11, -300 + 42 * 7, -42], out
    assert out[8:14].tolist() == [3, 56, 1, 5, 3, 13], out
    assert np.allclose(f[2:5], 7.4)
    assert f[6:].tolist() == [16777216, np.float16(0.1) + np.float16(0.2)]


@ARCHS
def test_conditions_that_need_lines(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([8]i16);
var f: f32 = 2.0;
fn two(v: f32) f32 { f += 1.0; return v + f; }
""",
        """
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
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist()[:4] == [5, 1, 2, 13], out
    assert out[4:6].tolist() == [3, 5], out


@ARCHS
def test_pointers_within_structs_and_effects_in_indices(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var b = @zeros([4]i16);
const fifo = @allocate_fifo(b);
var mutable_fifo = fifo;
const o4 = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> out[i] });
const task_a = @get_local_task_id(21);
task ta() void { out[8] += 1; }
task tb(x: i16) void { out[9] = x; }
comptime { @bind_local_task(ta, task_a); }
fn idx(k: i16) i16 { out[10] += 1; return k; }
var rows: [3, 2]i16;
fn use_dsd(d: mem1d_dsd, v: i16) void { @add16(d, d, v); }
const Node = struct { next: *Node2, v: i16 };
const Node2 = struct { v: i16 };
var leaf: Node2 = Node2{ .v = 4 };
var node: Node = Node{ .next = &leaf, .v = 1 };
var list: [3]Node2;
""",
        """
out[idx(2) + idx(1)] += 5;
rows[1, 0] = 3;
out[0] = rows[1, 0];
use_dsd(o4, 1);
node.next.v += 1;
out[5] = leaf.v + node.next.*.v;
for (@range(u16, 3)) |i| { list[i].v = @as(i16, i) * 3; }
for (list) |*n| { n.*.v += 1; }
out[6] = list[2].v + 2;
@activate(task_a);
out[7] = comptime (3 + 4);
const ok = @mov16(mutable_fifo, 5);
out[11] = @as(i16, ok);
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist()[:12] == [4, 1, 1, 6, 0, 10, 9, 7, 1, 0, 2, 1], out


@ARCHS
def test_floats_in_every_place(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]f32);
var f: f32 = 2.0;
var h: f16 = 1.5;
var k: i16 = 3;
const S = struct { v: f32, w: f16 };
var st = @constants([2]f32, 1.0);
fn g(a: f32, b: f32) f32 { return a * b + 1.0; }
fn rec(n: i16) f32 { var a: f32 = 1.0; var i = n; while (i > 0) : (i -= 1) { a *= @as(f32, i); } return a; }
const math = @import_module("<math>");
""",
        """
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
""",
        arch,
    )
    out = pe["out"]
    f = np.float32(2)
    third = f / np.float32(3)
    assert out[:3].tolist() == [65, third + np.float32(1), 3.25]
    squared = f + (np.float32(4) - third)
    assert out[3] == squared * squared
    assert out[4:7].tolist() == [10.75, 7.5, 24]
    assert out[7:].tolist() == [f * np.float32(0.1) + np.float32(0.2), 16, 3, 7, 6, 4, 6, 3, 8]


@ARCHS
def test_loops_whose_condition_needs_lines(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([8]i16);
var f: f32 = 2.0;
""",
        """
while (f + 1.0 < 8.0) { f += 1.0; out[0] += 1; }
while (f * 0.5 > 1.0) : (f -= 1.0) { out[1] += 1; if (f + 0.5 < 5.0) break; }
""",
        arch,
    )
    out = pe["out"]
    assert out.tolist()[:2] == [5, 4], out
