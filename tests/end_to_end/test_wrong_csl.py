"""Mistakes in a program, its flags and its script: each message in full, for a reader who knows C and not CSL."""

import re

import pytest

from cstool.csl.language.compile import LIBRARY
from cstool.csl.sdk import cslc
from tests.end_to_end.test_bad_csl import FLAGS, OF_PE, compiled, here, write  # noqa: F401
from tests.unit.csl.language.shown import cases, whole
from tests.unit.csl.sdk.conftest import forked, forks  # noqa: F401

GET_PARAMS = "<memcpy/get_params>"
# The generation, if it is not wse3; a flag; the edits. Below them what cslc says.
COMPILED = r"""
pe.csl: @export_symbol(x_ptr, "x"); -> //
  layout.csl:11:3-33 no program exports 'x' | hint: write @export_symbol(..., "x"); in a comptime block of a program
  that has it
pe.csl: @export_symbol(x_ptr, "x") -> @export_symbol(x_ptr, "xs")
  33:3-29 what a program exports is named in the layout too, 'xs' is not | hint: did you mean x?
layout.csl: @export_name("go", fn (f32, u16) void); -> //
  pe.csl:34:3-20 what a program exports is named in the layout too, 'go' is not | hint: write @export_name("go",
  fn(f32, u16)void); in the layout block
layout.csl: fn (f32, u16) void -> fn (f32) void
  pe.csl:34:3-20 'go' must be fn(f32)void, as the layout has it, got fn(f32, u16)void | note 12:3-35 named here
pe.csl: @get_output_queue(2) -> @get_output_queue(8)
  5:30 an output queue of wse3 is 0 to 7, got 8 | PE
layout.csl: @get_color(3) -> @get_color(24)
  2:32-33 a color is 0 to 23, got 24
layout.csl: @get_color(3) -> @get_color(22)
  8:3-81 color 22 is memcpy's own, like 21 to 23 | hint: take another color, or compile without --memcpy
pe.csl: @get_local_task_id(9) -> @get_local_task_id(3)
  9:33 a local task id of wse3 is 8 to 30, got 3 | PE
pe.csl: //COMPTIME -> @bind_local_task(again, done); & //TOP -> task again() void {}
  32:3-31 task id 9 has one task, got 'again' after 'finish' | note 27:3-32 bound to 'finish' | PE
pe.csl: @bind_local_task(finish, done) -> @bind_data_task(finish, done)
  27:27-30 @bind_data_task takes a data_task_id, got local_task_id 9 | PE | hint: @get_data_task_id(...) makes one
pe.csl: //COMPTIME -> @bind_data_task(came, @get_data_task_id(iq)); & //TOP -> task came() void {}
  32:19-22 a data task takes the data of a wavelet, got a task without parameters | PE | hint: task came(data: u32)
  void
wse2 pe.csl: //COMPTIME -> @bind_data_task(came, @get_data_task_id(iq)); & //TOP -> task came(v: f32) void {}
  32:43-44 a data task id of wse2 is made of a color | PE | hint: it differs by generation: if (@is_arch("wse3")) ...
  ; got input_queue
pe.csl: //COMPTIME -> @initialize_queue(iq, .{ .color = @get_color(4) });
  32:3-52 input queue 3 is bound to one color, got 4 after 3 | note 30:5-42 bound to color 3 | PE
pe.csl: .output_queue = oq -> .output_queue = iq
  11:34-88 .output_queue is an output_queue, got input_queue 3 | PE | hint: make one: @get_output_queue(2)
pe.csl: .output_queue = oq -> .input_queue = iq
  11:34-87 @get_dsd has the fields extent, output_queue, fabric_color, control, advance_switch, wavelet_index_offset,
  control_transform, simd_mode, priority, got .input_queue | PE | hint: did you mean output_queue?
layout.csl: .tx = .{EAST} -> .tx = .{EATS}
  8:72-75 unknown name 'EATS' | hint: did you mean EAST?
layout.csl: .{ .routes = .{ .rx = .{RAMP} -> .{ .route = .{ .rx = .{RAMP}
  8:33-79 a color's config has the fields routes, switches, filter, teardown, color_swap_x, color_swap_y, got .route |
  hint: did you mean routes?
layout.csl: //LAYOUT -> @set_color_config(0, 0, east, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
  10:3-81 a color is configured once at a PE, got color 3 again at PE 0,0 | note 8:3-81 the first one
layout.csl: @set_color_config(0, 0, east, -> @set_color_config(0, 0,
  8:3-75 @set_color_config takes 4 arguments, got 3
layout.csl: @set_color_config(1, 0, east -> @set_color_config(2, 0, east
  9:3-81 a PE of the rectangle is 0,0 to 1,0, got 2,0
layout.csl: @set_tile_code(1, 0, -> @set_tile_code(0, 0,
  7:3-88 a PE has one program, got another for 0,0 | note 6:3-87 the first one
layout.csl: @set_tile_code(1, 0, "pe.csl" -> // @f(
  5:3-26 each PE of the rectangle needs a program, got none for 1,0 | hint: write @set_tile_code(1, 0, ...); in the
  layout block
layout.csl: @set_rectangle(width, 1); -> //
  6:3-87 @set_rectangle comes first | hint: write @set_rectangle(width, height); at the top of the layout block
layout.csl: (0, 0, "pe.csl" -> (0, 0, "pe.cls"
  6:3-87 no file pe.cls in DIRECTORY | hint: did you mean pe.csl?
layout.csl: <memcpy/get_params> -> <mempcy/get_params>
  3:26-46 unknown library <mempcy/get_params> | hint: did you mean <memcpy/get_params>?
layout.csl: .height = 1 -> .heigth = 1
  3:11-81 param 'height' of <memcpy/get_params> is not given, and has no default | note <memcpy/get_params>:5:1-13
  declared here | hint: it has no param 'heigth': is that to be 'height'?
layout.csl: .sends = true -> .sends = 1
  6:3-84 param 'sends' must be bool, got comptime_int 1 | note pe.csl:2:1-18 declared here | hint: write true or false
layout.csl: .c = east }); -> .c = east, .n = 4 });
  6:3-95 pe.csl has no param 'n'
layout.csl: .c = east -> .c = 3
  6:3-84 param 'c' must be color, got comptime_int 3 | note pe.csl:3:1-15 declared here | hint: make a color of it:
  @get_color(...)
pe.csl: //TOP -> var big = @zeros([13000]f32); & //GO -> big[b] = a;
  13:1-29 SRAM of a PE has 49,152 bytes: big ([13000]f32) takes 52,000, 16 are taken | PE | hint: use fewer elements,
  or spread them over more PEs
pe.csl: //GO -> x[4] = a;
  15:5 an index must be 0 to 3 ([4]f32), got 4 | PE
pe.csl: //GO -> var q: u16 = a;
  15:16 'q' must be u16, got f32 | PE | hint: convert it: @as(u16, ...)
pe.csl: //GO -> var q: u8 = 300;
  15:15-17 'q' must fit u8 (0 to 255), got 300 | PE | hint: use a wider type, or @as(u8, ...) to drop bits
pe.csl: //GO -> a += 1.0;
  15:3 'a' is const and cannot be assigned to | PE | hint: const and parameters keep their values; a copy that changes
  is 'var copy = ...;'
pe.csl: //GO -> var i: u16;  while (i < n) { i += 1; }
  15:27 unknown name 'n' | PE
pe.csl: sys.unblock_cmd_stream -> sys.unblock_cmd_strem
  24:3-23 <memcpy/memcpy> has no 'unblock_cmd_strem' | PE | hint: did you mean unblock_cmd_stream?
pe.csl: //GO -> unblock_cmd_stream();
  15:3-20 unknown name 'unblock_cmd_stream' | PE | hint: did you mean sys.unblock_cmd_stream?
pe.csl: //COMPTIME -> @comptime_assert(@element_count(@type_of(x)) == 8, "x needs 8 elements");
  32:3-74 @comptime_assert failed: x needs 8 elements | PE
pe.csl: .fabric_color = c, .extent = 4, .output_queue = oq -> .fabric_color = c, .output_queue = oq
  11:34-75 a DSD on the fabric needs .extent | PE
pe.csl: .activate = done -> .activate = dun
  17:54-56 unknown name 'dun' | PE
pe.csl: @fmovs(out, x_dsd, -> @fmovs(x_dsd, out,
  17:19-21 a source cannot be fabout_dsd | PE | hint: the destination comes first
pe.csl: @fmovs(out, x_dsd, -> @fmovs(out, x,
  17:5-56 @fmovs takes (DSD, DSD) or (*f32, DSD) or (DSD, f32), got (fabout_dsd, [4]f32) | PE | hint: a DSD of 'x' is
  @get_dsd(mem1d_dsd, .{ .base_address = &x, .extent = ... })
pe.csl: fn go(a: f32, b: u16) void { -> fn go(a: f32, b: u16) {
  14:22 expected the type of the result, got '{' | hint: what returns nothing is 'fn go(...) void'
pe.csl: fn go(a: f32, b: u16) void { -> task go(a: f32, b: u16) void {
  34:18-19 the host calls functions, not tasks | PE | hint: export an fn, which may @activate the task
pe.csl: task finish() void { -> fn finish() void {
  27:20-25 @bind_local_task takes a task, got fn()void finish | PE | hint: declare it with 'task': task finish(...)
  void
pe.csl: task finish() void { -> task finish(v: f32) void {
  27:20-25 a local task has no parameters | PE | hint: a data task takes data: @bind_data_task
pe.csl: //GO -> if (a = 1.0) x[0] = 1.0;
  15:9 expected ')', got '=' | note 15:6 this '(' is not closed | hint: '==' compares; an assignment is a statement of
  its own
pe.csl: //GO -> if (b) x[0] = 1.0;
  15:7 the condition of an 'if' must be bool, got u16 | PE | hint: compare it: x != 0
pe.csl: //GO -> for (@range(u16, 4)) { x[0] = 1.0; }
  15:24 expected '|' before the variable of 'for', got '{' | hint: for (@range(u16, n)) |i| { ... }
pe.csl: //GO -> for (0..4) |i| { x[i] = 1.0; }
  15:9-10 CSL has no ranges with '..' | hint: numbers to loop over: @range(u16, n)
pe.csl: //GO -> int i = 0;
  15:6 expected ';' after this, got 'i' | hint: a variable is declared with its type behind it: var i: u16 = 0;
pe.csl: //GO -> @activate(go);
  15:13-14 'go' is a function, it has no task id | PE | hint: call it: go(...)
pe.csl: //GO -> var q: [b]f32 = @zeros([b]f32);
  15:11 'b' must be known at compile time, it is a variable of run time | PE | hint: const, param and comptime var are
  known at compile time
pe.csl: //GO -> sqrt(a);
  15:3-6 unknown name 'sqrt' | PE | hint: <math> has one: const m = @import_module("<math>"); m.sqrt(...)
pe.csl: //GO -> printf("hello");
  15:3-8 unknown name 'printf' | PE | hint: const print = @import_module("<simprint>"); print.fmt("{}", .{ x });
pe.csl: @export_symbol(x_ptr, "x") -> @export_symbol(x, "x")
  33:18 the host can use functions and pointers, got the variable 'x' | PE | hint: export a pointer to it: const
  x_ptr: [*]f32 = &x;
--params=width:abc pe.csl: //GO -> //
  cslc: error: --params: width must be a number, true or false, got 'abc'
--params=width:2.5 pe.csl: //GO -> //
  layout.csl:1:1-21 --params: width must be i16, -32768 to 32767, got 2.5
--params=width:70000 pe.csl: //GO -> //
  layout.csl:1:1-21 --params: width must be i16, -32768 to 32767, got 70000
--params=width:3 pe.csl: //GO -> //
  layout.csl:5:3-26 the rectangle must fit the fabric of 9 x 3 PEs, got 3 x 1 at 4,1, with 3 columns and 1 row for
  memcpy behind it | hint: --fabric-dims=10,3 is enough
--params=width:1 pe.csl: //GO -> //
  <memcpy/get_params>:23:3-82 @comptime_assert failed: memcpy.get_params takes a column of the rectangle | note
  layout.csl:7:44-58 get_params() is called here
layout.csl: param width: i16 = 2 -> param width: i16
  1:1-17 param 'width' has no value and no default | hint: give it one: --params=width:...
"""
# Edits, and below them the line of the script, and what the error says.
RUN = r"""
=== layout.csl: .{RAMP}, .tx = .{EAST} -> .{RAMP}, .tx = .{WEST}
run.py:11: PE 0.0: routes must stay within the rectangle of 2 x 1 PEs, got a wavelet of color 3 to the WEST
hint: take WEST out of the color's tx at this PE
=== layout.csl: .rx = .{WEST} -> .rx = .{EAST}
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 2 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

2 PEs wait, in the end, for this
    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0
            of 4 wavelets came
      |
      v
    PE 1.0  router: 2 wavelets of color 3 from the WEST cannot go on: position 0 takes from EAST
            only
look at the rx of color 3 at this router: wavelets come from the WEST, and WEST is not in it
=== layout.csl: .rx = .{RAMP}, .tx = .{EAST} -> .rx = .{RAMP}
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 1 of 2 PEs waits
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

1 PE waits, in the end, for this
    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0
            of 4 wavelets came
      |
      v
    PE 0.0  router: sends nothing of color 3 to the EAST
look at the tx of color 3 at PE 0.0: EAST is not in it; `cstool fabric routes OUT_DIR --color 3 -o
  routes.svg` draws it
=== layout.csl: .rx = .{RAMP}, .tx = .{EAST} -> .rx = .{RAMP}, .tx = .{RAMP}
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 2 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

1 PE waits, in the end, for this
    PE 0.0  input queue 3 holds 4 wavelets of color 3, but nothing takes them
look at a task bound to color 3, or an operation that receives it: nothing takes what came

1 PE waits, in the end, for this
    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0
            of 4 wavelets came
      |
      v
    PE 0.0  router: sends nothing of color 3 to the EAST
look at the tx of color 3 at PE 0.0: EAST is not in it; `cstool fabric routes OUT_DIR --color 3 -o
  routes.svg` draws it
=== layout.csl: .rx = .{WEST}, .tx = .{RAMP} -> .rx = .{WEST}, .tx = .{}
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 1 of 2 PEs waits
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

1 PE waits, in the end, for this
    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0
            of 4 wavelets came
      |
      v
    PE 1.0  router: sends nothing of color 3 down to its PE
look at the tx of color 3 at PE 1.0: RAMP is not in it; `cstool fabric routes OUT_DIR --color 3 -o
  routes.svg` draws it
=== layout.csl: @set_color_config(1, -> // (
run.py:11: PE 1.0: a router must have a route for each color that comes to it, got a wavelet of color 3 from the WEST and no route
hint: @set_color_config(1, 0, ...) gives it one; or the PE to the WEST must not send the color this way
=== layout.csl: @set_color_config(0, -> // (
run.py:11: PE 0.0: a router must have a route for each color that comes to it, got a wavelet of color 3 from its own PE and no route
hint: @set_color_config(0, 0, ...) gives it one
=== pe.csl: //COMPTIME -> @block(done);
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 0.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 2 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

2 PEs wait, in the end, for 2 ends like this one
    PE 0.0  task finish (pe.csl:27:3) is activated, but is blocked
look at who is to unblock it: @unblock, or .unblock of an operation that ends
=== pe.csl: @fmovs(x_dsd, in, .{ .async = true, .activate = done }) -> @fmovs(x_dsd, in, .{ .async = true })
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 0 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
no operation is under way and no task is activated: a function that the host launches must call
  unblock_cmd_stream(), or start what calls it
=== pe.csl: sys.unblock_cmd_stream(); -> //
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 0.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream()

deadlock at cycle N: nothing can move any more; 0 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
no operation is under way and no task is activated: a function that the host launches must call
  unblock_cmd_stream(), or start what calls it
=== pe.csl: if (sends) { -> @fmovs(x_dsd, in); if (sends) {
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 0.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 2 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

2 PEs wait, in the end, for this
    PE 0.0  task go: @fmovs, pe.csl:16:3, waits for color 3 (queue 3), 0 of 4 wavelets came
      |
      v
    PE 0.0  router: sends nothing of color 3 down to its PE
look at the tx of color 3 at PE 0.0: RAMP is not in it; `cstool fabric routes OUT_DIR --color 3 -o
  routes.svg` draws it
=== pe.csl: //GO -> x[b * 2] = a;
run.py:11: PE 0.0, pe.csl:15:5: an index must be 0 to 3, got 4
=== pe.csl: //GO -> x[0] = @as(f32, b / (b - 2));
run.py:11: PE 0.0, pe.csl:15:19: a divisor is not zero, got 2 / 0
=== pe.csl: //GO -> @assert(b == 3);
run.py:11: PE 0.0, pe.csl:15:3: @assert(b == 3) does not hold
=== pe.csl: //TOP -> task came(v: f32) void { x[0] += v; } & //COMPTIME -> @bind_data_task(came, @get_data_task_id(iq)); @block(iq); & @fmovs(x_dsd, in, -> // (
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task came (pe.csl:32:3), task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 1 of 2 PEs waits
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

1 PE waits, in the end, for this
    PE 1.0  task came (pe.csl:32:3) has 4 wavelets of color 3, but is blocked
look at who is to unblock it: @unblock, or .unblock of an operation that ends
=== wse2 pe.csl: .fabric_color = c, .extent = 4, .output_queue = oq -> .fabric_color = @get_color(5), .extent = 4, .output_queue = oq
run.py:11: PE 0.0: a router must have a route for each color that comes to it, got a wavelet of color 5 from its own PE and no route
hint: @set_color_config(0, 0, ...) gives it one
=== wse2 pe.csl: .fabric_color = c, .extent = 4, .input_queue = iq -> .fabric_color = @get_color(5), .extent = 4, .input_queue = iq
run.py:11: PE 1.0: a color that goes down the ramp must have an input queue, got a wavelet of color 3 from WEST to RAMP, and pe.csl has none for it
hint: bind an input queue to the color there, or take RAMP out of its tx at this PE
=== wse2 pe.csl: .fabric_color = c, .extent = 4, .input_queue = iq -> .extent = 4, .input_queue = iq
run.py:11: PE 1.0, task go (pe.csl:14:1): @fmovs reads input queue 3, @initialize_queue must bind a color to it, none is bound
=== layout.csl: .rx = .{RAMP}, .tx = .{EAST} -> .rx = .{WEST}, .tx = .{EAST}
run.py:12: the fabric stands still, and the host's command is not done: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0
hint: PE 1.0 is in go() (pe.csl:14:1), which has not called unblock_cmd_stream(); never ran there: task finish (pe.csl:27:3)

deadlock at cycle N: nothing can move any more; 2 of 2 PEs wait
the host: launch go(1.0, 2)
the host: memcpy_d2h from 'x', 4 x 32 bits, PE 1.0

2 PEs wait, in the end, for this
    PE 1.0  microthread 3, started by task go: @fmovs, pe.csl:19:5, waits for color 3 (queue 3), 0
            of 4 wavelets came
      |
      v
    PE 0.0  router: 4 wavelets of color 3 from its own PE cannot go on: position 0 takes from WEST
            only
look at the rx of color 3 at this router: its own PE sends, and RAMP is not in it
=== run.py: get_id("x"), x -> get_id("y"), x
run.py:10: memcpy_h2d: a symbol must be given, got None, get_id has not found 'y', exported: go, x
=== run.py: launch("go" -> launch("goo"
run.py:11: launch: 'goo' must be exported by the layout's @export_name, exported: go, x
hint: did you mean go?
=== run.py: np.float32(1), np.uint16(2) -> np.float32(1)
run.py:11: launch: go(f32, u16) takes 2 arguments, got 1
=== run.py: np.float32(1), np.uint16(2) -> 1, 2
run.py:11: launch: argument 1 of go(f32, u16): must be a float, got int
hint: np.float32(...) makes one
=== run.py: dtype=np.float32 -> dtype=np.float64
run.py:10: memcpy_h2d: src must be an array of uint32, int32 or float32, got float64
hint: make it of np.float32
=== run.py: x, 0, 0, 1, 1, 4 -> x, 0, 0, 1, 1, 5
run.py:10: memcpy_h2d: src must have 5 elements, got 4
=== run.py: x, 0, 0, 1, 1, 4 -> x, 0, 0, 2, 1, 4
run.py:10: memcpy_h2d: src must have 8 elements, got 4
=== run.py: x, 0, 0, 1, 1, 4 -> x, 2, 0, 1, 1, 4
run.py:10: memcpy_h2d: the rectangle must lie in the program's 2 x 1 PEs, got 1 x 1 at 2,0
=== run.py: MEMCPY_32BIT -> MEMCPY_16BIT
run.py:10: PE 0.0: MEMCPY_16BIT is for elements of 16 bits, those of 'x' have 32
hint: MEMCPY_32BIT copies them
=== run.py: SdkRuntime("out") -> SdkRuntime("uot")
run.py:4: DIRECTORY/uot: must be a directory with a compiled program, has no out.json
hint: cslc layout.csl ... -o DIRECTORY writes one
=== run.py: runner.load() -> # (
run.py:6: run: the program must be loaded first, with load()
=== run.py: runner.run() -> # (
run.py:10: memcpy_h2d: the program must be running, between run() and stop()
=== run.py: runner.stop() -> runner.stop(); runner.launch("go", np.float32(1), np.uint16(2), nonblock=False)
run.py:13: launch: the program must be running, between run() and stop()
=== run.py: np.zeros(4, np.float32) -> np.zeros((2, 8), np.float32)[:, ::2]
run.py:12: memcpy_d2h: dest must have 4 elements, got 8
=== run.py: np.zeros(4, np.float32) -> [0] * 4
run.py:12: memcpy_d2h: dest must be a NumPy array, got list
=== layout.csl: @export_name("x", [*]f32, true) -> @export_name("x", [*]f32, false)
run.py:10: memcpy_h2d: 'x' must be exported as mutable, it is not
hint: @export_name("x", ..., true) in the layout lets the host write it
"""  # noqa: E501


