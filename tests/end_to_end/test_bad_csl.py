"""Mistakes in CSL programs and in host scripts: each gives one message that says where it is, and what to do.

Messages of single builtins, of tokens and of grammar have tests of their own; here is what a user sees of them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from cstool.sdk import cslc

LAYOUT = """\
param width: i16 = 2;
const east: color = @get_color(3);
const m = @import_module("<memcpy/get_params>", .{ .width = width, .height = 1 });
layout {
  @set_rectangle(width, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .mem = m.get_params(0), .sends = true, .c = east });
  @set_tile_code(1, 0, "pe.csl", .{ .mem = m.get_params(1), .sends = false, .c = east });
  @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
  @set_color_config(1, 0, east, .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });
  //LAYOUT
  @export_name("x", [*]f32, true);
  @export_name("go", fn (f32, u16) void);
}
"""
PE = """\
param mem: comptime_struct;
param sends: bool;
param c: color;
const sys = @import_module("<memcpy/memcpy>", mem);
const oq = @get_output_queue(2);
const iq = @get_input_queue(3);
var x = @zeros([4]f32);
const x_ptr: [*]f32 = &x;
const done = @get_local_task_id(9);
const x_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> x[i] });
const out = @get_dsd(fabout_dsd, .{ .fabric_color = c, .extent = 4, .output_queue = oq });
const in = @get_dsd(fabin_dsd, .{ .fabric_color = c, .extent = 4, .input_queue = iq });
//TOP
fn go(a: f32, b: u16) void {
  //GO
  if (sends) {
    @fmovs(out, x_dsd, .{ .async = true, .activate = done });
  } else {
    @fmovs(x_dsd, in, .{ .async = true, .activate = done });
  }
}
task finish() void {
  //FINISH
  sys.unblock_cmd_stream();
}
comptime {
  @bind_local_task(finish, done);
  if (@is_arch("wse3")) {
    @initialize_queue(oq, .{ .color = c });
    @initialize_queue(iq, .{ .color = c });
  }
  //COMPTIME
  @export_symbol(x_ptr, "x");
  @export_symbol(go);
}
"""
RUN = """\
import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime

