"""The report of `cstool estimate` on masks that change in a run. All of it is modelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cstool.foundation.words import counted, time_text

if TYPE_CHECKING:
    from cstool.plan.estimation.mask_updates import MaskUpdates


def update_facts(updates: Sequence[MaskUpdates]) -> Iterator[tuple[str, str]]:
    """Yield the interval of mask updates and the time of such a step, a fact for each group of weights."""
    for each in updates:
        name = "mask updates" if len(updates) == 1 else f"mask updates {each.group}"
        often = counted(each.count, "time") if each.every is None else _every(each.every)
        if each.needs_gradients:
            longer = each.mean_step_s / each.step_s - 1
            takes = f"such a step makes all gradients and takes {_time(each.update_step_s)}; "
            takes += f"the mean step is {_time(each.mean_step_s)}, {longer:.1%} longer"
        else:
            takes = "by weights alone, which MemoryX has: such a step takes as long"
        yield name, f"{each.algorithm}, {often}: {takes}"


def updates_document(updates: Sequence[MaskUpdates]) -> list[dict[str, Any]]:
    """Return updates of masks ready for JSON."""
    return [
        {
            "group": each.group,
            "algorithm": each.algorithm,
            "every_steps": each.every,
            "updates": each.count,
            "of_steps": each.steps,
            "needs_all_gradients": each.needs_gradients,
            "update_step_s": each.update_step_s,
            "step_s": each.step_s,
            "mean_step_s": each.mean_step_s,
        }
        for each in updates
    ]


def _every(steps: int) -> str:
    return "every step" if steps == 1 else f"every {steps:,} steps"


def _time(seconds: float) -> str:
    return time_text(seconds).partition(" (")[0]
