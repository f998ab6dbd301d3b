"""<kernels/tally>: one wavelet to the north once every PE of the kernel is done, and not before."""

from pathlib import Path

import pytest

from cstool.csl.language.source import CslError
from tests.unit.csl.language.many_pes import Run

# The kernel is below a row of other PEs; the last of these takes what the tally says.
LAYOUT = """
param width: u16;
param height: u16;
param idle: u16;
const out = @get_color(0);
const tally = @import_module("<kernels/tally/layout>", .{
  .kernel_width = width, .kernel_height = height, .phase2_tally = 0,
  .colors = [3]color{ @get_color(1), @get_color(2), @get_color(3) }, .output_color = out,
});
layout {
  @set_rectangle(width, height + 1);
  for (@range(u16, width)) |x| {
    @set_tile_code(x, 0, "above.csl", .{ .c = out });
    for (@range(u16, height)) |y| {
      @set_tile_code(x, y + 1, "pe.csl", .{
        .tally_params = tally.get_params(x, y), .works = y * width + x != idle, .pause = 300 * ((x + 3 * y) % 4),
      });
    }
  }
  @set_color_config(width - 1, 0, out, .{ .routes = .{ .rx = .{ SOUTH }, .tx = .{ RAMP } } });
}
"""
ABOVE = """
param c: color;
const ports = @import_module("ports.csl");
const queue = @get_input_queue(2);
var heard = @zeros([2]u32);
task take(wavelet: u32) void { heard[0] += 1; heard[1] += wavelet; }
comptime {
  @bind_data_task(take, ports.data_task(c, queue));
  @initialize_queue(queue, .{ .color = c });
}
"""
PE = """
param tally_params: comptime_struct;
param works: bool;
param pause: u16;
const tally = @import_module("<kernels/tally/pe>", @concat_structs(tally_params, .{
  .input_queues = [2]u16{ 2, 3 }, .output_queues = [2]u16{ 4, 5 },
}));
const work_id = @get_local_task_id(12);
var ready = @zeros([1]u16);
task work() void {
  while (ready[0] < pause) ready[0] += 1;
  tally.signal_completion();
  tally.signal_completion();
}
comptime {
  @bind_local_task(work, work_id);
  if (works) @activate(work_id);
}
"""
FILES = {"layout.csl": LAYOUT, "above.csl": ABOVE, "pe.csl": PE}


@pytest.mark.parametrize(("width", "height"), [(1, 1), (4, 1), (1, 3), (2, 2), (4, 8), (5, 3)])
def test_the_end_is_told_once(tmp_path: Path, arch: str, width: int, height: int) -> None:
    run = Run(tmp_path, FILES, arch, width=width, height=height, idle=1000)
    assert run.row("heard")[-1] == [1, 0]


@pytest.mark.parametrize("idle", range(6))
def test_it_waits_for_every_pe(tmp_path: Path, idle: int) -> None:
    run = Run(tmp_path, FILES, "wse3", width=3, height=2, idle=idle)
    assert run.row("heard")[-1] == [0, 0]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("layout.csl", "tally = 0", "tally = 5", "tally has no second phase here: phase2_tally is 0"),
        ("layout.csl", "get_params(x, y)", "get_params(x, y + 1)", "tally.get_params takes a PE of the kernel"),
        ("pe.csl", "{ 4, 5 }", "{ 4, 3 }", "on wse3 the input_queues of a tally differ from its output_queues"),
    ],
)
def test_refused(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    with pytest.raises(CslError) as caught:
        Run(tmp_path, {**FILES, file: FILES[file].replace(old, new)}, width=2, height=1, idle=9)
    assert caught.value.message.split(": ", 1)[1] == f"@comptime_assert failed: {said}"


def test_a_queue_may_be_both_on_wse2(tmp_path: Path) -> None:
    files = {**FILES, "pe.csl": PE.replace("{ 4, 5 }", "{ 2, 3 }")}
    assert Run(tmp_path, files, "wse2", width=3, height=2, idle=9).row("heard")[-1] == [1, 0]
