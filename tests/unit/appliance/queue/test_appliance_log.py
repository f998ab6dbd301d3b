"""The checker of an appliance's event log finds what is wrong, and nothing in a log that is right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.appliance_log import faults

CAPACITY = {"cpus": [0, 1], "memory_bytes": 8, "disk_bytes": 20, "systems": 4, "compiles": 1}
NEEDS = {"memory_bytes": 2, "disk_bytes": 0, "systems": 1}


class Log:
    """Events, a second apart, of a story: `submit a p1 cores=2; start a 0 1; over a crashed; add a cancelled`."""

    def __init__(self, story: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.attempts: dict[str, int] = {}
        for step in story.split(";"):
            verb, job, *words = step.split()
            data = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words if "=" in word)}
            getattr(self, verb)("" if job == "-" else job, *(word for word in words if "=" not in word), **data)

    def add(self, job: str, kind: str, **data: Any) -> None:
        number = len(self.events) + 1
        event = {"number": number, "at": 100.0 + number, "job": job, "kind": kind, "text": kind, "data": data}
        self.events.append(event)

    def submit(self, job: str, priority: str = "p2", stage: str = "execute", **needs: Any) -> None:
        usual = {"cores": 1, **NEEDS, "seconds": None, "limit_s": None}
        self.add(job, "submitted", stage=stage, priority=priority, **{**usual, **needs})

    def start(self, job: str, *cpus: str, **data: Any) -> None:
        self.attempts[job] = self.attempts.get(job, 0) + 1
        self.add(job, "started", **{"attempt": self.attempts[job], "cpus": [*map(int, cpus)], **NEEDS, **data})

    def over(self, job: str, kind: str = "succeeded") -> None:
        self.add(job, kind, stage="execute", attempt=self.attempts[job])

    def faults(self, **options: Any) -> list[str]:
        return faults(self.events, CAPACITY, **options)


GOOD = Log(
    "add - supervisor_started; submit a p3 memory_bytes=4; start a 0 memory_bytes=4; submit b p2 compile;"
    'submit c p2 compile cores=2 memory_bytes=5; add b compile_started attempt=1; add b crashed stage="compile";'
    'add b compile_started attempt=2; add b compiled stage="compile" attempt=2; add c compile_shared by="b";'
    "start b 1; over b restarts; start b 1; over b; submit urgent p1 cores=2; add - supervisor_started;"
    'add a stop_asked asked="preempt"; over a preempted; start urgent 0 1; submit gone p1; add gone cancelled;'
    "over urgent failed; start c 1 0 memory_bytes=5; over c; add c labelled; start a 1 memory_bytes=4;"
    'add - drained; add - undrained; add a stop_asked asked="cancel"; over a cancelled; add - supervisor_stopped'
).events
"""one of everything"""


def test_nothing_is_wrong_with_a_good_log() -> None:
    assert faults(GOOD, CAPACITY) == faults([], CAPACITY) == []


def test_an_event_more_or_less_is_seen() -> None:
    """Whatever of a job is lost or happens twice; of the appliance itself little can be said."""
    for at, event in enumerate(GOOD):
        kind, asked = event["kind"], event["data"].get("asked")
        if event["job"] and kind != "labelled":
            if asked != "cancel":
                assert faults(GOOD[:at] + GOOD[at + 1 :], CAPACITY), event
            if kind != "stop_asked":
                again = [*GOOD[: at + 1], event, *GOOD[at + 1 :]]
                assert faults([{**each, "number": n} for n, each in enumerate(again, 1)], CAPACITY), event


def test_numbers_and_clocks_go_on() -> None:
    log = Log("submit a; start a 0; over a")
    log.events[1]["number"] = 1
    log.events[2]["at"] = 101.5
    assert log.faults() == ["event 1: a: comes after event 1", "event 3: a: the clock goes back by 0.5 s"]


FAULTS: dict[str, str] = {}
for _row in re.sub(
    r"\n +",
    " ",
    """\
submit a; start a 0 => a: never ends, is executing
submit a => a: never ends, is ready
submit a p2 compile => a: never ends, is waits to compile
submit a; start a 0; over a; over a failed => event 4: a: is failed, but has ended
submit a; start a 0; over a; start a 0 => event 4: a: is started, but has ended
submit a; add a cancelled; submit a => event 3: a: is submitted again
add a labelled; add a cancelled => event 1: a: is labelled, but was not submitted
submit a; start a 0; start a 0; over a => event 3: a: is started, but was executing
submit a; start a 0; add a succeeded attempt=2
    => event 3: a: attempt 2 to execute is over, but attempt 1 to execute was begun
submit a; add a succeeded => event 2: a: is succeeded, but was ready
submit a; add a crashed; start a 0; over a => event 2: a: is crashed, but was ready
submit a p2 compile; start a 0; over a => event 2: a: is started, but was waits to compile
submit b p2 compile; submit a p2 compile; add a compile_shared by="b"; start a 0; over a; add b cancelled
    => event 3: a: takes what b compiled, which it did not
submit a p2 compile; add a compile_started attempt=1; submit b p2 compile; add b compile_started attempt=1;
    add a failed; add b failed => event 4: b: 2 compiles at a time, 1 may be
submit a; start a 0; over a preempted; start a 0; over a
    => event 3: a: is preempted, but was not asked to stop for another job
submit a; start a 0; add a stop_asked asked="cancel"; over a preempted; start a 0; over a
    => event 4: a: is preempted, but was not asked to stop for another job
submit a; start a 0; add a stop_asked asked="preempt"; over a preempted; start a 0; over a preempted; start a 0; over a
    => event 6: a: is preempted, but was not asked to stop for another job
