"""Sparsity as the vendor means it: which weights are zero, and how that changes in training.

Pure functions over arrays, beside `kernels`: they know no MemoryX and hold no state. `assign_groups` says which
weights of a graph are sparse. `initial_mask` is where a weight begins, `next_mask` what a step makes of its mask;
both are put together from `masks` and `rules`, `schedules` say how sparse, `updates` when. `largest_density` and
`most_kept` say what room to make. A mask is a (rows, columns) bool array, True for what is kept, and a function of
the params, the seed, the name of the weight, the step and the arrays alone.

Source: cerebras.pytorch.sparse, 2.10. Where the vendor's result is one of rounding in float32 or of the order of a
sort, the docstring says what is done instead. Not his are dropconnect and masks from a checkpoint.
"""

from cstool.sparsity.density import largest_density, most_kept
from cstool.sparsity.groups import assign_groups
from cstool.sparsity.masks import (
    UNBALANCED,
    Balance,
    balance_of,
    checkerboard_mask,
    dropconnect_mask,
    from_zeros_mask,
    initial_mask,
    keep_count,
    random_mask,
    random_scores,
    top,
    top_share,
    topk_mask,
)
from cstool.sparsity.rules import drop, gmp, grow, next_mask, rigl, sparse_evolution
from cstool.sparsity.schedules import (
    count_updates,
    drop_fraction_at,
    is_update_step,
    share_at,
    sparsity_at,
    starts_sparse,
    update_steps,
)

__all__ = [
    "Balance",
    "UNBALANCED",
    "assign_groups",
    "balance_of",
    "checkerboard_mask",
    "count_updates",
    "drop",
    "drop_fraction_at",
    "dropconnect_mask",
    "from_zeros_mask",
    "gmp",
    "grow",
    "initial_mask",
    "is_update_step",
    "keep_count",
    "largest_density",
    "most_kept",
    "next_mask",
    "random_mask",
    "random_scores",
    "rigl",
    "share_at",
    "sparse_evolution",
    "sparsity_at",
    "starts_sparse",
    "top",
    "top_share",
    "topk_mask",
    "update_steps",
]
