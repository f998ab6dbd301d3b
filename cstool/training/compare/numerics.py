"""Whether sparse and dense kernels compute the same: two short runs of one sparse model, compared.

Both have the same weights, the same masks, the same data; one has sparse kernels throughout, the other dense kernels
over the weights written out with their zeros. They differ in the order of sums alone, hence in rounding alone. Both
compute in float32, at any precision of the params.
"""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.progress import Progress
from cstool.model.ir import Graph
from cstool.model.params import Params, SparsityParams
from cstool.model.params.sections.optimizers import SGD
from cstool.model.sparsity import update_steps
from cstool.training.compare.race import Finish, Runner, race
from cstool.training.compare.request import Request
from cstool.training.compare.verdict import Numerics
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.store import CheckpointReader

MOST_STEPS = 10
"""of the two runs: rounding differences grow with every step, errors show in the first"""
_ROUNDING = 2.0**-24
"""largest relative error of a rounding to float32"""
_ROUNDINGS = 16
"""number of roundings between the data and a loss, or a gradient, beside the roundings of sums over many terms"""
STEP_TOLERANCE = _ROUNDINGS * _ROUNDING
"""relative difference of losses that each step may add, 9.5e-7. Adam makes a step of nearly full length of a rounding
in a gradient that is nearly zero, so weights differ by far more after some steps; the loss does not, since it hardly
depends on a weight whose gradient is nearly zero. Small models with large steps come to 5e-8 in ten steps"""
MASK_TOLERANCE = 1e-3
"""share of the positions of masks that may differ after a change: a rounding decides whether a weight at the threshold
is just kept or just dropped"""
_TIED = 16
"""positions that may differ in masks of any size; one tie makes two, and most changes drop some and grow others"""
_CANCELLED = 2.0**-10
"""of the root mean square of all gradients: a smaller gradient is a difference of larger numbers, with their roundings.
The gradient of a query is zero but for roundings if every token sees itself alone"""
_TINY = 2.0**-126
"""the smallest normal float32, for comparisons with zero"""

Array = np.ndarray[Any, Any]


def compare_numerics(
    params: Params,
    request: Request,
    groups: tuple[SparsityParams, ...],
    num_steps: int,
    folder: Path,
    graph: Graph,
    progress: Progress,
) -> Numerics:
    """Train a sparse model with sparse kernels and with dense ones, and compare gradients, losses and masks.

    Args:
        params: as the file has them
        groups: of sparse weights
        num_steps: of the validation; `MOST_STEPS` at most are trained, and none after the first change of a mask
        folder: for the runs

    Raises:
        NonFiniteError: naming the run
        CstoolError: an error that the user can act on
    """
    # In bfloat16 a difference in the last bit of a float32 sum may be one in the last of 8 bits.
    params = replace(params, precision=params.precision.model_copy(update={"host": FLOAT32}))
    changes = first_change(groups)
    steps = min(num_steps, MOST_STEPS, changes or MOST_STEPS)
    runners = (Runner("numerics, sparse kernels", groups, "always"), Runner("numerics, dense kernels", groups, "never"))
    with tempfile.TemporaryDirectory(dir=folder) as first:
        # With momentum the checkpoint after a step has the gradients: it begins with the first of them.
        momentum = SGD.model_validate({"learning_rate": params.trained_by.learning_rate, "momentum": 0.5})
        keeping = replace(params, optimizer=momentum)
        gradients = race(keeping, runners, 1, Path(first), progress, request.lanes, evaluates=False)
        weight, worst = _compare_gradients(*gradients)
    sparse, dense = race(params, runners, steps, folder, progress, request.lanes, evaluates=False)
    # The gradient of a weight is a sum over the tokens of a batch, or over samples without tokens.
    terms = params.dataloaders("train")[0].batch_size * (graph.sequence_length or 1)
    tolerance = request.tolerance
    losses = zip(sparse.losses, dense.losses, strict=True)
    differences = tuple(abs(loss - reference) / max(abs(reference), _TINY) for loss, reference in losses)
    lost, positions = _compare_masks(sparse, dense)
    return Numerics(
        steps=steps,
        mask_changes=changes == steps,
        sparse_losses=sparse.losses,
        dense_losses=dense.losses,
        loss_differences=differences,
        loss_tolerances=tuple(tolerance or STEP_TOLERANCE * step for step in range(1, steps + 1)),
        worst_weight=weight,
        gradient_difference=worst,
        gradient_tolerance=tolerance or gradient_tolerance(terms),
        mask_difference=lost / max(1, positions),
        mask_tolerance=max(MASK_TOLERANCE, _TIED / max(1, positions)) if changes == steps else 0.0,
    )