submit a; submit b; start a 0; start b 0; over a; over b => event 4: b: gets cores [0], which a has
submit a p2 execute cores=2; start a 1 1; over a => event 2: a: gets a core twice: (1, 1)
submit a p2 execute cores=2; start a 0 7; over a => event 2: a: gets cores (0, 7), which are not all of the appliance
submit a; start a 0 1; over a
    => event 2: a: gets cores 2, memory_bytes 2, disk_bytes 0, systems 1,
    but asked for cores 1, memory_bytes 2, disk_bytes 0, systems 1
submit a p2; submit b p2; start b 0; start a 1; over a; over b
    => event 3: b: starts (p2) before a (p2), which needs no more
submit a p1; submit b p3; start b 0; start a 1; over a; over b
    => event 3: b: starts (p3) before a (p1), which needs no more
submit a p3; submit b p1; start a 0; start b 1; over a; over b
    => event 3: a: starts (p3) before b (p1), which needs no more
submit a; add - drained; start a 0; over a => event 3: a: begins to execute while the appliance is drained
submit a p2 compile; add - drained; add a compile_started attempt=1; add a failed
    => event 3: a: begins to compile while the appliance is drained
submit a; add a sleeping; add a cancelled => event 2: a: is sleeping, which is no kind of event
add - started => event 1: is started, of no job
add a submitted; add a cancelled => event 1: a: does not say its priority
""",
).splitlines():
    _story, _fault = _row.split(" => ")
    FAULTS[_story] = _fault
for _second in ("1", "0", "null", '"2"'):
    FAULTS[f"submit a; start a 0; over a crashed; start a 0 attempt={_second}; add a succeeded"] = (
        f"event 4: a: begins attempt {json.loads(_second)} to execute after attempt 1"
    )
for _share, _held in (
    ("memory_bytes=5", "memory_bytes 10, disk_bytes 0, systems 2"),
    ("disk_bytes=11", "memory_bytes 4, disk_bytes 22, systems 2"),
    ("systems=3", "memory_bytes 4, disk_bytes 0, systems 6"),
):
    FAULTS[
        f"submit a p2 execute {_share}; submit b p2 execute {_share}; start a 0 {_share}; start b 1 {_share};"
        "over a; over b"
    ] = f"event 4: b: with it jobs hold cores 2, {_held}, there is cores 2, memory_bytes 8, disk_bytes 20, systems 4"


@pytest.mark.parametrize("story", FAULTS)
def test_what_is_wrong_is_told(story: str) -> None:
    assert Log(story).faults() == [FAULTS[story]]


@pytest.mark.parametrize(
    "story",
    [
        "submit a p2 execute systems=4; submit b p2 execute systems=4; start a 0 systems=4; over a crashed;"
        "start a 0 systems=4; over a; start b 0 systems=4; over b",
        *(
            f"submit a p1 execute {more}; submit b p3; start b 0; over b; start a {got}; over a"
            for more, got in (
                ("cores=2", "0 1"),
                ("memory_bytes=3", "0 memory_bytes=3"),
                ("disk_bytes=1", "0 disk_bytes=1"),
                ("systems=2", "0 systems=2"),
            )
        ),
        "submit a p1 compile; submit b p3; start b 0; over b; add a compile_started attempt=1; add a compiled;"
        "start a 0; over a",
    ],
)
def test_what_another_has_given_back_or_cannot_take_may_be_taken(story: str) -> None:
    assert Log(story).faults() == []


def test_what_came_back_is_ready_again() -> None:
    log = Log("submit a p1; start a 0; submit b p3; over a preempted; start b 0")
    assert "event 5: b: starts (p3) before a (p1), which needs no more" in log.faults(all_end=False)
    assert Log("submit a").faults(all_end=False) == []


def test_a_supervisor_decides_by_what_it_read_a_moment_ago() -> None:
    log = Log("submit b p3; submit a p1; start b 0; start a 1; over a; over b")
    assert log.faults(fresh_s=1.0) == ["event 3: b: starts (p3) before a (p1), which needs no more"]
    assert log.faults(fresh_s=1.5) == []
    assert Log("submit a; add - drained; start a 0; over a").faults(fresh_s=1.0) == []


def test_a_backfill_is_told_unless_it_is_allowed_and_has_its_reason() -> None:
    """`large` waits for more than is free; `long` would fit, but `short`, behind it, starts."""

    def backfilled(large: str, long_s: str, short_s: str, *, backfills: bool = True) -> list[str]:
        story = f"submit r; start r 0; submit large p1 execute {large}; submit long p2 execute seconds={long_s};"
        log = Log(f"{story} submit short p3 execute limit_s={short_s}; start short 1")
        return log.faults(all_end=False, backfills=backfills)

    passes = "event 6: short: starts (p3) before long (p2), which needs no more"
    assert backfilled("cores=2", "60", "5", backfills=False) == [passes]
    for large in ("cores=2", "memory_bytes=7", "systems=4"):
        for long_s, short_s in (("60", "5"), ("null", "5")):
            assert backfilled(large, long_s, short_s) == []
        for long_s, short_s in (("60", "60"), ("5", "60"), ("60", "null"), ("null", "null")):
            assert backfilled(large, long_s, short_s) == [passes]
    # The one before both could have started itself: nobody is delayed.
    assert passes in backfilled("memory_bytes=6", "60", "5")


def test_it_imports_nothing_of_what_it_checks() -> None:
    code = "import sys, tests.appliance_log; print([name for name in sys.modules if name.startswith('cstool')])"
    project = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
