"""Whether sparse kernels compute what dense kernels compute: two short runs of one sparse model, compared.

Both have the same weights, the same masks, the same data; one has sparse kernels throughout, the other dense kernels
over the weights written out with their zeros. They differ in the order of sums alone, hence in rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cstool.params import Params, SparsityParams
from cstool.runtime import Progress
from cstool.sparsity import update_steps
from cstool.store import CheckpointReader
from cstool.validation.race import Finish, Runner, race
from cstool.validation.verdict import Numerics

MOST_STEPS = 10
"""of the two runs: rounding differences grow with every step, errors show in the first"""
STEP_TOLERANCE = 2.0**-20
"""relative difference that each step may add, 9.5e-7: sixteen roundings to float32 (2^-24 each). Measured are some 1e-9
for the losses and 1e-7 for the weights of `gpt_tiny` and `fc_mnist` after 30 and 50 steps"""
MASK_TOLERANCE = 1e-3
"""share of the positions of a mask that may differ after it has changed: whether a weight is just kept or just dropped
can depend on a rounding"""
_TINY = 2.0**-126
"""the smallest normal float32, for what is compared with zero"""

Array = np.ndarray[Any, Any]


def compare_numerics(
    params: Params,
    groups: tuple[SparsityParams, ...],
    num_steps: int,
    folder: Path,
    *,
    tolerance: float | None,
    lanes: int | None,
    progress: Progress,
) -> Numerics:
    """Train a sparse model with sparse kernels and with dense ones, and compare losses and weights.

    Args:
        params: as the file has them
        groups: of sparse weights
        num_steps: of the validation; `MOST_STEPS` at most are trained, and none after the first change of a mask
        folder: where the runs go
        tolerance: relative difference of losses and weights; None for `STEP_TOLERANCE` per step
        lanes: host threads; None to choose
        progress: is told what is going on

    Raises:
        NonFiniteError: naming the run
        CstoolError: whatever the user can act on
    """
    changes = first_change(groups)
    steps = min(num_steps, MOST_STEPS, changes or MOST_STEPS)
    runners = (
        Runner("numerics, sparse kernels", groups, "always"),
        Runner("numerics, dense kernels", groups, "never"),
    )
    sparse, dense = race(params, runners, steps, folder, evaluates=False, lanes=lanes, progress=progress)
    differences = tuple(_relative(a, b) for a, b in zip(sparse.losses, dense.losses, strict=True))
    weight, worst, masks = _compare_weights(sparse, dense)
    return Numerics(
        steps=steps,
        mask_changes=changes == steps,
        sparse_losses=sparse.losses,
        dense_losses=dense.losses,
        loss_differences=differences,
        loss_tolerances=tuple(tolerance or STEP_TOLERANCE * step for step in range(1, steps + 1)),
        worst_weight=weight,
        weight_difference=worst,
        weight_tolerance=tolerance or STEP_TOLERANCE * steps,
        mask_difference=masks,
        mask_tolerance=MASK_TOLERANCE if changes == steps else 0.0,
    )


def first_change(groups: Sequence[SparsityParams]) -> int | None:
    """Return the first step after which a mask changes by what the weights are; None if none ever does."""
    steps = [update_steps(group.update) for group in groups if group.is_dynamic]
    return min((found[0] for found in steps if found), default=None)


def _relative(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), _TINY)


def _compare_weights(sparse: Finish, dense: Finish) -> tuple[str, float, float]:
    """Return the sparse weight that differs most, by how much, and the largest share of a mask that differs.

    Compared are Euclidean norms, where both runs have a number. Biases are left out: the gradient of a key's bias is
    zero but for rounding, and Adam makes steps of full length of it.
    """
    assert sparse.checkpoint is not None and dense.checkpoint is not None
    worst, worst_weight, worst_mask = -1.0, "", 0.0
    with CheckpointReader(sparse.checkpoint) as ours, CheckpointReader(dense.checkpoint) as theirs:
        names = set(ours.tensor_names())
        for key in sorted(names):
            if not key.startswith("model.") or key.endswith(".indices"):
                continue
            indices = f"{key}.indices"
            a, b = ours.read(key), theirs.read(key)
            if indices in names:
                at, also_at = ours.read(indices), theirs.read(indices)
                _, here, there = np.intersect1d(at, also_at, assume_unique=True, return_indices=True)
                a, b = a[here], b[there]
                lost = len(at) + len(also_at) - 2 * len(here)
                worst_mask = max(worst_mask, lost / max(1, len(at) + len(also_at)))
            elif a.ndim < 2:
                continue
            difference = _norm_difference(a, b)
            if math.isnan(difference):
                return key.removeprefix("model."), difference, worst_mask
            if difference > worst:
                worst, worst_weight = difference, key.removeprefix("model.")
    return worst_weight, worst, worst_mask


def _norm_difference(a: Array, b: Array) -> float:
    norm = float(np.linalg.norm(b.astype(np.float64)))
    return float(np.linalg.norm(a.astype(np.float64) - b)) / max(norm, _TINY)
