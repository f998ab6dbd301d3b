"""Jobs as people read them: a list in the vendor's columns, the details of one job, its events; and as documents."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from cstool.foundation.progress.screen import is_terminal
from cstool.foundation.terminal.render import print_facts, print_table
from cstool.foundation.words import bytes_text, counted, span_text

if TYPE_CHECKING:
    from cstool.appliance.queue.job import Event, Job
    from cstool.appliance.verbs.jobs import ListedJob, ShownJob

_LEFT_OUT = ("SYSTEMS", "USER", "LABELS", "PRIORITY", "AGE", "DURATION", "POSITION")
"""columns of a list, in the order in which they go where a terminal is too narrow"""
_OF_WAITING = ("POSITION", "STARTS")
_RIGHT = ("AGE", "DURATION", "SYSTEMS", "POSITION")


def print_jobs(listed: Sequence[ListedJob], now: float) -> None:
    """Print a list of jobs: the columns of `csctl job list`, and place and expected start of waiting jobs.

    Where a terminal is too narrow for a row, whole columns are left out, so that a job stays a line.

    Args:
        listed: one job at least
        now: [s since 1970]
    """
    rows = [_row(each.job, each.position, now) for each in listed]
    any_waits = any(each.position is not None for each in listed)
    columns = [name for name in rows[0] if any_waits or name not in _OF_WAITING]
    if is_terminal(sys.stdout):
        for name in _LEFT_OUT:
            widths = [max(len(name), *(len(row[name]) for row in rows), 0) for name in columns]
            if sum(widths) + 2 * (len(columns) - 1) > get_terminal_size().columns:
                columns.remove(name)
    right = [name for name in _RIGHT if name in columns]
    print_table(columns, [[row[name] for name in columns] for row in rows], right)


def print_job(shown: ShownJob, now: float) -> None:
    """Print all about a job.

    Args:
        now: [s since 1970]
    """
    print_facts(_facts(shown, now))
    print()
    print_facts(_needs(shown.job))
    print()
    rows = [
        (each.phase, moment(each.begin), "" if each.end is None else span_text(each.end - each.begin))
        for each in shown.stays
    ]
    print_table(("PHASE", "SINCE", "DURATION"), rows, ("DURATION",))


def print_events(events: Sequence[Event], *, of_all: bool) -> None:
    """Print events, the oldest first; of all jobs with their names."""
    columns = ("TIME", *(("JOB",) if of_all else ()), "EVENT", "WHAT")
    print_table(
        columns,
        [(moment(event.at), *((event.job,) if of_all else ()), event.kind, event.text) for event in events],
    )


def job_document(job: Job, position: int | None) -> dict[str, Any]:
    """A job ready for JSON: times in seconds since 1970, sizes in bytes."""
    return {**_plain(job), "position": position}


def event_document(event: Event) -> dict[str, Any]:
    """An event ready for JSON."""
    return asdict(event)


def vendors_document(job: Job, position: int | None) -> dict[str, Any]:
    """A job laid out as by the vendor's `csctl get job NAME -oyaml`: meta, spec, status."""
    plain = job_document(job, position)
    meta = {"createTime": _iso(job.submitted_at), "labels": dict(job.labels), "name": job.name, "type": "job"}
    status = {
        "phase": job.phase,
        "systems": job.needs.systems,
        "startTime": None if job.started_at is None else _iso(job.started_at),
        "endTime": None if job.ended_at is None else _iso(job.ended_at),
        **_some(plain, "stage reason position attempt restarts cpus exit_code peak_bytes expected_start expected_end"),
    }
    spec = {
        "user": {"uid": str(job.user_id), "name": job.user},
        "priority": job.priority,
        **_some(plain, "model mode params_file model_dir max_steps needs preempts preemptible max_restarts note"),
        **_some(plain, "backend backend_id"),
    }
    return {"meta": meta, "spec": spec, "status": status}


def moment(at: float) -> str:
    """A time of the clock, as it is here.

    Args:
        at: [s since 1970]
    """
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _plain(job: Job) -> dict[str, Any]:
    plain = asdict(job)
    for key in ("params_file", "model_dir"):
        plain[key] = str(plain[key])
    plain["cpus"] = list(job.cpus)
    return plain


