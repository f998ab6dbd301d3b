"""The longest time of a run without an improvement, as set by `EarlyStopping`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cstool.model.params import EarlyStopping


@dataclass
class Patience:
    """The evaluations of a run so far, as early stopping sees them.

    It is saved with the run, so that one that is interrupted stops where a straight one does.

    Args:
        asked: the size of an improvement, and the number of evaluations without one after which to stop
    """

    asked: EarlyStopping
    step: int | None = None
    """of the last evaluation that was looked at"""
    best: float | None = None
    best_step: int = 0
    bad: int = 0
    """evaluations since the best one"""

    @property
    def is_over(self) -> bool:
        """Whether the run is to stop."""
        return self.bad >= self.asked.patience

    def look(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the evaluation after a step into account; each counts once."""
        if self.step is not None and step <= self.step:
            return
        value = metrics[self.asked.monitor]
        self.step = step
        if self._improves(value):
            self.best, self.best_step, self.bad = value, step, 0
        else:
            self.bad += 1

    def _improves(self, value: float) -> bool:
        """Return whether a value is better than the best; NaN is not."""
        sign = -1 if self.asked.mode == "min" else 1
        if self.best is None:
            return value == value
        return sign * (value - self.best) > self.asked.min_delta

    def as_dict(self) -> dict[str, Any]:
        """Return the state ready for a checkpoint."""
        found = {"monitor": self.asked.monitor, "mode": self.asked.mode}
        return found | {"step": self.step, "best": self.best, "best_step": self.best_step, "bad": self.bad}

    def adopt(self, state: object) -> None:
        """Go on from the state in a checkpoint; from nothing, if that is for another metric."""
        if not isinstance(state, dict) or any(
            state.get(key) != getattr(self.asked, key) for key in ("monitor", "mode")
        ):
            return
        best, step, best_step, bad = (state.get(key) for key in ("best", "step", "best_step", "bad"))
        if (best is None or isinstance(best, float)) and type(step) is type(best_step) is type(bad) is int:
            self.best, self.step, self.best_step, self.bad = best, step, best_step, bad

    def reason(self) -> str:
        """Return the reason for which the run stops."""
        best = "nothing" if self.best is None else f"{self.best:.5f}, that of step {self.best_step}"
        evaluations = "1 evaluation" if self.bad == 1 else f"{self.bad} evaluations"
        return f"EarlyStopping: {self.asked.monitor} has not improved on {best}, in {evaluations}"
