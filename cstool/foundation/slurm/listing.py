"""Jobs as Slurm lists them, many at once: by squeue while it remembers them, then by sacct, where there is accounting.

squeue and scontrol forget a job some minutes after its end (`MinJobAge`). sacct remembers it for long, but many a
cluster has no accounting: sacct then ends with 1, and says "Slurm accounting storage is disabled".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cstool.foundation.errors import ClusterError
from cstool.foundation.slurm.commands import UNKNOWN_JOB, ask, said

ENDED_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
"""states of ended jobs (`man squeue`, JOB STATE CODES); in any other one a job waits, runs, or is ending"""
_SQUEUE, _SACCT = "--format=%i|%T|%N|%S|%e|%r", "--format=JobID,State,NodeList,Start,End,Reason"
_FIELDS = 6
_UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}
"""environment in which both print seconds since 1970, in any time zone"""
_NOWHERE = ("None assigned", "(null)", "n/a")


class Listed(NamedTuple):
    """A job in a list."""

    number: str
    state: str
    """such as PENDING, RUNNING, COMPLETED"""
    nodes: str
    """empty before it has any"""
    start: float | None
    """its start, past or expected [s since 1970]; None if Slurm does not know"""
    end: float | None
    """its end, or the end of its time limit [s since 1970]"""
    reason: str
    """reason of its wait, or of its end; may be empty"""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good."""
        return self.state in ENDED_STATES


def known_jobs(numbers: Sequence[str]) -> dict[str, Listed]:
    """Look jobs up, and return the ones that Slurm knows, by number.

    Raises:
        ClusterError: Slurm does not answer
    """
    found = queued_jobs(numbers)
    if missing := [number for number in numbers if number not in found]:
        found |= accounted_jobs(missing)
    return found


def queued_jobs(numbers: Sequence[str]) -> dict[str, Listed]:
    """Return the jobs of these that wait, run, or ended not long ago, by number.

    Raises:
        ClusterError: Slurm does not answer
    """
    # Asked for several jobs, squeue leaves out unknown ones; asked for a single one it fails with a message.
    done = ask(["squeue", "--noheader", "--states=all", f"--jobs={','.join(numbers)}", _SQUEUE], **_UNIX_TIMES)
    if done.returncode == 0:
        return {job.number: job for job in _parsed(done.stdout)}
    if UNKNOWN_JOB in done.stderr:
        return {}
    raise ClusterError(f"Slurm: squeue must answer, it says: {said(done.stderr)}", _WAIT)


def accounted_jobs(numbers: Sequence[str]) -> dict[str, Listed]:
    """Return the jobs of these that accounting knows, by number; none where there is no accounting."""
    # A job that was queued again has a record for each time. Without --duplicates sacct shows the last one.
    words = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(numbers)}", _SACCT)
    return {job.number: job for job in _parsed(ask(words, **_UNIX_TIMES).stdout)}


def number_of(name: str) -> str | None:
    """Return the number of the last job of a name; None if Slurm knows none.

    Raises:
        ClusterError: Slurm does not answer
    """
    done = ask(["squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i"])
    if done.returncode != 0:
        raise ClusterError(f"Slurm: squeue must answer, it says: {said(done.stderr)}", _WAIT)
    if not done.stdout.split():
        words = ("--noheader", "--parsable2", "--allocations", f"--name={name}", "--starttime=1970-01-01")
        done = ask(["sacct", *words, "--format=JobID"])
    numbers = [number for number in done.stdout.split() if number.isdecimal()]
    return max(numbers, key=int, default=None)


def end_job(number: str, signal_name: str | None = None) -> None:
    """Cancel a waiting job; send a running one's script a signal, or have Slurm end it.

    Args:
        signal_name: such as TERM, for the script alone; None to have all processes of the job ended: they get
            SIGTERM, and after the cluster's `KillWait` SIGKILL

    Raises:
        ClusterError: Slurm does not answer, or refuses
    """
    ways = (
        [[]]
        if signal_name is None
        # By state: of a job that has no script yet scancel asks again for a minute.
        else [["--state=PENDING"], ["--state=RUNNING", "--batch", f"--signal={signal_name}"]]
    )
    for words in ways:
        done = ask(["scancel", "--quiet", *words, number])
        # Where no job has that state it ends with 1, and says nothing.
        if done.returncode != 0 and done.stderr.strip() and UNKNOWN_JOB not in done.stderr:
            raise ClusterError(
                f"job {number} of Slurm: scancel must end it, it says: {said(done.stderr)}",
                f"`scancel {number}` tries it again",
            )


_WAIT = "nothing is lost: jobs go on, and the same command works again once Slurm answers"


def _parsed(text: str) -> Iterator[Listed]:
    for line in text.splitlines():
        # A reason may have any characters. It is the last.
        fields = line.split("|", _FIELDS - 1)
        if len(fields) == _FIELDS and fields[0].isdecimal():
            number, state, nodes, start, end, reason = fields
            # sacct has "CANCELLED by 1000".
            yield Listed(
                number,
                state.partition(" ")[0],
                "" if nodes in _NOWHERE else nodes,
                _seconds(start),
                _seconds(end),
                "" if reason == "None" else reason,
            )


def _seconds(text: str) -> float | None:
    """A time in seconds; None for "N/A", "Unknown" and "None"."""
    return float(text) if text.isdecimal() else None
