"""A plan of a job, the plans of which none is better in all respects, and the result of a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cstool.plan.estimation.cost import JobCost
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, Limits
from cstool.plan.estimation.point import Estimate

T = TypeVar("T")


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


def front(plans: Sequence[T], amounts: Callable[[T], Sequence[float]]) -> list[T]:
    """Return the plans that no other one beats: less of something, and of nothing more. Of equals the first.

    The amounts of a plan are costs: less is better. Plans keep their order.

    Example, days and systems: 9 days on 2 systems are beaten by 8 days on 2.

    >>> front([(20, 1), (9, 2), (8, 2), (8, 4), (5, 4)], lambda plan: plan)
    [(20, 1), (8, 2), (5, 4)]

    One that takes as long on more systems counts where it draws less:

    >>> front([(8, 2, 50), (8, 4, 40), (8, 4, 60)], lambda plan: plan)
    [(8, 2, 50), (8, 4, 40)]
    """
    all_amounts = [tuple(amounts(plan)) for plan in plans]

    def is_beaten(number: int) -> bool:
        own = all_amounts[number]
        return any(
            all(a <= b for a, b in zip(other, own, strict=True)) and (other != own or place < number)
            for place, other in enumerate(all_amounts)
            if place != number
        )

    return [plan for number, plan in enumerate(plans) if not is_beaten(number)]


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
