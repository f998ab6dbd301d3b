"""The Slurm back end: a job is a batch job of a cluster's scheduler, which alone decides when and where it runs.

The history of a job is in its folder, see `slurm_journal`; Slurm says whether its batch job waits, or has ended.
Only commands that look at the queue bring it up to date: there is no supervisor. A job has one node, its cores and its
memory from Slurm; disk is watched as on one host, and modelled systems are not limited. Jobs with the same model
compile it each for itself, unless it is in their compile_dir already.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cstool.appliance.queue.attempt import ENDED, Attempt
from cstool.appliance.queue.backend import SLURM
from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    COMPILE_STARTED,
    COMPILING,
    ENDED_PHASES,
    FAILED,
    JOB_FAILED,
    QUEUED,
    RUNNING,
    STARTED,
    Job,
    JobOrder,
)
from cstool.appliance.queue.outcome import outcome
from cstool.appliance.queue.slurm_journal import Entry, Journal
from cstool.appliance.queue.slurm_news import BatchState, end_of, next_change, waiting
from cstool.appliance.queue.slurm_script import JobScript, slurm_folder
from cstool.foundation.atomic_file import lock_file, write_replacing
from cstool.foundation.errors import ClusterError, CstoolError
from cstool.foundation.slurm.commands import check_slurm, submit
from cstool.foundation.slurm.listing import end_job, known_jobs, number_of

if TYPE_CHECKING:
    from cstool.appliance.queue.job_folder import JobFolder
    from cstool.appliance.queue.queue import Queue
    from cstool.appliance.queue.root import Root

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")
FLAG = "--backend slurm"
ASK_S, SILENCE_S = 2.0, 60.0
"""least interval of asking Slurm, and longest silence of a Slurm that has answered before [s]"""
SETTLES_S = 5.0
"""time after its end until a batch job's files are surely seen here [s]"""
ACCEPTED_S = 60.0
"""time after which a job without a number was not handed in: the process that submitted it is gone [s]"""
_LOCK = "refresh.lock"
_RESERVED = {
    "array": "-a",
    "chdir": "-D",
    "clusters": "-M",
    "error": "-e",
    "job-name": "-J",
    "output": "-o",
    "test-only": None,
    "wrap": None,
}
"""options of sbatch that would change the kind of the job: long name -> short one"""


