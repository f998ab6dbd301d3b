"""`SdkRuntime` and the process behind it, with programs made by hand."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.debug import debug_util
from cstool.csl.sdk.platforms import (
    MemcpyDataType,
    MemcpyOrder,
    SdkCompileArtifacts,
    SdkTarget,
    SimfabConfig,
    get_platform,
)
from cstool.csl.sdk.runtime import SdkRuntime
from tests.examples import examples
from tests.unit.csl.sdk.sdk_programs import arrays_program, message

BITS = {16: MemcpyDataType.MEMCPY_16BIT, 32: MemcpyDataType.MEMCPY_32BIT}
ROW, COLUMN = MemcpyOrder.ROW_MAJOR, MemcpyOrder.COL_MAJOR
WIDTH, HEIGHT = 3, 2


pytestmark = pytest.mark.usefixtures("forks")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled program."""
    folder = tmp_path_factory.mktemp("program") / "out"
    write_program(arrays_program(WIDTH, HEIGHT), folder)
    return folder


@pytest.fixture
def runtime(folder: Path, start: Callable[..., SdkRuntime]) -> SdkRuntime:
    """A program that runs."""
    return start(folder)


@pytest.fixture(scope="module")
def shared(folder: Path, forks: None) -> Iterator[SdkRuntime]:
    """A program that runs, for tests that leave it as it is, or do not mind."""
    runtime = SdkRuntime(folder)
    runtime.load()
    runtime.run()
    yield runtime
    runtime._simulator.close()


@st.composite
def rectangles(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    x, y = draw(st.integers(0, WIDTH - 1)), draw(st.integers(0, HEIGHT - 1))
    return x, y, draw(st.integers(1, WIDTH - x)), draw(st.integers(1, HEIGHT - y)), draw(st.integers(1, 5))


@examples(40)
@given(
    rectangles(),
    st.sampled_from([16, 32]),
    st.sampled_from([ROW, COLUMN]),
    st.sampled_from([ROW, COLUMN]),
    st.sampled_from(["", "row", "col"]),
    st.sampled_from([np.uint32, np.int32, np.float32]),
    st.integers(0, 1 << 30),
)
def test_copies_as_numpy_has_them(shared, rectangle, bits, order_in, order_out, broadcast, kind, seed):
    x, y, w, h, n = rectangle
    symbol = "A" if bits == 32 else "B"
    whole = np.zeros(WIDTH * HEIGHT * 5, np.uint32)
    everywhere = (0, 0, WIDTH, HEIGHT, 5)
    shared.memcpy_d2h(whole, shared.get_id(symbol), *everywhere, data_type=BITS[bits])
    expected = whole.reshape(HEIGHT, WIDTH, 5)  # [y, x, element], by definition of ROW_MAJOR

    shape = {"": (h, w, n), "row": (h, 1, n), "col": (1, w, n)}[broadcast]
    values = np.random.default_rng(seed).integers(0, 1 << 32, shape, np.uint32)
    flat = np.array([values[i, j, k] for i, j, k in itertools.product(*map(range, shape))], np.uint32)
    if order_in == COLUMN:  # the first index runs fastest
        flat = np.array([values[i, j, k] for k, j, i in itertools.product(*map(range, reversed(shape)))], np.uint32)
    copy = {"": shared.memcpy_h2d, "row": shared.memcpy_h2d_rowbcast, "col": shared.memcpy_h2d_colbcast}[broadcast]
    copy(shared.get_id(symbol), flat.view(kind), x, y, w, h, n, order=order_in, data_type=BITS[bits])
    expected[y : y + h, x : x + w, :n] = values & np.uint32((1 << bits) - 1)

    found = np.full(WIDTH * HEIGHT * 5, 7, np.uint32).view(kind)
    shared.memcpy_d2h(found, symbol, *everywhere, order=order_out, data_type=BITS[bits])
    back = found.view(np.uint32)
    if order_out == ROW:
        assert np.array_equal(back.reshape(HEIGHT, WIDTH, 5), expected)
    else:
        assert np.array_equal(back.reshape(5, WIDTH, HEIGHT).transpose(2, 1, 0), expected)


def test_launch_with_arguments(runtime):
    numbers = np.arange(36, dtype=np.uint32)
    runtime.memcpy_h2d(0, numbers, 0, 0, 3, 2, 6)
    for factor in (np.uint32(3), 5, np.int16(2)):
        runtime.launch("scale", factor, nonblock=False)
    runtime.call("scale", [np.uint32(7)], nonblock=False)
    found = np.zeros((2, 3, 6), np.int32)
    runtime.memcpy_d2h(found, 0, 0, 0, 3, 2, 6)
    assert np.array_equal(found.ravel(), numbers * 210)


def test_what_does_not_block_is_done_later(runtime):
    begun = time.monotonic()
    task = runtime.launch("slow", 400_000, nonblock=True)
    found = np.full(6, 7, np.uint32)
    copy = runtime.memcpy_d2h(found, 0, 0, 0, 1, 1, 6, nonblock=True)
    assert time.monotonic() - begun < 5
    # Each question takes 170,000 cycles, whatever the time on this machine.
    assert [runtime.is_task_done(task) for _ in range(4)] == [False, True, True, True]
    runtime.task_wait(copy)
    runtime.task_wait(copy)
    assert found.tolist() == [0] * 6
    assert repr(copy) == "<memcpy_d2h: done>"
    runtime.stop()
    assert " host: launch slow(400000)\n" in Path("sim.log").read_text()


def test_the_simulation_does_not_depend_on_the_scripts_speed(folder, tmp_path, monkeypatch, start):
    logs = []
    for pause in (0, 0.05):
        place = tmp_path / str(pause)
        place.mkdir()
        monkeypatch.chdir(place)
        runtime = start(folder)
        tasks = []
        for cycles in (300_000, 10, 500_000):
            tasks.append(runtime.launch("slow", cycles, nonblock=True))
            time.sleep(pause)
        runtime.memcpy_h2d(0, np.arange(6, dtype=np.uint32), 0, 0, 3, 2, 1, streaming=True, nonblock=True)
        time.sleep(pause)
        runtime.stop()
        assert [task.done for task in tasks] == [True] * 3
        logs.append((place / "sim.log").read_text())
    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) == 4 + 6 * 5


