"""Which numbers of a weight a sparse checkpoint keeps: found by going over it in ranges of rows, never in one piece."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cstool.convert.source import CstoolSource, Source
from cstool.errors import NonFiniteError

Array = np.ndarray[Any, Any]
_HALF_BITS = 16
_LOW_HALF = np.uint32(2**_HALF_BITS - 1)
_INFINITY = np.uint32(0x7F800000)
"""bits of float32 infinity; above it is NaN"""


@dataclass(frozen=True)
class Kept:
    """What is kept of a weight.

    Args:
        count: of its numbers
        masks: yields, for each range of rows that `Source.rows` yields, (n, ...) bool
    """

    count: int
    masks: Callable[[], Iterator[Array]]


def keep_nonzero(source: Source, weight: str) -> Kept:
    """Keep what is not zero."""

    def masks() -> Iterator[Array]:
        for rows in source.rows(f"model.{weight}"):
            yield rows != 0

    return Kept(sum(int(np.count_nonzero(mask)) for mask in masks()), masks)


def keep_stored(source: CstoolSource, weight: str) -> Kept:
    """Keep what a sparse weight has: a number that has only just grown is zero, and kept."""
    return Kept(source.count(weight), lambda: source.kept(weight))


def keep_largest(source: Source, weight: str, count: int) -> Kept:
    """Keep the `count` numbers of largest magnitude, of equal ones those of the lowest index.

    The bits of float32 magnitudes are ordered as they are. So two histograms, of their upper halves and then of the
    lower halves of those that share the upper one of the last number kept, find that number.

    Raises:
        NonFiniteError: a number is NaN
    """
    if count == 0:
        return Kept(0, lambda: (np.zeros(bits.shape, np.bool_) for bits in _magnitudes(source, weight)))
    uppers = (bits.reshape(-1) >> _HALF_BITS for bits in _magnitudes(source, weight))
    upper, left = _bin_of(uppers, count)
    lowers = (bits[bits >> _HALF_BITS == upper] & _LOW_HALF for bits in _magnitudes(source, weight))
    lower, ties = _bin_of(lowers, left)
    least = np.uint32(upper << _HALF_BITS | lower)

    def masks() -> Iterator[Array]:
        left = ties
        for bits in _magnitudes(source, weight):
            mask = bits > least
            equal = np.flatnonzero(bits == least)[:left]
            mask.reshape(-1)[equal] = True
            left -= equal.size
            yield mask

    return Kept(count, masks)


def _bin_of(halves: Iterator[Array], count: int) -> tuple[int, int]:
    """Return the half of the number that is the `count`-th from above, and the how many-th of its half it is."""
    histogram = np.zeros(2**_HALF_BITS, np.int64)
    for half in halves:
        histogram += np.bincount(half, minlength=histogram.size)
    from_above = np.cumsum(histogram[::-1])
    place = int(np.searchsorted(from_above, count))
    return histogram.size - 1 - place, count - int(from_above[place] - histogram[::-1][place])


def _magnitudes(source: Source, weight: str) -> Iterator[Array]:
    """Yield the bits of the magnitudes of a weight, uint32."""
    for rows in source.rows(f"model.{weight}"):
        bits = np.abs(rows).view(np.uint32)
        if np.any(bits > _INFINITY):
            raise NonFiniteError(f"{source.path}: {weight} must be without NaN to keep its largest numbers, it is not")
        yield bits
