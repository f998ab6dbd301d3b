"""A program that hangs, from its source to the report: both PEs receive before they send."""

from pathlib import Path

import pytest

LAYOUT = """
const east: color = @get_color(3);
const west: color = @get_color(4);
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .to = east, .from = west });
  @set_tile_code(1, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(1), .to = west, .from = east });
  @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
  @set_color_config(1, 0, east, .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });
  @set_color_config(1, 0, west, .{ .routes = .{ .rx = .{RAMP}, .tx = .{WEST} } });
  @set_color_config(0, 0, west, .{ .routes = .{ .rx = .{EAST}, .tx = .{RAMP} } });
  @export_name("go", fn () void);
}
"""
PE = """
param memcpy_params: comptime_struct;
param to: color;
param from: color;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const oq = @get_output_queue(2);
const iq = @get_input_queue(3);
var mine = [4]f32 { 1.0, 2.0, 3.0, 4.0 };
var theirs = @zeros([4]f32);
const mine_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> mine[i] });
const theirs_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> theirs[i] });
const out = @get_dsd(fabout_dsd, .{ .fabric_color = to, .extent = 4, .output_queue = oq });
const in = @get_dsd(fabin_dsd, .{ .fabric_color = from, .extent = 4, .input_queue = iq });
fn go() void {
EXCHANGE
  sys.unblock_cmd_stream();
}
comptime {
  if (@is_arch("wse3")) {
    @initialize_queue(oq, .{ .color = to });
    @initialize_queue(iq, .{ .color = from });
  }
  @export_symbol(go);
}
"""
RUN = """
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime
runner = SdkRuntime("out")
runner.load()
runner.run()
runner.launch("go", nonblock=False)
runner.stop()
print("SUCCESS")
"""


def write(folder: Path, *lines: str, arch: str) -> None:
    """Write a program whose function has these lines."""
    folder.mkdir()
    (folder / "layout.csl").write_text(LAYOUT)
    (folder / "pe.csl").write_text(PE.replace("EXCHANGE", "\n".join(f"  {line}" for line in lines)))
    (folder / "run.py").write_text(RUN)
    flags = f"--arch={arch} --fabric-dims=9,3 --fabric-offsets=4,1 --memcpy --channels=1 -o out"
    (folder / f"commands_{arch}.sh").write_text(f"set -e\ncslc layout.csl {flags}\ncs_python run.py\n")


@pytest.mark.parametrize("arch", ["wse2", "wse3"])
def test_two_that_receive_first_are_drawn_in_a_circle(cstool, tmp_path, monkeypatch, arch):
    monkeypatch.chdir(tmp_path)
    write(Path("hang"), "@fmovs(theirs_dsd, in);", "@fmovs(out, mine_dsd);", arch=arch)
    done = cstool("fabric", "run", "hang", "--arch", arch)
    assert done.code == 1
    report = done.stdout[done.stdout.index("deadlock at cycle") :].splitlines()
    assert report[0].endswith(": nothing can move any more; 2 of 2 PEs wait")
    assert report[1:11] == [
        "the host: launch go()",
        "",
        "each waits for the next, round in a circle",
        " +->  PE 0.0  task go: @fmovs, pe.csl:15:3, waits for color 4 (queue 3), 0 of 4 wavelets came",
        " |      |",
        " |      v",
        " |    PE 1.0  task go: @fmovs, pe.csl:15:3, waits for color 3 (queue 3), 0 of 4 wavelets came",
        " |      |",
        " +------+",
        "look at the order: all of them receive first; one has to send first, or receive with .async = true",
    ]
    assert any("round in a circle" in line for line in Path("hang/sim.log").read_text().splitlines())


def test_with_what_the_report_advises_it_runs(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("runs"), "@fmovs(theirs_dsd, in, .{ .async = true });", "@fmovs(out, mine_dsd);", arch="wse2")
    done = cstool("fabric", "run", "runs")
    assert (done.code, done.stdout.splitlines()[0]) == (0, "SUCCESS")