class SlurmBackend:
    """Jobs as batch jobs of Slurm. See `Backend`."""

    name = SLURM

    def __init__(self, root: Root, queue: Queue) -> None:
        self._root, self._queue = root, queue
        self._asked_at = self._answered_at = float("-inf")

    def check(self, order: JobOrder) -> None:
        """Check that Slurm is there, and that it can run such a job.

        Raises:
            ClusterError: it cannot
        """
        if order.preempts:
            raise ClusterError(
                f"--preempt: must be left out with {FLAG}: by its own rules Slurm decides which job makes way",
                "a partition or a QOS that may preempt others does: --sbatch=--qos=NAME",
            )
        for option in order.backend_options:
            _check_option(option)
        check_slurm(FLAG, "`--backend local` needs no Slurm", COMMANDS)

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:
        """Write the batch script into the job's folder, hand it in, and return the number that Slurm gives it.

        Raises:
            CstoolError: the script cannot be written, or sbatch refuses it
        """
        script = JobScript(folder, order, job.digest)
        text = script.text()
        try:
            script.place.mkdir(mode=0o700)
            write_replacing(script.script, text)
            script.script.chmod(0o700)
            # Whoever looks at the job meanwhile does not take it for one that was forgotten.
            lock = lock_file(script.place / _LOCK)
        except OSError as error:
            raise CstoolError(f"{script.place}: cannot be written, got: {error.strerror}") from error
        try:
            return submit(script, FLAG)
        finally:
            os.close(lock)

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Bring the queue up to date from the journals in the job folders, and from Slurm's answers.

        A job that another process updates just now is left to that process, a job of another user to that user.

        Raises:
            ClusterError: Slurm is not there, or does not answer; the journals are in the queue by then
        """
        active = [job for job in jobs if job.backend == SLURM and not job.has_ended]
        for job in active:
            self._tell(job.name, None)
        now = time.monotonic()
        if now - self._asked_at < ASK_S:
            return
        self._asked_at = now
        active = [job for job in map(self._queue.job, [job.name for job in active]) if not job.has_ended]
        numbers = [job.backend_id for job in active if job.backend_id]
        try:
            found = known_jobs(numbers) if numbers else {}
            self._answered_at = now
        except ClusterError:
            if now - self._answered_at < SILENCE_S:
                return
            raise
        expected: dict[str, tuple[float | None, float | None]] = {}
        reasons: dict[str, str] = {}
        for job in active:
            if not job.backend_id:
                self._find(job)
                continue
            state = BatchState(found.get(job.backend_id))
            current = self._tell(job.name, state)
            if current is None or current.has_ended or state.has_ended:
                continue
            if current.asked:  # what was asked may not have reached Slurm
                self.stop(current, current.asked)
            times, reason = waiting(current, state)
            expected[job.name] = times
            if current.phase == QUEUED:
                reasons[job.name] = reason
        if expected:
            self._queue.set_expected(expected, reasons)

    def stop(self, job: Job, what: str) -> None:
        """Cancel a batch job that waits; have one that runs finish its step and save, or end at once.

        Raises:
            ClusterError: Slurm does not answer
        """
        number = job.backend_id or number_of(job.name)
        if number is None or what not in (CANCEL, CANCEL_NOW):
            return
        if what == CANCEL:
            end_job(number, "TERM")
            return
        end_job(number, "INT")
        # Should it not get there by itself, Slurm kills it after a while.
        end_job(number)

    def _tell(self, name: str, state: BatchState | None) -> Job | None:
        """Tell the queue the news of a job, and return it; None where another process is at it.

        Args:
            state: Slurm's answer about it; None where it was not asked
        """
        folder = self._root.job(name)
        with self._updating(name) as is_ours:
            if not is_ours:
                return None
            job = self._queue.job(name)
            entries = Journal(slurm_folder(folder) / "journal").read()
            while not job.has_ended and (entry := next_change(job, entries, state)) is not None:
                job = self._change(job, entry)
            if state is None or not state.has_ended or job.has_ended:
                return job
            now = time.time()
            ended = state.listed.end if state.listed is not None else None
            if ended is not None and abs(now - ended) < SETTLES_S:
                return job
            return self._change(job, self._by_keeper(job, folder) or end_of(job, state, now))

    @contextmanager
    def _updating(self, name: str) -> Iterator[bool]:
        """Keep others from updating a job for a while; yields whether that is so, or its folder is gone."""
        lock = None
        try:
            lock = lock_file(slurm_folder(self._root.job(name)) / _LOCK)
        except FileNotFoundError:
            pass  # somebody removed the folder
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            if lock is not None:
                os.close(lock)

    def _by_keeper(self, job: Job, folder: JobFolder) -> Entry | None:
        """The end of a job whose batch job was killed, by its keeper's record; None where that does not say."""
        if job.phase not in (COMPILING, RUNNING):
            return None
        kept = Attempt(folder, job.stage, job.attempt).look()
        if kept.state != ENDED or kept.end is None:
            return None
        over = outcome(job, kept, kept.boot_id, folder.last_words())
        if over is None or over.phase not in ENDED_PHASES or kept.end.signal or kept.end.exit_code not in (0, 1, 2):
            return None  # it was to go on, or was stopped: Slurm says why it did not
        return Entry.of(over, kept.end.at, job.attempt, restarts=job.restarts)

    def _change(self, job: Job, entry: Entry) -> Job:
        """Write a change of a job into the queue, and return the job as it is then."""
        data: dict[str, Any] = {
            "stage": job.stage,
            "attempt": entry.attempt if entry.kind in (STARTED, COMPILE_STARTED) else job.attempt,
            "at": entry.at,
            "slurm_job": job.backend_id,
        }
        fields: dict[str, Any] = {}
        if entry.kind in (STARTED, COMPILE_STARTED):
            needs = job.needs
            data |= {"cpus": list(entry.cpus), **needs.held, "nodes": entry.nodes}
            fields["cpus"] = entry.cpus
            if entry.kind == STARTED:
                fields |= {
                    "started_at": job.started_at or entry.at,
                    "expected_start": entry.at,
                    "expected_end": None if needs.seconds is None else entry.at + needs.seconds,
                }
        else:
            data |= {"exit_code": entry.exit_code, "peak_bytes": entry.peak_bytes}
            fields |= {"exit_code": entry.exit_code, "expected_start": None, "expected_end": None}
        if entry.phase in ENDED_PHASES:
            fields |= {"ended_at": entry.at, "asked": ""}
        changed = self._queue.change(
            job.name,
            (job.phase,),
            event=(entry.kind, entry.text, data),
            if_attempt=job.attempt,
            phase=entry.phase,
            stage=entry.stage,
            attempt=entry.attempt,
            reason=entry.reason,
            restarts=entry.restarts,
            peak_bytes=max(job.peak_bytes, entry.peak_bytes),
            **fields,
        )
        # It was cancelled this very moment.
        return self._queue.job(job.name) if changed is None else changed

    def _find(self, job: Job) -> None:
        """Find the number of a job whose submitter was ended before the queue had it, or give the job up."""
        if abs(time.time() - job.submitted_at) < ACCEPTED_S:
            return
        number = number_of(job.name)
        if number is not None:
            self._queue.change(job.name, (job.phase,), backend_id=number)
            return
        with self._updating(job.name) as is_ours:
            if is_ours:
                text = "it was not handed in to Slurm: the command that submitted it was ended"
                self._queue.change(
                    job.name, (QUEUED,), event=(JOB_FAILED, text, {}), if_attempt=0, phase=FAILED, reason=text
                )


def _check_option(option: str) -> None:
    """Check options of sbatch as far as the script goes: sbatch says the rest.

    Raises:
        ClusterError: they cannot stand in a line, or change the kind of the job
    """
    try:
        words = shlex.split(option)
    except ValueError:
        words = []
    if not option.isprintable() or not words or not words[0].startswith("-"):
        raise ClusterError(f"--sbatch: must be options as one types them, got {option!r}", "as --sbatch=--account=NAME")
    for word in words:
        long = word.removeprefix("--").partition("=")[0]
        for name, short in _RESERVED.items():
            # sbatch takes a beginning of a long name, too.
            is_long = word.startswith("--") and len(long) > 2 and name.startswith(long)
            if is_long or (short is not None and not word.startswith("--") and word.startswith(short)):
                raise ClusterError(f"--sbatch: must leave --{name} to the appliance, got {option!r}")
