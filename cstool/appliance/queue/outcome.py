"""The outcome of a job, by its keeper's records. A function of nothing else, so that a table tests it."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cstool.appliance.queue.attempt import DEAD, DISK, ENDED, FULL, MEMORY, TIME
from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    COMPILE,
    COMPILED,
    CRASHED,
    EXECUTE,
    JOB_CANCELLED,
    JOB_FAILED,
    JOB_SUCCEEDED,
    PHASE_AFTER,
    PREEMPT,
    PREEMPTED,
    RESTARTS,
)
from cstool.foundation.words import clock_text, counted, size_text

if TYPE_CHECKING:
    from cstool.appliance.queue.attempt import AttemptState, End
    from cstool.appliance.queue.job import Job

FIXABLE_CODE, LOST_CODE, STOPPED_CODE = 2, 1, 130
"""exit codes of cstool: an error that the user can fix; a lost rank, among others; stopped by a signal, and saved"""
SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
"""signals that a host that goes down sends to all processes, see shutdown(8)"""
FULL_S = 10.0
"""pause after a disk was full [s]"""
LOST_WORDS = "the same command goes on from the last commit or checkpoint"
"""how the hint of `errors.RankLostError` reads, the one of the errors with code 1 after which a run goes on"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job whose attempt is over.

    Args:
        stage: next stage, or the stage in which it ended
        event: kind of the event that says so
        text: of the event, for people; one line
        reason: why it waits, or how it ended; one line
        exit_code: of the process; None where it has none, such as a process that was killed
        peak_bytes: most memory that it was seen to take [bytes]
        delay_s: pause before the next try [s]
    """

    stage: str
    event: str
    text: str
    reason: str = ""
    exit_code: int | None = None
    peak_bytes: int = 0
    delay_s: float = 0.0

    @property
    def phase(self) -> str:
        """The next phase of the job; QUEUED where it is to be started again, or goes on to its next stage."""
        return PHASE_AFTER[self.event]

    @property
    def counts(self) -> bool:
        """Whether this is a restart that counts for the limit."""
        return self.event == CRASHED


def outcome(job: Job, kept: AttemptState, boot_id: str, last_words: str) -> Outcome | None:
    """Return the outcome of a job whose present attempt is over; None where it is not, or has not begun.

    A run that is over because of its job's budget, or because of a request, is over for that reason, however its
    process ended. Else the exit code of cstool decides: 2 is for the user to mend, and 1 an answer, or a mistake that
    would happen again; only where a rank was lost the same command goes on, and the message says so. A run that died
    of a signal, or stopped without a request, crashed: it is started again as often as the job may be. A shutdown of
    the whole host, be it at once or by stopping all processes, does not count; nor does a compile on a full disk,
    which waits for room. A run on a full disk counts as crashed.

    Args:
        job: as the queue has it, COMPILING or RUNNING
        kept: the record of its present attempt
        boot_id: of the host as it runs now
        last_words: the end of its stderr
    """
    was_restarted = kept.boot_id not in ("", boot_id)
    if kept.state == ENDED and kept.end is not None:
        return _ended(job, kept.end, last_words, was_restarted)
    if kept.state != DEAD:
        return None
    if job.asked in (CANCEL, CANCEL_NOW):
        return _over(job, None, JOB_CANCELLED, "cancelled; its keeper died")
    if was_restarted:
        return _starts_again(job, None)
    if job.asked == PREEMPT:
        return _over(job, None, PREEMPTED, "stopped for a job of a higher priority; its keeper died", "")
    return _crashed(job, "its keeper died", None)


def _ended(job: Job, end: End, last_words: str, was_restarted: bool) -> Outcome:
    """The outcome of a job whose keeper saw it end.

    Args:
        was_restarted: whether the host was, since the job began
    """
    code = end.exit_code
    if job.asked in (CANCEL, CANCEL_NOW):
        return _over(job, end, JOB_CANCELLED, f"cancelled; {_how(end)}")
    if end.why == MEMORY:
        budget = size_text(job.needs.memory_bytes)
        return _over(job, end, JOB_FAILED, f"memory: must stay within {budget}, it took {size_text(end.peak_bytes)}")
    if end.why == DISK:
        budget = size_text(job.needs.disk_bytes)
        return _over(job, end, JOB_FAILED, f"disk: {job.model_dir} must grow by no more than {budget}, it grew by more")
    if code == 0:
        if job.stage == COMPILE:
            return replace(_over(job, end, COMPILED, "compiled", ""), stage=EXECUTE)
        return _over(job, end, JOB_SUCCEEDED, "ended well", "")
    if end.why == TIME:
        limit = "" if job.needs.limit_s is None else f" of {clock_text(job.needs.limit_s)}"
        return _over(job, end, JOB_FAILED, f"time: its limit{limit} is over; {_how(end)}")
    if job.asked == PREEMPT and (code == STOPPED_CODE or end.signal):
        return _over(job, end, PREEMPTED, f"stopped for a job of a higher priority; {_how(end)}", "")
    if was_restarted and (code == STOPPED_CODE or end.signal in SHUTDOWN_SIGNALS):
        return _starts_again(job, end)
    words = said(last_words)
    if code != STOPPED_CODE and (end.why == FULL or words.endswith(os.strerror(errno.ENOSPC))):
        return _found_full(job, words, end)
    if end.signal or code == STOPPED_CODE or (code == LOST_CODE and LOST_WORDS in last_words):
        return _crashed(job, _how(end), end)
    return _over(job, end, JOB_FAILED, words or _how(end))


def said(last_words: str) -> str:
    r"""The message in the last lines of a run's stderr; the last line where none is marked as one.

    >>> said("warning: slow\nerror: data: must be there, got nothing\nhint: look\n")
    'data: must be there, got nothing'
    >>> said("Traceback\n  line\nValueError: no\n")
    'ValueError: no'
    """
    lines = [line for line in last_words.splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
        if not line.startswith("hint: "):
            break
    return lines[-1].strip() if lines else ""


def _how(end: End) -> str:
    """How a process ended."""
    if end.signal:
        return f"it died of {_name(end.signal)}"
    if end.exit_code == STOPPED_CODE:
        return "it stopped, and is saved"
    return "it ended well" if end.exit_code == 0 else f"it ended with exit code {end.exit_code}"


def _name(number: int) -> str:
    """The name of a signal, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _over(job: Job, end: End | None, event: str, text: str, reason: str | None = None) -> Outcome:
    """The outcome of a job; its text is the reason, too, where there is no other."""
    code, peak_bytes = (None, 0) if end is None else (end.exit_code, end.peak_bytes)
    return Outcome(job.stage, event, text, text if reason is None else reason, code, peak_bytes)


def _found_full(job: Job, words: str, end: End) -> Outcome:
    """The outcome of a job that failed for want of room on a disk."""
    how = f"the disk was full{f': {words}' if words else ''}"
    if job.stage == COMPILE:
        over = _over(job, end, RESTARTS, f"{how}; it is compiled again", f"waits for room: {how}")
    elif job.restarts >= job.max_restarts:
        return _over(job, end, JOB_FAILED, words or how)
    else:
        over = _crashed(job, how, end)
    return replace(over, delay_s=FULL_S)


def _starts_again(job: Job, end: End | None) -> Outcome:
    """The outcome of a job that ended with its host."""
    how = "the host was restarted"
    return _over(job, end, RESTARTS, f"{how}; the job starts again", f"starts again: {how}")


def _crashed(job: Job, how: str, end: End | None) -> Outcome:
    """The outcome of a job that crashed: it starts again, unless it did so too often."""
    if job.restarts >= job.max_restarts:
        after = f", after {counted(job.restarts, 'restart')}" if job.restarts else ""
        return _over(job, end, JOB_FAILED, f"crashed: {how}{after}")
    return _over(job, end, CRASHED, f"crashed: {how}; restart {job.restarts + 1} of {job.max_restarts}")