def _some(plain: Mapping[str, Any], keys: str) -> dict[str, Any]:
    return {key: plain[key] for key in keys.split() if plain[key] not in (None, "")}


def _row(job: Job, position: int | None, now: float) -> dict[str, str]:
    return {
        "NAME": job.name,
        "PRIORITY": job.priority,
        "AGE": span_text(now - job.submitted_at),
        "DURATION": _duration(job, now),
        "PHASE": job.phase,
        "SYSTEMS": str(job.needs.systems),
        "USER": job.user,
        "LABELS": labels_text(job),
        "POSITION": "" if position is None else str(position),
        "STARTS": _starts(job, now),
    }


def _starts(job: Job, now: float) -> str:
    if job.phase != "QUEUED":
        return ""
    return "never" if job.never_starts else _in_time(job.expected_start, now)


def _duration(job: Job, now: float) -> str:
    if job.started_at is None:
        return ""
    return span_text((now if job.ended_at is None else job.ended_at) - job.started_at)


def _in_time(at: float | None, now: float) -> str:
    if at is None:
        return "unknown"
    return "soon" if at - now < 1 else f"in {span_text(at - now)}"


def labels_text(job: Job) -> str:
    """The labels of a job, as they are typed."""
    return ", ".join(f"{key}={value}" for key, value in job.labels.items())


def _facts(shown: ShownJob, now: float) -> dict[str, str]:
    job, logs = shown.job, shown.logs
    place = "" if shown.position is None else f", position {shown.position}"
    facts = {
        "Name": job.name,
        "Phase": f"{job.phase}{place}",
        "Reason": job.reason,
        "Asked": {"": "", "preempt": "to save and make room", "cancel": "to save and end"}.get(job.asked, "to end"),
        "User": job.user,
        "Priority": job.priority + (", preempts lower ones" if job.preempts else ""),
        "Labels": labels_text(job),
        "Note": job.note,
        "Model": f"{job.model}, {job.mode}" + ("" if job.max_steps is None else f", up to step {job.max_steps:,}"),
        "Params": str(job.params_file),
        "Folder": str(job.model_dir),
        "Submitted": _ago(job.submitted_at, now),
        "Expected": _expected(job, now),
        "Started": _ago(job.started_at, now),
        "Ended": _ago(job.ended_at, now),
        "Duration": _duration(job, now),
        "Exit code": str(job.exit_code) if job.has_ended and job.exit_code is not None else "",
        "Restarts": f"{job.restarts} of {job.max_restarts}" if job.max_restarts or job.restarts else "",
        "Back end": f"{job.backend} {job.backend_id}".strip(),
        "Log": logs.get("out", ""),
        "Errors": logs.get("err", ""),
        "Compiler": logs.get("compile", ""),
    }
    return {name: text for name, text in facts.items() if text}


def _needs(job: Job) -> dict[str, str]:
    needs = job.needs

    def of(field: str, text: str) -> str:
        source = needs.sources.get(field)
        return text if source is None else f"{text} ({source})"

    on = "" if not job.cpus else f", {'on' if not job.has_ended else 'was on'} {', '.join(map(str, job.cpus))}"
    seen = f"; {bytes_text(job.peak_bytes)} seen" if job.peak_bytes else ""
    limit = "" if needs.limit_s is None else f"; at most {span_text(needs.limit_s)}"
    return {
        "Cores": of("cores", str(needs.cores)) + on,
        "Memory": of("memory_bytes", bytes_text(needs.memory_bytes)) + seen,
        "Disk": of("disk_bytes", bytes_text(needs.disk_bytes)),
        "Systems": of("systems", counted(needs.systems, "CSX system")),
        "Time": ("unknown" if needs.seconds is None else of("seconds", span_text(needs.seconds))) + limit,
    }


def _expected(job: Job, now: float) -> str:
    if job.has_ended:
        return ""
    start = f"starts {_in_time(job.expected_start, now)}" if job.phase == "QUEUED" and job.expected_start else ""
    end = "" if job.expected_end is None else f"ends at {moment(job.expected_end)}"
    return ", ".join(filter(None, (start, end)))


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else f"{moment(at)} ({span_text(now - at)} ago)"
