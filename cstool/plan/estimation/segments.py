"""Repeated segments of a graph, cut where their repetitions begin to differ."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from cstool.model.ir import Segment


def split_segments(
    segments: Iterable[Segment], key_of: Callable[[Segment], Callable[[int], Hashable]]
) -> Iterator[Segment]:
    """Yield segments cut into runs of repetitions with the same key.

    Args:
        segments: of a graph
        key_of: for a segment, a key of its repetitions, counted from 0, by which they are told apart

    >>> segment = Segment((), (), count=5, first=2)
    >>> [(part.first, part.count) for part in split_segments([segment], lambda _: lambda number: number < 2)]
    [(2, 2), (4, 3)]
    """
    for segment in segments:
        done = 0
        for _, run in groupby(range(segment.count), key_of(segment)):
            count = len(list(run))
            yield replace(segment, count=count, first=segment.first + done * segment.stride)
            done += count
