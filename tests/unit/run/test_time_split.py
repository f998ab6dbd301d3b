"""The parts of the time of a run add up to the whole, by a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.run.report import time_split
from cstool.run.report.time_split import CHECKPOINT, EVALUATION, START_UP, TRAINING, TimeSplit


@given(st.lists(st.tuples(st.sampled_from([START_UP, TRAINING]), st.integers(0, 50), st.integers(0, 10))))
def test_whatever_happens_the_parts_are_the_whole(turns):
    now = [100.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_split.time, "perf_counter", lambda: now[0])
        times = TimeSplit()
        expected = dict.fromkeys((START_UP, TRAINING, CHECKPOINT, EVALUATION), 0)
        for part, own, saved in turns:
            times.turn_to(part)
            now[0] += own + saved
            assert times.move(saved, CHECKPOINT) == saved
            expected[part] += own
            expected[CHECKPOINT] += saved
        found = times.seconds(0.0, 0.0)
    assert found == {
        "compute": expected[TRAINING],
        "stream_wait": 0.0,
        "input_wait": 0.0,
        "checkpoint": expected[CHECKPOINT],
        "evaluation": 0.0,
        "start_up": expected[START_UP],
    }
    assert sum(found.values()) == now[0] - 100.0


def test_what_training_waited_for_is_no_computing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time_split.time, "perf_counter", lambda: now[0])
    times = TimeSplit()
    times.turn_to(TRAINING)
    now[0] = 10.0
    times.move(1.0, EVALUATION)
    found = times.seconds(2.0, 3.0)
    assert found == {
        "compute": 4.0,
        "stream_wait": 3.0,
        "input_wait": 2.0,
        "checkpoint": 0.0,
        "evaluation": 1.0,
        "start_up": 0.0,
    }
