"""When masks change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.sparsity.schedules import count_updates, is_update_step, starts_sparse, update_steps
from cstool.yaml_lines.section import MAX_STEPS
from tests.unit.sparsity.sections import updates

REGULAR = st.builds(
    lambda freq, start, length: updates(freq=freq, start=start, stop=None if length is None else start + length),
    st.integers(1, 9),
    st.integers(0, 20),
    st.none() | st.integers(1, 40),
)
LISTED = st.sets(st.integers(0, 60), min_size=1).map(lambda steps: updates(steps=sorted(steps)))
UPDATES = st.none() | REGULAR | LISTED


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"freq": 4}, [0, 4, 8, 12]),
        ({"freq": 4, "stop": 8}, [0, 4]),
        ({"freq": 4, "stop": 9}, [0, 4, 8]),
        ({"freq": 4, "start": 3}, [3, 7, 11]),
        ({"freq": 4, "start": 3, "stop": 11}, [3, 7]),
        ({"freq": 100}, [0]),
        ({"steps": [2, 3, 11]}, [2, 3, 11]),
        ({"steps": [0, 5]}, [0, 5]),
    ],
)
def test_masks_change_from_start_until_before_stop(keys, expected):
    update = updates(**keys)
    assert [step for step in range(13) if is_update_step(update, step)] == expected
    assert starts_sparse(update) == (0 in expected)


def test_without_an_update_section_masks_change_at_every_step():
    assert all(is_update_step(None, step) for step in range(5))
    assert starts_sparse(None)
    assert list(update_steps(None, 3)) == [1, 2, 3]


def test_step_0_is_no_update_though_it_decides_how_training_starts():
    assert list(update_steps(updates(freq=2), 6)) == [2, 4, 6]
    assert list(update_steps(updates(steps=[0, 3]), 6)) == [3]


def test_the_stock_file_updates_35_times():
    steps = update_steps(updates(freq=100, stop=3584), 4778)
    assert (len(steps), steps[0], steps[-1]) == (35, 100, 3500)


def test_a_run_without_end_has_as_many_updates_as_a_file_can_ask_for():
    assert count_updates(None, MAX_STEPS) == len(update_steps(None)) == MAX_STEPS


@given(UPDATES, st.integers(0, 70))
def test_update_steps_are_those_that_is_update_step_says(update, last):
    slow = [step for step in range(1, last + 1) if is_update_step(update, step)]
    assert list(update_steps(update, last)) == slow
    assert count_updates(update, last) == len(slow)
