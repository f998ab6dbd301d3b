"""How the samples of a system are cut into micro-batches, or shared out to replicas: alike, or nearly so.

MemoryX adds up gradients, and a loss is divided by the tokens of the whole batch: so micro-batches may differ by a
sample. They do where equal ones leave a gap, as of a prime number of samples. Each is modelled as if it had the samples
of the largest.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator

from cstool.model.batch_split import divisors
from cstool.plan.timing.pe import ceil_div

GAP = 2
"""ratio to the next smaller equal micro-batches, from which on uneven ones are worth a try (chosen)"""
APART = 1.1
"""ratio to the next smaller uneven ones (chosen)"""


def even_size(samples: int, most: int) -> int:
    """Return the size of the largest micro-batch, where none may have more than `most` samples.

    Example: 97 samples, at most 16 at a time, are 6 micro-batches of 14 and one of 13.

    >>> even_size(97, 16), even_size(96, 16), even_size(97, 97)
    (14, 16, 97)
    """
    return int(ceil_div(samples, ceil_div(samples, most)))


def even_sizes(samples: int, most: int) -> Iterator[int]:
    """Yield the sizes of the largest micro-batch that are worth a try, the largest first.

    Equal ones are, and others between two of them that are far apart; any other size between two such sizes makes
    as many micro-batches as the smaller one.

    >>> list(even_sizes(12, most=12)), list(even_sizes(13, most=8))
    ([12, 6, 4, 3, 2, 1], [7, 5, 4, 3, 2, 1])
    >>> list(even_sizes(96, most=23))
    [20, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    equal, last = divisors(samples), math.inf
    for size in all_shares(samples, most):
        place = bisect_left(equal, size)
        is_gap = place > 0 and equal[place] > GAP * equal[place - 1]
        # The requested size comes first, with or without close neighbours.
        if equal[place] == size or last == math.inf or (is_gap and last >= APART * size):
            yield size
            last = size


def shares(samples: int) -> Iterator[int]:
    """Yield the largest shares of samples that are worth a try where each has one or one less, the largest first.

    >>> list(shares(64))
    [64, 32, 22, 16, 13, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]
    """
    last = math.inf
    for size in all_shares(samples, samples):
        if last >= APART * size or size == 1:
            yield size
            last = size


def all_shares(samples: int, most: int) -> Iterator[int]:
    """Yield the largest share of each number of shares that are alike or differ by one, the largest first.

    >>> list(all_shares(12, most=12)), list(all_shares(13, most=6))
    ([12, 6, 4, 3, 2, 1], [5, 4, 3, 2, 1])
    """
    size = even_size(samples, min(most, samples))
    yield size
    while size > 1:
        size = even_size(samples, size - 1)
        yield size
