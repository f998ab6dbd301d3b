"""Verdicts: when they hold, what they say, and what follows from their numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.unit.training.compare.verdicts import comparison, cost, numerics, verdict

WORST = "transformer_decoder.layers.1.ffn.ffn.0.linear_layer.weight"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"loss_differences": (0.0, 3e-6)}, "their losses differ by 3.0e-06 at step 2, the tolerance is 2.0e-06"),
        ({"loss_differences": (math.nan, 0.0)}, "their losses differ by nan at step 1, the tolerance is 1.0e-06"),
        (
            {"gradient_difference": 1e-3},
            f"in step 1, the gradient of {WORST} differs by 1.0e-03, the tolerance is 2.0e-06",
        ),
        (
            {"gradient_difference": math.nan, "worst_weight": "w"},
            "in step 1, the gradient of w differs by nan, the tolerance is 2.0e-06",
        ),
        (
            {"mask_changes": True, "mask_difference": 0.02, "mask_tolerance": 0.001},
            "after step 2, 2.00% of the masks differ, the tolerance is 0.10%",
        ),
    ],
)
def test_kernels_that_disagree_are_said_to(changes, problem):
    found = verdict(numerics=numerics(**changes))
    assert not found.holds
    assert found.problems == (f"numerics: sparse and dense kernels disagree: {problem}",)


def test_it_holds_if_kernels_agree_just_within_tolerance_and_the_gap_is_small():
    assert (verdict().holds, verdict().problems) == (True, ())
    assert numerics(loss_differences=(1e-6, 2e-6), gradient_difference=2e-6).problems == ()


@pytest.mark.parametrize(
    ("changes", "gap", "holds"),
    [
        ({"max_loss_gap": 0.25}, 0.25, True),
        ({"max_loss_gap": 0.2499}, 0.25, False),
        # A sparse run that is better holds without any gap, a loss that is not a number does not.
        ({"sparse_loss": 2.0, "max_loss_gap": 0.0}, -0.5, True),
        ({"sparse_loss": math.nan}, pytest.approx(math.nan, nan_ok=True), False),
    ],
)
def test_the_gap_is_that_of_held_out_losses(changes, gap, holds):
    quality = replace(comparison().quality, **changes)
    assert (quality.gap, quality.holds) == (gap, holds)
    assert verdict(comparison=comparison(quality=quality)).holds == holds


def test_a_gap_that_is_too_large_is_told_per_token_or_sample_and_among_the_facts():
    facts = {"holds": "yes", "sparsity": "0.8", "held-out loss": "+0.2500 nats against dense"}
    assert verdict().facts() == facts
    found = verdict(comparison=comparison(quality=replace(comparison().quality, max_loss_gap=0.1)))
    text = "quality: the held-out loss of the sparse run exceeds that of the dense one by 0.2500 nats per {}"
    assert found.problems == (text.format("token") + ", --max_loss_gap is 0.1",)
    assert found.facts() == {**facts, "holds": "no", "problems": found.problems[0]}
    found = replace(found, setting=replace(found.setting, tokens=None, loss_of="sample"))
    assert found.problems == (text.format("sample") + ", --max_loss_gap is 0.1",)


def test_lanes_and_cores_are_counted_in_words():
    for lanes, cores, text in [(1, 1, "1 lane on 1 core"), (1, 4, "1 lane on 4 cores"), (2, 1, "2 lanes on 1 core")]:
        assert replace(verdict().setting, lanes=lanes, cores=cores).lanes_text == text


def test_rows_make_up_the_step():
    found, step = cost(), cost().step
    assert (found.dense.seconds, found.sparse.seconds) == (pytest.approx(0.080), pytest.approx(0.052))
    assert (found.dense.flops, found.sparse.flops) == (52_000_000, 13_000_000)
    assert found.sparse.streamed_bytes == 20000 + 2000 + 4096
    assert step.speedup == pytest.approx(80 / 52)
    # The ideal step is Amdahl's: 40 ms at 4x, 10 ms at 10x, 20 ms as they are, 10 ms outside of ops at 5x.
    assert step.ideal == pytest.approx(80 / (10 + 1 + 20 + 2))
    # With the kernels alone it has the rest of the sparse run.
    assert step.kernels_alone == pytest.approx(80 / (40 / 2.5 + 10 / 1.6 + 19 + 5))
    # A row without a measured time has no speedup.
    (*_, outside) = found.rows
    assert replace(outside, sparse=replace(outside.sparse, seconds=0.0)).speedup is None


def test_the_sparse_weights_together():
    found = cost().matrices
    assert (found.count, found.density) == (4, 11 / 50)
    assert found.speedup == pytest.approx(50 / 28)
    assert found.ideal == pytest.approx(50 / (40 / 4 + 10 / 10))
    assert found.kernels_alone == pytest.approx(50 / (40 / 2.5 + 10 / 1.6))


def test_its_document_is_json_with_all_that_follows():
    found = verdict(sweep=(comparison(), comparison(sparsity="0.9")), notes=("a note",)).as_dict()
    assert json.loads(json.dumps(found))["cost"]["rows"][0]["shape"] == [256, 64]
    assert (found["holds"], found["measured_on"], found["notes"]) == (True, "this host", ["a note"])
    assert (found["quality"]["gap"], found["cost"]["step"]["speedup"]) == (0.25, pytest.approx(80 / 52))
    assert found["cost"]["rows"][0]["speedup"] == pytest.approx(2.0)
    assert [point["sparsity"] for point in found["sweep"]] == ["0.8", "0.9"]
