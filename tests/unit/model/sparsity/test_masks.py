"""Masks: how many weights are kept, which, and that they are the same everywhere."""

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from cstool.model.sparsity.masks import (
    UNBALANCED,
    Balance,
    balance_of,
    checkerboard_mask,
    dropconnect_mask,
    initial_mask,
    keep_count,
    random_mask,
    random_scores,
    top,
    top_share,
    topk_mask,
)
from tests.unit.model.sparsity.sections import group

DECIMALS = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
FEW_VALUES = st.sampled_from([0.0, -0.0, 0.5, 1.0, 3.0, math.inf, -math.inf, 1e-45])
SHAPES = nps.array_shapes(min_dims=1, max_dims=2, max_side=9)
SCORES = nps.arrays(np.float32, SHAPES, elements=FEW_VALUES) | nps.arrays(
    np.uint32, SHAPES, elements=st.sampled_from([0, 1, 7, 2**31, 2**32 - 1])
)
MATRICES = nps.arrays(np.float32, (4, 8), elements=st.sampled_from([0.0, -3.0, 1.0, 2.0, -2.0]))


@pytest.mark.parametrize(
    ("sparsity", "size", "kept"),
    [
        (0.0, 10, 10),
        (1.0, 10, 0),
        (0.75, 768 * 768, 147_456),
        (0.9, 1000, 100),
        (0.8, 10, 2),
        (0.3, 10, 7),
        (0.1 + 0.2, 10, 7),
        (0.35, 10, 6),
        (0.999, 100, 0),
        (0.5, 2**26 + 1, 2**25),
        (0.8, 5 * (2**26 + 1), 2**26 + 1),
    ],
)
def test_what_is_kept_is_rounded_down_and_whole_numbers_are_whole(sparsity, size, kept):
    assert keep_count(sparsity, size) == kept


@given(DECIMALS, st.integers(0, 10**9))
def test_counts_are_those_of_exact_arithmetic(sparsity, size):
    assert keep_count(sparsity, size) == math.floor((1 - Fraction(str(sparsity))) * size)


@given(DECIMALS, st.integers(0, 10**9))
def test_counts_differ_from_the_vendors_by_float32_rounding_alone(sparsity, size):
    vendors = int((np.float32(1) - np.float32(sparsity)) * np.float32(size))
    assert abs(keep_count(sparsity, size) - vendors) <= 1 + size * 2.0**-22


MATRIX = np.arange(8).reshape(2, 4)


