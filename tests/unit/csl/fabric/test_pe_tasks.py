"""Which task runs when: activation, blocking, data and control tasks, calls of the host, what is an error."""

from dataclasses import replace

import pytest

from cstool.csl.fabric import control
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.program import Symbol
from cstool.csl.fabric.scheduler import TEARDOWN_TASK
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.time_model import SIMULATOR
from cstool.csl.fabric.waiting import QueueWait, TaskWait
from tests.unit.csl.fabric.pe_run import main, program, row, run, task

SWITCH = SIMULATOR.switch


def names(pe):
    return [name for name, _ in pe.log]


def test_a_task_begins_some_cycles_after_its_activation():
    body = main('note("main")', "pe.activate(9)", "pe.cycles += 10", 'note("end")') + '\ndef nine(): note("nine")'
    (pe,) = run(program(body))
    assert pe.log == [("main", SWITCH), ("end", SWITCH + 10), ("nine", 2 * SWITCH + 10)]
    assert (pe.main.tasks_run, pe.main.busy) == (2, 10)


@pytest.mark.parametrize(
    ("body", "blocked", "ran"),
    [
        # Activated twice is activated once; an activation from within the task is another.
        (
            """
def main(): pe.activate(9); pe.activate(9)
def nine():
    note("nine")
    if len(log) == 1: pe.activate(9)
""",
            (),
            ["nine", "nine"],
        ),
        # The picker has chosen it two cycles later: an activation from then on is another.
        (
            """
def main(): pe.activate(9); pe.simulation.events.at(pe.base + 2, pe.main.activate_at, 9, pe.base + 2)
def nine(): note("nine")
""",
            (),
            ["nine", "nine"],
        ),
        # A blocked task keeps its activation.
        (
            """
def main(): pe.activate(9); pe.activate(10)
def nine(): note("late")
def ten(): note("free"); pe.unblock(9)
""",
            (9,),
            ["free", "late"],
        ),
    ],
)
def test_activated_and_blocked_tasks(body, blocked, ran):
    (pe,) = run(program(body, blocked=frozenset(blocked)))
    assert names(pe) == ran


def test_a_task_that_stays_blocked_is_reported():
    (pe,) = run(program("def main(): pe.block(9); pe.activate(9)\ndef nine(): pass"))
    assert pe.waiting() == [TaskWait(0, 9, "nine", "pe.csl:4:1", blocked=True)]


def test_among_several_the_next_higher_id_runs_round_robin():
    body = """
def begin():
    for k in (12, 10, 11, 8): pe.activate(k)
    note("begin")
def a():
    note("a")
    if len(log) < 8: pe.activate(10)
def b(): note("b")
def c(): note("c")
"""
    tasks = {9: task("begin"), 8: task("c"), 10: task("a"), 11: task("b"), 12: task("c")}
    (pe,) = run(program(body, tasks=tasks, activated=(9,)))
    assert names(pe) == ["begin", "a", "b", "c", "c", "a", "a", "a"]


SEND = main('pe.start("mov32", (FabricOut(2, 5, 6), Mem1d(0, 6, 4, 4)))')
SENDER = program(SEND, memory=b"".join(k.to_bytes(4, "little") for k in range(6)), output_queues={2: 5})
LINE = [(5, 0, [1])]
GOT = "def got(word): note(word)\n"
GOT_TASK = {5: task("got", "data", argument=("w",), color=5)}


def taken(body, sender=SENDER, **fields):
    """A PE behind a sender."""
    return run(sender, program(body, **{"input_queues": {4: 5}, **fields}), colors=LINE)[1]


def test_a_data_task_runs_for_every_wavelet_with_its_halves():
    halves = {5: task("got", "data", argument=("H", "h"), color=5)}
    pe = taken("def got(low, high): note((low, high))", tasks=halves)
    assert names(pe) == [(k, 0) for k in range(6)]
    times = [time for _, time in pe.log]
    assert {later - sooner for sooner, later in zip(times, times[1:], strict=False)} == {SWITCH}
    assert (pe.ramp.received, pe.waiting()) == (6, [])


def test_the_data_task_of_a_color_that_needs_no_queue_and_of_a_queue_on_wse3():
    assert names(taken(GOT, tasks=GOT_TASK, input_queues={})) == list(range(6))
    sender = program(SEND, arch="wse3", memory=SENDER.memory, output_queues={2: 5})
    of_queue = {4: task("got", "data", argument=("w",), queue=4)}
    assert names(taken(GOT, sender, arch="wse3", tasks=of_queue)) == list(range(6))


def test_a_blocked_data_task_lets_wavelets_wait_and_the_sender_too():
    pe = program(GOT, tasks=GOT_TASK, input_queues={4: 5}, blocked=frozenset({5}))
    simulation = row(SENDER, pe, colors=LINE)
    simulation.run_until()
    assert simulation.pes[1].main.tasks_run == 0
    (waits,) = simulation.pes[1].waiting()
    assert waits == TaskWait(1, 5, "got", "pe.csl:3:1", True, waits.wavelets, 5)
    assert 2 <= waits.wavelets <= 4  # the queue's two, and what stood on the ramp
    simulation.pes[1].main.unblock_at(5, simulation.events.now)
    simulation.run_until()
    assert names(simulation.pes[1]) == list(range(6))


def test_a_blocked_queue_blocks_its_data_task():
    body = """
def main(): pe.block(64 + 4); pe.activate(9)
def nine(): pe.cycles += 500; note("nine"); pe.unblock(64 + 4)
"""
    assert names(taken(body + GOT, tasks=GOT_TASK)) == ["nine", *range(6)]


