"""Masks: which weights of a matrix are kept. True is kept. Every choice is exact, and ties go to the lowest index.

Source: cerebras.pytorch.sparse, 2.10 (init, utils).
"""

import math
from dataclasses import dataclass

import numpy as np

from cstool.foundation import random_keys
from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.sparsity.schedules import sparsity_at, starts_sparse


@dataclass(frozen=True)
class Balance:
    """Numbers of blocks in which the weights of a matrix compete. At most one of the two is more than 1.

    Args:
        in_groups: blocks of columns
        out_groups: blocks of rows

    Source: cerebras.pytorch.sparse, 2.10 (InputGroupScoreShaper, OutputGroupScoreShaper).
    """

    in_groups: int = 1
    out_groups: int = 1

    @property
    def groups(self) -> int:
        """Number of blocks."""
        return self.in_groups * self.out_groups

    def blocks(self, array: np.ndarray) -> list[np.ndarray]:
        """Return a view of every block.

        Args:
            array: (rows, columns); of any shape where there is one block

        Raises:
            ValueError: the blocks do not divide the array; `assign_groups` has told the user
        """
        if self.groups == 1:
            return [array]
        rows, columns = array.shape
        if rows % self.out_groups or columns % self.in_groups:
            raise ValueError(f"{self} does not divide {rows} x {columns}")
        height, width = rows // self.out_groups, columns // self.in_groups
        return [
            array[top : top + height, left : left + width]
            for top in range(0, rows, height)
            for left in range(0, columns, width)
        ]


UNBALANCED = Balance()


def balance_of(group: SparsityParams) -> Balance:
    """Return the balance that a group asks for."""
    return Balance(group.balance_in_groups or 1, group.balance_out_groups or 1)


_ROUNDING = 1e-12
"""largest error of a share that was computed in float64"""
_CHECKERBOARD_ROUNDING = 1e-5
"""the vendor's tolerance, which is part of his pattern"""


