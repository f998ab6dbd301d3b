"""Reads and writes of the queue's tables; each inside a transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from cstool.appliance.queue.job import ACTIVE_PHASES, ENDED_PHASES, PHASES, QUEUED, SUCCEEDED, Event, Job
from cstool.appliance.queue.names import check_beginning
from cstool.appliance.queue.queue_rows import (
    EVENT_COLUMNS,
    JOB_COLUMNS,
    DamagedRow,
    bound,
    brief,
    event_of,
    is_time,
    job_of,
    unbound,
)
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted

_SELECT_JOBS = f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs"
_SELECT_EVENTS = f"SELECT {', '.join(EVENT_COLUMNS)} FROM events"
_CLOCK = "clock"
"""the setting that has the time of the last event, which may have been removed"""
_MOST_ROWS = 2**62
"""that can be asked for: SQLite knows no larger number"""
_MOST_NAMED = 3
_HISTORY = 20
"""jobs that an estimate looks at"""


class Expected(NamedTuple):
    """Expectations of a job: when it starts and ends [s since 1970], and why it waits."""

    name: str
    phase: str
    start: float | None
    end: float | None
    reason: str


def find_job(connection: sqlite3.Connection, name: str) -> Job | None:
    """Return the job of a whole name."""
    row = connection.execute(f"{_SELECT_JOBS} WHERE name = ?", (name,)).fetchone()
    return None if row is None else job_of(row)


def named_job(connection: sqlite3.Connection, beginning: str) -> Job:
    """Return the job whose name begins like this.

    Raises:
        CstoolError: there is none, or there are several
    """
    check_beginning(beginning)
    span = (beginning, f"{beginning}~")  # which comes after all characters of names
    rows = connection.execute(
        f"{_SELECT_JOBS} WHERE name >= ? AND name < ? ORDER BY number DESC LIMIT {_MOST_NAMED}", span
    ).fetchall()
    if not rows:
        raise CstoolError(
            f"job {beginning}: must be in the queue, there is no such job",
            "cstool job list -a shows all; the oldest that ended are forgotten after some time",
        )
    if len(rows) > 1:
        (count,) = connection.execute("SELECT count(*) FROM jobs WHERE name >= ? AND name < ?", span).fetchone()
        names = ", ".join(job_of(row).name for row in rows)
        more = f" and {count - len(rows):,} more" if count > len(rows) else ""
        raise CstoolError(
            f"job {beginning}: must be the beginning of one name, it is that of {counted(count, 'job')}: {names}{more}"
        )
    return job_of(rows[0])


def select_jobs(
    connection: sqlite3.Connection,
    phases: Collection[str] | None,
    user: str | None,
    labels: Mapping[str, str],
    limit: int | None,
) -> list[Job]:
    """Return jobs that meet all conditions, the newest last."""
    condition, values = _condition(phases, user, labels)
    # From the newest on, until there are enough; by the index of phases SQLite would find, and sort, all of them.
    order = "" if limit is None else "NOT INDEXED"
    rows = connection.execute(
        f"{_SELECT_JOBS} {order} WHERE {condition} ORDER BY number DESC LIMIT ?",
        (*values, -1 if limit is None else min(limit, _MOST_ROWS)),
    ).fetchall()
    return [job_of(row) for row in reversed(rows)]


def select_newest(
    connection: sqlite3.Connection,
    phases: Collection[str],
    user: str | None,
    labels: Mapping[str, str],
    most_ended: int,
) -> tuple[list[Job], int]:
    """Return matching jobs, the newest last, and the number of further ones.

    Args:
        most_ended: largest number of ended jobs; the newest ones
    """
    active = [phase for phase in phases if phase in ACTIVE_PHASES]
    ended = [phase for phase in phases if phase in ENDED_PHASES]
    found = [
        *select_jobs(connection, active, user, labels, None),
        *select_jobs(connection, ended, user, labels, most_ended),
    ]
    condition, values = _condition(ended, user, labels)
    (count,) = connection.execute(f"SELECT count(*) FROM jobs WHERE {condition}", values).fetchone()
    # One that ends meanwhile is in both.
    by_number = {job.number: job for job in found}
    return [by_number[number] for number in sorted(by_number)], max(0, count - most_ended)


def all_names(connection: sqlite3.Connection) -> set[str]:
    """Return the names of all jobs."""
    return {name for (name,) in connection.execute("SELECT name FROM jobs")}


def select_events(connection: sqlite3.Connection, job: str | None, after: int, limit: int | None) -> list[Event]:
    """Return events after a number, of a job or of all, the newest ones up to a limit, the oldest first."""
    rows = connection.execute(
        f"{_SELECT_EVENTS} WHERE number > ? {'' if job is None else 'AND job = ?'} ORDER BY number DESC LIMIT ?",
        (after, *(() if job is None else (job,)), -1 if limit is None else min(limit, _MOST_ROWS)),
    ).fetchall()
    return [event for event in map(event_of, reversed(rows)) if event is not None]


def expectations(connection: sqlite3.Connection) -> list[Expected]:
    """Return the expectations of all jobs that have not ended."""
    rows = connection.execute(
        f"SELECT name, phase, expected_start, expected_end, reason FROM jobs WHERE phase IN ({_marks(ACTIVE_PHASES)})",
        ACTIVE_PHASES,
    )
    return [
        Expected(name, phase, start if is_time(start) else None, end if is_time(end) else None, unbound(reason))
        for name, phase, start, end, reason in rows
    ]


def insert_job(connection: sqlite3.Connection, columns: Mapping[str, Any]) -> None:
    """Add a job; its number is the next one."""
    connection.execute(f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({_marks(columns)})", (*columns.values(),))


def update_job(connection: sqlite3.Connection, name: str, columns: Mapping[str, Any]) -> None:
    """Set columns of a job."""
    if columns:
        settings = ", ".join(f"{column} = ?" for column in columns)
        connection.execute(f"UPDATE jobs SET {settings} WHERE name = ?", (*columns.values(), name))


def insert_event(
    connection: sqlite3.Connection, at_s: float, job: str, kind: str, text: str, data: Mapping[str, Any]
) -> None:
    """Add an event."""
    connection.execute(
        "INSERT INTO events (at, job, kind, text, data) VALUES (?, ?, ?, ?, ?)",
        (at_s, job, kind, bound(brief(text)), json.dumps(dict(data), sort_keys=True)),
    )
    put_setting(connection, _CLOCK, at_s)


def time_after(connection: sqlite3.Connection, now_s: float) -> float:
    """Return the time of an event that happens now: the time of the event before it where the clock went back."""
    before = get_setting(connection, _CLOCK)
    return max(now_s, before) if is_time(before) else now_s


def get_setting(connection: sqlite3.Connection, key: str) -> Any:
    """Return a setting; None where it was never put."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    try:
        return None if row is None else json.loads(row[0])
    except (TypeError, ValueError, RecursionError) as error:
        raise DamagedRow(f"setting {key} makes no sense") from error


