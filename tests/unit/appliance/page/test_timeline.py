"""Who had which cores when, from events; where jobs that wait are expected to run."""

from dataclasses import replace

import pytest

from cstool.appliance.page.rows import MOST_ENDED, event_rows, job_rows
from cstool.appliance.page.timeline import Span, Timeline, expected_spans, span_row
from cstool.appliance.queue.job import CRASHED, FAILED, QUEUED, RESTARTS, Event, Stay, stays
from tests.shown_jobs import Shown, many_jobs, name_of


@pytest.fixture
def shown(tmp_path):
    with Shown(tmp_path / "root") as made:
        made.now = 1000.0
        yield made


def run_twice(shown: Shown) -> str:
    name = shown.submit(1)
    for at, act in (
        (1010.0, lambda: shown.compile(name, 5)),
        (1020.0, lambda: shown.start(name, [1, 2])),
        (1030.0, lambda: shown.stop(name)),
        (1040.0, lambda: shown.start(name, [0])),
        (1050.0, lambda: shown.end(name)),
    ):
        shown.now = at
        act()
    return name


def test_spans(shown):
    name = run_twice(shown)
    other = shown.submit(2)
    shown.start(other, [3])
    timeline = Timeline()
    timeline.add(shown.queue.events())
    assert timeline.spans() == [
        Span(name, "compile", 1010.0, 1015.0, (), 0, "compiled"),
        Span(name, "execute", 1020.0, 1030.0, (1, 2), 2 * 10**9, "preempted"),
        Span(name, "execute", 1040.0, 1050.0, (0,), 2 * 10**9, "succeeded"),
        Span(other, "execute", 1050.0, None, (3,), 2 * 10**9, ""),
    ]
    assert timeline.last == shown.queue.events()[-1].number
    parts = Timeline()
    for event in shown.queue.events():
        parts.add([event])
    assert parts.spans() == timeline.spans()


def test_start_without_an_end():
    """What is started again has ended before, whatever was said of it."""
    data = {"cpus": [0, "x", 1], "memory_bytes": None}
    timeline = Timeline()
    timeline.add([Event(1, 5.0, "a", "started", "", data), Event(2, 9.0, "a", "started", "", {"cpus": 7})])
    assert timeline.spans() == [
        Span("a", "execute", 5.0, 9.0, (0, 1), 0, "started"),
        Span("a", "execute", 9.0, None, (), 0, ""),
    ]


def test_spans_are_bounded(monkeypatch):
    monkeypatch.setattr("cstool.appliance.page.timeline.MOST_SPANS", 3)
    timeline = Timeline()
    timeline.add(Event(number, float(number), str(number), "started", "", {}) for number in range(9))
    assert [span.job for span in timeline.spans()] == ["6", "7", "8"]
    timeline.add([Event(9, 10.0, "2", "failed", "", {})])  # its span is not kept any more
    assert len(timeline.spans()) == 3


def test_stays(shown):
    name = run_twice(shown)
    assert stays(shown.queue.events(name)) == [
        Stay("QUEUED", 1000.0, 1010.0),
        Stay("COMPILING", 1010.0, 1015.0),
        Stay("QUEUED", 1015.0, 1020.0),
        Stay("RUNNING", 1020.0, 1030.0, (1, 2)),
        Stay("QUEUED", 1030.0, 1040.0),
        Stay("RUNNING", 1040.0, 1050.0, (0,)),
        Stay("SUCCEEDED", 1050.0, None),
    ]


def test_crash_is_one_wait_and_a_label_changes_no_phase(shown):
    name = shown.submit(1)
    shown.queue.label(name, {"a": "b"})
    shown.start(name, [0])
    shown.stop(name, CRASHED, "died by SIGKILL")
    shown.stop(name, RESTARTS, "is started again")
    shown.end(name, FAILED, "crashed")
    assert [stay.phase for stay in stays(shown.queue.events(name))] == ["QUEUED", "RUNNING", "QUEUED", "FAILED"]


