"""A plan of a job, and the result of a search for one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cstool.plan.estimation.cost import JobCost
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, Limits
from cstool.plan.estimation.point import Estimate


@dataclass(frozen=True)
class Plan:
    """A job on so many systems. All of it is modelled.

    Args:
        sparsity: share of zeros that was asked for; None for the file's
        estimate: of a step
        cost: of the job
    """

    sparsity: float | None
    estimate: Estimate
    cost: JobCost

    @property
    def systems(self) -> int:
        """Of the job."""
        return self.estimate.num_csx

    @property
    def days(self) -> float:
        """Days of the job, with checkpoints and failures."""
        return self.cost.days

    @property
    def slow_days(self) -> float:
        """At the slow end of the range of the estimate; time beside steps is taken to grow with them."""
        return self.days * self.estimate.band.high

    @property
    def power_w(self) -> float:
        """Of systems at work and servers [W]."""
        return math.fsum(self.cost.power_w.values())

    @property
    def price(self) -> float | None:
        """Of all hours of all systems; None if not asked for."""
        return self.cost.price

    def amounts(self, *, is_confident: bool = False) -> dict[str, float]:
        """Limit, by its flag -> amount in this plan [days, W, currency]."""
        slow = self.estimate.band.high if is_confident else 1.0
        return {DAYS: self.days * slow, POWER: self.power_w, BUDGET: (self.price or 0.0) * slow}

    def breaks(self, limits: Limits) -> list[str]:
        """Return the limits that it does not keep, by their flags."""
        amounts = self.amounts(is_confident=limits.is_confident)
        return [flag for flag, most in limits.values().items() if amounts[flag] > most]

    @property
    def order(self) -> tuple[float, ...]:
        """Better ones come first: fewer systems, then less time, then fewer zeros, then smaller batches."""
        return self.systems, self.days, self.sparsity or 0.0, self.estimate.batch_size


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Args:
        best: plan
        of_shares: the best plan of each share of zeros; None where there is none
        beside: the fastest plan on the next fewer systems, or on the next more where days are not limited; None where
            there are none, or nothing fits on them
        broken: limits that `beside` does not keep
        front: plans that no other one beats in systems, days, power, price and zeros
        plans: the fastest of each number of systems and share of zeros that the front was taken from
        limits: see there
        simulated: ways to run a step that were simulated
    """

    best: Plan
    of_shares: Mapping[float | None, Plan | None]
    beside: Plan | None
    broken: tuple[str, ...]
    front: tuple[Plan, ...]
    plans: tuple[Plan, ...]
    limits: Limits
    simulated: int
