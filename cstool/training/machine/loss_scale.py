"""The factor on the loss, step after step, and the number of skipped steps.

Deltas and gradients are all multiplied by it, and divided again before they are clipped and applied. A power of two
changes no bit, as long as nothing is too large or too small for its type.

Source: the semantics of the vendor's GradScaler, cerebras_pytorch 2.10, whose code doubles the scale one step later
than its words have it: after `steps_per_increase` steps and one.
"""

from cstool.model.params import LossScaling
from cstool.training.store import Scaler


class LossScale:
    """The scale of the loss of a run, which is saved with it.

    Args:
        asked: its first value, and the rules of its changes
    """

    def __init__(self, asked: LossScaling) -> None:
        self.asked = asked
        self.value = asked.initial
        self.skipped = 0
        """steps of the run so far that updated nothing"""
        self._good_steps = 0
        """in a row, since it last changed"""

    def finish_step(self, *, is_skipped: bool) -> None:
        """Go on to the next step: halved after one that was skipped, doubled after many in a row that were not."""
        asked = self.asked
        if asked.least is None:
            return
        self._good_steps = 0 if is_skipped else self._good_steps + 1
        if is_skipped:
            self.skipped += 1
            self.value = max(self.value / 2, asked.least)
        elif self._good_steps == asked.steps_per_increase:
            self._good_steps = 0
            self.value = min(2 * self.value, asked.most)

    @property
    def saved(self) -> Scaler | None:
        """The state to save; None if there is nothing to save."""
        if not self.asked.is_dynamic and not self.skipped:
            return None
        return Scaler(self.value, self._good_steps, self.skipped)

    def adopt(self, saved: Scaler | None) -> None:
        """Go on from a saved state: with its scale where that may change, within the limits of this run."""
        if saved is None:
            return
        self.skipped = saved.num_skipped_steps
        if self.asked.least is not None:
            self.value = min(max(saved.loss_scale, self.asked.least), self.asked.most)
            self._good_steps = min(saved.steps_since_rescale, self.asked.steps_per_increase - 1)
