"""Which task runs when: activation, blocking, data and control tasks, calls of the host, what is an error."""

from dataclasses import replace

import pytest

from cstool.fabric import control
from cstool.fabric.errors import SimulationError
from cstool.fabric.scheduler import SWITCH, TEARDOWN_TASK
from cstool.fabric.simulation import Simulation
from cstool.fabric.waiting import QueueWait, TaskWait
from tests.unit.fabric.pe_run import program, row, run, task

LOG = """
log = []
def note(name):
    log.append((name, pe.time()))
pe.log = log
"""


def logged(body, **fields):
    return program(LOG + body, **fields)


def names(pe):
    return [name for name, _ in pe.log]


def test_a_task_begins_some_cycles_after_its_activation():
    (pe,) = run(
        logged(
            """
def main():
    note("main")
    pe.activate(9)
    pe.cycles += 10
    note("end")
def other(): note("other")
""",
            tasks={8: task("main"), 9: task("other")},
        )
    )
    assert pe.log == [("main", SWITCH), ("end", SWITCH + 10), ("other", 2 * SWITCH + 10)]
    assert (pe.tasks_run, pe.busy) == (2, 10)


def test_activating_twice_is_activating_once_and_an_activation_from_within_the_task_is_another():
    (pe,) = run(
        logged(
            """
count = [0]
def main():
    pe.activate(9)
    pe.activate(9)
def other():
    note("other")
    count[0] += 1
    if count[0] == 1:
        pe.activate(9)
""",
            tasks={8: task("main"), 9: task("other")},
        )
    )
    assert names(pe) == ["other", "other"]


def test_a_blocked_task_keeps_its_activation():
    (pe,) = run(
        logged(
            """
def main():
    pe.activate(9)
    pe.activate(10)
def late(): note("late")
def free():
    note("free")
    pe.unblock(9)
""",
            tasks={8: task("main"), 9: task("late"), 10: task("free")},
            blocked=frozenset({9}),
        )
    )
    assert names(pe) == ["free", "late"]


def test_a_task_that_stays_blocked_is_reported():
    (pe,) = run(
        logged(
            """
def main():
    pe.block(9)
    pe.activate(9)
def late(): pass
""",
            tasks={8: task("main"), 9: task("late")},
        )
    )
    assert pe.waiting() == [TaskWait(0, 9, "late", "pe.csl:4:1", blocked=True)]


def test_among_several_the_next_higher_id_runs_round_robin():
    (pe,) = run(
        logged(
            """
def main():
    for k in (12, 10, 11, 8): pe.activate(k)
    note("main")
def a():
    note("a")
    if len(log) < 8: pe.activate(10)
def b(): note("b")
def c(): note("c")
""",
            tasks={9: task("main"), 8: task("c"), 10: task("a"), 11: task("b"), 12: task("c")},
        )
    )
    assert names(pe) == ["main", "a", "b", "c", "c", "a", "a", "a"]


SEND = """
def main():
    pe.start("mov32", (FabricOut(2, 5, 6), Mem1d(0, 6, 4, 4)))
"""
SENDER = program(SEND, memory=b"".join(k.to_bytes(4, "little") for k in range(6)), output_queues={2: 5})


def test_a_data_task_runs_for_every_wavelet_with_its_halves():
    _, pe = run(
        SENDER,
        logged(
            """
def got(low, high): note((low, high))
""",
            tasks={5: task("got", "data", argument=("H", "h"), color=5)},
            input_queues={4: 5},
        ),
        colors=[(5, 0, [1])],
    )
    assert names(pe) == [(k, 0) for k in range(6)]
    times = [time for _, time in pe.log]
    assert {later - sooner for sooner, later in zip(times, times[1:], strict=False)} == {SWITCH}
    assert (pe.received, pe.waiting()) == (6, [])


def test_a_color_of_a_data_task_needs_no_queue_of_its_own():
    _, pe = run(
        SENDER,
        logged("def got(word): note(word)", tasks={5: task("got", "data", argument=("w",), color=5)}),
        colors=[(5, 0, [1])],
    )
    assert names(pe) == list(range(6))


