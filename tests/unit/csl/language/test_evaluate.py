import pytest

from cstool.csl.language import limits, types
from cstool.csl.language.source import CslError
from tests.unit.csl.language.comptime_cases import bad, known, module_of, program_of, refusal, told, value
from tests.unit.csl.language.shown import cases, columns, lines

EXPRESSIONS = """
1 + 2 * 3 ==> 7    -7 / 2 ==> -3    -7 % 2 ==> -1    7 % -2 ==> 1    1 << 70 ==> 1180591620717411303424    ~5 ==> -6
0xF0 & 0x3C | 1 ==> 49    1.5 * 2 ==> 3.0    true and !false ==> true    1 < 2 or 1 / 0 == 1 ==> true
false and unknown ==> false    "a" ++ "b" ==> "ab"    "a" == "a" ==> true    i16 == i16 ==> true    i16 == u16 ==> false
if (1 < 2) 3 else unknown ==> 3    switch (3) { 1, 2 => 10, 3...5 => 20, else => 30 } ==> 20
blk: { break :blk 4; } ==> 4    .{ .a = 1, .b = .{ 2, 3 } }.b ==> .{ 2, 3 }    .{ 5, 6 }[1] ==> 6
[3]i16{ 1, 2, 3 } ==> [3]i16{ 1, 2, 3 }    [_]i16{ 1, 2, 3 } ==> [3]i16{ 1, 2, 3 }
[2, 2]i16{ 1, 2, 3, 4 }[1, 0] ==> i16 3    [2, 2]i16{ .{ 1, 2 }, .{ 3, 4 } }[0, 1] ==> i16 2
@as(u8, 250) +% 10 ==> u8 4    @as(f16, 0.1) ==> f16 0.0999755859375    @as(f16, 1.0) / 3.0 ==> f16 0.333251953125
@as(i16, 5) + 3 ==> i16 8    @as(i16, 5) + @as(i32, 3) ==> i32 8    @as(u8, 5) + @as(i16, 3) ==> i16 8
@as(f32, 1.0) + 1 ==> f32 2.0    @as(f16, 1.0) + @as(f32, 1.0) ==> f32 2.0    @as(u16, 5) + @as(i16, 3) ==> u16 8
1 + 1 ==> 2    1.0 + 1 ==> 2.0    @as(i16, 1) == 1 ==> true
"""


@pytest.mark.parametrize(("expression", "expected"), columns(EXPRESSIONS))
def test_expressions(expression: str, expected: str) -> None:
    assert told(expression) == expected


WIDER = "(use a wider type, or @as(i16, ...) to drop bits)"


