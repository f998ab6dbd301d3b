"""The highest density of a weight over a run: the room to make for it."""

import math

import numpy as np

from cstool.model.params.sections.sparsity import CosineShare, CyclingShare, SparsityParams
from cstool.model.sparsity.masks import balance_of, checkerboard_mask, keep_count
from cstool.model.sparsity.schedules import share_at, sparsity_at, starts_sparse, update_steps

_MOST_EVALUATED = 1_000_000
"""update steps of a cosine that are evaluated one by one"""
_COSINE_ROUNDING = 1e-12
"""largest difference between NumPy's cosine and the cosine in `share_at`, with room to spare"""


def most_kept(group: SparsityParams, shape: tuple[int, int], last_step: int | None = None) -> int:
    """Return an upper bound of the weights that a matrix of a group keeps at any time of a run.

    They are all where training starts dense, with init methods that do not go by the share (from_zeros and
    from_checkpoint), and with dropconnect, which only leaves out weights for a step. Else most are kept at the first
    mask or an update: masks of set and rigl keep no more than the densest target so far.

    Args:
        shape: (rows, columns)
        last_step: of the run; None is the largest that a params file can ask for
    """
    size = math.prod(shape)
    is_by_share = group.algorithm != "dropconnect" and group.init_method not in ("from_zeros", "from_checkpoint")
    if not is_by_share or not starts_sparse(group.update):
        return size
    groups = balance_of(group).groups
    most = groups * keep_count(_least_sparsity(group, last_step), size // groups)
    if group.init_method == "checkerboard":
        most = max(most, int(np.count_nonzero(checkerboard_mask(shape, sparsity_at(group, 0)))))
    return most


def _least_sparsity(group: SparsityParams, last_step: int | None) -> float:
    """Return the least sparsity among the first mask and the updates."""
    share, first = group.sparsity, sparsity_at(group, 0)
    steps = update_steps(group.update, last_step)
    if not steps:
        return first
    if isinstance(share, CyclingShare):
        return min(share.values[: len(steps) + 1])
    if not isinstance(share, CosineShare):
        # All others go one way.
        return min(first, share_at(share, steps[-1]))
    if len(steps) > _MOST_EVALUATED:
        return share.minimum
    # The first mask has the largest value of all.
    middle = (share.minimum + share.init) / 2
    values = (share.init - middle) * np.cos(np.asarray(steps) * (math.pi / share.half_period)) + middle
    return max(share.minimum, float(values.min()) - _COSINE_ROUNDING)
