"""Whole numbers as few bytes: differences, seven bits in a byte, deflate. `static/data.js` reads them.

A column is n numbers of 0 to 2^63 - 1. Each is written as a varint (LEB128: the low seven bits first, the highest bit
of a byte says that more follow). Differences that may be negative are folded first: 0, -1, 1,
-2, 2 become 0, 1, 2, 3, 4.
"""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_LEVEL = 9


def varints(numbers: NDArray[np.uint64]) -> bytes:
    """Varints of numbers, one behind the other.

    Args:
        numbers: [n]

    >>> varints(np.array([0, 127, 128], np.uint64)).hex()
    '007f8001'
    """
    numbers = numbers.astype(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    for place in range(1, 10):
        sizes += numbers >> np.uint64(7 * place) > 0
    starts = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), np.uint8)
    for place in range(int(sizes.max(initial=0))):
        there = np.flatnonzero(sizes > place)
        part = numbers[there] >> np.uint64(7 * place) & np.uint64(127)
        out[starts[there] + place] = part.astype(np.uint8) | np.where(sizes[there] > place + 1, 128, 0).astype(np.uint8)
    return out.tobytes()


def plain(numbers: Numbers) -> bytes:
    """A column of numbers that are not negative."""
    return varints(numbers.astype(np.uint64))


def differences(numbers: Numbers) -> bytes:
    """A column of any numbers: the first one, then differences, folded."""
    steps: Numbers = np.diff(numbers, prepend=0).astype(np.int64)
    return varints((steps << 1 ^ steps >> 63).astype(np.uint64))


def rising(numbers: Numbers, counts: Sequence[int] | Numbers) -> bytes:
    """A column of groups of numbers that never fall within a group: differences, anew in each group.

    Args:
        numbers: [n], not negative
        counts: numbers in each group; none is empty
    """
    steps: Numbers = np.diff(numbers, prepend=0).astype(np.int64)
    sizes = np.asarray(counts, np.int64)
    firsts = np.cumsum(sizes) - sizes
    steps[firsts] = numbers[firsts]
    return varints(steps.astype(np.uint64))


def packed(parts: Sequence[bytes]) -> str:
    """Columns, one behind the other, as text for a page: deflated (zlib), in base64."""
    return base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode("ascii")
