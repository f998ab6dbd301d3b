"""Vectors: @map, tensors, DSRs, f16, changes of DSDs, and FIFOs that are empty or full, as users write them."""

import numpy as np

from tests.unit.csl.language.many_pes import One


def test_tensors_of_two_and_three_dimensions(one: One) -> None:
    pe = one("""
var A: [3, 4]f32;
var B: [2, 3, 4]i16;
var out = @zeros([12]f32);
var out2 = @zeros([24]i16);
const A_T = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{4, 3} -> A[j, i] });
const B_dsd = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j, k|{4, 3, 2} -> B[k, j, i] });
const o4 = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{4, 3} -> out[3 * i + j] });
const C = [2, 2]i16{ 1, 2, 3, 4 };
---
for (@range(i16, 3)) |i| { for (@range(i16, 4)) |j| { A[i, j] = @as(f32, 10 * i + j); } }
for (@range(u16, 2)) |k| {
  for (@range(u16, 3)) |j| { for (@range(u16, 4)) |i| { B[k, j, i] = @as(i16, 100 * k + 10 * j + i); } }
}
@fmovs(out_dsd, A_T);
@mov16(out2_dsd, B_dsd);
out2[0] = C[1, 0];
@fadds(out_dsd, o4, 1.0);
""")
    out, out2 = pe["out"], pe["out2"]
    assert out.tolist() == [10 * i + j + 1.0 for j in range(4) for i in range(3)], out
    assert out2.tolist()[1:] == [100 * k + 10 * j + i for i in range(4) for j in range(3) for k in range(2)][1:], out2
    assert out2[0] == 3


def test_halves_in_scalars_and_vectors(one: One) -> None:
    pe = one("""
var x = @zeros([8]f16);
var y = @zeros([8]f16);
var z = @zeros([4]f32);
var b = @zeros([4]u16);
const y4 = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> y[i] });
const k: f16 = 0.1;
---
for (@range(i16, 8)) |i| { x[i] = @as(f16, i) * k; }
@faddh(y_dsd, x_dsd, 1.0);
@fmach(y_dsd, y_dsd, x_dsd, @as(f16, 2));
@fh2s(z_dsd, y4);
@faddhs(z_dsd, z_dsd, y4);
b[0] = @bitcast(u16, x[1]);
b[1] = @bitcast(u16, @as(f16, -2.5));
b[2] = @as(u16, y[7]);
const f: f32 = 1.5;
const w = @bitcast(u32, f);
b[3] = @as(u16, w >> 16);
var mx: f16 = 0.0;
@fmaxh(&mx, mx, x_dsd);
x[0] = mx;
""")
    x, y, b = pe["x"], pe["y"], pe["b"]
    xx = np.arange(8).astype(np.float16) * np.float16(0.1)
    assert (x[1:] == xx[1:]).all()
    assert x[0] == xx[7]
    assert b.tolist() == [xx.view(np.uint16)[1], np.float16(-2.5).view(np.uint16), int(y[7]), 0x3FC0]