def test_a_blocked_data_task_lets_wavelets_wait_and_the_sender_too():
    body = """
def got(word): note(word)
"""
    simulation = row(
        SENDER,
        logged(
            body,
            tasks={5: task("got", "data", argument=("w",), color=5)},
            input_queues={4: 5},
            blocked=frozenset({5}),
        ),
        colors=[(5, 0, [1])],
    )
    simulation.run_until()
    assert simulation.pes[1].tasks_run == 0
    (waits,) = simulation.pes[1].waiting()
    assert waits == TaskWait(1, 5, "got", "pe.csl:3:1", True, waits.wavelets, 5)
    assert 2 <= waits.wavelets <= 4  # the queue's two, and what stood on the ramp
    simulation.pes[1].main.unblock_at(5, simulation.events.now)
    simulation.run_until()
    assert names(simulation.pes[1]) == list(range(6))


def test_a_blocked_queue_blocks_its_data_task():
    _, pe = run(
        SENDER,
        logged(
            """
def main():
    pe.block(64 + 4)
    pe.activate(9)
def nine():
    pe.cycles += 500
    note("nine")
    pe.unblock(64 + 4)
def got(word): note(word)
""",
            tasks={8: task("main"), 9: task("nine"), 5: task("got", "data", argument=("w",), color=5)},
            input_queues={4: 5},
        ),
        colors=[(5, 0, [1])],
    )
    assert names(pe) == ["nine", *range(6)]


def test_the_data_task_of_a_queue_on_wse3():
    _, pe = run(
        program(SEND, arch="wse3", memory=SENDER.memory, output_queues={2: 5}),
        logged(
            "def got(word): note(word)",
            arch="wse3",
            tasks={4: task("got", "data", argument=("w",), queue=4)},
            input_queues={4: 5},
        ),
        colors=[(5, 0, [1])],
    )
    assert names(pe) == list(range(6))


def control_sender(payloads):
    memory = b"".join(each.to_bytes(4, "little") for each in payloads)
    body = f"""
def main():
    pe.start("mov32", (FabricOut(2, 5, {len(payloads)}, control=True), Mem1d(0, {len(payloads)}, 4, 4)))
"""
    return program(body, memory=memory, output_queues={2: 5})


def test_a_control_wavelet_runs_the_task_that_it_names_with_its_data():
    _, pe = run(
        control_sender(
            [control.encode((), 40, 1234), control.encode((), 41), control.encode(()), control.encode((), 63)]
        ),
        logged(
            """
def with_data(value): note(value)
def without(): note("without")
""",
            tasks={40: task("with_data", "control", argument=("H",)), 41: task("without", "control")},
            input_queues={4: 5},
        ),
        colors=[(5, 0, [1])],
    )
    # The last two name no task of this program: nothing runs, and they are gone.
    assert names(pe) == [1234, "without"]
    assert (pe.received, pe.waiting()) == (4, [])


def test_wavelets_that_nobody_takes_are_reported():
    _, pe = run(SENDER, program("pass", tasks={}, input_queues={4: 5}), colors=[(5, 0, [1])])
    (waits,) = pe.waiting()
    assert waits == QueueWait(1, 4, 5, waits.count)


def test_the_host_calls_a_function_with_arguments():
    simulation = row(
        logged(
            """
def compute(a, b):
    note((a, b))
    pe.activate(9)
    pe.cycles += 4
    pe.host_unblock()
def nine(): note("nine")
""",
            tasks={9: task("nine")},
        )
    )
    unblocked = []
    simulation.on_unblock = lambda pe: unblocked.append((pe, simulation.events.now))
    simulation.launch(0, "compute", (3, 1.5))
    simulation.run_until()
    pe = simulation.pes[0]
    assert pe.log == [((3, 1.5), SWITCH), ("nine", 2 * SWITCH + 4)]
    assert unblocked == [(0, SWITCH + 4)]


