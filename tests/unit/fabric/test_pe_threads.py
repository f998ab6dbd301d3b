"""Operations that wait: microthreads, the main thread, FIFOs, registers, control wavelets; cycles, errors."""

from random import Random

import numpy as np
import pytest

from cstool.fabric import control, vector
from cstool.fabric.dsd import FabricIn, Mem1d
from cstool.fabric.errors import SimulationError
from cstool.fabric.program import FifoBuffer
from cstool.fabric.scheduler import SWITCH
from cstool.fabric.waiting import ThreadWait
from tests.unit.fabric.pe_run import ShuffledEvents, program, row, run, task

RAMP = 2


def floats(*values):
    return np.array(values, np.float32).tobytes()


def sender(count, *, pause=0, color=5, queue=2, arch="wse2", memory=None, settings="PLAIN", out=""):
    """Sends floats 0, 1, 2, ... after a pause."""
    body = f"""
def main():
    pe.cycles += {pause}
    pe.start("fmovs", (FabricOut({queue}, {color}, {count}{out}), Mem1d(0, {count}, 4, 4)), {settings})
"""
    return program(body, arch=arch, memory=memory or floats(*range(count)), output_queues={queue: color})


def receiver(body, arch="wse2", queues=None, **fields):
    return program(body, arch=arch, input_queues=queues or {4: 5}, **fields)


LINE = [(5, 0, [1])]


def words(pe, *places):
    return [pe.f32[place] for place in places]


# --- what arrives when ---


def test_a_stream_takes_a_cycle_an_element_and_the_way():
    count = 50
    first, second = run(
        sender(count),
        receiver(
            f"""
def main():
    yield from pe.wait("fmovs", (Mem1d(0, {count}, 4, 4), FabricIn(4, {count})), PLAIN)
    pe.u32[100] = pe.time()
"""
        ),
        colors=LINE,
    )
    assert second.f32[:count].tolist() == list(range(count))
    # The first element leaves START after the task; ramp, hop, ramp; each element takes a cycle in the PE that gets it.
    assert second.u32[100] == SWITCH + vector.START + RAMP + 1 + RAMP + count + 1
    assert (first.sent, second.received, second.elements) == (count, count, count)


def test_a_wavelet_passes_through_a_pe_in_two_ramps_and_a_cycle():
    def relay(into, out):
        return program(
            f"""
def main():
    pe.start("fmovs", (FabricOut(2, {out}, 4), FabricIn(4, 4)))
""",
            input_queues={4: into},
            output_queues={2: out},
        )

    last = receiver(
        """
def main():
    yield from pe.wait("fmovs", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)), PLAIN)
    pe.u32[100] = pe.time()
""",
        queues={4: 7},
    )
    pes = run(sender(4), relay(5, 6), relay(6, 7), last, colors=[(5, 0, [1]), (6, 1, [2]), (7, 2, [3])])
    assert pes[3].f32[:4].tolist() == [0, 1, 2, 3]
    # A relay costs two ramps, a hop and a cycle (Luczynski et al., HPDC'24: 2 T_R + 1 for the PE).
    assert pes[3].u32[100] == SWITCH + vector.START + (2 * RAMP + 1) + 2 * (2 * RAMP + 2) + 4 + 1


def test_the_main_thread_loses_what_microthreads_take():
    _, pe = run(
        sender(60),
        receiver(
            """
def main():
    pe.start("fmovs", (Mem1d(0, 60, 4, 4), FabricIn(4, 60)))
    pe.cycles += 200
    pe.activate(9)
def after():
    pe.u32[100] = pe.time()
""",
            tasks={8: task("main"), 9: task("after")},
        ),
        colors=LINE,
    )
    assert pe.u32[100] == SWITCH + vector.LAUNCH + 200 + 60 + SWITCH