def gradient_tolerance(terms: int) -> float:
    """Return the largest difference of gradients, relative to their Euclidean norm.

    A sum of K terms of either sign that is added up one by one has K roundings, each of some running sum; like the sum
    itself they add up as a random walk does, to at most sqrt(K) roundings of the sum.

    >>> gradient_tolerance(10_000) / 2**-24
    116.0
    """
    return _ROUNDING * (_ROUNDINGS + math.sqrt(terms))


def first_change(groups: Sequence[SparsityParams]) -> int | None:
    """Return the first step after which a mask changes by the values of weights; None if none ever does."""
    steps = [update_steps(group.update) for group in groups if group.is_dynamic]
    return min((found[0] for found in steps if found), default=None)


def _compare_gradients(sparse: Finish, dense: Finish) -> tuple[str, float]:
    """Return the matrix whose gradient differs most, and its difference.

    Compared are Euclidean norms, where both runs have a number. Both have the same weights, so a difference is one of
    kernels; after a step of Adam it would be one of signs, too. Biases are left out: the gradient of a key's bias is
    zero but for rounding.
    """
    assert sparse.checkpoint is not None and dense.checkpoint is not None
    found: dict[str, tuple[float, float, int]] = {}
    with CheckpointReader(sparse.checkpoint) as ours, CheckpointReader(dense.checkpoint) as theirs:
        names = set(ours.tensor_names())
        for key in sorted(names):
            name = key.removeprefix("model.")
            gradient, indices = f"optimizer.{name}.momentum_buffer", f"{key}.indices"
            if name == key or gradient not in names:
                continue
            a, b = ours.read(gradient), theirs.read(gradient)
            if indices in names:
                _, here, there = np.intersect1d(ours.read(indices), theirs.read(indices), True, True)
                a, b = a[here], b[there]
            elif a.ndim < 2:
                continue
            difference = _norm(a.astype(np.float64) - b)
            if math.isnan(difference):
                return name, difference
            found[name] = difference, _norm(b), b.size
    size = max(1, sum(size for _, _, size in found.values()))
    mean_square = sum(norm**2 for _, norm, _ in found.values()) / size
    relative = {
        name: difference / max(norm, _CANCELLED * math.sqrt(mean_square * size), _TINY)
        for name, (difference, norm, size) in found.items()
    }
    worst = max(relative, key=lambda name: relative[name])
    return worst, relative[worst]


def _compare_masks(sparse: Finish, dense: Finish) -> tuple[int, int]:
    """Counts of mask positions: positions that only one of the runs has, positions that both have together."""
    assert sparse.checkpoint is not None and dense.checkpoint is not None
    lost = positions = 0
    with CheckpointReader(sparse.checkpoint) as ours, CheckpointReader(dense.checkpoint) as theirs:
        for key in ours.tensor_names():
            if key.startswith("model.") and key.endswith(".indices"):
                a, b = ours.read(key), theirs.read(key)
                lost += len(a) + len(b) - 2 * len(np.intersect1d(a, b, assume_unique=True))
                positions += len(a) + len(b)
    return lost, positions


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))
