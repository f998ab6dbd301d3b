"""The cut of a batch into grains depends on the params alone; systems share the grains however many they are."""

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ClusterError
from cstool.training.machine import grains
from cstool.training.machine.grains import (
    Deal,
    check_grains,
    check_ranks,
    check_systems,
    deal_grains,
    grain_count,
    grain_samples,
    lanes_for,
)
from tests.contract.refusal import refusal
from tests.models import decoder, fc_mnist


def test_a_grain_has_some_500_tokens_and_a_batch_at_least_four_grains():
    samples = {(48, 128): 4, (4, 512): 1, (2, 512): 1, (4, 2048): 1, (7, 64): 1}
    assert {key: grain_samples(decoder(sequence=key[1]), key[0]) for key in samples} == samples
    assert grain_count(decoder(sequence=128), 48) == 12


def test_of_large_matrices_a_grain_has_at_least_24_tokens_where_there_are_two_such_grains():
    small = {1: 1, 2: 1, 8: 2, 48: 12, 64: 16, 72: 18, 120: 30, 2048: 512}
    large = {1: 1, 2: 1, 8: 4, 48: 24, 64: 32, 72: 24, 120: 30, 2048: 512}
    for graph, samples in ((fc_mnist(), small), (fc_mnist(1024, 1024), large)):
        assert {batch_size: grain_samples(graph, batch_size) for batch_size in samples} == samples


@pytest.mark.parametrize(
    ("samples", "grain_count", "cores", "lanes"), [(9, 8, 2, 1), (10, 8, 2, 2), (10, 8, 16, 8), (10, 1, 2, 1)]
)
def test_there_is_a_lane_for_each_core_and_grain_where_ops_are_large(monkeypatch, samples, grain_count, cores, lanes):
    # Matrices of 784 x 6 and 6 x 10.
    monkeypatch.setattr(grains, "LANE_WORTH_FLOPS", 2 * 10 * 2382)
    monkeypatch.setattr(grains, "available_cores", lambda: cores)
    assert lanes_for(fc_mnist(6), samples, grain_count) == lanes


def test_a_sample_counts_as_many_tokens_as_it_has(monkeypatch):
    monkeypatch.setattr(grains, "available_cores", lambda: 2)
    for sequence, lanes in ((16, 1), (512, 2)):
        graph = decoder(sequence=sequence)
        mean = fmean(weight.size for weight in graph.weights.values() if len(weight.shape) > 1)
        monkeypatch.setattr(grains, "LANE_WORTH_FLOPS", 2 * 4 * 100 * mean)
        assert lanes_for(graph, 4, 8) == lanes


@pytest.mark.parametrize(
    ("num_csx", "batch_size", "hint"),
    [
        (5, 24, "4 and 6 are the nearest; all that do: 1, 2, 3, 4, 6, 8, 12, 24"),
        (9, 8, "8 is the nearest; all that do: 1, 2, 4, 8"),
    ],
)
def test_systems_must_divide_the_batch_and_the_error_names_the_nearest_counts_that_do(num_csx, batch_size, hint):
    for divides in map(int, hint.rpartition(": ")[2].split(", ")):
        check_systems(divides, batch_size, "train_dataloader")
    rule = f"num_csx: must divide the batch_size ({batch_size}) of train_dataloader, got {num_csx}"
    with refusal(ClusterError, rule, hint):
        check_systems(num_csx, batch_size, "train_dataloader")


COUNTS = st.integers(1, 60)


@given(COUNTS, COUNTS, st.data())
def test_every_grain_is_dealt_once_in_order_and_shares_are_nearly_equal(grain_count, num_csx, data):
    deal = Deal(grain_count, num_csx, data.draw(st.integers(1, grain_count)))
    waves = [deal.shares(wave) for wave in range(deal.waves)]
    assert [grain for shares in waves for share in shares for grain in share] == list(range(grain_count))
    for shares in waves:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    sizes = [sum(map(len, shares)) for shares in waves]
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1
    assert deal.slots == [max(map(len, shares)) for shares in zip(*waves, strict=True)]


@given(COUNTS, COUNTS, st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_there_are_as_few_waves_as_every_rank_has_room_for(grain_count, num_csx, rooms):
    def fits(deal: Deal) -> bool:
        ends = [num_csx * rank // len(rooms) for rank in range(len(rooms) + 1)]
        return all(sum(deal.slots[a:b]) <= room for a, b, room in zip(ends, ends[1:], rooms, strict=False))

    deal = deal_grains(grain_count, num_csx, rooms)
    waves = grain_count + 1 if deal is None else deal.waves
    assert deal is None or fits(deal)
    assert not any(fits(Deal(grain_count, num_csx, fewer)) for fewer in range(1, waves))


def test_each_process_has_a_system_and_a_grain():
    check_ranks(2, 2)
    check_grains(2, 2, "train_dataloader")
    rule = "num_csx: must be at least the number of processes (3), got 2"
    with refusal(ClusterError, rule, "--num_csx 3, or fewer processes"):
        check_ranks(3, 2)
    rule = "train_dataloader: must have at least as many grains to a batch as there are processes (3), got 2"
    with refusal(ClusterError, rule, "a larger batch_size, or fewer processes"):
        check_grains(3, 2, "train_dataloader")