def test_a_slow_receiver_stops_the_sender():
    body = """
def main():
    pe.cycles += 1000
    yield from pe.wait("fadds", (Mem1d(0, 40, 4, 4), Mem1d(0, 40, 4, 4), FabricIn(4, 40)), PLAIN)
"""
    simulation = row(sender(40), receiver(body, memory=floats(*[1] * 40)), colors=LINE)
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
    first, second = run(
        program(
            """
def main():
    pe.start("fmovs", (FabricOut(2, 5, 4), Mem1d(0, 4, 4, 4)), Settings(activate=9, unblock=10))
    pe.activate(10)
def nine(): pe.u32[101] = pe.time()
def ten(): pe.u32[102] = pe.time()
""",
            memory=floats(*range(4)),
            output_queues={2: 5},
            tasks={8: task("main"), 9: task("nine"), 10: task("ten")},
            blocked=frozenset({10}),
        ),
        receiver(
            """
def main():
    pe.start("fmovs", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)), Settings(activate=9))
def nine(): pe.f32[100] = pe.f32[3]
""",
            tasks={8: task("main"), 9: task("nine")},
        ),
        colors=LINE,
    )
    end = SWITCH + vector.START + 4
    assert first.u32[101:103].tolist() == [end + SWITCH, end + 2 * SWITCH]
    assert second.f32[100] == 3.0


def test_two_streams_share_the_ramp_fairly():
    both = program(
        """
def main():
    pe.start("fmovs", (FabricOut(2, 5, 20), Mem1d(0, 20, 4, 4)))
    pe.start("fmovs", (FabricOut(3, 6, 20), Mem1d(0, 20, 4, 4)))
""",
        memory=floats(*range(20)),
        output_queues={2: 5, 3: 6},
    )
    body = """
def main():
    pe.start("fmovs", (Mem1d(0, 20, 4, 4), FabricIn(4, 20)), Settings(activate=9))
    pe.start("fmovs", (Mem1d(80, 20, 4, 4), FabricIn(5, 20)), Settings(activate=10))
def nine(): pe.u32[100] = pe.time()
def ten(): pe.u32[101] = pe.time()
"""
    _, pe = run(
        both,
        receiver(body, queues={4: 5, 5: 6}, tasks={8: task("main"), 9: task("nine"), 10: task("ten")}),
        colors=[(5, 0, [1]), (6, 0, [1])],
    )
    assert pe.f32[:40].tolist() == [*range(20), *range(20)]
    assert abs(pe.u32[100] - pe.u32[101]) <= 2 * SWITCH


def test_a_microthread_of_high_priority_goes_first():
    both = program(
        """
def main():
    pe.start("fmovs", (FabricOut(2, 5, 20), Mem1d(0, 20, 4, 4)))
    pe.start("fmovs", (FabricOut(3, 6, 20), Mem1d(0, 20, 4, 4)), Settings(priority="high", activate=9))
def nine(): pe.u32[100] = pe.time()
""",
        memory=floats(*range(20)),
        output_queues={2: 5, 3: 6},
        tasks={8: task("main"), 9: task("nine")},
    )
    body = """
def main():
    pe.start("fmovs", (Mem1d(0, 20, 4, 4), FabricIn(4, 20)))
    pe.start("fmovs", (Mem1d(80, 20, 4, 4), FabricIn(5, 20)))
"""
    pe, _ = run(both, receiver(body, queues={4: 5, 5: 6}), colors=[(5, 0, [1]), (6, 0, [1])])
    assert pe.u32[100] < 60


def test_a_second_operation_on_a_microthread_waits_and_so_does_the_task_that_asks_for_it():
    pe, other = run(
        program(
            """
def main():
    pe.start("fmovs", (FabricOut(2, 5, 30), Mem1d(0, 30, 4, 4)))
    pe.start("fmovs", (FabricOut(2, 5, 10), Mem1d(120, 10, 4, 4)))
    pe.activate(9)
def nine(): pe.u32[100] = pe.time()
""",
            memory=floats(*range(40)),
            output_queues={2: 5},
            tasks={8: task("main"), 9: task("nine")},
        ),
        receiver(
            """
def main():
    yield from pe.wait("fmovs", (Mem1d(0, 40, 4, 4), FabricIn(4, 40)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert other.f32[:40].tolist() == list(range(40))
    # It ends when the microthread is free, a cycle after the 30th element.
    assert pe.u32[100] == SWITCH + vector.START + 30 + SWITCH


def test_microthreads_by_name_share_a_queue_on_wse3():
    _, pe = run(
        sender(8, arch="wse3"),
        receiver(
            """
def main():
    pe.start("fmovs", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)), Settings(microthread=0))
    pe.start("fmovs", (Mem1d(16, 4, 4, 4), FabricIn(4, 4)), Settings(microthread=1))
