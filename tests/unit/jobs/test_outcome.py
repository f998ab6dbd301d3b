"""What becomes of a job: a table of what its keeper recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cstool.jobs.job import (
    CANCEL,
    CANCEL_NOW,
    CANCELLED,
    COMPILE,
    COMPILED,
    COMPILING,
    CRASHED,
    EXECUTE,
    FAILED,
    JOB_CANCELLED,
    JOB_FAILED,
    JOB_SUCCEEDED,
    PREEMPT,
    PREEMPTED,
    QUEUED,
    RESTARTS,
    RUNNING,
    SUCCEEDED,
    Job,
    Needs,
)
from cstool.jobs.keeping import ABSENT, ALIVE, BEGINNING, DEAD, ENDED, End, Kept
from cstool.jobs.outcome import LOST_WORDS, outcome, said
from cstool.machine.ranks.mpi import WAY_ON

HERE = "boot-1"
ERROR = "warning: it is late\nerror: data_dir: must be a folder, got nothing\nhint: make one\n"
LOST = f"error: rank 1 on b: must last as long as the run, it died in a step\nhint: {WAY_ON}\n"


def job(**changes: Any) -> Job:
    needs = Needs(1, 1_500_000_000, 2_000_000_000, 1, 60.0, 3600.0)
    usual = Job(
        *(1, f"wsjob-{'a' * 22}", "ann", 1, "", "local", "", "gpt2", "train", "p.yaml", Path("/m"), "k", 4, needs),
        *("p2", False, True, 0, {}, ""),
        *(RUNNING, EXECUTE, "", "", 1, 0, (0,), 0.0, 1.0, None, None, None, None, 0),
    )
    return replace(usual, **changes)


def ended(code: int | None, *, signal: int | None = None, why: str = "", peak: int = 7, boot_id: str = HERE) -> Kept:
    return Kept(ENDED, End(code, signal, why, "", peak, 2.0, 3.0), boot_id)


@pytest.mark.parametrize("state", [ABSENT, BEGINNING, ALIVE])
@pytest.mark.parametrize("asked", ["", CANCEL, PREEMPT])
def test_what_is_not_over_has_no_outcome(state, asked):
    assert outcome(job(asked=asked), Kept(state, None, HERE), HERE, "") is None


DIED = "it died of SIGSEGV"
TABLE = [
    # job, record, stderr -> phase, stage, event, text
    ({}, ended(0), "", SUCCEEDED, EXECUTE, JOB_SUCCEEDED, "ended well"),
    ({"asked": PREEMPT}, ended(0), "", SUCCEEDED, EXECUTE, JOB_SUCCEEDED, "ended well"),
    ({}, ended(0, why="time"), "", SUCCEEDED, EXECUTE, JOB_SUCCEEDED, "ended well"),
    ({}, ended(2), ERROR, FAILED, EXECUTE, JOB_FAILED, "data_dir: must be a folder, got nothing"),
    ({"max_restarts": 3}, ended(2), ERROR, FAILED, EXECUTE, JOB_FAILED, "data_dir: must be a folder, got nothing"),
    ({"max_restarts": 3}, ended(1), ERROR, FAILED, EXECUTE, JOB_FAILED, "data_dir: must be a folder, got nothing"),
    ({}, ended(2), "", FAILED, EXECUTE, JOB_FAILED, "it ended with exit code 2"),
    ({"asked": PREEMPT}, ended(2), ERROR, FAILED, EXECUTE, JOB_FAILED, "data_dir: must be a folder, got nothing"),
    ({}, ended(None, signal=9, why="memory", peak=1_600_000_000), "", FAILED, EXECUTE, JOB_FAILED,
     "memory: must stay within 1.5GB, it took 1.6GB"),
    ({"max_restarts": 3}, ended(130, why="disk"), "", FAILED, EXECUTE, JOB_FAILED,
     "disk: /m must grow by no more than 2GB, it grew by more"),
    ({"max_restarts": 3}, ended(130, why="time"), "", FAILED, EXECUTE, JOB_FAILED,
     "time: its limit of 1:00:00 is over; it stopped, and is saved"),
    ({}, ended(None, signal=9, why="time"), "", FAILED, EXECUTE, JOB_FAILED,
     "time: its limit of 1:00:00 is over; it died of SIGKILL"),
    ({"asked": CANCEL}, ended(130), "", CANCELLED, EXECUTE, JOB_CANCELLED, "cancelled; it stopped, and is saved"),
    ({"asked": CANCEL}, ended(0), "", CANCELLED, EXECUTE, JOB_CANCELLED, "cancelled; it ended well"),
    ({"asked": CANCEL_NOW}, ended(None, signal=9), "", CANCELLED, EXECUTE, JOB_CANCELLED,
     "cancelled; it died of SIGKILL"),
    ({"asked": CANCEL, "max_restarts": 1}, ended(None, signal=9, why="memory"), "", CANCELLED, EXECUTE, JOB_CANCELLED,
     "cancelled; it died of SIGKILL"),
    ({"asked": CANCEL}, ended(2), ERROR, CANCELLED, EXECUTE, JOB_CANCELLED, "cancelled; it ended with exit code 2"),
    ({"asked": PREEMPT}, ended(130), "", QUEUED, EXECUTE, PREEMPTED,
     "stopped for a job of a higher priority; it stopped, and is saved"),
    ({"asked": PREEMPT}, ended(None, signal=15), "", QUEUED, EXECUTE, PREEMPTED,
     "stopped for a job of a higher priority; it died of SIGTERM"),
    ({"asked": PREEMPT}, Kept(DEAD, None, HERE), "", QUEUED, EXECUTE, PREEMPTED,
     "stopped for a job of a higher priority; its keeper died"),
    ({}, ended(None, signal=11), "", FAILED, EXECUTE, JOB_FAILED, f"crashed: {DIED}"),
    ({"max_restarts": 2}, ended(None, signal=11), "", QUEUED, EXECUTE, CRASHED, f"crashed: {DIED}; restart 1 of 2"),
    ({"max_restarts": 2, "restarts": 1}, ended(None, signal=11), "", QUEUED, EXECUTE, CRASHED,
     f"crashed: {DIED}; restart 2 of 2"),
    ({"max_restarts": 2, "restarts": 2}, ended(None, signal=11), "", FAILED, EXECUTE, JOB_FAILED,
     f"crashed: {DIED}, after 2 restarts"),
    ({}, ended(None, signal=99), "", FAILED, EXECUTE, JOB_FAILED, "crashed: it died of signal 99"),
    ({"max_restarts": 1}, ended(130), "", QUEUED, EXECUTE, CRASHED,
     "crashed: it stopped, and is saved; restart 1 of 1"),
    ({"max_restarts": 1}, ended(1), LOST, QUEUED, EXECUTE, CRASHED,
     "crashed: it ended with exit code 1; restart 1 of 1"),
    ({}, Kept(DEAD, None, HERE), "", FAILED, EXECUTE, JOB_FAILED, "crashed: its keeper died"),
    ({"max_restarts": 1}, Kept(DEAD, None, HERE), "", QUEUED, EXECUTE, CRASHED,
     "crashed: its keeper died; restart 1 of 1"),
    ({"max_restarts": 1}, Kept(DEAD, None, ""), "", QUEUED, EXECUTE, CRASHED,
     "crashed: its keeper died; restart 1 of 1"),
    ({}, Kept(DEAD, None, "boot-0"), "", QUEUED, EXECUTE, RESTARTS, "the host was restarted; the job starts again"),
    *[({}, end, "", QUEUED, EXECUTE, RESTARTS, "the host was restarted; the job starts again") for end in (
        ended(130, boot_id="boot-0"), ended(None, signal=15, boot_id="boot-0"), ended(None, signal=9, boot_id="boot-0"),
    )],
    ({}, ended(130, boot_id=""), "", FAILED, EXECUTE, JOB_FAILED, "crashed: it stopped, and is saved"),
    ({}, ended(None, signal=11, boot_id="boot-0"), "", FAILED, EXECUTE, JOB_FAILED, f"crashed: {DIED}"),
    ({}, ended(0, boot_id="boot-0"), "", SUCCEEDED, EXECUTE, JOB_SUCCEEDED, "ended well"),
    ({}, ended(130, why="disk", boot_id="boot-0"), "", FAILED, EXECUTE, JOB_FAILED,
     "disk: /m must grow by no more than 2GB, it grew by more"),
    ({"asked": PREEMPT}, ended(130, boot_id="boot-0"), "", QUEUED, EXECUTE, PREEMPTED,
     "stopped for a job of a higher priority; it stopped, and is saved"),
    ({"asked": CANCEL}, ended(130, boot_id="boot-0"), "", CANCELLED, EXECUTE, JOB_CANCELLED,
     "cancelled; it stopped, and is saved"),
    ({"asked": PREEMPT}, Kept(DEAD, None, "boot-0"), "", QUEUED, EXECUTE, RESTARTS,
     "the host was restarted; the job starts again"),
    ({"asked": CANCEL}, Kept(DEAD, None, "boot-0"), "", CANCELLED, EXECUTE, JOB_CANCELLED,
     "cancelled; its keeper died"),
    ({"phase": COMPILING, "stage": COMPILE}, ended(0), "", QUEUED, EXECUTE, COMPILED, "compiled"),
    ({"phase": COMPILING, "stage": COMPILE}, ended(2), ERROR, FAILED, COMPILE, JOB_FAILED,
     "data_dir: must be a folder, got nothing"),
    ({"phase": COMPILING, "stage": COMPILE, "max_restarts": 1}, ended(None, signal=9), "", QUEUED, COMPILE, CRASHED,
     "crashed: it died of SIGKILL; restart 1 of 1"),
    ({"phase": COMPILING, "stage": COMPILE, "asked": CANCEL}, ended(None, signal=15), "", CANCELLED, COMPILE,
     JOB_CANCELLED, "cancelled; it died of SIGTERM"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kept", "words", "phase", "stage", "event", "text"), TABLE)
def test_a_table_of_ends(changes, kept, words, phase, stage, event, text):
    found = outcome(job(**changes), kept, HERE, words)
    assert found is not None
    assert (found.phase, found.stage, found.event, found.text) == (phase, stage, event, text)
    assert found.counts == (event == CRASHED), "only a crash counts"
    if phase in (FAILED, CANCELLED):
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
