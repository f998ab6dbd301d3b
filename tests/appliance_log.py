"""What the event log of an appliance must be like, checked by itself: nothing of cstool is imported here.

Checked are:

- clocks and numbers never go back;
- each job is submitted once, ends once, and nothing happens to it after that but labels;
- its attempts count up and follow each other: none begins while another is under way, none ends that did not begin;
- what executing jobs hold never exceeds the capacity, no core is held twice, no job holds what it did not ask for;
- when a job starts, none that comes before it by (priority, number), is ready, and needs no more is left waiting;
- no more compiles at a time than allowed; nothing starts while drained; a shared compile was done before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

Amounts = tuple[int, ...]
KINDS = ("cores", "memory_bytes", "disk_bytes", "systems")
ENDS = ("succeeded", "failed", "cancelled")
BACK = ("preempted", "crashed", "restarts")
"""an attempt is over, the job is not"""

NEW, COMPILES_NEXT, COMPILING = "new", "waits to compile", "compiling"
READY, EXECUTING, ENDED = "ready", "executing", "ended"


@dataclass
class _Job:
    name: str
    number: int
    """counts submissions; 0 for a job that was not submitted"""
    state: str = NEW
    priority: str = ""
    needs: Amounts | None = None
    seconds: float = inf
    attempts: dict[str, int] = field(default_factory=lambda: {"compile": 0, "execute": 0})
    ready_since: float = 0.0
    asked: str = ""
    held: Amounts = (0, 0, 0, 0)
    cpus: tuple[int, ...] = ()
    compiled: bool = False

    @property
    def order(self) -> tuple[str, int]:
        return self.priority, self.number


class _Checker:
    def __init__(self, capacity: Mapping[str, Any], backfills: bool, fresh_s: float) -> None:
        self.cpus = set(capacity["cpus"])
        self.capacity: Amounts = (len(self.cpus), *(capacity[kind] for kind in KINDS[1:]))
        self.compiles: int | None = capacity.get("compiles")
        self.backfills, self.fresh_s = backfills, fresh_s
        self.jobs: dict[str, _Job] = {}
        self.faults: list[str] = []
        self.drained_at: float | None = None
        self.event: Mapping[str, Any] = {}

    def fault(self, text: str) -> None:
        about = f"{self.event['job']}: " if self.event["job"] else ""
        self.faults.append(f"event {self.event['number']}: {about}{text}")

    def read(self, events: Sequence[Mapping[str, Any]]) -> None:
        last: tuple[int, float] = (0, -inf)
        for self.event in events:
            number, at = self.event["number"], self.event["at"]
            if number <= last[0]:
                self.fault(f"comes after event {last[0]}")
            if at < last[1]:
                self.fault(f"the clock goes back by {last[1] - at:g} s")
            last = number, at
            if self.event["job"]:
                self.about_job(self.event["kind"], self.event["data"])
            else:
                self.about_appliance(self.event["kind"])

    def about_appliance(self, kind: str) -> None:
        if kind == "drained":
            self.drained_at = self.event["at"]
        elif kind == "undrained":
            self.drained_at = None
        elif kind not in ("supervisor_started", "supervisor_stopped"):
            self.fault(f"is {kind}, of no job")

    def about_job(self, kind: str, data: Mapping[str, Any]) -> None:
        name = self.event["job"]
        if kind == "submitted":
            self.submitted(name, data)
            return
        job = self.jobs.get(name)
        if job is None:
            self.fault(f"is {kind}, but was not submitted")
            job = self.jobs[name] = _Job(name, 0)
        if job.state == ENDED and kind != "labelled":
            self.fault(f"is {kind}, but has ended")
            return
        if kind == "started":
            self.started(job, data)
        elif kind == "compile_started":
            self.compile_started(job, data)
        elif kind in ("compiled", "compile_shared"):
            self.compiled(job, kind, data)
        elif kind == "stop_asked":
            self.expect(job, kind, COMPILING, EXECUTING)
            job.asked = data.get("asked", "")
        elif kind in BACK:
            self.comes_back(job, kind, data)
        elif kind in ENDS:
            self.ends(job, kind, data)
        elif kind != "labelled":
            self.fault(f"is {kind}, which is no kind of event")

    def submitted(self, name: str, data: Mapping[str, Any]) -> None:
        if name in self.jobs:
            self.fault("is submitted again")
            return
        job = self.jobs[name] = _Job(name, len(self.jobs) + 1, ready_since=self.event["at"])
        job.state = COMPILES_NEXT if data.get("stage") == "compile" else READY
        try:
            job.priority, job.needs = data["priority"], tuple(data[kind] for kind in KINDS)
        except KeyError as missing:
            self.fault(f"does not say its {missing.args[0]}")
        job.seconds = min([inf, *(data[key] for key in ("seconds", "limit_s") if data.get(key) is not None)])

    def expect(self, job: _Job, kind: str, *states: str) -> None:
        if job.state not in states:
            self.fault(f"is {kind}, but was {job.state}")

    def attempt(self, job: _Job, stage: str, data: Mapping[str, Any]) -> None:
        number = data.get("attempt")
        if not isinstance(number, int) or number <= job.attempts[stage]:
            self.fault(f"begins attempt {number} to {stage} after attempt {job.attempts[stage]}")
        else:
            job.attempts[stage] = number
        job.asked = ""
        if self.drained_at is not None and self.event["at"] > self.drained_at + self.fresh_s:
            self.fault(f"begins to {stage} while the appliance is drained")

    def compile_started(self, job: _Job, data: Mapping[str, Any]) -> None:
        self.expect(job, "compile_started", COMPILES_NEXT)
        self.attempt(job, "compile", data)
        job.state = COMPILING
        count = sum(each.state == COMPILING for each in self.jobs.values())
        if self.compiles is not None and count > self.compiles:
            self.fault(f"{count} compiles at a time, {self.compiles} may be")

    def compiled(self, job: _Job, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "compiled":
            self.expect(job, kind, COMPILING)
            self.over(job, "compile", data)
            job.compiled = True
        else:
            self.expect(job, kind, COMPILES_NEXT)
            by = self.jobs.get(data.get("by", ""))
            if by is not None and not by.compiled:
                self.fault(f"takes what {by.name} compiled, which it did not")
        job.state, job.ready_since = READY, self.event["at"]

    def started(self, job: _Job, data: Mapping[str, Any]) -> None:
        self.expect(job, "started", READY)
        self.attempt(job, "execute", data)
        self.check_order(job)
        job.state = EXECUTING
        job.cpus = tuple(data.get("cpus", ()))
        job.held = (len(job.cpus), *(data.get(kind, 0) for kind in KINDS[1:]))
        if len(set(job.cpus)) < len(job.cpus):
            self.fault(f"gets a core twice: {job.cpus}")
        if not set(job.cpus) <= self.cpus:
            self.fault(f"gets cores {job.cpus}, which are not all of the appliance")
        if job.needs is not None and job.held != job.needs:
            self.fault(f"gets {_told(job.held)}, but asked for {_told(job.needs)}")
        executing = [each for each in self.jobs.values() if each.state == EXECUTING]
        for other in executing:
            if other is not job and (both := sorted(set(other.cpus) & set(job.cpus))):
                self.fault(f"gets cores {both}, which {other.name} has")
        total = _sum(each.held for each in executing)
        if not _fits(total, self.capacity):
            self.fault(f"with it jobs hold {_told(total)}, there is {_told(self.capacity)}")

    def check_order(self, job: _Job) -> None:
        """No job that comes before, and needs no more, is left waiting."""
        if job.needs is None:
            return
        waiting = (each for each in self.jobs.values() if each.state == READY and each.order < job.order and each.needs)
        before = sorted(waiting, key=lambda each: each.order)
        held = _sum(each.held for each in self.jobs.values() if each.state == EXECUTING)
        free = [have - taken for have, taken in zip(self.capacity, held, strict=True)]
        for place, other in enumerate(before):
            if not _fits(other.needs or (), job.needs) or other.ready_since > self.event["at"] - self.fresh_s:
                continue
            # A job that needs no more could have started as well, unless it would have delayed somebody before it.
            delays = other.seconds > job.seconds and any(not _fits(each.needs or (), free) for each in before[:place])
            if not (self.backfills and delays):
                self.fault(f"starts ({job.priority}) before {other.name} ({other.priority}), which needs no more")

    def over(self, job: _Job, stage: str, data: Mapping[str, Any]) -> None:
        told = data.get("stage", stage), data.get("attempt", job.attempts[stage])
        if told != (stage, job.attempts[stage]):
            begun = f"attempt {job.attempts[stage]} to {stage} was begun"
            self.fault(f"attempt {told[1]} to {told[0]} is over, but {begun}")

    def comes_back(self, job: _Job, kind: str, data: Mapping[str, Any]) -> None:
        self.expect(job, kind, COMPILING, EXECUTING)
        if kind == "preempted" and job.asked != "preempt":
            self.fault("is preempted, but was not asked to stop for another job")
        compiles = job.state == COMPILING
        self.over(job, "compile" if compiles else "execute", data)
        job.state, job.ready_since = COMPILES_NEXT if compiles else READY, self.event["at"]

    def ends(self, job: _Job, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "succeeded":
            self.expect(job, kind, EXECUTING)
        elif data.get("attempt"):  # one that waits may be cancelled too, but then no attempt is over
            self.expect(job, kind, COMPILING, EXECUTING)
        if job.state in (COMPILING, EXECUTING):
            self.over(job, "compile" if job.state == COMPILING else "execute", data)
        job.state = ENDED


def faults(
    events: Sequence[Mapping[str, Any]],
    capacity: Mapping[str, Any],
    *,
    backfills: bool = False,
    fresh_s: float = 0.0,
    all_end: bool = True,
) -> list[str]:
    """Return all that is wrong with a log, each with the number of the event that shows it.

    Args:
        events: whole, the oldest first, each as `cstool job events --all --json` has it
        capacity: cpus, memory_bytes, disk_bytes, systems, and compiles if these are to be counted
        backfills: whether a job may start before one that needs no more for one reason: it is known to end sooner than
            that one would, and somebody before both waits for more than is free, whom that one would delay
        fresh_s: how long a job may have been ready before it counts as left waiting, and how long after the appliance
            was drained something may begin: a supervisor decides by what it read a moment ago [s]
        all_end: whether all jobs must have ended
    """
    checker = _Checker(capacity, backfills, fresh_s)
    checker.read(events)
    if all_end:
        left = [job for job in checker.jobs.values() if job.state != ENDED]
        checker.faults += [f"{job.name}: never ends, is {job.state}" for job in left]
    return checker.faults


def _sum(each: Iterable[Amounts]) -> Amounts:
    return tuple(map(sum, zip((0, 0, 0, 0), *each, strict=True)))


def _fits(amounts: Sequence[int], free: Sequence[int]) -> bool:
    return all(want <= have for want, have in zip(amounts, free, strict=True))


def _told(amounts: Amounts) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in zip(KINDS, amounts, strict=True))