def test_a_control_wavelet_runs_the_task_that_it_names_with_its_data():
    # The last two name no task of this program: nothing runs, and they are gone.
    payloads = [control.encode((), 40, 1234), control.encode((), 41), control.encode(()), control.encode((), 63)]
    send = main('pe.start("mov32", (FabricOut(2, 5, 4, control=True), Mem1d(0, 4, 4, 4)))')
    sender = program(send, memory=b"".join(each.to_bytes(4, "little") for each in payloads), output_queues={2: 5})
    body = 'def with_data(value): note(value)\ndef without(): note("without")'
    tasks = {40: task("with_data", "control", argument=("H",)), 41: task("without", "control")}
    pe = taken(body, sender, tasks=tasks)
    assert names(pe) == [1234, "without"]
    assert (pe.ramp.received, pe.waiting()) == (4, [])


def test_wavelets_that_nobody_takes_are_reported():
    (waits,) = taken("pass").waiting()
    assert waits == QueueWait(1, 4, 5, waits.count)


def test_the_host_calls_a_function_with_arguments():
    body = """
def compute(a, b): note((a, b)); pe.activate(9); pe.cycles += 4; pe.host_unblock()
def nine(): note("nine")
"""
    simulation = row(program(body))
    unblocked = []
    simulation.on_unblock = lambda pe: unblocked.append((pe, simulation.events.now))
    simulation.launch(0, Symbol("function", function="compute"), (3, 1.5))
    simulation.run_until()
    assert simulation.pes[0].log == [((3, 1.5), SWITCH), ("nine", 2 * SWITCH + 4)]
    assert unblocked == [(0, SWITCH + 4)]


def test_the_teardown_task_runs_when_a_queue_is_empty():
    body = """
def main(): pe.queue_flush(4, False); note("asked")
def teardown(): note(("teardown", pe.config_read(0x140)))
"""
    pe = taken(body + GOT, tasks={**GOT_TASK, TEARDOWN_TASK: task("teardown")})
    assert names(pe) == ["asked", ("teardown", 1 << 4), *range(6)]


def test_a_flush_that_ends_while_the_picker_takes_a_wavelet_begins_no_second_task():
    body = """
def main(): pe.cycles += 100; pe.activate(9)
def nine(): pe.queue_flush(4, False); pe.unblock(5)
def got(word): note(word); pe.cycles += 20
def teardown(): note("teardown")
"""
    pe = taken(body, tasks={**GOT_TASK, TEARDOWN_TASK: task("teardown")}, blocked=frozenset({5}))
    assert names(pe) == [*range(6), "teardown"]
    times = [time for _, time in pe.log]
    assert {later - sooner for sooner, later in zip(times, times[1:], strict=False)} == {20 + SWITCH}


def test_a_color_that_begins_in_teardown_stands_still_and_calls_nothing():
    tasks = {**GOT_TASK, TEARDOWN_TASK: task("teardown")}
    torn = program(f"{GOT}def teardown(): pass\n", tasks=tasks, input_queues={4: 5})
    fabric = row(SENDER, torn, colors=LINE).program
    configs = (fabric.configs[0], replace(fabric.configs[1], teardown=True))
    simulation = Simulation(replace(fabric, configs=configs))
    simulation.run_until()
    assert simulation.pes[1].stats().tasks == 0


# --- errors ---

MAIN = "PE 0.0, task main (pe.csl:4:1): "
BEYOND = (
    "a pointer must stay inside the 49152 bytes of SRAM, this task used one that does not\n"
    "hint: look at what it adds to pointers, and at indices of many-item pointers"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pe.activate(9)", f"{MAIN}a local task must be bound to id 9 that is activated, no task is"),
        ("pe.activate(5)", f"{MAIN}a local task must be bound to id 5 that is activated, data task got is"),
        (
            "pe.activate(8)",
            "the program did not end within 100 cycles\n"
            "hint: --max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) lets it go on to cycle N; "
            "a task that activates itself, or a loop, may never end",
        ),
        ('pe.fail("assertion failed: n < 4", "pe.csl:9:3")', "PE 0.0, pe.csl:9:3: assertion failed: n < 4"),
        ("pe.u32[12288] = 1", MAIN + BEYOND),
        ("pe.load('w', 49150)", MAIN + BEYOND),
    ],
)
def test_what_ends_a_simulation(line, message):
    with pytest.raises(SimulationError) as caught:
        run(program(f"{main(line)}\n{GOT}", tasks=GOT_TASK), max_cycles=100)
    assert str(caught.value) == message


def test_lines_of_the_log_come_with_cycle_and_pe():
    lines = []
    says = program(main("pe.cycles += 2", 'pe.say("hello")'))
    run(says, says, on_say=lambda *line: lines.append(line))
    assert lines == [(SWITCH + 2, 0, "hello"), (SWITCH + 2, 1, "hello")]


def test_a_line_is_printed_at_its_end():
    lines = []
    prints = program(main('pe.print("one ")', "pe.cycles += 2", 'pe.print("two\\n\\nthree")'))
    (pe,) = run(prints, on_print=lambda *line: lines.append(line))
    assert lines == [(SWITCH + 2, 0, "one two"), (SWITCH + 2, 0, "")]
    pe.simulation.end_lines()
    pe.simulation.end_lines()
    assert lines[2:] == [(SWITCH + 2, 0, "three")]


def test_a_multiply_add_rounds_its_product_where_that_is_asked_for():
    body = main(
        "pe.f32[0], pe.f32[1] = 2.0**24, 1.0 + 2.0**-23",
        'pe.run("fmacs", (Mem1d(8, 1, 4, 4), Mem1d(0, 1, 4, 4), Mem1d(4, 1, 4, 4), 1.0 - 2.0**-24))',
    )
    assert run(program(body))[0].f32[2] == 2**24 + 2
    assert run(program(body), fused=False)[0].f32[2] == 2**24
