"""Blocks of rows or columns."""

import numpy as np
import pytest

from cstool.sparsity.masks import UNBALANCED, Balance, balance_of
from tests.unit.sparsity.sections import group

MATRIX = np.arange(8).reshape(2, 4)


@pytest.mark.parametrize(
    ("balance", "blocks"),
    [
        (UNBALANCED, [[[0, 1, 2, 3], [4, 5, 6, 7]]]),
        (Balance(out_groups=2), [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
        (Balance(in_groups=2), [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]),
    ],
)
def test_out_groups_are_rows_and_in_groups_are_columns(balance, blocks):
    assert [block.tolist() for block in balance.blocks(MATRIX)] == blocks
    assert balance.groups == len(blocks)


def test_blocks_are_views():
    matrix = MATRIX.copy()
    for block in Balance(in_groups=2).blocks(matrix):
        block[...] = 9
    assert (matrix == 9).all()


@pytest.mark.parametrize("balance", [Balance(in_groups=3), Balance(out_groups=4)])
def test_blocks_that_do_not_divide_are_refused(balance):
    with pytest.raises(ValueError, match=r"does not divide 2 x 4"):
        balance.blocks(MATRIX)


def test_the_balance_is_that_of_the_group():
    assert balance_of(group(algorithm="rigl")) == UNBALANCED
    assert balance_of(group(algorithm="rigl", balance_in_groups=4)) == Balance(in_groups=4)
    assert balance_of(group(algorithm="rigl", balance_out_groups=4)) == Balance(out_groups=4)
