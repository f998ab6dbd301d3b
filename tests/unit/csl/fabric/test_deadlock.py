"""Deadlock reports: who waits for whom, drawn where it is a circle, told in the end where it is not."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric import deadlock
from cstool.csl.fabric.arch import PORTS
from cstool.csl.fabric.deadlock import WIDTH, deadlock_report
from cstool.csl.fabric.program import PEProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.wait_graph import WaitGraph
from cstool.csl.fabric.waiting import QueueWait, TaskWait, ThreadWait
from tests.examples import examples
from tests.unit.csl.fabric.waits import config, fabric, receives, sender_and_receiver, sends, stuck

EAST = {(0, 0): config("R>E"), (1, 0): config("W>R")}
TWO = fabric(2, 1, {3: EAST, 4: {(1, 0): config("R>W"), (0, 0): config("E>R")}})
ROWS = {(x, y): config("R>E" if x == 0 else "W>RE" if x < 15 else "W>R") for x in range(16) for y in range(16)}
SWITCH = fabric(3, 1, {3: {(0, 0): config("R>E"), (1, 0): config("R>E", "W>E"), (2, 0): config("W>R")}})
RING = {(0, 0): "S>E", (1, 0): "W>E", (2, 0): "W>S", (2, 1): "N>S", (2, 2): "N>W", (1, 2): "E>W", (0, 2): "E>N"}
RING |= {(0, 1): "S>N"}
BOTH_SEND = (
    sends(0, 3, 6),
    sends(1, 4, 6),
    stuck(0, "R", 3, "E", "E", "the buffer to the EAST is full"),
    stuck(1, "W", 3, "R", "R", "the ramp of PE 1.0 takes no more"),
    stuck(1, "R", 4, "W", "W", "the buffer to the WEST is full"),
    stuck(0, "E", 4, "R", "R", "the ramp of PE 0.0 takes no more"),
    QueueWait(0, 2, 4, 6),
    QueueWait(1, 2, 3, 6),
)
SILENT = (PEProgram("left.csl", "wse2", ""), PEProgram("right.csl", "wse2", "", inputs=frozenset({3})))
FIFO = ThreadWait(1, "microthread 2", "fadds", "pop", "main", "pe.csl:50:3", None, None, 0, 3, 9)

REPORTS = {
    "both_receive": (TWO, [receives(0, 4), receives(1, 3, 4)]),
    "both_send": (TWO, BOTH_SEND),
    "sender_idle": (TWO, [receives(1, 3, 4)]),
    "rows_idle": (fabric(16, 16, {3: ROWS}), [receives(y * 16 + x, 3, 4) for y in range(16) for x in range(1, 16)]),
    "never_sent": (fabric(2, 1, {3: EAST}, SILENT, [[0, 1]]), [receives(1, 3)]),
    "switch": (SWITCH, [receives(2, 3, 4), BOTH_SEND[2], stuck(1, "W", 3, "", "", "position 0 takes from RAMP only")]),
    "ring_full": (
        fabric(3, 3, {3: {at: config(route) for at, route in RING.items()}}),
        [
            stuck(y * 3 + x, route[0], 3, route[2], route[2], "the buffer behind it is full")
            for (x, y), route in RING.items()
        ],
    ),
    "blocked_task": (
        TWO,
        [TaskWait(0, 9, "relay", "pe.csl:12:1", True), TaskWait(1, 3, "recv", "pe.csl:20:1", True, 6, 3), FIFO],
    ),
    "no_way_in": (fabric(2, 1, {3: {(1, 0): config("E>R", "W>R")}}), [receives(1, 3)]),
    "routes_in_a_circle": (
        fabric(3, 1, {3: {(0, 0): config("E>E"), (1, 0): config("W>RW"), (2, 0): config("R>W")}}),
        [receives(1, 3)],
    ),
    "no_route": (fabric(2, 1, {}), [receives(1, 3)]),
    "fifo_circle": (TWO, [FIFO, ThreadWait(1, "main", "fmovs", "push", "main", "pe.csl:60:3", None, None, 0, 8, 9)]),
    "microthread_taken": (
        TWO,
        [
            ThreadWait(0, "main", "mov32", "thread", "main", "pe.csl:30:3", number=2),
            receives(0, 4, 3, thread="microthread 2", unblocks=(9,)),
            TaskWait(0, 9, "next", "pe.csl:12:1", True),
        ],
    ),
    "host_stream": (fabric(1, 1, {0: {(0, 0): config("W>R")}}, streams={"MEMCPYH2D_1": 0}), [receives(0, 0, 5)]),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_reads_well(name, golden):
    program, waits = REPORTS[name]
    golden(f"fabric/deadlock_{name}.txt", deadlock_report(program, 1234, waits) + "\n")


def test_what_the_host_waits_for_stands_below_the_heading():
    said = deadlock_report(TWO, 7, [receives(1, 3)], host=["launch of main: PE 1.0 has not ended it"]).splitlines()
    assert said[:3] == [
        "deadlock at cycle 7: nothing can move any more; 1 of 2 PEs waits",
        "the host: launch of main: PE 1.0 has not ended it",
        "",
    ]


def test_of_many_ends_the_rest_are_counted():
    table = {3: {(x, 0): config("W>R" if x % 2 else "R>E") for x in range(20)}}
    programs = [PEProgram(f"{n}.csl", "wse2", "", inputs=frozenset({3}), outputs=frozenset({3})) for n in range(20)]
    waits = [receives(x, 3) for x in range(1, 20, 2)]
    said = deadlock_report(fabric(20, 1, table, programs, [list(range(20))]), 7, waits)
    assert said.splitlines()[-1] == "and 6 other ends, for which 6 PEs wait"


def test_a_long_circle_is_shortened():
    """Twenty PEs in a row, each of which receives from the one before it, the first from the last."""
    here = {
        3: {(x, 0): config("W>R" if x % 2 else "R>E") for x in range(20)},
        4: {(x, 0): config("R>E" if x % 2 else "W>R") for x in range(1, 19)},
        5: {(x, 0): config("R>W" if x == 19 else "E>W" if x else "E>R") for x in range(20)},
    }
    waits = [receives(x, 5 if x == 0 else 3 if x % 2 else 4) for x in range(20)]
    said = deadlock_report(fabric(20, 1, here), 7, waits).splitlines()
    assert " |    ... 8 more steps ..." in said
    assert len([line for line in said if "PE " in line]) == 12


def test_a_whole_wafer_is_looked_at_in_part(monkeypatch):
    assert deadlock.MOST_WAITS == 20_000
    monkeypatch.setattr(deadlock, "MOST_WAITS", 2_000)
    row = {3: {(x, 0): config("W>RE" if x else "R>E") for x in range(2_500)}}
    said = deadlock_report(fabric(2_500, 1, row), 7, [receives(x, 3) for x in range(1, 2_500)]).splitlines()
    assert said[1] == "(of 2,499 waits the first 2,000 were looked at)"
    assert said[3] == "2,000 PEs wait, in the end, for this"


routes = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 1)),
    st.builds(lambda rx, tx: config(f"{rx}>{tx}"), st.text("RWENS", max_size=3), st.text("RWENS", max_size=3)),
)
pes, colors, sides = st.integers(0, 5), st.integers(3, 4), st.sampled_from("RWENS")
waits = st.lists(
    st.one_of(
        st.builds(receives, pes, colors, thread=st.sampled_from(["main", "microthread 1"])),
        st.builds(sends, pes, colors, thread=st.sampled_from(["main", "microthread 2"])),
        st.builds(stuck, pes, sides, colors, blocked=st.text("RWENS")),
        st.builds(stuck, pes, sides, colors, st.just("E"), st.text("RWENS")),
        st.builds(QueueWait, pes, st.just(2), colors, st.just(2)),
        st.builds(TaskWait, pes, st.integers(8, 9), st.just("t"), blocked=st.booleans()),
    ),
    max_size=12,
)


@given(routes, routes, waits)
@examples(100)
def test_whatever_stands_still_a_report_names_every_kind_of_it_within_the_width(first, second, found):
    """Nothing raises, all lines fit, and what is waited for is itself of the graph."""
    program = fabric(3, 2, {3: first, 4: second})
    said = deadlock_report(program, 7, found).splitlines()
    assert max(map(len, said)) <= WIDTH
    graph = WaitGraph(program, found)
    reached, open_nodes = set(), list(graph.waits)
    while open_nodes:
        node = open_nodes.pop()
        if node not in reached:
            reached.add(node)
            open_nodes += graph.targets(node)
    assert {node[0] for node in reached} <= {*"thread task queue buffer route idle never host cut".split()}
    assert all(0 <= node[2] < len(PORTS) for node in reached if node[0] in ("route", "cut"))


def simulated(sent, taken):
    """The report about a sender and a receiver that want other numbers of wavelets."""
    simulation = Simulation(sender_and_receiver(sent, taken))
    assert simulation.run_until() is False
    waits = [*simulation.network.waiting(), *(wait for pe in simulation.pes for wait in pe.waiting())]
    return deadlock_report(simulation.program, 99, waits, simulation.network.config)


def test_a_simulation_that_stands_still_tells_why():
    said = simulated(5, 7).splitlines()
    assert said[3:7] == [
        "    PE 1.0  task main: @mov32, pe.csl:40:5, waits for color 3 (queue 2), 5 of 7 wavelets came",
        "      |",
        "      v",
        "    PE 0.0  idle: no task of it runs or is activated, and it sends no more of color 3 (left.csl)",
    ]


def test_a_sender_that_nobody_takes_from_is_told_through_the_network():
    said = simulated(50, 7)
    assert said.splitlines()[0] == "deadlock at cycle 99: nothing can move any more; 2 of 2 PEs wait"
    assert re.search("input queue 2 holds [4-6] wavelets of color 3, but nothing takes them", said)
    assert said.endswith("look at a task bound to color 3, or an operation that receives it: nothing takes what came")


def test_a_switch_in_a_position_that_it_has_not_takes_from_nowhere():
    one = fabric(2, 1, {3: {(0, 0): config("R>E"), (1, 0): config("W>R")}})
    moved = replace(one.configs[one.routes[3][0, 1]], current=1)
    wait = stuck(1, "W", 3, "", "", "the color has no position 1", position=1)
    report = deadlock_report(one, 5, [wait], lambda pe, color: moved if pe else one.configs[0])
    assert "the color has no position 1" in report
