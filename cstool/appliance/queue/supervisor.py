"""The supervisor: it starts the jobs of an appliance when it is their turn, and sees to it that each gets to its end.

All that it knows is in the queue and in the jobs' folders, so it may be killed at any moment, and the next one goes on:

- A job's phase and the number of its attempt are changed before its keeper is started. Killed in between, the next
  supervisor finds an attempt that never began, and begins it; a keeper begins each attempt once, even if asked again.
- How an attempt ended is recorded by its keeper, and stays until a supervisor has read it.
- Every change is made only if the job still is as it was believed to be.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cstool.appliance.queue.attempt import ABSENT, ALIVE, Attempt, Keeper
from cstool.appliance.queue.backend import LOCAL
from cstool.appliance.queue.compiles import Compiles
from cstool.appliance.queue.job import (
    CANCEL_NOW,
    COMPILE_SHARED,
    COMPILE_STARTED,
    COMPILED,
    COMPILING,
    EXECUTE,
    JOB_CANCELLED,
    JOB_FAILED,
    PHASE_AFTER,
    PREEMPT,
    PREEMPTED,
    QUEUED,
    RUNNING,
    STARTED,
    Capacity,
    Job,
)
from cstool.appliance.queue.job_folder import JobFolder
from cstool.appliance.queue.outcome import Outcome, outcome
from cstool.appliance.queue.queue import DRAINED_SETTING, Queue
from cstool.appliance.queue.root import Root
from cstool.appliance.queue.schedule import plan
from cstool.foundation.errors import CstoolError

PLAN_S = 2.0
"""interval of planning where nothing changed: time has passed [s]"""
PLANNED_AT_MOST = 300
"""number of jobs that are planned for; the start of jobs behind them is too uncertain"""
AGAIN_S = (0.5, 30.0)
"""pause before an attempt that could not begin is tried again, the first and the longest [s]"""
MOST_TRIES = 6
"""tries of a keeper to begin an attempt, not counting obstacles that pass; then its job fails"""
_PASSING = frozenset(map(os.strerror, (errno.ENOSPC, errno.ENOMEM, errno.ENFILE)))
"""errors of keepers where the host, and no job, is in trouble"""


KILL_S = (3.0, 30.0)
"""time for a keeper to end its run at once, before the lock's holders are killed, and before the keeper is [s]"""


class _Told(NamedTuple):
    """An attempt that was told to stop.

    Args:
        what: its stage, its number, and the kind of stop
        at: when (monotonic) [s]
        kill_at: when the supervisor itself ends the run, where it is to end at once (monotonic) [s]
    """

    what: tuple[str, int, str]
    at: float
    kill_at: float


class _Delay(NamedTuple):
    """An attempt that could not begin.

    Args:
        until: not tried again before this time (monotonic) [s]
        delay: the last pause before a try [s]
        tries: number of failed tries of its keeper, without trouble that passes
        trouble: why it could not, last
    """

    until: float
    delay: float
    tries: int
    trouble: str