""",
            arch="wse3",
        ),
        colors=LINE,
    )
    assert sorted(pe.f32[:8].tolist()) == list(range(8))


# --- operands ---


def test_sources_from_the_fabric_and_results_to_it():
    middle = program(
        """
def main():
    pe.start("fmacs", (FabricOut(2, 6, 6), Mem1d(0, 6, 4, 4), FabricIn(4, 6), 10.0))
""",
        memory=floats(*range(6)),
        input_queues={4: 5},
        output_queues={2: 6},
    )
    last = receiver(
        """
def main():
    pe.f32[20] = 100.0
    yield from pe.wait("fadds", (Pointer(80), 0.5, FabricIn(4, 6)), PLAIN)
""",
        queues={4: 6},
    )
    pes = run(sender(6), middle, last, colors=[(5, 0, [1]), (6, 1, [2])])
    assert pes[2].f32[20] == 0.5 + sum(k + 10 * k for k in range(6))


def test_sixteen_bits_with_an_index():
    first = program(
        """
def main():
    for k in range(4): pe.u16[k] = 100 + k
    pe.start("mov16", (FabricOut(2, 5, 4, indexed=True), Mem1d(0, 4, 2, 2)), Settings(first_index=3))
""",
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    yield from pe.wait("mov16", (Mem1d(0, 4, 4, 2, True), FabricIn(4, 4)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert pe.u16[:14].tolist() == [0] * 6 + [100, 0, 101, 0, 102, 0, 103, 0]


def test_float16_over_the_fabric():
    first = program(
        """
def main():
    for k in range(4): pe.f16[k] = 1.5 * k
    pe.start("fmulh", (FabricOut(2, 5, 4), Mem1d(0, 4, 2, 2), 2.0))
""",
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    yield from pe.wait("fh2s", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert pe.f32[:4].tolist() == [0.0, 3.0, 6.0, 9.0]


def test_a_scalar_is_sent_and_received():
    first = program(
        """
def main():
    yield from pe.wait("fmovs", (FabricOut(2, 5, 3), 2.5), PLAIN)
""",
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    yield from pe.wait("fmovs", (Pointer(8), FabricIn(4, 3)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert pe.f32[2] == 2.5


def test_nothing_to_do_still_ends():
    (pe,) = run(
        program(
            """
def main():
    yield from pe.wait("fmovs", (Mem1d(0, 0, 4, 4), FabricIn(4, 0)), Settings(activate=9))
    pe.start("fmovs", (Mem1d(0, 0, 4, 4), FabricIn(4, 0)), Settings(activate=10))
    yield from pe.wait("fmovs", (Mem1d(0, 2, 4, 4), 1.5), Settings(activate=9))
    pe.start("fmovs", (Mem1d(8, 2, 4, 4), 2.5), Settings(activate=10))
def nine(): pe.u32[100] += 1
def ten(): pe.u32[101] = 1
""",
            input_queues={4: 5},
            tasks={8: task("main"), 9: task("nine"), 10: task("ten")},
        )
    )
    assert pe.u32[100:102].tolist() == [1, 1]
    assert pe.f32[:4].tolist() == [1.5, 1.5, 2.5, 2.5]


def test_map_calls_a_function_for_every_element():
    (pe,) = run(
        program(
            """
total = []
def double(a, b):
    pe.cycles += 7
    return 2 * a + b
def note(a): total.append(a)
def main():
    pe.map(double, (Mem1d(0, 3, 4, 4), 100, Mem1d(16, 3, 4, 4)), "www")
    pe.u32[100] = pe.cycles
    pe.map(note, (Mem1d(16, 3, 4, 4),), "w")
    pe.total = total
""",
            memory=np.arange(3, dtype=np.uint32).tobytes(),
        )
    )
    assert pe.u32[4:7].tolist() == pe.total == [100, 102, 104]
    assert pe.u32[100] == vector.START + 3 * (4 + 7)


def test_map_over_the_fabric_takes_the_time_of_its_callback():
    _, pe = run(
        sender(5),
        receiver(
            """
