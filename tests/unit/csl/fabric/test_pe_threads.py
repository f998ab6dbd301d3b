"""Operations that wait: microthreads, the main thread, FIFOs, registers, control wavelets; cycles, errors."""

from random import Random

import numpy as np
import pytest

from cstool.csl.fabric import control, vector
from cstool.csl.fabric.dsd import FabricIn, Mem1d
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.program import FifoBuffer
from cstool.csl.fabric.time_model import SIMULATOR
from cstool.csl.fabric.waiting import ThreadWait
from tests.unit.csl.fabric.pe_run import ShuffledEvents, main, program, row, run, task

SWITCH = SIMULATOR.switch
RAMP = 2
BEGIN = vector.LAUNCH + vector.START
LINE = [(5, 0, [1])]
NOTE_TIME = "pe.u32[100] = pe.time()"


def floats(*values):
    return np.array(values, np.float32).tobytes()


def sender(count, *, pause=0, arch="wse2", out=""):
    """Sends floats 0, 1, 2, ... after a pause."""
    send = f'pe.start("fmovs", (FabricOut(2, 5, {count}{out}), Mem1d(0, {count}, 4, 4)))'
    return sends(f"pe.cycles += {pause}", send, memory=floats(*range(count)), arch=arch)


def sends(*lines, body="", **fields):
    """A PE whose `main` has these lines and output queue 2."""
    return program(f"{main(*lines)}\n{body}", **{"output_queues": {2: 5}, **fields})


def takes(*lines, body="", queues=None, **fields):
    """A PE whose `main` has these lines and an input queue."""
    return program(f"{main(*lines)}\n{body}", input_queues=queues or {4: 5}, **fields)


def take(count, to=0):
    return f'yield from pe.wait("fmovs", (Mem1d({to}, {count}, 4, 4), FabricIn(4, {count})), PLAIN)'


def start(name, operands, settings="PLAIN"):
    return f'pe.start("{name}", ({operands}), {settings})'


def second(*programs):
    """The second PE of a row, after it has run."""
    return run(*programs, colors=LINE)[1]


# --- what arrives when ---


def test_a_stream_takes_a_cycle_an_element_and_the_way():
    first, pe = run(sender(50), takes(take(50), NOTE_TIME), colors=LINE)
    assert pe.f32[:50].tolist() == list(range(50))
    # The first element leaves START after the launch; ramp, hop, ramp; each takes a cycle in the PE that gets it.
    assert pe.u32[100] == SWITCH + BEGIN + RAMP + 1 + RAMP + 50 + 1
    assert (first.ramp.sent, pe.ramp.received, pe.datapath.elements) == (50, 50, 50)


def test_a_wavelet_passes_through_a_pe_in_two_ramps_and_a_cycle():
    def relay(into, out):
        line = f'pe.start("fmovs", (FabricOut(2, {out}, 4), FabricIn(4, 4)))'
        return takes(line, queues={4: into}, output_queues={2: out})

    last = takes(take(4), NOTE_TIME, queues={4: 7})
    pes = run(sender(4), relay(5, 6), relay(6, 7), last, colors=[(5, 0, [1]), (6, 1, [2]), (7, 2, [3])])
    assert pes[3].f32[:4].tolist() == [0, 1, 2, 3]
    # A relay costs two ramps, a hop and a cycle (Luczynski et al., HPDC'24: 2 T_R + 1 for the PE).
    assert pes[3].u32[100] == SWITCH + BEGIN + (2 * RAMP + 1) + 2 * (2 * RAMP + 2) + 4 + 1


def test_the_main_thread_loses_what_microthreads_take():
    lines = start("fmovs", "Mem1d(0, 60, 4, 4), FabricIn(4, 60)"), "pe.cycles += 200", "pe.activate(9)"
    pe = second(sender(60), takes(*lines, body=f"def nine(): {NOTE_TIME}"))
    assert pe.u32[100] == SWITCH + vector.LAUNCH + 200 + 60 + SWITCH


