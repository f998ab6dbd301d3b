"""What a program and its files are called never becomes code, nor stands in the way of what compiled code uses."""

import ast
import builtins
import keyword
from pathlib import Path

import pytest

from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl
from cstool.csl.language.emit import TAKEN
from cstool.csl.language.source import CslError
from cstool.foundation.errors import CstoolError
from tests.unit.csl.language.emit_cases import Program

NAMED = """
var data: [4]f32 = @constants([4]f32, 1.5);
var words = @zeros([8]u16);
fn NAME(NAME_: f32) f32 { return NAME_ + 1.0; }
fn wait(n: *const fn (f32) f32) f32 { return n(0.5); }
export fn f(n: i16, m: u16) f32 {
  var NAME_: f32 = NAME(data[n & 3]);
  var total: f32 = 0.0;
  for (@range(i16, n)) |i| { total += @as(f32, i) / NAME_; }
  for (words) |*w, i| { w.* = i % m + (m >> 1); }
  const DSD = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> data[i] });
  @fadds(DSD, DSD, NAME_);
  @set_active_prng(1);
  const few = [2]u16 { m, 3 };
  return total + wait(&NAME) + @as(f32, few[n & 1]) + @as(f32, NAME_ > 2.0);
}
"""
"""with most of what compiled code takes from elsewhere"""
NAMES = sorted(TAKEN | {*keyword.kwlist} | {name for name in dir(builtins) if name.isidentifier()})
ODD_FILES = (
    'x""";open(chr(80),chr(119));"""y.csl',
    "n\nopen('P','w')\n.csl",
    "r\ropen('P','w').csl",
    "a'+str(open('P','w'))+'b\").csl",
    "back\\.csl",
    "\u2028\x0c#\x1b[2J.csl",
)


def result(name: str) -> float:
    program = Program(NAMED.replace("NAME", name))
    return program.run("f", 3, 5)


def test_names_of_compiled_code_are_free_for_programs():
    usual = result("anything")
    refused = set()
    for name in NAMES:
        try:
            assert result(name) == usual, name
        except CslError:
            refused.add(name)
    # These are CSL's own: a parser takes them for a type, or a word of the language.
    assert refused <= {*"and bool break continue else f16 f32 for if or return while False True None".split()}


def test_compiled_code_has_no_other_names_than_those_that_are_kept_for_it():
    """What it neither defines nor is handed is in the table."""
    tree = ast.parse(Program(NAMED.replace("NAME", "anything")).code.text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    defined = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert loaded - defined <= TAKEN


@pytest.mark.parametrize("name", ODD_FILES)
def test_the_name_of_a_file_is_a_text(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("""
        fn twice(n: u16) u16 { return n * 2; }
        var called: *const fn (u16) u16 = &twice;
        var x: [2]u16 = @zeros([2]u16);
        task main() void { x[called(0)] = 7 / (x[1] + 1); @assert(x[0] == 7); @mov16(
          @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> x[i] }), 3); }
        comptime { @bind_local_task(main, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }
    """)
    written = "".join(f"\\u{{{ord(letter):x}}}" for letter in name)
    Path("layout.csl").write_text(f'layout {{ @set_rectangle(1, 1); @set_tile_code(0, 0, "{written}", .{{}}); }}')
    simulation = Simulation(compile_csl("layout.csl"), max_cycles=10_000)
    simulation.run_until()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["layout.csl", name])


def test_an_error_in_such_a_file_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a\n'b.csl").write_text("fn")
    Path("layout.csl").write_text('layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "a\\n\'b.csl", .{}); }')
    with pytest.raises(CstoolError) as refused:
        compile_csl("layout.csl")
    assert str(refused.value).splitlines()[0] == r"a\n'b.csl:1:3: expected a name after 'fn', got the end of the file"
