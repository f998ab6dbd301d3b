"""A trace as lines of the vendor's simulator: what each event becomes, and what the viewer wse-viz reads in them."""

import json
import os
import shutil
import subprocess

import pytest

from cstool.csl.fabric.arch import EAST, RAMP
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.simfab import lines
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.trace import Recorder, read_trace
from cstool.csl.language.compile import compile_csl
from tests.unit.csl.fabric.test_fabric_trace import recorded

ONE = 0x3F800000
EVENTS = (
    (10, 0, "task", "main"),
    (12, 0, "op", "main", "fmovs"),
    (14, 0, "queue", "written", 2, 3, ONE, False),
    (14, 0, "queue", "sent", 2, 3, ONE, False),
    (15, 0, "queue", "refused", 2, 3, 7, True),
    (15, 0, "queue", "full", 2, 3, 7, True),
    (13, 1, "queue", "starved", None, 3, 0, False),
    (18, 0, "hop", EAST, 3, ONE, False),
    (19, 1, "hop", RAMP, 3, ONE, False),
    (20, 0, "op_end", "main", "fmovs"),
    (21, 1, "queue", "came", 4, 3, ONE, False),
    (22, 0, "task_end", "main"),
)
ONE_TEXT = "ctrl=0, idx=3f80, data=0000 (f32(1.0)), half=0, ident=0000000000000001"
LINES = f"""\
@0 dimX=2, dimY=1
@0 P0.0: [EX OP] IDLE
@10 P0.0: [IS OP] ^ 0x0000: T0 TASK.main
@10 P0.0: [EX OP] ^ 0x0000: T0 TASK.main
@12 P0.0: [IS OP] ^ 0x0004: T0 FMOVS
@12 P0.0: [EX OP] ^ 0x0004: T0 FMOVS
@13 P1.0: Not enough wavelets (0/1) for SRC0 with C3, IN_Q[255], SIMD-1
@14 P0.0: Writing wavelet C3 data=3f800000 to OUT_Q[2]
@14 P0.0: Sending wavelet C3 data=3f800000 ident:0000000000000001 on OUT_Q[2]
@15 P0.0: Backpressure on C3 for OUT_Q[2]
@15 P0.0: Pipe: 2, Msg: stall: OUT_Q[2] full
@16 P0.0 (hwtile) landing C3 from link R, ident=0000000000000001
@16 P0.0 (hwtile) wavelet C3 {ONE_TEXT} landing=R departing=/     /
@18 P0.0 (hwtile) wavelet C3 {ONE_TEXT} landing=- departing=/E    /
@19 P1.0 (hwtile) landing C3 from link W, ident=0000000000000001
@19 P1.0 (hwtile) wavelet C3 {ONE_TEXT} landing=W departing=/    R/
@20 P0.0: [EX OP] ^ 0x0000: T0 TASK.main
@21 P1.0 (hwtile) wavelet C3 {ONE_TEXT} landing=- departing=/     /, to_ce_from_router
@22 P0.0: [EX OP] IDLE
"""


def test_each_event_has_its_line(tmp_path):
    text = "".join(f"{line}\n" for line in lines(recorded(tmp_path, *EVENTS)))
    assert sorted(text.splitlines()) == sorted(LINES.splitlines())
    cycles = [int(line[1:].split()[0]) for line in text.splitlines()]
    assert cycles == sorted(cycles)


def test_a_wavelet_that_no_router_passed_on_is_left_out(tmp_path):
    """A route without outputs drops the first; the second goes on under its own number."""
    sent = [(time, 0, "queue", "sent", 2, 3, data, False) for time, data in ((4, 8), (5, 9))]
    found = [line for line in lines(recorded(tmp_path, *sent, (8, 0, "hop", EAST, 3, 9, False))) if "departing" in line]
    assert [line.partition("ident=")[2][:16] for line in found] == ["0000000000000002"] * 2


LAYOUT = """\
const m = @import_module("<memcpy/get_params>", .{ .width = 3, .height = 1 });
layout {
  @set_rectangle(3, 1);
  for (@range(u16, 3)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .mem = m.get_params(x), .x = x });
    const rx = if (x == 0) .{ RAMP } else .{ WEST };
    const tx = if (x == 0) .{ EAST } else if (x == 1) .{ RAMP, EAST } else .{ RAMP };
    @set_color_config(x, 0, @get_color(1), .{ .routes = .{ .rx = rx, .tx = tx } });
  }
  @export_name("go", fn()void);
}
"""
PE = """\
param mem;
param x: u16;
const sys = @import_module("<memcpy/memcpy>", mem);
var a = @zeros([20]f32);
const a_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{20} -> a[i] });
const oq = @get_output_queue(2);
const out = @get_dsd(fabout_dsd, .{ .extent = 20, .output_queue = oq, .fabric_color = @get_color(1) });
const in = @get_dsd(fabin_dsd, .{ .extent = 20, .input_queue = @get_input_queue(3) });
fn go() void {
  if (x == 0) @fmovs(out, a_dsd) else @fmovs(a_dsd, in);
  sys.unblock_cmd_stream();
}
comptime {
  @initialize_queue(@get_input_queue(3), .{ .color = @get_color(1) });
  @export_symbol(go);
}
"""
READER = """
import { TraceParser } from "%s/trace-parser.js";
import { getBranches } from "%s/wavelet.js";
import { NodeFile } from "%s/node-file.js";
const found = await TraceParser.index(new NodeFile(process.argv[1]), () => {});
const wavelets = [...found.waveletIndex.values()];
const last = (way) => [way.at(-1).x, way.at(-1).consumed];
const ends = wavelets.map((each) => getBranches(each).map(last).sort());
console.log(JSON.stringify({
  size: [found.dimX, found.dimY], landings: found.landingIndex.totalLandings, ends,
  born: wavelets.filter((each) => each.birthCycle < each.hops.cycles[0]).length,
  operations: found.opLookup, stalls: found.stallLookup.slice(1).flat().map((each) => each.reason),
}));
"""


@pytest.mark.lab
@pytest.mark.skipif(
    "CSTOOL_WSE_VIZ" not in os.environ or shutil.which("node") is None,
    reason="CSTOOL_WSE_VIZ names no checkout of wse-viz, or there is no node",
)
def test_wse_viz_reads_what_happened(tmp_path):
    """PE 0 sends 20 wavelets; the router of PE 1 gives each to its PE and to PE 2."""
    for name, text in {"layout.csl": LAYOUT, "pe.csl": PE}.items():
        (tmp_path / name).write_text(text)
    program = compile_csl(tmp_path / "layout.csl", arch="wse2")
    recorder = Recorder(program)
    host = Host(Simulation(program, on_trace=recorder))
    host.finish(host.launch("go", ()))
    recorder.save(tmp_path / "trace.npz")
    (tmp_path / "sim.log").write_text("".join(f"{line}\n" for line in lines(read_trace(tmp_path / "trace.npz"))))
    reader = READER.replace("%s", os.path.abspath(os.environ["CSTOOL_WSE_VIZ"]))
    command = ["node", "--input-type=module", "-e", reader, str(tmp_path / "sim.log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["size"] == [3, 1]
    assert found["landings"] == 60
    assert found["ends"] == [[[1, True], [2, True]]] * 20
    assert found["born"] == 20
    assert {"FMOVS", "TASK.go"} <= {*found["operations"]}
    assert "C1" in found["stalls"]