REFUSED = r"""
1 / 0 ==> a divisor is not zero, got 1 / 0
1.0 / 0.0 ==> a divisor is not zero, got 1.0 / 0.0
1e999 - 1e999 ==> a number too large for a float, 1e999
1e308 * 10.0 - 1e308 * 10.0 ==> a comptime_float is a number, got inf - inf
@as(i16, 32767) + 1 ==> 32767 + 1 must fit i16 (-32768 to 32767), got 32768 WIDER
@as(u16, 1) - 2 ==> 1 - 2 must fit u16 (0 to 65535), got -1
@as(u16, 1) + (-2) ==> the value must fit u16 (0 to 65535), got -2
-@as(u16, 1) ==> -(1) must fit u16 (0 to 65535), got -1
@as(u16, 60000) + @as(i16, -1) ==> no operator '+' on u16 and i16 (convert one side: @as(u16, ...))
@as(f32, 1.0) + @as(i16, 1) ==> no operator '+' on f32 and i16 (convert one side: @as(f32, ...))
1.5 & 1.5 ==> no operator '&' on comptime_float and comptime_float
true + true ==> no operator '+' on bool and bool
1 and true ==> no operator 'and' on comptime_int and bool (compare with 0, or use & and | on integers)
1 << -1 ==> a shift is by 0 or more bits, got -1
@as(u16, 1) << 16 ==> a shift of u16 is by less than 16 bits, got 16
!1 ==> no operator '!' on comptime_int
if (1) 2 else 3 ==> a condition is a bool, got comptime_int 1 (compare it: 'x != 0')
switch (3) { 1 => 1 } ==> no case of this switch is for comptime_int 3 (add 'else => ...')
widht ==> unknown name 'widht' (did you mean width?)
.{ .a = 1 }.b ==> no field 'b' in comptime_struct; its fields: a
[2]i16{ 1 } ==> the literal must have 2 elements ([2]i16), got 1
[2]i16{ 1, 99999 } ==> element 1 of the literal must fit i16 (-32768 to 32767), got 99999 WIDER
[2]i16{ 1, 2 }[2] ==> an index of [2]i16 is 0 to 1, got 2
[2]i16{ 1, 2 }[0, 0] ==> [2]i16 takes 1 index, got 2
[2]i16{ 1, 2 }[1.0] ==> an index is an integer, got comptime_float
width() ==> only functions can be called, got comptime_int 5
[-1]i16 ==> an array has 0 or more elements, got comptime_int -1
*5 ==> expected a type, got comptime_int 5
changing
  'changing' must be known at compile time, it is a variable of run time (const, param and comptime var are known at
  compile time)
f(1) ==> 'f' takes 2 arguments, got 1 | declared here
f(1, 2.5) ==> parameter 'b' must be i16, got comptime_float 2.5 (convert it: @as(i16, ...))
f(1, 70000) ==> parameter 'b' must fit i16 (-32768 to 32767), got 70000 WIDER
forever(0) ==> calls at compile time are at most 200 deep, 'forever' is deeper
  (does it call itself without an end? --comptime-func-depth-limit allows more)
no_result() ==> 'no_result' must return i16, it ended without
t() ==> 't' is a task, it cannot be called (@activate its task id)
one ==> 'one' depends on itself: one -> two -> one
assigns() ==> 'width' is a constant and cannot be changed (declare it with 'var')
writes()
  'changing' must be known at compile time, it is a variable of run time (a var of a block or function that runs at
  compile time can be changed there)
const_local() ==> 'a' is a constant and cannot be changed (declare it with 'var')
wrong_type() ==> 'a' must be i16, got comptime_float 1.5 (convert it: @as(i16, ...))
twice() ==> 'a' is declared twice in this block
"""


@pytest.mark.parametrize(("expression", "message"), cases(REFUSED))
def test_refused(expression: str, message: str) -> None:
    before = """
const width = 5;
var changing: i16 = 1;
const one = two;
const two = one;
fn f(a: i16, b: i16) i16 { return a + b; }
fn forever(n: i16) i16 { return forever(n); }
fn no_result() i16 { }
fn assigns() i16 { width = 3; return 1; }
fn writes() i16 { changing = 3; return 1; }
fn const_local() i16 { const a = 1; a = 2; return a; }
fn wrong_type() i16 { var a: i16 = 1; a = 1.5; return a; }
fn twice() i16 { const a = 1; const a = 2; return a; }
task t() void {}
"""
    assert bad(expression, before) == message.replace("WIDER", WIDER)


def test_a_message_shows_its_place() -> None:
    assert refusal("const y = 1;\nconst x: i16 = 1 / 0;") == (
        "pe.csl:2:16: a divisor is not zero, got 1 / 0\n    const x: i16 = 1 / 0;\n                   ^^^^^"
    )


