"""The queue of an appliance: its jobs and their events, in one SQLite database that many processes share."""

from __future__ import annotations

import datetime
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    CANCELLED,
    ENDED_PHASES,
    JOB_CANCELLED,
    LABELLED,
    PHASES,
    PREEMPT,
    QUEUED,
    REQUESTS,
    STARTED,
    STOP_ASKED,
    SUBMITTED,
    SUCCEEDED,
    Capacity,
    Event,
    Job,
)
from cstool.appliance.queue.names import check_label_map
from cstool.appliance.queue.queue_file import QueueFile
from cstool.appliance.queue.queue_rows import EVENT_COLUMNS, brief, event_of, is_time, unbound
from cstool.appliance.queue.queue_tables import ACTIVE, ENDED, Conditions, Tables, at_most, condition_of
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.job import JobOrder, Needs
    from cstool.appliance.queue.root import Root

T = TypeVar("T")
CAPACITY, DRAINED_SETTING, KEEPS, BACKEND = "capacity", "drained", "keeps", "backend"
"""names of settings; see `Queue.get`"""
_KEPT_JOBS, _KEPT_EVENTS = 10_000, 200_000
_MOST_JOBS, _MOST_EVENTS = 200, 5_000
"""that `Queue.prune` removes at a time"""
_LEAST_CHANGE_S = 1.0
_HISTORY = 20
"""jobs that an estimate looks at"""
_ASKED_WORDS = {
    PREEMPT: "asked to save, and to make room for a job of a higher priority",
    CANCEL: "asked to save and end",
    CANCEL_NOW: "asked to end at once",
}


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