def test_the_teardown_task_runs_when_a_queue_is_empty():
    _, pe = run(
        SENDER,
        logged(
            """
def main():
    pe.queue_flush(4, False)
    note("asked")
def teardown(): note(("teardown", pe.config_read(0x140)))
def got(word): note(word)
""",
            tasks={8: task("main"), 5: task("got", "data", argument=("w",), color=5), TEARDOWN_TASK: task("teardown")},
            input_queues={4: 5},
        ),
        colors=[(5, 0, [1])],
    )
    assert names(pe)[:2] == ["asked", ("teardown", 1 << 4)]
    assert names(pe)[2:] == list(range(6))


def test_the_teardown_task_runs_for_a_color_that_begins_in_teardown():
    tasks = {5: task("got", "data", argument=("w",), color=5), TEARDOWN_TASK: task("teardown")}
    body = """
def got(word): note(word)
def teardown():
    note("teardown")
    pe.config_write(address, pe.config_read(address) & ~0x100)
address = 0x200 + 8 * 5 + 4
"""
    program = row(SENDER, logged(body, tasks=tasks, input_queues={4: 5}), colors=[(5, 0, [1])]).program
    configs = (program.configs[0], replace(program.configs[1], teardown=True))
    simulation = Simulation(replace(program, configs=configs))
    simulation.run_until()
    assert simulation.pes[1].log[0] == ("teardown", SWITCH)
    assert names(simulation.pes[1])[1:] == list(range(6))


# --- errors ---


def fails(body, **fields):
    with pytest.raises(SimulationError) as caught:
        run(logged(body, **fields))
    return str(caught.value)


def test_activating_what_is_no_task_is_an_error():
    assert fails("def main(): pe.activate(9)") == (
        "PE 0.0, task main (pe.csl:4:1): a local task must be bound to id 9 that is activated, no task is"
    )
    tasks = {8: task("main"), 5: task("got", "data", color=5)}
    assert fails("def main(): pe.activate(5)\ndef got(): pass", tasks=tasks) == (
        "PE 0.0, task main (pe.csl:4:1): a local task must be bound to id 5 that is activated, data task got is"
    )


def test_a_program_that_never_ends_is_an_error():
    program_ = logged("def main(): pe.activate(8)")
    simulation = row(program_, max_cycles=100)
    with pytest.raises(SimulationError) as caught:
        simulation.run_until()
    assert str(caught.value) == (
        "the program did not end within 100 cycles\n"
        "hint: a longer --max_cycles lets it go on; a task that activates itself, or a loop, may never end"
    )


def test_an_assertion_that_fails_ends_the_simulation():
    assert fails('def main(): pe.fail("assertion failed: n < 4", "pe.csl:9:3")') == (
        "PE 0.0, pe.csl:9:3: assertion failed: n < 4"
    )


def test_lines_of_the_log_come_with_cycle_and_pe():
    lines = []
    program_ = logged('def main():\n    pe.cycles += 2\n    pe.say("hello")')
    run(program_, program_, on_say=lambda *line: lines.append(line))
    assert lines == [(SWITCH + 2, 0, "hello"), (SWITCH + 2, 1, "hello")]


def test_a_pointer_beyond_the_sram():
    expected = (
        "PE 0.0, task main (pe.csl:4:1): a pointer must stay inside the 49152 bytes of SRAM, this task used one that "
        "does not\nhint: look at what it adds to pointers, and at indices of many-item pointers"
    )
    assert fails("def main(): pe.u32[12288] = 1") == expected
    assert fails("def main(): pe.load('w', 49150)") == expected


def test_a_multiply_add_rounds_its_product_where_that_is_asked_for():
    body = """
def main():
    pe.f32[0], pe.f32[1] = 2.0**24, 1.0 + 2.0**-23
    pe.run("fmacs", (Mem1d(8, 1, 4, 4), Mem1d(0, 1, 4, 4), Mem1d(4, 1, 4, 4), 1.0 - 2.0**-24))
"""
    assert run(logged(body))[0].f32[2] == 2**24 + 2
    assert run(logged(body), fused=False)[0].f32[2] == 2**24
