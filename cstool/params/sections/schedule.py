"""What every learning rate schedule is: a rate for each step, that depends on nothing else."""

import math
from abc import abstractmethod
from typing import Any

from cstool.yaml_lines.section import Section


class Schedule(Section):
    """A learning rate for every step, counted from 0."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""

    @property
    def length(self) -> int | None:
        """Steps until the next schedule of a sequence takes over; None if nothing says so."""
        return getattr(self, "total_iters", None)

    def entry(self) -> dict[str, Any]:
        """Return the schedule as an entry of the file's `schedulers`."""
        return {type(self).__name__: self.dump()}


def power(number: float, exponent: float) -> float:
    """Return a power; infinity where it is beyond what a float holds."""
    try:
        return float(number**exponent)
    except OverflowError:
        return math.inf
