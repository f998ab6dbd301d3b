"""Lanes keep together; and when one fails, the others stop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from cstool.ir import Panel
from cstool.runtime.lanes import OPS_APART, LaneStopped, Pace, stages

PATIENCE_S = 30.0
"""how long a thread may take that has nothing to wait for"""


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_fastest_lane_waits_when_it_is_too_far_ahead() -> None:
    pace, reached = Pace(2), []

    def fast() -> None:
        for op in range(10):
            pace.reach(0, op)
            reached.append(op)

    thread = in_thread(fast)
    thread.join(0.1)
    assert thread.is_alive()
    assert reached == list(range(OPS_APART + 1))
    pace.leave(1)
    thread.join(PATIENCE_S)
    assert reached == list(range(10))


def test_a_waiting_lane_goes_on_as_the_slowest_does() -> None:
    pace = Pace(2)
    passed = threading.Event()

    def fast() -> None:
        pace.reach(0, OPS_APART + 2)
        passed.set()

    thread = in_thread(fast)
    pace.reach(1, 1)
    assert not passed.wait(0.05)
    pace.reach(1, 2)
    assert passed.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_are_never_further_apart_than_allowed(lanes: int) -> None:
    pace, at, apart = Pace(lanes), [0] * lanes, []

    def walk(lane: int) -> None:
        for op in range(60):
            pace.reach(lane, op)
            at[lane] = op
            apart.append(op - min(at))
        pace.leave(lane)
        at[lane] = 10_000

    threads = [in_thread(lambda lane=lane: walk(lane)) for lane in range(lanes)]  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE_S)
    # `at` is written after `reach`, so another lane may be seen one op behind where it is.
    assert len(apart) == 60 * lanes
    assert max(apart) <= OPS_APART + 1


def test_a_lane_alone_waits_for_nobody() -> None:
    pace = Pace(1)
    thread = in_thread(lambda: pace.reach(0, 1000))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_stopping_releases_a_lane_that_waits() -> None:
    pace, errors = Pace(2), []

    def fast() -> None:
        try:
            pace.reach(0, 1000)
        except LaneStopped as error:
            errors.append(error)

    thread = in_thread(fast)
    pace.stop()
    thread.join(PATIENCE_S)
    assert [type(error) for error in errors] == [LaneStopped]


def test_a_stopped_pass_lets_no_lane_begin_another_op() -> None:
    pace = Pace(2)
    pace.stop()
    with pytest.raises(LaneStopped):
        pace.reach(0, 0)


def test_an_op_without_a_matrix_has_one_stage() -> None:
    assert list(stages([])) == [(None, True, True)]


def test_an_op_with_a_matrix_has_a_stage_for_each_panel() -> None:
    a, b, c = (Panel("w", i, i, i + 1, (1, 4)) for i in range(3))
    assert list(stages([a, b, c])) == [(a, True, False), (b, False, False), (c, False, True)]
    assert list(stages([b])) == [(b, True, True)]
