"""Models of time: what a PE does beside an operation, how a busy wafer holds it back, turns between operations."""

from dataclasses import replace

import pytest

from cstool.csl.fabric import vector
from cstool.csl.fabric.counter import GO_ON, RESET, STOP, Counter
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.time_model import BUSY_WAFER, SIMULATOR
from cstool.csl.sdk.simulator import _time_model
from cstool.csl.sdk.variables import TIME_VARIABLE
from cstool.foundation.errors import CstoolError
from tests.unit.csl.fabric.pe_run import main, program, run, task
from tests.unit.csl.fabric.waits import config, fabric

COPY = 'pe.run("fmovs", (Mem1d(400, 60, 4, 4), Mem1d(0, 60, 4, 4)))'  # 30 cycles, two elements in each
NOTE = 'note("then")'


def took(*lines, model=SIMULATOR):
    """Cycles from the begin of a task until its code has come to its end."""
    (pe,) = run(program(main('note("begin")', *lines, NOTE)), time_model=model)
    return pe.log[-1][1] - pe.log[0][1]


@pytest.mark.parametrize(
    ("lines", "cycles"),
    [
        (("pe.cycles += 10",), 10),
        ((COPY,), 31),
        # Code in front of an operation takes its time; code behind it runs beside its 30 cycles.
        (("pe.cycles += 10", COPY), 41),
        ((COPY, "pe.cycles += 10"), 31),
        ((COPY, "pe.cycles += 40"), 41),
        ((COPY, "pe.cycles += 10", COPY, "pe.cycles += 10"), 62),
        # One look at the clock hides no code twice.
        ((COPY, "pe.cycles += 20", NOTE, "pe.cycles += 20"), 41),
    ],
)
def test_code_runs_beside_an_operation_on_memory(lines, cycles):
    assert took(*lines) == cycles


def test_a_busy_wafer_holds_code_and_elements_back():
    # 22 cycles in place of 15, summed up before they are rounded.
    assert took("pe.cycles += 150", model=BUSY_WAFER) == 220
    assert took(*["pe.cycles += 1", NOTE] * 15, model=BUSY_WAFER) == 22
    assert took(COPY, model=BUSY_WAFER) == 31 * 22 // 15


def loop(count, model):
    """Cycles in which `count` words go up the ramp and come back, both by microthreads, after the first has come."""
    body = main(
        f'pe.start("fmovs", (Mem1d(0, {count}, 4, 4), FabricIn(4, {count})), Settings(activate=9))',
        f'pe.start("fmovs", (FabricOut(2, 5, {count}), Mem1d(4000, {count}, 4, 4)))',
    )
    both = program(
        f"{body}\ndef nine(): note(pe.cycles)", input_queues={4: 5}, output_queues={2: 5}, tasks={9: task("nine")}
    )
    simulation = Simulation(fabric(1, 1, {5: {(0, 0): config("R>R")}}, (both,), [[0]]), time_model=model)
    simulation.run_until()
    return simulation.pes[0].log[-1][1]


@pytest.mark.parametrize(("model", "hundred_words"), [(SIMULATOR, 350), (BUSY_WAFER, 250)])
def test_the_datapath_turns_between_two_streams(model, hundred_words):
    # Two elements a word, and two turns of 3/4 or 1/4 of a cycle.
    assert loop(300, model) - loop(200, model) == hundred_words
    assert loop(300, replace(model, turn=0)) - loop(200, replace(model, turn=0)) == 200


def test_a_counter_stands_goes_on_and_begins_anew():
    now = 100
    counter = Counter(lambda: now)
    assert counter.shows() == 0
    counter.set(GO_ON)
    now = 110
    counter.set(GO_ON)
    assert counter.shows() == 10
    counter.set(STOP)
    now = 150
    counter.set(STOP)
    assert counter.shows() == 10
    counter.set(GO_ON)
    now = 152
    assert counter.shows() == 12
    counter.set(RESET)
    now = 155
    assert counter.shows() == 3
    counter.set(STOP)
    counter.set(RESET)
    assert counter.shows() == 0


def test_the_variable_chooses_the_model(monkeypatch):
    monkeypatch.delenv(TIME_VARIABLE, raising=False)
    assert _time_model() is SIMULATOR
    monkeypatch.setenv(TIME_VARIABLE, "busy_wafer")
    assert _time_model() is BUSY_WAFER
    monkeypatch.setenv(TIME_VARIABLE, "fast")
    with pytest.raises(CstoolError) as caught:
        _time_model()
    assert str(caught.value) == "CSTOOL_FABRIC_TIME: must be simulator or busy_wafer, got 'fast'"


def test_an_operation_starts_in_a_cycle():
    assert took('pe.run("fmovs", (Mem1d(400, 2, 4, 4), Mem1d(0, 2, 4, 4)))') == vector.START + 1
