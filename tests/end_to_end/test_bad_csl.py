"""Mistakes in CSL programs and in host scripts: each gives one message that says where it is, and what to do.

Messages of single builtins, of tokens, types and grammar have tests of their own; here is what a user sees of some.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.sdk import cslc
from tests.unit.csl.language.many_pes import Run
from tests.unit.csl.language.shown import cases, whole

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
OF_PE = "note layout.csl:6:3-87 program of PE 0,0"
# What is replaced in a file by what; below it what cslc says, with PE for OF_PE.
CASES = r"""
pe.csl: //GO -> var q: u16 = 1
  15:17 expected ';' after this, got 'if'
pe.csl: //GO -> @fmaccs(x_dsd, x_dsd, x_dsd, a);
  15:3-33 unknown builtin @fmaccs | PE | hint: did you mean @fmacs?
pe.csl: //TOP -> const q = @import_module("other.csl"); & //GO -> q.f();
  13:26-36 no file other.csl in DIRECTORY | PE | hint: did you mean pe.csl?
pe.csl: //TOP -> fn f(a: u16) u16 { return a; } & //GO -> var z = f(1, 2);
  15:11-17 'f' takes 1 argument, got 2 | note 13:1-30 declared here | PE
pe.csl: //TOP -> fn f(a: u16) u16 { } & //GO -> var z = f(1);
  13:1-20 f() must return u16 on every way through it | PE
layout.csl: .sends = true, .c -> .c
  6:3-72 param 'sends' of pe.csl is not given, and has no default | note pe.csl:2:1-18 declared here
layout.csl: @export_name("x", [*]f32, true) -> @export_name("x", [*]i32, true)
  pe.csl:33:3-28 'x' must be [*]i32, as the layout has it, got [*]f32 | note 11:3-33 named here
layout.csl: //LAYOUT -> var i: u16 = 0; while (i < 10) { }
  10:19-36 a 'while' at compile time must end within 1,000 turns, it goes on |
  hint: does its step, or its body, change what its end depends on? --max-inlined-iterations allows more
"""


def edited(edits: str) -> dict[str, str]:
    """The files of the program, that which is edited first."""
    name, _, edits = edits.partition(": ")
    files = {"layout.csl": LAYOUT, "pe.csl": PE, "run.py": RUN}
    text = files.pop(name)
    for edit in edits.split(" & "):
        old, new = edit.split(" -> ")
        assert old in text
        text = text.replace(old, new)
    return {name: text, **files}


def write(folder: Path, edits: str = "pe.csl: //GO -> //") -> dict[str, str]:
    files = edited(edits)
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


def compiled(arch: str = "wse3") -> int:
    return cslc.main(["layout.csl", f"--arch={arch}", *FLAGS])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("edits", "said"), cases(CASES))
def test_cslc_says_where_and_what(here, capsys, monkeypatch, edits, said):
    monkeypatch.setattr("cstool.csl.language.limits.MOST_TURNS", 1000)
    files = write(here, edits)
    assert compiled() == 1
    said = whole(said.replace("| PE", f"| {OF_PE}").replace("DIRECTORY", str(here)), files)
    assert capsys.readouterr() == ("", f"{said}\n")
    assert not (here / "out").exists()


def test_cslc_refuses_flags(here, capsys):
    write(here)
    assert cslc.main(["layout.csl", *FLAGS, "--params=widht:2"]) == 1
    message = "--params: layout.csl has no param 'widht'\nhint: did you mean width?"
    assert capsys.readouterr() == ("", f"cslc: error: {message}\n")
    assert not (here / "out").exists()


# Likewise of programs that are compiled, and of what their run says.
RUNS = r"""
layout.csl: .rx = .{WEST}, .tx = .{RAMP} -> .rx = .{WEST}, .tx = .{RAMP, EAST}
  PE 1.0: routes must stay within the rectangle of 2 x 1 PEs, got a wavelet of color 3 to the EAST |
  hint: take EAST out of the color's tx at this PE