RUNS = [each.split("\n", 1) for each in RUN.strip().removeprefix("=== ").split("\n=== ")]


def written(folder, edits: str) -> tuple[str, list[str], dict[str, str]]:
    """The generation, flags, and files by name."""
    words = edits.split()
    arch = words[0] if words[0] in ("wse2", "wse3") else "wse3"
    flags = [word for word in words if word.startswith("--params")]
    return arch, flags, write(folder, edits.removeprefix(f"{arch} ").removeprefix(" ".join([*flags, ""])))


@pytest.mark.parametrize(("edits", "said"), cases(COMPILED))
def test_what_cslc_says(here, capsys, edits, said):  # noqa: F811
    arch, flags, files = written(here, edits)
    assert cslc.main(["layout.csl", f"--arch={arch}", *FLAGS, *flags]) > 0
    said = said.replace("DIRECTORY", str(here))
    if not said.startswith("cslc:"):
        line = files["layout.csl"].splitlines()[5]
        said = said.replace("| PE", f"| {OF_PE.replace('-87', f'-{len(line) - 1}')}")
        said = whole(said, files | {GET_PARAMS: (LIBRARY / f"{GET_PARAMS[1:-1]}.csl").read_text()})
    assert capsys.readouterr() == ("", f"{said}\n")


@pytest.mark.parametrize(("edits", "said"), RUNS)
def test_what_a_run_says(here, forks, edits, said):  # noqa: F811
    arch, _, _ = written(here, edits)
    assert compiled(arch) == 0
    code, _, errors = forked("run.py")
    line = errors.partition('File "run.py", line ')[2].partition(",")[0]
    told = errors.partition("SdkRuntimeError: ")[2].replace(f"{here}", "DIRECTORY")
    told = re.sub(r"deadlock at cycle \d+:", "deadlock at cycle N:", told)
    assert (code, f"run.py:{line}: {told}") == (1, f"{said.strip()}\n")
