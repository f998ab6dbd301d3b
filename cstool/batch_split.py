"""Divisors: of a batch, by systems, micro-batches, replicas, grains."""

import math


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive number, smallest first."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return [*small, *(number // divisor for divisor in reversed(small) if divisor * divisor != number)]


def nearest_divisors(number: int, got: int) -> str:
    """Return the hint of an error: the divisors of a number next to something that is none."""
    fitting = divisors(number)
    below = [str(divisor) for divisor in fitting if divisor < got][-1:]
    above = [str(divisor) for divisor in fitting if divisor > got][:1]
    return f"{' and '.join([*below, *above])} {'are' if below and above else 'is'} the nearest"
