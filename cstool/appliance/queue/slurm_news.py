"""The next state of a job in the queue, by the journal of its batch job and Slurm's answer about it. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    ENDED_PHASES,
    FAILED,
    JOB_CANCELLED,
    JOB_FAILED,
    PHASE_AFTER,
    QUEUED,
    Job,
)
from cstool.appliance.queue.slurm_journal import Entry, place_of
from cstool.foundation.slurm.listing import Listed

_WORDS = {
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "its deadline is over",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it took more memory than Slurm lets it have",
    "PREEMPTED": "Slurm stopped it for a job of a higher priority",
    "TIMEOUT": "Slurm's time limit is over",
}
"""how Slurm ended a job that it ended"""
PURGED = "Slurm knows it no longer, and it did not say how it ended"


@dataclass(frozen=True)
class BatchState:
    """Slurm's answer about a batch job.

    Args:
        listed: None where it knows no job of that number, or no longer
    """

    listed: Listed | None

    @property
    def has_ended(self) -> bool:
        """Whether it will do no more."""
        return self.listed is None or self.listed.has_ended


def next_change(job: Job, entries: Sequence[Entry], state: BatchState | None) -> Entry | None:
    """Return the next change of a job by its journal; None where it has no news.

    Args:
        job: as the queue has it
        entries: the journal
        state: Slurm's answer; None where it was not asked
    """
    here = place_of(job.phase, job.stage, job.attempt)
    news = [entry for entry in entries if entry.place > here]
    if not news:
        return None
    entry = news[0]
    if not entry.stopped or len(news) > 1:
        return entry
    if job.asked in (CANCEL, CANCEL_NOW):
        return _ended(entry, JOB_CANCELLED, "cancelled; it stopped, and is saved")
    # By whom, and whether it is to go on, Slurm alone knows.
    if state is None:
        return None
    if state.has_ended:
        return _ended(entry, JOB_CANCELLED, "cancelled by Slurm's commands; it stopped, and is saved")
    return entry


def end_of(job: Job, state: BatchState, now: float) -> Entry:
    """Return the end of a job whose batch job has ended without saying how.

    Args:
        job: as the queue has it
        state: has ended
        now: by the clock [s since 1970]
    """
    listed = state.listed
    at = now if listed is None or listed.end is None else listed.end
    entry = Entry(at, JOB_FAILED, "", FAILED, job.stage, job.attempt, restarts=job.restarts, peak_bytes=job.peak_bytes)
    if job.asked in (CANCEL, CANCEL_NOW):
        return _ended(entry, JOB_CANCELLED, "cancelled; Slurm ended it")
    if listed is None:
        return _ended(entry, JOB_FAILED, f"job {job.backend_id} of Slurm: {PURGED}")
    if listed.state == "CANCELLED":
        return _ended(entry, JOB_CANCELLED, "cancelled by Slurm's commands")
    how = _WORDS.get(listed.state)
    if how is None:
        reason = f" ({listed.reason})" if listed.reason else ""
        how = f"its batch job ended as {listed.state}{reason}, and did not say how"
        if job.phase == QUEUED:
            how = f"its batch job ended as {listed.state}{reason} before it began; its log is in `slurm` of its folder"
    return _ended(entry, JOB_FAILED, f"job {listed.number} of Slurm: {how}")


def waiting(job: Job, state: BatchState) -> tuple[tuple[float | None, float | None], str]:
    """Return when a job is expected to start and to end, and why it waits."""
    listed = state.listed
    if listed is None or job.phase in ENDED_PHASES:
        return (None, None), job.reason
    if listed.state != "PENDING":
        return (job.expected_start, job.expected_end), "starts" if job.phase == QUEUED else job.reason
    end = None if listed.start is None or job.needs.seconds is None else listed.start + job.needs.seconds
    return (listed.start, end), f"waits in Slurm: {listed.reason}" if listed.reason else "waits in Slurm"


def _ended(entry: Entry, kind: str, text: str) -> Entry:
    return replace(entry, phase=PHASE_AFTER[kind], kind=kind, text=text, reason=text, stopped=False)
