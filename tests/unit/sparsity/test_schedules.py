"""Shares over time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.params.sections.sparsity import (
    ConstantShare,
    CosineShare,
    CyclingShare,
    ExponentialShare,
    LinearShare,
    PowerShare,
)
from cstool.sparsity.schedules import drop_fraction_at, is_update_step, share_at, sparsity_at, starts_sparse
from tests.unit.sparsity.sections import group
from tests.unit.sparsity.test_updates import UPDATES

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
    ],
)
def test_what_a_formula_gives_beyond_0_and_1_counts_as_that(share, step, bound):
    assert share_at(share, step) == bound


@pytest.mark.parametrize(
    "share", [ExponentialShare(init=0.5, gamma=1.0, final=0.5), PowerShare(init=0.0, beta=2.0)], ids=["exp", "power"]
)
def test_nothing_times_infinity_is_nothing(share):
    assert share_at(share, 2**31) == share.init


def test_a_cycling_share_goes_by_updates_alone():
    assert [share_at(ABC, step=1000, updates=updates) for updates in range(5)] == [0.1, 0.2, 0.3, 0.1, 0.2]


def test_where_training_starts_sparse_the_first_mask_takes_the_first_value_and_the_first_update_the_second():
    cycling = group(ABC, algorithm="gmp", update={"freq": 4})
    assert [sparsity_at(cycling, step) for step in (0, 4, 8, 12)] == [0.1, 0.2, 0.3, 0.1]


def test_where_training_starts_dense_the_first_update_takes_the_first_value():
    cycling = group(ABC, algorithm="gmp", update={"freq": 4, "start": 4})
    assert [sparsity_at(cycling, step) for step in (4, 8, 12, 16)] == [0.1, 0.2, 0.3, 0.1]


def test_between_updates_a_cycling_share_is_what_the_next_one_takes():
    cycling = group(ABC, algorithm="gmp", update={"freq": 2})
    assert [sparsity_at(cycling, step) for step in range(1, 5)] == [0.2, 0.2, 0.3, 0.3]


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