def test_map_calls_functions_of_all_kinds(one: One) -> None:
    pe = one("""
var out = @zeros([16]f32);
var x = @zeros([8]f32);
var w = @zeros([8]u16);
var B = @zeros([2, 4]f32);
const bd = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 4} -> B[i, j] });
const math = @import_module("<math>");
var scale: f32 = 3.0;
fn fma(a: f32, b: f32) f32 { return a * scale + b; }
fn pair(a: f32, b: u16) f32 { return a + @as(f32, b); }
var counter: u16 = 0;
fn counting(a: f32) f32 { counter += 1; return a * @as(f32, counter); }
fn reduce(a: f32, acc: f32) f32 { return a + acc; }
var acc: f32 = 0.0;
fn const0() f32 { return 2.5; }
fn mode(comptime k: u16) fn(f32) f32 { return if (k == 0) double else math.abs_f32; }
fn double(a: f32) f32 { return a * 2.0; }
---
@map(const0, x_dsd);
for (@range(u16, 8)) |i| { w[i] = i; x[i] += @as(f32, i); }
@map(fma, x_dsd, x_dsd, out_dsd);
@map(pair, out_dsd, w_dsd, out_dsd);
@map(counting, bd, bd);
@map(counting, x_dsd, bd);
@map(reduce, x_dsd, acc, &acc);
var a2: f32 = 1.0;
@map(fma, x_dsd, a2, x_dsd);
@map(mode(0), x_dsd, x_dsd);
@map(math.abs_f32, x_dsd, x_dsd);
@map(math.max_f32, x_dsd, scale, x_dsd);
out[8] = acc;
out[9] = @as(f32, counter);
""")
    out, x = pe["out"], pe["x"]
    assert out.tolist()[:10] == [10, 15, 20, 25, 30, 35, 40, 45, 9.5, 16], out
    assert x.tolist() == [17, 23, 29, 35, 41, 47, 53, 59], x


def test_a_source_register_may_be_the_destination(one: One) -> None:
    pe = one("""
var out = @zeros([8]f32);
var x = @zeros([8]f32);
var m = @zeros([8]i16);
const d = @get_dsr(dsr_dest, 3);
const s0 = @get_dsr(dsr_src0, 3);
const s1 = @get_dsr(dsr_src1, 3);
const rev = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> x[7 - i] });
fn mask(a: f32) i16 { if (a > 3.0) { return 1; } return 0; }
---
for (@range(i16, 8)) |i| { x[i] = @as(f32, i); }
@load_to_dsr(s0, out_dsd);
@load_to_dsr(s1, rev);
@fadds(s0, s0, s1);
@fmacs(s0, s0, s1, 2.0);
@map(mask, x_dsd, m_dsd);
""")
    out, m = pe["out"], pe["m"]
    assert out.tolist() == [21, 18, 15, 12, 9, 6, 3, 0], out
    assert m.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_tensor_accesses_and_changes_of_dsds(one: One) -> None:
    pe = one("""
var out = @zeros([16]i16);
var A = @zeros([24]i16);
var B = @zeros([4, 6]i16);
const n = 6;
var k: u16 = 2;
const row0 = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> B[0, i] });
const col0 = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> B[i, 0] });
const diag = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> B[i, i + 1] });
const block = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 3} -> B[i + 1, j + 2] });
const flat6 = @set_dsd_length(A_dsd, 6);
const neg = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{6} -> A[-1 * i + 23] });
const ptr: [*]i16 = &A;
const byptr = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> ptr[2 * i] });
const p2: *[4, 6]i16 = &B;
const viaptr = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> p2[2, i] });
fn dsd_of(p: [*]i16, len: u16) mem1d_dsd {
  return @get_dsd(mem1d_dsd, .{ .base_address = p, .extent = len, .stride = 2 });
}
var cur = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> A[i + 6] });
---
for (@range(u16, 4)) |i| { for (@range(u16, 6)) |j| { B[i, j] = @as(i16, i * 10 + j); } }
@mov16(flat6, block);
@mov16(neg, @increment_dsd_offset(row0, @as(i16, k * 6), i16));
@add16(@set_dsd_length(byptr, k), 1, @set_dsd_length(byptr, k));
const d4 = @increment_dsd_offset(block, -1, i16);
out[0] = B[1, 1];
@mov16(@get_dsd(mem1d_dsd, .{ .base_address = &out, .extent = 6 }), d4);
@mov16(@set_dsd_base_addr(cur, &out[6]), diag);
cur = @increment_dsd_offset(cur, 2, i16);
@mov16(cur, 77);
@mov16(dsd_of(&out[8], 4), viaptr);
for (@range(i16, 2)) |s| { cur = @increment_dsd_offset(cur, s + 1, i16); }
@sub16(cur, cur, 7);
@sll16(flat6, flat6, 1);
""")
    out, A = pe["out"], pe["A"]

    def r(i: int, j: int) -> int:
        return 10 * i + j

    assert out[:6].tolist() == [r(1, 1), r(1, 2), r(1, 3), r(2, 1), r(2, 2), r(2, 3)], out
    assert out[6:8].tolist() == [1, 12], out
    assert out[8:14].tolist() == [20, 0, 21, 0, 22, 0], out
    assert A[18:].tolist() == [r(2, j) for j in range(5, -1, -1)], A
    assert A[:6].tolist() == [2 * x for x in (r(1, 2) + 1, r(1, 3), r(1, 4) + 1, r(2, 2), r(2, 3), r(2, 4))], A
    assert A[6:13].tolist() == [0, 0, 77, 77, 0, -7, -7], A