def test_a_slow_receiver_stops_the_sender():
    add = 'yield from pe.wait("fadds", (Mem1d(0, 40, 4, 4), Mem1d(0, 40, 4, 4), FabricIn(4, 40)), PLAIN)'
    simulation = row(sender(40), takes("pe.cycles += 1000", add, memory=floats(*[1] * 40)), colors=LINE)
    simulation.run_until(until=900)
    # At most 4 at the PE or on its ramp, 2 in each of two buffers, 2 on the way, 6 in the output queue.
    (waits,) = simulation.pes[0].waiting()
    assert waits == ThreadWait(
        0, "microthread 2", "fmovs", "send", "main", "pe.csl:4:1", queue=2, color=5, done=waits.done, extent=40
    )
    assert 12 <= waits.done <= 16
    simulation.run_until()
    assert simulation.pes[1].f32[:40].tolist() == [k + 1 for k in range(40)]
    assert simulation.pes[0].waiting() == []


def test_an_operation_ends_by_activating_and_unblocking():
    first, pe = run(
        sends(
            start("fmovs", "FabricOut(2, 5, 4), Mem1d(0, 4, 4, 4)", "Settings(activate=9, unblock=10)"),
            "pe.activate(10)",
            body="def nine(): pe.u32[101] = pe.time()\ndef ten(): pe.u32[102] = pe.time()",
            memory=floats(*range(4)),
            blocked=frozenset({10}),
        ),
        takes(
            start("fmovs", "Mem1d(0, 4, 4, 4), FabricIn(4, 4)", "Settings(activate=9)"),
            body="def nine(): pe.f32[100] = pe.f32[3]",
        ),
        colors=LINE,
    )
    end = SWITCH + BEGIN + 4
    assert first.u32[101:103].tolist() == [end + SWITCH, end + 2 * SWITCH]
    assert pe.f32[100] == 3.0


def test_what_was_sent_before_it_was_overwritten_arrives():
    # The second task begins while the two elements are being sent, and is at the overwriting long after.
    body = "def nine():\n    pe.cycles += 200\n    pe.f32[0], pe.f32[1] = 8.0, 9.0"
    first = sends(
        start("fmovs", "FabricOut(2, 5, 2), Mem1d(0, 2, 4, 4)"), "pe.activate(9)", body=body, memory=floats(1, 2)
    )
    first, pe = run(first, takes(take(2)), colors=LINE)
    assert (first.f32[:2].tolist(), pe.f32[:2].tolist()) == ([8, 9], [1, 2])


def two_streams(second="PLAIN", ends=("PLAIN", "PLAIN")):
    """Two streams of 20 floats over one link; both PEs have a task nine and a task ten that note the time."""
    nine_and_ten = "def nine(): pe.u32[100] = pe.time()\ndef ten(): pe.u32[101] = pe.time()"
    both = sends(
        start("fmovs", "FabricOut(2, 5, 20), Mem1d(0, 20, 4, 4)"),
        start("fmovs", "FabricOut(3, 6, 20), Mem1d(0, 20, 4, 4)", second),
        body=nine_and_ten,
        memory=floats(*range(20)),
        output_queues={2: 5, 3: 6},
    )
    taker = takes(
        start("fmovs", "Mem1d(0, 20, 4, 4), FabricIn(4, 20)", ends[0]),
        start("fmovs", "Mem1d(80, 20, 4, 4), FabricIn(5, 20)", ends[1]),
        body=nine_and_ten,
        queues={4: 5, 5: 6},
    )
    return run(both, taker, colors=[(5, 0, [1]), (6, 0, [1])])


def test_two_streams_share_the_ramp_fairly():
    _, pe = two_streams(ends=("Settings(activate=9)", "Settings(activate=10)"))
    assert pe.f32[:40].tolist() == [*range(20), *range(20)]
    assert abs(pe.u32[100] - pe.u32[101]) <= 2 * SWITCH


def test_a_microthread_of_high_priority_goes_first():
    pe, _ = two_streams(second='Settings(priority="high", activate=9)')
    assert pe.u32[100] < 2 * SWITCH + 50


@pytest.mark.parametrize(
    ("level", "priority", "lost"),
    [(0, "low", 20), (1, "low", 0), (2, "medium", 20), (3, "medium", 0), (4, "high", 0)],
)
def test_the_main_thread_goes_before_microthreads_of_a_lower_priority(level, priority, lost):
    send = start("fmovs", "FabricOut(2, 5, 20), Mem1d(0, 20, 4, 4)", f'Settings(priority="{priority}")')
    lines = (f"pe.config_write(0x160, {level})", send, "pe.cycles += 200")
    first, pe = run(sends(*lines, memory=floats(*range(20))), takes(take(20)), colors=LINE)
    launch = run(sends(send, memory=floats(*range(20))), takes(take(20)), colors=LINE)[0].main.busy
    assert first.main.busy == launch + 200 + lost
    assert pe.f32[:20].tolist() == list(range(20))


