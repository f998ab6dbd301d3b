"""The plans of which none is better in all respects."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


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