def test_streams_reach_the_data_task(folder, monkeypatch, start):
    monkeypatch.setenv("CSTOOL_FABRIC_MEMCPY", "modelled")
    runtime = start(folder)
    words = np.arange(12, dtype=np.uint32) + 5
    runtime.memcpy_h2d(0, words, 0, 0, 3, 2, 2, streaming=True, data_type=MemcpyDataType.MEMCPY_16BIT, order=ROW)
    runtime.stop()
    lines = [line for line in Path("sim.log").read_text().splitlines() if "got" in line]
    said = [line.split(maxsplit=1)[1] for line in lines]
    expected = [f"PE {x}.{y}: got {5 + y * 6 + x * 2 + k}" for k in range(2) for y in range(2) for x in range(3)]
    assert said == expected
    # 3.9 cycles a word on one channel (H16).
    cycles = [int(line[1:].split()[0]) for line in lines]
    assert 11 * 3.5 < cycles[-1] - cycles[0] < 11 * 4.3


def test_traces(runtime, folder):
    runtime.memcpy_h2d(0, np.array([6, 9], np.uint32), 1, 0, 1, 1, 2, streaming=True)
    runtime.stop()
    assert debug_util(folder).read_trace(5, 1, "log") == ["red task", 6, 1.5, "red task", 9, 2.25]
    assert runtime.read_trace(1, 0, "times") == [6 + (1 << 16) + (2 << 32), 9 + (1 << 16) + (2 << 32)]
    assert runtime.read_trace(0, 0, "log") == []


def test_memory_after_the_end(runtime, folder, tmp_path):
    assert runtime.coord_logical_to_physical((1, 0)) == (5, 1)
    runtime.memcpy_h2d(0, np.arange(36, dtype=np.uint32), 0, 0, 3, 2, 6)
    runtime.stop()
    assert runtime.read_symbol(1, 0, "A").tolist() == [6, 7, 8, 9, 10, 11]
    assert runtime.read_symbol(0, 0, "B", np.int8).tolist() == list(range(10))
    debug = debug_util(folder)
    assert debug.get_symbol(5, 1, "A", np.int32).tolist() == [6, 7, 8, 9, 10, 11]
    assert debug.get_symbol_rect(((4, 1), (3, 2)), "A").shape == (3, 2, 6)
    assert debug.get_symbol_rect(((4, 1), (3, 2)), "A")[2, 1].tolist() == [30, 31, 32, 33, 34, 35]
    runtime.dump_core("core.npz")
    with np.load(tmp_path / "core.npz") as core:
        assert core["sram"].shape == (2, 3, 48 * 1024)
        assert core["sram"][1, 2, :24].view(np.uint32).tolist() == [30, 31, 32, 33, 34, 35]