def test_a_task_stands_still_at_a_second_operation_on_a_microthread():
    pe, other = run(
        sends(
            start("fmovs", "FabricOut(2, 5, 30), Mem1d(0, 30, 4, 4)"),
            f"if {start('fmovs', 'FabricOut(2, 5, 10), Mem1d(120, 10, 4, 4)')}: yield from pe.pause()",
            NOTE_TIME,
            "pe.memory.bytes[:120] = bytes(120)",
            memory=floats(*range(40)),
        ),
        takes(take(40)),
        colors=LINE,
    )
    # What the task writes behind it comes too late for the first operation.
    assert other.f32[:40].tolist() == list(range(40))
    # It goes on when the microthread is free, a cycle after the 30th element.
    assert pe.u32[100] == SWITCH + BEGIN + 30 + 1


def test_a_second_operation_asked_for_after_the_first_has_ended_does_not_wait():
    first = start("fmovs", "FabricOut(2, 5, 3), Mem1d(0, 3, 4, 4)")
    again = f"if {start('fmovs', 'FabricOut(2, 5, 3), Mem1d(12, 3, 4, 4)')}: yield from pe.pause()"
    lines = (first, "pe.cycles += 100", again, NOTE_TIME)
    pe, other = run(sends(*lines, memory=floats(*range(6))), takes(take(6)), colors=LINE)
    assert other.f32[:6].tolist() == list(range(6))
    # It has lost a cycle to each of the first three elements.
    assert pe.u32[100] == SWITCH + 2 * vector.LAUNCH + 100 + 3


def test_microthreads_by_name_share_a_queue_on_wse3():
    halves = [
        start("fmovs", f"Mem1d({16 * k}, 4, 4, 4), FabricIn(4, 4)", f"Settings(microthread={k})") for k in range(2)
    ]
    pe = second(sender(8, arch="wse3"), takes(*halves, arch="wse3"))
    assert sorted(pe.f32[:8].tolist()) == list(range(8))


# --- operands ---


def test_sources_from_the_fabric_and_results_to_it():
    line = start("fmacs", "FabricOut(2, 6, 6), Mem1d(0, 6, 4, 4), FabricIn(4, 6), 10.0")
    middle = takes(line, memory=floats(*range(6)), output_queues={2: 6})
    add = 'yield from pe.wait("fadds", (Pointer(80), 0.5, FabricIn(4, 6)), PLAIN)'
    last = takes("pe.f32[20] = 100.0", add, queues={4: 6})
    pes = run(sender(6), middle, last, colors=[(5, 0, [1]), (6, 1, [2])])
    assert pes[2].f32[20] == 0.5 + sum(k + 10 * k for k in range(6))


@pytest.mark.parametrize(
    ("sent", "taken", "found"),
    [
        # Sixteen bits with an index.
        (
            (
                "for k in range(4): pe.u16[k] = 100 + k",
                start("mov16", "FabricOut(2, 5, 4, indexed=True), Mem1d(0, 4, 2, 2)", "Settings(first_index=3)"),
            ),
            'yield from pe.wait("mov16", (Mem1d(0, 4, 4, 2, True), FabricIn(4, 4)), PLAIN)',
            lambda pe: pe.u16[:14].tolist() == [0] * 6 + [100, 0, 101, 0, 102, 0, 103, 0],
        ),
        # Floats of sixteen bits.
        (
            ("for k in range(4): pe.f16[k] = 1.5 * k", start("fmulh", "FabricOut(2, 5, 4), Mem1d(0, 4, 2, 2), 2.0")),
            'yield from pe.wait("fh2s", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)), PLAIN)',
            lambda pe: pe.f32[:4].tolist() == [0.0, 3.0, 6.0, 9.0],
        ),
        # A scalar.
        (
            ('yield from pe.wait("fmovs", (FabricOut(2, 5, 3), 2.5), PLAIN)',),
            'yield from pe.wait("fmovs", (Pointer(8), FabricIn(4, 3)), PLAIN)',
            lambda pe: pe.f32[2] == 2.5,
        ),
    ],
)
def test_other_operands_are_sent_and_taken(sent, taken, found):
    assert found(second(sends(*sent), takes(taken)))


