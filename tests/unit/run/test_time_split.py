"""The parts of the time of a run add up to the whole, by a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.run.report import time_split
from cstool.run.report.time_split import CHECKPOINT, EVALUATION, START_UP, TRAINING, Rates, TimeSplit


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


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time_split.time, "perf_counter", lambda: now[0])
    return now


def test_what_training_waited_for_is_no_computing(clock):
    times = TimeSplit()
    times.turn_to(TRAINING)
    clock[0] += 10.0
    times.move(1.0, EVALUATION)
    found = {"compute": 4.0, "stream_wait": 3.0, "input_wait": 2.0, "checkpoint": 0.0, "evaluation": 1.0}
    assert times.seconds(2.0, 3.0) == found | {"start_up": 0.0}


@pytest.mark.parametrize(
    ("looks", "rates"),
    [
        ([(0.0, 30, 2.0)], (15.0, 15.0)),
        # Six tenths of the new rate, and four of the one before.
        ([(0.0, 10, 1.0), (0.0, 20, 1.0)], (0.6 * 20 + 0.4 * 10, 15.0)),
        # A pause counts in neither.
        ([(0.0, 10, 1.0), (50.0, 10, 1.0)], (10.0, 10.0)),
        # Without any time passed they are finite.
        ([(0.0, 1, 0.0)], (1e9, 1e9)),
    ],
    ids=["first", "later", "pause", "no time"],
)
def test_rates_are_those_of_the_samples_and_the_time_without_pauses(clock, looks, rates):
    found = Rates()
    for paused_s, samples, passed_s in looks:
        clock[0] += paused_s
        found.pause(paused_s)
        found.add(samples)
        clock[0] += passed_s
        last = found.look()
    assert last == pytest.approx(rates)
    assert (found.samples, found.seconds) == (sum(n for _, n, _ in looks), sum(passed_s for _, _, passed_s in looks))
