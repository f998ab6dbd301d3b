"""The checker of an appliance's event log finds what is wrong, and nothing in a log that is right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.appliance_log import faults, main

PROJECT = Path(__file__).parents[3]
CAPACITY = {"cpus": [0, 1], "memory_bytes": 8, "disk_bytes": 20, "systems": 4, "compiles": 1}
Event = dict[str, Any]


class Log:
    """Events, a second apart, of what is told one after the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempts: dict[str, int] = {}

    def add(self, job: str, kind: str, **data: Any) -> Log:
        number = len(self.events) + 1
        self.events.append(
            {"number": number, "at": 100.0 + number, "job": job, "kind": kind, "text": kind, "data": data}
        )
        return self

    def submit(self, job: str, priority: str = "p2", stage: str = "execute", **needs: Any) -> Log:
        usual = {"cores": 1, "memory_bytes": 2, "disk_bytes": 0, "systems": 1, "seconds": None, "limit_s": None}
        return self.add(job, "submitted", stage=stage, priority=priority, **{**usual, **needs})

    def start(self, job: str, *cpus: int, **data: Any) -> Log:
        self.attempts[job] = self.attempts.get(job, 0) + 1
        usual = {"attempt": self.attempts[job], "cpus": list(cpus), "memory_bytes": 2, "disk_bytes": 0, "systems": 1}
        return self.add(job, "started", **{**usual, **data})

    def over(self, job: str, kind: str = "succeeded", stage: str = "execute") -> Log:
        return self.add(job, kind, stage=stage, attempt=self.attempts[job])

    def faults(self, **options: Any) -> list[str]:
        return faults(self.events, CAPACITY, **options)


def good() -> Log:
    """A log with one of everything."""
    log = Log().add("", "supervisor_started")
    log.submit("a", "p3", memory_bytes=4).start("a", 0, memory_bytes=4)
    log.submit("b", stage="compile").submit("c", stage="compile", cores=2, memory_bytes=5)
    log.add("b", "compile_started", attempt=1, cpus=[0, 1], memory_bytes=2, disk_bytes=0, systems=1)
    log.add("b", "crashed", stage="compile", attempt=1)
    log.add("b", "compile_started", attempt=2, cpus=[0, 1], memory_bytes=2, disk_bytes=0, systems=1)
    log.add("b", "compiled", stage="compile", attempt=2).add("c", "compile_shared", by="b")
    log.start("b", 1).over("b", "restarts").start("b", 1).over("b")
    log.submit("urgent", "p1", cores=2).add("", "supervisor_started")
    log.add("a", "stop_asked", asked="preempt").over("a", "preempted")
    log.start("urgent", 0, 1).submit("gone", "p1").add("gone", "cancelled").over("urgent", "failed")
    log.start("c", 1, 0, memory_bytes=5).over("c").add("c", "labelled").start("a", 1, memory_bytes=4)
    log.add("", "drained").add("", "undrained")
    return log.add("a", "stop_asked", asked="cancel").over("a", "cancelled").add("", "supervisor_stopped")


def test_nothing_is_wrong_with_a_good_log() -> None:
    assert good().faults() == []
    assert faults([], CAPACITY) == []


@pytest.mark.parametrize("number", range(1, len(good().events) + 1))
def test_an_event_more_or_less_is_seen(number: int) -> None:
    """Whatever of a job is lost or happens twice; of the appliance itself little can be said."""
    events = good().events
    kind, asked = events[number - 1]["kind"], events[number - 1]["data"].get("asked")
    if not events[number - 1]["job"] or kind == "labelled":
        return
    if asked != "cancel":
        assert faults(events[: number - 1] + events[number:], CAPACITY)
    if kind != "stop_asked":
        again = [*events[:number], events[number - 1], *events[number:]]
        assert faults([{**each, "number": place} for place, each in enumerate(again, 1)], CAPACITY)


def one_fault(text: str, build: Callable[[Log], Log], **options: Any) -> None:
    assert build(Log()).faults(**options) == [text]


def test_numbers_and_clocks_go_on() -> None:
    log = Log().submit("a").start("a", 0).over("a")
    log.events[1]["number"] = 1
    log.events[2]["at"] = 101.5
    assert log.faults() == ["event 1: a: comes after event 1", "event 3: a: the clock goes back by 0.5 s"]


def test_a_job_that_never_ends_is_lost() -> None:
    one_fault("a: never ends, is executing", lambda log: log.submit("a").start("a", 0))
    one_fault("a: never ends, is ready", lambda log: log.submit("a"))
    one_fault("a: never ends, is waits to compile", lambda log: log.submit("a", stage="compile"))
    assert Log().submit("a").faults(all_end=False) == []


def test_a_job_ends_once_and_then_nothing_happens() -> None:
    one_fault(
        "event 4: a: is failed, but has ended", lambda log: log.submit("a").start("a", 0).over("a").over("a", "failed")
    )
    one_fault(
        "event 4: a: is started, but has ended", lambda log: log.submit("a").start("a", 0).over("a").start("a", 0)
    )
    one_fault("event 3: a: is submitted again", lambda log: log.submit("a").add("a", "cancelled").submit("a"))


