"""Events of a trace as tracks: the changes of each PE's threads, links and queues, by sample.

A sample is every Nth cycle, sample k is cycle k N. A track of states has the state after all events up to its sample; a
track of counts has the events since the sample before; a span covers the samples from its begin to before its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.trace import ACTS, KINDS, NO_QUEUE, Recorded
from cstool.csl.page.coding import Numbers, differences, plain, rising

OWN = NO_QUEUE
"""queue number of the own queue of a color"""


@dataclass(frozen=True)
class Tracks:
    """Tracks of one kind.

    Args:
        keys: [tracks] each: the PE, then the rest of the key
        counts: [tracks] rows in each
        samples: [rows] when, in order within a track
        values: [rows] each
    """

    keys: tuple[Numbers, ...]
    counts: Numbers
    samples: Numbers
    values: tuple[Numbers, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Tracks, rows, columns of keys, columns of values."""
        return len(self.counts), len(self.samples), len(self.keys), len(self.values)

    def parts(self) -> list[bytes]:
        """Its columns as bytes: keys, counts, samples, values."""
        return [
            *map(differences, self.keys),
            plain(self.counts),
            rising(self.samples, self.counts),
            *map(plain, self.values),
        ]


def tracks_of(keys: Sequence[Numbers], samples: Numbers, values: Sequence[Numbers]) -> Tracks:
    """Tracks of rows in any order; rows of one track and sample keep their order."""
    order = np.lexsort((samples, *reversed(keys)))
    keys = [key[order] for key in keys]
    first = np.ones(len(order), bool)
    if len(order):
        first[1:] = np.any([np.diff(key) != 0 for key in keys], axis=0)
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, len(order)))
    return Tracks(tuple(key[starts] for key in keys), counts, samples[order], tuple(value[order] for value in values))


