"""Tracks of a page beside a plain second model: it goes through all events for each sample."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.arch import EAST, RAMP
from cstool.csl.fabric.trace import ACTS, NO_QUEUE, Recorded, Recorder, read_trace
from cstool.csl.page.tracks import Sampled, Tracks
from tests.examples import examples
from tests.unit.csl.fabric.waits import line

Event = tuple[Any, ...]
PES = 3
ENDS = {"starved": "came", "full": "sent", "refused": "sent"}

times = st.integers(0, 60)
pes = st.integers(0, PES - 1)
hop = st.tuples(times, pes, st.just("hop"), st.sampled_from([RAMP, EAST]), st.integers(0, 2), st.just(7), st.booleans())
turn = st.tuples(
    times, pes, st.just("turn"), st.integers(0, 1), st.integers(0, 31), st.integers(0, 31), st.integers(0, 3)
)
act = st.tuples(
    times,
    pes,
    st.just("queue"),
    st.sampled_from(ACTS),
    st.sampled_from([None, 2]),
    st.integers(0, 1),
    st.just(7),
    st.booleans(),
)
source_line = st.tuples(times, pes, st.just("line"), st.sampled_from(["pe.csl:3:1", "pe.csl:4:1", "<lib>:9:2"]))
thread = st.sampled_from(["main", "microthread 2"])
mark = st.tuples(times, pes, st.just("mark"), thread, st.sampled_from(["fadds", "mov32"]))
task = st.tuples(times, pes, st.just("task mark"), st.sampled_from(["main", "sum"]))
events_ = st.lists(st.one_of(hop, turn, act, source_line, mark, task), max_size=60)
every_ = st.integers(1, 9)


def in_order(events: list[Event]) -> list[Event]:
    """Events by time, those of tasks and operations as begins and ends in turns."""
    open_ones: dict[Event, Event] = {}
    found = []
    for time, pe, kind, *fields in sorted(events, key=lambda event: event[0]):
        if not kind.endswith("mark"):
            found.append((time, pe, kind, *fields))
            continue
        name, key = ("task", (pe,)) if kind == "task mark" else ("op", (pe, fields[0]))
        if key not in open_ones:
            open_ones[key] = tuple(fields)
            place = ("pe.csl:8:3",) if name == "op" else ()
            found.append((time, pe, name, *fields, *place))
        else:
            found.append((time, pe, f"{name}_end", *open_ones.pop(key)))
    return found


def recorded(folder, events: list[Event]) -> Recorded:
    recorder = Recorder(line(PES))
    for time, pe, kind, *fields in events:
        if kind == "line":
            recorder.line(time, pe, *fields)
        else:
            recorder(time, pe, kind, *fields)
    recorder.save(folder / "t.trace")
    return read_trace(folder / "t.trace")


def rows(tracks: Tracks) -> dict[Event, list[tuple[int, ...]]]:
    """By key: rows of sample and values."""
    found = {}
    ends = np.cumsum(tracks.counts).tolist()
    for track, end in enumerate(ends):
        start = end - int(tracks.counts[track])
        columns = (tracks.samples, *tracks.values)
        found[tuple(int(key[track]) for key in tracks.keys)] = [
            tuple(int(column[row]) for column in columns) for row in range(start, end)
        ]
    assert list(found) == sorted(found), "tracks are in order"
    assert len(found) == len(tracks.counts), "no two tracks have one key"
    return found


def latest(tracks: Tracks, sample: int) -> dict[Event, tuple[int, ...]]:
    """States at a sample."""
    before = {key: [row for row in track if row[0] <= sample] for key, track in rows(tracks).items()}
    return {key: track[-1][1:] for key, track in before.items() if track}


def covering(tracks: Tracks, sample: int) -> dict[Event, tuple[int, ...]]:
    """Spans that cover a sample: the values behind the number of samples."""
    return {key: row[2:] for key, track in rows(tracks).items() for row in track if row[0] <= sample < row[0] + row[1]}


@given(events_, every_)
@examples(60)
def test_tracks_are_what_a_plain_model_says(tmp_path_factory, events, every):
    events = in_order(events)
    trace = recorded(tmp_path_factory.mktemp("t"), events)
    sampled = Sampled(trace, every)
    assert sampled.samples == -(-sampled.end // every) + 1
    tracks = {
        name: getattr(sampled, name)()
        for name in ("hops", "turns", "lines", "tasks", "operations", "fills", "waits", "line_cycles")
    }
    hops = rows(tracks["hops"])
    for sample in range(sampled.samples):
        cycle = sample * every
        so_far = [event for event in events if event[0] <= cycle]
        new = [event for event in so_far if event[0] > cycle - every]
        counted = Counter(
            (pe, port, color) for _, pe, kind, *rest in new if kind == "hop" for port, color in [rest[:2]]
        )
        assert {key: row[1] for key, track in hops.items() for row in track if row[0] == sample} == counted
        turned = {(pe, rest[0]): tuple(rest[1:]) for _, pe, kind, *rest in so_far if kind == "turn"}
        assert latest(tracks["turns"], sample) == turned
        begun = {(pe,): (trace.places.index(rest[0]),) for _, pe, kind, *rest in so_far if kind == "line"}
        assert latest(tracks["lines"], sample) == begun
        assert covering(tracks["tasks"], sample) == running(trace, events, cycle, "task")
        assert covering(tracks["operations"], sample) == running(trace, events, cycle, "op")
        assert latest(tracks["fills"], sample) == fills(so_far)
        assert set(covering(tracks["waits"], sample)) == waits(so_far)
    assert rows(tracks["line_cycles"]) == cycles_of_lines(trace, events, sampled.end)


def running(trace: Recorded, events: list[Event], cycle: int, kind: str) -> dict[Event, tuple[int, ...]]:
    """Tasks or operations under way: whether they end at all, their name, and the place of an operation."""
    found: dict[Event, tuple[int, ...]] = {}
    ends: dict[Event, bool] = {}
    for time, pe, event, *fields in events:
        if not event.startswith(kind):
            continue
        key = (pe,) if kind == "task" else (pe, trace.words.index(fields[0]))
        name = trace.words.index(fields[0] if kind == "task" else fields[1])
        is_end = event.endswith("_end")
        if time <= cycle and is_end:
            found.pop(key)
        elif time <= cycle:
            found[key] = (name,) if kind == "task" else (name, trace.places.index("pe.csl:8:3"))
            ends[key] = False
        elif is_end and key in found:
            ends[key] = True
    return {key: (int(ends[key]), *values) for key, values in found.items()}


def fills(events: list[Event]) -> dict[Event, tuple[int]]:
    levels: defaultdict[Event, int] = defaultdict(int)
    for _, pe, kind, *fields in events:
        step = {"came": 1, "written": 1, "taken": -1, "sent": -1}.get(fields[0]) if kind == "queue" else None
        if step is not None:
            did, queue, color, *_ = fields
            own = (NO_QUEUE, color) if queue is None else (queue, 0)
            levels[pe, int(did in ("written", "sent")), *own] += step
    return {key: (max(level, 0),) for key, level in levels.items()}


def waits(events: list[Event]) -> set[Event]:
    waiting: dict[Event, Event] = {}
    for _, pe, kind, *fields in events:
        if kind != "queue":
            continue
        did, queue, color, *_ = fields
        number = NO_QUEUE if queue is None else queue
        for begin, end in ENDS.items():
            key = (pe, begin, number, color if queue is None or begin == "starved" else 0)
            if did == begin:
                waiting.setdefault(key, (pe, ACTS.index(begin), number, color))
            elif did == end:
                waiting.pop(key, None)
    return set(waiting.values())


def cycles_of_lines(trace: Recorded, events: list[Event], end: int) -> dict[Event, list[tuple[int, int]]]:
    """A line lasts to the next one of its PE, or to the end of its task."""
    found: defaultdict[Event, Counter[int]] = defaultdict(Counter)
    for pe in range(PES):
        mine = [event for event in events if event[1] == pe and event[2] in ("line", "task_end")]
        mine.sort(key=lambda event: (event[0], event[2] == "task_end"))
        for event, after in zip(mine, [*mine[1:], (end,)], strict=False):
            if event[2] == "line" and after[0] > event[0]:
                found[(pe,)][trace.places.index(event[3])] += after[0] - event[0]
    return {key: sorted(counts.items()) for key, counts in found.items()}


def test_a_run_without_events_has_one_sample(tmp_path):
    sampled = Sampled(recorded(tmp_path, []), 4)
    assert (sampled.end, sampled.samples) == (0, 1)
    assert sampled.waits().shape == (0, 0, 4, 1)
    assert sampled.line_cycles().shape == (0, 0, 1, 1)
