"""Layouts in Python: regions, ports, ways, streams of the host; what they compute, and what cannot be."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.csl.source import CslError
from cstool.sdk.artifact import read_program
from cstool.sdk.client import SdkRuntimeError
from cstool.sdk.debug import debug_util
from cstool.sdk.geometry import IntRectangle, IntVector
from cstool.sdk.layout_program import SdkLayout
from cstool.sdk.layout_region import CodeRegion
from cstool.sdk.layout_types import (
    Color,
    Edge,
    PortHandle,
    Route,
    RoutingPosition,
    Stream,
    get_edge_routing,
)
from cstool.sdk.platforms import SdkTarget, get_platform
from cstool.sdk.runtime import SdkRuntime

ADD = """
param count: u16;
param addend: f32;
param rx: color;
param tx: color;
const iq = @get_input_queue(2);
const oq = @get_output_queue(2);
const start = @get_local_task_id(10);
const answer = @get_local_task_id(11);
var data = @zeros([count]f32);
var data_ptr: [*]f32 = &data;
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{count} -> data[i] });
const rx_dsd = @get_dsd(fabin_dsd, .{ .fabric_color = rx, .extent = count, .input_queue = iq });
const tx_dsd = @get_dsd(fabout_dsd, .{ .fabric_color = tx, .extent = count, .output_queue = oq });
task begin() void { @fadds(data_dsd, rx_dsd, addend, .{ .async = true, .activate = answer }); }
task reply() void { @fmovs(tx_dsd, data_dsd, .{ .async = true, .activate = start }); }
comptime {
  @bind_local_task(begin, start);
  @bind_local_task(reply, answer);
  @activate(start);
  @export_symbol(data_ptr, "data");
  if (@is_arch("wse3")) {
    @initialize_queue(iq, .{ .color = rx });
    @initialize_queue(oq, .{ .color = tx });
  }
}
"""

# Each PE has `columns` columns of A[r][c] = r + 2 * c, takes all of x, and adds to the sum that comes from its west.
GEMV = """
param rows: u16;
param columns: u16;
param total: u16;
param first: i16;
param is_first: bool;
param x_color: color;
param sum_in: color;
param sum_out: color;
const xq = @get_input_queue(2);
const sq = @get_input_queue(3);
const oq = @get_output_queue(2);
const start = @get_local_task_id(10);
const multiply = @get_local_task_id(11);
const pass = @get_local_task_id(12);
var x = @zeros([total]f32);
var y = @zeros([rows]f32);
const x_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{total} -> x[i] });
const y_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{rows} -> y[i] });
const x_in = @get_dsd(fabin_dsd, .{ .fabric_color = x_color, .extent = total, .input_queue = xq });
const s_in = @get_dsd(fabin_dsd, .{ .fabric_color = sum_in, .extent = rows, .input_queue = sq });
const s_out = @get_dsd(fabout_dsd, .{ .fabric_color = sum_out, .extent = rows, .output_queue = oq });
task take() void { @fmovs(x_dsd, x_in, .{ .async = true, .activate = multiply }); }
task product() void {
  for (@range(i16, rows)) |r| {
    for (@range(i16, columns)) |c| {
      const column = first + c;
      y[r] += @as(f32, r + 2 * column) * x[column];
    }
  }
  if (is_first) { @activate(pass); } else { @fadds(y_dsd, s_in, y_dsd, .{ .async = true, .activate = pass }); }
}
task send() void { @fmovs(s_out, y_dsd, .{ .async = true }); }
comptime {
  @bind_local_task(take, start);
  @bind_local_task(product, multiply);
  @bind_local_task(send, pass);
  @activate(start);
  if (@is_arch("wse3")) {
    @initialize_queue(xq, .{ .color = x_color });
    if (!is_first) { @initialize_queue(sq, .{ .color = sum_in }); }
    @initialize_queue(oq, .{ .color = sum_out });
  }
}
"""
TO_RAMP = [RoutingPosition().set_output([Route.RAMP])]
FROM_RAMP = [RoutingPosition().set_input([Route.RAMP])]
PLATFORM = get_platform(None, None, SdkTarget.WSE3)
PASSED = [RoutingPosition().set_input([Route.SOUTH, Route.NORTH])]
both = pytest.mark.parametrize("target", list(SdkTarget))


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("add.csl").write_text(ADD)
    Path("gemv.csl").write_text(GEMV)


@pytest.fixture
def start() -> Iterator[Callable[[SdkLayout], SdkRuntime]]:
    """Compile a layout, and run it."""
    runtimes: list[SdkRuntime] = []

    def begin(layout: SdkLayout) -> SdkRuntime:
        runtime = SdkRuntime(layout.compile(out_prefix="out"), PLATFORM, memcpy_required=False)
        runtimes.append(runtime)
        runtime.load()
        runtime.run()
        return runtime

    yield begin
    for runtime in runtimes:
        assert runtime._simulator is not None
        runtime._simulator.close()


def adder(
    layout: SdkLayout, name: str, addend: float, *, edges: tuple[Edge, Edge] = (Edge.LEFT, Edge.RIGHT), size: int = 5
) -> tuple[CodeRegion, PortHandle, PortHandle]:
    """A PE that adds to each word of `size`, and its ports."""
    region = layout.create_code_region("./add.csl", name, 1, 1)
    rx, tx = region.color("rx"), region.color("tx")
    for param, value in {"count": size, "addend": np.float32(addend), "rx": rx, "tx": tx}.items():
        region.set_param_all(param, value)
    into = region.create_input_port(rx, edges[0], TO_RAMP, size)
    return region, into, region.create_output_port(tx, edges[1], FROM_RAMP, size)


@both
def test_one_pe_adds(target: SdkTarget, start: Callable[[SdkLayout], SdkRuntime]) -> None:
    layout = SdkLayout(get_platform(None, None, target))
    region, into, out = adder(layout, "one", 2.5)
    region.place(4, 1)
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out)
    runtime = start(layout)
    given = np.arange(10, dtype=np.float32)
    got = np.zeros(10, np.float32)
    first = runtime.send(send, given[:5], nonblock=True)
    runtime.send(send, given[5:])
    runtime.receive(receive, got, 10)
    assert got.tolist() == (given + 2.5).tolist()
    assert runtime.is_task_done(first)
    part = np.zeros(5, np.float32)
    task = runtime.receive(receive, part, 3, nonblock=True)
    runtime.send(send, np.ones(5, np.float32), True)
    runtime.task_wait(task)
    assert part.tolist() == [3.5, 3.5, 3.5, 0, 0]
    runtime.receive(receive, part[:2])
    runtime.stop()
    assert part.tolist() == [3.5, 3.5, 3.5, 0, 0]
    # Symbols are read at the place of the region on the fabric.
    assert debug_util("out").get_symbol(4, 1, "data", np.float32).tolist() == [3.5] * 5


@both
def test_two_regions_are_connected(target: SdkTarget, start: Callable[[SdkLayout], SdkRuntime]) -> None:
    layout = SdkLayout(get_platform(None, None, target))
    left, into, out = adder(layout, "left", 1)
    right, into_right, out_right = adder(layout, "right", 10)
    left.place(3, 2)
    right.place(7, 4)  # the way has corners
    layout.connect(out, into_right)
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out_right)
    runtime = start(layout)
    runtime.send(send, np.arange(5, dtype=np.float32))
    got = np.zeros(5, np.float32)
    runtime.receive(receive, got)
    runtime.stop()
    assert got.tolist() == [11, 12, 13, 14, 15]


@pytest.mark.parametrize("edges", [(Edge.TOP, Edge.LEFT), (Edge.BOTTOM, Edge.TOP), (Edge.RIGHT, Edge.BOTTOM)])
def test_neighbours_and_regions_without_a_place(
    edges: tuple[Edge, Edge], start: Callable[[SdkLayout], SdkRuntime]
) -> None:
    layout = SdkLayout(PLATFORM)
    _, into, out = adder(layout, "a", 1, edges=edges)
    _, into_b, out_b = adder(layout, "b", 2, edges=edges)
    placed, into_c, out_c = adder(layout, "c", 3, edges=(Edge.LEFT, Edge.RIGHT))
    beside, into_d, out_d = adder(layout, "d", 4, edges=(Edge.LEFT, Edge.RIGHT))
    placed.place(0, 0)
    beside.place(1, 0)
    layout.connect(out, into_b)
    layout.connect(out_b, into_c)
    layout.connect(out_c, into_d)  # neighbours
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out_d)
    runtime = start(layout)
    runtime.send(send, np.arange(5, dtype=np.float32))
    got = np.zeros(5, np.float32)
    runtime.receive(receive, got)
    runtime.stop()
    assert got.tolist() == [10, 11, 12, 13, 14]


@both
@pytest.mark.parametrize("by_edges", [False, True])
def test_gemv(target: SdkTarget, by_edges: bool, start: Callable[[SdkLayout], SdkRuntime]) -> None:
    rows, columns, pes = 4, 3, 3
    layout = SdkLayout(get_platform(None, None, target))
    region = layout.create_code_region("gemv.csl", "gemv", pes, 1)
    x, sums, out = Color("x"), (Color("even"), Color("odd")), Color("out")
    for name, value in {"rows": rows, "columns": columns, "total": columns * pes, "x_color": x}.items():
        region.set_param_all(name, value)
    for pe in range(pes):
        region.set_param(pe, 0, "first", pe * columns)
        region.set_param(pe, 0, "is_first", pe == 0)
        region.set_param(pe, 0, "sum_in", sums[(pe + 1) % 2])
        region.set_param(pe, 0, "sum_out", sums[pe % 2] if pe + 1 < pes else out)
    on = [RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP, Route.EAST])]
    last = [RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP])]
    if by_edges:
        region.paint_all(x, on, [get_edge_routing(Edge.RIGHT, last)])
    else:
        region.paint_range(IntRectangle(IntVector(0, 0), IntVector(pes - 2, 0)), x, on)
        region.paint(IntVector(pes - 1, 0), x, last)
    for pe in range(pes - 1):
        color = sums[pe % 2]
        region.paint(IntVector(pe, 0), color, [RoutingPosition().set_input([Route.RAMP]).set_output([Route.EAST])])
        region.paint(IntVector(pe + 1, 0), color, last)
    into = region.create_input_port(x, Edge.LEFT, [RoutingPosition().set_output([Route.RAMP, Route.EAST])], 9)
    send = layout.create_input_stream(into)
    receive = layout.create_output_stream(region.create_output_port(out, Edge.RIGHT, FROM_RAMP, rows))
    runtime = start(layout)
    vector = np.arange(1, columns * pes + 1, dtype=np.float32)
    runtime.send(send, vector)
    got = np.zeros(rows, np.float32)
    runtime.receive(receive, got)
    runtime.stop()
    matrix = np.arange(rows)[:, None] + 2 * np.arange(columns * pes)[None, :]
    assert got.tolist() == (matrix @ vector).tolist()


# Each PE sends `count` words, its own number first.
SOURCE = """
param count: u16;
param number: f32;
param tx: color;
const oq = @get_output_queue(2);
const start = @get_local_task_id(10);
var data = [3]f32 { number, number + 1.0, number + 2.0 };
const data_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{count} -> data[i] });
const tx_dsd = @get_dsd(fabout_dsd, .{ .fabric_color = tx, .extent = count, .output_queue = oq });
task begin() void { @fmovs(tx_dsd, data_dsd, .{ .async = true }); }
comptime {
  @bind_local_task(begin, start);
  @activate(start);
  if (@is_arch("wse3")) { @initialize_queue(oq, .{ .color = tx }); }
}
"""


@both
def test_edges_of_several_pes(target: SdkTarget, start: Callable[[SdkLayout], SdkRuntime]) -> None:
    Path("source.csl").write_text(SOURCE)
    layout = SdkLayout(get_platform(None, None, target))
    source = layout.create_code_region("source.csl", "source", 1, 2)
    sink = layout.create_code_region("add.csl", "sink", 1, 2)
    source.place(1, 1)
    sink.place(5, 1)
    for region, name in ((source, "tx"), (sink, "rx")):
        region.set_param_all("count", 3)
        region.set_param_all(name, region.color(name))
    for y in range(2):
        source.set_param(0, y, "number", 10.0 * y)
    sink.set_param_all("addend", 0.5)
    sink.set_param_all("tx", back := Color("back"))
    tx, rx = source.params[0, 0]["tx"], sink.params[0, 0]["rx"]
    assert isinstance(tx, Color)
    assert isinstance(rx, Color)
    layout.connect(
        source.create_output_port(tx, Edge.RIGHT, FROM_RAMP, 3), sink.create_input_port(rx, Edge.LEFT, TO_RAMP, 3)
    )
    up = [RoutingPosition().set_input([Route.RAMP]).set_output([Route.NORTH])]
    down = [RoutingPosition().set_input([Route.RAMP]).set_output([Route.SOUTH])]
    over = layout.create_code_region("empty.csl", "over", 1, 1)
    over.place(5, 0)
    under = layout.create_code_region("empty.csl", "under", 1, 1)
    under.place(5, 3)
    Path("empty.csl").write_text("")
    sink.paint(IntVector(0, 0), back, up)
    sink.paint(IntVector(0, 1), back, down)
    take = [RoutingPosition().set_input([Route.SOUTH, Route.NORTH]).set_output([Route.EAST])]
    for region in (over, under):
        region.paint_all(back, take)
    got = [np.zeros(3, np.float32), np.zeros(3, np.float32)]
    outs = [region.create_output_port(back, Edge.RIGHT, PASSED, 3) for region in (over, under)]
    streams = [layout.create_output_stream(port) for port in outs]
    runtime = start(layout)
    for stream, words in zip(streams, got, strict=True):
        runtime.receive(stream, words)
    runtime.stop()
    assert [words.tolist() for words in got] == [[0.5, 1.5, 2.5], [10.5, 11.5, 12.5]]


def test_parameters() -> None:
    Path('with "quotes".csl').write_text("""
