"""The tables of the queue inside of one transaction: jobs by name, changes, events, settings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, TypedDict

from cstool.appliance.queue.job import ACTIVE_PHASES, ENDED_PHASES, PHASES, Job
from cstool.appliance.queue.names import check_beginning, shortened
from cstool.appliance.queue.queue_rows import (
    COLUMNS,
    DamagedRow,
    Row,
    bound,
    brief,
    is_time,
    job_of,
    jobs_of,
    row_of,
)
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted, did_you_mean

SELECT_JOBS = f"SELECT {', '.join(COLUMNS)} FROM jobs"
ACTIVE, ENDED = (f"phase IN ({', '.join(map(repr, phases))})" for phases in (ACTIVE_PHASES, ENDED_PHASES))
"""conditions of SQL: jobs that have not ended, jobs that have"""
_CLOCK = "clock"
"""the setting that has the time of the last event, which may have been removed"""
_MOST_ROWS = 2**62
"""that can be asked for: SQLite knows no larger number"""
_MOST_NAMED = 3


class Conditions(TypedDict, total=False):
    """Conditions of a list of jobs.

    Args:
        active: only jobs that have not ended
        phases: only jobs in one of these
        user: only this user's
        labels: only jobs that have all these
    """

    active: bool
    phases: Collection[str] | None
    user: str | None
    labels: Mapping[str, str] | None


class Tables:
    """The tables, within a transaction of the caller.

    Args:
        clock: returns the time [s since 1970]
    """

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._connection, self._clock = connection, clock

    @cached_property
    def now_s(self) -> float:
        """The time of events that happen now: the time of the event before them where the clock went back."""
        now_s, before = self._clock(), self.setting(_CLOCK)
        return max(now_s, before) if is_time(before) else now_s

    def rows(self, sql: str, values: Collection[Any] = ()) -> list[Row]:
        """Return the rows that a statement finds."""
        return self._connection.execute(sql, (*values,)).fetchall()

    def count(self, table: str, condition: str = "1", values: Collection[Any] = ()) -> int:
        """Return the number of rows of a table that meet a condition."""
        return int(self.rows(f"SELECT count(*) FROM {table} WHERE {condition}", values)[0][0])

    def find(self, name: str) -> Job | None:
        """Return the job of a whole name."""
        return next(map(job_of, self.rows(f"{SELECT_JOBS} WHERE name = ?", (name,))), None)

    def job(self, beginning: str) -> Job:
        """Return the job whose name begins like this.

        Raises:
            CstoolError: there is none, or there are several
        """
        check_beginning(beginning)
        condition, span = "name >= ? AND name < ?", (beginning, f"{beginning}~")  # which comes after all letters
        found = jobs_of(self.rows(f"{SELECT_JOBS} WHERE {condition} ORDER BY number DESC LIMIT {_MOST_NAMED}", span))
        if not found:
            raise CstoolError(
                f"job {beginning}: must be in the queue, there is no such job",
                "cstool job list -a shows all; the oldest that ended are forgotten after some time",
            )
        if len(found) > 1:
            count = self.count("jobs", condition, span)
            more = f" and {count - len(found):,} more" if count > len(found) else ""
            raise CstoolError(
                f"job {beginning}: must be the beginning of one name, it is that of {counted(count, 'job')}: "
                f"{', '.join(job.name for job in found)}{more}"
            )
        return found[0]

    def _there(self, name: str) -> Job:
        job = self.find(name)
        assert job is not None
        return job

    def jobs(self, wanted: Conditions, limit: int | None) -> list[Job]:
        """Return jobs that meet all conditions, the newest last, of more than a limit the newest ones."""
        condition, values = condition_of(wanted)
        # From the newest on, until there are enough; by the index of phases SQLite would find, and sort, all of them.
        order = "" if limit is None else "NOT INDEXED"
        sql = f"{SELECT_JOBS} {order} WHERE {condition} ORDER BY number DESC LIMIT ?"
        return jobs_of(reversed(self.rows(sql, (*values, at_most(limit)))))

    def add(self, job: Job) -> Job:
        """Add a job, and return it; its number is the next one."""
        columns = row_of({name: getattr(job, name) for name in COLUMNS if name != "number"})
        marks = ", ".join("?" * len(columns))
        self.rows(f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({marks})", columns.values())
        return self._there(job.name)

    def update(self, name: str, **fields: Any) -> Job:
        """Set fields of a job that is there, and return it as it is then."""
        if columns := row_of(fields):
            settings = ", ".join(f"{column} = ?" for column in columns)
            self.rows(f"UPDATE jobs SET {settings} WHERE name = ?", (*columns.values(), name))
        return self._there(name)

    def add_event(self, job: str, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """Add an event of now; "" for a job is the appliance."""
        values = (self.now_s, job, kind, bound(brief(text)), json.dumps(dict(data), sort_keys=True))
        self.rows("INSERT INTO events (at, job, kind, text, data) VALUES (?, ?, ?, ?, ?)", values)
        self.put(_CLOCK, self.now_s)

    def remove(self, names: Collection[str]) -> None:
        """Remove jobs, with their events."""
        for sql in ("DELETE FROM events WHERE job = ?", "DELETE FROM jobs WHERE name = ?"):
            self._connection.executemany(sql, [(name,) for name in names])

    def setting(self, key: str) -> Any:
        """Return a setting; None where it was never put."""
        found = self.rows("SELECT value FROM settings WHERE key = ?", (key,))
        try:
            return json.loads(found[0][0]) if found else None
        except (TypeError, ValueError, RecursionError) as error:
            raise DamagedRow(f"setting {key} makes no sense") from error

    def put(self, key: str, value: Any) -> None:
        """Set a setting."""
        self.rows("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value, sort_keys=True)))


def at_most(limit: int | None) -> int:
    """Return a limit as SQLite takes it."""
    return -1 if limit is None else min(limit, _MOST_ROWS)


def condition_of(wanted: Conditions) -> tuple[str, list[Any]]:
    """Return the condition of SQL that jobs meet, and the values in it.

    Raises:
        CstoolError: a phase is none
    """
    phases = wanted.get("phases")
    for phase in phases or ():
        if phase not in PHASES:
            raise CstoolError(
                f"phase: must be one of {', '.join(PHASES)}, got {shortened(phase)!r}", did_you_mean(phase, PHASES)
            )
    conditions, values = [ACTIVE if wanted.get("active") else "1"], list[Any]()
    if phases is not None:
        conditions.append(f"phase IN ({', '.join('?' * len(phases))})")
        values += phases
    if (user := wanted.get("user")) is not None:
        conditions.append("user = ?")
        values.append(bound(user))
    for pair in (wanted.get("labels") or {}).items():
        conditions.append(
            "EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(labels) THEN labels ELSE '{}' END) AS each"
            " WHERE each.key = ? AND each.value = ?)"
        )
        values += pair
    return " AND ".join(conditions), values