def test_who_was_not_submitted_does_not_run() -> None:
    one_fault("event 1: a: is labelled, but was not submitted", lambda log: log.add("a", "labelled"), all_end=False)
    assert "event 1: a: is started, but was not submitted" in Log().start("a", 0).over("a").faults()


def test_two_attempts_are_never_under_way_at_once() -> None:
    log = Log().submit("a").start("a", 0).start("a", 0).over("a")
    assert log.faults() == ["event 3: a: is started, but was executing"]


@pytest.mark.parametrize("second", [1, 0, None, "2"])
def test_attempts_count_up(second: Any) -> None:
    log = Log().submit("a").start("a", 0).over("a", "crashed").start("a", 0, attempt=second)
    log.add("a", "succeeded")
    assert log.faults() == [f"event 4: a: begins attempt {second} to execute after attempt 1"]


def test_who_ends_is_who_was_begun() -> None:
    one_fault(
        "event 3: a: attempt 2 to execute is over, but attempt 1 to execute was begun",
        lambda log: log.submit("a").start("a", 0).add("a", "succeeded", stage="execute", attempt=2),
    )
    one_fault("event 2: a: is succeeded, but was ready", lambda log: log.submit("a").add("a", "succeeded"))
    one_fault(
        "event 2: a: is crashed, but was ready", lambda log: log.submit("a").add("a", "crashed").start("a", 0).over("a")
    )


def test_a_model_is_compiled_first_and_once() -> None:
    one_fault(
        "event 2: a: is started, but was waits to compile",
        lambda log: log.submit("a", stage="compile").start("a", 0).over("a"),
    )
    one_fault(
        "event 3: a: takes what b compiled, which it did not",
        lambda log: (
            log.submit("b", stage="compile")
            .submit("a", stage="compile")
            .add("a", "compile_shared", by="b")
            .start("a", 0)
            .over("a")
            .add("b", "cancelled")
        ),
    )
    log = Log()
    for job in "ab":
        log.submit(job, stage="compile").add(job, "compile_started", attempt=1)
    for job in "ab":
        log.add(job, "failed")
    assert log.faults() == ["event 4: b: 2 compiles at a time, 1 may be"]


def test_nobody_is_preempted_unasked() -> None:
    for asked in ({}, {"asked": "cancel"}):
        log = Log().submit("a").start("a", 0)
        if asked:
            log.add("a", "stop_asked", **asked)
        log.over("a", "preempted").start("a", 0).over("a")
        text = "a: is preempted, but was not asked to stop for another job"
        assert [fault.partition(": ")[2] for fault in log.faults()] == [text]


def test_what_was_asked_of_one_attempt_is_not_asked_of_the_next() -> None:
    log = Log().submit("a").start("a", 0).add("a", "stop_asked", asked="preempt").over("a", "preempted")
    log.start("a", 0).over("a", "preempted").start("a", 0).over("a")
    assert log.faults() == ["event 6: a: is preempted, but was not asked to stop for another job"]


def test_no_core_is_held_twice() -> None:
    log = Log().submit("a").submit("b").start("a", 0).start("b", 0).over("a").over("b")
    assert log.faults() == ["event 4: b: gets cores [0], which a has"]
    one_fault("event 2: a: gets a core twice: (1, 1)", lambda log: log.submit("a", cores=2).start("a", 1, 1).over("a"))
    one_fault(
        "event 2: a: gets cores (0, 7), which are not all of the appliance",
        lambda log: log.submit("a", cores=2).start("a", 0, 7).over("a"),
    )


@pytest.mark.parametrize(("kind", "share"), [("memory_bytes", 5), ("disk_bytes", 11), ("systems", 3)])
def test_never_more_than_there_is(kind: str, share: int) -> None:
    log = Log().submit("a", **{kind: share}).submit("b", **{kind: share})
    log.start("a", 0, **{kind: share}).start("b", 1, **{kind: share}).over("a").over("b")
    (fault,) = log.faults()
    held = {"cores": 2, "memory_bytes": 4, "disk_bytes": 0, "systems": 2, kind: 2 * share}
    told = ", ".join(f"{name} {count}" for name, count in held.items())
    assert fault == f"event 4: b: with it jobs hold {told}, there is cores 2, memory_bytes 8, disk_bytes 20, systems 4"


def test_what_is_left_when_a_job_ended_may_be_taken() -> None:
    log = Log().submit("a", systems=4).submit("b", systems=4)
    log.start("a", 0, systems=4).over("a", "crashed").start("a", 0, systems=4).over("a").start("b", 0, systems=4).over(
        "b"
    )
    assert log.faults() == []


def test_a_job_gets_what_it_asked_for() -> None:
    one_fault(
        "event 2: a: gets cores 2, memory_bytes 2, disk_bytes 0, systems 1, "
        "but asked for cores 1, memory_bytes 2, disk_bytes 0, systems 1",
        lambda log: log.submit("a").start("a", 0, 1).over("a"),
    )