def test_nothing_to_do_still_ends():
    (pe,) = run(
        takes(
            'yield from pe.wait("fmovs", (Mem1d(0, 0, 4, 4), FabricIn(4, 0)), Settings(activate=9))',
            start("fmovs", "Mem1d(0, 0, 4, 4), FabricIn(4, 0)", "Settings(activate=10)"),
            'yield from pe.wait("fmovs", (Mem1d(0, 2, 4, 4), 1.5), Settings(activate=9))',
            start("fmovs", "Mem1d(8, 2, 4, 4), 2.5", "Settings(activate=10)"),
            body="def nine(): pe.u32[100] += 1\ndef ten(): pe.u32[101] = 1",
        )
    )
    assert pe.u32[100:102].tolist() == [1, 1]
    assert pe.f32[:4].tolist() == [1.5, 1.5, 2.5, 2.5]


def test_map_calls_a_function_for_every_element():
    body = """
def double(a, b):
    pe.cycles += 7
    return 2 * a + b
def main():
    pe.map(double, (Mem1d(0, 3, 4, 4), 100, Mem1d(16, 3, 4, 4)), "www")
    pe.u32[100] = pe.cycles
    pe.map(note, (Mem1d(16, 3, 4, 4),), "w")
"""
    (pe,) = run(program(body, memory=np.arange(3, dtype=np.uint32).tobytes()))
    assert pe.u32[4:7].tolist() == [value for value, _ in pe.log] == [100, 102, 104]
    assert pe.u32[100] == vector.START + 3 * (4 + 7)


def test_map_over_the_fabric_takes_the_time_of_its_callback():
    square = "def square(a):\n    pe.cycles += 20\n    return a * a"
    line = 'yield from pe.map_wait(square, (FabricIn(4, 5), Mem1d(0, 5, 4, 4)), "ff")'
    pe = second(sender(5), takes(line, NOTE_TIME, body=square))
    assert pe.f32[:5].tolist() == [0, 1, 4, 9, 16]
    # The first arrives, and is read a cycle later; each takes 24 cycles.
    assert pe.u32[100] == SWITCH + BEGIN + 5 + 1 + 5 * 24


# --- control wavelets ---


def controls(*payloads):
    """A PE that sends 1.5, control wavelets, and 2.5."""
    out = 'yield from pe.wait("{}", (FabricOut(2, 5, 1{}), {}), PLAIN)'
    lines = [out.format("mov32", ", control=True", payload) for payload in payloads]
    return sends(out.format("fmovs", "", 1.5), *lines, out.format("fmovs", "", 2.5))


def test_a_control_wavelet_ends_an_operation_as_it_says():
    add = 'yield from pe.wait("fadds", (Pointer(80), 4.0, FabricIn(4, 1000, OnControl(True, 9))), PLAIN)'
    pe = second(controls(control.encode(())), takes(add, "pe.f32[21] = pe.f32[20]", body="def nine(): pe.u32[100] = 1"))
    assert (pe.f32[21], pe.u32[100]) == (5.5, 1)


def test_discarding_wavelets_up_to_some_control_wavelets():
    drop = 'yield from pe.wait("dfilt", (FabricIn(4, 2),), PLAIN)'
    pe = second(controls(control.encode(()), control.encode(())), takes(drop, take(1)))
    assert pe.f32[0] == 2.5


def test_a_control_wavelet_may_unblock_and_let_the_operation_go_on():
    goes_on = "Settings(on_control=OnControl(False, None, 9))"
    lines = "pe.activate(9)", start("fmovs", "Mem1d(0, 2, 4, 4), FabricIn(4, 2)", goes_on)
    taker = takes(*lines, body="def nine(): pe.u32[100] = 1", blocked=frozenset({9}))
    pe = second(controls(control.encode(())), taker)
    assert (pe.f32[:2].tolist(), pe.u32[100]) == ([1.5, 2.5], 1)


def test_without_on_control_a_control_task_runs_while_the_operation_waits():
    tasks = {40: task("got", "control", argument=("H",))}
    line = start("fmovs", "Mem1d(0, 2, 4, 4), FabricIn(4, 2)")
    taker = takes(line, body="def got(value): pe.u32[100] = value", tasks=tasks)
    pe = second(controls(control.encode((), 40, 7), control.encode(())), taker)
    assert (pe.f32[:2].tolist(), pe.u32[100]) == ([1.5, 2.5], 7)