runner = SdkRuntime("out")
runner.load()
runner.run()
how = {"order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT, "nonblock": False}
x = np.arange(4, dtype=np.float32)
y = np.zeros(4, np.float32)
runner.memcpy_h2d(runner.get_id("x"), x, 0, 0, 1, 1, 4, **how)
runner.launch("go", np.float32(1), np.uint16(2), nonblock=False)
runner.memcpy_d2h(y, runner.get_id("x"), 1, 0, 1, 1, 4, **how)
runner.stop()
assert (x == y).all()
print("SUCCESS")
"""
FLAGS = "--fabric-dims=9,3 --fabric-offsets=4,1 --memcpy --channels=1 -o out".split()
OF_PE = """\
note: layout.csl:6:3: program of PE 0,0
      @set_tile_code(0, 0, "pe.csl", .{ .mem = m.get_params(0), .sends = true, .c = east });
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"""


class Case(NamedTuple):
    """A program with one mistake, and the lines that cslc says."""

    name: str
    file: str
    edits: tuple[str, ...]
    archs: tuple[str, ...]
    lines: list[str]


CASES = [
    Case(
        "missing semicolon",
        "pe.csl",
        ("//GO", "var q: u16 = 1"),
        ("wse2", "wse3"),
        ["pe.csl:15:17: expected ';' after this, got 'if'", "      var q: u16 = 1", "                    ^"],
    ),
    Case(
        "unclosed paren",
        "pe.csl",
        ("//GO", "var q: u16 = (1;"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:18: expected ')', got ';'",
            "      var q: u16 = (1;",
            "                     ^",
            "note: pe.csl:15:16: this '(' is not closed",
            "      var q: u16 = (1;",
            "                   ^",
        ],
    ),
    Case(
        "unterminated string",
        "pe.csl",
        ("//TOP", 'const s = "abc;'),
        ("wse2", "wse3"),
        [
            "pe.csl:13:11: this string has no closing '\"'",
            '    const s = "abc;',
            "              ^^^^^",
            "hint: a string ends on the line where it begins",
        ],
    ),
    Case(
        "&&",
        "pe.csl",
        ("//GO", "if (a > 1.0 && b > 2) {}"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:15: CSL has no '&&'",
            "      if (a > 1.0 && b > 2) {}",
            "                  ^^",
            "hint: write 'and'",
        ],
    ),
    Case(
        "i16 + f32",
        "pe.csl",
        ("//GO", "var q = a + b;"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:11: no operator '+' on f32 and u16",
            "      var q = a + b;",
            "              ^^^^^",
            OF_PE,
            "hint: convert one side: @as(f32, ...)",
        ],
    ),
    Case(
        "u16 overflow lit",
        "pe.csl",
        ("//GO", "var q: u16 = 70000;"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:16: 'q' must fit u16 (0 to 65535), got 70000",
            "      var q: u16 = 70000;",
            "                   ^^^^^",
            OF_PE,
            "hint: use a wider type, or @as(u16, ...) to drop bits",
        ],
    ),
    Case(
        "unknown name near",
        "pe.csl",
        ("//GO", "var q = x_dsdd;"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:11: unknown name 'x_dsdd'",
            "      var q = x_dsdd;",
            "              ^^^^^^",
            OF_PE,
            "hint: did you mean x_dsd?",
        ],
    ),
    Case(
        "unknown builtin",
        "pe.csl",
        ("//GO", "@fmaccs(x_dsd, x_dsd, x_dsd, a);"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:3: unknown builtin @fmaccs",
            "      @fmaccs(x_dsd, x_dsd, x_dsd, a);",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
            "hint: did you mean @fmacs?",
        ],
    ),
    Case(
        "unknown lib",
        "pe.csl",
        ("//TOP", 'const q = @import_module("<mth>");'),
        ("wse2", "wse3"),
        [
            "pe.csl:13:26: unknown library <mth>",
            '    const q = @import_module("<mth>");',
            "                             ^^^^^^^",
            OF_PE,
            "hint: did you mean <math>?",
        ],
    ),
    Case(
        "missing file",
        "pe.csl",
        ("//TOP", 'const q = @import_module("other.csl");', "//GO", "q.f();"),
        ("wse2", "wse3"),
        [
            "pe.csl:13:26: no file other.csl in DIRECTORY",
            '    const q = @import_module("other.csl");',
            "                             ^^^^^^^^^^^",
            OF_PE,
            "hint: did you mean pe.csl?",
        ],
    ),
    Case(
        "call wrong n",
        "pe.csl",
        ("//TOP", "fn f(a: u16) u16 { return a; }", "//GO", "var z = f(1, 2);"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:11: 'f' takes 1 argument, got 2",
            "      var z = f(1, 2);",
            "              ^^^^^^^",
            "note: pe.csl:13:1: declared here",
            "    fn f(a: u16) u16 { return a; }",
            "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
    Case(
        "missing return",
        "pe.csl",
        ("//TOP", "fn f(a: u16) u16 { }", "//GO", "var z = f(1);"),
        ("wse2", "wse3"),
        [
            "pe.csl:13:1: f() must return u16 on every way through it",
            "    fn f(a: u16) u16 { }",
            "    ^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
    Case(
        "fadds literal",
        "pe.csl",
        ("//GO", "@fadds(1, x_dsd, x_dsd);"),
        ("wse2", "wse3"),
        [
            "pe.csl:15:3: @fadds takes (DSD, DSD, DSD) or (DSD, f32, DSD) or (DSD, DSD, f32) or (*f32, f32, DSD), "
            "got (comptime_int, mem1d_dsd, mem1d_dsd)",
            "      @fadds(1, x_dsd, x_dsd);",
            "      ^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
    Case(
        "const index oob",
        "pe.csl",
        ("//GO", "x[4] = a;"),
        ("wse2", "wse3"),
        ["pe.csl:15:5: an index must be 0 to 3 ([4]f32), got 4", "      x[4] = a;", "        ^", OF_PE],
    ),
    Case(
        "color out of range",
        "layout.csl",
        ("@get_color(3)", "@get_color(30)"),
        ("wse2", "wse3"),
        [
            "layout.csl:2:32: a color is 0 to 23, got 30",
            "    const east: color = @get_color(30);",
            "                                   ^^",
        ],
    ),
    Case(
        "color 21..",
        "layout.csl",
        ("@get_color(3)", "@get_color(22)"),
        ("wse2", "wse3"),
        [
            "layout.csl:8:3: color 22 is memcpy's own, like 21 to 23",
            "      @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "queue out of range",
        "pe.csl",
        ("@get_input_queue(3)", "@get_input_queue(9)"),
        ("wse3",),
        [
            "pe.csl:6:29: an input queue of wse3 is 0 to 7, got 9",
            "    const iq = @get_input_queue(9);",
            "                                ^",
            OF_PE,
        ],
    ),
    Case(
        "task id twice",
        "pe.csl",
        ("//TOP", "task t2() void {}", "//COMPTIME", "@bind_local_task(t2, done);"),
        ("wse2", "wse3"),
        [
            "pe.csl:32:3: task id 9 has one task, got 't2' after 'finish'",
            "      @bind_local_task(t2, done);",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: pe.csl:27:3: bound to 'finish'",
            "      @bind_local_task(finish, done);",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
    Case(
        "task id range",
        "pe.csl",
        ("@get_local_task_id(9)", "@get_local_task_id(64)"),
        ("wse3",),
        [
            "pe.csl:9:33: a local task id of wse3 is 8 to 30, got 64",
            "    const done = @get_local_task_id(64);",
            "                                    ^^",
            OF_PE,
        ],
    ),
    Case(
        "data task wrong",
        "pe.csl",
        ("//TOP", "task dt(w: f32) void {}", "//COMPTIME", "@bind_data_task(dt, done);"),
        ("wse2", "wse3"),
        [
            "pe.csl:32:23: @bind_data_task takes a data_task_id, got local_task_id 9",
            "      @bind_data_task(dt, done);",
            "                          ^^^^",
            OF_PE,
            "hint: @get_data_task_id",
        ],
    ),
    Case(
        "data task color",
        "pe.csl",
        ("//TOP", "task dt(w: f32) void {}", "//COMPTIME", "@bind_data_task(dt, @get_data_task_id(c));"),
        ("wse3",),
        [
            "pe.csl:32:41: a data task id of wse3 is made of an input_queue",
            "      @bind_data_task(dt, @get_data_task_id(c));",
            "                                            ^",
            OF_PE,
            'hint: it differs by generation: if (@is_arch("wse3")) ... ; got color',
        ],
    ),
    Case(
        "config outside",
        "layout.csl",
        ("//LAYOUT", "@set_color_config(2, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });"),
        ("wse2", "wse3"),
        [
            "layout.csl:10:3: a PE of the rectangle is 0,0 to 1,0, got 2,0",
            "      @set_color_config(2, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "tile twice",
        "layout.csl",
        ("//LAYOUT", '@set_tile_code(1, 0, "pe.csl", .{ .mem = m.get_params(1), .sends = false, .c = east });'),
        ("wse2", "wse3"),
        [
            "layout.csl:10:3: a PE has one program, got another for 1,0",
            '      @set_tile_code(1, 0, "pe.csl", .{ .mem = m.get_params(1), .sends = false, .c = east });',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: layout.csl:7:3: the first one",
            '      @set_tile_code(1, 0, "pe.csl", .{ .mem = m.get_params(1), .sends = false, .c = east });',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "tile missing",
        "layout.csl",
        ('  @set_tile_code(1, 0, "pe.csl", .{ .mem = m.get_params(1), .sends = false, .c = east });\n', ""),
        ("wse2", "wse3"),
        [
            "layout.csl:5:3: each PE of the rectangle needs a program, got none for 1,0",
            "      @set_rectangle(width, 1);",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^",
            "hint: @set_tile_code",
        ],
    ),
    Case(
        "tile param missing",
        "layout.csl",
        (".sends = true, ", ""),
        ("wse2", "wse3"),
        [
            "layout.csl:6:3: param 'sends' of pe.csl is not given, and has no default",
            '      @set_tile_code(0, 0, "pe.csl", .{ .mem = m.get_params(0), .c = east });',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: pe.csl:2:1: declared here",
            "    param sends: bool;",
            "    ^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "tile param unknown",
        "layout.csl",
        (".sends = true, ", ".sends = true, .send = 1, "),
        ("wse2", "wse3"),
        [
            "layout.csl:6:3: pe.csl has no param 'send'",
            '      @set_tile_code(0, 0, "pe.csl", .{ .mem = m.get_params(0), .sends = true, .send = 1, .c = east });',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "hint: did you mean sends?",
        ],
    ),
    Case(
        "tile param type",
        "layout.csl",
        (".sends = true, ", ".sends = 7, "),
        ("wse2", "wse3"),
        [
            "layout.csl:6:3: param 'sends' must be bool, got comptime_int 7",
            '      @set_tile_code(0, 0, "pe.csl", .{ .mem = m.get_params(0), .sends = 7, .c = east });',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: pe.csl:2:1: declared here",
            "    param sends: bool;",
            "    ^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "export_name type differs",
        "layout.csl",
        ('@export_name("x", [*]f32, true)', '@export_name("x", [*]i32, true)'),
        ("wse2", "wse3"),
        [
            "pe.csl:33:3: 'x' must be [*]i32, as the layout has it, got [*]f32",
            '      @export_symbol(x_ptr, "x");',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: layout.csl:11:3: named here",
            '      @export_name("x", [*]i32, true);',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "export_name fn type differs",
        "layout.csl",
        ("fn (f32, u16) void", "fn (u16, f32) void"),
        ("wse2", "wse3"),
        [
            "pe.csl:34:3: 'go' must be fn(u16, f32)void, as the layout has it, got fn(f32, u16)void",
            "      @export_symbol(go);",
            "      ^^^^^^^^^^^^^^^^^^",
            "note: layout.csl:12:3: named here",
            '      @export_name("go", fn (u16, f32) void);',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "export not by layout",
        "pe.csl",
        ("//COMPTIME", '@export_symbol(done_ptr, "z");', "//TOP", "var z: [2]f32; const done_ptr: [*]f32 = &z;"),
        ("wse2", "wse3"),
        [
            "pe.csl:32:3: what a program exports is named in the layout too, 'z' is not",
            '      @export_symbol(done_ptr, "z");',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            'hint: @export_name("z", [*]f32)',
        ],
    ),
    Case(
        "exported by none",
        "layout.csl",
        ("//LAYOUT", '@export_name("nobody", [*]f32, true);'),
        ("wse2", "wse3"),
        [
            "layout.csl:10:3: no program exports 'nobody'",
            '      @export_name("nobody", [*]f32, true);',
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            'hint: @export_symbol(..., "nobody")',
        ],
    ),
    Case(
        "sram overflow",
        "pe.csl",
        ("//TOP", "var big = @zeros([11000]f32); var big2 = @zeros([3000]f32);", "//GO", "big[0] = a; big2[1] = a;"),
        ("wse2", "wse3"),
        [
            "pe.csl:13:31: SRAM of a PE has 49,152 bytes: big2 ([3000]f32) takes 12,000, 44,016 are taken",
            "    var big = @zeros([11000]f32); var big2 = @zeros([3000]f32);",
            "                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
            "hint: largest: big: [11000]f32 44,000 bytes, x: [4]f32 16 bytes",
        ],
    ),
    Case(
        "runtime recursion",
        "pe.csl",
        ("//TOP", "fn f(n: i16) i16 { return f(n + 1); }", "//GO", "var z = f(1);"),
        ("wse2", "wse3"),
        [
            "pe.csl:13:27: a function must not call itself, got f()",
            "    fn f(n: i16) i16 { return f(n + 1); }",
            "                              ^^^^^^^^",
            OF_PE,
            "hint: a PE has no stack; use a loop",
        ],
    ),
    Case(
        "cyclic",
        "pe.csl",
        ("//TOP", "const aa = bb; const bb = aa; comptime { const k = aa; }"),
        ("wse2", "wse3"),
        [
            "pe.csl:13:1: 'aa' depends on itself: aa -> bb -> aa",
            "    const aa = bb; const bb = aa; comptime { const k = aa; }",
            "    ^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
    Case(
        "route bad port",
        "layout.csl",
        (".rx = .{RAMP}, .tx = .{EAST}", ".rx = .{RAMP}, .tx = .{EST}"),
        ("wse2", "wse3"),
        [
            "layout.csl:8:72: unknown name 'EST'",
            "      @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EST} } });",
            "                                                                           ^^^",
            "hint: did you mean WEST?",
        ],
    ),
    Case(
        "color config conflict",
        "layout.csl",
        ("//LAYOUT", "@set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{SOUTH} } });"),
        ("wse2", "wse3"),
        [
            "layout.csl:10:3: color 3 has one config at a PE, got another one for PE 0,0",
            "      @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{SOUTH} } });",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: layout.csl:8:3: the first one",
            "      @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ],
    ),
    Case(
        "queue bound conflict",
        "pe.csl",
        (
            "//COMPTIME",
            "@initialize_queue(iq, .{ .color = @get_color(5) });",
        ),
        ("wse3",),
        [
            "pe.csl:32:3: input queue 3 is bound to one color, got 5 after 3",
            "      @initialize_queue(iq, .{ .color = @get_color(5) });",
            "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "note: pe.csl:30:5: bound to color 3",
            "        @initialize_queue(iq, .{ .color = c });",
            "        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            OF_PE,
        ],
    ),
]


def write(folder: Path, file: str = "", edits: tuple[str, ...] = ()) -> None:
    """Write the program that works, with some texts of one file replaced by others."""
    for name, text in (("layout.csl", LAYOUT), ("pe.csl", PE), ("run.py", RUN)):
        if name == file:
            for old, new in zip(edits[::2], edits[1::2], strict=True):
                assert old in text
                text = text.replace(old, new)
        (folder / name).write_text(text)


def compiled(arch: str = "wse3") -> int:
    return cslc.main(["layout.csl", f"--arch={arch}", *FLAGS])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("case", "arch"), [pytest.param(case, arch, id=f"{case.name} {arch}") for case in CASES for arch in case.archs]
)
def test_cslc_says_where_and_what(here, capsys, case, arch):
    write(here, case.file, case.edits)
    assert compiled(arch) == 1
    assert capsys.readouterr() == ("", "\n".join(case.lines).replace("DIRECTORY", str(here)) + "\n")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--params=widht:2", 1, "--params: layout.csl has no param 'widht'\nhint: did you mean width?"),
        ("--params=width=2", 2, "--params: must be NAME:VALUE,..., got 'width=2'"),
        ("--params=width:two", 2, "--params: width must be a number, true or false, got 'two'"),
        (
            "--arch=wse4",
            2,
            "argument --arch: must be wse2 or wse3, got 'wse4'\nhint: cslc --help lists the flags",
        ),
    ],
)
def test_cslc_refuses_flags(here, capsys, flags, code, message):
    write(here)
    assert cslc.main(["layout.csl", *FLAGS, *flags.split()]) == code
    assert capsys.readouterr() == ("", f"cslc: error: {message}\n")
    assert not (here / "out").exists()


def test_a_loop_at_compile_time_that_never_ends(here, capsys, monkeypatch):
    monkeypatch.setattr("cstool.csl.evaluate_statements.MOST_TURNS", 1000)
    write(here, "layout.csl", ("  //LAYOUT", "  var i: u16 = 0;\n  while (i < 10) { }"))
    assert compiled() == 1
    assert capsys.readouterr().err == (
        "layout.csl:11:3: a 'while' at compile time must end within 1,000 turns, it goes on\n"
        "      while (i < 10) { }\n"
        "      ^^^^^^^^^^^^^^^^^^\n"
        "hint: look at its condition: does its step, or its body, change what it depends on?\n"
    )


def started(folder: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cstool.sdk.cs_python", "run.py"],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what the script printed: of a traceback the script's own line, and the error."""
    output, _ = process.communicate(timeout=30)
    assert "/cstool/sdk/" not in output
    return process.returncode, output


RUNS = [
    Case(
        "a route that leaves the rectangle",
        "layout.csl",
        (".rx = .{WEST}, .tx = .{RAMP}", ".rx = .{WEST}, .tx = .{RAMP, EAST}"),
        ("wse2",),
        [
            "PE 1.0: routes must stay within the rectangle of 2 x 1 PEs, got a wavelet of color 3 to the EAST",
            "hint: take EAST out of the color's tx at this PE",
        ],
    ),
    Case(
        "a color without a route",
        "layout.csl",
        ("  @set_color_config(1, 0, east, .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });\n", ""),
        ("wse3",),
        [
            "PE 1.0: a router must have a route for each color that comes to it, "
            "got a wavelet of color 3 from the WEST and no route",
            "hint: @set_color_config(1, 0, ...) gives it one; or the PE to the WEST must not send the color this way",
        ],
    ),
    Case(
        "nobody takes it",
        "pe.csl",
        (
            "    @fmovs(x_dsd, in, .{ .async = true, .activate = done });",
            "    @activate(done);",
            "    @initialize_queue(iq, .{ .color = c });\n",
            "",
        ),
        ("wse3",),
        [
            "PE 1.0: a color that goes down the ramp must have an input queue, "
            "got a wavelet of color 3 from WEST to RAMP, and pe.csl has none for it",
            "hint: bind an input queue to the color there, or take RAMP out of its tx at this PE",
        ],
    ),
    Case(
        "an index at run time",
        "pe.csl",
        ("//GO", "x[b + 2] = a;"),
        ("wse2",),
        ["PE 0.0, pe.csl:15:5: an index must be 0 to 3, got 4"],
    ),
    Case(
        "a loop that never ends",
        "pe.csl",
        ("//GO", "while (true) {}"),
        ("wse3",),
        [
            "PE 0.0, task go: must end within 100000 cycles, it goes on",
            "hint: a longer --max_cycles lets it go on; look at its loops: what ends them?",
        ],
    ),
]


@pytest.mark.parametrize("case", RUNS, ids=[case.name for case in RUNS])
def test_the_script_gets_the_programs_error(here, case):
    write(here, case.file, case.edits)
    assert compiled(case.archs[0]) == 0
    code, output = told(started(here, CSTOOL_FABRIC_MAX_CYCLES="100000"))
    assert code == 1
    assert output.splitlines() == [
        "Traceback (most recent call last):",
        '  File "run.py", line 11, in <module>',
        '    runner.launch("go", np.float32(1), np.uint16(2), nonblock=False)',
        f"cstool.sdk.client.SdkRuntimeError: {case.lines[0]}",
        *case.lines[1:],
    ]


def test_a_function_that_never_unblocks(here):
    write(here, "pe.csl", ("  sys.unblock_cmd_stream();\n", ""))
    assert compiled() == 0
    code, output = told(started(here))
    assert code == 1
    assert output.splitlines()[3:5] == [
        "cstool.sdk.client.SdkRuntimeError: the fabric stands still, and the host's command is not done: "
        "memcpy_d2h from 'x', 4 x 32 bits, PE 1.0",
        "hint: PE 0.0 is in go(), which has not called unblock_cmd_stream()",
    ]


@pytest.mark.parametrize("whom", ["the simulator, killed", "the script, interrupted"])
def test_an_endless_program_is_ended_from_outside(here, whom):
    write(here, "pe.csl", ("//GO", "while (true) {}"))
    (here / "run.py").write_text(RUN.replace('runner.launch("go"', 'print("in it", flush=True)\nrunner.launch("go"'))
    assert compiled() == 0
    process = started(here)
    assert process.stdout is not None
    assert process.stdout.readline() == "in it\n"
    time.sleep(0.3)
    (simulator,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    if whom == "the script, interrupted":
        process.send_signal(signal.SIGINT)
        code, output = told(process)
        assert (code, output.splitlines()[-1]) == (130, "KeyboardInterrupt")
    else:
        os.kill(simulator, signal.SIGKILL)
        code, output = told(process)
        assert (code, output.splitlines()[3:]) == (
            1,
            [
                f"cstool.sdk.client.SdkRuntimeError: the simulator was ended by SIGKILL (process {simulator})",
                "hint: the system may have ended it for want of memory",
            ],
        )
    with contextlib.suppress(FileNotFoundError):  # it may be left as a zombie where nobody waits for orphans
        assert "zombie" in Path(f"/proc/{simulator}/status").read_text()
    assert sorted(each.name for each in here.iterdir()) == ["layout.csl", "out", "pe.csl", "run.py"]


def test_only_some_programs_export_the_symbol(here):
    write(here, "pe.csl", ('  @export_symbol(x_ptr, "x");\n', '  if (sends) {\n    @export_symbol(x_ptr, "x");\n  }\n'))
    assert compiled() == 0
    code, output = told(started(here))
    assert (code, output.splitlines()[-1]) == (
        1,
        "cstool.sdk.client.SdkRuntimeError: PE 1.0: its program must export 'x', pe.csl does not",
    )


def test_files_that_cannot_be_written(here, capsys, monkeypatch):
    write(here)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", full)
        assert compiled() == 2
    assert capsys.readouterr().err == "cslc: error: out: cannot be read or written, got: No space left on device\n"
    assert list((here / "out").iterdir()) == []
    assert compiled() == 0
    (here / "sim.log").mkdir()
    code, output = told(started(here))
    assert (code, sorted(output.splitlines())) == (
        0,
        ["SUCCESS", "warning: sim.log: cannot be written, got: Is a directory"],
    )
