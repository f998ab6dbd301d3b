"""A task overwrites what an operation has just sent: the operation was there first."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.csl.hosted import Hosted

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
const wire = @get_color(1);
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .wire = wire, .sends = true });
  @set_tile_code(1, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(1), .wire = wire, .sends = false });
  @set_color_config(0, 0, wire, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  @set_color_config(1, 0, wire, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  @export_name("data", [*]f32, true);
  @export_name("go", fn()void);
}
"""

PE = """
param memcpy_params;
param wire: color;
param sends: bool;
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
const out_queue = @get_output_queue(2);
const in_queue = @get_input_queue(2);
const overwrite_id = @get_local_task_id(8);
const received_id = @get_local_task_id(9);
var data: [2]f32;
const data_ptr: [*]f32 = &data;
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> data[i] });
const out = @get_dsd(fabout_dsd, if (@is_arch("wse3")) .{ .extent = 2, .output_queue = out_queue }
                                 else .{ .extent = 2, .output_queue = out_queue, .fabric_color = wire });
const in = @get_dsd(fabin_dsd, .{ .extent = 2, .input_queue = in_queue });
var work: u16 = 0;
fn go() void {
  if (sends) {
    @fmovs(out, data_dsd, .{ .async = true });
    @activate(overwrite_id);
  } else {
    @fmovs(data_dsd, in, .{ .async = true, .activate = received_id });
  }
}
// Begins while the two elements are being sent, and is at the overwriting long after.
task overwrite() void {
  for (@range(u16, 20)) |i| {
    work += i;
  }
  data[0] = 8.0;
  data[1] = 9.0;
  memcpy.unblock_cmd_stream();
}
task received() void {
  memcpy.unblock_cmd_stream();
}
comptime {
  @bind_local_task(overwrite, overwrite_id);
  @bind_local_task(received, received_id);
  if (sends) @initialize_queue(out_queue, if (@is_arch("wse3")) .{ .color = wire } else .{});
  if (!sends) @initialize_queue(in_queue, .{ .color = wire });
  @export_symbol(data_ptr, "data");
  @export_symbol(go);
}
"""


@pytest.mark.parametrize("arch", ["wse2", "wse3"])
def test_what_was_sent_before_it_was_overwritten_arrives(arch: str, tmp_path: Path) -> None:
    program = Hosted(tmp_path, {"layout.csl": LAYOUT, "pe.csl": PE}, arch)
    program.put("data", np.array([1, 2, 0, 0], np.float32))
    program.launch("go")
    assert program.get("data", 2).tolist() == [[[8, 9], [1, 2]]]