def test_the_last_wavelet_advances_switches_and_no_pe_sees_the_command():
    pe = second(sender(3, out=", advance_switch=True"), takes(take(3)))
    assert pe.f32[:3].tolist() == [0, 1, 2]
    assert pe.ramp.received == 3
    assert pe.simulation.network.hops() == {(0, 2, 5): 4, (1, 0, 5): 3}


# --- FIFOs and registers ---


def test_a_fifo_between_two_threads():
    middle = takes(
        start("fmovs", "Fifo(0), FabricIn(4, 30)"),
        start("fmovs", "FabricOut(2, 6, 30), Fifo(0)"),
        body="def nine(): pe.u32[0] += 1\ndef ten(): pe.u32[1] += 1",
        output_queues={2: 6},
        fifos=(FifoBuffer(400, 4, 4, activate_push=9, activate_pop=10),),
    )
    last = takes("pe.cycles += 200", take(30), queues={4: 6})
    _, pe, end = run(sender(30), middle, last, colors=[(5, 0, [1]), (6, 1, [2])])
    assert end.f32[:30].tolist() == list(range(30))
    assert 1 <= pe.u32[0] <= 30
    assert 1 <= pe.u32[1] <= 30
    assert pe.fifo_length(0) == 0


def test_a_full_fifo_and_an_empty_one_end_what_the_main_thread_does_and_a_microthread_waits():
    push = main(
        'pe.u32[2] = yield from pe.wait("mov32", (Fifo(0), Mem1d(0, 6, 4, 4)), PLAIN)',
        "pe.u32[3] = pe.fifo_length(0)",
        start("mov32", "Fifo(0), 7"),
    )
    pop = main(
        'pe.u32[2] = yield from pe.wait("mov16", (Fifo(0), 7), PLAIN)',
        'pe.u32[3] = 2 + (yield from pe.wait("mov16", (Mem1d(0, 2, 2, 2), Fifo(0)), PLAIN))',
        start("mov16", "Mem1d(4, 2, 2, 2), Fifo(0)"),
    )
    pushes, pops = program(push, fifos=(FifoBuffer(400, 4, 4),)), program(pop, fifos=(FifoBuffer(400, 4, 2),))
    first, other = run(pushes, pops)
    assert first.u32[2:4].tolist() == [0, 4]
    assert (other.u32[2:4].tolist(), other.u16[0]) == ([1, 2], 7)
    waits = [(wait.thread, wait.kind, wait.done, wait.extent) for wait in first.waiting() + other.waiting()]
    assert waits == [("microthread 7", "push", 0, 1), ("microthread 7", "pop", 0, 2)]


