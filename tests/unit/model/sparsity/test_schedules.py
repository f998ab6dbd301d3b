"""Shares over time, and when masks change."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.yaml_lines.section import MAX_STEPS
from cstool.model.params.sections.sparsity import (
    ConstantShare,
    CosineShare,
    CyclingShare,
    ExponentialShare,
    LinearShare,
    PowerShare,
)
from cstool.model.sparsity.schedules import (
    count_updates,
    drop_fraction_at,
    is_update_step,
    share_at,
    sparsity_at,
    starts_sparse,
    update_steps,
)
from tests.unit.model.sparsity.sections import group, updates

REGULAR = st.builds(
    lambda freq, start, length: updates(freq=freq, start=start, stop=None if length is None else start + length),
    st.integers(1, 9),
    st.integers(0, 20),
    st.none() | st.integers(1, 40),
)
LISTED = st.sets(st.integers(0, 60), min_size=1).map(lambda steps: updates(steps=sorted(steps)))
UPDATES = st.none() | REGULAR | LISTED
ABC = CyclingShare(values=(0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.3, [0.3, 0.3, 0.3]),
        (ConstantShare(value=0.3), [0.3, 0.3, 0.3]),
        (LinearShare(init=0.1, slope=0.01), [0.1, 0.2, 0.3]),
        (ExponentialShare(init=0.2, gamma=-0.1 * math.log(2), final=1.0), [0.2, 0.6, 0.8]),
        (ExponentialShare(init=0.8, gamma=-0.1 * math.log(2), final=0.0), [0.8, 0.4, 0.2]),
        (PowerShare(init=0.8, beta=0.5**0.1), [0.8, 0.4, 0.2]),
        (CosineShare(init=0.5, half_period=10, minimum=0.1), [0.5, 0.1, 0.5]),
        (CosineShare(init=0.5, half_period=20), [0.5, 0.25, 0.0]),
    ],
)
def test_the_formulas_at_steps_0_10_and_20(share, expected):
    assert [share_at(share, step) for step in (0, 10, 20)] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("share", "step", "bound"),
    [
        (LinearShare(init=0.5, slope=0.1), 6, 1.0),
        (LinearShare(init=0.5, slope=-0.1), 6, 0.0),
        (ExponentialShare(init=0.5, gamma=1.0), 2**31, 0.0),
        (ExponentialShare(init=0.5, gamma=1.0, final=0.1), 2**31, 1.0),
        (ExponentialShare(init=0.5, gamma=-1.0), 2**31, 1.0),
        (PowerShare(init=0.5, beta=2.0), 2**31, 1.0),
        # Nothing times infinity is nothing.
        (ExponentialShare(init=0.5, gamma=1.0, final=0.5), 2**31, 0.5),
        (PowerShare(init=0.0, beta=2.0), 2**31, 0.0),
    ],
)
def test_what_a_formula_gives_beyond_0_and_1_counts_as_that(share, step, bound):
    assert share_at(share, step) == bound


def test_a_cycling_share_goes_by_updates_alone():
    assert [share_at(ABC, step=1000, updates=updates) for updates in range(5)] == [0.1, 0.2, 0.3, 0.1, 0.2]


@pytest.mark.parametrize(
    ("update", "steps", "expected"),
    [
        ({"freq": 4}, (0, 4, 8, 12), [0.1, 0.2, 0.3, 0.1]),  # training starts sparse, with the first value
        ({"freq": 4, "start": 4}, (4, 8, 12, 16), [0.1, 0.2, 0.3, 0.1]),  # it starts dense
        ({"freq": 2}, range(1, 5), [0.2, 0.2, 0.3, 0.3]),  # between updates it is what the next one takes
    ],
)
def test_a_cycling_sparsity_by_hand(update, steps, expected):
    assert [sparsity_at(group(ABC, algorithm="gmp", update=update), step) for step in steps] == expected


@pytest.mark.parametrize("start", [0, 4])
def test_the_first_update_takes_the_first_drop_fraction_however_training_starts(start):
    cycling = group(0.5, algorithm="set", drop_fraction=ABC, update={"freq": 4, "start": start})
    assert [drop_fraction_at(cycling, step) for step in (4, 8, 12, 16)] == [0.1, 0.2, 0.3, 0.1]


def test_other_shares_go_by_the_step():
    linear = group(
        LinearShare(init=0.1, slope=0.01), algorithm="rigl", drop_fraction=CosineShare(init=0.3, half_period=10)
    )
    assert sparsity_at(linear, 20) == pytest.approx(0.3)
    assert drop_fraction_at(linear, 5) == pytest.approx(0.15)


@given(UPDATES, st.integers(1, 40))
def test_a_cycling_share_stands_where_moving_it_on_step_by_step_leads(update, last):
    keys = {} if update is None else {"update": update.model_dump(exclude_none=True, exclude_defaults=True)}
    cycling = group(ABC, algorithm="set", drop_fraction=ABC, **keys)
    of_sparsity, of_drop_fraction = int(starts_sparse(update)), 0
    for step in range(1, last + 1):
        assert sparsity_at(cycling, step) == ABC.values[of_sparsity % 3]
        assert drop_fraction_at(cycling, step) == ABC.values[of_drop_fraction % 3]
        of_sparsity += is_update_step(update, step)
        of_drop_fraction += is_update_step(update, step)


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


def test_updates_of_a_run_are_at_every_step_without_a_section():
    """Step 0 is none, though it decides how training starts; the stock file has 35; a run without end the most."""
    assert list(update_steps(updates(freq=2), 6)) == [2, 4, 6]
    assert list(update_steps(updates(steps=[0, 3]), 6)) == [3]
    steps = update_steps(updates(freq=100, stop=3584), 4778)
    assert (len(steps), steps[0], steps[-1]) == (35, 100, 3500)
    assert count_updates(None, MAX_STEPS) == len(update_steps(None)) == MAX_STEPS
    assert all(is_update_step(None, step) for step in range(5))
    assert starts_sparse(None)
    assert list(update_steps(None, 3)) == [1, 2, 3]


@given(UPDATES, st.integers(0, 70))
def test_update_steps_are_those_that_is_update_step_says(update, last):
    slow = [step for step in range(1, last + 1) if is_update_step(update, step)]
    assert list(update_steps(update, last)) == slow
    assert count_updates(update, last) == len(slow)
