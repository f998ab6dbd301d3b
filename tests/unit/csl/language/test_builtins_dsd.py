import pytest

from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl
from cstool.csl.language import types
from tests.unit.csl.language.comptime_cases import bad, module_of, program_of, value
from tests.unit.csl.language.shown import cases, columns

A = """
var a: [10]f32;
var m: [4, 6]i16;
var bytes: [4]u8;
var brief: [4]bf16;
const n: u16 = 3;
const p: [*]f32 = &a;
const p4: *[10]f32 = &a;
const table = [4]u16{ 1, 2, 3, 4 };
"""


VECTORS = """
.tensor_access = |i|{10} -> a[i] ==> 0 10 4    .tensor_access = |i|{n} -> a[2 * i + 1] ==> 4 3 8
.tensor_access = |i|{5} -> a[9 - i] ==> 36 5 -4    .tensor_access = |i|{42} -> a[i] ==> 0 42 4
.tensor_access = |i|{4} -> a[5] ==> 20 4 0    .tensor_access = |i|{1} -> a[2 * i + n] ==> 12 1 8
.tensor_access = |i|{0} -> a[i] ==> 0 0 4    .tensor_access = |i|{1} -> a[table[i + 3]] ==> 16 1 0
.tensor_access = |i|{4} -> p4.*[i] ==> 0 4 4
.tensor_access = |i|{4} -> p[i + 2] ==> 8 4 4    .base_address = &a, .extent = 10 ==> 0 10 4
.base_address = &a, .extent = 2, .offset = 3, .stride = 2 ==> 12 2 8    .base_address = p, .extent = 2 ==> 0 2 4
"""
"""bytes from the array on, elements, bytes from one to the next"""


@pytest.mark.parametrize(("config", "expected"), columns(VECTORS))
def test_vectors_in_memory(config: str, expected: str) -> None:
    module = module_of(f"{A}const x = @get_dsd(mem1d_dsd, .{{ {config} }});")
    offset, extent, stride = map(int, expected.split())
    base = module.lookup("a", None).address()
    assert module.lookup("x", None).value == (types.MEM1D, Mem1d(base + offset, extent, stride, 4))


def test_vectors_of_a_matrix() -> None:
    assert value("@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> m[i, 2] })", A) == Mem1d(68, 4, 12, 2)
    assert value("@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> m[i, i] })", A) == Mem1d(64, 4, 14, 2)
    assert value("@get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{4, 3} -> m[i, 2 * j] })", A) == Mem4d(
        64, (4, 3), (12, 4), 2
    )
    assert value("@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> table[i] })", A) == Mem1d(64, 4, 2, 2)


REFUSED = r"""
mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i * i] }
  the indices of a tensor access are sums of multiples of its variables
mem1d_dsd, .{ .tensor_access = |i, j|{4, 3} -> m[i, j] }
  a mem1d_dsd has one variable, got 2 (mem4d_dsd has up to 4)
mem1d_dsd, .{ .tensor_access = |i|{4} -> m[i] } ==> [4, 6]i16 takes 2 indices, got 1
mem1d_dsd, .{ .tensor_access = |i|{4} -> bytes[i] } ==> a DSD has elements of 16 or 32 bits, got u8
mem1d_dsd, .{ .tensor_access = |i|{4} -> brief[i] }
  vector operations on bf16 are not simulated (a loop over its elements does)
mem1d_dsd, .{ .tensor_access = |i|{4} -> a[1.5] } ==> an index is an integer, got comptime_float
mem1d_dsd, .{ .tensor_access = |i|{70000} -> a[i] } ==> an extent is 0 to 65535, got 70000
mem1d_dsd, .{ .tensor_access = |i|{1.5} -> a[i] } ==> an extent is an integer, got comptime_float 1.5
mem1d_dsd, .{ .tensor_acces = 1 }
  @get_dsd has the fields tensor_access, base_address, extent, offset, stride, wavelet_index_offset, got
  .tensor_acces (did you mean tensor_access?)
mem1d_dsd, .{ .extent = 1 } ==> @get_dsd needs .base_address, or .tensor_access
mem1d_dsd, .{ .base_address = 5, .extent = 1 } ==> .base_address is a pointer, got comptime_int 5
mem1d_dsd, 5 ==> @get_dsd takes a struct, got comptime_int 5
i16, .{} ==> @get_dsd makes mem1d_dsd, mem4d_dsd, circbuf_dsd, fabin_dsd or fabout_dsd, got i16
fabin_dsd, .{ .extent = 1 } ==> a DSD on the fabric needs .input_queue
fabin_dsd, .{ .input_queue = 2, .extent = 1 }
  .input_queue is an input_queue, got comptime_int 2 (make one: @get_input_queue(2))
fabin_dsd, .{ .input_queue = @get_input_queue(2) } ==> a DSD on the fabric needs .extent
fabin_dsd, .{ .input_queue = @get_input_queue(2), .extent = 1, .fabric_color = 31 } ==> a color is 0 to 23, got 31
fabout_dsd, .{ .output_queue = @get_output_queue(2), .extent = 1, .colour = 1 }
  @get_dsd has the fields extent, output_queue, fabric_color, control, advance_switch, wavelet_index_offset,
  control_transform, simd_mode, priority, got .colour
"""


