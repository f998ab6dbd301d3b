"""Shares over time: the sparsity of a group at a step, and the share of kept weights that an update drops.

The formulas are the vendor's, in float64 where he has float32. Source: cerebras.pytorch.sparse, 2.10 (utils, dynamic).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from cstool.foundation.yaml_lines.section import MAX_STEPS
from cstool.model.params.sections.sparsity import (
    ConstantShare,
    CosineShare,
    CyclingShare,
    ExponentialShare,
    LinearShare,
    PowerShare,
    SparsityParams,
    UpdateParams,
)

_EVERY_STEP = UpdateParams(freq=1)


def is_update_step(update: UpdateParams | None, step: int) -> bool:
    """Whether masks change after a step; for step 0, whether training starts sparse.

    Args:
        update: every `freq` steps from `start` until before `stop`, or the `steps`; None is every step
        step: from 0
    """
    update = update or _EVERY_STEP
    if update.steps is not None:
        return step in update.steps
    assert update.freq is not None, "the section sees to it"
    running = update.start <= step and (update.stop is None or step < update.stop)
    return running and (step - update.start) % update.freq == 0


def starts_sparse(update: UpdateParams | None) -> bool:
    """Whether the first mask is a sparse one; if not, all weights are kept until the first update."""
    return is_update_step(update, 0)


def update_steps(update: UpdateParams | None, last_step: int | None = None) -> Sequence[int]:
    """Return the steps in 1..last_step after which masks change, in order.

    Args:
        last_step: of the run; None is the largest that a params file can ask for
    """
    update = update or _EVERY_STEP
    last = MAX_STEPS if last_step is None else last_step
    if update.steps is not None:
        return update.steps[bisect_left(update.steps, 1) : bisect_right(update.steps, last)]
    assert update.freq is not None, "the section sees to it"
    until = last + 1 if update.stop is None else min(last + 1, update.stop)
    return range(update.start or update.freq, until, update.freq)


def count_updates(update: UpdateParams | None, step: int) -> int:
    """Number of update steps in 1..step, without counting them one by one."""
    return len(update_steps(update, step))


def share_at(share: Any, step: int, updates: int = 0) -> float:
    """Return the value of a share at a step.

    Args:
        share: a number, or one of the shares of `cstool.model.params.sections.sparsity`
        step: from 0
        updates: number of times that the share has moved on; a cycling share depends on it alone

    Returns:
        at least 0, at most 1: values of a formula beyond that count as the bound. The vendor bounds sparsity the
        same way; he leaves a drop_fraction as it is, and fails on the nonsense that may result.
    """
    return min(max(_formula(share, step, updates), 0.0), 1.0)


def sparsity_at(group: SparsityParams, step: int) -> float:
    """Return the share of zeros that a group shall have: at step 0 for its first mask, then for an update.

    A cycling share moves on after every update, and where training starts sparse once more before the first: the
    first mask takes values[0], the first update values[1]. Where it starts dense, the first update takes values[0].
    Between updates it is the next update's value. The mask of from_zeros does not depend on it, and with
    from_checkpoint there is none.
    """
    if step == 0:
        return share_at(group.sparsity, 0)
    return share_at(group.sparsity, step, int(starts_sparse(group.update)) + count_updates(group.update, step - 1))


def drop_fraction_at(group: SparsityParams, step: int) -> float:
    """Return the share of a group's weights that the update after a step lets go.

    A cycling share moves on after every update, so the first takes values[0], however training starts.
    """
    return share_at(group.drop_fraction, step, count_updates(group.update, step - 1))


def _formula(share: Any, step: int, updates: int) -> float:
    match share:
        case ConstantShare():
            return share.value
        case LinearShare():
            return share.init + step * share.slope
        case ExponentialShare():
            distance = share.final - share.init
            return share.final - distance * _exp(step * share.gamma) if distance else share.final
        case PowerShare():
            return share.init * _power(share.beta, step) if share.init else 0.0
        case CosineShare():
            middle = (share.minimum + share.init) / 2
            return (share.init - middle) * math.cos(step * (math.pi / share.half_period)) + middle
        case CyclingShare():
            return share.values[updates % len(share.values)]
    return float(share)


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _power(number: float, exponent: int) -> float:
    try:
        return math.pow(number, exponent)
    except OverflowError:
        return math.inf
