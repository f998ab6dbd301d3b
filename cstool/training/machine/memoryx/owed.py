"""Updates with a gradient that is zero, as for an expert that no token chose: they have the bits of one with zeros.

Where MemoryX is in a file the panel is *owed* such an update: it is made when the panel is next acquired, or at a
commit or a checkpoint, together with all others that the panel is owed, in their order. So a panel that is not used
for some steps is read and written once in place of once a step, and never more often.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cstool.model.ir import Panel
from cstool.model.optimizers import Step

MOST_OWED = 16
"""updates that a panel is owed at most: the next reader waits for all of them"""


@dataclass
class ExpertUse:
    """Statistics of the gradients of experts that no token chose."""

    idle: int = 0
    """panels without a gradient, summed over the steps"""
    visits: int = 0
    """number of passes over a panel to update it without a gradient, perhaps for several steps"""


class OwedUpdates:
    """The updates that panels are owed.

    Args:
        of_experts: matrices that stream only where tokens chose their expert
        begin: begins the updates of a panel for some steps, so that its next reader finds them under way
    """

    def __init__(self, of_experts: Collection[str], begin: Callable[[Panel, Sequence[Step]], None]) -> None:
        self.wait = False
        """whether panels of experts wait for their update until they are asked for"""
        self.use = ExpertUse()
        self._of_experts, self._begin = of_experts, begin
        self._steps: dict[Panel, list[Step]] = {}
        self._lock = threading.Lock()

    def owe(self, panel: Panel, step: Step) -> None:
        """Owe a panel the update of a step, or begin it at once."""
        is_of_expert = panel.weight in self._of_experts
        with self._lock:
            self.use.idle += is_of_expert
            steps = self._steps.setdefault(panel, [])
            steps.append(step)
            if not (self.wait and is_of_expert) or len(steps) >= MOST_OWED:
                self._catch_up(panel)

    def count(self, panel: Panel) -> None:
        """Count a panel without a gradient that is updated with the others of its weight."""
        is_of_expert = panel.weight in self._of_experts
        with self._lock:
            self.use.idle += is_of_expert
            self.use.visits += is_of_expert

    def catch_up(self, panel: Panel) -> None:
        """Begin the updates that a panel is owed."""
        if panel in self._steps:
            with self._lock:
                self._catch_up(panel)

    def catch_up_all(self) -> None:
        """Begin all updates that panels are owed."""
        with self._lock:
            for panel in list(self._steps):
                self._catch_up(panel)

    def _catch_up(self, panel: Panel) -> None:
        steps = self._steps.get(panel)
        if steps is not None:
            self.use.visits += panel.weight in self._of_experts
            self._begin(panel, steps)
            # Not before it can be seen to be under way.
            del self._steps[panel]
