"""The queue of an appliance: its jobs and their events, in one SQLite database that many processes share."""

from __future__ import annotations

import datetime
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from cstool.appliance.queue import queue_tables as tables
from cstool.appliance.queue.job import (
    ACTIVE_PHASES,
    CANCEL,
    CANCEL_NOW,
    CANCELLED,
    ENDED_PHASES,
    JOB_CANCELLED,
    LABELLED,
    PHASES,
    PREEMPT,
    QUEUED,
    STARTED,
    STOP_ASKED,
    SUBMITTED,
    Event,
    Job,
)
from cstool.appliance.queue.names import check_label_map, shortened
from cstool.appliance.queue.queue_file import QueueFile
from cstool.appliance.queue.queue_rows import brief, changed_columns, new_row
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    from cstool.appliance.queue.job import JobOrder, Needs
    from cstool.appliance.queue.root import Root

CAPACITY, DRAINED_SETTING, KEEPS, BACKEND = "capacity", "drained", "keeps", "backend"
"""names of settings; see `Queue.get`"""
_KEPT_JOBS, _KEPT_EVENTS = 10_000, 200_000
_MOST_JOBS, _MOST_EVENTS = 200, 5_000
"""that `Queue.prune` removes at a time"""
_STRENGTH = ("", PREEMPT, CANCEL, CANCEL_NOW)
"""requests, each of which overrides the ones before it"""
_LEAST_CHANGE_S = 1.0


class Changes(TypedDict, total=False):
    """Fields of a job that `Queue.change` may set; see `Job`."""

    backend_id: str
    needs: Needs
    priority: str
    note: str
    phase: str
    stage: str
    reason: str
    asked: str
    attempt: int
    restarts: int
    cpus: tuple[int, ...]
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    expected_start: float | None
    expected_end: float | None
    peak_bytes: int


