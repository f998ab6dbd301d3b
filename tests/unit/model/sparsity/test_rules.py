"""The rules of gmp, set and rigl."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from cstool.model.params.sections.sparsity import CyclingShare, LinearShare
from cstool.model.sparsity.masks import UNBALANCED, Balance, keep_count, random_scores, topk_mask
from cstool.model.sparsity.rules import drop, grow, next_mask
from tests.unit.model.sparsity.sections import group

SHAPE = (4, 8)
BALANCES = st.sampled_from([Balance(), Balance(in_groups=4), Balance(in_groups=8), Balance(out_groups=2)])
SHARES = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0])
MASKS = nps.arrays(bool, SHAPE)
WEIGHTS = nps.arrays(np.float32, SHAPE, elements=st.sampled_from([0.0, -3.0, 1.0, 2.0, -2.0]))


def changed(
    weight: np.ndarray,
    mask: np.ndarray,
    scores: np.ndarray,
    sparsity: float,
    drop_fraction: float,
    balance: Balance = UNBALANCED,
) -> np.ndarray:
    """What set and RigL do with their scores."""
    return grow(drop(weight, mask, drop_fraction, balance), scores, sparsity, balance)


def rigl(weight: np.ndarray, mask: np.ndarray, gradient: np.ndarray, *more: Any) -> np.ndarray:
    return changed(weight, mask, np.abs(gradient), *more)


def bools(rows: list[list[int]]) -> list[list[bool]]:
    return np.array(rows, dtype=bool).tolist()


RIGL_WEIGHT, RIGL_MASK = [[5, -1, 0, 0], [3, 0, -4, 0]], [[1, 1, 0, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("weight", "mask", "gradient", "more", "expected"),
    [
        # Half of the four goes: 1 and 3 are the smallest. Two of those outside come: first where 1 and 3 were, with 9.
        (RIGL_WEIGHT, RIGL_MASK, [[9, 9, 0, -2], [9, 1, 9, 0]], (0.5, 0.5), [[1, 1, 0, 0], [1, 0, 1, 0]]),
        # Of the three with magnitude 1 the first one comes.
        (RIGL_WEIGHT, RIGL_MASK, [[9, 1, 0, -2], [1, 1, 9, 0]], (0.5, 0.5), [[1, 1, 0, 1], [0, 0, 1, 0]]),
        # Of two in each half one stays, and one comes.
        (
            *([[5, 0, 1, 0], [4, 0, 0, 2]], [[1, 0, 1, 0], [1, 0, 0, 1]], [[0, 1, 0, 9], [0, 2, 8, 0]]),
            (0.5, 0.5, Balance(in_groups=2)),
            [[1, 0, 0, 1], [0, 1, 0, 1]],
        ),
        # As set does with random scores.
        ([[5, -1, 0, 0]], [[1, 1, 0, 0]], [[9, 1, 1, 0]], (0.25, 0.5), [[1, 1, 1, 0]]),
    ],
)
def test_rigl_and_set_by_hand(weight, mask, gradient, more, expected):
    made = rigl(np.float32(weight), np.array(mask, bool), np.float32(gradient), *more)
    assert made.tolist() == bools(expected)


def test_gmp_by_hand():
    weight = np.float32([[5, -1, 0, 0], [0, 2, 0, -3]])
    assert topk_mask(weight, 0.75).tolist() == bools([[1, 0, 0, 0], [0, 0, 0, 1]])
    # Five of eight, and four are not zero: the first zero is kept, too.
    assert topk_mask(weight, 0.375).tolist() == bools([[1, 1, 1, 0], [0, 1, 0, 1]])


def test_a_target_sparser_than_what_stays_drops_nothing_more_and_a_block_with_less_than_the_average_grows():
    weight = np.arange(1, 11, dtype=np.float32).reshape(1, 10)
    for scores in (weight, random_scores((1, 10), 1, "w", 1)):
        assert changed(weight, np.full((1, 10), True), scores, 0.9, 0.3).sum() == 7
    mask = np.array([[0, 1, 1, 1]], dtype=bool)
    assert drop(np.float32([[0, 0, 0, 7]]), mask, 0.3).tolist() == bools([[0, 1, 0, 1]])
    weight = np.float32([[4, 3, 2, 1], [9, 0, 0, 0]])
    mask, rows = weight != 0, Balance(out_groups=2)
    # Five in two blocks, all but a fifth of them: two of each.
    assert drop(weight, mask, 0.2, rows).tolist() == bools([[1, 1, 0, 0], [1, 0, 0, 0]])
    assert rigl(weight, mask, np.ones_like(weight), 0.25, 0.2, rows).sum(axis=1).tolist() == [3, 3]


@given(WEIGHTS, MASKS, SHARES)
def test_what_stays_is_the_largest_part_of_the_mask(weight, mask, drop_fraction):
    weight = weight * mask
    stays = drop(weight, mask, drop_fraction)
    assert stays.sum() == keep_count(drop_fraction, int(mask.sum()))
    assert not (stays & ~mask).any()
    gone = mask & ~stays
    assert np.abs(weight)[stays].min(initial=9) >= np.abs(weight)[gone].max(initial=0)


@given(MASKS, WEIGHTS, SHARES, BALANCES)
def test_what_grows_is_outside_and_best_there(mask, scores, sparsity, balance):
    grown = grow(mask, scores, sparsity, balance)
    assert not (mask & ~grown).any()
    blocks = (balance.blocks(array) for array in (mask, grown, scores))
    for before, after, values in zip(*blocks, strict=True):
        assert after.sum() == max(before.sum(), keep_count(sparsity, after.size))
        came = after & ~before
        assert values[came].min(initial=9) >= (values[~after].max(initial=-9) if came.any() else -9)


@given(WEIGHTS, WEIGHTS, WEIGHTS, SHARES, SHARES, SHARES, BALANCES)
def test_a_balanced_mask_stays_balanced(scores, weight, gradient, before, after, drop_fraction, balance):
    mask = topk_mask(scores, before, balance)
    made = rigl(weight * mask, mask, gradient, after, drop_fraction, balance)
    for old, new in zip(balance.blocks(mask), balance.blocks(made), strict=True):
        assert new.sum() == max(keep_count(drop_fraction, int(old.sum())), keep_count(after, new.size))


@given(WEIGHTS, WEIGHTS, SHARES, SHARES)
def test_with_one_sparsity_the_count_stays(scores, gradient, sparsity, drop_fraction):
    mask = topk_mask(scores, sparsity)
    assert rigl(scores * mask, mask, gradient, sparsity, drop_fraction).sum() == mask.sum()
    random = random_scores(SHAPE, 1, "w", 5)
    assert changed(scores * mask, mask, random, sparsity, drop_fraction).sum() == mask.sum()


@given(WEIGHTS, WEIGHTS, MASKS, SHARES, SHARES)
def test_flat_arrays_give_the_same_masks(weight, gradient, mask, sparsity, drop_fraction):
    weight = weight * mask
    flat = rigl(weight.ravel(), mask.ravel(), gradient.ravel(), sparsity, drop_fraction)
    assert flat.tolist() == rigl(weight, mask, gradient, sparsity, drop_fraction).ravel().tolist()
    assert topk_mask(weight.ravel(), sparsity).tolist() == topk_mask(weight, sparsity).ravel().tolist()


def test_arguments_are_left_as_they_are():
    weight, mask = np.float32([[1, -2, 0]]), np.array([[1, 1, 0]], dtype=bool)
    rigl(weight, mask, weight, 0.3, 0.5)
    grow(mask, weight, 0.0)
    assert weight.tolist() == [[1, -2, 0]]
    assert mask.tolist() == [[True, True, False]]


WEIGHT = np.arange(-16, 16, dtype=np.float32).reshape(SHAPE)
GRADIENT = np.cos(np.arange(32, dtype=np.float32)).reshape(SHAPE)
MASK = topk_mask(WEIGHT, 0.5)
LINEAR = LinearShare(init=0.5, slope=0.01)


@pytest.mark.parametrize(
    ("keys", "step", "mask"),
    [
        ({}, 4, MASK),
        ({"algorithm": "dropconnect"}, 4, MASK),
        ({"algorithm": "gmp", "sparsity": LINEAR, "update": {"freq": 4}}, 3, MASK),
        ({"algorithm": "gmp", "sparsity": LINEAR, "update": {"freq": 4}}, 8, topk_mask(WEIGHT, 0.58)),
        (
            {"algorithm": "set", "drop_fraction": CyclingShare(values=(0.2, 0.4)), "update": {"freq": 4}},
            8,
            changed(WEIGHT * MASK, MASK, random_scores(SHAPE, 7, "w", 8), 0.5, 0.4),
        ),
        (
            {"algorithm": "rigl", "sparsity": LINEAR, "update": {"freq": 4}, "balance_in_groups": 2},
            4,
            rigl(WEIGHT * MASK, MASK, GRADIENT, 0.54, 0.3, Balance(in_groups=2)),
        ),
    ],
)
def test_the_next_mask_is_that_of_the_group_and_the_step(keys, step, mask):
    made = next_mask(group(**keys), step, WEIGHT * MASK, MASK, 7, "w", GRADIENT)
    assert made.tolist() == mask.tolist()


def test_rigl_without_a_gradient_is_a_bug():
    with pytest.raises(ValueError, match="the update of w needs its dense gradient"):
        next_mask(group(algorithm="rigl"), 1, WEIGHT, MASK, 7, "w")
