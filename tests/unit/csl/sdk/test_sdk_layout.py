"""Layouts in Python: regions, ports, ways, streams of the host; what they compute, and what cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.debug import debug_util
from cstool.csl.sdk.geometry import IntRectangle, IntVector
from cstool.csl.sdk.layout_program import SdkLayout
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_types import Color, Edge, PortHandle, Route, RoutingPosition, get_edge_routing
from cstool.csl.sdk.platforms import SdkTarget, get_platform
from cstool.csl.sdk.runtime import SdkRuntime
from tests.unit.csl.sdk.sdk_programs import message

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

TO_RAMP = [RoutingPosition().set_output([Route.RAMP])]
FROM_RAMP = [RoutingPosition().set_input([Route.RAMP])]
PLATFORM = get_platform(None, None, SdkTarget.WSE3)
PASSED = [RoutingPosition().set_input([Route.SOUTH, Route.NORTH])]
both = pytest.mark.parametrize("target", list(SdkTarget))
Start = Callable[..., SdkRuntime]


def way(into: Route, *out: Route) -> list[RoutingPosition]:
    return [RoutingPosition().set_input([into]).set_output(list(out))]


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("add.csl").write_text(ADD)
    Path("empty.csl").write_text("")


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
def test_one_pe_adds(target: SdkTarget, start: Start) -> None:
    layout = SdkLayout(get_platform(None, None, target))
    region, into, out = adder(layout, "one", 2.5)
    region.place(4, 1)
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out)
    runtime = start(layout.compile(out_prefix="out"), None, memcpy_required=False)
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


def answer(start: Start, layout: SdkLayout, into: PortHandle, out: PortHandle) -> Any:
    """What comes back of 0 to 4."""
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out)
    runtime = start(layout.compile(out_prefix="out"), None, memcpy_required=False)
    runtime.send(send, np.arange(5, dtype=np.float32))
    got = np.zeros(5, np.float32)
    runtime.receive(receive, got)
    runtime.stop()
    return got.tolist()


@both
def test_two_regions_are_connected(target: SdkTarget, start: Start) -> None:
    layout = SdkLayout(get_platform(None, None, target))
    left, into, out = adder(layout, "left", 1)
    right, into_right, out_right = adder(layout, "right", 10)
    left.place(3, 2)
    right.place(7, 4)  # the way has corners
    layout.connect(out, into_right)
    assert answer(start, layout, into, out_right) == [11, 12, 13, 14, 15]


@pytest.mark.parametrize("edges", [(Edge.TOP, Edge.LEFT), (Edge.BOTTOM, Edge.TOP), (Edge.RIGHT, Edge.BOTTOM)])
def test_neighbours_and_regions_without_a_place(edges: tuple[Edge, Edge], start: Start) -> None:
    layout = SdkLayout(PLATFORM)
    usual = (Edge.LEFT, Edge.RIGHT)
    made = [adder(layout, "abcd"[n], n + 1, edges=edges if n < 2 else usual) for n in range(4)]
    made[2][0].place(0, 0)
    made[3][0].place(1, 0)
    for (_, _, out), (_, into, _) in zip(made, made[1:], strict=False):
        layout.connect(out, into)
    assert answer(start, layout, made[0][1], made[3][2]) == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("by_edges", [False, True])
def test_pes_are_painted_one_by_one_in_ranges_and_by_edges(by_edges: bool) -> None:
    layout = SdkLayout(PLATFORM)
    region, color = layout.create_code_region("empty.csl", "r", 3, 1), Color("c", 5)
    on, last = way(Route.WEST, Route.RAMP, Route.EAST), way(Route.WEST, Route.RAMP)
    if by_edges:
        region.paint_all(color, on, [get_edge_routing(Edge.RIGHT, last)])
    else:
        region.paint_range(IntRectangle(IntVector(0, 0), IntVector(1, 0)), color, on)
        region.paint(IntVector(2, 0), color, last)
    layout.compile()
    program = read_program(Path("out"))
    painted = [program.configs[number].positions for number in program.routes[5].ravel() if number >= 0]
    assert [(position.rx, position.tx) for (position,) in painted] == [(2, 5), (2, 5), (2, 1)]


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
def test_edges_of_several_pes(target: SdkTarget, start: Start) -> None:
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
        source.set_param(IntVector(0, y), "number", 10.0 * y)
    sink.set_param_all("addend", 0.5)
    sink.set_param_all("tx", back := Color("back"))
    tx, rx = source.params[0, 0]["tx"], sink.params[0, 0]["rx"]
    assert isinstance(tx, Color)
    assert isinstance(rx, Color)
    out = source.create_output_port(tx, Edge.RIGHT, FROM_RAMP, 3)
    layout.connect(out, sink.create_input_port(rx, Edge.LEFT, TO_RAMP, 3))
    take = [RoutingPosition().set_input([Route.SOUTH, Route.NORTH]).set_output([Route.EAST])]
    streams = []
    for row, (name, y, to) in enumerate((("over", 0, Route.NORTH), ("under", 3, Route.SOUTH))):
        sink.paint(IntVector(0, row), back, way(Route.RAMP, to))
        beside = layout.create_code_region("empty.csl", name, 1, 1)
        beside.place(5, y)
        beside.paint_all(back, take)
        streams.append(layout.create_output_stream(beside.create_output_port(back, Edge.RIGHT, PASSED, 3)))
    got = [np.zeros(3, np.float32), np.zeros(3, np.float32)]
    runtime = start(layout.compile(out_prefix="out"), None, memcpy_required=False)
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
    values = {"small": 1e-07, "large": np.float32(1e20), "below": np.int16(-3), "is_true": np.True_, "text": 'a"b'}
    for name, value in {**values, "most": np.uint32(0xFFFFFFFF)}.items():
        region.set_param_all(name, value)
    layout.compile()
    assert len(read_program(Path("out")).programs) == 1


def test_switch_positions() -> None:
    layout = SdkLayout(PLATFORM)
    region = layout.create_code_region("empty.csl", "r", 3, 1)
    region.place(2, 3)
    region.paint_all(Color("c", 5), way(Route.WEST, Route.RAMP) + way(Route.RAMP, Route.EAST))
    layout.compile(out_prefix="made/out")
    assert Path("made/out/layout.csl").read_text().splitlines()[-2:] == [
        "  for (@range(i16, 0, 3, 1)) |x| { @set_color_config(x, 0, @get_color(5), .{ .routes = .{ .rx = .{ WEST }, "
        ".tx = .{ RAMP } }, .switches = .{ .pos1 = .{ .rx = .{ RAMP }, .tx = .{ EAST } } } }); }",
        "}",
    ]
    runtime = SdkRuntime("made/out")
    assert runtime.coord_logical_to_physical((2, 3)) == (2, 3)
    assert [position.rx for position in read_program(Path("made/out")).configs[0].positions] == [2, 1]


def refuses(call: Callable[[], Any], expected: str) -> None:
    assert message(call) == expected


def layout_of_two(size: int = 5) -> tuple[SdkLayout, list[tuple[CodeRegion, PortHandle, PortHandle]]]:
    layout = SdkLayout(PLATFORM)
    return layout, [adder(layout, "a", 1), adder(layout, "b", 1, size=size)]


def test_regions_overlap() -> None:
    layout = SdkLayout(PLATFORM)
    for name, corner in {"a": (2, 1), "b": (3, 2)}.items():
        layout.create_code_region("add.csl", name, 2, 2).place(*corner)
    refuses(layout.compile, "compile: regions must not overlap, 'a' and 'b' both have PE 3.2")
    again = "create_code_region: a region's name must be its own, got 'a' again"
    refuses(lambda: layout.create_code_region("add.csl", "a", 1, 1), again)


def test_what_is_connected() -> None:
    layout, [(_, in_a, out_a), (_, in_b, out_b)] = layout_of_two(size=6)
    wide = layout.create_code_region("add.csl", "wide", 1, 3)
    port = wide.create_input_port(Color("c"), Edge.LEFT, TO_RAMP, 5)
    a_in, a_out = "input port 'a.rx' of region 'a'", "output port 'a.tx' of region 'a'"
    b_in, b_out = "input port 'b.rx' of region 'b'", "output port 'b.tx' of region 'b'"
    wide_in = "input port 'c' of region 'wide'"
    stream = layout.create_input_stream
    refuses(lambda: layout.connect(out_a, in_b), f"connect: sizes of ports must be equal, {a_out} has 5, {b_in} has 6")
    wrong = f"connect: an output port goes to an input port, got {a_in} to {b_out}"
    refuses(lambda: layout.connect(in_a, out_b), wrong)
    refuses(lambda: stream(out_a), f"create_input_stream: an input port is expected, got {a_out}")
    stream(in_a)
    refuses(lambda: stream(in_a), f"create_input_stream: a port is connected once, {a_in} is already")
    hint = "hint: connect, create_input_stream or create_output_stream"
    refuses(layout.compile, f"compile: each port must be connected, the {a_out} is not\n{hint}")
    edge = f"the edge of a port of the host must be one PE, that of {wide_in} has 3"
    refuses(lambda: stream(port), f"create_input_stream: {edge}")
    edges = f"connect: edges of ports must have as many PEs, {a_out} has 1, {wide_in} has 3"
    refuses(lambda: layout.connect(out_a, port), edges)
    again = f"{wide_in}: there is one already\nhint: a prefix makes it one of its own"
    refuses(lambda: wide.create_input_port(port.color, Edge.TOP, TO_RAMP, 5), again)
    more = wide.create_input_port(port.color, Edge.TOP, TO_RAMP, 5, "more_")
    assert str(more) == "input port 'more_c' of region 'wide'"


def one_region() -> tuple[SdkLayout, CodeRegion]:
    layout = SdkLayout(PLATFORM)
    return layout, layout.create_code_region("add.csl", "a", 1, 1)


def test_colors() -> None:
    layout, region = one_region()
    other = layout.create_code_region("add.csl", "b", 1, 1)
    out = region.create_output_port(Color("here", 3), Edge.RIGHT, FROM_RAMP, 1)
    layout.connect(out, other.create_input_port(Color("there", 4), Edge.LEFT, TO_RAMP, 1))
    expected = "connect: colors of connected ports must be one, color 'here' is 3, color 'there' is 4"
    refuses(layout.compile, expected)
    layout, region = one_region()
    region.paint_all(Color("x", 3), way(Route.WEST, Route.RAMP))
    region.set_param_all("y", Color("y", 3))
    refuses(layout.compile, "color 'y' and color 'x' must have different numbers at PE 0.0, both are 3")
    layout, region = one_region()
    for number in range(25):
        region.set_param_all(f"c{number}", Color(f"c{number}"))
    refuses(layout.compile, "color 'c24': no number is free of 24, it begins at PE 0.0")
    refuses(lambda: Color("c", 24), "Color 'c': its value must be 0 to 23, got 24")
    layout, region = one_region()
    color = Color("x")
    region.paint_all(color, way(Route.EAST, Route.RAMP))
    layout.create_input_stream(region.create_input_port(color, Edge.LEFT, TO_RAMP, 1))
    given = "the input port 'x' of region 'a' gives color 'x' another one at PE 0.0"
    refuses(layout.compile, f"compile: a color has one route at a PE, {given}")


def test_ways_across_regions(start: Start) -> None:
    layout, [(a, in_a, out_a), (b, in_b, out_b)] = layout_of_two()
    a.place(2, 2)
    b.place(4, 2)
    # No PE is free between them, nor around the PE between.
    layout.create_code_region("empty.csl", "between", 1, 1).place(3, 2)
    layout.connect(out_a, in_b)
    assert answer(start, layout, in_a, out_b) == [2, 3, 4, 5, 6]


def test_no_way() -> None:
    layout, [(a, in_a, out_a), (b, in_b, out_b)] = layout_of_two()
    layout.create_input_stream(in_a)
    layout.create_output_stream(out_b)
    a.place(2, 2)
    b.place(4, 2)
    between = layout.create_code_region("empty.csl", "between", 1, 1)
    between.place(3, 2)
    between.paint_all(out_a.color, way(Route.NORTH, Route.RAMP))
    layout.connect(out_a, in_b)
    there = (
        "compile: there must be a way from the output port 'a.tx' of region 'a' to the input port 'b.rx' of region 'b'"
    )
    hint = "hint: PEs without a route of the same color are needed for it: place regions further apart"
    refuses(layout.compile, f"{there}\n{hint}")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda r: r.set_param_all("x", [1]),
         "set_param_all: parameter 'x' must be a number, bool, text or Color, got list"),
        (lambda r: r.set_param_all("x y", 1), "set_param_all: the name of a parameter must be given, got 'x y'"),
        (lambda r: r.set_param(IntVector(2, 0), "x", 1), "set_param: a PE of region 'r' is 0,0 to 1,0, got 2,0"),
        (lambda r: r.paint(IntVector(0, 1), Color("c"), way(Route.RAMP, Route.EAST)),
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
    refuses(lambda: call(SdkLayout(PLATFORM).create_code_region("add.csl", "r", 2, 1)), expected)


def test_send_and_receive(start: Start) -> None:
    layout = SdkLayout(PLATFORM)
    _, into, out = adder(layout, "one", 1)
    send, receive = layout.create_input_stream(into), layout.create_output_stream(out)
    runtime = start(layout.compile(out_prefix="out"), None, memcpy_required=False)
    words = np.zeros(5, np.float32)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: runtime.send(receive, words),
         "send: an input stream of the layout must be given, got 'one_tx_out', it has: one_rx_in\n"
         "hint: did you mean one_rx_in?"),
        (lambda: runtime.receive(send, words),
         "receive: an output stream of the layout must be given, got 'one_rx_in', it has: one_tx_out\n"
         "hint: did you mean one_tx_out?"),
        (lambda: runtime.send(2.5, words),  # type: ignore[arg-type]
         "send: columns, rows, counts and ids must be whole numbers, got (2.5,)"),
        (lambda: runtime.send(send, words[:0]), "send: data must have at least 1 element, got none"),
        (lambda: runtime.send(send, np.zeros(3)),
         "send: data must be an array of a type of 16 or 32 bits, got float64\nhint: make it of np.float32"),
        (lambda: runtime.receive(receive, words, 6), "receive: size must be 1 to 5, as dest has room, got 6"),
        (lambda: runtime.receive(receive, np.zeros(9, np.float32)[::2]),
         "receive: dest must be contiguous and writable, it is not"),
    ]  # fmt: skip
    for call, expected in cases:
        refuses(call, expected)
    # The program adds five numbers at a time, and the host sends three.
    runtime.send(send, words[:3])
    hint = "hint: the host sent 3 words to 'one_rx_in', whose port is made for 5 at a time"
    stuck = "the fabric stands still, and the host's command is not done: receive of 5 words from 'one_tx_out'"
    began = f"{stuck}, 0 of 5 wavelets passed\n{hint}\n\n"
    assert message(lambda: runtime.receive(receive, words)).startswith(began)