class Queue(QueueFile):
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
        self._clock = clock
        super().__init__(root, makes=makes)

    def _look(self, work: Callable[[Tables], T]) -> T:
        """Return the result of `work`, which only reads, and may be called again."""
        return self._read(lambda connection: work(Tables(connection, self._clock)))

    def _change(self, work: Callable[[Tables], T]) -> T:
        """Return the result of `work`, in one transaction, which is on the disk then; it may be called again."""
        return self._write(lambda connection: work(Tables(connection, self._clock)))

    def add(self, name: str, order: JobOrder, digest: str, backend: str, *, user: str, user_id: int) -> Job:
        """Add a job, QUEUED, with the event SUBMITTED.

        Its stage is COMPILE where the order has words for that, else EXECUTE.

        Args:
            digest: of its `job.json`; see `JobFolder.make`
            backend: name of its back end
            user, user_id: the submitter
        """

        def work(tables: Tables) -> Job:
            if tables.find(name) is not None:
                raise CstoolError(f"job {name}: is in the queue already")
            about = {"digest": digest, "backend": backend, "user": user, "user_id": user_id}
            job = order.job(0, name, **about, submitted_at=tables.now_s)
            needs = {key: value for key, value in asdict(order.needs).items() if key != "sources"}
            data = {"stage": job.stage, "priority": order.priority, **needs}
            tables.add_event(name, SUBMITTED, f"submitted by {user}", data)
            return tables.add(job)

        return self._change(work)

    def job(self, name: str) -> Job:
        """Return a job by its name, or by an unambiguous beginning of it.

        Raises:
            CstoolError: there is none, or there are several
        """
        return self._look(lambda tables: tables.job(name))

    def jobs(self, *, limit: int | None = None, **wanted: Unpack[Conditions]) -> list[Job]:
        """Return jobs, the newest last; a row of the queue that makes no sense is a job that has FAILED.

        Args:
            limit: largest number of jobs; the newest ones
            wanted: only jobs that meet these conditions
        """
        found = self._look(lambda tables: tables.jobs(wanted, limit))
        return [job for job in found if not (wanted.get("active") and job.has_ended)]

    def newest(self, *, most_ended: int, **wanted: Unpack[Conditions]) -> tuple[list[Job], int]:
        """Return jobs, the newest last, and the number of further ones; this is quick however many have ended.

        Args:
            most_ended: largest number of ended jobs; the newest ones
            wanted: as of `jobs`
        """
        phases = wanted.get("phases")
        active: Conditions = {**wanted, "active": True}
        ended: Conditions = {**wanted, "phases": [each for each in ENDED_PHASES if phases is None or each in phases]}

        def work(tables: Tables) -> tuple[list[Job], int]:
            found = [*tables.jobs(active, None), *tables.jobs(ended, most_ended)]
            by_number = {job.number: job for job in found}  # one that ends meanwhile is in both
            return [job for _, job in sorted(by_number.items())], tables.count("jobs", *condition_of(ended))

        jobs, count = self._look(work)
        return jobs, max(0, count - most_ended)

    def names(self) -> set[str]:
        """Return the names of all jobs, which costs little."""
        return {name for (name,) in self._look(lambda tables: tables.rows("SELECT name FROM jobs"))}

    def events(self, job: str | None = None, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return events, the oldest first.

        Args:
            job: whole name; None for all jobs and the appliance, "" for the appliance alone
            after: number of an event; only later events
            limit: largest number of events; the newest ones
        """
        whose, names = ("", ()) if job is None else ("AND job = ?", (job,))
        sql = f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE number > ? {whose} ORDER BY number DESC LIMIT ?"
        rows = self._look(lambda tables: tables.rows(sql, (after, *names, at_most(limit))))
        return [event for event in map(event_of, reversed(rows)) if event is not None]

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

        def work(tables: Tables) -> Job | None:
            job = tables.find(name)
            if job is None or job.phase not in phases:
                return None
            if if_attempt not in (None, job.attempt) or if_asked not in (None, job.asked):
                return None
            new: Changes = {**fields}
            if new.get("phase") in ENDED_PHASES:
                new.setdefault("ended_at", tables.now_s)
            if event is not None:
                if event[0] == STARTED and job.started_at is None:
                    new.setdefault("started_at", tables.now_s)
                tables.add_event(name, *event)
            return tables.update(name, **new)

        return self._change(work)

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

        def work(tables: Tables) -> Job:
            job = tables.job(name)
            if job.has_ended:
                since = f"{datetime.datetime.fromtimestamp(job.ended_at or job.submitted_at):%Y-%m-%d %H:%M:%S}"
                rule = "only a job that has not ended can be stopped"
                raise CstoolError(f"job {job.name}: {rule}, it is {job.phase} since {since}")
            if REQUESTS.index(what) <= REQUESTS.index(job.asked) or (job.phase == QUEUED and what == PREEMPT):
                return job
            if job.phase == QUEUED:
                reason = "cancelled while it waited"
                tables.add_event(job.name, JOB_CANCELLED, reason, {})
                return tables.update(job.name, phase=CANCELLED, ended_at=tables.now_s, reason=reason, asked=what)
            tables.add_event(job.name, STOP_ASKED, _ASKED_WORDS[what], {"asked": what})
            return tables.update(job.name, asked=what)

        return self._change(work)

    def label(self, name: str, changes: Mapping[str, str | None]) -> Job:
        """Set labels of a job, remove each label whose value is None, with the event LABELLED; return the job.

        Raises:
            CstoolError: there is no such job, or it would have too many; a label is none
        """

        def work(tables: Tables) -> Job:
            job = tables.job(name)
            labels: dict[str, str | None] = {**job.labels, **changes}
            left = check_label_map({key: value for key, value in labels.items() if value is not None})
            if left == job.labels:
                return job
            words = [f"{key}-" if value is None else f"{key}={value}" for key, value in changes.items()]
            tables.add_event(job.name, LABELLED, " ".join(words), {"changes": dict(changes)})
            return tables.update(job.name, labels=left)

        return self._change(work)

    def set_expected(self, times: Mapping[str, tuple[float | None, float | None]], reasons: Mapping[str, str]) -> None:
        """Set when jobs that have not ended are expected to start and end, and why they wait; no events.

        Times that differ by less than a second from the known ones are not written.

        Args:
            times: name -> expected start and end [s since 1970]
            reasons: name -> why it waits; of jobs that are QUEUED alone
        """
        columns = ("expected_start", "expected_end")
        sql = f"SELECT name, phase, {', '.join(columns)}, reason FROM jobs WHERE {ACTIVE}"

        def news(tables: Tables) -> dict[str, dict[str, Any]]:
            found = dict[str, dict[str, Any]]()
            for name, phase, start, end, before in tables.rows(sql):
                known = [time_s if is_time(time_s) else None for time_s in (start, end)]
                changes = zip(columns, known, times.get(name, known), strict=True)
                fields: dict[str, Any] = {column: now for column, old, now in changes if _differ(old, now)}
                reason = reasons.get(name)
                if phase == QUEUED and reason is not None and brief(reason) != unbound(before):
                    fields["reason"] = reason
                if fields:
                    found[name] = fields
            return found

        def work(tables: Tables) -> None:
            for name, fields in news(tables).items():
                tables.update(name, **fields)

        if self._look(news):
            self._change(work)

    def position(self, name: str) -> int | None:
        """Return the position of a waiting job, by priority, then number: 1 is next; None where it does not wait."""
        return self.positions().get(name)

    def positions(self) -> dict[str, int]:
        """Return the position of all jobs that wait; see `position`."""
        sql = "SELECT name FROM jobs WHERE phase = ? ORDER BY priority, number"
        rows = self._look(lambda tables: tables.rows(sql, (QUEUED,)))
        return {name: position for position, (name,) in enumerate(rows, start=1)}

    def history_s(self, compile_key: str, cores: int) -> float | None:
        """Return the median time of a step [s], of the last jobs that succeeded with the same model and cores.

        It counts jobs that ran straight, from their first start to their end, start-up and all. None where there are
        none.
        """
        if not compile_key:
            return None
        from statistics import median  # a heavy module, for estimates alone

        sql = (
            "SELECT (ended_at - started_at) / max_steps FROM jobs WHERE compile_key = ? AND phase = ?"
            " AND CASE WHEN json_valid(needs) THEN json_extract(needs, '$.cores') END = ?"
            " AND attempt = 1 AND max_steps > 0 AND ended_at > started_at ORDER BY number DESC LIMIT ?"
        )
        rows = self._look(lambda tables: tables.rows(sql, (compile_key, SUCCEEDED, cores, _HISTORY)))
        times = [time_s for (time_s,) in rows if is_time(time_s)]
        return median(times) if times else None

    def get(self, key: str) -> Any:
        """Return a setting, as JSON has it; None where it was never put.

        Settings: CAPACITY, of the appliance; DRAINED_SETTING, whether nothing new starts; BACKEND, the usual one;
        KEEPS, {"jobs": ended jobs that `prune` keeps, "events": events that it keeps}.
        """
        return self._look(lambda tables: tables.setting(key))

    def put(self, key: str, value: Any) -> None:
        """Set a setting to a JSON value."""
        self._change(lambda tables: tables.put(key, value))

    def capacity(self) -> Capacity | None:
        """Return the capacity of the appliance; None where it was never started.

        Raises:
            CstoolError: the queue's entry makes no sense
        """
        found = self.get(CAPACITY)
        if found is None:
            return None
        try:
            capacity = Capacity(**{**found, "cpus": tuple(found["cpus"])})
            counts = (capacity.memory_bytes, capacity.disk_bytes, capacity.systems, capacity.compiles, *capacity.cpus)
            if all(type(count) is int and count >= 0 for count in counts):
                return capacity
        except (TypeError, KeyError):
            pass
        raise CstoolError(
            f"{self.path}: must say what the appliance has to give, got {str(found)[:200]}",
            "`cstool appliance start` says it anew",
        )

    def note(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        """Add an event about the appliance."""
        self._change(lambda tables: tables.add_event("", kind, text, data or {}))

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each phase, empty phases included."""
        rows = self._look(lambda tables: tables.rows("SELECT phase, count(*) FROM jobs GROUP BY phase"))
        return {**dict.fromkeys(PHASES, 0), **dict(rows)}

    def forget(self, name: str) -> None:
        """Remove a job that its back end did not take, with its events; one that does not wait any more stays."""

        def work(tables: Tables) -> None:
            if tables.count("jobs", "name = ? AND phase = ?", (name, QUEUED)):
                tables.remove([name])

        self._change(work)

    def prune(self) -> list[str]:
        """Remove the jobs that ended first, and events, beyond the limits (KEEPS); return the names of the jobs.

        Their folders are for the caller to remove. So that others need not wait long, a call removes at most 200 jobs
        and 5,000 further events; repeated calls remove the rest.
        """

        def excess(tables: Tables) -> tuple[int, int]:
            jobs, events = _kept(tables.setting(KEEPS))
            # The span of their numbers tells at once where there are no more than that.
            ((span,),) = tables.rows("SELECT (SELECT max(number) FROM events) - (SELECT min(number) FROM events) + 1")
            more = tables.count("events") - events if (span or 0) > events else 0
            return max(0, tables.count("jobs", ENDED) - jobs), max(0, more)

        def work(tables: Tables) -> list[str]:
            # With the +, SQLite takes the index of ended_at, and sorts nothing.
            sql = f"SELECT name FROM jobs WHERE ended_at IS NOT NULL AND +{ENDED} ORDER BY ended_at, number LIMIT ?"
            names = [name for (name,) in tables.rows(sql, (min(excess(tables)[0], _MOST_JOBS),))]
            tables.remove(names)
            if more := excess(tables)[1]:
                going_on = f"SELECT name FROM jobs WHERE {ACTIVE}"
                oldest = f"SELECT number FROM events WHERE job NOT IN ({going_on}) ORDER BY number LIMIT ?"
                tables.rows(f"DELETE FROM events WHERE number IN ({oldest})", (min(more, _MOST_EVENTS),))
            return names

        return self._change(work) if any(self._look(excess)) else []

    def version(self) -> int:
        """Return a number that changes with every change of the queue. It costs next to nothing."""
        return self._read(_version)


def _kept(keeps: Any) -> tuple[int, int]:
    """Numbers of ended jobs and events that are kept, by a setting that any process may have written."""
    found = keeps if isinstance(keeps, dict) else {}
    jobs, events = found.get("jobs"), found.get("events")
    return jobs if isinstance(jobs, int) else _KEPT_JOBS, events if isinstance(events, int) else _KEPT_EVENTS


def _version(connection: sqlite3.Connection) -> int:
    # SQLite counts changes by other connections, and our own apart; both only grow.
    (others,) = connection.execute("PRAGMA data_version").fetchone()
    return int(others) + connection.total_changes


def _differ(before: float | None, now: float | None) -> bool:
    """Whether an expected time is another one by a second at least."""
    return before != now and (before is None or now is None or abs(before - now) >= _LEAST_CHANGE_S)
