"""Layouts in Python: streams of the host at given PEs, values of variables, and places of regions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.geometry import IntVector
from cstool.csl.sdk.layout_program import SdkLayout
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_types import FP16TYPE, Color, Edge, Route, RoutingPosition
from cstool.csl.sdk.platforms import SdkTarget, get_platform
from cstool.csl.sdk.runtime import SdkRuntime
from tests.unit.csl.sdk.sdk_programs import message

# Each word that comes on `rx` goes out on `tx`, one more.
MORE = """
param rx: color;
param tx: u16;
const iq = @get_input_queue(2);
const oq = @get_output_queue(3);
const rx_dsd = @get_dsd(fabin_dsd, .{ .fabric_color = rx, .extent = 4, .input_queue = iq });
const tx_dsd = @get_dsd(fabout_dsd, .{ .fabric_color = @get_color(tx), .extent = 4, .output_queue = oq });
task go() void { @add16(tx_dsd, rx_dsd, 1, .{ .async = true }); }
comptime {
  @bind_local_task(go, @get_local_task_id(10));
  @activate(@get_local_task_id(10));
  if (@is_arch("wse3")) {
    @initialize_queue(iq, .{ .color = rx });
    @initialize_queue(oq, .{ .color = @get_color(tx) });
  }
}
"""
# Exported or not, used or not.
VARIABLES = """
export var given: [4]i16;
export var unused: [2, 2]u32;
var plain: f32 = 1.5;
var pair = [2]u16 { 3, 4 };
export var both: struct { low: u16, high: u16 };
task go() void { plain += @as(f32, given[3]); pair[1] += 1; both.high = 7; }
comptime { @bind_local_task(go, @get_local_task_id(10)); @activate(@get_local_task_id(10)); }
"""
both = pytest.mark.parametrize("target", list(SdkTarget))
Start = Callable[..., SdkRuntime]
WORDS = np.array([5, 6, 7, 8], np.uint16)


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.csl").write_text(MORE)
    Path("variables.csl").write_text(VARIABLES)


def layout_of(target: SdkTarget = SdkTarget.WSE2) -> SdkLayout:
    return SdkLayout(get_platform(None, None, target))


def more(layout: SdkLayout, name: str = "more") -> tuple[CodeRegion, Color, Color]:
    """A PE that adds 1 to words, and its colors."""
    region = layout.create_code_region("more.csl", name, 1, 1)
    rx, tx = Color("rx"), region.color("tx")
    region.set_param_all(rx)
    region.set_param(IntVector(0, 0), tx)
    return region, rx, tx


def test_stop_waits_for_streams(start: Start) -> None:
    layout = layout_of(SdkTarget.WSE3)
    region, send, receive = ports(layout)
    region.place(4, 4)
    runtime = start(layout.compile("out"), None, memcpy_required=False)
    got = np.zeros(4, np.int32)
    tasks = runtime.send(send, WORDS, nonblock=True), runtime.receive(receive, got, 4, nonblock=True)
    runtime.stop()
    assert got.tolist() == [6, 7, 8, 9]
    assert [task.done for task in tasks] == [True, True]
    stopped = "the program must be running, between run() and stop()"
    refuses(lambda: runtime.send(send, WORDS), f"send: {stopped}")
    refuses(lambda: runtime.receive(receive, got), f"receive: {stopped}")


def passed(start: Start, layout: SdkLayout, send: str, receive: str) -> list[int]:
    """What comes back of four words of 16 bits."""
    runtime = start(layout.compile("out"), None, memcpy_required=False)
    runtime.send(send, WORDS)
    got = np.zeros(4, np.int16)
    runtime.receive(receive, got, 4)
    runtime.stop()
    return got.tolist()


def ports(layout: SdkLayout, **places: Any) -> tuple[CodeRegion, str, str]:
    """A PE that adds 1, with streams at its ports."""
    region, rx, tx = more(layout)
    into = region.create_input_port(rx, Edge.LEFT, [RoutingPosition().set_output([Route.RAMP])], 4)
    out = region.create_output_port(tx, Edge.RIGHT, [RoutingPosition().set_input([Route.RAMP])], 4)
    names = (
        layout.create_input_stream(into, places.get("into")),
        layout.create_output_stream(out, places.get("out"), 64),
    )
    return region, *names


@both
def test_streams_reach_the_fabric_at_given_pes(target: SdkTarget, start: Start) -> None:
    layout = layout_of(target)
    region, send, receive = ports(layout, into=IntVector(1, 5), out=(6, 0))
    region.place(3, 2)
    assert (send, receive) == ("more_rx_in", "more_tx_out")
    assert passed(start, layout, send, receive) == [6, 7, 8, 9]
    told = read_program(Path("out"))
    assert told.origin == (0, -1)
    assert [(port.x, port.y + told.origin[1]) for port in told.ports] == [(1, 5), (6, 0)]


@both
@pytest.mark.parametrize("over_the_edge", [False, True])
def test_streams_of_a_color_at_a_pe(target: SdkTarget, over_the_edge: bool, start: Start) -> None:
    layout = layout_of(target)
    region, rx, tx = more(layout)
    region.place(0, 0)
    if over_the_edge:
        region.paint_all(rx, [RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP])])
        region.paint_all(tx, [RoutingPosition().set_input([Route.RAMP]).set_output([Route.SOUTH])])
    send = layout.create_input_stream_from_loc(IntVector(0, 0), rx)
    receive = layout.create_output_stream_from_loc((0, 0), tx, "p_")
    assert (send, receive) == ("rx_in", "p_tx_out")
    assert passed(start, layout, send, receive) == [6, 7, 8, 9]
    runtime = SdkRuntime("out")
    assert [runtime.get_port_id(name) for name in (send, receive)] == [0, 1]


@both
def test_variables_are_set_and_read(target: SdkTarget, start: Start) -> None:
    layout = layout_of(target)
    region = layout.create_code_region("variables.csl", "v", 2, 2)
    region.place(5, 3)
    # Of a matrix of 4 x 4 each PE has a block of 2 x 2.
    region.set_symbol_all("given", np.arange(16, dtype=np.int16), 4, 4)
    region.set_symbol(IntVector(1, 1), "unused", np.array([9, 8], np.uint32))
    runtime = start(layout.compile("out"), None, memcpy_required=False)
    runtime.stop()
    assert [runtime.read_symbol(5 + x, 3, "given").tolist() for x in range(2)] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert runtime.read_symbol(6, 4, "given", "uint16").tolist() == [10, 11, 14, 15]
    assert runtime.read_symbol(6, 4, "plain").tolist() == [16.5]
    assert runtime.read_symbol(5, 3, "pair", np.uint16).tolist() == [3, 5]
    assert [runtime.read_symbol(x, 4, "unused").tolist() for x in (5, 6)] == [[0, 0, 0, 0], [9, 8, 0, 0]]
    assert runtime.read_symbol(5, 3, "both", "<u2").tolist() == [0, 7]


def test_regions_are_stacked() -> None:
    layout = layout_of()
    a, b, c = (layout.create_code_region("variables.csl", name, 2, 3) for name in "abc")
    assert layout.hstack([a, b], IntVector(4, 1)) == 8
    assert (a.corner, b.corner) == ((4, 1), (6, 1))
    assert layout.vstack([b, c]) == 7
    assert (b.corner, c.corner) == ((6, 1), (6, 4))
    assert layout.vstack([layout.create_code_region("variables.csl", "d", 1, 1)]) == 1


def refuses(call: Callable[[], Any], expected: str) -> None:
    assert message(call) == expected


def test_streams_that_cannot_be() -> None:
    layout = layout_of()
    region, rx, _ = more(layout)
    region.place(1, 1)
    at = IntVector(1, 1)
    layout.create_input_stream_from_loc(at, rx)
    again = "create_input_stream_from_loc: there is a stream 'rx_in' already\nhint: a prefix makes it one of its own"
    refuses(lambda: layout.create_input_stream_from_loc(at, rx), again)
    refuses(
        lambda: layout.create_input_stream_from_loc(at, 3),  # type: ignore[arg-type]
        "create_input_stream_from_loc: a Color must be given, got int",
    )
    layout.create_output_stream_from_loc((2, 1), Color("c"))
    refuses(
        layout.compile,
        "compile: the output stream 'c_out' must end in a region, none has PE 2.1\n"
        "hint: place the region, or use create_input_stream and create_output_stream",
    )
    layout = layout_of()
    region, rx, _ = more(layout)
    layout.create_code_region("variables.csl", "beside", 1, 1).place(0, 0)
    region.place(1, 0)
    region.paint_all(rx, [RoutingPosition().set_input([Route.WEST]).set_output([Route.RAMP])])
    layout.create_input_stream_from_loc((1, 0), rx)
    refuses(
        layout.compile,
        "compile: the input stream 'rx_in' must pass over the edge of its region, or the ramp of PE 1.0, "
        "color 'rx' goes by WEST there",
    )
    layout = layout_of()
    region, _, _ = ports(layout, into=(3, 2))
    region.place(3, 2)
    refuses(
        layout.compile,
        "compile: there must be a way between the host at PE 3.2 and the input port 'rx' of region 'more'\n"
        "hint: PEs without a route of the same color are needed for it: place regions further apart",
    )
    region, rx, _ = more(layout_of())
    port = region.create_input_port(rx, Edge.LEFT, [RoutingPosition().set_output([Route.RAMP])], 4)
    refuses(
        lambda: layout.create_input_stream(port, None, 0),
        "create_input_stream: io_buffer_size must be at least 1, got 0",
    )
    kind = "must be given, got str\nhint: create_input_port or create_output_port"
    refuses(lambda: layout.create_input_stream("rx"), f"create_input_stream: a port {kind}")  # type: ignore[arg-type]
    refuses(lambda: layout.connect(port, "rx"), f"connect: a port {kind}")  # type: ignore[arg-type]


def variables() -> tuple[SdkLayout, CodeRegion]:
    layout = layout_of()
    return layout, layout.create_code_region("variables.csl", "v", 2, 1)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda r: r.set_symbol_all("given", np.zeros(6, np.int16), 3, 2),
         "set_symbol_all of 'given': width and height must be multiples of the region's 2 x 1 PEs, got 3 x 2"),
        (lambda r: r.set_symbol_all("given", np.zeros(6, np.int16), 4, 2),
         "set_symbol_all of 'given': data must have 4 x 2 elements, got 6"),
        (lambda r: r.set_symbol_all("given", np.zeros(10, np.int16), 10, 1),
         "compile: set_symbol: 'given' of variables.csl has 4 elements, got 5"),
        (lambda r: r.set_symbol((0, 0), "given", [1, 2]),
         "compile: set_symbol: 'given' of variables.csl must get int16, got int64\nhint: data.astype(np.int16)"),
        (lambda r: r.set_symbol((0, 0), "gven", np.zeros(1, np.int16)),
         "compile: set_symbol: variables.csl has no variable 'gven'\nhint: did you mean given?"),
        (lambda r: r.set_symbol((0, 0), "x", np.zeros(1, np.int16)),
         "compile: set_symbol: variables.csl has no variable 'x'\nhint: a variable that nothing uses has no memory"),
        (lambda r: r.set_symbol((0, 0), np.zeros(1, np.int16)),
         "set_symbol: a PE, the name of a variable, and its data must be given"),
        (lambda r: r.set_symbol("given", np.zeros(6, np.int16), 4, 2),
         "set_symbol_all of 'given': data must have 4 x 2 elements, got 6"),
        (lambda r: r.set_symbol(3, "given", np.zeros(1, np.int16)),
         "set_symbol: an IntVector must be given, got 3\nhint: IntVector(x, y)"),
        (lambda r: r.set_param_all("given", 3),
         "compile: region 'v': set_param: variables.csl has no param 'given'\nhint: it has: none"),
        (lambda r: r.set_param_all("given"),
         "set_param_all: parameter 'given' must be a number, bool, text or Color, got none"),
        (lambda r: r.place(757, 0),
         "compile: regions must lie on the fabric of wse2, 757 x 996 PEs, 'v' has PE 758.0"),
    ],
)  # fmt: skip
def test_variables_and_params_that_cannot_be(act: Callable[[CodeRegion], Any], expected: str) -> None:
    layout, region = variables()

    def both() -> None:
        act(region)
        layout.compile()

    refuses(both, expected)


def test_what_a_layout_is_made_of() -> None:
    layout, region = variables()
    more_region = more(layout)[0]
    more_region.set_param_all("txx", 3)
    refuses(layout.compile, "compile: region 'more': set_param: more.csl has no param 'txx'\nhint: did you mean tx?")
    no_file = "create_code_region: the program of region 'x' must be a file, mor.csl is none"
    refuses(lambda: layout.create_code_region("mor.csl", "x", 1, 1), no_file)
    refuses(
        lambda: SdkLayout("wse3"),  # type: ignore[arg-type]
        "SdkLayout: a platform must be given, got str\nhint: get_platform(cmaddr, config, target)",
    )
    refuses(
        lambda: layout.compile("out", f16_type=FP16TYPE.BF16),
        "compile: f16_type must be FP16TYPE.F16, nothing else is simulated, got FP16TYPE.BF16",
    )
    refuses(lambda: layout.hstack([]), "hstack: a list of code regions must be given, got []")
    refuses(lambda: Color(3), "Color: its name must be text, got int")  # type: ignore[arg-type]
    assert SdkLayout(SdkTarget.WSE2, msg_level="INFO").settings == {"msg_level": "INFO"}
    assert region.name == "v"


def test_errors_name_pes_by_their_place_on_the_fabric(start: Start) -> None:
    Path("wrong.csl").write_text("""
var x: i16 = 1;
task go() void { @assert(x == 2); }
comptime { @bind_local_task(go, @get_local_task_id(10)); @activate(@get_local_task_id(10)); }
""")
    layout = layout_of()
    layout.create_code_region("wrong.csl", "w", 1, 1).place(7, 5)
    layout.create_code_region("variables.csl", "v", 1, 1).place(9, 3)
    runtime = start(layout.compile("out"), None, memcpy_required=False)
    assert message(runtime.stop).startswith("PE 7.5, wrong.csl:3:18: ")
