"""Jobs and events as rows of the queue's tables, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import Any

from cstool.errors import CstoolError
from cstool.jobs.job import COMPILE, EXECUTE, QUEUED, Event, Job, JobOrder, Needs
from cstool.jobs.names import check_name
from cstool.plain_text import one_line

JOB_COLUMNS = (
    *("number", "name", "user", "user_id", "digest", "backend", "backend_id", "model", "mode", "params_file"),
    *("model_dir", "compile_key", "max_steps", "needs", "priority", "preempts", "preemptible", "max_restarts"),
    *("labels", "note", "phase", "stage", "reason", "asked", "attempt", "restarts", "cpus", "submitted_at"),
    *("started_at", "ended_at", "exit_code", "expected_start", "expected_end", "peak_bytes"),
)
EVENT_COLUMNS = ("number", "at", "job", "kind", "text", "data")
_LONGEST = 500
"""characters of a reason, and of an event's text"""
Row = tuple[Any, ...]


class DamagedRow(ValueError):
    """Somebody else wrote a row: what it says makes no job, or no event."""


def new_row(
    name: str, order: JobOrder, digest: str, backend: str, user: str, user_id: int, now_s: float
) -> dict[str, Any]:
    """Return the columns of a job that was just submitted, without its number."""
    return {
        "name": check_name(name),
        "user": bound(user),
        "user_id": user_id,
        "digest": digest,
        "backend": backend,
        "backend_id": "",
        "model": bound(order.model),
        "mode": bound(order.mode),
        "params_file": bound(order.params_file),
        "model_dir": bound(str(order.model_dir)),
        "compile_key": order.compile_key,
        "max_steps": order.max_steps,
        "needs": needs_text(order.needs),
        "priority": order.priority,
        "preempts": order.preempts,
        "preemptible": order.preemptible,
        "max_restarts": order.max_restarts,
        "labels": json.dumps(dict(order.labels), sort_keys=True),
        "note": bound(order.note),
        "phase": QUEUED,
        "stage": COMPILE if order.compile_words else EXECUTE,
        "reason": "",
        "asked": "",
        "attempt": 0,
        "restarts": 0,
        "cpus": "[]",
        "submitted_at": now_s,
        "peak_bytes": 0,
    }


def changed_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of fields of a job that change."""
    return {name: _column(name, value) for name, value in fields.items()}


def job_of(row: Row) -> Job:
    """Return the job of a row, which has `JOB_COLUMNS`.

    Raises:
        DamagedRow: it is none
    """
    try:
        return _job_of(dict(zip(JOB_COLUMNS, row, strict=True)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, CstoolError) as error:
        raise DamagedRow(f"job number {row[0]} makes no sense") from error


def event_of(row: Row) -> Event:
    """Return the event of a row, which has `EVENT_COLUMNS`.

    Raises:
        DamagedRow: it is none
    """
    number, at_s, job, kind, text, data = row
    try:
        return Event(number, at_s, job, kind, unbound(text), {} if data == "{}" else dict(json.loads(data)))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise DamagedRow(f"event number {number} makes no sense") from error


def needs_text(needs: Needs) -> str:
    """Return the column of what a job needs."""
    return json.dumps({**asdict(needs), "sources": dict(needs.sources)}, sort_keys=True)


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
    """Return the text of what `bound` returned."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


_ALIKE = 1024
_INT_OR_NONE, _FLOAT_OR_NONE, _REAL_OR_NONE = (int, NoneType), (float, NoneType), (int, float, NoneType)
_WHOLE = ("number", "user_id", "max_restarts", "attempt", "restarts", "peak_bytes")
_WHOLE_OR_NONE = ("max_steps", "exit_code")
_TIMES_OR_NONE = ("started_at", "ended_at", "expected_start", "expected_end")


def _job_of(fields: dict[str, Any]) -> Job:
    check_name(fields["name"])  # it leads to a folder
    for name in ("user", "model", "mode", "params_file", "note", "reason", "backend_id"):
        fields[name] = unbound(fields[name])
    fields["model_dir"] = _path_of(unbound(fields["model_dir"]))
    fields["needs"] = _needs_of(fields["needs"])
    fields["labels"] = dict(_labels_of(fields["labels"]))
    fields["cpus"] = _cpus_of(fields["cpus"])
    fields["preempts"], fields["preemptible"] = bool(fields["preempts"]), bool(fields["preemptible"])
    if not _has_kinds(fields):
        raise ValueError("a field is of another kind")
    return Job(**fields)


def _has_kinds(fields: Mapping[str, Any]) -> bool:
    """Tell whether fields are what they look like: SQLite's columns take what they are given."""
    return (
        all(isinstance(fields[name], int) for name in _WHOLE)
        and all(isinstance(fields[name], _INT_OR_NONE) for name in _WHOLE_OR_NONE)
        and isinstance(fields["submitted_at"], float)
        and all(isinstance(fields[name], _FLOAT_OR_NONE) for name in _TIMES_OR_NONE)
    )


# Many jobs are alike in what follows, and most of the time of a list goes into it.


@lru_cache(_ALIKE)
def _path_of(text: str) -> Path:
    return Path(text)


@lru_cache(_ALIKE)
def _needs_of(text: str) -> Needs:
    needs = Needs(**json.loads(text))
    amounts = (needs.cores, needs.memory_bytes, needs.disk_bytes, needs.systems)
    if not all(isinstance(amount, int) for amount in amounts):
        raise ValueError("an amount is no number")
    if not all(isinstance(time_s, _REAL_OR_NONE) for time_s in (needs.seconds, needs.limit_s)):
        raise ValueError("a time is no number")
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
    if not isinstance(cpus, list) or not all(isinstance(cpu, int) for cpu in cpus):
        raise ValueError("a core has no number")
    return tuple(cpus)


def _column(name: str, value: Any) -> Any:
    if name == "needs":
        return needs_text(value)
    if name == "cpus":
        return json.dumps(list(value))
    if name == "reason":
        return bound(brief(value))
    return bound(value) if isinstance(value, str) else value