class Sampled:
    """Tracks of a trace.

    Args:
        trace: the trace
        every: cycles from sample to sample
    """

    def __init__(self, trace: Recorded, every: int = 1) -> None:
        self.every = every
        self._trace = trace
        self.end = trace.last
        """the last cycle"""
        self.samples = -(-self.end // every) + 1
        self._never = self.samples * every  # behind the last sample

    def _at(self, times: NDArray[np.uint64]) -> Numbers:
        """The first sample at or after a cycle."""
        return -(-times.astype(np.int64) // self.every)

    def hops(self) -> Tracks:
        """Wavelets that left routers: by PE, port and color; counts."""
        keys = _columns(self._trace.hops, "pe", "port", "color")
        found = tracks_of(keys, self._at(self._trace.hops["time"]), [])
        return _summed(found)

    def turns(self) -> Tracks:
        """Routes that changed: by PE and color; rx, tx, position."""
        turns = self._trace.turns
        values = _columns(turns, "rx", "tx", "position")
        return _latest(tracks_of(_columns(turns, "pe", "color"), self._at(turns["time"]), values))

    def lines(self) -> Tracks:
        """Lines of the source that began: by PE; the place (in `places`)."""
        lines = self._trace.lines
        return _latest(tracks_of(_columns(lines, "pe"), self._at(lines["time"]), _columns(lines, "place")))

    def tasks(self) -> Tracks:
        """Tasks that ran: by PE; samples, whether it ended, the name among the words."""
        return self._spans(KINDS.index("task"))

    def operations(self) -> Tracks:
        """Operations in progress: by PE and thread (among the words); samples, whether it ended, name, place."""
        return self._spans(KINDS.index("op"))

    def _spans(self, begin: int) -> Tracks:
        marks = self._trace.marks
        mine = np.flatnonzero((marks["kind"] == begin) | (marks["kind"] == begin + 1))
        pe, kind, thread, name, place = (
            each[mine] for each in _columns(marks, "pe", "kind", "thread", "name", "place")
        )
        time = marks["time"][mine].astype(np.int64)
        # A thread does one thing at a time: what follows a begin is its end, or there is none.
        order = np.lexsort((np.arange(len(mine)), time, thread, pe))
        begins = kind[order] == begin
        same = np.zeros(len(order), bool)
        same[:-1] = (np.diff(pe[order]) == 0) & (np.diff(thread[order]) == 0) & begins[:-1] & ~begins[1:]
        at = np.flatnonzero(begins)
        ended = same[at]
        ends = np.where(ended, time[order][np.minimum(at + 1, len(order) - 1)], self._never)
        rows = order[at]
        is_task = KINDS[begin] == "task"
        keys = [pe[rows]] if is_task else [pe[rows], thread[rows]]
        values = [ended.astype(np.int64), name[rows]] if is_task else [ended.astype(np.int64), name[rows], place[rows]]
        return self._covering(keys, time[rows], ends, values)

    def _covering(self, keys: list[Numbers], begins: Numbers, ends: Numbers, values: list[Numbers]) -> Tracks:
        """Spans that cover a sample; the first value is the number of samples."""
        first, behind = self._at(begins.astype(np.uint64)), self._at(ends.astype(np.uint64))
        kept = behind > first
        columns = [each[kept] for each in (behind - first, *values)]
        return tracks_of([key[kept] for key in keys], first[kept], columns)

    def fills(self) -> Tracks:
        """Wavelets in queues: by PE, 0 for input and 1 for output, queue, color of own queues, else 0; their number."""
        queues = self._trace.queues
        pe, act, queue, color = _columns(queues, "pe", "act", "queue", "color")
        steps = np.zeros(len(ACTS), np.int64)
        steps[[ACTS.index("came"), ACTS.index("written")]] = 1
        steps[[ACTS.index("taken"), ACTS.index("sent")]] = -1
        is_output = np.isin(act, [ACTS.index("written"), ACTS.index("sent")]).astype(np.int64)
        kept = steps[act] != 0
        keys = [each[kept] for each in (pe, is_output, queue, np.where(queue == OWN, color, 0))]
        found = tracks_of(keys, queues["time"][kept].astype(np.int64), [steps[act][kept]])
        sums = np.cumsum(found.values[0])
        starts = np.cumsum(found.counts) - found.counts
        before = np.append(0, sums)[starts]
        levels = np.maximum(sums - np.repeat(before, found.counts), 0)
        return _latest(Tracks(found.keys, found.counts, self._at(found.samples.astype(np.uint64)), (levels,)))

    def waits(self) -> Tracks:
        """Waits at queues: by PE, act (in `ACTS`), queue and color; samples."""
        queues = self._trace.queues
        pe, act, queue, color = _columns(queues, "pe", "act", "queue", "color")
        time = queues["time"].astype(np.int64)
        found: list[list[Numbers]] = []
        for begin, end in (("starved", "came"), ("full", "sent"), ("refused", "sent")):
            number = ACTS.index(begin)
            rows = np.flatnonzero((act == number) | (act == ACTS.index(end)))
            # An output queue sends any color: the first wavelet out of it ends the wait.
            by = np.where((queue == OWN) | (begin == "starved"), color, 0)
            order = rows[np.lexsort((rows, time[rows], by[rows], queue[rows], pe[rows]))]
            begins = act[order] == number
            # Of several begins of one wait, as several operations have them, the first counts.
            alike = np.all([np.diff(each[order]) == 0 for each in (pe, queue, by)], axis=0)
            again = np.append(False, alike & begins[:-1])
            at = np.flatnonzero(begins & ~again)
            over = np.flatnonzero(~begins | np.append(True, ~alike))
            behind = np.append(over, len(order))[np.searchsorted(over, at, side="right")]
            same = behind < len(order)
            there = order[np.minimum(behind, max(len(order) - 1, 0))] if len(order) else order
            here = order[at]
            same &= (pe[there] == pe[here]) & (queue[there] == queue[here]) & (by[there] == by[here])
            same &= act[there] == ACTS.index(end)
            ends = np.where(same, time[there], self._never)
            found.append([pe[here], np.full(len(at), number), queue[here], color[here], time[here], ends])
        *keys, begins_, ends_ = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return self._covering(keys, begins_, ends_, [])

    def line_cycles(self) -> Tracks:
        """Cycles of each line, of all cycles: by PE; the place (in `places`) as the sample, cycles.

        A line lasts to the next one, or to the end of its task.
        """
        trace = self._trace
        pe, place = _columns(trace.lines, "pe", "place")
        time = trace.lines["time"].astype(np.int64)
        marks = trace.marks
        over = np.flatnonzero(marks["kind"] == KINDS.index("task_end"))
        all_pe = np.append(pe, marks["pe"][over].astype(np.int64))
        all_time = np.append(time, marks["time"][over].astype(np.int64))
        all_place = np.append(place, np.full(len(over), -1))
        order = np.lexsort((np.arange(len(all_pe)), all_place < 0, all_time, all_pe))
        all_pe, all_time, all_place = all_pe[order], all_time[order], all_place[order]
        same = np.append(np.diff(all_pe) == 0, False)
        behind = np.where(same, np.append(all_time[1:], 0), self.end)
        took = np.maximum(behind - all_time, 0)
        kept = (all_place >= 0) & (took > 0)
        return _summed(tracks_of([all_pe[kept]], all_place[kept], [took[kept]]))


def _columns(table: dict[str, NDArray[np.uint64]], *names: str) -> list[Numbers]:
    return [table[name].astype(np.int64) for name in names]


def _groups(tracks: Tracks) -> tuple[Numbers, Numbers]:
    """The first row of each track and sample, and the track of each row."""
    of = np.repeat(np.arange(len(tracks.counts)), tracks.counts)
    new = np.ones(len(of), bool)
    new[1:] = (np.diff(of) != 0) | (np.diff(tracks.samples) != 0)
    return np.flatnonzero(new), of


def _summed(tracks: Tracks) -> Tracks:
    """Tracks with one row a sample: the sum of the value, or the number of rows where there is none."""
    firsts, of = _groups(tracks)
    ones = tracks.values[0] if tracks.values else np.ones(len(of), np.int64)
    sums = np.add.reduceat(ones, firsts) if len(firsts) else ones
    counts = np.bincount(of[firsts], minlength=len(tracks.counts))
    return Tracks(tracks.keys, counts, tracks.samples[firsts], (sums,))


def _latest(tracks: Tracks) -> Tracks:
    """Tracks with one row a sample: the last one."""
    firsts, of = _groups(tracks)
    lasts = np.append(firsts[1:], len(of)) - 1 if len(firsts) else firsts
    counts = np.bincount(of[firsts], minlength=len(tracks.counts))
    return Tracks(tracks.keys, counts, tracks.samples[lasts], tuple(value[lasts] for value in tracks.values))