def test_expected_on_free_cores(shown):
    running, first, second, unknown = (shown.submit(number, needs={"cores": 2}) for number in range(4))
    shown.start(running, [0, 1], expected_end=1100.0)
    shown.queue.set_expected({first: (1000.0, 1200.0), second: (1100.0, None), unknown: (None, None)}, {})
    spans = expected_spans(shown.queue.jobs(active=True), (0, 1, 2, 3))
    assert spans == [
        Span(first, "execute", 1000.0, 1200.0, (2, 3), 2 * 10**9, "expected"),
        Span(second, "execute", 1100.0, None, (0, 1), 2 * 10**9, "expected"),
    ]
    assert expected_spans(shown.queue.jobs(active=True), (0, 1, 2, 3), most=1) == spans[:1]


def test_more_cores_than_there_are(shown):
    name = shown.submit(1, needs={"cores": 9})
    shown.queue.set_expected({name: (1000.0, 1200.0)}, {})
    assert expected_spans(shown.queue.jobs(), (0, 1))[0].cpus == (0, 1)
    assert expected_spans(shown.queue.jobs(), ())[0].cpus == ()


def test_span_row():
    row = {"job": "a", "stage": "execute", "begin": 1.23, "end": None, "cpus": (1,), "memory_bytes": 5, "how": ""}
    assert span_row(Span("a", "execute", 1.23456, None, (1,), 5, "")) == row


def test_order_of_rows(tmp_path):
    many_jobs(tmp_path / "root", 40)
    with Shown(tmp_path / "root") as shown:
        active, ended = shown.queue.jobs(active=True), shown.queue.jobs(phases=("SUCCEEDED", "FAILED", "CANCELLED"))
        rows = job_rows(active, ended)
        positions = shown.queue.positions()
    assert len(rows) == 40
    phases = [row["phase"] for row in rows]
    assert phases[:3] == ["RUNNING", "RUNNING", "COMPILING"]
    waiting = [row for row in rows if row["phase"] == QUEUED]
    assert rows[3 : 3 + len(waiting)] == waiting
    assert {row["name"]: row["position"] for row in waiting} == positions
    assert [row["position"] for row in waiting] == list(range(1, len(waiting) + 1))
    ended_at = [row["ended_at"] for row in rows[3 + len(waiting) :]]
    assert ended_at == sorted(ended_at, reverse=True)


def test_ended_jobs_are_bounded(shown):
    name = shown.submit(1)
    shown.end(name)
    jobs = [replace(shown.queue.job(name), number=number) for number in range(MOST_ENDED + 50)]
    assert len(job_rows([], jobs)) == MOST_ENDED


def test_why_a_job_ended(shown):
    """May be a line of its log; why it waits may not."""
    ended, waiting = shown.submit(1), shown.submit(2)
    shown.end(ended, FAILED, "error: a line of its log")
    shown.queue.set_expected({}, {waiting: "waits for 1 core"})
    for tells_why, said in ((True, "error: a line of its log"), (False, "")):
        rows = job_rows(shown.queue.jobs(active=True), shown.queue.jobs(phases=[FAILED]), tells_why=tells_why)
        assert [row["reason"] for row in rows] == ["waits for 1 core", said]
        assert event_rows(shown.queue.events(ended), tells_why=tells_why)[-1]["text"] == said


def test_what_somebody_wrote_is_shown(shown):
    shown.submit(1, model="gpt\x1b[2J", note="a\u202eb", labels={"a": "\u202e"})
    row = job_rows(shown.queue.jobs(), [])[0]
    assert (row["name"], row["model"]) == (name_of(1), "gpt\\x1b[2J")
    assert (row["note"], row["labels"]) == ("a\\u202eb", {"a": "\\u202e"})
    assert event_rows([Event(1, 1.0, "", "x", "a\nb", {})])[0]["text"] == "a\\nb"
