"""How dense a weight can become over a run: what room must be made for."""

import math

import numpy as np

from cstool.params.sections.sparsity import CosineShare, CyclingShare, SparsityParams
from cstool.sparsity.masks import balance_of, checkerboard_mask, keep_count
from cstool.sparsity.schedules import share_at, sparsity_at, starts_sparse, update_steps

_MOST_EVALUATED = 1_000_000
"""update steps of a cosine that are evaluated one by one"""
_COSINE_ROUNDING = 1e-12
"""by which NumPy's cosine may differ from that of `share_at`, with room to spare"""


def largest_density(group: SparsityParams, last_step: int | None = None) -> float:
    """Return an upper bound of the share of weights that a group keeps at any time of a run.

    It is 1 where training starts dense, with init methods that do not go by the share (from_zeros, from_checkpoint,
    and checkerboard, which does so about), and with dropconnect, which only leaves out weights for a step. Else it is
    reached at the first mask or an update: masks of set and rigl keep no more than the densest target so far.

    Args:
        last_step: of the run; None is the largest that a params file can ask for
    """
    if group.init_method == "checkerboard" or _keeps_all(group):
        return 1.0
    return 1.0 - _least_sparsity(group, last_step)


def most_kept(group: SparsityParams, shape: tuple[int, int], last_step: int | None = None) -> int:
    """Return an upper bound of the weights that a matrix of a group keeps at any time of a run.

    Args:
        shape: (rows, columns)
        last_step: as in `largest_density`
    """
    size = math.prod(shape)
    if _keeps_all(group):
        return size
    groups = balance_of(group).groups
    most = groups * keep_count(_least_sparsity(group, last_step), size // groups)
    if group.init_method == "checkerboard":
        most = max(most, int(np.count_nonzero(checkerboard_mask(shape, sparsity_at(group, 0)))))
    return most


def _keeps_all(group: SparsityParams) -> bool:
    """Whether a group may keep all weights at some time, for all that its params say."""
    if group.algorithm == "dropconnect" or group.init_method in ("from_zeros", "from_checkpoint"):
        return True
    return not starts_sparse(group.update)


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