FUNCTIONS = """
fn sum_to(n: u16) u32 {
  var total: u32 = 0;
  for (@range(u16, n)) |k| { total += @as(u32, k); }
  return total;
}
fn odd_squares(n: i32) i32 {
  var total: i32 = 0;
  var k: i32 = 0;
  while (k < n) : (k += 1) {
    if (k % 2 == 0) continue;
    if (k > 6) break;
    total += k * k;
  }
  return total;
}
fn fibonacci(n: u16) u16 {
  if (n < 2) return n;
  return fibonacci(n - 1) + fibonacci(n - 2);
}
fn nested() i16 {
  var count: i16 = 0;
  outer: for (@range(i16, 5)) |i| {
    for (@range(i16, 5)) |j| {
      if (j == 3) continue :outer;
      if (i == 3) break :outer;
      count += 1;
    }
  }
  return count;
}
fn table(n: u16) [8]u16 {
  var result = @zeros([8]u16);
  for (result) |_, index| {
    result[index] = index * n;
  }
  return result;
}
fn swap(a: *i16, b: *i16) void {
  const t = a.*;
  a.* = b.*;
  b.* = t;
}
fn pointers() i16 {
  var a: i16 = 3;
  var b: i16 = 5;
  swap(&a, &b);
  return a * 10 + b;
}
fn fill(p: *[3]i16, at: u16) void { (p.*)[at] = 7; }
fn through_pointer() [3]i16 {
  var a = [3]i16{ 1, 2, 3 };
  fill(&a, 1);
  return a;
}
fn copies() i16 {
  var a = [2]i16{ 1, 2 };
  var b = a;
  b[0] = 9;
  a[1] = 8;
  return a[0] * 100 + a[1] * 10 + b[0];
}
fn max(comptime T: type, a: T, b: T) T { return if (a > b) a else b; }
fn twice(x: anytype) @type_of(x) { return x + x; }
fn Pair(comptime T: type) type { return struct { first: T, second: T = 9 }; }
fn labeled(n: u16) u16 {
  const x: u16 = found: {
    for (@range(u16, 10)) |k| {
      if (k * k >= n) break :found k;
    }
    break :found 99;
  };
  return x + 1;
}
fn returns_from_a_branch(n: i16) i16 {
  const x: i16 = if (n > 3) n else { return -1; };
  return x * 2;
}
fn shape(comptime n: u16) [n]i16 { return @zeros([n]i16); }
fn late(x: bool) i16 {
  if (x) {
    const a: i16 = 1; const b: i16 = 2; const c: i16 = 3;
    return a + b + c;
  } else {
    const d: i16 = 4; const e: i16 = 5;
    if (e == 5) { return late(true) + d + e; }
    return 0;
  }
}
"""


CALLS = """
sum_to(10) ==> u32 45    odd_squares(100) ==> i32 35    fibonacci(12) ==> u16 144    nested() ==> i16 9
table(3) ==> [8]u16{ 0, 3, 6, 9, 12, 15, 18, 21 }    pointers() ==> i16 53    through_pointer() ==> [3]i16{ 1, 7, 3 }
copies() ==> i16 189    max(f32, 1.5, 2) ==> f32 2.0    twice(@as(i16, 4)) ==> i16 8
Pair(i16){ .first = 1 }.second ==> i16 9    labeled(20) ==> u16 6    returns_from_a_branch(2) ==> i16 -1
returns_from_a_branch(5) ==> i16 10    @element_count(shape(7)) ==> 7    late(false) ==> i16 15
"""


@pytest.mark.parametrize(("call", "expected"), columns(CALLS))
def test_functions(call: str, expected: str) -> None:
    assert told(call, FUNCTIONS) == expected


def test_branches_that_do_not_run_are_not_looked_at() -> None:
    assert value("f(1)", "fn f(n: i16) i16 { if (n == 1) { return 2; } return nothing.at_all(3) + true; }") == 2


def test_top_level_names_that_nobody_asks_for_are_not_looked_at() -> None:
    module = module_of("const x = 1; const y = 1 / 0; var z: unknown = 3;")
    assert module.lookup("x", None).value == (types.COMPTIME_INT, 1)
    with pytest.raises(CslError, match="unknown name 'unknown'"):
        module.lookup("z", None)


