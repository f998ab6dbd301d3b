"""Which samples make a batch."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data import Sampler, batches_per_epoch

counts = st.integers(1, 60)


def epoch(sampler: Sampler, number: int) -> list[int]:
    first = number * sampler.batches_per_epoch
    return [int(i) for b in range(sampler.batches_per_epoch) for i in sampler.indices(first + b)]


def test_an_epoch_has_whole_batches_and_the_rest_unless_dropped():
    for samples, drop_last, expected in ((9, True, 2), (9, False, 3), (8, True, 2), (8, False, 2)):
        assert batches_per_epoch(samples, 4, drop_last) == expected


@pytest.mark.parametrize(
    ("drop_last", "epoch_batches"), [(False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2, 3]])], ids=["all", "whole"]
)
def test_without_shuffling_samples_come_in_order_epoch_after_epoch_even_if_a_batch_is_changed(drop_last, epoch_batches):
    sampler = Sampler(5, 2, shuffle=False, seed=1, drop_last=drop_last)
    for number, expected in enumerate(2 * epoch_batches):
        batch = sampler.indices(number)
        assert batch.tolist() == expected
        batch[:] = 9


@given(samples=counts, batch=counts, seed=st.integers(0, 3), number=st.integers(0, 4))
def test_every_sample_comes_once_in_each_epoch(samples, batch, seed, number):
    assert sorted(epoch(Sampler(samples, batch, True, seed, False), number)) == list(range(samples))


@given(samples=counts, batch=counts, seed=st.integers(0, 3))
def test_with_the_last_batch_dropped_no_sample_comes_twice_in_an_epoch(samples, batch, seed):
    if batch <= samples:
        seen = epoch(Sampler(samples, batch, True, seed, True), 0)
        assert len(set(seen)) == len(seen) == samples // batch * batch


@given(samples=counts, batch=counts, number=st.integers(0, 100), shuffle=st.booleans())
def test_a_batch_does_not_depend_on_those_read_before(samples, batch, number, shuffle):
    sampler = Sampler(samples, batch, shuffle, 7, False)
    for before in (0, 99, 3):
        sampler.indices(before)
    assert np.array_equal(sampler.indices(number), Sampler(samples, batch, shuffle, 7, False).indices(number))


def test_each_epoch_and_each_seed_has_its_own_order_which_is_fixed():
    sampler = Sampler(50, 5, True, 1, True)
    assert epoch(sampler, 0) not in (epoch(sampler, 1), epoch(Sampler(50, 5, True, 2, True), 0))
    assert Sampler(10, 4, True, 1, False).indices(3).tolist() == [4, 7, 3, 6]


@given(samples=counts, length=counts, shuffle=st.booleans(), number=st.integers(0, 3))
def test_an_epoch_of_another_length_has_all_samples_so_often_and_the_rest_at_most_once_more(
    samples, length, shuffle, number
):
    sampler = Sampler(samples, 7, shuffle, 5, False, length)
    seen = epoch(sampler, number)
    times = np.bincount(seen, minlength=samples)
    assert len(seen) == length
    assert set(times.tolist()) <= {length // samples, -(-length // samples)}
    if not shuffle:
        assert seen == [sample % samples for sample in range(length)]
    elif length <= samples:
        assert seen == epoch(Sampler(samples, 7, True, 5, False), number)[:length]
    # Another process reads the same.
    assert epoch(pickle.loads(pickle.dumps(sampler)), number) == seen


def test_a_longer_epoch_shuffles_all_that_is_in_it_together():
    firsts = [epoch(Sampler(50, 5, True, 1, False, 100), number)[:50] for number in range(3)]
    assert all(len(set(first)) < 50 for first in firsts)
    assert firsts[0] != firsts[1] != firsts[2]


def test_fewer_samples_than_a_batch_make_one_where_the_last_is_kept_and_are_refused_where_it_is_dropped(error_of):
    assert Sampler(3, 4, False, 1, False).indices(0).tolist() == [0, 1, 2]
    assert error_of(Sampler, 3, 4, True, 1, True) == (
        "batch_size: must be at most the number of samples (3) to fill one batch, got 4\n"
        "hint: set batch_size to at most 3, or drop_last to false"
    )
    assert error_of(Sampler, 9, 4, True, 1, True, 3) == error_of(Sampler, 3, 4, True, 1, True)
