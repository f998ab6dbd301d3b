"""Jobs and events as rows of the queue's tables, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard

from cstool.appliance.queue.backend import BACKENDS, LOCAL
from cstool.appliance.queue.job import (
    CANCEL,
    CANCEL_NOW,
    COMPILE,
    EXECUTE,
    FAILED,
    PHASES,
    PREEMPT,
    PRIORITIES,
    QUEUED,
    USUAL_PRIORITY,
    Event,
    Job,
    JobOrder,
    Needs,
)
from cstool.appliance.queue.names import check_name, shortened
from cstool.foundation.errors import CstoolError
from cstool.foundation.plain_text import one_line

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


BROKEN = "its row in the queue makes no sense: another program wrote it"
"""reason of a job that cannot be read"""
_LATEST_S = 253_402_300_799
"""the end of the year 9999, behind which there are no dates [s since 1970]"""
_MOST = 2**63


class DamagedRow(ValueError):
    """A setting, written by another program, makes no sense."""


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
    """Return the job of a row, which has `JOB_COLUMNS`; of one that makes no sense a job that has FAILED."""
    try:
        return _job_of(dict(zip(JOB_COLUMNS, row, strict=True)))
    except (*_DAMAGE, CstoolError):
        return _broken(dict(zip(JOB_COLUMNS, row, strict=True)))


def event_of(row: Row) -> Event | None:
    """Return the event of a row, which has `EVENT_COLUMNS`; None where it makes no sense."""
    number, at_s, job, kind, text, data = row
    try:
        if not is_time(at_s) or not isinstance(job, str) or not isinstance(kind, str):
            return None
        return Event(number, at_s, job, kind, unbound(text), {} if data == "{}" else dict(json.loads(data)))
    except _DAMAGE:
        return None


def is_time(value: object) -> TypeGuard[float]:
    """Say whether this is a time by the clock that can be shown [s since 1970]."""
    return isinstance(value, int | float) and 0 <= value <= _LATEST_S


def needs_text(needs: Needs) -> str:
    """Return the column of a job's needs."""
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
    """Return the text that `bound` encoded."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


_ALIKE = 1024
_DAMAGE = (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError)
_INT_OR_NONE = (int, NoneType)
_WHOLE = ("number", "user_id", "max_restarts", "attempt", "restarts", "peak_bytes")
_WHOLE_OR_NONE = ("max_steps", "exit_code")
_TIMES_OR_NONE = ("started_at", "ended_at")
_WORDS = {
    "phase": PHASES,
    "stage": (COMPILE, EXECUTE),
    "priority": PRIORITIES,
    "asked": ("", CANCEL, CANCEL_NOW, PREEMPT),
    "backend": BACKENDS,
}


def _job_of(fields: dict[str, Any]) -> Job:
    check_name(fields["name"])  # it leads to a folder
    for name in ("user", "model", "mode", "params_file", "note", "reason", "digest", "compile_key"):
        fields[name] = unbound(fields[name])
    if fields["backend_id"] and not (fields["backend_id"].isascii() and fields["backend_id"].isdecimal()):
        raise ValueError("the number of a batch job is none")
    for name in ("expected_start", "expected_end"):  # whoever foresees a job says so anew
        fields[name] = fields[name] if is_time(fields[name]) else None
    fields["model_dir"] = _path_of(unbound(fields["model_dir"]))
    fields["needs"] = _needs_of(fields["needs"])
    fields["labels"] = dict(_labels_of(fields["labels"]))
    fields["cpus"] = _cpus_of(fields["cpus"])
    fields["preempts"], fields["preemptible"] = bool(fields["preempts"]), bool(fields["preemptible"])
    if not _has_kinds(fields):
        raise ValueError("a field is of another kind")
    return Job(**fields)


def _broken(fields: Mapping[str, Any]) -> Job:
    """A job in the place of a row that makes no sense, with the fields of the row that a list of jobs shows."""
    since = fields["submitted_at"] if is_time(fields["submitted_at"]) else 0.0
    user_id = fields["user_id"]
    return Job(
        number=fields["number"],
        name=shortened(one_line(_shown(fields["name"]))),
        user=shortened(one_line(_shown(fields["user"]))),
        user_id=user_id if isinstance(user_id, int) else 0,
        digest="",
        backend=LOCAL,
        backend_id="",
        model="",
        mode="",
        params_file="",
        model_dir=Path(),
        compile_key="",
        max_steps=None,
        needs=Needs(0, 0, 0, 0),
        priority=USUAL_PRIORITY,
        preempts=False,
        preemptible=False,
        max_restarts=0,
        labels={},
        note="",
        phase=FAILED,
        stage=EXECUTE,
        reason=BROKEN,
        asked="",
        attempt=0,
        restarts=0,
        cpus=(),
        submitted_at=since,
        started_at=None,
        ended_at=since,
        exit_code=None,
        expected_start=None,
        expected_end=None,
        peak_bytes=0,
    )


def _shown(value: Any) -> str:
    return unbound(value) if isinstance(value, str | bytes) else str(value)


def _has_kinds(fields: Mapping[str, Any]) -> bool:
    """Tell whether all fields have their kinds: SQLite's columns take values of any kind."""
    return (
        all(isinstance(fields[name], int) and fields[name] >= 0 for name in _WHOLE)
        and all(isinstance(fields[name], _INT_OR_NONE) for name in _WHOLE_OR_NONE)
        and is_time(fields["submitted_at"])
        and all(fields[name] is None or is_time(fields[name]) for name in _TIMES_OR_NONE)
        and all(fields[name] in words for name, words in _WORDS.items())
    )


# Many jobs are alike in what follows, and most of the time of a list goes into it.


@lru_cache(_ALIKE)
def _path_of(text: str) -> Path:
    return Path(text)


@lru_cache(_ALIKE)
def _needs_of(text: str) -> Needs:
    needs = Needs(**json.loads(text))
    amounts = (needs.cores, needs.memory_bytes, needs.disk_bytes, needs.systems)
    times = (time_s for time_s in (needs.seconds, needs.limit_s) if time_s is not None)
    if not all(map(_is_count, amounts)) or not all(map(_is_span, times)):
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
    if not isinstance(cpus, list) or not all(map(_is_count, cpus)):
        raise ValueError("a core has no number")
    return tuple(cpus)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _MOST


def _is_span(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _column(name: str, value: Any) -> Any:
    if name == "needs":
        return needs_text(value)
    if name == "cpus":
        return json.dumps(list(value))
    if name == "reason":
        return bound(brief(value))
    return bound(value) if isinstance(value, str) else value
