"""The tables of the queue as SQL; jobs and events as their rows, and back.

`COLUMNS` tells a column once: its type, how it is read, how it is written. SQLite's columns take values of any kind,
and any program may have written them, so each is checked as it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from cstool.appliance.queue.backend import BACKENDS
from cstool.appliance.queue.job import COMPILE, EXECUTE, FAILED, PHASES, PRIORITIES, REQUESTS, Event, Job, Needs
from cstool.appliance.queue.names import check_name, shortened
from cstool.appliance.queue.records import is_count
from cstool.foundation.errors import CstoolError
from cstool.foundation.plain_text import one_line

EVENT_COLUMNS = ("number", "at", "job", "kind", "text", "data")
BROKEN = "its row in the queue makes no sense: another program wrote it"
"""reason of a job that cannot be read"""
_LONGEST = 500
"""characters of a reason, and of an event's text"""
_LATEST_S = 253_402_300_799
"""the end of the year 9999, behind which there are no dates [s since 1970]"""
_ALIKE = 1024
"""number of values that are read once: many jobs are alike, and most of the time of a list goes into them"""
_DAMAGE = (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError, CstoolError)
Row = tuple[Any, ...]


class DamagedRow(ValueError):
    """A setting, written by another program, makes no sense."""


def is_time(value: object) -> TypeGuard[float]:
    """Say whether this is a time by the clock that can be shown [s since 1970]."""
    return isinstance(value, int | float) and 0 <= value <= _LATEST_S


def brief(text: str) -> str:
    """Return a text for people as one line, and no long one."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def bound(text: str) -> str | bytes:
    """Return a text as SQLite takes it: a name of a file that is no UTF-8 as its bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def unbound(value: str | bytes) -> str:
    """Return the text that `bound` encoded."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _checked(rule: Callable[[Any], bool], what: str) -> Callable[[Any], Any]:
    """A reader that takes a value as it is, if it keeps a rule."""

    def read(value: Any) -> Any:
        if not rule(value):
            raise ValueError(f"it is no {what}")
        return value

    return read


def _is_span(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and 0 <= value < math.inf)


@lru_cache(_ALIKE)
def _path_of(value: str | bytes) -> Path:
    return Path(unbound(value))


@lru_cache(_ALIKE)
def _needs_of(text: str) -> Needs:
    needs = Needs(**json.loads(text))
    amounts = (needs.cores, needs.memory_bytes, needs.disk_bytes, needs.systems)
    if not all(map(is_count, amounts)) or not _is_span(needs.seconds) or not _is_span(needs.limit_s):
        raise ValueError("an amount is no number")
    if not all(isinstance(source, str) for source in needs.sources.values()):
        raise ValueError("a source is no text")
    return needs


@lru_cache(_ALIKE)
def _labels_of(text: str) -> tuple[tuple[str, str], ...]:
    labels = json.loads(text)
    if not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("a label is no text")
    return tuple(labels.items())


@lru_cache(_ALIKE)
def _cpus_of(text: str) -> tuple[int, ...]:
    cpus = json.loads(text)
    if not isinstance(cpus, list) or not all(map(is_count, cpus)):
        raise ValueError("a core has no number")
    return tuple(cpus)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _same(value: Any) -> Any:
    return value


class _Column(NamedTuple):
    """A column of the table of jobs.

    Args:
        sql: its type and its constraints
        read: its value -> the field of a job; raises one of `_DAMAGE` for a value that makes no sense
        write: the field of a job -> its value
    """

    sql: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _same


def _words(words: Collection[str], check: str = "") -> _Column:
    """A column with one of some words, which SQLite checks as well under the name of the column."""
    listed = f" CHECK ({check} IN ({', '.join(map(repr, words))}))" if check else ""
    return _Column(f"TEXT NOT NULL{listed}", _checked(lambda value: value in words, "known word"))


_TEXT = _Column("TEXT NOT NULL", unbound, bound)
_COUNT = _Column("INTEGER NOT NULL", _checked(is_count, "count"))
_INT_OR_NONE = _Column("INTEGER", _checked(lambda value: value is None or isinstance(value, int), "number"))
_FLAG = _Column("INTEGER NOT NULL", bool)
_TIME_OR_NONE = _Column("REAL", _checked(lambda value: value is None or is_time(value), "time"))
_EXPECTED = _Column("REAL", lambda value: value if is_time(value) else None)  # whoever foresees a job says so anew
COLUMNS = {
    # Numbers are never used again, also not those of jobs and events that were removed: AUTOINCREMENT.
    "number": _COUNT._replace(sql="INTEGER PRIMARY KEY AUTOINCREMENT"),
    "name": _Column("TEXT NOT NULL UNIQUE", check_name, check_name),  # it leads to a folder
    "user": _TEXT,
    "user_id": _COUNT,
    "digest": _TEXT,
    "backend": _words(BACKENDS),
    "backend_id": _Column(
        "TEXT NOT NULL",
        _checked(lambda value: not value or (value.isascii() and value.isdecimal()), "number of a batch job"),
    ),
    "model": _TEXT,
    "mode": _TEXT,
    "params_file": _TEXT,
    "model_dir": _Column("TEXT NOT NULL", _path_of, lambda value: bound(str(value))),
    "compile_key": _TEXT,
    "max_steps": _INT_OR_NONE,
    "needs": _Column("TEXT NOT NULL", _needs_of, lambda value: _json(asdict(value))),
    "priority": _words(PRIORITIES, "priority"),
    "preempts": _FLAG,
    "preemptible": _FLAG,
    "max_restarts": _COUNT,
    "labels": _Column("TEXT NOT NULL", lambda value: dict(_labels_of(value)), lambda value: _json(dict(value))),
    "note": _TEXT,
    "phase": _words(PHASES, "phase"),
    "stage": _words((COMPILE, EXECUTE), "stage"),
    "reason": _TEXT._replace(write=lambda value: bound(brief(value))),
    "asked": _words(REQUESTS, "asked"),
    "attempt": _COUNT,
    "restarts": _COUNT,
    "cpus": _Column("TEXT NOT NULL", _cpus_of, _json),
    "submitted_at": _Column("REAL NOT NULL", _checked(is_time, "time")),
    "started_at": _TIME_OR_NONE,
    "ended_at": _TIME_OR_NONE,
    "exit_code": _INT_OR_NONE,
    "expected_start": _EXPECTED,
    "expected_end": _EXPECTED,
    "peak_bytes": _COUNT,
}
"""the columns of a job, by the names of its fields"""
TABLES = (
    f"CREATE TABLE jobs ({', '.join(f'{name} {column.sql}' for name, column in COLUMNS.items())})",
    "CREATE INDEX jobs_phase ON jobs (phase, priority, number)",
    "CREATE INDEX jobs_ended ON jobs (ended_at, number) WHERE ended_at IS NOT NULL",
    "CREATE INDEX jobs_alike ON jobs (compile_key, phase, number)",
    "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, job TEXT NOT NULL,"
    " kind TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL)",
    "CREATE INDEX events_job ON events (job, number)",
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
"""statements that make a queue"""
_READS = tuple((name, column.read) for name, column in COLUMNS.items())


def row_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of fields of a job."""
    return {name: COLUMNS[name].write(value) for name, value in fields.items()}