def d2h(runtime: SdkRuntime, **changes: Any) -> Any:
    arguments = {"dest": np.zeros(36, np.uint32), "src": 0, "px": 0, "py": 0, "w": 3, "h": 2, "elem_per_pe": 6}
    return runtime.memcpy_d2h(**(arguments | changes))


def h2d(runtime: SdkRuntime, **changes: Any) -> Any:
    arguments = {"dest": 0, "src": np.zeros(36, np.uint32), "px": 0, "py": 0, "w": 3, "h": 2, "elem_per_pe": 6}
    return runtime.memcpy_h2d(**(arguments | changes))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda r: d2h(r, w=4), "memcpy_d2h: the rectangle must lie in the program's 3 x 2 PEs, got 4 x 2 at 0,0"),
        (lambda r: d2h(r, px=-1), "memcpy_d2h: the rectangle must lie in the program's 3 x 2 PEs, got 3 x 2 at -1,0"),
        (lambda r: h2d(r, h=0), "memcpy_h2d: the rectangle must lie in the program's 3 x 2 PEs, got 3 x 0 at 0,0"),
        (lambda r: h2d(r, elem_per_pe=0), "memcpy_h2d: there must be at least 1 element per PE, got 0"),
        (lambda r: d2h(r, dest=np.zeros(35, np.uint32)), "memcpy_d2h: dest must have 36 elements, got 35"),
        (lambda r: h2d(r, src=np.zeros(37, np.uint32)), "memcpy_h2d: src must have 36 elements, got 37"),
        (lambda r: r.memcpy_h2d_rowbcast(0, np.zeros(36, np.uint32), 0, 0, 3, 2, 6),
         "memcpy_h2d_rowbcast: src must have 12 elements, got 36"),
        (lambda r: r.memcpy_h2d_colbcast(0, np.zeros(36, np.uint32), 0, 0, 3, 2, 6),
         "memcpy_h2d_colbcast: src must have 18 elements, got 36"),
        (lambda r: d2h(r, dest=np.zeros(36)),
         "memcpy_d2h: dest must be an array of uint32, int32 or float32, got float64\n"
         "hint: make it of np.float32"),
        (lambda r: h2d(r, src=np.zeros(36, np.int16)),
         "memcpy_h2d: src must be an array of uint32, int32 or float32, got int16\n"
         "hint: data_type=MemcpyDataType.MEMCPY_16BIT takes 16-bit data"),
        (lambda r: d2h(r, dest=np.zeros(36, np.float16)),
         "memcpy_d2h: dest must be an array of uint32, int32 or float32, got float16\n"
         "hint: data_type=MemcpyDataType.MEMCPY_16BIT takes 16-bit data"),
        (lambda r: h2d(r, src=np.zeros(36), data_type=BITS[16]),
         "memcpy_h2d: src must be an array of a type of 16 or 32 bits, got float64\nhint: make it of np.float32"),
        (lambda r: d2h(r, dest=np.zeros(35, np.int16), data_type=BITS[16]),
         "memcpy_d2h: dest must have 36 elements, got 35"),
        (lambda r: r.memcpy_d2h(np.zeros(36, np.uint32), "C", 0, 0, 3, 2, 6),
         "memcpy_d2h: 'C' must be exported by the layout's @export_name, "
         "exported: A, B, bad, fixed, scale, slow, stuck"),
        (lambda r: h2d(r, src=[0] * 36), "memcpy_h2d: src must be a NumPy array, got list"),
        (lambda r: d2h(r, dest=np.zeros(72, np.uint32)[::2]),
         "memcpy_d2h: dest must be contiguous and writable, it is not"),
        (lambda r: h2d(r, dest=2), "memcpy_h2d: 'fixed' must be exported as mutable, it is not\n"
         'hint: @export_name("fixed", ..., true) in the layout lets the host write it'),
        (lambda r: d2h(r, src=3), "memcpy_d2h: 'scale' must be a variable, it is a function"),
        (lambda r: d2h(r, src=7), "memcpy_d2h: a number that get_id returned is expected, got 7"),
        (lambda r: d2h(r, streaming=True, src=0),
         "memcpy_d2h: 0 must be a MEMCPYD2H color, the program has: 1"),
        (lambda r: h2d(r, streaming=True, dest=1),
         "memcpy_h2d: 1 must be a MEMCPYH2D color, the program has: 0"),
        (lambda r: h2d(r, data_type=32), "memcpy_h2d: data_type must be a MemcpyDataType, got 32"),
        (lambda r: d2h(r, order="C"), "memcpy_d2h: order must be a MemcpyOrder, got 'C'"),
        (lambda r: d2h(r, nonblock="no"), "memcpy_d2h: nonblock must be True or False, got 'no'"),
        (lambda r: d2h(r, datatype=1), "memcpy_d2h: it has no setting 'datatype'\nhint: did you mean data_type?"),
        (lambda r: d2h(r, x=1),
         "memcpy_d2h: it has no setting 'x'\nhint: there are streaming, data_type, order, nonblock"),
        (lambda r: r.memcpy_h2d(0, np.zeros(1, np.uint32), 0, 0, 1, 1, 1, *range(5)),
         "memcpy_h2d: it takes 7 arguments and 4 settings, got 1 more"),
        (lambda r: r.is_task_done(None),
         "is_task_done: the result of a call with nonblock=True must be given, got None"),
        (lambda r: r.task_wait(3), "task_wait: the result of a call with nonblock=True must be given, got 3"),
        (lambda r: r.launch("A"), "launch: 'A' must be a function, it is a variable"),
        (lambda r: r.launch("scale"), "launch: scale(u32) takes 1 argument, got 0"),
        (lambda r: r.call("scale", [1, 2]), "call: scale(u32) takes 1 argument, got 2"),
        (lambda r: r.launch("scale", -1),
         "launch: argument 1 of scale(u32): must be 0 to 4294967295, got -1"),
        (lambda r: r.launch("scale", np.float32(1)),
         "launch: argument 1 of scale(u32): must be an integer, got float32"),
        (lambda r: r.call("scale", 3), "call: a list of arguments must be given, got 3"),
        (lambda r: r.launch("scal", 3), "launch: 'scal' must be exported by the layout's @export_name, "
         "exported: A, B, bad, fixed, scale, slow, stuck\nhint: did you mean scale?"),
        (lambda r: h2d(r, dest=1.5), "memcpy_h2d: columns, rows, counts and ids must be whole numbers, got (1.5,)"),
        (lambda r: r.load(), "load: the program is loaded already"),
        (lambda r: r.send(0, 0),
         "send: an input stream of the layout must be given, got 0, it has: none\n"
         "hint: SdkLayout.create_input_stream returns its name"),
        (lambda r: r.receive(0, 0),
         "receive: an output stream of the layout must be given, got 0, it has: none\n"
         "hint: SdkLayout.create_output_stream returns its name"),
        (lambda r: r.get_port_id("x"), "get_port_id: 'x' must be a stream of the layout, it has: none"),
        (lambda r: r.read_symbol(0, 0, "fixd"),
         "read_symbol: the program of PE 0.0 must have a variable 'fixd', it has: A, B, fixed\n"
         "hint: did you mean fixed?"),
        (lambda r: r.read_symbol(3, 0, "A"), "read_symbol: a PE of the program is 0,0 to 2,1, got 3,0"),
        (lambda r: r.read_symbol(0, 0, "A", "u99"), "read_symbol: dtype must be a type of NumPy, got 'u99'"),
        (lambda r: r.read_symbol(0, 0, "B", np.uint32), "read_symbol: the 10 bytes of 'B' are no uint32s"),
    ],
)  # fmt: skip
def test_refused_before_it_is_asked(shared, call, expected):
    assert message(lambda: call(shared)) == expected


