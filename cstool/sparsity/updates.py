"""When masks change. A step is counted after its optimizer update: step 100 is the one after 100 updates of weights.

Source: cerebras.pytorch.sparse, 2.10 (FreqSchedule, ListSchedule, DynamicSparsityAlgorithm).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from cstool.params.sections.sparsity import UpdateParams
from cstool.yaml_lines.section import MAX_STEPS

_EVERY_STEP = UpdateParams(freq=1)


def is_update_step(update: UpdateParams | None, step: int) -> bool:
    """Return whether masks change after a step. Of step 0 it says whether training starts sparse.

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
    """Return whether the first mask is a sparse one; if not, all weights are kept until the first update."""
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
    """Return how many update steps there are in 1..step, without counting them one by one."""
    return len(update_steps(update, step))
