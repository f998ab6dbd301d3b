"""Rules: the new mask of a weight at an update step. Outside the mask a weight is 0 when they are asked.

Source: cerebras.pytorch.sparse, 2.10 (gmp, set, rigl, utils); the papers he names: Zhu and Gupta, arXiv:1710.01878;
Mocanu et al., arXiv:1707.04780; Evci et al., arXiv:1911.11134.
"""

import numpy as np

from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.sparsity.masks import UNBALANCED, Balance, balance_of, keep_count, random_scores, top, topk_mask
from cstool.model.sparsity.schedules import drop_fraction_at, is_update_step, sparsity_at


def drop(weight: np.ndarray, mask: np.ndarray, drop_fraction: float, balance: Balance = UNBALANCED) -> np.ndarray:
    """Return the part of a mask that stays: the weights of largest magnitude in each block.

    Each block keeps k = (1 - drop_fraction) * (weights in the mask / blocks), rounded down as in `keep_count`; one
    that has fewer keeps all. Weights outside of the mask never come in, not even where weights in it are 0.
    """
    kept_until_now = int(np.count_nonzero(mask))
    # Rounding down twice is rounding down once.
    count = keep_count(drop_fraction, kept_until_now) // balance.groups
    stays = np.zeros(mask.shape, dtype=bool)
    blocks = (balance.blocks(array) for array in (stays, mask, weight))
    for kept, inside, values in zip(*blocks, strict=True):
        scores = np.abs(values[inside])
        kept[inside] = top(scores, min(count, scores.size))
    return stays


def grow(mask: np.ndarray, scores: np.ndarray, sparsity: float, balance: Balance = UNBALANCED) -> np.ndarray:
    """Return a mask and the positions of the highest scores outside it, as many as `sparsity` allows.

    A block that already keeps that number or more stays as it is: nothing is dropped here.
    """
    grown = mask.copy()
    for kept, block in zip(balance.blocks(grown), balance.blocks(scores), strict=True):
        missing = keep_count(sparsity, kept.size) - int(np.count_nonzero(kept))
        if missing > 0:
            outside = ~kept
            kept[outside] = top(block[outside], missing)
    return grown


def next_mask(
    group: SparsityParams,
    step: int,
    weight: np.ndarray,
    mask: np.ndarray,
    seed: int,
    name: str,
    dense_gradient: np.ndarray | None = None,
) -> np.ndarray:
    """Return the mask after a step: another one at an update step of gmp, set and rigl, else the same.

    Gradual magnitude pruning (gmp) keeps the weights of largest magnitude; where sparsity falls, zeros too, the first
    by index, where the vendor takes any. With sparse evolutionary training (set) the smallest weights go and others
    come at random, with RigL the weights with the largest gradient. Dropconnect draws its mask anew for each step, see
    `dropconnect_mask`, and has no updates.

    Args:
        group: that the weight belongs to
        step: from 1, counted after the optimizer's update
        weight: (rows, columns) float32, updated, 0 outside the mask
        mask: (rows, columns) bool, of the step
        seed: of the run
        name: of the weight
        dense_gradient: (rows, columns) float32 of the step; rigl needs it at update steps

    Returns:
        (rows, columns) bool
    """
    if not group.is_dynamic or not is_update_step(group.update, step):
        return mask
    sparsity = sparsity_at(group, step)
    if group.algorithm == "gmp":
        return topk_mask(weight, sparsity)
    if group.algorithm == "set":
        scores = random_scores(weight.shape, seed, name, step)
    elif dense_gradient is None:
        raise ValueError(f"the update of {name} needs its dense gradient")
    else:
        scores = np.abs(dense_gradient)
    balance = balance_of(group)
    return grow(drop(weight, mask, drop_fraction_at(group, step), balance), scores, sparsity, balance)
