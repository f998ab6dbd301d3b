"""Lanes keep together; and when one fails, the others stop."""

import threading
from collections.abc import Callable

import pytest

from cstool.model.ir import Panel
from cstool.training.machine.lanes import STAGES_APART, LaneStopped, Pace, stages

PATIENCE_S = 30.0
"""how long a thread may take that has nothing to wait for"""


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("apart", [1, STAGES_APART])
def test_the_fastest_lane_waits_when_it_is_too_far_ahead(apart):
    pace, reached = Pace(2, apart), []

    def fast() -> None:
        for stage in range(10):
            pace.step(0)
            reached.append(stage)

    thread = in_thread(fast)
    thread.join(0.1)
    assert thread.is_alive()
    assert reached == list(range(apart))
    pace.leave(1)
    thread.join(PATIENCE_S)
    assert reached == list(range(10))


@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_are_never_further_apart_than_allowed(lanes):
    pace, at, apart = Pace(lanes, STAGES_APART), [0] * lanes, []

    def walk(lane: int) -> None:
        for stage in range(1, 61):
            pace.step(lane)
            at[lane] = stage
            apart.append(stage - min(at))
        pace.leave(lane)
        at[lane] = 10_000

    threads = [in_thread(lambda lane=lane: walk(lane)) for lane in range(lanes)]  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE_S)
    # `at` is written after `step`, so another lane may be seen one stage behind where it is.
    assert len(apart) == 60 * lanes
    assert max(apart) <= STAGES_APART + 1


def test_a_lane_alone_waits_for_nobody():
    pace = Pace(1, 1)
    thread = in_thread(lambda: [pace.step(0) for _ in range(1000)])
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_stopping_releases_a_lane_that_waits_and_lets_none_begin_another_stage():
    pace, errors = Pace(2, 1), []

    def fast() -> None:
        try:
            for _ in range(3):
                pace.step(0)
        except LaneStopped as error:
            errors.append(error)

    thread = in_thread(fast)
    pace.stop()
    thread.join(PATIENCE_S)
    assert [type(error) for error in errors] == [LaneStopped]
    with pytest.raises(LaneStopped):
        pace.step(0)


def test_an_op_has_a_stage_for_each_panel_and_one_without_a_matrix():
    assert list(stages([])) == [(None, True, True)]
    a, b, c = (Panel("w", i, i, i + 1, (1, 4)) for i in range(3))
    assert list(stages([a, b, c])) == [(a, True, False), (b, False, False), (c, False, True)]
    assert list(stages([b])) == [(b, True, True)]
