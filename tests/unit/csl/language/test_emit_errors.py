"""What functions may not do: every message of the emitter, in full."""

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.emit_cases import Program
from tests.unit.csl.language.shown import cases

HEAD = """const out_q = @get_output_queue(2);
const in_q = @get_input_queue(3);
var a = @zeros([8]f32);
const a_dsd = @get_dsd(mem1d_dsd, .{ .base_address = &a, .extent = 8 });
const in_dsd = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = in_q });
const out_dsd = @get_dsd(fabout_dsd, .{ .extent = 8, .output_queue = out_q, .fabric_color = @get_color(5) });
const reg = @get_dsr(dsr_src1, 2);
const P = struct { x: i16, y: f32 };
const E = enum(u16) { A, B };
var g: P;
task t() void {} fn starts(x: f32) f32 { @fmovs(out_dsd, a_dsd, .{ .async = true }); return x; }
fn square(x: f32) f32 { return x * x; }
fn one(v: i16) i16 { return v; }
fn none() i16 { return 0; } const U = union { p: P, k: i32 }; fn made(v: i32) U { return U{ .k = v }; }
var pointer: *const fn(i16) i16 = &one;
"""
CASES = r"""
const x: i16 = k; ==> 16: 'x' must be i16, got i32 | convert it: @as(i16, ...)
var x = 5; ==> 1: 'x' is needed at run time and must have a type, got comptime_int | @as gives one
n = 3; ==> 1: 'n' is const and cannot be assigned to |
  const and parameters keep their values; a copy that changes is 'var copy = ...;'
_ = n + @as(f32, k); ==> 5: no operator '+' on i16 and f32 | convert one side: @as(i16, ...)
if (n) {} ==> 5: the condition of an 'if' must be bool, got i16 | compare it: x != 0
_ = if (n > 0) @as(i16, 1); ==> 5: an 'if' whose value is used needs an 'else'
_ = if (n > 0) 1 else 2;
  5: an 'if' that is decided at run time needs a type that exists then, got comptime_int | @as gives one
_ = if (n > 0) n else k > 2; ==> 5: the branches of an 'if' must agree on a type, got i16 and bool
switch (n) { 1 => {}, 1 => {}, else => {} } ==> 23: a value has one case
switch (n) { 1 => {} } ==> 1: a switch must have a case for every i16, or an 'else'
switch (@as(f32, n)) { else => {} } ==> 9: a switch is over integers, enums and bool, got f32
break; ==> 1: 'break' stands in no loop
while (n > 0) { break :out; } ==> 17: there is no loop or block ':out' around
while (n > 0) { break 5; } ==> 17: a loop has no value, got 'break' with one
return 5; ==> 1: this function returns void, got comptime_int
for (n) |x| {} ==> 6: a 'for' goes over a range or an array of one dimension, got i16
for (@range(f32, n)) |x| {} ==> 13: @range takes an integer type, got f32
_ = made(k).p.x;
  5: field 'p' of a value has parts, and is itself bits of a packed struct or a union: not simulated, got P |
  a union in a variable may have such fields
a[n, n] = 1.0; ==> 1: [8]f32 takes 1 indices, got 2
a[@as(f32, n)] = 1.0; ==> 3: an index must be an integer, got f32
_ = n[0]; ==> 5: only arrays and pointers to many have elements, got i16
_ = n.*; ==> 5: .* needs a pointer, got i16
_ = g.z; ==> 5: P has the fields x, y, got .z
_ = (n + 1)(2); ==> 5: only a function can be called, got i16
_ = square(k); ==> 5: parameter 'x' of 'square' must be f32, got a value of i32 | convert it: @as(f32, ...)
n + 1; ==> 1: a value is not used, got i16 | _ = ...; says that it is not needed
t(); ==> 1: 't' is a task, it cannot be called | @activate its task id
f(n, k, u); ==> 1: a function must not call itself, got f() | a PE has no stack; use a loop
_ = u << @as(u16, 16); ==> 5: a shift of u16 is by 0 to 15 bits, got 16
@activate(t); ==> 11: 't' is not bound to a task id | @bind_local_task(t, ...)
@activate(n); ==> 11: @activate takes a task or its id, got i16
@unblock(n); ==> 10: @unblock takes a task, its id or an input queue, got i16
@fadds(a_dsd, a_dsd); ==> 1: @fadds takes 3 to 4 arguments, got 2
@fadds(a_dsd, a_dsd, n);
  1: @fadds takes (DSD, DSD, DSD) or (DSD, f32, DSD) or (DSD, DSD, f32) or (*f32, f32, DSD), got (mem1d_dsd,
  mem1d_dsd, i16)
@mov16(a_dsd, k); ==> 1: @mov16 takes (DSD, DSD) or (*i16 or *u16, DSD) or (DSD, i16 or u16), got (mem1d_dsd, i32)
@fmovs(in_dsd, a_dsd); ==> 8: a destination cannot be fabin_dsd | the destination comes first
@fmovs(a_dsd, out_dsd); ==> 15: a source cannot be fabout_dsd | the destination comes first
@fmovs(reg, a_dsd); ==> 8: a destination cannot be dsr_src1 | the destination comes first
@fmovs(a_dsd, in_dsd, .{ .asink = true }); ==> 23: there is no setting '.asink' | did you mean async?
@fmovs(a_dsd, in_dsd, .{ .async = true, .priority = .{ .top = true } });
  23: '.priority' is .{ .high = true }, .{ .medium = true } or .{ .low = true }
@fmovs(a_dsd, in_dsd, .{ .async = n > 2 }); ==> 23: '.async' must be known at compile time
@map(square, a_dsd); ==> 1: @map of square() takes 2 operands, got 1
@map(starts, a_dsd, a_dsd);
  6: what @map calls must not wait | it must use no fabric and no FIFO, and start no asynchronous operation
@map(a_dsd, a_dsd);
  6: @map takes a function first, got mem1d_dsd Mem1d(address=64, extent=8, stride=4, width=4, indexed=Fa...
@load_to_dsr(a_dsd, a_dsd); ==> 14: @load_to_dsr loads into a DSR, got mem1d_dsd
_ = @increment_dsd_offset(in_dsd, n, f32); ==> 5: @increment_dsd_offset takes mem1d_dsd or mem4d_dsd, got fabin_dsd
_ = @set_dsd_base_addr(a_dsd, n); ==> 31: @set_dsd_base_addr takes a pointer or an array, got i16
_ = @get_dsd(mem1d_dsd, .{ .base_address = &a, .extent = k });
  5: '.extent' must be u16, got i32 | convert it: @as(u16, ...)
_ = &(n + 1); ==> 7: & takes a variable, an element or a field
_ = pointer.*(1, 2); ==> 5: fn(i16)i16 takes 1 argument, got 2
pointer = &none;
  11: 'pointer' must be *const fn(i16)i16, got *const fn()i16 49154 | convert it: @ptrcast(*const fn(i16)i16, ...)
"""


@pytest.mark.parametrize(("body", "said"), cases(CASES))
def test_message(body: str, said: str) -> None:
    with pytest.raises(CslError) as caught:
        Program(HEAD + "export fn f(n: i16, k: i32, u: u16) void {\n" + body + "\n}\n")
    message, _, hint = said.partition(" | ")
    assert (caught.value.message, caught.value.hint) == (f"pe.csl:17:{message}", hint or None)
