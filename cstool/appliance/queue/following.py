"""Following a job of an appliance: its log as it is written, signals of this process passed on, its exit code."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from cstool.appliance.queue.job import (
    CANCELLED,
    COMPILE_STARTED,
    CRASHED,
    PREEMPTED,
    QUEUED,
    RESTARTS,
    STARTED,
    STOP_ASKED,
    SUCCEEDED,
    Event,
    Job,
)
from cstool.foundation.errors import Interrupted, RankLostError
from cstool.foundation.launched import WAY_ON
from cstool.foundation.slurm.following import LOG_S, LogFile
from cstool.foundation.words import span_text

if TYPE_CHECKING:
    from cstool.appliance.queue.client import Jobs

STREAMS: tuple[Literal["out"], Literal["err"]] = ("out", "err")
"""the outputs of a job: the log of the run, and its errors"""
OWN_CODES = (1, 2)
"""exit codes of runs that have printed their error themselves"""
LOST_CODE, CANCELLED_CODE = RankLostError.exit_code, Interrupted.exit_code
OnInterrupt = Literal["cancel", "detach"]


def exit_code_of(job: Job) -> int:
    """The exit code of a job that has ended: its run's own, 1 where the run was ended, 130 where it was cancelled."""
    if job.phase == SUCCEEDED:
        return 0
    if job.phase == CANCELLED:
        return CANCELLED_CODE
    return job.exit_code if job.exit_code in OWN_CODES else LOST_CODE


def waiting_text(job: Job, position: int | None, now: float) -> str:
    """In words: the reason why a job waits, and the expected waiting time.

    Args:
        position: in the queue, from 1; None: unknown
        now: [s since 1970]
    """
    place = "" if position is None else f" at position {position}"
    reason = f": {job.reason}" if job.reason else ""
    if job.expected_start is None:
        return f"waits{place}{reason}"
    in_s = job.expected_start - now
    return f"waits{place}{reason}; expected to start {'soon' if in_s < 1 else f'in {span_text(in_s)}'}"


def cores_text(cpus: tuple[int, ...]) -> str:
    """Cores by their numbers.

    >>> cores_text((0,)), cores_text((0, 2)), cores_text((0, 1, 2, 3, 6))
    ('core 0', 'cores 0 and 2', 'cores 0-3 and 6')
    """
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    parts: list[str] = []
    for span in spans:
        parts += [f"{span[0]}-{span[-1]}"] if len(span) > 2 else map(str, span)
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
    return f"core {listed}" if len(cpus) == 1 else f"cores {listed}"


def follow_job(
    jobs: Jobs,
    name: str,
    signals: list[int],
    show: Mapping[str, Callable[[str], object]],
    say: Callable[[str], object],
    *,
    on_interrupt: OnInterrupt = "cancel",
) -> int:
    """Follow a job until it has ended.

    Ctrl-C and SIGTERM have the run finish its step and save, a second Ctrl-C ends it at once, a third one leaves it.
    With `on_interrupt` "detach" the first one leaves it. SIGHUP, the end of a terminal, always does: the job goes on.

    Args:
        jobs: of the appliance
        name: of the job, whole
        signals: numbers of signals, appended as they come to this process
        show: functions that take the text of its "out" and of its "err"
        say: takes lines about the job itself

    Returns:
        Its exit code

    Raises:
        Interrupted: it was cancelled, or this process is no longer to follow it
        RankLostError: it was ended, or could not begin
        CstoolError: the appliance does not know it
    """
    folder = jobs.folder(name)
    files = [LogFile(folder.log(stream), show[stream]) for stream in STREAMS]
    stops = _Stops(jobs, name, signals, say, on_interrupt)
    told = _Told(jobs, name, say)
    while True:
        job = told.news(stops.asked)
        for file in files:
            file.show_more()
        if job.has_ended:
            return _exit_code(job, stops, say)
        stops.pass_on()
        time.sleep(LOG_S)


