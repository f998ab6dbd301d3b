"""Threads that execute tables together."""

import itertools

import numpy as np
import pytest

from cstool.training.kernels import crew as crew_module
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.crew import Crew, Failure, Part, Program
from cstool.training.kernels.driver import NativeError, Table
from cstool.training.kernels.recording import Recording, address_of, recorded
from cstool.training.kernels.spin import publish, wait_for


@elementwise
def _sum_up(x, lane, out):
    for number in x:
        out[lane] += number


@elementwise
def _refuses(x):
    if x[0] > 0:
        raise ValueError("too much")


@elementwise
def _meet(numbers, own, other, met):
    publish(numbers, own, 1)
    met[own] = wait_for(numbers.ctypes.data + 8 * other, 1, 2000)


def part(call, *arguments, number=0) -> Part:
    recording = Recording()
    recording.number = number
    with recorded(recording):
        call(*arguments)
    return Part(Table(recording), 0, len(recording.words))


NOTHING = Part(Table(Recording()), 0, 0)


@pytest.fixture
def made():
    crews = []

    def make(lanes: int, contexts=()) -> Crew:
        crews.append(Crew(lanes, set(contexts)))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_a_leg_begins_once_all_lanes_have_finished_the_one_before(made, lanes):
    x = np.ones((3, lanes))
    program = Program([[part(_sum_up, x[leg], lane, x[leg + 1]) for lane in range(lanes)] for leg in range(2)])
    crew, expected = made(lanes), np.ones((3, lanes))
    for _ in range(300):
        assert crew.run(program) == []
        for leg in range(2):
            expected[leg + 1] += expected[leg].sum()
        np.testing.assert_array_equal(x, expected)
        x[1:], expected[1:] = 1, 1


def test_after_a_part_that_failed_nothing_more_is_executed(made):
    x, y = np.zeros((2, 1)), np.zeros(1)
    refusing = [part(_refuses, x[lane], number=7 + lane) for lane in range(2)]
    program = Program([refusing, [part(_sum_up, np.ones(1), 0, y), NOTHING]])
    crew, found = made(2), []
    for refused in itertools.product([0, 1], repeat=2):
        x[:, 0] = refused
        found.append([(leg, lane, error.number) for leg, lane, error in crew.run(program)])
    # Of two that fail at once the second may not have begun.
    assert found[:3] == [[], [(0, 1, 8)], [(0, 0, 7)]]
    assert {leg for leg, _, _ in found[3]} == {0}
    assert y.tolist() == [1]


def test_failures_are_in_the_order_of_their_lanes():
    program = Program([[part(_refuses, np.ones(1), number=n) for n in (4, 5)]])
    program.words[..., -1] = 0
    (first, second) = program.failures()
    assert (first.lane, first.error.number, second.lane, second.error.number) == (0, 4, 1, 5)
    assert isinstance(first, Failure)
    assert isinstance(first.error, NativeError)


def test_a_thread_that_fell_asleep_takes_part_again(made):
    """Not always, on a busy machine: then the caller does its part."""
    crew = made(2)
    for _ in range(2):
        crew._sleepers.put(crew._sleepers.get(timeout=60))  # it is asleep, or about to be
        numbers, met = np.zeros((2, 2), np.int64)
        program = Program([[part(_meet, numbers, own, 1 - own, met) for own in range(2)]])
        for _ in range(1000):
            numbers[:] = met[:] = 0
            assert crew.run(program) == []
            if met.all():
                break
        assert met.tolist() == [1, 1]


def test_a_thread_without_work_does_not_look_for_it_for_ever():
    shared = np.zeros(crew_module._WORDS * 8, np.int64)
    assert crew_module._follow(address_of(shared), 1, 2, 0, 3, *crew_module.thread_clock()) == 0


def test_threads_that_have_ended_hold_up_nobody(made):
    y, crew = np.zeros(3), made(3)
    crew.close()
    for _ in range(3):
        assert crew.run(Program([[part(_sum_up, np.ones(1), lane, y) for lane in range(3)]])) == []
    assert y.tolist() == [3, 3, 3]


def test_each_thread_executes_within_the_contexts_of_the_tables(made):
    entered = []

    class Context:
        def __enter__(self):
            entered.append("in")

        def __exit__(self, *_):
            entered.append("out")

    program = Program([[NOTHING, NOTHING]])
    program.contexts = {Context}
    crew = made(2, [Context])
    crew._sleepers.put(crew._sleepers.get(timeout=60))
    crew.run(program)
    assert entered == ["in", "in", "out"]