@pytest.mark.parametrize(
    ("keys", "balance", "blocks"),
    [
        ({}, UNBALANCED, [[[0, 1, 2, 3], [4, 5, 6, 7]]]),
        ({"balance_out_groups": 2}, Balance(out_groups=2), [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
        ({"balance_in_groups": 2}, Balance(in_groups=2), [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]),
    ],
)
def test_the_balance_is_that_of_the_group_and_its_blocks_are_views_of_rows_or_columns(keys, balance, blocks):
    assert (balance_of(group(algorithm="rigl", **keys)), balance.groups) == (balance, len(blocks))
    assert [block.tolist() for block in balance.blocks(MATRIX)] == blocks
    assert all(np.shares_memory(block, MATRIX) for block in balance.blocks(MATRIX))


@pytest.mark.parametrize("balance", [Balance(in_groups=3), Balance(out_groups=4)])
def test_blocks_that_do_not_divide_are_refused(balance):
    with pytest.raises(ValueError, match=r"does not divide 2 x 4"):
        balance.blocks(MATRIX)


@given(SCORES, st.data())
def test_top_is_what_a_stable_sort_puts_first_and_leaves_the_scores_as_they_are(scores, data):
    count, before = data.draw(st.integers(0, scores.size)), scores.copy()
    flat = scores.ravel().astype(np.float64)
    slow = np.zeros(scores.size, dtype=bool)
    slow[np.argsort(-flat, kind="stable")[:count]] = True
    mask = top(scores, count)
    assert (mask.dtype, mask.shape) == (np.dtype(bool), scores.shape)
    assert mask.ravel().tolist() == slow.tolist()
    np.testing.assert_array_equal(scores, before)


def test_ties_go_to_the_lowest_index_of_rows_also_of_what_is_no_contiguous_array():
    assert top(np.float32([1, 2, 1, 2, 1]), 3).tolist() == [True, True, False, True, False]
    scores = np.arange(6, dtype=np.float32).reshape(2, 3).T % 2
    assert top(scores, 2).tolist() == [[False, True], [True, False], [False, False]]
    for count in (-1, 4):
        with pytest.raises(ValueError, match="of 3 scores"):
            top(np.float32([1, 2, 3]), count)


@pytest.mark.parametrize(
    ("scores", "balance", "mask"),
    [
        ([[1, 2], [0, -1]], Balance(), [[True, True], [False, False]]),
        ([[1, 2], [0, -1]], Balance(out_groups=2), [[False, True], [True, False]]),
        ([[1, 0], [2, -1]], Balance(), [[True, False], [True, False]]),
        ([[1, 0], [2, -1]], Balance(in_groups=2), [[False, True], [True, False]]),
    ],
)
def test_the_vendors_examples_of_rows_and_columns(scores, balance, mask):
    assert top_share(np.float32(scores), 0.5, balance).tolist() == mask


@pytest.mark.parametrize("balance", [Balance(), Balance(in_groups=4), Balance(out_groups=2), Balance(out_groups=4)])
@given(MATRICES, DECIMALS)
def test_every_block_keeps_as_many_as_any_other_and_none_that_is_smaller(balance, weight, sparsity):
    mask = topk_mask(weight, sparsity, balance)
    for kept, values in zip(balance.blocks(mask), balance.blocks(np.abs(weight)), strict=True):
        assert kept.sum() == keep_count(sparsity, kept.size)
        assert values[kept].min(initial=9) >= values[~kept].max(initial=0)


@given(MATRICES, DECIMALS, DECIMALS)
def test_a_sparser_mask_lies_in_a_denser_one(weight, one, other):
    for of in (lambda sparsity: topk_mask(weight, sparsity), lambda sparsity: random_mask((4, 8), sparsity, 1, "w")):
        assert not (of(max(one, other)) & ~of(min(one, other))).any()


@given(DECIMALS, st.sampled_from([Balance(), Balance(in_groups=5), Balance(out_groups=4)]))
def test_random_masks_have_exact_counts(sparsity, balance):
    mask = random_mask((8, 10), sparsity, 1, "w", balance=balance)
    assert {int(block.sum()) for block in balance.blocks(mask)} == {keep_count(sparsity, 80 // balance.groups)}


def test_random_scores_depend_on_seed_weight_and_step_and_every_position_is_as_likely_as_any_other():
    draws = [(1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1)]
    scores = [random_scores((4, 4), seed, weight, step).tolist() for seed, weight, step in draws]
    assert len({str(words) for words in scores}) == 4
    assert random_scores((4, 4), 1, "a", 0).tolist() == scores[0]
    assert random_scores((4, 4), 1, "a", 0).dtype == np.uint32
    kept = sum(random_mask((4, 5), 0.75, seed, "w").astype(int) for seed in range(2000))
    # 500 are expected of each, with a standard deviation of 19.
    assert kept.sum() == 10_000
    assert kept.min() > 400
    assert kept.max() < 600


BOARDS = {
    0.75: "...x...x x...x... .x...x.. ..x...x. ...x...x",
    0.5: ".x.x.x x.x.x. .x.x.x",
    0.25: ".xxx.xxx xxx.xxx. xx.xxx.x x.xxx.xx",
    0.0: "xx xx",
    1 - 1e-12: "... ...",
}


@pytest.mark.parametrize("sparsity", BOARDS)
def test_checkerboards_by_hand(sparsity):
    rows = BOARDS[sparsity].split()
    mask = checkerboard_mask((len(rows), len(rows[0])), sparsity)
    assert ["".join(".x"[int(kept)] for kept in row) for row in mask] == rows


@given(st.integers(0, 990), st.integers(1, 12), st.integers(1, 40))
def test_a_checkerboard_is_a_ring_turned_row_by_row(thousandths, rows, columns):
    density = 1.0 - float(np.float32(thousandths / 1000))
    beyond = math.ceil(columns / density + 1e-5)
    kept_before = [math.floor(np.float32(j) * np.float32(density) + np.float32(1e-5)) for j in range(columns + beyond)]
    ring = [after != before for before, after in zip(kept_before, kept_before[1:], strict=False)]
    slow = []
    for _ in range(rows):
        slow.append(ring[:columns])
        turn = math.floor(1 / density - 1e-5) % len(ring)
        ring = ring[turn:] + ring[:turn]
    assert checkerboard_mask((rows, columns), thousandths / 1000).tolist() == slow


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.75, 0.9])
def test_a_checkerboard_keeps_about_its_share_of_rows_and_columns(sparsity):
    mask = checkerboard_mask((64, 80), sparsity)
    assert np.abs(mask.sum(axis=1) - (1 - sparsity) * 80).max() <= 2
    assert np.abs(mask.sum() - (1 - sparsity) * mask.size) <= 2 * 64


def test_dropconnect_drops_the_words_below_its_share_afresh_at_every_step_and_in_each_sample():
    masks = [dropconnect_mask((100, 100), 0.2, 1, "w", step) for step in range(1, 4)]
    # 8000 of 10000 are expected, with a standard deviation of 40.
    assert all(7800 < mask.sum() < 8200 for mask in masks)
    assert len({int(mask.sum()) for mask in masks}) > 1
    # Two that do not know of one another agree in 0.8 * 0.8 + 0.2 * 0.2 of the weights.
    assert abs((masks[0] == masks[1]).mean() - 0.68) < 0.03
    assert (dropconnect_mask((100, 100), 0.2, 1, "w", 1) == masks[0]).all()
    masks = [dropconnect_mask((8, 8), 0.5, 1, "w", 1, sample) for sample in (None, 0, 1)]
    assert len({mask.tobytes() for mask in masks}) == 3
    for sparsity, kept in ((0.0, 64), (1.0, 0), (1 - 2.0**-40, 0)):
        assert dropconnect_mask((8, 8), sparsity, 1, "w", 1).sum() == kept
    words = random_scores((8, 8), 1, "w", 3)
    for word in words.ravel()[:4]:
        assert (dropconnect_mask((8, 8), int(word) / 2**32, 1, "w", 3) == (words >= word)).all()


WEIGHT = np.float32([[0, 1, 0, -2], [3, 0, 4, -5]])


@pytest.mark.parametrize(
    ("keys", "mask"),
    [
        ({}, random_mask((2, 4), 0.5, 7, "w")),
        ({"algorithm": "rigl", "balance_out_groups": 2}, random_mask((2, 4), 0.5, 7, "w", balance=Balance(1, 2))),
        ({"init_method": "topk"}, [[0, 0, 0, 0], [1, 0, 1, 1]]),
        ({"init_method": "topk", "algorithm": "rigl", "balance_out_groups": 2}, [[0, 1, 0, 1], [0, 0, 1, 1]]),
        ({"init_method": "from_zeros"}, [[0, 1, 0, 1], [1, 0, 1, 1]]),
        ({"init_method": "checkerboard"}, [[0, 1, 0, 1], [1, 0, 1, 0]]),
        ({"algorithm": "set", "update": {"freq": 5, "start": 5}}, np.ones((2, 4))),
        ({"algorithm": "set", "update": {"freq": 5}, "init_method": "from_zeros"}, WEIGHT != 0),
        ({"algorithm": "dropconnect"}, np.ones((2, 4))),
    ],
)
def test_the_first_mask_is_that_of_the_group(keys, mask):
    if "topk" in keys.values() and "algorithm" not in keys:
        keys = {**keys, "sparsity": 0.625}
    made = initial_mask(group(**keys), WEIGHT, 7, "w")
    assert made.tolist() == np.array(mask, dtype=bool).tolist()


def test_a_mask_from_a_checkpoint_keeps_what_is_not_zero_there():
    found, weight = group(None, init_method="from_checkpoint", mask_checkpoint="a.mdl"), [[0, -0.0, 1], [1e-45, 0, -2]]
    expected = [[False, False, True], [True, False, True]]
    assert initial_mask(found, np.float32(weight), 7, "w").tolist() == expected


MASKS_OF_A_RUN = """
import hashlib
from cstool.model.sparsity.masks import dropconnect_mask, random_mask
masks = random_mask((64, 48), 0.75, 3, "layers.0.weight", 100), dropconnect_mask((64, 48), 0.3, 3, "w", 2)
print(hashlib.sha256(b"".join(mask.tobytes() for mask in masks)).hexdigest())
"""


def test_masks_are_the_same_in_every_process(capsys):
    exec(MASKS_OF_A_RUN, {})
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", MASKS_OF_A_RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == capsys.readouterr().out
