"""A day of an appliance, event by event: jobs come, end sooner or later than expected, and are stopped for others."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from cstool.appliance.queue.job import PRIORITIES, Capacity, Job, Needs
from cstool.appliance.queue.schedule import plan
from tests.appliance_log import faults
from tests.unit.appliance.queue.schedules import order, running_job, waiting_job


@dataclass
class Day:
    """What happens, with an own account of everything that must hold.

    Args:
        chance: decides
        exact: whether estimates are right, and known
        preempts: whether jobs may have others stopped
    """

    chance: random.Random
    exact: bool
    preempts: bool
    whole: Capacity = Capacity((0, 1, 2, 5), 16, 8, 4)
    now: float = 1_000_000.0
    waiting: dict[str, Job] = field(default_factory=dict)
    running: dict[str, Job] = field(default_factory=dict)
    left_s: dict[str, float] = field(default_factory=dict)
    """what a job still has to do"""
    ends: dict[str, float] = field(default_factory=dict)
    """when what runs will really end or have stopped"""
    began: dict[str, float] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    stops: int = 0
    backfills: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def comes(self, number: int) -> None:
        seconds = self.chance.choice((1, 5, 20, 100)) * self.chance.random() + 0.1
        guess = seconds if self.exact else self.chance.choice((None, seconds / 3, seconds, seconds * 3))
        cores = self.chance.choice((1, 1, 2, 4))
        wanted = Needs(cores, self.chance.randint(0, 8), self.chance.randint(0, 4), self.chance.randint(0, 4), guess)
        name = f"job {number}"
        urgent = self.preempts and self.chance.random() < 0.4
        self.waiting[name] = waiting_job(name, self.chance.choice(PRIORITIES), number, wanted, urgent)
        self.left_s[name] = seconds
        self.tell(name, "submitted", stage="execute", priority=self.waiting[name].priority, **asdict(wanted))

    def tell(self, name: str, kind: str, **data: Any) -> None:
        event = {"number": len(self.events) + 1, "at": self.now, "job": name, "kind": kind, "text": kind, "data": data}
        self.events.append(event)

    def plans(self) -> None:
        """Do what is planned, until nothing more is."""
        while True:
            before = sorted(self.waiting.values(), key=order)
            found = plan(self.now, self.whole, list(self.running.values()), list(self.waiting.values()))
            assert set(found.reasons) == set(self.waiting) - {name for name, _ in found.starts}
            for name, cpus in found.starts:
                self.starts(name, cpus)
            for name in found.preempts:
                self.stop(name, before)
            started = {name for name, _ in found.starts}
            for number, job in enumerate(before):
                if job.name in started:
                    self.backfills += sum(other.name in self.waiting for other in before[:number])
            assert self.running or not self.waiting
            if not found.starts and not found.preempts:
                return

    def starts(self, name: str, cpus: tuple[int, ...]) -> None:
        job = self.waiting.pop(name)
        end = None if job.needs.seconds is None else self.now + job.needs.seconds
        may_stop = self.chance.random() < 0.8
        self.running[name] = running_job(name, job.priority, job.number, job.needs, cpus, end, preemptible=may_stop)
        self.ends[name], self.began[name] = self.now + self.left_s[name], self.now
        self.attempts[name] = self.attempts.get(name, 0) + 1
        self.tell(name, "started", **{**asdict(job.needs), "attempt": self.attempts[name], "cpus": list(cpus)})

    def stop(self, name: str, waiting: list[Job]) -> None:
        job = self.running[name]
        assert job.preemptible
        assert not job.is_stopping
        assert any(each.preempts and each.priority < job.priority for each in waiting)
        self.running[name] = replace(job, asked="preempt")
        self.ends[name] = min(self.ends[name], self.now + self.chance.random() * 3)
        self.stops += 1
        self.tell(name, "stop_asked", asked="preempt")

    def goes_on(self, arrival: float) -> None:
        """Let time pass until something ends, or somebody comes."""
        self.now = max(self.now, min([arrival, *self.ends.values()]))
        for name in [name for name, end in self.ends.items() if end <= self.now]:
            job = self.running.pop(name)
            spent = self.now - self.began[name]
            del self.ends[name]
            if spent >= self.left_s[name] * (1 - 1e-6):
                self.done.append(name)
                self.tell(name, "succeeded")
                continue
            assert job.is_stopping
            self.left_s[name] -= spent
            self.tell(name, "preempted")
            self.waiting[name] = waiting_job(name, job.priority, job.number, job.needs, self.chance.random() < 0.1)


@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.lab) for seed in range(2, 5))])
def test_a_day(seed: int, exact: bool, preempts: bool) -> None:
    day = Day(random.Random(f"{seed} {exact} {preempts}"), exact, preempts)
    arrivals = sorted(day.now + day.chance.random() * 600 for _ in range(60))
    for number, arrival in enumerate([*arrivals, float("inf")]):
        while day.now < arrival and (day.running or arrival < float("inf")):
            day.goes_on(arrival)
            if day.now == arrival:
                day.comes(number)
            day.plans()
    assert sorted(day.done) == sorted(f"job {number}" for number in range(60))
    assert not day.waiting
    assert day.backfills > 0
    assert (day.stops > 0) == preempts
    assert faults(day.events, asdict(day.whole), backfills=True) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_job_starts_when_those_have_stopped_that_were_stopped_for_it(seed: int) -> None:
    """Whatever comes behind it meanwhile; here nobody is before it."""
    chance = random.Random(seed)
    day = Day(chance, exact=False, preempts=False)
    for number in range(30):
        day.comes(number)
        day.plans()
    for name, job in day.running.items():
        day.running[name] = replace(job, priority="p3", preemptible=True)
    day.waiting = {name: replace(job, priority="p3") for name, job in day.waiting.items()}
    day.waiting["urgent"] = waiting_job(
        "urgent", "p1", 99, Needs(4, 16, 8, 4, chance.choice((None, 7.0))), preempts=True
    )
    day.left_s["urgent"] = 7.0
    day.plans()
    assert all(job.is_stopping for job in day.running.values())
    assert day.stops == len(day.running)
    for number in range(100, 110):
        if "urgent" in day.running:
            break
        day.comes(number)
        day.waiting[f"job {number}"] = replace(day.waiting[f"job {number}"], priority="p2")
        before = set(day.running)
        day.goes_on(day.now + 0.5)
        day.plans()
        assert set(day.running) <= before | {"urgent"}
    assert set(day.running) == {"urgent"}