def job_of(row: Row) -> Job:
    """Return the job of a row, which has `COLUMNS`; of one that makes no sense a job that has FAILED."""
    try:
        return Job(**{name: read(value) for (name, read), value in zip(_READS, row, strict=True)})
    except _DAMAGE:
        return _broken(dict(zip(COLUMNS, row, strict=True)))


def jobs_of(rows: Iterable[Row]) -> list[Job]:
    """Return the jobs of rows, in their order."""
    return [job_of(row) for row in rows]


def event_of(row: Row) -> Event | None:
    """Return the event of a row, which has `EVENT_COLUMNS`; None where it makes no sense."""
    number, at_s, job, kind, text, data = row
    try:
        if not is_time(at_s) or not isinstance(job, str) or not isinstance(kind, str):
            return None
        return Event(number, at_s, job, kind, unbound(text), {} if data == "{}" else dict(json.loads(data)))
    except _DAMAGE:
        return None


def _broken(fields: Mapping[str, Any]) -> Job:
    """A job in the place of a row that makes no sense, with the fields of the row that a list of jobs shows."""

    def shown(value: Any) -> str:
        return shortened(one_line(unbound(value) if isinstance(value, str | bytes) else str(value)))

    since = fields["submitted_at"] if is_time(fields["submitted_at"]) else 0.0
    return Job(
        number=fields["number"],
        name=shown(fields["name"]),
        user=shown(fields["user"]),
        user_id=fields["user_id"] if isinstance(fields["user_id"], int) else 0,
        preemptible=False,
        phase=FAILED,
        reason=BROKEN,
        submitted_at=since,
        ended_at=since,
    )
