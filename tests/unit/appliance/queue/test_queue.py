"""The queue: what each of its operations does, in one transaction with its event."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.appliance.queue.job import ACTIVE_PHASES, CANCEL, CANCEL_NOW, ENDED_PHASES, PREEMPT, Event, Needs
from cstool.appliance.queue.names import new_name
from cstool.appliance.queue.queue import CAPACITY, KEEPS, Queue
from cstool.appliance.queue.root import open_root
from cstool.foundation.errors import CstoolError
from tests.examples import examples
from tests.unit.appliance.queue.queues import DIGEST, add, an_order, refusal

BEGIN_S = 1_800_000_000.0


class Clock:
    """It stands still unless it is set."""

    now_s = BEGIN_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(root, clock) -> Iterator[Queue]:
    with Queue(root, clock=clock) as made:
        yield made


def end(queue: Queue, name: str, phase: str = "SUCCEEDED", kind: str = "succeeded") -> None:
    assert queue.change(name, ACTIVE_PHASES, event=(kind, "ended", {}), phase=phase) is not None


def kinds(queue: Queue, job: str | None = None) -> list[str]:
    return [event.kind for event in queue.events(job)]


def test_a_job_is_added_with_its_event(queue):
    name = new_name()
    order = an_order(model_dir=Path("/a/\udcff"), params_file="ü\udcff", note="first", priority="p1", preempts=True)
    job = queue.add(name, order, DIGEST, "local", user="ümit", user_id=1000)
    assert job == queue.job(name)
    same = ("model", "mode", "params_file", "model_dir", "compile_key", "max_steps", "needs", "labels", "note")
    same += ("priority", "preempts", "preemptible", "max_restarts")
    assert {field: getattr(job, field) for field in same} == {field: getattr(order, field) for field in same}
    assert (job.number, job.name, job.user, job.user_id, job.digest) == (1, name, "ümit", 1000, DIGEST)
    assert (job.backend, job.backend_id, job.phase, job.stage) == ("local", "", "QUEUED", "compile")
    assert (job.reason, job.asked, job.attempt, job.restarts, job.cpus, job.submitted_at) == ("", "", 0, 0, (), BEGIN_S)
    assert (job.started_at, job.ended_at, job.exit_code, job.expected_start, job.expected_end) == (None,) * 5
    assert job.peak_bytes == 0
    amounts = {"cores": 2, "memory_bytes": 2**30, "disk_bytes": 2**20, "systems": 1, "seconds": 60.0, "limit_s": None}
    data = {"stage": "compile", "priority": "p1", **amounts}
    assert queue.events() == [Event(1, BEGIN_S, name, "submitted", "submitted by ümit", data)]
    assert add(queue, compile_words=()).stage == "execute"


def test_what_cannot_be_added(queue):
    job = add(queue)
    for name, said in (
        (job.name, f"job {job.name}: is in the queue already"),
        ("../x", "job '../x': a job is called wsjob- and 22 small letters or digits"),
    ):
        found = refusal(lambda name=name: queue.add(name, an_order(), DIGEST, "local", user="x", user_id=1))
        assert found.splitlines()[0] == said
    assert (queue.jobs(), kinds(queue)) == ([job], ["submitted"])


def test_a_job_is_found_by_a_beginning_of_its_name(queue, monkeypatch):
    names = [f"wsjob-{letters:a<22}" for letters in ("xyz", "xy", "xb", "q", "xc", "xd")]
    for name in names:
        queue.add(name, an_order(), DIGEST, "local", user="x", user_id=1)
    assert queue.job("wsjob-q").name == names[3]
    assert queue.job("wsjob-xyz").name == queue.job(names[0]).name == names[0]
    for beginning, said in (
        ("wsjob-xy", f"must be the beginning of one name, it is that of 2 jobs: {names[1]}, {names[0]}"),
        (
            "ws",
            f"must be the beginning of one name, it is that of 6 jobs: {names[5]}, {names[4]}, {names[3]} and 3 more",
        ),
        (
            "wsjob-z",
            "must be in the queue, there is no such job\n"
            "hint: cstool job list -a shows all; the oldest that ended are forgotten after some time",
        ),
    ):
        assert refusal(queue.job, beginning) == f"job {beginning}: {said}"
    assert refusal(queue.job, "../../etc").startswith("job '../../etc': a job is called wsjob- and 22 ")


def test_lists(queue):
    first = add(queue, user="a", labels={"x": "1", "a.b": "2"})
    second = add(queue, user="b", labels={"x": "1"})
    third = add(queue, user="a", labels={})
    queue.change(second.name, ("QUEUED",), phase="RUNNING")
    end(queue, third.name)
    two = ("SUCCEEDED", "RUNNING")
    for filters, numbers in (
        ({}, [1, 2, 3]),
        ({"active": True}, [1, 2]),
        ({"phases": two}, [2, 3]),
        ({"phases": two, "active": True}, [2]),
        ({"phases": two[:1], "active": True}, []),
        ({"phases": ()}, []),
        ({"user": "a"}, [1, 3]),
        ({"user": "a' OR 1"}, []),
        ({"labels": {"x": "1"}}, [1, 2]),
        ({"labels": {"x": "1", "a.b": "2"}}, [1]),
        ({"labels": {"x": "2"}}, []),
        ({"labels": {"$": "1"}}, []),
        ({"limit": 2}, [2, 3]),
        ({"user": "a", "limit": 1}, [3]),
        ({"limit": 0}, []),
        ({"limit": 10**30}, [1, 2, 3]),
    ):
        assert [job.number for job in queue.jobs(**filters)] == numbers, filters
    assert queue.jobs()[0] == queue.job(first.name)
    assert len(queue.newest(most_ended=10**30)[0]) == 3
    assert queue.names() == {first.name, second.name, third.name}
    assert refusal(lambda: queue.jobs(phases=("RUNING",))) == (
        "phase: must be one of QUEUED, COMPILING, RUNNING, SUCCEEDED, FAILED, CANCELLED, got 'RUNING'\n"
        "hint: did you mean RUNNING?"
    )


def test_events_by_job_and_number(queue):
    first, second = add(queue), add(queue)
    queue.note("drained", "nothing new starts", {"by": "me"})
    assert [(event.number, event.job, event.kind) for event in queue.events()] == [
        (1, first.name, "submitted"),
        (2, second.name, "submitted"),
        (3, "", "drained"),
    ]
    assert queue.events("") == [Event(3, BEGIN_S, "", "drained", "nothing new starts", {"by": "me"})]
    assert [event.number for event in queue.events(second.name)] == [2]
    assert [event.number for event in queue.events(after=1)] == [2, 3]
    assert [event.number for event in queue.events(after=1, limit=1)] == [3]
    assert len(queue.events(limit=10**30)) == 3
    assert queue.events(first.name, after=1) == []


def test_a_change_comes_with_its_event(queue, clock):
    job = add(queue)
    clock.now_s += 5
    data = {"attempt": 1, "cpus": [3, 1]}
    changes = {"phase": "RUNNING", "stage": "execute", "attempt": 1, "cpus": (3, 1), "needs": Needs(1, 2, 3, 4)}
    changed = queue.change(job.name, ("QUEUED",), event=("started", "on cores 1 and 3", data), reason="", **changes)
    assert changed == queue.job(job.name)
    assert changed is not None
    assert {field: getattr(changed, field) for field in changes} == changes
    assert (changed.started_at, changed.ended_at) == (BEGIN_S + 5, None)
    assert queue.events()[1:] == [Event(2, BEGIN_S + 5, job.name, "started", "on cores 1 and 3", data)]
    # Texts are short lines.
    queue.change(job.name, ("RUNNING",), event=("started", "a\nb\x1b[2J\udcff", {}), reason="c\nd" + "x" * 1000)
    assert queue.events()[2].text == r"a\nb\x1b[2J\udcff"
    assert queue.job(job.name).reason == r"c\nd" + "x" * 495 + "…"


def test_nothing_happens_unless_it_is_as_believed(queue):
    job = add(queue)
    event = ("started", "no", {})
    assert queue.change(new_name(), ("QUEUED",), event=event, phase="RUNNING") is None
    assert queue.change(job.name, ("RUNNING", "COMPILING"), event=event, phase="RUNNING") is None
    assert queue.change(job.name, ("QUEUED",), event=event, if_attempt=1, phase="RUNNING") is None
    assert queue.change(job.name, ("QUEUED",), event=event, if_asked=CANCEL, phase="RUNNING") is None
    assert queue.change(job.name[:-1], ("QUEUED",), event=event, phase="RUNNING") is None
    assert (queue.job(job.name), kinds(queue)) == (job, ["submitted"])
    assert queue.change(job.name, ("QUEUED",), event=event, if_attempt=0, if_asked="", attempt=1, asked=PREEMPT)
    assert (queue.job(job.name).attempt, queue.job(job.name).asked) == (1, PREEMPT)


def test_a_change_that_fails_changes_nothing(queue):
    job = add(queue)
    with pytest.raises(TypeError):
        queue.change(job.name, ("QUEUED",), event=("started", "x", {"not": object()}), phase="RUNNING")
    with pytest.raises(Exception, match="CHECK constraint"):
        queue.change(job.name, ("QUEUED",), event=("started", "x", {}), phase="BANANA")
    assert (queue.job(job.name), kinds(queue)) == (job, ["submitted"])
    add(queue)  # and the queue can be used


def test_times_are_those_of_events(queue, clock):
    job = add(queue)
    for phase, kind in (("RUNNING", "started"), ("QUEUED", "preempted"), ("RUNNING", "started"), ("FAILED", "failed")):
        clock.now_s += 1
        queue.change(job.name, ACTIVE_PHASES, event=(kind, "", {}), phase=phase)
    found = queue.job(job.name)
    assert (found.submitted_at, found.started_at, found.ended_at) == (BEGIN_S, BEGIN_S + 1, BEGIN_S + 4)
    other = add(queue)
    times = {"started_at": 1.0, "ended_at": 2.0}
    given = queue.change(other.name, ("QUEUED",), event=("started", "", {}), phase="FAILED", **times)
    assert given is not None
    assert (given.started_at, given.ended_at) == (1.0, 2.0)


def test_times_never_go_back_and_numbers_are_never_used_again(root, queue, clock):
    """The clock is set back a day, also between two processes, and though the last event was removed."""
    job = add(queue)
    clock.now_s -= 86_400
    queue.change(job.name, ("QUEUED",), event=("started", "", {}), phase="RUNNING")
    end(queue, job.name)
    found = queue.job(job.name)
    assert (found.submitted_at, found.started_at, found.ended_at) == (BEGIN_S, BEGIN_S, BEGIN_S)
    queue.put(KEEPS, {"jobs": 0, "events": 0})
    assert queue.prune() == [job.name]
    assert queue.events() == []
    with Queue(root, clock=clock) as other:
        other.note("drained", "")
        again = add(other)
        assert (again.number, again.submitted_at) == (2, BEGIN_S)
        clock.now_s = BEGIN_S + 1
        other.note("drained", "")
    assert [(event.number, event.at) for event in queue.events()] == [(4, BEGIN_S), (5, BEGIN_S), (6, BEGIN_S + 1)]


def test_a_job_that_waits_is_cancelled_at_once(queue, clock):
    job = add(queue)
    clock.now_s += 3
    assert queue.ask(job.name[:12], PREEMPT) == job
    cancelled = queue.ask(job.name[:12], CANCEL)
    assert (cancelled.phase, cancelled.ended_at, cancelled.asked) == ("CANCELLED", BEGIN_S + 3, CANCEL)
    assert cancelled.reason == "cancelled while it waited"
    assert queue.events()[1:] == [Event(2, BEGIN_S + 3, job.name, "cancelled", "cancelled while it waited", {})]


def test_a_running_one_is_asked_and_stronger_words_override(queue):
    job = add(queue)
    queue.change(job.name, ("QUEUED",), phase="COMPILING")
    asked = (PREEMPT, PREEMPT, CANCEL, PREEMPT, CANCEL_NOW, CANCEL, CANCEL_NOW)
    becomes = [PREEMPT, PREEMPT, CANCEL, CANCEL, *[CANCEL_NOW] * 3]
    assert [queue.ask(job.name, what).asked for what in asked] == becomes
    assert queue.job(job.name).phase == "COMPILING"
    assert [(event.kind, event.text, event.data) for event in queue.events()[1:]] == [
        ("stop_asked", "asked to save, and to make room for a job of a higher priority", {"asked": PREEMPT}),
        ("stop_asked", "asked to save and end", {"asked": CANCEL}),
        ("stop_asked", "asked to end at once", {"asked": CANCEL_NOW}),
    ]


@pytest.mark.parametrize(("phase", "what"), [*zip(ENDED_PHASES, (CANCEL, CANCEL_NOW, PREEMPT), strict=True)])
def test_one_that_has_ended_cannot_be_asked(what, phase, queue):
    job = add(queue)
    end(queue, job.name, phase)
    since = datetime.datetime.fromtimestamp(BEGIN_S).strftime("%Y-%m-%d %H:%M:%S")
    said = f"job {job.name}: only a job that has not ended can be stopped, it is {phase} since {since}"
    assert refusal(queue.ask, job.name, what) == said
    assert kinds(queue) == ["submitted", "succeeded"]


def test_labels_are_set_and_removed(queue):
    job = add(queue)
    assert queue.label(job.name, {"team": None, "x": "1", "y": ""}).labels == {"x": "1", "y": ""}
    changed = queue.label(job.name[:14], {"x": "2", "none": None})
    assert changed.labels == {"x": "2", "y": ""} == queue.job(job.name).labels
    assert [(event.kind, event.text, event.data) for event in queue.events()[1:]] == [
        ("labelled", "team- x=1 y=", {"changes": {"team": None, "x": "1", "y": ""}}),
        ("labelled", "x=2 none-", {"changes": {"x": "2", "none": None}}),
    ]
    queue.label(job.name, {"x": "2"})
    assert len(queue.events()) == 3
    end(queue, job.name)
    assert queue.label(job.name, {"y": None}).labels == {"x": "2"}


def test_what_is_no_label_changes_nothing(queue):
    job = add(queue)
    for changes, message in (
        ({"a": "v" * 10_240}, "label a: its value must have at most 63 characters, it has 10,240"),
        ({f"k{number}": "" for number in range(64)}, "labels: a job may have 64, got 65"),
    ):
        assert refusal(queue.label, job.name, changes) == message
    assert (queue.job(job.name), kinds(queue)) == (job, ["submitted"])


def test_what_is_expected_is_set_without_events(queue):
    waits, runs, ended = add(queue), add(queue), add(queue)
    queue.change(runs.name, ("QUEUED",), phase="RUNNING")
    end(queue, ended.name)
    names = (waits.name, runs.name, ended.name, new_name())
    before = queue.events()
    queue.set_expected(dict.fromkeys(names, (5.0, 9.0)), dict.fromkeys(names, "waits for 1 core"))
    assert [(job.expected_start, job.expected_end, job.reason) for job in queue.jobs()] == [
        (5.0, 9.0, "waits for 1 core"),
        (5.0, 9.0, ""),
        (None, None, ""),
    ]
    version = queue.version()
    queue.set_expected({waits.name: (5.9, 8.1)}, {waits.name: "waits for 1 core"})
    assert (queue.version(), queue.job(waits.name).expected_start) == (version, 5.0)
    queue.set_expected({waits.name: (6.0, None)}, {waits.name: "x" * 1000})
    found = queue.job(waits.name)
    assert (found.expected_start, found.expected_end, found.reason) == (6.0, None, "x" * 499 + "…")
    version = queue.version()
    queue.set_expected({}, {waits.name: "x" * 1000})
    assert queue.version() == version
    assert queue.events() == before


def test_positions_go_by_priority_then_number(queue):
    low, middle, other, high = (add(queue, priority=priority) for priority in ("p3", "p2", "p2", "p1"))
    order = [high.name, middle.name, other.name, low.name]
    assert [queue.position(name) for name in order] == [1, 2, 3, 4]
    assert queue.positions() == {name: number for number, name in enumerate(order, start=1)}
    queue.change(middle.name, ("QUEUED",), phase="RUNNING")
    assert [queue.position(name) for name in order] == [1, None, 2, 3]
    assert queue.position(new_name()) is None


def test_settings_are_json(queue, root):
    assert queue.get(CAPACITY) is None
    queue.put(CAPACITY, {"cpus": [0, 1], "x": None})
    with Queue(root) as other:
        assert other.get(CAPACITY) == {"cpus": [0, 1], "x": None}


def test_history_is_that_of_jobs_that_ran_straight_with_the_same_model_and_cores(queue, clock):
    def ran(seconds: float, *, attempt: int = 1, phase: str = "SUCCEEDED", **changes: object) -> None:
        job = add(queue, **changes)
        queue.change(job.name, ("QUEUED",), event=("started", "", {}), phase="RUNNING", attempt=attempt)
        clock.now_s += seconds
        end(queue, job.name, phase)

    assert queue.history_s("key", 2) is None
    for seconds in (10.0, 30.0, 50.0):
        ran(seconds)
    others = ({"attempt": 2}, {"phase": "FAILED"}, {"compile_key": "other"}, {"needs": Needs(1, 2, 3, 4)})
    for changes in (*others, {"max_steps": None}, {"compile_key": ""}):
        ran(1000.0, **changes)
    add(queue)
    assert queue.history_s("key", 2) == pytest.approx(0.3)
    assert queue.history_s("key", 1) == pytest.approx(10.0)
    assert queue.history_s("", 2) is None


def test_the_version_tells_changes_of_all(queue, root):
    versions = [queue.version(), queue.version()]
    job = add(queue)
    versions.append(queue.version())
    with Queue(root) as other:
        other.put("x", 1)
        versions.append(queue.version())
        other.job(job.name)
        other.set_expected({}, {})
    versions.append(queue.version())
    queue.change(job.name, ("RUNNING",), phase="QUEUED")
    versions.append(queue.version())
    assert versions[0] == versions[1] < versions[2] < versions[3] == versions[4] == versions[5]


def test_jobs_are_counted_by_phase(queue):
    nothing = {"QUEUED": 0, "COMPILING": 0, "RUNNING": 0, "SUCCEEDED": 0, "FAILED": 0, "CANCELLED": 0}
    assert queue.counts() == nothing
    end(queue, add(queue).name)
    add(queue)
    add(queue)
    assert queue.counts() == {**nothing, "QUEUED": 2, "SUCCEEDED": 1}


def test_one_that_was_not_taken_is_forgotten_unless_it_runs(queue):
    taken, not_taken = add(queue), add(queue)
    queue.change(taken.name, ("QUEUED",), phase="RUNNING")
    for name in (taken.name, not_taken.name, new_name()):
        queue.forget(name)
    assert [job.name for job in queue.jobs()] == [taken.name]
    assert [event.job for event in queue.events()] == [taken.name]


def test_the_oldest_that_ended_are_forgotten_with_their_events(queue, clock):
    jobs = [add(queue) for _ in range(6)]
    for number in (3, 0, 1, 4):
        clock.now_s += 1
        end(queue, jobs[number].name)
    assert queue.prune() == []
    queue.put(KEEPS, {"jobs": 2, "events": 100})
    assert queue.prune() == [jobs[3].name, jobs[0].name]
    assert [job.number for job in queue.jobs()] == [2, 3, 5, 6]
    assert {event.job for event in queue.events()} == {jobs[number].name for number in (1, 2, 4, 5)}
    assert queue.prune() == []


def test_events_are_forgotten_but_not_those_of_jobs_that_go_on(queue):
    first, second = add(queue), add(queue)
    for _ in range(5):
        queue.note("drained", "")
    end(queue, second.name)
    queue.put(KEEPS, {"jobs": 100, "events": 3})
    assert queue.prune() == []
    assert [(event.number, event.job) for event in queue.events()] == [(1, first.name), (7, ""), (8, second.name)]


def test_no_more_is_forgotten_at_a_time_than_others_wait_for(queue, monkeypatch):
    monkeypatch.setattr("cstool.appliance.queue.queue._MOST_JOBS", 2)
    monkeypatch.setattr("cstool.appliance.queue.queue._MOST_EVENTS", 2)
    jobs = [add(queue) for _ in range(3)]
    for job in jobs:
        end(queue, job.name)
    for _ in range(5):
        queue.note("drained", "")
    queue.put(KEEPS, {"jobs": 0, "events": 0})
    assert queue.prune() == [jobs[0].name, jobs[1].name]
    assert len(queue.events()) == 5
    assert queue.prune() == [jobs[2].name]
    assert queue.prune() == []
    assert queue.prune() == []
    assert queue.events() == []


@examples(40)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["add", "start", "compiled", "cancel", "now", "preempt", "end"])),
        max_size=25,
    ),
    times=st.lists(st.floats(0, 1e9), min_size=25, max_size=25),
)
def test_whatever_is_done_events_tell_the_phase(steps, times, tmp_path_factory):
    clock = Clock()
    root = open_root(tmp_path_factory.mktemp("root") / "appliance", makes=True)
    told = {"submitted": "QUEUED", "started": "RUNNING", "compiled": "QUEUED"}
    told |= {"cancelled": "CANCELLED", "succeeded": "SUCCEEDED"}
    with Queue(root, clock=clock) as queue:
        for (which, step), clock.now_s in zip(steps, times, strict=False):
            names = [job.name for job in queue.jobs()]
            if step == "add" or which >= len(names):
                add(queue)
                continue
            name, phase = names[which], queue.job(names[which]).phase
            asked = {"cancel": CANCEL, "now": CANCEL_NOW, "preempt": PREEMPT}
            moves = {
                "start": ("QUEUED", "started", "RUNNING"),
                "compiled": ("RUNNING", "compiled", "QUEUED"),
                "end": ("RUNNING", "succeeded", "SUCCEEDED"),
            }
            if step in moves:
                before, kind, after = moves[step]
                changed = queue.change(name, (before,), event=(kind, "", {}), phase=after)
                assert (changed is None) == (phase != before)
            elif phase in ENDED_PHASES:
                with pytest.raises(CstoolError):
                    queue.ask(name, asked[step])
            else:
                queue.ask(name, asked[step])
        events = queue.events()
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert [event.at for event in events] == sorted(event.at for event in events)
        for job in queue.jobs():
            says = [told[event.kind] for event in events if event.job == job.name and event.kind in told]
            assert says[-1] == job.phase
            assert job.submitted_at <= (job.started_at or job.submitted_at) <= (job.ended_at or 1e9)
            assert (job.ended_at is not None) == job.has_ended
