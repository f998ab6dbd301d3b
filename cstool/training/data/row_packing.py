"""Samples of several lengths put together into rows of one length, such that they do not see each other.

Best fit decreasing: samples go by their length, the longest first, each to the row with the least room that it fits, or
to a new one. Ties go to the lower number, so the rows follow from the lengths alone.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from cstool.training.data.conversation_tokens import Sample
from cstool.training.data.dataset import Array
from cstool.training.data.hdf5_text import FEATURES, INPUT_IDS, LABELS, MASK, PACKED_FEATURES, POSITION, SPAN


def best_fit(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Return the numbers of the samples in each row, ascending; rows go by their first numbers.

    Args:
        lengths: of the samples, from 1 to `room`
        room: of a row

    >>> best_fit([2, 5, 3, 1], 6)
    [[0, 2], [1, 3]]
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}
    """room -> heap of the rows that have it"""
    rooms: list[int] = []
    """ascending"""
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        place = bisect_left(rooms, length)
        if place < len(rooms):
            rest = rooms[place]
            row = heappop(by_room[rest])
            rows[row].append(number)
            if not by_room[rest]:
                del by_room[rest], rooms[place]
        else:
            rest, row = room, len(rows)
            rows.append([number])
        rest -= length
        if rest not in by_room:
            by_room[rest] = []
            insort(rooms, rest)
        heappush(by_room[rest], row)
    return sorted(map(sorted, rows))


def row_of(samples: Sequence[Sample], length: int, *, is_packed: bool) -> Array:
    """Return a row of one or more samples back to back, then padding.

    Args:
        samples: each of T tokens takes T - 1 places: its inputs are all but the last, its labels all but the first
        length: S, at least the places of all samples
        is_packed: whether attention spans and position ids follow, which tell the samples apart

    Returns:
        (5 or 3, S) int32, see `hdf5_text`
    """
    row = np.zeros((len(PACKED_FEATURES if is_packed else FEATURES), length), np.int32)
    start = 0
    for sample in samples:
        count = len(sample.tokens) - 1
        part = row[:, start : start + count]
        part[INPUT_IDS], part[LABELS], part[MASK] = sample.tokens[:-1], sample.tokens[1:], sample.learned[1:]
        if is_packed:
            part[POSITION] = np.arange(count)
            part[SPAN] = part[POSITION][::-1]
        start += count
    return row
