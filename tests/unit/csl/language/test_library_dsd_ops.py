"""<dsd_ops>: each function is the builtin that the types ask for; other types are refused."""

from pathlib import Path

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.many_pes import One, OnePE, Run
from tests.unit.csl.language.shown import cases, columns

LETTERS = ("f16", "f32", "i16", "u16", "i32", "u32")
# Operands by their types: a holds 1, 6, 20 and b holds 3, 2, 40. What the destination holds is zero.
CALLS = """
f16 mov(f16, a) ==> 1 6 20   f32 mov(f32, a) ==> 1 6 20   i16 mov(i16, a) ==> 1 6 20
u16 mov(u16, a) ==> 1 6 20   i32 mov(i32, a) ==> 1 6 20   u32 mov(u32, a) ==> 1 6 20
f16 convert(f16, f16, a) ==> 1 6 20   f16 convert(f16, f32, a) ==> 1 6 20   f16 convert(f16, i16, a) ==> 1 6 20
f32 convert(f32, f16, a) ==> 1 6 20   f32 convert(f32, f32, a) ==> 1 6 20   f32 convert(f32, i16, a) ==> 1 6 20
i16 convert(i16, f16, a) ==> 1 6 20   i16 convert(i16, f32, a) ==> 1 6 20   i16 convert(i16, i16, a) ==> 1 6 20
f16 add(f16, f16, a, b) ==> 4 8 60   f32 add(f32, f32, a, b) ==> 4 8 60   f32 add(f32, f16, to, b) ==> 3 2 40
i16 add(i16, i16, a, b) ==> 4 8 60   u16 add(u16, u16, a, b) ==> 4 8 60
f16 sub(f16, a, b) ==> -2 4 -20   f32 sub(f32, a, b) ==> -2 4 -20   i16 sub(i16, a, b) ==> -2 4 -20
f16 mul(f16, a, b) ==> 3 12 800   f32 mul(f32, a, b) ==> 3 12 800
f16 fmac(f16, f16, a, b, 2.0) ==> 7 10 100   f32 fmac(f32, f32, a, b, 2.0) ==> 7 10 100
f32 fmac(f32, f16, to, b, 2.0) ==> 6 4 80
f16 neg(f16, a) ==> -1 -6 -20   f32 neg(f32, a) ==> -1 -6 -20
f16 abs(f16, minus) ==> 1 6 20   f32 abs(f32, minus) ==> 1 6 20
f16 norm(f16, a) ==> 1 1.5 1.25   f32 norm(f32, a) ==> 1 1.5 1.25
f16 scale(f16, a, 2) ==> 4 24 80   f32 scale(f32, a, 2) ==> 4 24 80
f16 max(f16, a, b) ==> 3 6 40   f32 max(f32, a, b) ==> 3 6 40
"""


def line(at: int, call: str) -> str:
    """A call of the table as a statement that writes to the array of its number."""
    name, rest = call.split(" ", 1)[1].removesuffix(")").split("(")
    words = rest.split(", ")
    types = [word for word in words if word in LETTERS]
    of = types[-1]
    given = {"a": f"a_{of}_dsd", "b": f"b_{of}_dsd", "minus": f"minus_{of}_dsd", "to": f"to_{at}_dsd"}
    given |= {"2.0": f"@as({of}, 2.0)", "2": "@as(i16, 2)"}
    return f"ops.{name}({', '.join([*types, f'to_{at}_dsd', *(given[w] for w in words if w in given)])}, .{{}});"


def test_operations_by_types(one: One) -> None:
    table = columns(CALLS)
    arrays = [f"var to_{at} = @zeros([3]{call.split()[0]});" for at, (call, _) in enumerate(table)]
    for letter in LETTERS:
        arrays.append(f"var a_{letter} = [3]{letter}{{ 1, 6, 20 }};")
        arrays.append(f"var b_{letter} = [3]{letter}{{ 3, 2, 40 }};")
    arrays += [f"var minus_{letter} = [3]{letter}{{ -1, -6, -20 }};" for letter in ("f16", "f32")]
    body = "\n".join(line(at, call) for at, (call, _) in enumerate(table))
    found = one('const ops = @import_module("<dsd_ops>");\n' + "\n".join(arrays) + f"\n---\n{body}")
    for at, (call, expected) in enumerate(table):
        assert (call, found[f"to_{at}"].tolist()) == (call, [float(each) for each in expected.split()])