def keep_count(sparsity: float, size: int) -> int:
    """Number of `size` weights that are kept: (1 - sparsity) * size, rounded down.

    A product that is whole but for the rounding of its factors counts as whole: 0.9 of 1000 keeps 100, and 0.8 of 10
    keeps 2, where float64 has 99.99999999999997 and 1.9999999999999996. The vendor computes in float32, which gives
    100 and 1, and from 2^24 weights on knows no more than their leading digits; that is no rule to follow. Below, his
    count is the same but for products that are whole or within float32 rounding of it: there it may be one less or
    one more.
    """
    return min(size, math.floor((1.0 - sparsity + _ROUNDING) * size))


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Mask of the `count` highest scores; of equal ones the ones of the lowest index. Time is linear.

    Args:
        scores: of any shape, float32 or uint32, without NaN
        count: from 0 to the number of scores

    Returns:
        bool, of the shape of the scores, with `count` true
    """
    if not 0 <= count <= scores.size:
        raise ValueError(f"{count} of {scores.size} scores")
    if count in (0, scores.size):
        return np.full(scores.shape, count > 0)
    flat = scores.ravel()
    lowest_kept = np.partition(flat, flat.size - count)[flat.size - count]
    kept = flat > lowest_kept
    ties = np.flatnonzero(flat == lowest_kept)
    kept[ties[: count - int(np.count_nonzero(kept))]] = True
    mask: np.ndarray = kept.reshape(scores.shape)
    return mask


def top_share(scores: np.ndarray, sparsity: float, balance: Balance = UNBALANCED) -> np.ndarray:
    """Mask of the highest scores of each block, `sparsity` of it left out.

    Args:
        scores: (rows, columns) float32 or uint32
        sparsity: from 0 to 1

    Returns:
        (rows, columns) bool
    """
    mask = np.empty(scores.shape, dtype=bool)
    for kept, block in zip(balance.blocks(mask), balance.blocks(scores), strict=True):
        kept[...] = top(block, keep_count(sparsity, block.size))
    return mask


def random_scores(shape: tuple[int, ...], seed: int, weight: str, step: int) -> np.ndarray:
    """Return uint32 words that depend on the seed, the name of a weight and the step, and on nothing else."""
    generator = random_keys.generator(seed, f"{weight}/mask/{step}")
    return generator.integers(0, 2**32, shape, dtype=np.uint32)


def random_mask(
    shape: tuple[int, ...], sparsity: float, seed: int, weight: str, step: int = 0, balance: Balance = UNBALANCED
) -> np.ndarray:
    """Return a mask drawn at random, every one with the right count as likely as any other."""
    return top_share(random_scores(shape, seed, weight, step), sparsity, balance)


def topk_mask(weight: np.ndarray, sparsity: float, balance: Balance = UNBALANCED) -> np.ndarray:
    """Return the mask that keeps the weights of largest magnitude."""
    return top_share(np.abs(weight), sparsity, balance)


def checkerboard_mask(shape: tuple[int, int], sparsity: float) -> np.ndarray:
    """Return a mask that spreads the kept weights evenly over rows and columns. The share is approximate.

    The first row keeps column j where floor((j + 1) * density) passes floor(j * density). It goes on beyond the matrix
    for ceil(columns / density) - 1 columns. Each row is the one above as a ring, turned left by as many columns as come
    before the first kept one. Density and steps are float32, since the rounding decides which weights are kept: so it
    is the vendor's pattern to the last weight.

    Args:
        shape: (rows, columns)
        sparsity: from 0; less than 1

    Returns:
        (rows, columns) bool
    """
    rows, columns = shape
    density = 1.0 - float(np.float32(sparsity))
    mask = np.zeros(shape, dtype=bool)
    if density == 0:
        return mask
    length = columns + math.ceil(columns / density + _CHECKERBOARD_ROUNDING) - 1
    shift = math.floor(1 / density - _CHECKERBOARD_ROUNDING)
    for number, row in enumerate(mask):
        at = (np.arange(columns) + number * shift % length) % length
        before, after = (_passed(at + ahead, density) for ahead in (0, 1))
        row[...] = before != after
    return mask


def _passed(columns: np.ndarray, density: float) -> np.ndarray:
    """Number kept before each column of the first row of a checkerboard."""
    steps = columns.astype(np.float32) * np.float32(density) + np.float32(_CHECKERBOARD_ROUNDING)
    passed: np.ndarray = np.floor(steps)
    return passed


def dropconnect_mask(
    shape: tuple[int, ...], sparsity: float, seed: int, weight: str, step: int, sample: int | None = None
) -> np.ndarray:
    """Return the mask of a step: each weight is dropped with probability `sparsity`, independently of the others.

    Args:
        step: a fresh mask for each
        sample: number of the mask among several of the step, for evaluation; None for training's mask

    Source: Wan et al., "Regularization of neural networks using DropConnect", ICML 2013. Not the vendor's.
    """
    name = weight if sample is None else f"{weight}/sample/{sample}"
    return random_scores(shape, seed, name, step) >= np.uint32(min(round(sparsity * 2**32), 2**32 - 1))


def initial_mask(group: SparsityParams, weight: np.ndarray, seed: int, name: str) -> np.ndarray:
    """Return the mask that training begins with. All are kept where it starts dense, and with dropconnect.

    Args:
        group: that the weight belongs to
        weight: (rows, columns) float32, as initialised; for init_method from_checkpoint as in the mask_checkpoint
        seed: of the run
        name: of the weight

    Returns:
        (rows, columns) bool
    """
    if group.algorithm == "dropconnect" or not starts_sparse(group.update):
        return np.full(weight.shape, True)
    balance = balance_of(group)
    match group.init_method:
        case "random":
            return random_mask(weight.shape, sparsity_at(group, 0), seed, name, balance=balance)
        case "topk":
            return topk_mask(weight, sparsity_at(group, 0), balance)
        case "checkerboard":
            rows, columns = weight.shape
            return checkerboard_mask((rows, columns), sparsity_at(group, 0))
    mask: np.ndarray = weight != 0
    return mask
