"""The limits of a job, and the clusters and batches among which a search may choose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import parse_quantity
from cstool.plan.estimation.request import COUNT_UNITS

WATT_UNITS = {"W": 1, "kW": 10**3, "MW": 10**6}
MOST_BATCHES = 64
"""number of batches that a search tries, at most"""
MOST_SAMPLES = 2**31 - 1
"""samples of a batch, at most"""
DAYS, POWER, BUDGET = "--days", "--power", "--budget"
"""the limits, by their flags"""


@dataclass(frozen=True)
class Limits:
    """Limits of a job; None for no such limit.

    Args:
        days: of the job, with checkpoints and failures
        power_w: of systems and servers at work [W]
        budget: of all hours of all systems, in the currency of the price
        is_confident: whether days and budget must hold at the slow end of the range of the estimate
    """

    days: float | None = None
    power_w: float | None = None
    budget: float | None = None
    is_confident: bool = False

    def values(self) -> dict[str, float]:
        """The given limits: flag -> the most that is allowed [days, W, currency]."""
        each = {DAYS: self.days, POWER: self.power_w, BUDGET: self.budget}
        return {flag: value for flag, value in each.items() if value is not None}


@dataclass(frozen=True)
class Space:
    """The choices of a search.

    Args:
        batches: global, one of which is taken; empty where each system has its own
        batches_per_csx: of each system, one of which is taken; empty where the global one is shared out
        most: systems; None for as many as a cluster has
    """

    batches: tuple[int, ...] = ()
    batches_per_csx: tuple[int, ...] = ()
    most: int | None = None


def make_limits(
    *,
    tokens: str | int | None,
    days: float | None = None,
    power: str | None = None,
    budget: str | None = None,
    price: float | None = None,
    confident: bool = False,
) -> Limits:
    """Return limits, checked.

    Args:
        tokens: of the job; without them there is none
        days: at most
        power: at most, such as "500kW"
        budget: at most, such as "2M"
        price: of a system for an hour; a budget needs it
        confident: see `Limits`

    Raises:
        EstimateError: a limit is invalid, there is none at all, or the quantity that it limits is missing
    """
    if tokens is None:
        raise EstimateError("--tokens is missing: a job is so many tokens", "such as --tokens 300B")
    if days is None and power is None and budget is None:
        raise EstimateError(
            "--days, --power or --budget is missing: without a limit there is nothing to search", "such as --days 30"
        )
    if days is not None and not (math.isfinite(days) and days > 0):
        raise EstimateError(f"--days: must be days, more than 0, got {days:g}")
    watts = None if power is None else _quantity("--power", power, WATT_UNITS, "a power in W, kW or MW, such as 500kW")
    if power is not None and not power.strip().upper().endswith("W"):
        raise EstimateError(f"--power: must be a power in W, kW or MW, such as 500kW, got {power}")
    most = None if budget is None else _quantity("--budget", budget, COUNT_UNITS, "an amount, such as 2M")
    if most is not None and price is None:
        raise EstimateError(f"--budget: must stand beside --price, of a system for an hour, got {budget}")
    if most is not None and price == 0:
        raise EstimateError("--price: must be more than 0 beside --budget, got 0")
    if confident and days is None and budget is None:
        raise EstimateError("--confident: must stand beside --days or --budget: the range is one of time")
    return Limits(days, watts, most, confident)


def _quantity(flag: str, text: str, units: dict[str, int], rule: str) -> float:
    value = parse_quantity(text, units)
    if value is None or value <= 0:
        more = ", more than 0" if value is not None else ""
        raise EstimateError(f"{flag}: must be {rule}{more}, got {text}")
    return value


def make_space(
    batch_of_file: int,
    *,
    batch_size: str | None = None,
    batch_per_csx: str | None = None,
    num_csx: int | None = None,
) -> Space:
    """Return the choices of a search, checked.

    Args:
        batch_of_file: global, where nothing else is asked for
        batch_size: global, such as "512..2048", which doubles
        batch_per_csx: of each system, such as "8..64"
        num_csx: at most so many systems

    Raises:
        EstimateError: batches are not numbers, or there are two kinds of them
    """
    if batch_size is not None and batch_per_csx is not None:
        raise EstimateError(f"--batch_per_csx: must be left out beside --batch_size, got {batch_per_csx}")
    if batch_per_csx is not None:
        return Space((), parse_batches("--batch_per_csx", batch_per_csx), num_csx)
    batches = (batch_of_file,) if batch_size is None else parse_batches("--batch_size", batch_size)
    return Space(batches, (), num_csx)


def parse_counts(
    flag: str, text: str, of: str, example: str = "such as 4, or 1,2,4..192, where .. doubles"
) -> tuple[int, ...]:
    """Return the numbers of `6,8..64`, ascending: single numbers, and from `a..b` a, doubled until b, and b.

    >>> parse_counts("--batch_size", "6,8..50", "samples")
    (6, 8, 16, 32, 50)

    Args:
        flag: name of the flag, for messages
        text: as typed
        of: name of the counted things
        example: of a right one

    Raises:
        EstimateError: it is nothing of the kind
    """
    found: set[int] = set()
    for part in text.split(","):
        ends = part.strip().split("..")
        if len(ends) > 2 or not all(end.isdecimal() and int(end) for end in ends):
            raise EstimateError(f"{flag}: must be numbers of {of}, got {text}", example)
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise EstimateError(f"{flag}: must go up in {part.strip()}, got {text}", example)
        while first < last:
            found.add(first)
            first *= 2
        found.add(last)
    return tuple(sorted(found))


def parse_batches(flag: str, text: str) -> tuple[int, ...]:
    """Return the batches of `512..4096`, ascending; see `parse_counts`.

    Raises:
        EstimateError: they are none, too large, or far too many
    """
    found = parse_counts(flag, text, "samples", "such as 1536, or 512..4096, where .. doubles")
    if found[-1] > MOST_SAMPLES:
        raise EstimateError(f"{flag}: must be at most {MOST_SAMPLES:,} samples, got {found[-1]:,}")
    if len(found) > MOST_BATCHES:
        raise EstimateError(f"{flag}: must be at most {MOST_BATCHES} batches, got {len(found)}")
    return found


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the shares of zeros of `0,0.5,0.9`, ascending.

    Raises:
        EstimateError: one of them is not from 0 to below 1
    """
    found = set()
    for part in text.split(","):
        try:
            share = float(part)
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            rule = "must be shares of zeros from 0 to below 1"
            raise EstimateError(f"--sparsity: {rule}, got {part.strip()}", "such as 0,0.5,0.9")
        found.add(share)
    return tuple(sorted(found))


def counts_of(space: Space, most: int) -> tuple[int, ...]:
    """Return the numbers of systems that share out one of the batches, ascending, up to `most`.

    >>> counts_of(Space(batches=(12,)), most=8)
    (1, 2, 3, 4, 6)
    """
    most = most if space.most is None else min(most, space.most)
    return tuple(count for count in range(1, most + 1) if samples_of(space, count))


def samples_of(space: Space, count: int) -> Sequence[int]:
    """Return the allowed numbers of samples of each of so many systems.

    >>> samples_of(Space(batches=(12, 16, 24)), 8)
    [2, 3]
    """
    return [*space.batches_per_csx, *(batch // count for batch in space.batches if batch % count == 0)]
