"""The host's commands, on both engines: when they reach a PE, in which order, and what they do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.host import CYCLES_PER_WORD, LATENCY, Host, Rectangle
from cstool.csl.fabric.program import Exported, FabricProgram, PEProgram, Symbol, Task
from tests.unit.csl.fabric.engines import simulate  # noqa: F401

# `work(cycles)` counts its calls at byte 0 and unblocks after so many cycles; on PE 0.0 after ten times as many.
CODE = """
def program(pe):
    U32 = pe.u32
    def work(cycles):
        U32[0] = U32[0] + 1
        pe.cycles += cycles * (1 if pe.x != 0 or pe.y != 0 else 10)
        pe.host_unblock()
    def stuck():
        pass
    return {"work": work, "stuck": stuck}
"""


def program() -> FabricProgram:
    symbols = {
        "n": Symbol("variable", 0, count=1),
        "far": Symbol("variable", 0, pointer=8, letter="H"),
        "work": Symbol("function", parameters=("w",), function="work"),
        "stuck": Symbol("function", function="stuck"),
    }
    memory = bytes(8) + (0xBFFE).to_bytes(2, "little")
    pe = PEProgram("pe.csl", "wse2", CODE, memory=memory, symbols=symbols)
    without = replace(pe, name="empty.csl", symbols={})
    tiles = np.array([[0, 0], [0, 1]], np.int32)
    return FabricProgram("wse2", 2, 2, tiles, (pe, without), exported=(Exported("n", "variable"),))


Simulate = Callable[[FabricProgram], Any]


@pytest.fixture
def lines() -> list[tuple[int, str]]:
    """What the host logged."""
    return []


@pytest.fixture
def host(simulate: Simulate, lines: list[tuple[int, str]]) -> Host:  # noqa: F811
    """The host of a simulation that has not begun."""
    return Host(simulate(program()), lambda cycle, text: lines.append((cycle, text)))


def count(host: Host, x: int, y: int) -> int:
    return int(host._simulation.pes[y * 2 + x].load("w", 0))


def test_a_launch_waits_on_each_pe_for_the_one_before(host: Host) -> None:
    first, second = host.launch("work", (50,)), host.launch("work", (50,))
    host.finish(second)
    assert first.done
    # PE 1.1 has no such function.
    assert [count(host, x, y) for y in range(2) for x in range(2)] == [2, 2, 2, 0]
    assert 1000 <= host._simulation.events.now < 1100
    assert host.stop() == []


def test_commands_come_when_the_fabric_is_idle_or_after_the_latency(host: Host, lines: list[tuple[int, str]]) -> None:
    host.launch("work", (40,))
    host.launch("work", (LATENCY,))  # 400 cycles later the fabric is idle
    host.launch("work", (1,))  # and now it is not
    host.stop()
    starts = [cycle for cycle, _ in lines]
    assert 400 <= starts[1] - starts[0] < 450
    assert starts[2] - starts[1] == LATENCY
    assert [text for _, text in lines][2] == "host: launch work(1)"
    assert count(host, 0, 0) == 3


def test_words_take_their_time_on_the_channels(simulate: Simulate) -> None:  # noqa: F811
    ends = []
    for channels, modelled in ((1, True), (4, True), (1, False)):
        host = Host(simulate(replace(program(), channels=channels)), modelled=modelled)
        at = Rectangle(0, 0, 2, 1)
        command = host.copy_in("n", at, np.ones((1, 2, 1), np.uint32), 32, 1000)
        host.finish(command)
        ends.append(host._simulation.events.now)
        assert [count(host, 0, 0), count(host, 1, 0), count(host, 0, 1)] == [1, 1, 0]
    assert abs(ends[0] - 1000 * CYCLES_PER_WORD) < 30
    assert abs(ends[1] - 250 * CYCLES_PER_WORD) < 30
    assert ends[2] < 30


def test_a_copy_waits_for_the_command_stream(host: Host) -> None:
    launch = host.launch("work", (100,))
    copy = host.copy_out("n", Rectangle(0, 0, 2, 1), 1, 32)
    host.finish(copy)
    assert launch.done
    assert copy.result is not None
    assert copy.result.ravel().tolist() == [1, 1]
    assert host._simulation.events.now >= 1000


ONE = Rectangle(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda host: host.copy_out("n", Rectangle(1, 0, 2, 1), 1, 32),
            "a command must stay inside the program's 2 x 2 PEs, got x = 1, y = 0, width = 2, height = 1",
        ),
        (
            lambda host: host.copy_out("n", Rectangle(0, 0, 2, 2), 1, 32),
            "PE 1.1: its program must export 'n', empty.csl does not",
        ),
        (lambda host: host.copy_out("n", ONE, 3, 32), "PE 0.0: 'n' has 4 bytes, the host asks for 12"),
        (
            lambda host: host.copy_out("n", ONE, 1, 16),
            "PE 0.0: MEMCPY_16BIT is for elements of 16 bits, those of 'n' have 32\nhint: MEMCPY_32BIT copies them",
        ),
        (
            lambda host: host.copy_out("far", ONE, 2, 16),
            "PE 0.0: 4 bytes from 'far' on must lie in its 49152 bytes of SRAM, it points to 49150",
        ),
        (
            lambda host: host.stream_in(3, Rectangle(0, 1, 1, 1), np.ones((1, 1, 1), np.uint32)),
            "PE 0.1: the host streams wavelets of color 3 to it, its program must take them, no input queue is bound "
            "to that color\nhint: bind one with @initialize_queue, and read it with a data task or a fabin_dsd",
        ),
    ],
)
def test_refused(host: Host, ask: Any, message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        ask(host)
    assert str(caught.value) == message


def test_a_pointer_of_the_program_is_followed(host: Host) -> None:
    sram = host._simulation.pes[0].u8
    sram[8:10] = (4096).to_bytes(2, "little")
    sram[4096:4098] = (77).to_bytes(2, "little")
    command = host.copy_out("far", Rectangle(0, 0, 1, 1), 1, 16)
    host.finish(command)
    assert command.result is not None
    assert command.result.ravel().tolist() == [77]


def test_what_is_left_at_the_end(host: Host) -> None:
    host.finish(host.launch("stuck", ()))
    waits = "never unblocked the command stream; on a wafer the host's next command would wait for ever"
    assert host.stop() == [f"PE {place}: stuck() {waits}" for place in ("0.0", "1.0", "0.1")]


def test_the_end_tells_of_a_few_pes_only(simulate: Simulate) -> None:  # noqa: F811
    large = replace(program(), width=20, height=1, tiles=np.zeros((1, 20), np.int32))
    host = Host(simulate(large))
    host.finish(host.launch("stuck", ()))
    lines = host.stop()
    assert len(lines) == 7
    assert lines[-1] == "14 more PEs likewise"


def test_a_stream_of_16_bits_keeps_the_upper_half_of_each_word(simulate: Simulate) -> None:  # noqa: F811
    code = """
def program(pe):
    U16 = pe.u16
    def take(low, high):
        U16[0] = low
        U16[1] = high
    return {"take": take}
"""
    tasks = {3: Task("take", "data", ("H", "H"), color=3)}
    pe = PEProgram("pe.csl", "wse2", code, tasks=tasks, inputs=frozenset({3}))
    fabric = FabricProgram("wse2", 1, 1, np.zeros((1, 1), np.int32), (pe,), streams={"MEMCPYH2D_1": 3})
    host = Host(simulate(fabric))
    host.finish(host.stream_in(3, ONE, np.full((1, 1, 1), 7 << 16 | 9, np.uint32)))
    host.stop()
    assert [host._simulation.pes[0].load("H", address) for address in (0, 2)] == [9, 7]