def test_registers_that_hold_fifos(one: One) -> None:
    pe = one("""
var out = @zeros([16]i16);
var src = @zeros([8]i16);
var buffer = @zeros([4]i16);
const fifo = @allocate_fifo(buffer);
const fd = @get_dsr(dsr_fifo_dest, 4);
const fs = @get_dsr(dsr_fifo_src1, 4);
const four = @set_dsd_length(src_dsd, 4);
const plain = @get_dsr(dsr_dest, 5);
---
for (@range(i16, 8)) |i| { src[i] = i + 1; }
@load_to_dsr(fd, fifo);
@load_to_dsr(fs, fifo);
@load_to_dsr(plain, @set_dsd_length(out_dsd, 4));
if (@mov16(fd, four)) { out[8] = 1; }
if (!@mov16(fd, @as(i16, 3))) { out[9] = 1; }
var done: bool = @mov16(plain, fs);
out[10] = @as(i16, done);
while (@mov16(fd, @as(i16, 3))) { out[11] += 1; }
""")
    out = pe["out"]
    assert out[:4].tolist() == [1, 2, 3, 4], out
    assert out[8:12].tolist() == [1, 1, 1, 4], out


def test_mantissas_of_a_vector_and_of_a_number(one: One) -> None:
    pe = one("""
var x = [3]f32{ 12.0, -0.75, 1.0 };
var y = @zeros([3]f32);
var z = @zeros([1]f32);
---
@fnorms(y_dsd, x_dsd);
@fnorms(&z[0], 24.0);
""")
    assert pe["y"].tolist() == [1.5, -1.5, 1.0]
    assert pe["z"].tolist() == [1.5]


def test_a_vector_takes_its_first_index_from_the_setting(one: One) -> None:
    assert one("""
var a = [6]u16{ 1, 2, 3, 4, 5, 6 };
var b = @zeros([6]u16);
const from = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> a[i], .wavelet_index_offset = true });
const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> b[i] });
---
@mov16(to, from, .{ .index = 3 });
""")["b"].tolist() == [4, 5, 0, 0, 0, 0]


def test_strides_count_elements_of_the_operation(one: One) -> None:
    found = one("""
var pairs = [6]u16{ 1, 2, 3, 4, 5, 6 };
var moved = @zeros([6]u16);
var low = @zeros([4]u16);
var words = [2]u32{ 0x20001, 0x40003 };
const from = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> pairs[i + 2] });
const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> moved[i] });
const halves = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> words[i] });
const back = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{1, 4} -> low[3 - j] });
const register = @get_dsr(dsr_dest, 1);
---
@load_to_dsr(register, to, .{ .save_address = true });
const one_dsd = @set_dsd_length(from, 1);
@mov32(register, one_dsd);
@mov32(register, @increment_dsd_offset(one_dsd, 1, u32));
@mov16(back, halves);
""")
    assert found["moved"].tolist() == [3, 4, 5, 6, 0, 0]
    assert found["low"].tolist() == [4, 3, 2, 1]
