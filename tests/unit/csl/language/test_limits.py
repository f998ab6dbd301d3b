"""Programs whose compile time has no end, or that compute what no memory holds: each is an error with its place."""

from pathlib import Path

import pytest

from cstool.csl.language import limits
from cstool.csl.language.compile import compile_csl
from cstool.csl.language.source import CslError
from tests.unit.csl.language.shown import cases

HINTS = {
    "TURNS": "does its step, or its body, change what its end depends on? --max-inlined-iterations allows more",
    "CALLS": "does it call itself without an end? --comptime-func-depth-limit allows more",
    "FEWER": "fewer turns of the loops around this place do",
    "": None,
}
ENDLESS = """
comptime { var i: u16 = 0; while (i < 3) : (i += 0) {} }
  28: a 'while' at compile time must end within 1,000 turns, it goes on | TURNS
comptime { var i: u16 = 0; while (true) { i = 1; continue; } }
  28: a 'while' at compile time must end within 1,000 turns, it goes on | TURNS
comptime { for (@range(u64, 18446744073709551615)) |i| {} }
  12: a 'for' at compile time must end within 1,000 turns, it goes on | TURNS
comptime { for (@range(u32, 900)) |i| { for (@range(u32, 900)) |j| {} } }
  41: compile time must end within 20,000 turns of loops and calls, it goes on | FEWER
fn f(n: f32) void { if (n > 0.0) { f(n - 1.0); f(n - 1.0); } } comptime { f(40.0); }
  36: compile time must end within 20,000 turns of loops and calls, it goes on | FEWER
fn f(n: u16) u16 { return f(n); } comptime { const x = f(1); }
  27: calls at compile time are at most 50 deep, 'f' is deeper | CALLS
fn T(comptime n: u16) type { return [T(n + 1)]u8; } comptime { const x: T(1) = 0; }
  38: calls at compile time are at most 50 deep, 'T' is deeper | CALLS
fn f(comptime n: u32) void { f(n + 1); } task g() void { f(0); }
  30: functions that call one another are at most 50 deep, 'f' is deeper | CALLS
task g() void { comptime var i: u16 = 0; inline while (i < 3) : (i += 0) {} }
  42: an inline loop must end within 500 turns, it goes on | TURNS
task g() void { inline for (@range(u64, 18446744073709551615)) |i| {} }
  17: an inline loop must end within 500 turns, it goes on | TURNS
task g() void { inline for (@range(u32, 99)) |i| { inline for (@range(u32, 99)) |j| {} } }
  52: compile time must end within 20,000 turns of loops and calls, it goes on | FEWER
comptime { var i: comptime_int = 3; while (true) { i *= i; } }
  52: a comptime_int has at most 8,192 bits, got 12,985
comptime { var i: comptime_int = 3; while (true) { i = i << 8192; } }
  56: a comptime_int has at most 8,192 bits, got 8,194
comptime { const i = 1 << 8193; } ==> 22: a shift is by at most 8,192 bits, got 8193
comptime { var s: comptime_string = "ab"; while (true) { s = @strcat(s, s); } }
  62: a string has at most 1,048,576 characters, got 2,097,152
comptime { const a = @zeros([1000000000000]u8); }
  29: an array has at most 16,777,216 elements, got 1,000,000,000,000
comptime { const a = @zeros([4000][4000][4000]u8); }
  29: an array has at most 16,777,216 elements, got 64,000,000,000
"""
BINDS = "comptime { @bind_local_task(g, @get_local_task_id(9)); }"
LAYOUT = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }'


@pytest.fixture
def refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("MOST_TURNS", 1000), ("MOST_STEPS", 20_000), ("MOST_INLINED", 500), ("DEEPEST_CALL", 50)):
        monkeypatch.setattr(limits, name, value)
    Path("layout.csl").write_text(LAYOUT)

    def check(text: str, **flags: int) -> CslError:
        Path("pe.csl").write_text(f"{text}\n{BINDS if 'task g' in text else ''}")
        with pytest.raises(CslError) as found:
            compile_csl("layout.csl", name_exports=False, **flags)
        return found.value

    return check


@pytest.mark.parametrize(("text", "said"), cases(ENDLESS))
def test_what_does_not_end_is_an_error_at_its_place(refused, text, said):
    error = refused(text)
    message, _, hint = said.partition(" | ")
    assert (error.message, error.hint) == (f"pe.csl:1:{message}", HINTS[hint])


FLAGS = """
comptime { for (@range(u16, 5)) |i| {} } ==> 12: a 'for' at compile time must end within 4 turns, it goes on
task g() void { inline for (@range(u16, 5)) |i| {} } ==> 17: an inline loop must end within 4 turns, it goes on
fn f(n: u16) u16 { if (n == 0) { return 0; } return f(n - 1); } comptime { const x = f(9); }
  53: calls at compile time are at most 9 deep, 'f' is deeper
"""


@pytest.mark.parametrize(("text", "said"), cases(FLAGS))
def test_flags_of_cslc_say_how_much_is_too_much(refused, text, said):
    assert refused(text, max_inlined_iterations=4, comptime_func_depth_limit=9).message == f"pe.csl:1:{said}"


def test_what_is_allowed_compiles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limits, "MOST_TURNS", 3)
    Path("layout.csl").write_text(LAYOUT)
    Path("pe.csl").write_text(
        "comptime { for (@range(u16, 5)) |i| {} }\n"
        "task g() void { for (@range(u64, 18446744073709551615)) |i| { break; } }\n" + BINDS
    )
    assert compile_csl("layout.csl", max_inlined_iterations=5).width == 1