class Supervisor:
    """The work of a supervisor, a round at a time.

    Args:
        root: of the appliance
        queue: of the appliance
        boot_id: of the host as it runs now
        attempts: makes the attempts, by folder, stage and number
        clock: time by the clock [s since 1970]
        say: takes lines for the log
    """

    def __init__(
        self,
        root: Root,
        queue: Queue,
        *,
        boot_id: str,
        attempts: Callable[[JobFolder, str, int], Attempt] = Attempt,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._root, self._queue, self._boot_id = root, queue, boot_id
        self._attempts, self._clock, self._say = attempts, clock, say
        self._children: dict[str, Keeper] = {}
        """keepers that this process started, and has to collect"""
        self._again: dict[str, _Delay] = {}
        """job that could not begin -> when it is tried again"""
        self._delayed: dict[str, float] = {}
        """job that waits for room on its disk -> it is not started before this time (monotonic) [s]"""
        self._told: dict[str, _Told] = {}
        """job -> its attempt that was told to stop, and the kind of stop"""
        self._compiles = Compiles(root, queue)
        self._read: tuple[int, list[Job]] = (-1, [])
        """version of the queue, and its jobs as of then"""
        self._planned = (-1, 0.0)
        """version of the queue that was planned for, and when (monotonic) [s]"""

    def turn(self) -> bool:
        """Do all due work, and return whether there was any. It is quick where nothing has happened.

        Raises:
            CstoolError: the queue cannot be read or written, such as on a full disk; nothing is lost, try again
        """
        self._collect()
        followed = [self._follow(job) for job in self._jobs() if job.phase in (COMPILING, RUNNING)]
        version, now_s = self._queue.version(), time.monotonic()
        if version == self._planned[0] and now_s - self._planned[1] < PLAN_S:
            return any(followed)
        capacity = self._queue.capacity()
        started = False
        if capacity is not None and not self._queue.get(DRAINED_SETTING):
            started = self._compile(self._startable(), capacity)
            started |= self._execute(self._startable(), capacity)
        self._planned = (version, now_s)
        return started or any(followed)

    def use(self, queue: Queue) -> None:
        """Go on with the queue as it was opened again."""
        self._queue = queue
        self._compiles.use(queue)
        self._read, self._planned = (-1, []), (-1, 0.0)

    def forget_children(self) -> None:
        """Let keepers go on without this process, which is about to end."""
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # else Python warns of a child that nobody waited for
        self._children.clear()

    def _jobs(self) -> list[Job]:
        """The jobs that have not ended, the most urgent first; read again where the queue has changed."""
        version = self._queue.version()
        if version != self._read[0]:
            found = (job for job in self._queue.jobs(active=True) if job.backend == LOCAL)
            self._read = version, sorted(found, key=lambda job: (job.priority, job.number))
        return self._read[1]

    def _startable(self) -> list[Job]:
        """The jobs that have not ended, without jobs that wait for room on their disk."""
        now_s = time.monotonic()
        self._delayed = {name: until_s for name, until_s in self._delayed.items() if until_s > now_s}
        return [job for job in self._jobs() if job.name not in self._delayed]

    def _collect(self) -> None:
        """Collect keepers that ended; one that could not begin is tried again, but not at once."""
        for name, child in [*self._children.items()]:
            if child.poll() is None:
                continue
            del self._children[name]
            if (trouble := child.trouble()) is not None:
                self._delay(name, trouble, counts=trouble not in _PASSING)

    def _delay(self, name: str, trouble: str, *, counts: bool = False) -> None:
        """Let some time pass before an attempt that could not begin is tried again.

        Args:
            counts: whether that is for the job to answer for, which fails in the end
        """
        before = self._again.get(name, _Delay(0.0, AGAIN_S[0] / 2, 0, ""))
        delay = min(2 * before.delay, AGAIN_S[1])
        self._again[name] = _Delay(time.monotonic() + delay, delay, before.tries + counts, trouble)
        self._say(f"{name}: cannot begin, tried again in {delay:g} s: {trouble}")

    # What runs.

    def _follow(self, job: Job) -> bool:
        """Act on the state of a job that runs; return whether it was changed."""
        folder = self._root.job(job.name)
        attempt = self._attempts(folder, job.stage, job.attempt)
        kept = attempt.look()
        if kept.state == ABSENT:
            return self._begin(job, folder, attempt)
        self._again.pop(job.name, None)
        words = folder.last_words() if kept.state != ALIVE else ""
        if (over := outcome(job, kept, self._boot_id, words)) is not None:
            return self._close(job, over)
        if kept.state == ALIVE and job.asked:
            self._have_stop(job, attempt)
        return False

    def _have_stop(self, job: Job, attempt: Attempt) -> None:
        """Tell the keeper of a job that it is to stop; an end at once comes about even where the keeper is gone."""
        what, now = (job.stage, job.attempt, job.asked), time.monotonic()
        told = self._told.get(job.name)
        if told is None or told.what != what:
            try:
                attempt.ask(job.asked)
                self._told[job.name] = _Told(what, now, now + KILL_S[0])
            except CstoolError as error:
                self._say(f"{job.name}: cannot be told to stop, tried again: {error.message}")
        elif job.asked == CANCEL_NOW and now >= told.kill_at:
            killed = attempt.kill(spares_keeper=now - told.at < KILL_S[1])
            self._told[job.name] = told._replace(kill_at=now + KILL_S[0])
            if killed:
                self._say(f"{job.name}: did not end at once, killed: {', '.join(map(str, killed))}")

    def _close(self, job: Job, over: Outcome) -> bool:
        """Write down that an attempt is over, and the outcome of its job."""
        data: dict[str, Any] = {
            "stage": job.stage,
            "attempt": job.attempt,
            "exit_code": over.exit_code,
            "peak_bytes": over.peak_bytes,
        }
        if over.event == COMPILED:
            data |= self._compiles.data_of(job)
        changed = self._queue.change(
            job.name,
            (job.phase,),
            event=(over.event, over.text, data),
            if_attempt=job.attempt,
            if_asked=job.asked,
            phase=over.phase,
            stage=over.stage,
            reason=over.reason,
            asked="",
            attempt=job.attempt if over.stage == job.stage else 0,
            restarts=job.restarts + over.counts,
            exit_code=over.exit_code,
            expected_start=None,
            expected_end=None,
            peak_bytes=max(job.peak_bytes, over.peak_bytes),
        )
        if changed is None:
            return False
        if over.delay_s:
            self._delayed[job.name] = time.monotonic() + over.delay_s
        if over.event == COMPILED:
            self._compiles.know(data)
        if changed.has_ended:
            self._root.job(job.name).mark_ended()
        self._told.pop(job.name, None)
        self._again.pop(job.name, None)
        self._say(f"{job.name}: {job.stage}, attempt {job.attempt}: {over.text}")
        return True

    def _begin(self, job: Job, folder: JobFolder, attempt: Attempt) -> bool:
        """Start the keeper of an attempt that has not begun; return whether the job was changed.

        Requests that came meanwhile do not matter yet: whether another keeper is about to begin this attempt is not
        known, so only one that has begun can be stopped.
        """
        if job.name in self._children:
            return False
        delayed = self._again.get(job.name)
        if delayed is not None and delayed.tries >= MOST_TRIES:
            return self._fail(job, f"cannot begin, tried {delayed.tries} times: {delayed.trouble}")
        if delayed is not None and time.monotonic() < delayed.until:
            return self._give_up(job) if job.asked else False
        if folder.has_ended:
            return self._fail(job, "must not start again, it has ended before, as its folder says")
        try:
            order = folder.order(job.digest)
            user = folder.owner()
        except CstoolError as error:
            return self._fail(job, str(error.message))
        command = order.command(job.stage, folder.params_file, len(job.cpus))
        try:
            self._children[job.name] = attempt.start(order, command, job.cpus, user=user)
        except (CstoolError, OSError) as error:
            self._delay(job.name, str(error))
        return False

    def _give_up(self, job: Job) -> bool:
        """End a job that could not begin, and that is to stop."""
        if job.asked == PREEMPT:
            return self._close(job, Outcome(job.stage, PREEMPTED, "stopped before it began"))
        text = "cancelled before it began"
        return self._close(job, Outcome(job.stage, JOB_CANCELLED, text, text))

    def _fail(self, job: Job, text: str) -> bool:
        """Fail a job that cannot be started at all."""
        return self._close(job, Outcome(job.stage, JOB_FAILED, text, text))

    # What waits.

    def _compile(self, jobs: Iterable[Job], capacity: Capacity) -> bool:
        """Start compiles, up to the limit at a time, and pass on jobs whose model is compiled already."""
        found = self._compiles.plan(jobs, capacity.compiles)
        done = False
        for job, by in found.shared:
            text = f"compiled already, for {by}"
            moved = self._move_on(job, COMPILE_SHARED, text, {"by": by}, stage=EXECUTE, attempt=0)
            done |= moved is not None
        for job in found.starts:
            done |= self._start(job, COMPILE_STARTED, capacity.cpus)
        if found.reasons:
            self._queue.set_expected({}, found.reasons)
        return done

    def _execute(self, jobs: Sequence[Job], capacity: Capacity) -> bool:
        """Start jobs that fit now, have others stop for them, and foretell the rest."""
        now = self._clock()
        running = [job for job in jobs if job.phase == RUNNING]
        waiting = [job for job in jobs if job.phase == QUEUED and job.stage == EXECUTE]
        found = plan(now, capacity, running, waiting[:PLANNED_AT_MOST])
        by_name = {job.name: job for job in jobs}
        done = False
        for name, cpus in found.starts:
            job = by_name[name]
            _, end = found.expected[name]
            done |= self._start(job, STARTED, cpus, expected_start=now, expected_end=end)
        for name in found.preempts:
            done |= self._preempt(by_name[name])
        started = {name for name, _ in found.starts}
        times = {name: each for name, each in found.expected.items() if name not in started and name in by_name}
        reasons = {name: text for name, text in found.reasons.items() if name not in started}
        self._queue.set_expected(times, reasons)
        return done

    def _start(self, job: Job, event: str, cpus: tuple[int, ...], **fields: Any) -> bool:
        """Start the next attempt of a stage: first the queue says so, then it is begun."""
        attempt = job.attempt + 1
        data = {"attempt": attempt, "cpus": list(cpus), **job.needs.held}
        cores = f"core{'s' * (len(cpus) != 1)} {', '.join(map(str, cpus))}"
        text = f"compiles, attempt {attempt}" if event == COMPILE_STARTED else f"runs on {cores}, attempt {attempt}"
        started = self._move_on(job, event, text, data, attempt=attempt, cpus=cpus, asked="", **fields)
        if started is not None:
            folder = self._root.job(job.name)
            self._begin(started, folder, self._attempts(folder, job.stage, attempt))
        return started is not None

    def _move_on(self, job: Job, event: str, text: str, data: dict[str, Any], **fields: Any) -> Job | None:
        """Change a job that waits, if it still does, and return it as it is then."""
        fields |= {"phase": PHASE_AFTER[event], "reason": ""}
        changed = self._queue.change(
            job.name, (QUEUED,), event=(event, text, data), if_attempt=job.attempt, if_asked=job.asked, **fields
        )
        if changed is not None:
            self._say(f"{job.name}: {text}")
        return changed

    def _preempt(self, job: Job) -> bool:
        """Have a job stop for one of a higher priority."""
        try:
            asked = self._queue.ask(job.name, PREEMPT)
        except CstoolError:  # it has ended
            return False
        self._say(f"{job.name}: is to stop for a job of a higher priority")
        return asked.asked != job.asked