@pytest.mark.parametrize(("arguments", "message"), cases(REFUSED))
def test_refused(arguments: str, message: str) -> None:
    assert bad(f"@get_dsd({arguments})", A) == message


def test_fabric_operands_of_wse2() -> None:
    before = "const c = @get_color(5);"
    dsd = "@get_dsd(fabin_dsd, .{ .fabric_color = c, .input_queue = @get_input_queue(2), .extent = 4 })"
    module = module_of(f"{before}const x = {dsd};", "wse2")
    assert module.lookup("x", None).value[1] == FabricIn(2, 4, color=5)
    assert module.instance.queue_color(2, output=False) == 5
    indexed = "@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i], .wavelet_index_offset = true })"
    assert value(indexed, A, "wse2") == Mem1d(64, 4, 4, 4, True)
    out = "const q = @get_output_queue(2);"
    dsd = "@get_dsd(fabout_dsd, .{ .fabric_color = c, .output_queue = q, .extent = 4, .control = true })"
    assert value(dsd, before + out, "wse2") == FabricOut(2, 5, 4, control=True)
    indexed = dsd.replace(".control", ".wavelet_index_offset")
    assert value(indexed, before + out, "wse2") == FabricOut(2, 5, 4, indexed=True)
    dsd = "@get_dsd(fabout_dsd, .{ .output_queue = @get_output_queue(2), .extent = 4 })"
    assert bad(dsd, before, "wse2") == "a fabout_dsd of wse2 needs .fabric_color"


def test_fabric_operands_of_wse3_go_by_the_queue() -> None:
    text = """
const q = @get_output_queue(2);
const early = @get_dsd(fabout_dsd, .{ .output_queue = q, .extent = 4, .advance_switch = true });
comptime { const now = early; @initialize_queue(q, .{ .color = @get_color(6) }); }
const late = @get_dsd(fabout_dsd, .{ .output_queue = q, .extent = 4 });
const wrong = @get_dsd(fabout_dsd, .{ .output_queue = q, .extent = 4, .fabric_color = @get_color(7) });
"""
    instance = program_of(text)
    assert instance.root.lookup("early", None).value[1] == FabricOut(2, -1, 4, advance_switch=True)
    assert instance.root.lookup("late", None).value[1] == FabricOut(2, 6, 4)
    with pytest.raises(Exception, match="got 7 for output queue 2 of color 6"):
        instance.root.lookup("wrong", None)


def test_what_a_control_wavelet_does_to_an_input() -> None:
    text = """
const q = @get_input_queue(2);
const id = @get_local_task_id(12);
task t() void {}
comptime { @bind_local_task(t, id); }
const by_id = @get_dsd(fabin_dsd, .{ .input_queue = q, .extent = 4, .on_control = .{ .activate = id } });
const goes_on = .{ .terminate = false, .activate = t };
const by_task = @get_dsd(fabin_dsd, .{ .input_queue = q, .extent = 4, .on_control = goes_on });
"""
    root = program_of(text).root
    assert root.lookup("by_id", None).value[1] == FabricIn(2, 4, OnControl(True, 12))
    assert root.lookup("by_task", None).value[1] == FabricIn(2, 4, OnControl(False, 12))


def test_changed_dsds() -> None:
    before = f"{A}const d = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> a[i] }});"
    assert value("@increment_dsd_offset(d, 3, f32)", before) == Mem1d(76, 4, 4, 4)
    assert value("@set_dsd_length(d, 9)", before) == Mem1d(64, 9, 4, 4)
    assert value("@set_dsd_stride(d, -2)", before) == Mem1d(64, 4, -8, 4)
    assert value("@set_dsd_base_addr(d, &a[2])", before) == Mem1d(72, 4, 4, 4)
    assert bad("@set_dsd_length(d, -1)", before) == "the length must fit u16 (0 to 65535), got -1"
    assert (
        bad("@set_dsd_base_addr(d, 4)", before) == "@set_dsd_base_addr takes a pointer or an array, got comptime_int 4"
    )
    assert (
        bad("@increment_dsd_offset(5, 1, f32)", before) == "@increment_dsd_offset takes a DSD in SRAM, got comptime_int"
    )


def test_fifos() -> None:
    text = """
var buffer: [8]u32;
const id = @get_local_task_id(12);
const first = @allocate_fifo(buffer, .{ .activate_push = id });
const second = @allocate_fifo(&buffer);
const wrong = @allocate_fifo(buffer, .{ .activate = id });
"""
    module = module_of(text)
    assert module.lookup("first", None).value == (types.FIFO, Fifo(0))
    assert module.lookup("second", None).value == (types.FIFO, Fifo(1))
    fifo = module.instance.fifos[0]
    assert (fifo.address, fifo.capacity, fifo.width, fifo.activate_push, fifo.activate_pop) == (64, 8, 4, 12, None)
    assert module.lookup("first", None).value == (types.FIFO, Fifo(0))
    assert len(module.instance.fifos) == 2
    with pytest.raises(Exception, match=r"has the fields activate_push, .*, empty_action, got \.activate"):
        module.lookup("wrong", None)