def put_setting(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Set a setting."""
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value, sort_keys=True)))


def waiting_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of jobs that wait, by priority, then by number."""
    rows = connection.execute("SELECT name FROM jobs WHERE phase = ? ORDER BY priority, number", (QUEUED,))
    return [name for (name,) in rows]


def position_of(connection: sqlite3.Connection, name: str) -> int | None:
    """Return the position of a job among waiting jobs, from 1."""
    row = connection.execute("SELECT phase, priority, number FROM jobs WHERE name = ?", (name,)).fetchone()
    if row is None or row[0] != QUEUED:
        return None
    (before,) = connection.execute(
        "SELECT count(*) FROM jobs WHERE phase = ? AND (priority, number) < (?, ?)", (QUEUED, *row[1:])
    ).fetchone()
    return int(before) + 1


def step_times_s(connection: sqlite3.Connection, compile_key: str, cores: int) -> list[float]:
    """Return the time of a step [s] of the last jobs that ran straight to their end with this model and cores."""
    rows = connection.execute(
        "SELECT (ended_at - started_at) / max_steps FROM jobs"
        " WHERE compile_key = ? AND phase = ?"
        " AND CASE WHEN json_valid(needs) THEN json_extract(needs, '$.cores') END = ?"
        " AND attempt = 1 AND max_steps > 0 AND ended_at > started_at ORDER BY number DESC LIMIT ?",
        (compile_key, SUCCEEDED, cores, _HISTORY),
    )
    return [time_s for (time_s,) in rows if is_time(time_s)]


def count_by_phase(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of jobs in each phase."""
    rows = connection.execute("SELECT phase, count(*) FROM jobs GROUP BY phase")
    return {**dict.fromkeys(PHASES, 0), **dict(rows)}


def remove_waiting(connection: sqlite3.Connection, name: str) -> None:
    """Remove a job that waits, with its events."""
    gone = connection.execute("DELETE FROM jobs WHERE name = ? AND phase = ?", (name, QUEUED)).rowcount
    if gone:
        connection.execute("DELETE FROM events WHERE job = ?", (name,))


def count_ended(connection: sqlite3.Connection) -> int:
    """Return the number of jobs that have ended."""
    query = f"SELECT count(*) FROM jobs WHERE phase IN ({_marks(ENDED_PHASES)})"
    return int(connection.execute(query, ENDED_PHASES).fetchone()[0])


def count_events(connection: sqlite3.Connection, more_than: int) -> int:
    """Return the number of events; where that is not more than a limit, some number within the limit."""
    span = (
        connection.execute("SELECT (SELECT max(number) FROM events) - (SELECT min(number) FROM events) + 1").fetchone()[
            0
        ]
        or 0
    )
    return span if span <= more_than else int(connection.execute("SELECT count(*) FROM events").fetchone()[0])


def remove_ended(connection: sqlite3.Connection, count: int) -> list[str]:
    """Remove a number of jobs, the first that ended, with their events; return their names."""
    # With the +, SQLite takes the index of ended_at, and sorts nothing.
    rows = connection.execute(
        f"SELECT name FROM jobs WHERE ended_at IS NOT NULL AND +phase IN ({_marks(ENDED_PHASES)})"
        " ORDER BY ended_at, number LIMIT ?",
        (*ENDED_PHASES, count),
    ).fetchall()
    connection.executemany("DELETE FROM events WHERE job = ?", rows)
    connection.executemany("DELETE FROM jobs WHERE name = ?", rows)
    return [name for (name,) in rows]


def remove_events(connection: sqlite3.Connection, count: int) -> None:
    """Remove a number of events, the oldest first; events of jobs that have not ended stay."""
    connection.execute(
        "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE job NOT IN"
        f" (SELECT name FROM jobs WHERE phase IN ({_marks(ACTIVE_PHASES)})) ORDER BY number LIMIT ?)",
        (*ACTIVE_PHASES, count),
    )


def _condition(
    phases: Collection[str] | None, user: str | None, labels: Mapping[str, str]
) -> tuple[str, tuple[Any, ...]]:
    """The condition that jobs meet, and the values in it."""
    conditions, values = ["1"], list[Any]()
    if phases is not None:
        conditions.append(f"phase IN ({_marks(phases)})")
        values += phases
    if user is not None:
        conditions.append("user = ?")
        values.append(bound(user))
    for key, value in labels.items():
        conditions.append(
            "EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(labels) THEN labels ELSE '{}' END) AS each"
            " WHERE each.key = ? AND each.value = ?)"
        )
        values += (key, value)
    return " AND ".join(conditions), (*values,)


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))
