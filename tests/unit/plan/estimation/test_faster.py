"""What is faster than what is asked for: a smaller batch, fewer systems."""

from dataclasses import replace

import pytest

from cstool.plan.estimation import Estimator
from cstool.plan.estimation.faster import WORTH, fewer_systems, smaller_batch
from tests.unit.plan.estimation.requests import gpt, shared
from tests.unit.plan.estimation.test_fuzz import estimator_of, make_case


def _named(number: int, batch_size: int) -> int | None:
    """Return the batch that is named for a case with another batch, checked by its own estimate."""
    case = replace(make_case(12, number), batch_size=batch_size)
    found = case.at()
    assert found is not None
    named = smaller_batch(estimator_of(case), found)
    if named is None:
        return None
    own = case.at(batch_size=named.batch_size)
    assert own is not None
    assert own.step_s == named.step_s
    assert own.samples_per_s > WORTH * found.samples_per_s
    return named.batch_size


@pytest.mark.takes("up to four searches for a layout for each batch")
@pytest.mark.parametrize(
    ("number", "named"),
    [
        # 2 micro-batches of 6, one sample to a group; more than 6 do not fit.
        pytest.param(158, {12: None, 13: 12, 15: 12}, id="one micro-batch more"),
        # 9 tokens to a PE are 3 vectors of 4, as are 12.
        pytest.param(1231, {32: 31, 34: 31}, id="one token more", marks=pytest.mark.lab),
        # Groups of 2 samples; 17 groups of one have narrow columns.
        pytest.param(157, {17: 16, 18: 16}, id="one sample of a group more"),
    ],
)
def test_a_batch_that_leaves_pes_empty_names_the_one_that_fills_them(number, named):
    assert {batch: _named(number, batch) for batch in named} == named


def test_no_batch_is_named_where_the_file_says_how_large_micro_batches_are():
    case = replace(make_case(12, 158), batch_size=13)
    request = estimator_of(case).request
    asked = Estimator(replace(request, params=replace(request.params, micro_batch_size=1)))
    assert smaller_batch(asked, case.at()) is None


def test_systems_that_share_a_small_batch_name_the_fewer_ones_that_are_faster():
    """Of 8 systems each has 2 samples, which take the PEs as long as 4; then weights go to twice as many."""
    estimator = shared(gpt(batch_size=16, hidden_size=256, filter_size=1024))
    eight = estimator.at(8)
    named = fewer_systems(estimator, eight)
    assert named is not None
    assert named.num_csx == max((1, 2, 4), key=lambda count: estimator.at(count).samples_per_s) == 4
    assert named.samples_per_s > WORTH * eight.samples_per_s
    assert fewer_systems(estimator, named) is None
    own = Estimator(replace(estimator.request, batch_per_csx=2))
    assert fewer_systems(own, eight) is None
