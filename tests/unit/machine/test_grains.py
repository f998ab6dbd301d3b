"""The cut of a batch into grains depends on the params alone."""

from statistics import fmean

import pytest

from cstool.errors import ClusterError
from cstool.machine import grains
from cstool.machine.grains import check_systems, grain_samples, lanes_for
from tests.models import decoder, fc_mnist


@pytest.mark.parametrize(
    ("batch_size", "sequence", "samples"), [(48, 128, 4), (4, 512, 1), (2, 512, 1), (4, 2048, 1), (7, 64, 1)]
)
def test_a_grain_has_some_500_tokens_and_a_batch_at_least_four_grains(batch_size, sequence, samples):
    assert grain_samples(decoder(sequence=sequence), batch_size) == samples


@pytest.mark.parametrize(
    ("batch_size", "small", "large"),
    [(1, 1, 1), (2, 1, 1), (8, 2, 4), (48, 12, 24), (64, 16, 32), (72, 18, 24), (120, 30, 30), (2048, 512, 512)],
)
def test_of_large_matrices_a_grain_has_at_least_24_tokens_where_there_are_two_such_grains(batch_size, small, large):
    assert grain_samples(fc_mnist(), batch_size) == small
    assert grain_samples(fc_mnist(1024, 1024), batch_size) == large


@pytest.mark.parametrize(
    ("samples", "grain_count", "cores", "lanes"), [(9, 8, 2, 1), (10, 8, 2, 2), (10, 8, 16, 8), (10, 1, 2, 1)]
)
def test_there_is_a_lane_for_each_core_and_grain_where_ops_are_worth_it(
    monkeypatch, samples, grain_count, cores, lanes
):
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


@pytest.mark.parametrize("num_csx", [1, 2, 3, 4, 6, 12])
def test_systems_that_divide_the_grains_are_accepted(num_csx):
    check_systems(num_csx, 48, 4, "train_dataloader")


@pytest.mark.parametrize(
    ("num_csx", "batch_size", "grain", "rule", "hint"),
    [
        (5, 48, 4, "the 12 grains", "4 and 6 are the nearest; all that do: 1, 2, 3, 4, 6, 12"),
        (9, 8, 2, "the 4 grains", "4 is the nearest; all that do: 1, 2, 4"),
    ],
)
def test_the_error_names_the_nearest_counts_that_divide(num_csx, batch_size, grain, rule, hint):
    with pytest.raises(ClusterError) as caught:
        check_systems(num_csx, batch_size, grain, "train_dataloader")
    assert str(caught.value) == (
        f"num_csx: must divide {rule} of a batch of train_dataloader (batch_size {batch_size}, {grain} to a grain), "
        f"got {num_csx}\nhint: {hint}"
    )