param small: f32;
param large: f32;
param below: i16;
param is_true: bool;
param text: comptime_string;
param most: u32;
var sum: f32 = small + large;
var sum_ptr: [*]f32 = &sum;
comptime {
  @comptime_assert(small < 0.00001 and large > 9999999.0 and below == -3 and is_true and most == 0xffffffff);
  @comptime_assert(@strlen(text) == 3);
  @export_symbol(sum_ptr, "sum");
}
""")
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region('with "quotes".csl', "r", 2, 2)
    for name, value in {
        "small": 1e-07,
        "large": np.float32(1e20),
        "below": np.int16(-3),
        "is_true": np.True_,
        "text": 'a"b',
        "most": np.uint32(0xFFFFFFFF),
    }.items():
        region.set_param_all(name, value)
    layout.compile()
    assert len(read_program(Path("out")).programs) == 2


def test_switch_positions() -> None:
    layout = SdkLayout(PLATFORM)
    Path("empty.csl").write_text("")
    region = layout.create_code_region("empty.csl", "r", 3, 1)
    region.place(2, 3)
    first = RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP])
    region.paint_all(Color("c", 5), [first, RoutingPosition().set_input([Route.RAMP]).set_output([Route.EAST])])
    layout.compile(out_prefix="made/out")
    assert Path("made/out/layout.csl").read_text().splitlines()[-2:] == [
        "  for (@range(i16, 1, 4, 1)) |x| { @set_color_config(x, 1, @get_color(5), .{ .routes = .{ .rx = .{ WEST }, "
        ".tx = .{ RAMP } }, .switches = .{ .pos1 = .{ .rx = .{ RAMP }, .tx = .{ EAST } } } }); }",
        "}",
    ]
    runtime = SdkRuntime("made/out")
    assert runtime.coord_logical_to_physical((1, 1)) == (2, 3)
    assert [position.rx for position in read_program(Path("made/out")).configs[0].positions] == [2, 1]


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(SdkRuntimeError) as caught:
        call()
    return str(caught.value)


def layout_of_two(size: int = 5) -> tuple[SdkLayout, list[tuple[CodeRegion, PortHandle, PortHandle]]]:
    layout = SdkLayout(PLATFORM)
    return layout, [adder(layout, "a", 1), adder(layout, "b", 1, size=size)]


def test_regions_overlap() -> None:
    layout = SdkLayout(PLATFORM)
    for name, corner in {"a": (2, 1), "b": (3, 2)}.items():
        layout.create_code_region("add.csl", name, 2, 2).place(*corner)
    assert message(layout.compile) == "compile: regions must not overlap, 'a' and 'b' both have PE 3.2"


def test_what_is_connected() -> None:
    layout, [(_, in_a, out_a), (_, in_b, out_b)] = layout_of_two(size=6)
    assert message(lambda: layout.connect(out_a, in_b)) == (
        "connect: sizes of ports must be equal, output port 'a.tx' of region 'a' has 5, "
        "input port 'b.rx' of region 'b' has 6"
    )
    assert message(lambda: layout.connect(in_a, out_b)) == (
        "connect: an output port goes to an input port, got input port 'a.rx' of region 'a' to "
        "output port 'b.tx' of region 'b'"
    )
    assert message(lambda: layout.create_input_stream(out_a)) == (
        "create_input_stream: an input port is expected, got output port 'a.tx' of region 'a'"
    )
    layout.create_input_stream(in_a)
    assert message(lambda: layout.create_input_stream(in_a)) == (
        "create_input_stream: a port is connected once, input port 'a.rx' of region 'a' is already"
    )
    assert message(layout.compile) == (
        "compile: each port must be connected, the output port 'a.tx' of region 'a' is not\n"
        "hint: connect, create_input_stream or create_output_stream"
    )
    wide = layout.create_code_region("add.csl", "wide", 1, 3)
    port = wide.create_input_port(Color("c"), Edge.LEFT, TO_RAMP, 5)
    assert message(lambda: layout.create_input_stream(port)) == (
        "create_input_stream: the edge of a port of the host must be one PE, that of input port 'c' of region 'wide' "
        "has 3"
    )
    assert message(lambda: layout.connect(out_a, port)) == (
        "connect: edges of ports must have as many PEs, output port 'a.tx' of region 'a' has 1, "
        "input port 'c' of region 'wide' has 3"
    )
    assert message(lambda: wide.create_input_port(port.color, Edge.TOP, TO_RAMP, 5)) == (
        "input port 'c' of region 'wide': there is one already\nhint: a prefix makes it one of its own"
    )
    assert str(wide.create_input_port(port.color, Edge.TOP, TO_RAMP, 5, "more_")) == (
        "input port 'more_c' of region 'wide'"
    )


def test_colors() -> None:
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region("add.csl", "a", 1, 1)
    other = layout.create_code_region("add.csl", "b", 1, 1)
    out = region.create_output_port(Color("here", 3), Edge.RIGHT, FROM_RAMP, 1)
    layout.connect(out, other.create_input_port(Color("there", 4), Edge.LEFT, TO_RAMP, 1))
    assert message(layout.compile) == (
        "connect: colors of connected ports must be one, color 'here' is 3, color 'there' is 4"
    )
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region("add.csl", "a", 1, 1)
    region.paint_all(Color("x", 3), [RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP])])
    region.set_param_all("y", Color("y", 3))
    assert message(layout.compile) == "color 'y' and color 'x' must have different numbers at PE 1.1, both are 3"
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region("add.csl", "a", 1, 1)
    for number in range(23):
        region.set_param_all(f"c{number}", Color(f"c{number}"))
    assert message(layout.compile) == "color 'c22': no number is free of 22, it begins at PE 1.1"
    assert message(lambda: Color("c", 22)) == "Color 'c': its value must be 0 to 21, got 22"
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region("add.csl", "a", 1, 1)
    color = Color("x")
    region.paint_all(color, [RoutingPosition().set_input([Route.EAST]).set_output([Route.RAMP])])
    layout.create_input_stream(region.create_input_port(color, Edge.LEFT, TO_RAMP, 1))
    assert message(layout.compile) == (
        "compile: a color has one route at a PE, the input port 'x' of region 'a' gives color 'x' another one at PE 1.1"
    )


def test_no_way() -> None:
    layout, [(a, in_a, out_a), (b, in_b, out_b)] = layout_of_two()
    layout.connect(out_a, in_b)
    layout.create_input_stream(in_a)
    layout.create_output_stream(out_b)
    a.place(2, 2)
    b.place(4, 2)
    layout.create_code_region("add.csl", "between", 1, 1).place(3, 2)
    hint = "\nhint: PEs between regions are needed for it: place them further apart"
    assert message(layout.compile) == (
        "compile: there must be a way from the output port 'a.tx' of region 'a' to the "
        f"input port 'b.rx' of region 'b'{hint}"
    )
    layout, [(a, in_a, out_a), (b, in_b, out_b)] = layout_of_two()
    for stream, port in ((layout.create_input_stream, in_a), (layout.create_input_stream, in_b)):
        stream(port)
    layout.create_output_stream(out_a)
    layout.create_output_stream(out_b)
    a.place(2, 2)
    b.place(3, 2)
    assert message(layout.compile) == (
        f"compile: there must be a way between the host and the input port 'b.rx' of region 'b'{hint}"
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda r: r.set_param_all("x", [1]),
         "set_param_all: parameter 'x' must be a number, bool, text or Color, got list"),
        (lambda r: r.set_param_all("x y", 1), "set_param_all: the name of a parameter must be given, got 'x y'"),
        (lambda r: r.set_param(2, 0, "x", 1), "set_param: a PE of region 'r' is 0,0 to 1,0, got 2,0"),
        (lambda r: r.paint(IntVector(0, 1), Color("c"), [RoutingPosition().set_input([Route.RAMP])
                                                        .set_output([Route.EAST])]),
         "paint: a PE of region 'r' is 0,0 to 1,0, got 0,1"),
        (lambda r: r.paint_all(3, TO_RAMP), "paint: one of type Color must be given, got int"),
        (lambda r: r.paint_all(Color("c"), TO_RAMP),
         "paint of color 'c': each RoutingPosition must have an input\nhint: set_input([Route...])"),
        (lambda r: r.paint_all(Color("c"), []),
         "paint of color 'c': routes must be a list of 1 to 4 RoutingPositions"),
        (lambda r: r.paint_all(Color("c"), [Route.EAST]),
         "paint of color 'c': routes must hold RoutingPositions, got Route"),
        (lambda _: RoutingPosition().set_input(Route.EAST),  # type: ignore[arg-type]
         "set_input: must get a list of Routes, got <Route.EAST: 2>"),
        (lambda r: r.create_input_port(Color("c"), Route.EAST, TO_RAMP, 1),
         "a port of region 'r': one of type Edge must be given, got Route"),
        (lambda r: r.create_input_port(Color("c"), Edge.LEFT, TO_RAMP, 0),
         "a port of region 'r' must have a data_size of at least 1, got 0"),
        (lambda r: r.create_output_port(Color("c"), Edge.LEFT, TO_RAMP, 1),
         "output port 'c' of region 'r': output of its routes must be left out, or be WEST"),
        (lambda r: r.place(-1, 0), "place: region 'r' must lie on the fabric, got -1,0"),
        (lambda _: SdkLayout(PLATFORM).compile(), "compile: a layout must have at least one region\n"
         "hint: create_code_region"),
        (lambda _: SdkLayout(PLATFORM).create_code_region("a.csl", "r", 0, 1),
         "region 'r': it must have at least one PE, got 0 x 1"),
    ],
)  # fmt: skip
def test_refused(call: Callable[[CodeRegion], Any], expected: str) -> None:
    assert message(lambda: call(SdkLayout(PLATFORM).create_code_region("add.csl", "r", 2, 1))) == expected


def test_a_name_twice() -> None:
    layout, _ = layout_of_two()
    assert message(lambda: layout.create_code_region("add.csl", "a", 1, 1)) == (
        "create_code_region: a region's name must be its own, got 'a' again"
    )


def test_an_error_of_a_program() -> None:
    layout = SdkLayout(PLATFORM)
    layout.create_code_region("gone.csl", "a", 1, 1)
    with pytest.raises(CslError, match=r"no file .*gone\.csl"):
        layout.compile()


def test_send_and_receive(start: Callable[[SdkLayout], SdkRuntime]) -> None:
    layout = SdkLayout(PLATFORM)
    _, into, out = adder(layout, "one", 1)
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out)
    runtime = start(layout)
    words = np.zeros(5, np.float32)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: runtime.send(receive, words),
         "send: what SdkLayout.create_input_stream made is expected, got the stream of the output port 'one.tx' of "
         "region 'one'"),
        (lambda: runtime.receive(send, words),
         "receive: what SdkLayout.create_output_stream made is expected, got the stream of the input port 'one.rx' of "
         "region 'one'"),
        (lambda: runtime.send(Stream(into), words),
         "send: the layout must be compiled first, that of the stream of the input port 'one.rx' of region 'one' is "
         "not"),
        (lambda: runtime.send(send, words[:0]), "send: data must have at least 1 element, got none"),
        (lambda: runtime.send(send, np.zeros(3)),
         "send: data must be an array of uint32, int32 or float32, got float64"),
        (lambda: runtime.receive(receive, words, 6), "receive: size must be 1 to 5, as dest has room, got 6"),
        (lambda: runtime.receive(receive, np.zeros(9, np.float32)[::2]),
         "receive: dest must be contiguous and writable, it is not"),
    ]  # fmt: skip
    for call, expected in cases:
        assert message(call) == expected
    # Nobody sends anything: the answer never comes.
    stuck = message(lambda: runtime.receive(receive, words))
    assert stuck.startswith(
        "the fabric stands still, and the host's command is not done: memcpy_d2h takes 5 wavelets of color 23 from "
        "PE 2.1\n"
    )
