"""Shares of a batch: divisors, of systems, micro-batches, replicas, grains; and parts of nearly equal length."""

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive number, smallest first."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return [*small, *(number // divisor for divisor in reversed(small) if divisor * divisor != number)]


def nearest_divisors(number: int, got: int) -> str:
    """Return the hint of an error: the divisors of a number next to a value that is none."""
    fitting = divisors(number)
    below = [str(divisor) for divisor in fitting if divisor < got][-1:]
    above = [str(divisor) for divisor in fitting if divisor > got][:1]
    return f"{' and '.join([*below, *above])} {'are' if below and above else 'is'} the nearest"


def even_parts(whole: Sequence[T], count: int) -> list[Sequence[T]]:
    """Cut a sequence into `count` parts, in order, with lengths that differ by at most one; some may be empty.

    Where the longer parts are depends on the length of the sequence and the count alone.
    """
    edges = [len(whole) * i // count for i in range(count + 1)]
    return [whole[begin:end] for begin, end in zip(edges, edges[1:], strict=False)]