pe.csl: //GO -> x[b + 2] = a;
  PE 0.0, pe.csl:15:5: an index must be 0 to 3, got 4
"""


@pytest.mark.parametrize(("edits", "said"), cases(RUNS))
def test_a_run_says_where_and_what(tmp_path, edits, said):
    files = edited(edits)
    del files["run.py"]
    with pytest.raises(SimulationError) as caught:
        Run(tmp_path, files, "wse3").launch("go", 1, 2)
    assert str(caught.value).replace(f"{tmp_path}/", "") == said.replace(" | hint", "\nhint")


def started(folder: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cstool.csl.sdk.cs_python", "run.py"],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    """Exit code, and the lines that the script printed: of a traceback the script's own line, and the error."""
    output, _ = process.communicate(timeout=300)
    assert "/cstool/csl/sdk/" not in output
    return process.returncode, output.splitlines()


def test_the_script_gets_the_programs_error(here):
    write(here, "pe.csl: //GO -> while (true) {}")
    assert compiled() == 0
    assert told(started(here, CSTOOL_FABRIC_MAX_CYCLES="100000")) == (
        1,
        [
            "Traceback (most recent call last):",
            '  File "run.py", line 11, in <module>',
            '    runner.launch("go", np.float32(1), np.uint16(2), nonblock=False)',
            "cstool.csl.sdk.client.SdkRuntimeError: PE 0.0, task go: must end within 100000 cycles, it goes on",
            "hint: --max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) lets it go on to cycle N; "
            "look at its loops: what ends them?",
        ],
    )


@pytest.mark.takes("a compiler, a script and a simulator, which are processes")
def test_a_program_that_hangs_tells_who_waits_for_whom(cstool, here):
    write(here, "pe.csl: @fmovs(out, x_dsd, .{ .async = true, .activate = done }); -> @activate(done);")
    (here / "commands_wse2.sh").write_text(f"set -e\ncslc layout.csl {' '.join(FLAGS)}\ncs_python run.py\n")
    done = cstool("fabric", "run", ".")
    assert done.code == 1
    report = done.stdout[done.stdout.index("deadlock at cycle") :].splitlines()
    assert report[:12] == [
        "deadlock at cycle 49: nothing can move any more; 1 of 2 PEs waits",
        "the host: launch go(1.0, 2)",
        "the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0",
        "",
        "1 PE waits, in the end, for this",
        "    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0",
        "            of 4 wavelets came",
        "      |",
        "      v",
        "    PE 0.0  its program (pe.csl) sends nothing of color 3",
        "look at the program of PE 0.0, which must send color 3, or at its route, whose rx has RAMP there;",
        "  `cstool fabric routes OUT_DIR --color 3 -o routes.svg` draws it",
    ]
    assert [line.partition(" ")[2] for line in (here / "sim.log").read_text().splitlines()[-12:]] == report[:12]


@pytest.mark.lab
def test_an_endless_program_is_ended_from_outside(here):
    write(here, "pe.csl: //GO -> while (true) {}")
    (here / "run.py").write_text(RUN.replace('runner.launch("go"', 'print("in it", flush=True)\nrunner.launch("go"'))
    assert compiled() == 0
    process = started(here)
    assert process.stdout is not None
    assert process.stdout.readline() == "in it\n"
    time.sleep(0.3)
    (simulator,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    process.send_signal(signal.SIGINT)
    code, lines = told(process)
    assert (code, lines[-1]) == (130, "KeyboardInterrupt")
    with contextlib.suppress(FileNotFoundError):  # it may be left as a zombie where nobody waits for orphans
        assert "zombie" in Path(f"/proc/{simulator}/status").read_text()
    assert sorted(each.name for each in here.iterdir()) == ["layout.csl", "out", "pe.csl", "run.py"]


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
    code, lines = told(started(here))
    assert (code, sorted(lines)) == (0, ["SUCCESS", "warning: sim.log: cannot be written, got: Is a directory"])
