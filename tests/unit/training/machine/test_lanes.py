"""Lanes keep together; and when one fails, the others stop."""

from functools import partial

import pytest

from cstool.model.ir import Panel
from cstool.training.machine.lanes import STAGES_APART, LaneStopped, Pace, stages
from tests.patience import PATIENCE_S, in_thread, within_patience


@pytest.mark.parametrize("apart", [1, STAGES_APART])
def test_the_fastest_lane_waits_when_it_is_too_far_ahead(apart):
    pace, reached = Pace(2, apart), []

    def fast() -> None:
        for stage in range(10):
            pace.step(0)
            reached.append(stage)

    walking = in_thread(fast)
    with pytest.raises(TimeoutError):
        walking.result(0.1)
    assert reached == list(range(apart))
    pace.leave(1)
    walking.result(PATIENCE_S)
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

    for walking in [in_thread(partial(walk, lane)) for lane in range(lanes)]:
        walking.result(PATIENCE_S)
    # `at` is written after `step`, so another lane may be seen one stage behind where it is.
    assert len(apart) == 60 * lanes
    assert max(apart) <= STAGES_APART + 1


def test_a_lane_alone_waits_for_nobody():
    pace = Pace(1, 1)
    within_patience(lambda: [pace.step(0) for _ in range(1000)])


def test_stopping_releases_a_lane_that_waits_and_lets_none_begin_another_stage():
    pace = Pace(2, 1)
    fast = in_thread(lambda: [pace.step(0) for _ in range(3)])
    pace.stop()
    with pytest.raises(LaneStopped):
        fast.result(PATIENCE_S)
    with pytest.raises(LaneStopped):
        pace.step(0)


def test_an_op_has_a_stage_for_each_panel_and_one_without_a_matrix():
    assert list(stages([])) == [(None, True, True)]
    a, b, c = (Panel("w", i, i, i + 1, (1, 4)) for i in range(3))
    assert list(stages([a, b, c])) == [(a, True, False), (b, False, False), (c, False, True)]
    assert list(stages([b])) == [(b, True, True)]
