"""What becomes of a job: a table of what its keeper recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cstool.appliance.queue.attempt import ABSENT, ALIVE, BEGINNING, DEAD, ENDED, AttemptState, End
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, PREEMPT, Job, Needs
from cstool.appliance.queue.outcome import LOST_WORDS, outcome, said
from cstool.foundation.launched import WAY_ON

HERE = "boot-1"
ERROR = "warning: it is late\nerror: data_dir: must be a folder, got nothing\nhint: make one\n"
LOST = f"error: rank 1 on b: must last as long as the run, it died in a step\nhint: {WAY_ON}\n"


def job(**changes: Any) -> Job:
    needs = Needs(1, 1_500_000_000, 2_000_000_000, 1, 60.0, 3600.0)
    usual = {"model_dir": Path("/m"), "needs": needs, "phase": "RUNNING", "attempt": 1}
    return Job(1, f"wsjob-{'a' * 22}", **{**usual, **changes})


def ended(
    code: int | None, *, signal: int | None = None, why: str = "", peak: int = 7, boot_id: str = HERE
) -> AttemptState:
    return AttemptState(ENDED, End(code, signal, why, "", peak, 2.0, 3.0), boot_id)


@pytest.mark.parametrize("state", [ABSENT, BEGINNING, ALIVE])
@pytest.mark.parametrize("asked", ["", CANCEL, PREEMPT])
def test_what_is_not_over_has_no_outcome(state, asked):
    assert outcome(job(asked=asked), AttemptState(state, None, HERE), HERE, "") is None


DIED, SAVED, GONE = "it died of SIGSEGV", "it stopped, and is saved", "its keeper died"
NO_DATA, AGAIN = "data_dir: must be a folder, got nothing", "the host was restarted; the job starts again"
ROOM = "stopped for a job of a higher priority; "
DEAD_HERE, DEAD_BEFORE = AttemptState(DEAD, None, HERE), AttemptState(DEAD, None, "boot-0")
SEGV, KILLED = ended(None, signal=11), ended(None, signal=9)
OUT_OF_MEMORY = ended(None, signal=9, why="memory", peak=1_600_000_000)
COMPILES = {"phase": "COMPILING", "stage": "compile"}
GROWN = "disk: /m must grow by no more than 2GB, it grew by more"
BEFORE = "boot-0"
WRITABLE = "a.json: must be a file that can be written, got: No space left on device"
NO_ROOM = f"error: {WRITABLE}\nhint: name another folder with --compile_dir\n"
TABLE = [
    # of the job, what its keeper recorded, what it has said; what becomes of it, and why
    ({}, ended(0), "", "succeeded", "ended well"),
    ({"asked": PREEMPT}, ended(0), "", "succeeded", "ended well"),
    ({}, ended(0, why="time"), "", "succeeded", "ended well"),
    ({}, ended(0, boot_id=BEFORE), "", "succeeded", "ended well"),
    ({}, ended(2), ERROR, "failed", NO_DATA),
    ({"max_restarts": 3}, ended(2), ERROR, "failed", NO_DATA),
    ({"max_restarts": 3}, ended(1), ERROR, "failed", NO_DATA),
    ({"asked": PREEMPT}, ended(2), ERROR, "failed", NO_DATA),
    ({}, ended(2), "", "failed", "it ended with exit code 2"),
    ({}, OUT_OF_MEMORY, "", "failed", "memory: must stay within 1.5GB, it took 1.6GB"),
    ({"max_restarts": 3}, ended(130, why="disk"), "", "failed", GROWN),
    ({}, ended(130, why="disk", boot_id=BEFORE), "", "failed", GROWN),
    ({"max_restarts": 3}, ended(130, why="time"), "", "failed", f"time: its limit of 1:00:00 is over; {SAVED}"),
    ({}, ended(None, signal=9, why="time"), "", "failed", "time: its limit of 1:00:00 is over; it died of SIGKILL"),
    ({"asked": CANCEL}, ended(130), "", "cancelled", f"cancelled; {SAVED}"),
    ({"asked": CANCEL}, ended(130, boot_id=BEFORE), "", "cancelled", f"cancelled; {SAVED}"),
    ({"asked": CANCEL}, ended(0), "", "cancelled", "cancelled; it ended well"),
    ({"asked": CANCEL_NOW}, ended(None, signal=9), "", "cancelled", "cancelled; it died of SIGKILL"),
    ({"asked": CANCEL, "max_restarts": 1}, OUT_OF_MEMORY, "", "cancelled", "cancelled; it died of SIGKILL"),
    ({"asked": CANCEL}, ended(2), ERROR, "cancelled", "cancelled; it ended with exit code 2"),
    ({"asked": CANCEL}, DEAD_BEFORE, "", "cancelled", f"cancelled; {GONE}"),
    ({"asked": PREEMPT}, ended(130), "", "preempted", f"{ROOM}{SAVED}"),
    ({"asked": PREEMPT}, ended(130, boot_id=BEFORE), "", "preempted", f"{ROOM}{SAVED}"),
    ({"asked": PREEMPT}, ended(None, signal=15), "", "preempted", f"{ROOM}it died of SIGTERM"),
    ({"asked": PREEMPT}, DEAD_HERE, "", "preempted", f"{ROOM}{GONE}"),
    ({}, SEGV, "", "failed", f"crashed: {DIED}"),
    ({}, ended(None, signal=11, boot_id=BEFORE), "", "failed", f"crashed: {DIED}"),
    ({"max_restarts": 2}, SEGV, "", "crashed", f"crashed: {DIED}; restart 1 of 2"),
    ({"max_restarts": 2, "restarts": 1}, SEGV, "", "crashed", f"crashed: {DIED}; restart 2 of 2"),
    ({"max_restarts": 2, "restarts": 2}, SEGV, "", "failed", f"crashed: {DIED}, after 2 restarts"),
    ({}, ended(None, signal=99), "", "failed", "crashed: it died of signal 99"),
    ({"max_restarts": 1}, ended(130), "", "crashed", f"crashed: {SAVED}; restart 1 of 1"),
    ({}, ended(130, boot_id=""), "", "failed", f"crashed: {SAVED}"),
    ({"max_restarts": 1}, ended(1), LOST, "crashed", "crashed: it ended with exit code 1; restart 1 of 1"),
    ({}, DEAD_HERE, "", "failed", f"crashed: {GONE}"),
    ({"max_restarts": 1}, DEAD_HERE, "", "crashed", f"crashed: {GONE}; restart 1 of 1"),
    ({"max_restarts": 1}, AttemptState(DEAD, None, ""), "", "crashed", f"crashed: {GONE}; restart 1 of 1"),
    ({}, DEAD_BEFORE, "", "restarts", AGAIN),
    ({"asked": PREEMPT}, DEAD_BEFORE, "", "restarts", AGAIN),
    ({}, ended(130, boot_id=BEFORE), "", "restarts", AGAIN),
    ({}, ended(None, signal=15, boot_id=BEFORE), "", "restarts", AGAIN),
    ({}, ended(None, signal=9, boot_id=BEFORE), "", "restarts", AGAIN),
    (COMPILES, ended(0), "", "compiled", "compiled"),
    (COMPILES, ended(2), ERROR, "failed", NO_DATA),
    ({**COMPILES, "max_restarts": 1}, KILLED, "", "crashed", "crashed: it died of SIGKILL; restart 1 of 1"),
    (COMPILES, ended(120, why="full"), "", "restarts", "the disk was full; it is compiled again"),
    (COMPILES, ended(2), NO_ROOM, "restarts", f"the disk was full: {WRITABLE}; it is compiled again"),
    ({"max_restarts": 1}, ended(130, why="full"), "", "crashed", f"crashed: {SAVED}; restart 1 of 1"),
    ({}, ended(120, why="full"), "", "failed", "the disk was full"),
    ({}, ended(2), NO_ROOM, "failed", WRITABLE),
    ({"max_restarts": 1}, ended(2), NO_ROOM, "crashed", f"crashed: the disk was full: {WRITABLE}; restart 1 of 1"),
    ({**COMPILES, "asked": CANCEL}, ended(2), NO_ROOM, "cancelled", "cancelled; it ended with exit code 2"),
    ({**COMPILES, "asked": CANCEL}, ended(None, signal=15), "", "cancelled", "cancelled; it died of SIGTERM"),
]


@pytest.mark.parametrize(("changes", "kept", "words", "event", "text"), TABLE)
def test_a_table_of_ends(changes, kept, words, event, text):
    found = outcome(job(**changes), kept, HERE, words)
    assert found is not None
    ends = event in ("succeeded", "failed", "cancelled")
    stage = "execute" if event == "compiled" else changes.get("stage", "execute")
    assert (found.event, found.text, found.phase, found.stage) == (
        event,
        text,
        event.upper() if ends else "QUEUED",
        stage,
    )
    assert found.counts == (event == "crashed"), "only a crash counts"
    assert (found.delay_s > 0) == ("the disk was full" in text and not ends)
    if event in ("failed", "cancelled"):
        assert found.reason == text
    if kept.end is not None:
        assert (found.exit_code, found.peak_bytes) == (kept.end.exit_code, kept.end.peak_bytes)


def test_a_lost_rank_is_known_by_the_hint_that_the_run_gives():
    assert LOST_WORDS == WAY_ON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ERROR, "data_dir: must be a folder, got nothing"),
        ("error: one\nerror: two\nhint: a\nhint: b\n\n", "two"),
        ("Traceback (most recent call last):\nKeyError: 'x'\n", "KeyError: 'x'"),
        ("error: of an attempt before\nwarning: this one began\n", "warning: this one began"),
        ("hint: alone\n", "hint: alone"),
        ("", ""),
        ("  \n", ""),
    ],
)
def test_the_message_among_the_last_lines(text, message):
    assert said(text) == message