def test_registers_hold_operands_and_settings_and_go_on_where_they_stopped():
    lines = """
dest, src, value = Dsr("dest", 1), Dsr("src1", 2), Dsr("src0", 3)
pe.load_dsr(dest, Mem1d(0, 2, 4, 4), PLAIN, True)
pe.load_dsr(src, FabricIn(4, 2), PLAIN, False)
for _ in range(3):
    yield from pe.wait("fmovs", (dest, src), PLAIN)
pe.load_dsr(dest, Mem1d(80, 2, 4, 4), PLAIN, False)
pe.load_dsr(src, FabricIn(4, 1), Settings(activate=9), False)
pe.start("fmovs", (dest, src))
pe.load_dsr(value, Mem1d(0, 2, 4, 4), PLAIN, True)
pe.run("fadds", (Mem1d(120, 2, 4, 4), value, 1.0))
pe.run("fadds", (Mem1d(128, 2, 4, 4), value, 1.0))
pe.held = pe.read_dsr(value)
"""
    pe = second(sender(8), takes(lines, body="def nine(): pe.u32[100] = 1"))
    assert pe.f32[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert pe.f32[20] == 6
    assert pe.f32[30:34].tolist() == [1, 2, 3, 4]
    assert (pe.held, pe.u32[100]) == (Mem1d(16, 2, 4, 4), 1)


# --- determinism ---


def busy_row(seed=None):
    """Three PEs that send to each other at once, compute, and switch tasks."""
    middle = """
def main():
    pe.start("fmacs", (FabricOut(2, 6, 40), Mem1d(0, 40, 4, 4), FabricIn(4, 40), 0.3), Settings(activate=9))
    pe.start("fmovs", (FabricOut(3, 7, 40), Mem1d(0, 40, 4, 4)), Settings(activate=10, priority="low"))
    pe.cycles += 30
def nine():
    pe.run("fadds", (Mem1d(160, 40, 4, 4), Mem1d(160, 40, 4, 4), 1.0))
    pe.activate(11)
def ten(): pe.cycles += 12
def eleven(): pe.u32[120] = pe.time()
"""
    last = """
def main():
    pe.start("fmovs", (Mem1d(0, 40, 4, 4), FabricIn(4, 40)), Settings(activate=9))
    pe.cycles += 100
def got(word):
    pe.cycles += 2
    pe.u32[200] = (pe.u32[200] + word) & 0xFFFFFFFF
    pe.u32[201] = pe.time()
def nine(): pe.u32[202] = pe.time()
"""
    tasks = {7: task("got", "data", argument=("w",), queue=5, color=7)}
    programs = (
        program(middle, memory=floats(*range(40)), input_queues={4: 5}, output_queues={2: 6, 3: 7}),
        program(last, input_queues={4: 6, 5: 7}, tasks=tasks),
    )
    how = {} if seed is None else {"events": ShuffledEvents(Random(seed))}
    simulation = row(sender(40), *programs, colors=[(5, 0, [1]), (6, 1, [2]), (7, 1, [2])], **how)
    simulation.run_until()
    return [bytes(pe.memory.bytes) for pe in simulation.pes], simulation.events.now, simulation.stats().pes


def test_the_order_of_events_in_a_cycle_does_not_matter():
    expected = busy_row()
    assert expected[0][2][:8] == floats(0, 1 + 0.3 * 1)
    for seed in range(12):
        assert busy_row(seed) == expected


# --- errors ---

BEYOND = "@fmovs must stay inside the 49152 bytes of SRAM, its operand has bytes {}\n" + (
    "hint: the operand's base address, offset, extent or stride is not what it should be"
)
NOT_LOADED = "an operation uses DSR 3 of file src1, @load_to_dsr must have loaded it, it has not"
NOT_BOUND = "@fmovs reads input queue 3, @initialize_queue must bind a color to it, none is bound"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('pe.run("fmovs", (Mem1d(49148, 2, 4, 4), 1.0))', BEYOND.format("49148 to 49155")),
        ('yield from pe.wait("fmovs", (Mem1d(4, 3, -4, 4), FabricIn(4, 3)), PLAIN)', BEYOND.format("-4 to 7")),
        ('pe.run("fmovs", (Mem1d(0, 1, 4, 4), Dsr("src1", 3)))', NOT_LOADED),
        ('pe.start("fmovs", (Mem1d(0, 1, 4, 4), FabricIn(3, 1)))', NOT_BOUND),
        (
            'pe.start("fmovs", (FabricOut(7, 3, 1), 1.0))',
            "@fmovs writes to output queue 7, wse2 must have it, it has 6",
        ),
        ('pe.run("fmovs", (FabricIn(4, 1), 1.0))', f"@fmovs cannot write to {FabricIn(4, 1)!r}"),
        # What is not simulated of settings is refused, on memory too: a result must not be wrong in silence.
        ('yield from pe.wait("and16", (A, A, 1), Settings(saturate=True))', "@and16 with .saturate is not simulated"),
        ('pe.start("and16", (A, A, 1), Settings(saturate=True))', "@and16 with .saturate is not simulated"),
    ],
)
def test_what_is_refused(line, message):
    with pytest.raises(SimulationError) as caught:
        run(takes(line.replace("A, A", "Mem1d(0, 4, 2, 2), Mem1d(0, 4, 2, 2)")))
    assert str(caught.value) == f"PE 0.0, task main (pe.csl:4:1): {message}"


def test_two_operations_that_read_one_queue():
    add = 'yield from pe.wait("fadds", (Mem1d(0, 4, 4, 4), Mem1d(0, 4, 4, 4), FabricIn(4, 4)), PLAIN)'
    with pytest.raises(SimulationError) as caught:
        run(sender(8, pause=100), takes(start("fmovs", "Mem1d(0, 4, 4, 4), FabricIn(4, 4)"), add), colors=LINE)
    assert str(caught.value) == (
        "PE 1.0, task main (pe.csl:4:1): @fadds reads input queue 4, no other operation may read it at the same time, "
        "@fmovs on microthread 4 does"
    )