DECLARED = """
const Point = struct { x: i16, y: i16 = 4 };
const Mode = enum(u16) { SLOW, FAST = 5, FASTER };
const Bits = packed struct { low: u3, high: u5 };
const Either = union { word: u32, half: u16 };
const p: Point = .{ .x = 3 };
const m: Mode = .FASTER;
const e: Either = .{ .word = 0x12345678 };
fn moved(q: Point) Point { var r = q; r.x += 10; return r; }
"""
FIELDS = """
p.x + p.y ==> i16 7    moved(p).x ==> i16 13    p.x ==> i16 3    @get_int(m) ==> u16 6    m == Mode.FASTER ==> true
m == .SLOW ==> false    switch (m) { .SLOW => 1, .FAST, .FASTER => 2 } ==> 2    e.half ==> u16 22136
@as(Mode, 5) == Mode.FAST ==> true    @as(Mode, @as(u16, 6)) == Mode.FASTER ==> true
@bitcast(u8, Bits{ .low = 5, .high = 3 }) ==> u8 29
"""
NO_FIELDS = """
Point{ .y = 1 } ==> the literal: Point needs the field 'x', which has no default
Point{ .x = 1, .z = 1 } ==> the literal: Point has the fields x, y, got .z
@as(Mode, 4) ==> Mode has no member 4 (its members: SLOW = 0, FAST = 5, FASTER = 6)
Mode.SLO ==> Mode has the members SLOW, FAST, FASTER, got .SLO (did you mean SLOW?)
Either{ .word = 1, .half = 2 } ==> the literal: a union is given one of its fields, got 2
"""


def test_structs_enums_and_unions() -> None:
    assert [(each, told(each, DECLARED)) for each, _ in columns(FIELDS)] == columns(FIELDS)
    assert [(each, bad(each, DECLARED)) for each, _ in cases(NO_FIELDS)] == cases(NO_FIELDS)


KNOWN = """
1 + 2    n * 2    &v    &a[3]    table[1]    &table    comptime plain(1)    makes_type(i16)    makes_struct(3).a
@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i] })    @type_of(v)    @element_count(@type_of(a))
if (n == 4) 1 else v    @is_comptime()
"""
NOT_KNOWN = """
v + 1    p.*    a[3]    plain(1)    @activate(@get_local_task_id(9))
@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{v} -> a[i] })    if (n == 5) 1 else v    @fadds(a, a, a)
"""


@pytest.mark.parametrize("expression", [*lines(KNOWN), *lines(NOT_KNOWN)])
def test_what_is_known_in_a_function(expression: str) -> None:
    before = """
const n = 4;
var v: i16 = 1;
const p: *i16 = &v;
var a: [10]f32;
const table = [2]i16{ 5, 6 };
fn plain(x: i16) i16 { return x + 1; }
fn makes_type(comptime T: type) type { return T; }
fn makes_struct(x: i16) comptime_struct { return .{ .a = x }; }
"""
    assert (known(expression, before) is not None) == (expression in lines(KNOWN))


def test_a_const_array_gets_an_address_when_one_is_asked_for() -> None:
    module = module_of("const table = [2]u16{ 1, 0x203 };\nconst x = table[1];\nconst p = &table[1];")
    assert module.lookup("x", None).value == (types.U16, 0x203)
    assert module.instance.memory == b""
    type_, address = module.lookup("p", None).value
    assert (str(type_), address) == ("*const u16", 66)
    assert module.instance.memory[64:68] == bytes([1, 0, 3, 2])
    assert module.lookup("p", None).value[1] == 66


def test_a_call_like_one_before_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 turns and 45 calls, of which 9 are with new arguments."""
    monkeypatch.setattr(limits, "MOST_STEPS", 20)
    program_of("""
fn double(n: u16) u16 { return n * 2; }
comptime {
  for (@range(u16, 9)) |i| { const sum = double(i) + double(i) + double(i) + double(i) + double(i); }
}
""")


def test_calls_with_effects_run_each_time() -> None:
    """Prints, directly or further in; and changes by a pointer."""
    instance = program_of("""
fn say(n: u16) void { @comptime_print(n); }
fn say_so(n: u16) void { say(n); }
fn count(p: *u16) u16 { p.* += 1; return p.*; }
comptime {
  say(1);
  say(1);
  say_so(2);
  say_so(2);
  var n: u16 = 5;
  const first = count(&n);
  say(count(&n) * 10 + first);
}
""")
    assert [line.rpartition(" ")[2] for line in instance.compilation.said] == ["1", "1", "2", "2", "76"]