@pytest.mark.parametrize(("first", "second"), [("p2", "p2"), ("p1", "p3"), ("p1", "p2")])
def test_jobs_start_in_order(first: str, second: str) -> None:
    log = Log().submit("a", first).submit("b", second).start("b", 0).start("a", 1).over("a").over("b")
    assert log.faults() == [f"event 3: b: starts ({second}) before a ({first}), which needs no more"]


def test_an_urgent_job_starts_first_though_it_came_later() -> None:
    log = Log().submit("a", "p3").submit("b", "p1")
    assert log.start("a", 0).start("b", 1).over("a").over("b").faults() == [
        "event 3: a: starts (p3) before b (p1), which needs no more"
    ]


@pytest.mark.parametrize("more", [{"cores": 2}, {"memory_bytes": 3}, {"disk_bytes": 1}, {"systems": 2}])
def test_one_that_needs_more_of_something_may_be_left_waiting(more: dict[str, int]) -> None:
    log = Log().submit("a", "p1", **more).submit("b", "p3").start("b", 0).over("b")
    cpus = (0, 1) if "cores" in more else (0,)
    assert log.start("a", *cpus, **{kind: more[kind] for kind in more if kind != "cores"}).over("a").faults() == []


def test_one_that_is_not_ready_is_not_left_waiting() -> None:
    log = Log().submit("a", "p1", "compile").submit("b", "p3").start("b", 0).over("b")
    log.add("a", "compile_started", attempt=1).add("a", "compiled").start("a", 0).over("a")
    assert log.faults() == []
    log = Log().submit("a", "p1").start("a", 0).submit("b", "p3").over("a", "preempted").start("b", 0)
    assert "event 5: b: starts (p3) before a (p1), which needs no more" in log.faults(all_end=False)


def test_a_supervisor_decides_by_what_it_read_a_moment_ago() -> None:
    log = Log().submit("b", "p3").submit("a", "p1").start("b", 0).start("a", 1).over("a").over("b")
    assert log.faults(fresh_s=1.0) == ["event 3: b: starts (p3) before a (p1), which needs no more"]
    assert log.faults(fresh_s=1.5) == []


def backfilled(large: dict[str, int], long_s: float | None, short_s: float | None) -> Log:
    """`large` waits for more than is free; `long` would fit, but `short`, behind it, starts."""
    log = Log().submit("r").start("r", 0)
    log.submit("large", "p1", **large).submit("long", "p2", seconds=long_s).submit("short", "p3", limit_s=short_s)
    return log.start("short", 1)


def test_a_backfill_is_told_unless_it_is_allowed_and_has_its_reason() -> None:
    passes = "event 6: short: starts (p3) before long (p2), which needs no more"
    assert backfilled({"cores": 2}, 60, 5).faults(all_end=False) == [passes]
    for large in ({"cores": 2}, {"memory_bytes": 7}, {"systems": 4}):
        assert backfilled(large, 60, 5).faults(all_end=False, backfills=True) == []
        assert backfilled(large, None, 5).faults(all_end=False, backfills=True) == []
        for long_s, short_s in ((60, 60), (5, 60), (60, None), (None, None)):
            log = backfilled(large, long_s, short_s)
            assert log.faults(all_end=False, backfills=True) == [passes]
    # The one before both could have started itself: nobody is delayed.
    assert passes in backfilled({"memory_bytes": 6}, 60, 5).faults(all_end=False, backfills=True)


def test_nothing_starts_while_drained() -> None:
    log = Log().submit("a").add("", "drained").start("a", 0).over("a")
    assert log.faults() == ["event 3: a: begins to execute while the appliance is drained"]
    assert log.faults(fresh_s=1.0) == []
    log = Log().submit("a", stage="compile").add("", "drained").add("a", "compile_started", attempt=1)
    assert log.faults(all_end=False) == ["event 3: a: begins to compile while the appliance is drained"]


def test_what_is_no_event_is_told() -> None:
    one_fault(
        "event 2: a: is sleeping, which is no kind of event",
        lambda log: log.submit("a").add("a", "sleeping"),
        all_end=False,
    )
    one_fault("event 1: is started, of no job", lambda log: log.add("", "started"))
    one_fault("event 1: a: does not say its priority", lambda log: log.add("a", "submitted").add("a", "cancelled"))


def test_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(tmp_path / "log.json"), "--cpus", "0,1", "--memory", "8", "--disk", "20", "--systems", "4"]
    (tmp_path / "log.json").write_text(json.dumps({"events": good().events}))
    assert main(words) == 0
    assert capsys.readouterr().out == f"{len(good().events)} events, nothing is wrong\n"
    (tmp_path / "log.json").write_text(json.dumps({"events": good().events[:-2]}))
    assert main(words) == 1
    assert capsys.readouterr().out == "a: never ends, is executing\n"


def test_it_imports_nothing_of_what_it_checks() -> None:
    code = (
        "import sys, tests.appliance_log; print([name for name in sys.modules if name.partition('.')[0] == 'cstool'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