def test_none_for_a_symbol_names_what_get_id_has_not_found(runtime):
    exported = "exported: A, B, bad, fixed, scale, slow, stuck"
    assert message(lambda: h2d(runtime, dest=None)) == f"memcpy_h2d: a symbol must be given, got None, {exported}"
    assert [runtime.get_id(name) for name in ("A", "scal", "scal")] == [0, None, None]
    expected = f"a symbol must be given, got None, get_id has not found 'scal', {exported}\nhint: did you mean scale?"
    assert message(lambda: d2h(runtime, src=None)) == f"memcpy_d2h: {expected}"
    assert message(lambda: runtime.launch(None, 3)) == f"launch: {expected}"
    assert message(lambda: runtime.call(None, [3])) == f"call: {expected}"
    assert [runtime.get_id(name) for name in ("C", "fixd")] == [None, None]
    assert message(lambda: d2h(runtime, src=None)) == (
        f"memcpy_d2h: a symbol must be given, got None, get_id has not found 'scal', 'C', 'fixd', {exported}\n"
        "hint: 'scal': did you mean scale?; 'fixd': did you mean fixed?"
    )


@pytest.mark.parametrize("order", [ROW, COLUMN])
@pytest.mark.parametrize("kind", [np.float16, np.int16, np.uint16])
def test_arrays_of_16_bits_are_copied_as_they_are(shared, kind, order):
    values = np.random.default_rng(3).integers(0, 1 << 16, (HEIGHT, WIDTH, 5)).astype(np.uint16)
    how = {"order": order, "data_type": BITS[16]}
    shared.memcpy_h2d(shared.get_id("B"), values.ravel(order.value).view(kind), 0, 0, WIDTH, HEIGHT, 5, **how)
    words, halves = np.full(30, -1, np.int32), np.zeros((HEIGHT, WIDTH, 5), kind)
    shared.memcpy_d2h(words, shared.get_id("B"), 0, 0, WIDTH, HEIGHT, 5, **how)
    shared.memcpy_d2h(halves, shared.get_id("B"), 0, 0, WIDTH, HEIGHT, 5, **how)
    assert words.tolist() == halves.ravel().view(np.uint16).tolist() == values.ravel(order.value).tolist()