def square(a):
    pe.cycles += 20
    return a * a
def main():
    yield from pe.map_wait(square, (FabricIn(4, 5), Mem1d(0, 5, 4, 4)), "ff")
    pe.u32[100] = pe.time()
"""
        ),
        colors=LINE,
    )
    assert pe.f32[:5].tolist() == [0, 1, 4, 9, 16]
    # The first arrives, and is read a cycle later; each takes 24 cycles.
    assert pe.u32[100] == SWITCH + vector.START + 5 + 1 + 5 * 24


def test_discarding_wavelets():
    _, pe = run(
        sender(9),
        receiver(
            """
def main():
    yield from pe.wait("dfilt", (FabricIn(4, 6),), PLAIN)
    yield from pe.wait("fmovs", (Mem1d(0, 3, 4, 4), FabricIn(4, 3)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert pe.f32[:3].tolist() == [6, 7, 8]


# --- control wavelets ---


def test_a_control_wavelet_ends_an_operation_as_it_says():
    first = program(
        f"""
def main():
    yield from pe.wait("fmovs", (FabricOut(2, 5, 3), Mem1d(0, 3, 4, 4)), PLAIN)
    yield from pe.wait("mov32", (FabricOut(2, 5, 1, control=True), {control.encode(())}), PLAIN)
""",
        memory=floats(1, 2, 3),
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    control = OnControl(True, 9)
    yield from pe.wait("fadds", (Pointer(80), 0.0, FabricIn(4, 1000, control)), PLAIN)
    pe.f32[21] = pe.f32[20]
def nine(): pe.u32[100] = 1
""",
            tasks={8: task("main"), 9: task("nine")},
        ),
        colors=LINE,
    )
    assert (pe.f32[21], pe.u32[100]) == (6.0, 1)


def test_a_control_wavelet_may_unblock_and_let_the_operation_go_on():
    first = program(
        f"""
def main():
    yield from pe.wait("fmovs", (FabricOut(2, 5, 1), 1.5), PLAIN)
    yield from pe.wait("mov32", (FabricOut(2, 5, 1, control=True), {control.encode(())}), PLAIN)
    yield from pe.wait("fmovs", (FabricOut(2, 5, 1), 2.5), PLAIN)
""",
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    pe.activate(9)
    pe.start("fmovs", (Mem1d(0, 2, 4, 4), FabricIn(4, 2)), Settings(on_control=OnControl(False, None, 9)))
def nine(): pe.u32[100] = 1
""",
            tasks={8: task("main"), 9: task("nine")},
            blocked=frozenset({9}),
        ),
        colors=LINE,
    )
    assert (pe.f32[:2].tolist(), pe.u32[100]) == ([1.5, 2.5], 1)


def test_without_on_control_a_control_task_runs_while_the_operation_waits():
    first = program(
        f"""
def main():
    yield from pe.wait("fmovs", (FabricOut(2, 5, 1), 1.5), PLAIN)
    yield from pe.wait("mov32", (FabricOut(2, 5, 1, control=True), {control.encode((), 40, 7)}), PLAIN)
    yield from pe.wait("mov32", (FabricOut(2, 5, 1, control=True), {control.encode(())}), PLAIN)
    yield from pe.wait("fmovs", (FabricOut(2, 5, 1), 2.5), PLAIN)
""",
        output_queues={2: 5},
    )
    _, pe = run(
        first,
        receiver(
            """
def main():
    pe.start("fmovs", (Mem1d(0, 2, 4, 4), FabricIn(4, 2)))
def got(value): pe.u32[100] = value
""",
            tasks={8: task("main"), 40: task("got", "control", argument=("H",))},
        ),
        colors=LINE,
    )
    assert (pe.f32[:2].tolist(), pe.u32[100]) == ([1.5, 2.5], 7)


def test_the_last_wavelet_advances_switches_and_no_pe_sees_the_command():
    _, pe = run(
        sender(3, out=", advance_switch=True"),
        receiver(
            """
def main():
    yield from pe.wait("fmovs", (Mem1d(0, 3, 4, 4), FabricIn(4, 3)), PLAIN)
"""
        ),
        colors=LINE,
    )
    assert pe.f32[:3].tolist() == [0, 1, 2]
    assert pe.received == 3
    assert pe.simulation.network.hops() == {(0, 2, 5): 4, (1, 0, 5): 3}


# --- FIFOs and registers ---

RING = FifoBuffer(400, 4, 4, activate_push=9, activate_pop=10)


def test_a_fifo_between_two_threads():
    _, middle, last = run(
        sender(30),
        program(
            """
def main():
    pe.start("fmovs", (Fifo(0), FabricIn(4, 30)))
    pe.start("fmovs", (FabricOut(2, 6, 30), Fifo(0)))
def pushed(): pe.u32[0] += 1
def popped(): pe.u32[1] += 1
""",
            input_queues={4: 5},
            output_queues={2: 6},
            fifos=(RING,),
            tasks={8: task("main"), 9: task("pushed"), 10: task("popped")},
        ),
        receiver(
            """
def main():
    pe.cycles += 200
    yield from pe.wait("fmovs", (Mem1d(0, 30, 4, 4), FabricIn(4, 30)), PLAIN)
""",
            queues={4: 6},
        ),
        colors=[(5, 0, [1]), (6, 1, [2])],
    )
    assert last.f32[:30].tolist() == list(range(30))
    assert 1 <= middle.u32[0] <= 30
    assert 1 <= middle.u32[1] <= 30
    assert middle.fifo_length(0) == 0


def test_a_full_fifo_and_an_empty_one_end_what_the_main_thread_does_and_a_microthread_waits():
    push = program(
        """
def main():
    pe.u32[2] = yield from pe.wait("mov32", (Fifo(0), Mem1d(0, 6, 4, 4)), PLAIN)
    pe.u32[3] = pe.fifo_length(0)
    pe.start("mov32", (Fifo(0), 7), PLAIN)
""",
        fifos=(FifoBuffer(400, 4, 4),),
    )
    pop = program(
        """
def main():
    pe.u32[2] = yield from pe.wait("mov16", (Fifo(0), 7), PLAIN)
    pe.u32[3] = 2 + (yield from pe.wait("mov16", (Mem1d(0, 2, 2, 2), Fifo(0)), PLAIN))
    pe.start("mov16", (Mem1d(4, 2, 2, 2), Fifo(0)), PLAIN)
""",
        fifos=(FifoBuffer(400, 4, 2),),
    )
    first, second = run(push, pop)
    assert first.u32[2:4].tolist() == [0, 4]
    assert (second.u32[2:4].tolist(), second.u16[0]) == ([1, 2], 7)
    waits = [(wait.thread, wait.kind, wait.done, wait.extent) for wait in first.waiting() + second.waiting()]
    assert waits == [("microthread 7", "push", 0, 1), ("microthread 7", "pop", 0, 2)]


def test_registers_hold_operands_and_settings_and_go_on_where_they_stopped():
    _, pe = run(
        sender(8),
        receiver(
            """
def main():
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
def nine(): pe.u32[100] = 1
""",
            tasks={8: task("main"), 9: task("nine")},
        ),
        colors=LINE,
    )
    assert pe.f32[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert pe.f32[20] == 6
    assert pe.f32[30:34].tolist() == [1, 2, 3, 4]
    assert (pe.held, pe.u32[100]) == (Mem1d(16, 2, 4, 4), 1)


# --- determinism ---


def busy_row(seed=None):
    """Three PEs that send to each other at once, compute, and switch tasks."""
    middle = program(
        """
def main():
    pe.start("fmacs", (FabricOut(2, 6, 40), Mem1d(0, 40, 4, 4), FabricIn(4, 40), 0.3), Settings(activate=9))
    pe.start("fmovs", (FabricOut(3, 7, 40), Mem1d(0, 40, 4, 4)), Settings(activate=10, priority="low"))
    pe.cycles += 30
def nine():
    pe.run("fadds", (Mem1d(160, 40, 4, 4), Mem1d(160, 40, 4, 4), 1.0))
    pe.activate(11)
def ten(): pe.cycles += 12
def eleven(): pe.u32[120] = pe.time()
""",
        memory=floats(*range(40)),
        input_queues={4: 5},
        output_queues={2: 6, 3: 7},
        tasks={8: task("main"), 9: task("nine"), 10: task("ten"), 11: task("eleven")},
    )
    last = program(
        """
def main():
    pe.start("fmovs", (Mem1d(0, 40, 4, 4), FabricIn(4, 40)), Settings(activate=9))
    pe.cycles += 100
def got(word):
    pe.cycles += 2
    pe.u32[200] = (pe.u32[200] + word) & 0xFFFFFFFF
    pe.u32[201] = pe.time()
def nine(): pe.u32[202] = pe.time()
""",
        input_queues={4: 6, 5: 7},
        tasks={8: task("main"), 9: task("nine"), 7: task("got", "data", argument=("w",), queue=5, color=7)},
    )
    how = {} if seed is None else {"events": ShuffledEvents(Random(seed))}
    simulation = row(sender(40), middle, last, colors=[(5, 0, [1]), (6, 1, [2]), (7, 1, [2])], **how)
    simulation.run_until()
    return [bytes(pe.memory.bytes) for pe in simulation.pes], simulation.events.now, simulation.stats().pes


def test_the_order_of_events_in_a_cycle_does_not_matter():
    expected = busy_row()
    assert expected[0][2][:8] == floats(0, 1 + 0.3 * 1)
    for seed in range(12):
        assert busy_row(seed) == expected


# --- errors ---


def fails(*programs, colors=LINE):
    with pytest.raises(SimulationError) as caught:
        run(*programs, colors=colors)
    return str(caught.value)


def alone(line, **fields):
    return fails(program(f"def main():\n    {line}", **fields), colors=())


def test_operands_beyond_the_sram():
    where = "PE 0.0, task main (pe.csl:4:1): "
    hint = "\nhint: the operand's base address, offset, extent or stride is not what it should be"
    assert alone('pe.run("fmovs", (Mem1d(49148, 2, 4, 4), 1.0))') == (
        f"{where}@fmovs must stay inside the 49152 bytes of SRAM, its operand has bytes 49148 to 49155{hint}"
    )
    assert alone('yield from pe.wait("fmovs", (Mem1d(4, 3, -4, 4), FabricIn(4, 3)), PLAIN)', input_queues={4: 5}) == (
        f"{where}@fmovs must stay inside the 49152 bytes of SRAM, its operand has bytes -4 to 7{hint}"
    )


def test_an_empty_register():
    assert alone('pe.run("fmovs", (Mem1d(0, 1, 4, 4), Dsr("src1", 3)))') == (
        "PE 0.0, task main (pe.csl:4:1): an operation uses DSR 3 of file src1, @load_to_dsr must have loaded it, "
        "it has not"
    )


def test_queues_without_a_color():
    assert alone('pe.start("fmovs", (Mem1d(0, 1, 4, 4), FabricIn(3, 1)))') == (
        "PE 0.0, task main (pe.csl:4:1): @fmovs reads input queue 3, @initialize_queue must bind a color to it, "
        "none is bound"
    )
    assert alone('pe.start("fmovs", (FabricOut(7, 3, 1), 1.0))') == (
        "PE 0.0, task main (pe.csl:4:1): @fmovs writes to output queue 7, wse2 must have it, it has 6"
    )


def test_two_operations_that_read_one_queue():
    body = """
def main():
    pe.start("fmovs", (Mem1d(0, 4, 4, 4), FabricIn(4, 4)))
    yield from pe.wait("fadds", (Mem1d(0, 4, 4, 4), Mem1d(0, 4, 4, 4), FabricIn(4, 4)), PLAIN)
"""
    assert fails(sender(8, pause=100), receiver(body)) == (
        "PE 1.0, task main (pe.csl:4:1): @fadds reads input queue 4, no other operation may read it at the same time, "
        "@fmovs on microthread 4 does"
    )


def test_what_cannot_be_an_operand():
    assert alone('pe.run("fmovs", (FabricIn(4, 1), 1.0))') == (
        f"PE 0.0, task main (pe.csl:4:1): @fmovs cannot write to {FabricIn(4, 1)!r}"
    )
