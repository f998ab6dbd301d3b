"""The batch job of a job on its node: it compiles, executes, restarts after crashes, and keeps the journal.

`python -m cstool.appliance.queue.slurm_node JOBDIR DIGEST`, from the script in the job's folder. Its exit code is
the run's, 3 where another batch job is at the same job. Slurm, and users of its commands, send it

- SIGTERM: finish the step, save, end;
- SIGINT: end at once;
- SIGUSR1, which Slurm sends ahead of its time limit: finish the step, save, and be queued again, if it may restart.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from cstool.appliance.queue.attempt import ALIVE, FULL, Attempt, Keeper
from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    CANCELLED,
    COMPILE,
    COMPILE_STARTED,
    COMPILING,
    CRASHED,
    EXECUTE,
    FAILED,
    JOB_FAILED,
    PREEMPT,
    PREEMPTED,
    QUEUED,
    REQUESTS,
    RESTARTS,
    RUNNING,
    STARTED,
    SUCCEEDED,
    JobOrder,
)
from cstool.appliance.queue.job_folder import JobFolder
from cstool.appliance.queue.outcome import Outcome, outcome
from cstool.appliance.queue.slurm_journal import Entry, Journal
from cstool.appliance.queue.slurm_script import slurm_folder
from cstool.foundation.atomic_file import NoLocksError, lock_file
from cstool.foundation.errors import CstoolError
from cstool.foundation.slurm.commands import ask

BUSY_CODE, STOPPED_CODE, ENDED_CODE = 3, 130, 1
LOOK_S = 0.1
PATIENCE_S = 300.0
"""longest wait for the remains of an earlier attempt to end, and for a full disk to have room [s]"""
_WANTS = {signal.SIGTERM: CANCEL, signal.SIGINT: CANCEL_NOW, signal.SIGUSR1: PREEMPT}


class NodeJob:
    """A job on its node.

    Args:
        folder: of the job
        order: of the job
        slurm_job: number of the batch job; empty outside of one
        node: where this is
    """

    def __init__(self, folder: JobFolder, order: JobOrder, slurm_job: str, node: str) -> None:
        self._folder, self._order, self._slurm_job, self._node = folder, order, slurm_job, node
        self._journal = Journal(slurm_folder(folder) / "journal")
        self._wanted = ""
        """request by signals: "", PREEMPT, which is Slurm's time limit, CANCEL or CANCEL_NOW"""
        self._cpus = tuple(sorted(os.sched_getaffinity(0)))
        self._restarts = 0

    def take_signals(self) -> None:
        """From now on take signals as they are meant here."""
        for number in _WANTS:
            signal.signal(number, self._take)

    def _take(self, number: int, _: FrameType | None) -> None:
        wanted = _WANTS[signal.Signals(number)]
        self._wanted = max(wanted, self._wanted, key=REQUESTS.index)

    def run(self) -> int:
        """Do all stages that are left, and return the exit code of the last."""
        stage = self._first_stage()
        while True:
            code, then = self._attempt(stage)
            if then is None:
                self._flush()
                return code
            stage = then

    def _first_stage(self) -> str:
        """The stage to begin or to resume, by the journal of earlier batch jobs."""
        entries = self._journal.read()
        last = entries[-1] if entries else None
        if last is None:
            return COMPILE if self._order.compile_words else EXECUTE
        if last.phase in (SUCCEEDED, FAILED, CANCELLED):
            return last.stage  # submitted by hand
        self._restarts = last.restarts
        if last.phase != QUEUED:
            text = "its batch job ended before it did; Slurm started it again"
            self._add(Outcome(last.stage, RESTARTS, text, text), last.attempt)
        return last.stage

    def _attempt(self, stage: str) -> tuple[int, str | None]:
        """Do a stage once; return the exit code, and the stage that follows in this batch job, if any."""
        if self._wanted:
            return self._leave(stage, self._folder.last_attempt(stage))
        begun = self._begin(stage)
        if isinstance(begun, str):
            self._add(Outcome(stage, JOB_FAILED, begun, begun), self._folder.last_attempt(stage))
            return ENDED_CODE, None
        attempt, keeper = begun
        self._watch(attempt, keeper)
        return self._close(attempt)

    def _begin(self, stage: str) -> tuple[Attempt, Keeper] | str:
        """Begin the next attempt of a stage; return it and its keeper, or why it cannot be."""
        give_up = time.monotonic() + PATIENCE_S
        lanes = min(len(self._cpus), self._order.needs.cores)
        command = self._order.command(stage, self._folder.params_file, lanes)
        while True:
            attempt = Attempt(self._folder, stage, self._folder.last_attempt(stage) + 1)
            try:
                # It is signalled, and killed, together with this process: what Slurm ends is to have an end.
                keeper = attempt.start(self._order, command, self._cpus, outlives=False)
            except CstoolError as error:
                return error.message
            while keeper.poll() is None and attempt.look().began_at is None:
                time.sleep(LOOK_S / 5)
            # A short run may be over by now.
            if attempt.look().began_at is not None:
                kind, doing = (COMPILE_STARTED, "compiles") if stage == COMPILE else (STARTED, "runs")
                text = f"{doing} on {self._node}, attempt {attempt.number}"
                self._add(Outcome(stage, kind, text), attempt.number)
                return attempt, keeper
            problem = keeper.trouble() or "what is left of an earlier attempt does not end"
            if time.monotonic() > give_up or self._wanted:
                return problem
            time.sleep(1)

    def _watch(self, attempt: Attempt, keeper: Keeper) -> None:
        """Wait until an attempt is over, and pass on requests by signals."""
        told = ""
        while keeper.poll() is None or attempt.look().state == ALIVE:
            if self._wanted != told:
                wanted = self._wanted
                try:
                    attempt.ask(wanted)
                    told = wanted
                except CstoolError as error:  # a full disk: it is tried again
                    print(f"slurm: {error.message}", file=sys.stderr, flush=True)
            time.sleep(LOOK_S)

    def _close(self, attempt: Attempt) -> tuple[int, str | None]:
        """Write down how an attempt ended; see `_attempt`."""
        stage, kept = attempt.stage, attempt.look()
        end = kept.end
        # An end at once was asked for by name; what a plain SIGTERM means Slurm alone knows.
        asked = CANCEL_NOW if self._wanted == CANCEL_NOW else ""
        phase = COMPILING if stage == COMPILE else RUNNING
        job = self._order.job(0, self._folder.name, stage=stage, phase=phase, asked=asked, restarts=self._restarts)
        over = outcome(job, kept, kept.boot_id, self._folder.last_words())
        if over is None:  # nobody recorded an end, and yet somebody holds the job
            over = Outcome(stage, JOB_FAILED, "its keeper died", "its keeper died")
        code = STOPPED_CODE if over.phase == CANCELLED else ENDED_CODE if over.exit_code is None else over.exit_code
        was_stopped = end is not None and end.why in ("", FULL) and (end.exit_code == STOPPED_CODE or end.signal)
        if self._wanted in (CANCEL, PREEMPT) and was_stopped:
            return self._leave(stage, attempt.number, over.peak_bytes)
        self._restarts += over.counts
        self._add(over, attempt.number if over.stage == stage else 0)
        give_up = time.monotonic() + over.delay_s
        while time.monotonic() < give_up and not self._wanted:
            time.sleep(LOOK_S)
        return code, over.stage if over.phase == QUEUED else None

    def _leave(self, stage: str, attempt: int, peak_bytes: int = 0) -> tuple[int, None]:
        """End because of a signal."""
        if self._wanted != PREEMPT:
            text = "stopped by Slurm, and saved"
            self._add(Outcome(stage, PREEMPTED, text, text, None, peak_bytes), attempt, stopped=True)
            return STOPPED_CODE, None
        why = "Slurm's time limit is near; it stopped, and is saved"
        most = self._order.max_restarts
        if self._restarts >= most or not self._slurm_job:
            text = f"time: {why}"
            self._add(Outcome(stage, JOB_FAILED, text, text, STOPPED_CODE, peak_bytes), attempt)
            return STOPPED_CODE, None
        self._restarts += 1
        text = f"{why}; restart {self._restarts} of {most}"
        self._add(Outcome(stage, CRASHED, text, text, None, peak_bytes), attempt)
        self._flush()
        ask(["scontrol", "requeue", self._slurm_job])
        return STOPPED_CODE, None

    def _add(self, over: Outcome, attempt: int, *, stopped: bool = False) -> None:
        """Write a change of the job into the journal."""
        here = {"restarts": self._restarts, "cpus": self._cpus, "nodes": self._node, "stopped": stopped}
        self._journal.add(Entry.of(over, time.time(), attempt, **here))
        print(f"{self._folder.name}: {over.text}", file=sys.stderr, flush=True)

    def _flush(self) -> None:
        """Write the entries that a full disk had no room for, or leave them: the keeper's records have the end, too."""
        give_up = time.monotonic() + PATIENCE_S
        while not self._journal.flush() and time.monotonic() < give_up:
            time.sleep(1)


def main(words: list[str] | None = None) -> int:
    """Run the batch job of a job, and return its exit code."""
    path, digest = sys.argv[1:] if words is None else words
    folder = JobFolder(Path(path))
    try:
        lock = lock_file(slurm_folder(folder) / "node.lock")
    except BlockingIOError as error:
        print(f"error: {folder.name}: must have one batch job at a time, {error.strerror} is at it", file=sys.stderr)
        return BUSY_CODE
    except NoLocksError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {folder.path}: must be the folder of a job, got: {error.strerror}", file=sys.stderr)
        return CstoolError.exit_code
    try:
        order = folder.order(digest)
    except CstoolError as error:
        print(f"error: {error}", file=sys.stderr)
        over = Outcome(EXECUTE, JOB_FAILED, error.message, error.message)
        Journal(slurm_folder(folder) / "journal").add(Entry.of(over, time.time(), 0))
        return CstoolError.exit_code
    job = NodeJob(
        folder, order, os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NODELIST") or os.uname().nodename
    )
    job.take_signals()
    try:
        return job.run()
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