def test_what_a_program_does_not_hold(runtime):
    expected = "PE 0.0: 'A' has 24 bytes, the host asks for 28"
    assert message(lambda: d2h(runtime, dest=np.zeros(42, np.uint32), elem_per_pe=7)) == expected
    # What failed once has failed for good.
    assert message(lambda: runtime.launch("scale", 1)) == expected
    assert message(runtime.stop) == expected
    assert Path("sim.log").read_text().splitlines()[-1].endswith(f" error: {expected}")


def test_states(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runtime = SdkRuntime(SdkCompileArtifacts(str(folder)), get_platform(), memcpy_required=False, msg_level="INFO")
    assert message(runtime.run) == "run: the program must be loaded first, with load()"
    assert message(lambda: d2h(runtime)) == "memcpy_d2h: the program must be loaded first, with load()"
    runtime.load()
    assert message(lambda: d2h(runtime)) == "memcpy_d2h: the program must be running, between run() and stop()"
    runtime.run()
    d2h(runtime)
    runtime.stop()
    assert message(lambda: d2h(runtime)) == "memcpy_d2h: the program must be running, between run() and stop()"
    runtime._simulator.close()


def test_a_program_without_memcpy(tmp_path):
    write_program(replace(arrays_program(), memcpy=False), tmp_path / "out")
    runtime = SdkRuntime(tmp_path / "out")
    calls: dict[str, Callable[[], Any]] = {
        "memcpy_h2d": lambda: h2d(runtime),
        "memcpy_d2h": lambda: d2h(runtime, streaming=True, src=1),
        "launch": lambda: runtime.launch("scale", 1),
        "call": lambda: runtime.call("scale", [1]),
    }
    for name, call in calls.items():
        assert message(call) == f"{name}: the program must be compiled with --memcpy, it is not"


def test_where_there_is_no_wafer_and_no_program(folder, tmp_path):
    expected = "cmaddr: must be left out, programs are simulated here, got 10.0.0.1:9000"
    assert message(lambda: SdkRuntime(folder, cmaddr="10.0.0.1:9000")) == expected
    assert message(lambda: get_platform("10.0.0.1:9000")) == expected
    platform = get_platform(None, SimfabConfig(dump_core=True), SdkTarget.WSE3)
    assert (platform.is_simulation(), platform.is_system()) == (True, False)
    assert message(lambda: SdkRuntime(tmp_path)).startswith(
        f"{tmp_path}: must be a directory with a compiled program, has no out.json\n"
    )
    assert message(lambda: debug_util(tmp_path).get_symbol(4, 1, "A")) == (
        f"{tmp_path}: no SdkRuntime of this script has run the program in it"
    )


def test_a_function_that_never_unblocks(capfd, runtime):
    runtime.launch("stuck", nonblock=False)
    told = message(lambda: d2h(runtime, w=1, h=1, dest=np.zeros(6, np.uint32)))
    first, hint, blank, report, *_ = told.splitlines()
    assert first == (
        "the fabric stands still, and the host's command is not done: memcpy_d2h from 'A', 6 x 32 bits, PE 0.0"
    )
    stuck = "PE 0.0 is in stuck(), which has not called unblock_cmd_stream()"
    assert hint == f"hint: {stuck}; never ran there: task echo (pe.csl:3:1)"
    assert blank == ""
    assert report.startswith("deadlock at cycle ")
    assert capfd.readouterr() == ("", "")


def test_a_function_that_never_unblocks_at_the_end(capfd, folder, start):
    runtime = start(folder)  # here, not in a fixture: its errors are to be caught
    runtime.launch("stuck", nonblock=False)
    runtime.stop()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == WIDTH * HEIGHT
    assert lines[0] == (
        "warning: PE 0.0: stuck() never unblocked the command stream; on a wafer the host's next command would wait "
        "for ever"
    )


def test_a_stream_that_never_comes(runtime):
    told = message(lambda: d2h(runtime, streaming=True, src=1))
    assert told.splitlines()[0] == (
        "the fabric stands still, and the host's command is not done: "
        "memcpy_d2h takes 6 wavelets of color 1 from PEs 0.0 to 2.1, 0 of 36 wavelets passed"
    )


def test_a_killed_simulator_is_told(runtime):
    assert runtime._simulator is not None
    process = runtime._simulator._process.pid
    os.kill(process, signal.SIGKILL)
    expected = (
        f"the simulator was ended by SIGKILL (process {process})\nhint: the system may have ended it for want of memory"
    )
    assert message(lambda: d2h(runtime)) == expected
    assert message(lambda: d2h(runtime)) == expected
    assert message(runtime.stop) == expected


def test_settings_by_place_and_a_context(folder, start, tmp_path):
    words = np.arange(36, dtype=np.uint32)
    with SdkRuntime(folder, suppress_simfab_trace=True, simfab_numthreads=4, msg_level="INFO") as runtime:
        how = False, MemcpyDataType.MEMCPY_32BIT, MemcpyOrder.COL_MAJOR
        runtime.memcpy_h2d(0, words, 0, 0, 3, 2, 6, *how, False)
        got = np.zeros_like(words)
        task = runtime.memcpy_d2h(got, 0, 0, 0, 3, 2, 6, *how, nonblock=True)
        runtime.task_wait(task)
        assert got.tolist() == words.tolist()
        assert runtime.is_task_done(task)
    assert runtime.read_symbol(0, 0, "A").tolist() == [0, 6, 12, 18, 24, 30]
    stopped = "must be running, between run() and stop()"
    assert message(lambda: runtime.launch("scale", 2)) == f"launch: the program {stopped}"
    assert message(runtime.stop) == f"stop: the program {stopped}"
    assert message(runtime.run) == "run: the program was stopped\nhint: a new SdkRuntime runs it again"


def test_arguments_of_a_runtime(folder):
    told = message(lambda: SdkRuntime(folder, msg_lvl="INFO"))
    assert told == "SdkRuntime: there is no argument 'msg_lvl'\nhint: did you mean msg_level?"
    platform = get_platform(None, SimfabConfig(dump_core=True), SdkTarget.WSE3)
    told = message(lambda: SdkRuntime(folder, platform, memcpy_required=True))
    assert told == "SdkRuntime: the platform must be wse2, as the program is, got wse3"
    assert message(lambda: SdkRuntime(None)) == (
        "SdkRuntime: the directory of a compiled program must be given, got None\n"
        "hint: scripts often take it by --name: cs_python run.py --name out"
    )
    assert message(lambda: SdkRuntime(folder, cmaddr="1.2.3.4:9000")) == (
        "cmaddr: must be left out, programs are simulated here, got 1.2.3.4:9000"
    )
