"""What is said of a long simulation, and how one without an end is ended."""

import sys

import pytest

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.time_model import SIMULATOR
from cstool.csl.fabric.watch import Watch
from tests.unit.csl.fabric.pe_run import main, program, row

HOW = "Ctrl-C ends it, --max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) at cycle N"
GOES_ON = "--max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) lets it go on to cycle N"


def test_after_some_time_it_is_said_where_a_simulation_is_and_then_seldom(capfd):
    idle = program("")
    simulation = row(idle, program(main(f"pe.cycles += {100 - SIMULATOR.switch}")), idle)
    watch = Watch(simulation, pulse=0.0)
    watch._say(False)
    watch._say(True)
    assert capfd.readouterr().err == ""
    watch._say(True)
    said = "still simulating after 0 s: 0 cycles; PE 0.0 is the busiest, without a task so far"
    assert capfd.readouterr().err == f"{said}; {HOW}\n"
    simulation.run_until()
    watch._due = 3600.0
    watch._say(True)
    assert capfd.readouterr().err == ""
    watch._say(False)
    watch._say(True)
    watch._say(True)
    share = 100 - SIMULATOR.switch
    said = f"still simulating after 0 s: 100 cycles; PE 1.0 is the busiest, {share}% of them, in task main (pe.csl:4:1)"
    assert capfd.readouterr().err == f"{said}; {HOW}\n"


def test_a_task_that_computes_for_ever_is_ended_past_the_limit():
    simulation = row(program(main("pe.cycles += 1000", "pe.look()")), max_cycles=500)
    watch = Watch(simulation)
    simulation.pes[0].look = lambda: watch._look(0, sys._getframe(1))
    with pytest.raises(SimulationError) as caught:
        simulation.run_until()
    assert caught.value.message == "PE 0.0, task main: must end within 500 cycles, it goes on"
    assert caught.value.hint == f"{GOES_ON}; look at its loops: what ends them?"


def test_without_a_limit_cycles_count_from_the_last_command_of_the_host():
    simulation = row(program(main("pe.cycles += 400", "pe.activate(8)")), patience=1_000_000)
    host = Host(simulation)
    for _ in range(9):
        host.poll()
    assert simulation.events.now > 1_000_000
    with pytest.raises(SimulationError) as caught:
        simulation.run_until()
    assert caught.value.message == "the program did not end within 1,000,000 cycles of the host's command"
    assert caught.value.hint == f"{GOES_ON}; a task that activates itself, or a loop, may never end"
