"""Sparsity as the vendor means it: which weights are zero, and how that changes in training.

Pure functions over arrays, beside `kernels`: they know no MemoryX and hold no state. `assign_groups` says which
weights of a graph are sparse. `initial_mask` is the first mask of a weight, `next_mask` the mask after a step;
both are put together from `masks` and `rules`, `schedules` set the sparsity, `updates` the steps. `most_kept` is the
room to make. A mask is a (rows, columns) bool array, True for kept weights, and a function of
the params, the seed, the name of the weight, the step and the arrays alone.

Source: cerebras.pytorch.sparse, 2.10. Where the vendor's result comes from rounding in float32 or from the order of a
sort, the docstring describes ours. Not his are dropconnect and masks from a checkpoint.
"""

from cstool.model.sparsity.density import most_kept
from cstool.model.sparsity.groups import assign_groups
from cstool.model.sparsity.masks import dropconnect_mask, initial_mask, keep_count
from cstool.model.sparsity.rules import next_mask
from cstool.model.sparsity.schedules import is_update_step, sparsity_at, starts_sparse, update_steps
