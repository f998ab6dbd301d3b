"""A program and its host scripts, from the source to the arrays: streams, copies, launches, scripts for clusters."""

from pathlib import Path

import pytest

from cstool.csl.sdk import cslc
from tests.unit.csl.language.many_pes import exporting
from tests.unit.csl.sdk.conftest import forked

ROOT = Path(__file__).resolve().parents[4]
LAYOUT = """
param width: i16;
param height: i16;
param N: u16;
param IN_32: color;
param IN_16: i16;
param OUT_32: i16;
param OUT_16: i16;
const memcpy = @import_module("<memcpy/get_params>", .{
  .width = width,
  .height = height,
  .MEMCPYH2D_1 = IN_32,
  .MEMCPYH2D_2 = @get_color(IN_16),
  .MEMCPYD2H_1 = @get_color(OUT_32),
  .MEMCPYD2H_2 = @get_color(OUT_16),
});
layout {
  @set_rectangle(width, height);
  for (@range(i16, width)) |x| {
    for (@range(i16, height)) |y| {
      @set_tile_code(x, y, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .N = N });
    }
  }
  @export_name("scale", fn (f32, i16, u16, u32, i32, f16) void);
  @export_name("take", fn () void);
  @export_name("send", fn () void);
}
"""
PE = """
param memcpy_params: comptime_struct;
param N: u16;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const ports = @import_module("ports.csl");
const time = @import_module("<time>");
const trace = @import_module("<debug>", .{ .key = "calls", .buffer_size = 40 });
const in_32 = @get_input_queue(2);
const in_16 = @get_input_queue(3);
const out_32 = @get_output_queue(3);
const out_16 = @get_output_queue(4);
var A = @zeros([N]f32);
var B = @zeros([N]u16);
var total = @zeros([1]f32);
var stamps = @zeros([6]u16);
var packed = @zeros([3]f32);
var arguments = @zeros([6]u32);
var begin = @zeros([time.tsc_size_words]u16);
var end = @zeros([time.tsc_size_words]u16);
const A_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{N} -> A[i] });
const B_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{N} -> B[i] });
const from_host = ports.fabin(sys_mod.MEMCPYH2D_2, in_16, N);
const floats_to_host = ports.fabout(sys_mod.MEMCPYD2H_1, out_32, N, false);
const words_to_host = ports.fabout(sys_mod.MEMCPYD2H_2, out_16, N, false);
const words_id = @get_local_task_id(13);
const done_id = @get_local_task_id(14);

task add(value: f32) void { total[0] += value; }
fn pair(high: u16, low: u16) f32 { return @bitcast(f32, @as(u32, high) << 16 | @as(u32, low)); }
fn scale(a: f32, b: i16, c: u16, d: u32, e: i32, h: f16) void {
  time.enable_tsc();
  time.get_timestamp(&begin);
  @fmuls(A_dsd, A_dsd, a);
  time.get_timestamp(&end);
  for (@range(u16, 3)) |i| {
    stamps[i] = begin[i];
    stamps[3 + i] = end[i];
  }
  packed[0] = pair(begin[1], begin[0]);
  packed[1] = pair(end[0], begin[2]);
  packed[2] = pair(end[2], end[1]);
  arguments[0] = @bitcast(u32, a);
  arguments[1] = @as(u32, @bitcast(u16, b));
  arguments[2] = @as(u32, c);
  arguments[3] = d;
  arguments[4] = @bitcast(u32, e);
  arguments[5] = @as(u32, @bitcast(u16, h));
  trace.trace_i16(b);
  trace.trace_string("scaled");
  sys_mod.unblock_cmd_stream();
}

fn take() void { @mov16(B_dsd, from_host, .{ .async = true, .activate = done_id }); }
fn send() void { @fmovs(floats_to_host, A_dsd, .{ .async = true, .activate = words_id }); }
task send_words() void { @mov16(words_to_host, B_dsd, .{ .async = true, .activate = done_id }); }
task done() void { sys_mod.unblock_cmd_stream(); }
comptime {
  @bind_data_task(add, ports.data_task(sys_mod.MEMCPYH2D_1, in_32));
  @bind_local_task(send_words, words_id);
  @bind_local_task(done, done_id);
  if (@is_arch("wse3")) {
    @initialize_queue(in_32, .{ .color = sys_mod.MEMCPYH2D_1 });
    @initialize_queue(in_16, .{ .color = sys_mod.MEMCPYH2D_2 });
    @initialize_queue(out_32, .{ .color = sys_mod.MEMCPYD2H_1 });
    @initialize_queue(out_16, .{ .color = sys_mod.MEMCPYD2H_2 });
  }
  @export_symbol(scale);
  @export_symbol(take);
  @export_symbol(send);
}
"""
SCRIPT = """
import argparse
import json

import numpy as np
from cerebras.geometry.geometry import IntRectangle, IntVector
from cerebras.sdk import sdk_utils
from cerebras.sdk.debug.debug_util import debug_util
from cerebras.sdk.runtime.sdkruntimepybind import (
    MemcpyDataType, MemcpyOrder, SdkRuntime, SdkTarget, SimfabConfig, get_platform,
)

parser = argparse.ArgumentParser()
parser.add_argument("--name")
parser.add_argument("--cmaddr")
args = parser.parse_args()
with open(f"{args.name}/out.json", encoding="utf-8") as file:
    params = {name: int(value) for name, value in json.load(file)["params"].items()}
w, h, n = params["width"], params["height"], params["N"]
get_platform(args.cmaddr, SimfabConfig(dump_core=True), SdkTarget.WSE3)
runner = SdkRuntime(args.name, cmaddr=args.cmaddr, suppress_simfab_trace=True, simfab_numthreads=8, msg_level="INFO")
A, B = runner.get_id("A"), runner.get_id("B")
runner.load()
runner.run()
bits32, bits16 = MemcpyDataType.MEMCPY_32BIT, MemcpyDataType.MEMCPY_16BIT
row, col = MemcpyOrder.ROW_MAJOR, MemcpyOrder.COL_MAJOR
copy = dict(streaming=False, data_type=bits32, order=row, nonblock=False)
rng = np.random.default_rng(1)


def fetch(symbol, count, data_type=bits32, order=row, dtype=np.float32):
    array = np.zeros(h * w * count, dtype)
    runner.memcpy_d2h(array, runner.get_id(symbol), 0, 0, w, h, count, **copy | dict(data_type=data_type, order=order))
    return array.reshape((h, w, count), order="C" if order == row else "F")


a = rng.random((h, w, n), dtype=np.float32)
runner.memcpy_h2d(A, a.ravel(), 0, 0, w, h, n, **copy | {"nonblock": True})
scalars = np.float32(2), np.int16(-3), np.uint16(60000), np.uint32(4000000000), np.int32(-7), np.float16(1.5)
runner.launch("scale", *scalars, nonblock=False)
np.testing.assert_array_equal(fetch("A", n, order=col), 2 * a)
expected = [0x40000000, 65533, 60000, 4000000000, 2**32 - 7, 0x3E00]
assert fetch("arguments", 6, dtype=np.uint32)[h - 1, w - 1].tolist() == expected

stamps = sdk_utils.memcpy_view(fetch("stamps", 6, bits16, dtype=np.uint32), np.dtype(np.uint16)).astype(int)[0, 0]
start, end = (words[0] + (words[1] << 16) + (words[2] << 32) for words in (stamps[:3], stamps[3:]))
assert n <= end - start < 500, end - start
assert sdk_utils.calculate_cycles(fetch("packed", 3)[0, 0]) == end - start

# Two streams in, two out, none of them waited for until the end.
summands = np.arange(h * w * 4, dtype=np.float32)
words = rng.integers(0, 60000, size=(h, w, n)).astype(np.uint16)
stream = dict(streaming=True, order=row, nonblock=True)
runner.memcpy_h2d(params["IN_32"], summands, 0, 0, w, h, 4, data_type=bits32, **stream)
runner.launch("take", nonblock=True)
sent = sdk_utils.input_array_to_u32(words.ravel(), None, 1)
runner.memcpy_h2d(params["IN_16"], sent, np.int64(0), 0, np.int32(w), h, n, data_type=bits16, **stream)
runner.launch("send", nonblock=True)
floats_back, words_back = np.zeros(h * w * n, np.float32), np.zeros(h * w * n, np.uint32)
first = runner.memcpy_d2h(floats_back, params["OUT_32"], 0, 0, w, h, n, data_type=bits32, **stream)
second = runner.memcpy_d2h(words_back, params["OUT_16"], 0, 0, w, h, n, data_type=bits16, **stream | {"order": col})
while not runner.is_task_done(first):
    pass
runner.task_wait(second)
np.testing.assert_array_equal(floats_back.reshape(h, w, n), 2 * a)
words_back = sdk_utils.memcpy_view(words_back.reshape((h, w, n), order="F"), np.dtype(np.uint16))
np.testing.assert_array_equal(words_back, words)
np.testing.assert_array_equal(fetch("total", 1)[:, :, 0], summands.reshape(h, w, 4).sum(2))

by_row, by_column = np.arange(h * n, dtype=np.float32), np.arange(w * n, dtype=np.float32)
runner.memcpy_h2d_rowbcast(A, by_row, 0, 0, w, h, n, **copy)
np.testing.assert_array_equal(fetch("A", n), np.broadcast_to(by_row.reshape(h, 1, n), (h, w, n)))
runner.memcpy_h2d_colbcast(A, by_column, 0, 0, w, h, n, **copy)
np.testing.assert_array_equal(fetch("A", n), np.broadcast_to(by_column.reshape(1, w, n), (h, w, n)))
runner.memcpy_h2d(A, np.full(4, 9, np.float32), 1, 1, 2, 1, 2, **copy)
assert fetch("A", n)[1, :, :3].tolist() == [[0, 1, 2], [9, 9, 7], [9, 9, 12]]
runner.call("scale", [int(np.float32(1).view(np.uint32)), 1, 2, 3, 4, 5], nonblock=False)
runner.launch("scale", 1.0, 1, 2, 3, 4, 0.5, nonblock=False)
runner.stop()

debug = debug_util(args.name, cmaddr=args.cmaddr)
x, y = runner.coord_logical_to_physical((0, 0))
assert debug.get_symbol(x, y, "A", np.float32).tolist() == list(range(n))
assert debug.get_symbol_rect(((x, y), (w, h)), "total", np.float32).shape == (w, h, 1)
rectangle = IntRectangle(IntVector(x, y), IntVector(x + w - 1, y + h - 1))
assert debug.get_symbol_rect(rectangle, "B", np.uint16).tolist() == words.transpose(1, 0, 2).tolist()
assert debug.read_trace(x, y, "calls") == [-3, "scaled", 1, "scaled", 1, "scaled"]
print("SUCCESS")
"""
CLUSTER = """
import json
import sys

import numpy as np
from cerebras.appliance.pb.sdk.sdk_common_pb2 import MemcpyDataType, MemcpyOrder
from cerebras.sdk.client import SdkCompiler, SdkLauncher, SdkRuntime

flags = "--fabric-dims=10,4 --fabric-offsets=4,1 --memcpy --channels=1 -o=product"
params = "--params=width:3,height:2,N:5 --params=IN_16:1,OUT_32:2 --params=OUT_16:3 --colors=IN_32:0"
with SdkCompiler(resource_cpu=1000) as compiler:
    path = compiler.compile("source", "layout.csl", f"--arch={sys.argv[1]} {flags} {params}", "build")
with SdkLauncher(path, simulator=True) as launcher:
    launcher.stage("run.py")
    print(launcher.run("echo begin", "cs_python run.py --name product --cmaddr %CMADDR%"), end="")
    launcher.download_artifact("sim.log", "kept/sim.log")
with SdkRuntime(path, simulator=True) as runner:
    total = np.ones(6, np.float32)
    runner.memcpy_d2h(total, runner.get_id("total"), 0, 0, 3, 2, 1, streaming=False,
                      data_type=MemcpyDataType.MEMCPY_32BIT, order=MemcpyOrder.ROW_MAJOR, nonblock=False)
print(total.sum())
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the program in `source`, and the script."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    for name, text in exporting({"layout.csl": LAYOUT, "pe.csl": PE}).items():
        (tmp_path / "source" / name).write_text(text)
    (tmp_path / "run.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(("arch", "how"), [("wse2", "run.py --name out"), ("wse3", "-m run --name=out --cmaddr=")])
def test_every_kind_of_command(arch: str, how: str, forks: None) -> None:
    flags = f"--arch {arch} --fabric-dims 10,4 source/layout.csl --fabric-offsets=4,1 --memcpy --channels=1 -o out"
    params = "--params=width:3,height:2 --params N:5,IN_16:1,OUT_32:2,OUT_16:3 --colors IN_32:0"
    assert cslc.main(f"{flags} {params} --width-west-buf=0 --width-east-buf=0".split()) == 0
    assert forked(*how.split()) == (0, "SUCCESS\n", "")


def test_a_script_for_a_cluster_runs_on_this_machine(here: Path) -> None:
    (here / "launch.py").write_text(CLUSTER)
    assert forked("launch.py", "wse3") == (0, "begin\nSUCCESS\n0.0\n", "")
    assert (here / "kept/sim.log").read_text()