class _Told:
    """The part of a job's events that has been told."""

    def __init__(self, jobs: Jobs, name: str, say: Callable[[str], object]) -> None:
        self._jobs, self._name, self._say = jobs, name, say
        self._last_event = 0
        self._waiting: tuple[int | None, str] | None = None

    def news(self, asked: bool) -> Job:
        """Tell the events since the last call, and return the job as it is.

        Args:
            asked: whether it was asked to stop by this process, which has said so
        """
        job = self._jobs.job(self._name)
        for event in self._jobs.events(self._name, after=self._last_event):
            self._last_event = event.number
            if (line := _in_words(event, asked)) != "":
                self._say(f"job {self._name}: {line}")
                self._waiting = None
        if job.phase == QUEUED:
            position = self._jobs.position(self._name)
            # The expected start alone changes all the time.
            if (position, job.reason) != self._waiting and (position is not None or job.reason):
                self._waiting = (position, job.reason)
                self._say(f"job {self._name}: {waiting_text(job, position, time.time())}")
        return job


class _Stops:
    """Signals that came to this process, passed on to the job."""

    def __init__(
        self, jobs: Jobs, name: str, signals: list[int], say: Callable[[str], object], on_interrupt: OnInterrupt
    ) -> None:
        self._jobs, self._name, self._signals, self._say = jobs, name, signals, say
        self._on_interrupt = on_interrupt
        self._passed_on = 0

    @property
    def asked(self) -> bool:
        """Whether the job was asked to stop."""
        return self._passed_on > 0

    @property
    def first(self) -> str:
        """The name of the signal that came first; empty where none came."""
        return signal.Signals(self._signals[0]).name if self._signals else ""

    def pass_on(self) -> None:
        """Pass on the signals that came.

        Raises:
            Interrupted: the job is to go on without this process
        """
        while self._passed_on < len(self._signals):
            number = self._signals[self._passed_on]
            self._passed_on += 1
            if number == signal.SIGHUP or self._on_interrupt == "detach" or self._passed_on > 2:
                raise Interrupted(
                    f"{signal.Signals(number).name}: job {self._name} is no longer followed",
                    f"`cstool job logs {self._name} -f` shows its log, `cstool job cancel {self._name}` ends it",
                )
            at_once = self._passed_on == 2
            if at_once and number != signal.SIGINT:
                continue
            job = self._jobs.job(self._name)
            if job.has_ended:
                return
            job = self._jobs.cancel(self._name, at_once=at_once)
            if at_once:
                self._say(f"job {self._name}: is ended at once. Another Ctrl-C leaves it.")
            elif not job.has_ended:
                self._say(f"job {self._name}: stops after this step, and saves. Another Ctrl-C ends it at once.")


def _in_words(event: Event, asked: bool) -> str:
    if event.kind == COMPILE_STARTED:
        return "compiles"
    if event.kind == STARTED:
        cpus = tuple(event.data.get("cpus") or ())
        return f"runs on {cores_text(cpus)}" if cpus else "runs"
    if event.kind in (PREEMPTED, CRASHED, RESTARTS) or (event.kind == STOP_ASKED and not asked):
        return event.text
    return ""


def _exit_code(job: Job, stops: _Stops, say: Callable[[str], object]) -> int:
    """The exit code of a job that has ended; see `follow_job`."""
    if job.phase == CANCELLED:
        has_run = job.started_at is not None
        hint = WAY_ON if has_run else None
        if not stops.first:
            raise Interrupted(f"job {job.name} was cancelled", hint)
        raise Interrupted(f"stopped by {stops.first}: job {job.name} was cancelled", hint)
    if job.phase != SUCCEEDED and job.exit_code not in OWN_CODES:
        raise RankLostError(f"job {job.name}: must end by itself, it failed: {job.reason}")
    took = (
        "" if job.started_at is None or job.ended_at is None else f" after {span_text(job.ended_at - job.started_at)}"
    )
    say(f"job {job.name}: {job.phase.lower()}{took}")
    return exit_code_of(job)