def test_configuration_is_the_builtins(one: One) -> None:
    found = one("""
const ops = @import_module("<dsd_ops>");
const then = @get_local_task_id(12);
var out = @zeros([4]f32);
var again = @zeros([4]f32);
task go_on() void { ops.mov(f32, again_dsd, out_dsd, .{}); }
comptime { @bind_local_task(go_on, then); }
---
ops.mov(f32, out_dsd, 2.5, .{ .async = true, .activate = then });
""")
    assert found["again"].tolist() == [2.5] * 4


FILL = """
param buffer;
param start_id: local_task_id;
const ops = @import_module("<dsd_ops>");
const whole = @type_of(buffer.*);
const element = @element_type(whole);
const to = @get_dsd(mem1d_dsd, .{ .base_address = buffer, .extent = @element_count(whole) });
task fill() void { ops.mov(element, to, @as(element, 3), .{}); }
fn bind() void { @bind_local_task(fill, start_id); @activate(start_id); }
"""
TWO = """
var words = @zeros([5]i16);
var floats = @zeros([3]f32);
const first = @import_module("fill.csl", .{ .buffer = &words, .start_id = @get_local_task_id(8) });
const second = @import_module("fill.csl", .{ .buffer = &floats, .start_id = @get_local_task_id(9) });
comptime { first.bind(); second.bind(); }
"""


def test_a_module_for_buffers_of_any_type(tmp_path: Path, arch: str) -> None:
    layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }'
    run = Run(tmp_path, {"layout.csl": layout, "pe.csl": TWO, "fill.csl": FILL}, arch)
    assert (run.row("words"), run.row("floats")) == ([[3] * 5], [[3.0] * 3])


def test_operands_may_be_dsrs_and_pointers(one: One) -> None:
    found = one("""
const ops = @import_module("<dsd_ops>");
const to = @get_dsr(dsr_dest, 1);
const from = @get_dsr(dsr_src1, 1);
var a = [4]f32{ 1, 2, 3, 4 };
var b = @zeros([4]f32);
var sums = @zeros([1]f32);
var sum: f32 = 0.0;
---
@load_to_dsr(to, b_dsd);
@load_to_dsr(from, a_dsd);
ops.mov(f32, to, from, .{});
ops.add(f32, f32, &sum, sum, a_dsd, .{});
sums[0] = sum;
""")
    assert (found["b"].tolist(), found["sums"].tolist()) == ([1, 2, 3, 4], [10])


REFUSED = """
mov(u8, c_dsd, c_dsd, .{}) ==> mov takes f16, f32, i16, u16, i32 or u32
convert(f16, u16, c_dsd, c_dsd, .{}) ==> convert takes f16, f32 or i16
convert(u32, u32, c_dsd, c_dsd, .{}) ==> convert takes f16, f32 or i16
add(f16, f32, c_dsd, c_dsd, c_dsd, .{}) ==> add takes f16, f32, i16 or u16, or f16 to f32
sub(u16, c_dsd, c_dsd, c_dsd, .{}) ==> sub takes f16, f32 or i16
mul(i16, c_dsd, c_dsd, c_dsd, .{}) ==> mul takes f16 or f32
fmac(f16, f32, c_dsd, c_dsd, c_dsd, 1.0, .{}) ==> fmac takes f16 or f32, or f16 to f32
neg(i16, c_dsd, c_dsd, .{}) ==> neg takes f16 or f32
abs(i16, c_dsd, c_dsd, .{}) ==> abs takes f16 or f32
norm(i16, c_dsd, c_dsd, .{}) ==> norm takes f16 or f32
scale(i16, c_dsd, c_dsd, c_dsd, .{}) ==> scale takes f16 or f32
max(i16, c_dsd, c_dsd, c_dsd, .{}) ==> max takes f16 or f32
"""


@pytest.mark.parametrize(("call", "said"), cases(REFUSED))
def test_other_types(tmp_path: Path, call: str, said: str) -> None:
    program = f'const ops = @import_module("<dsd_ops>");\nvar c = @zeros([3]i16);\n---\nops.{call};'
    with pytest.raises(CslError) as caught:
        OnePE(tmp_path, "wse3", program)
    assert caught.value.message.split(": ", 1)[1] == f"@comptime_assert failed: {said}"
    assert [text for _, text in caught.value.notes][-1] == "program of PE 0,0"