class Queue:
    """The queue. A context manager; safe for many processes, and for threads of one.

    Every method is one short transaction: it happens whole, or not at all. While another process writes, it waits.

    Every method raises CstoolError where the file cannot be read or written, such as on a full disk, or is damaged.

    Args:
        root: of the appliance
        makes: whether to make it where there is none
        clock: returns the time [s since 1970]

    Raises:
        CstoolError: there is none, it is of another cstool, or cannot be used
    """

    def __init__(self, root: Root, *, makes: bool = True, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = root.queue_file, clock
        self._file = QueueFile(root, makes=makes)

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it; more than once does no harm."""
        self._file.close()

    def add(self, name: str, order: JobOrder, digest: str, backend: str, *, user: str, user_id: int) -> Job:
        """Add a job, QUEUED, with the event SUBMITTED.

        Its stage is COMPILE where the order has words for that, else EXECUTE.

        Args:
            digest: of its `job.json`; see `JobFolder.make`
            backend: name of its back end
            user, user_id: the submitter
        """

        def work(connection: sqlite3.Connection) -> Job:
            if tables.find_job(connection, name) is not None:
                raise CstoolError(f"job {name}: is in the queue already")
            now_s = tables.time_after(connection, self._clock())
            row = new_row(name, order, digest, backend, user, user_id, now_s)
            tables.insert_job(connection, row)
            data = {"stage": row["stage"], "priority": order.priority, **_amounts(order.needs)}
            tables.insert_event(connection, now_s, name, SUBMITTED, f"submitted by {user}", data)
            return _found(connection, name)

        return self._file.write(work)

    def job(self, name: str) -> Job:
        """Return a job by its name, or by an unambiguous beginning of it.

        Raises:
            CstoolError: there is none, or there are several
        """
        return self._file.read(lambda connection: tables.named_job(connection, name))

    def jobs(
        self,
        *,
        active: bool = False,
        phases: Collection[str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest last; a row of the queue that makes no sense is a job that has FAILED.

        Args:
            active: only jobs that have not ended
            phases: only jobs in one of these
            user: only this user's
            labels: only jobs that have all these
            limit: largest number of jobs; the newest ones
        """
        chosen = _chosen_phases(active, phases)
        found = self._file.read(
            lambda connection: tables.select_jobs(connection, chosen, user, labels or {}, limit),
        )
        return [job for job in found if not (active and job.has_ended)]

    def newest(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        most_ended: int,
    ) -> tuple[list[Job], int]:
        """Return jobs, the newest last, and the number of further ones; this is quick however many have ended.

        Args:
            phases, user, labels: as of `jobs`
            most_ended: largest number of ended jobs; the newest ones
        """
        chosen = _chosen_phases(False, phases)
        return self._file.read(
            lambda connection: tables.select_newest(
                connection, PHASES if chosen is None else chosen, user, labels or {}, most_ended
            )
        )

    def names(self) -> set[str]:
        """Return the names of all jobs, which costs little."""
        return self._file.read(tables.all_names)

    def events(self, job: str | None = None, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return events, the oldest first.

        Args:
            job: whole name; None for all jobs and the appliance, "" for the appliance alone
            after: number of an event; only later events
            limit: largest number of events; the newest ones
        """
        return self._file.read(lambda connection: tables.select_events(connection, job, after, limit))

    def change(
        self,
        name: str,
        phases: Collection[str],
        /,
        *,
        event: tuple[str, str, Mapping[str, Any]] | None = None,
        if_attempt: int | None = None,
        if_asked: str | None = None,
        **fields: Unpack[Changes],
    ) -> Job | None:
        """Change a job, if it is as the caller believes, and return it as it is then; None where nothing happened.

        The time of the event becomes its `ended_at` where it ends, and its `started_at` where that event is STARTED
        and it had none, unless they are given.

        Args:
            name: whole
            phases: it must be in one of these
            event: kind, text and data of the event that says so, in the same transaction
            if_attempt, if_asked: it must have this attempt, this asked; None for any
            fields: new values of the job's fields
        """

        def work(connection: sqlite3.Connection) -> Job | None:
            job = tables.find_job(connection, name)
            if job is None or job.phase not in phases:
                return None
            if if_attempt not in (None, job.attempt) or if_asked not in (None, job.asked):
                return None
            now_s = tables.time_after(connection, self._clock())
            columns = changed_columns(fields)
            if columns.get("phase") in ENDED_PHASES:
                columns.setdefault("ended_at", now_s)
            if event is not None:
                kind, text, data = event
                if kind == STARTED and job.started_at is None:
                    columns.setdefault("started_at", now_s)
                tables.insert_event(connection, now_s, name, kind, text, data)
            tables.update_job(connection, name, columns)
            return _found(connection, name)

        return self._file.write(work)

    def ask(self, name: str, what: str) -> Job:
        """Ask a job to stop, and return it as it is then.

        One that is QUEUED is CANCELLED at once. A running one gets it as `asked`, with the event STOP_ASKED; CANCEL_NOW
        overrides CANCEL, and CANCEL overrides PREEMPT. A request that came before, or is overridden, changes nothing.

        Args:
            name: or an unambiguous beginning
            what: `CANCEL`, `CANCEL_NOW` or `PREEMPT`; PREEMPT does nothing to a job that waits

        Raises:
            CstoolError: there is no such job, or it has ended
        """

        def work(connection: sqlite3.Connection) -> Job:
            job = tables.named_job(connection, name)
            if job.has_ended:
                raise _ended(job)
            if _STRENGTH.index(what) <= _STRENGTH.index(job.asked) or (job.phase == QUEUED and what == PREEMPT):
                return job
            now_s = tables.time_after(connection, self._clock())
            if job.phase == QUEUED:
                reason = "cancelled while it waited"
                ended = {"phase": CANCELLED, "ended_at": now_s, "reason": reason, "asked": what}
                tables.update_job(connection, job.name, ended)
                tables.insert_event(connection, now_s, job.name, JOB_CANCELLED, reason, {})
            else:
                tables.update_job(connection, job.name, {"asked": what})
                tables.insert_event(connection, now_s, job.name, STOP_ASKED, _ASKED_WORDS[what], {"asked": what})
            return _found(connection, job.name)

        return self._file.write(work)

    def label(self, name: str, changes: Mapping[str, str | None]) -> Job:
        """Set labels of a job, remove each label whose value is None, with the event LABELLED; return the job.

        Raises:
            CstoolError: there is no such job, or it would have too many; a label is none
        """

        def work(connection: sqlite3.Connection) -> Job:
            job = tables.named_job(connection, name)
            labels: dict[str, str | None] = {**job.labels, **changes}
            left = check_label_map({key: value for key, value in labels.items() if value is not None})
            if left == job.labels:
                return job
            now_s = tables.time_after(connection, self._clock())
            words = [f"{key}-" if value is None else f"{key}={value}" for key, value in changes.items()]
            tables.update_job(connection, job.name, {"labels": json.dumps(left, sort_keys=True)})
            tables.insert_event(connection, now_s, job.name, LABELLED, " ".join(words), {"changes": dict(changes)})
            return _found(connection, job.name)

        return self._file.write(work)

    def set_expected(self, times: Mapping[str, tuple[float | None, float | None]], reasons: Mapping[str, str]) -> None:
        """Set when jobs that have not ended are expected to start and end, and why they wait; no events.

        Times that differ by less than a second from the known ones are not written.

        Args:
            times: name -> expected start and end [s since 1970]
            reasons: name -> why it waits; of jobs that are QUEUED alone
        """

        def work(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found = {old.name: _expectations(old, times, reasons) for old in tables.expectations(connection)}
            return {name: columns for name, columns in found.items() if columns}

        def write(connection: sqlite3.Connection) -> None:
            for name, columns in work(connection).items():
                tables.update_job(connection, name, columns)

        if self._file.read(work):
            self._file.write(write)

    def position(self, name: str) -> int | None:
        """Return the position of a waiting job, by priority, then number: 1 is next; None where it does not wait."""
        return self._file.read(lambda connection: tables.position_of(connection, name))

    def positions(self) -> dict[str, int]:
        """Return the position of all jobs that wait; see `position`."""
        names = self._file.read(tables.waiting_names)
        return {name: position for position, name in enumerate(names, start=1)}

    def history_s(self, compile_key: str, cores: int) -> float | None:
        """Return the median time of a step [s], of the last jobs that succeeded with the same model and cores.

        It counts jobs that ran straight, from their first start to their end, start-up and all. None where there are
        none.
        """
        if not compile_key:
            return None
        from statistics import median  # a heavy module, for estimates alone

        times = self._file.read(lambda connection: tables.step_times_s(connection, compile_key, cores))
        return median(times) if times else None

    def get(self, key: str) -> Any:
        """Return a setting, as JSON has it; None where it was never put.

        Settings: CAPACITY, of the appliance; DRAINED_SETTING, whether nothing new starts; BACKEND, the usual one;
        KEEPS, {"jobs": ended jobs that `prune` keeps, "events": events that it keeps}.
        """
        return self._file.read(lambda connection: tables.get_setting(connection, key))

    def put(self, key: str, value: Any) -> None:
        """Set a setting to a JSON value."""
        self._file.write(lambda connection: tables.put_setting(connection, key, value))

    def note(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        """Add an event about the appliance."""

        def work(connection: sqlite3.Connection) -> None:
            now_s = tables.time_after(connection, self._clock())
            tables.insert_event(connection, now_s, "", kind, text, data or {})

        self._file.write(work)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each phase, empty phases included."""
        return self._file.read(tables.count_by_phase)

    def forget(self, name: str) -> None:
        """Remove a job that its back end did not take, with its events; one that does not wait any more stays."""
        self._file.write(lambda connection: tables.remove_waiting(connection, name))

    def prune(self) -> list[str]:
        """Remove the jobs that ended first, and events, beyond the limits (KEEPS); return the names of the jobs.

        Their folders are for the caller to remove. So that others need not wait long, a call removes at most 200 jobs
        and 5,000 further events; repeated calls remove the rest.
        """

        def excess(connection: sqlite3.Connection) -> tuple[int, int]:
            jobs, events = _kept(tables.get_setting(connection, KEEPS))
            return max(0, tables.count_ended(connection) - jobs), max(
                0, tables.count_events(connection, events) - events
            )

        def work(connection: sqlite3.Connection) -> list[str]:
            names = tables.remove_ended(connection, min(excess(connection)[0], _MOST_JOBS))
            more = excess(connection)[1]
            if more:
                tables.remove_events(connection, min(more, _MOST_EVENTS))
            return names

        return self._file.write(work) if any(self._file.read(excess)) else []

    def version(self) -> int:
        """Return a number that changes with every change of the queue. It costs next to nothing."""
        return self._file.read(_version)


_ASKED_WORDS = {
    PREEMPT: "asked to save, and to make room for a job of a higher priority",
    CANCEL: "asked to save and end",
    CANCEL_NOW: "asked to end at once",
}


def _found(connection: sqlite3.Connection, name: str) -> Job:
    """The job of a name that is there, as it was checked in the same transaction."""
    job = tables.find_job(connection, name)
    assert job is not None
    return job


def _ended(job: Job) -> CstoolError:
    since = f"{datetime.datetime.fromtimestamp(job.ended_at or job.submitted_at):%Y-%m-%d %H:%M:%S}"
    return CstoolError(f"job {job.name}: only a job that has not ended can be stopped, it is {job.phase} since {since}")


def _kept(keeps: Any) -> tuple[int, int]:
    """Numbers of ended jobs and events that are kept, by a setting that any process may have written."""
    found = keeps if isinstance(keeps, dict) else {}
    jobs, events = found.get("jobs"), found.get("events")
    return jobs if isinstance(jobs, int) else _KEPT_JOBS, events if isinstance(events, int) else _KEPT_EVENTS


def _version(connection: sqlite3.Connection) -> int:
    # SQLite counts changes by other connections, and our own apart; both only grow.
    (others,) = connection.execute("PRAGMA data_version").fetchone()
    return int(others) + connection.total_changes


def _chosen_phases(active: bool, phases: Collection[str] | None) -> Collection[str] | None:
    """The phases that a list is restricted to; None for all."""
    for phase in phases or ():
        if phase not in PHASES:
            raise CstoolError(
                f"phase: must be one of {', '.join(PHASES)}, got {shortened(phase)!r}", did_you_mean(phase, PHASES)
            )
    if not active:
        return None if phases is None else [*phases]
    return [phase for phase in ACTIVE_PHASES if phases is None or phase in phases]


def _expectations(
    old: tables.Expected, times: Mapping[str, tuple[float | None, float | None]], reasons: Mapping[str, str]
) -> dict[str, Any]:
    """The columns of a job that differ from its newest expectations."""
    columns: dict[str, Any] = {}
    start, end = times.get(old.name, (old.start, old.end))
    for column, before, now in (("expected_start", old.start, start), ("expected_end", old.end, end)):
        if before != now and (before is None or now is None or abs(before - now) >= _LEAST_CHANGE_S):
            columns[column] = now
    reason = brief(reasons.get(old.name, old.reason))
    if old.phase == QUEUED and reason != old.reason:
        columns |= changed_columns({"reason": reason})
    return columns


def _amounts(needs: Needs) -> dict[str, Any]:
    """The needs of a job, as plain values."""
    return {
        "cores": needs.cores,
        "memory_bytes": needs.memory_bytes,
        "disk_bytes": needs.disk_bytes,
        "systems": needs.systems,
        "seconds": needs.seconds,
        "limit_s": needs.limit_s,
    }
