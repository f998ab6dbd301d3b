"""A slow twin of the schedule, second by second, and jobs to try both with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from cstool.appliance.queue.job import CANCEL, PREEMPT, PRIORITIES, RUNNING, Capacity, Job, Needs
from cstool.appliance.queue.schedule import Plan

HORIZON = 150
"""seconds after which nothing changes; longer than all jobs of `situations` one after the other"""

Situation = tuple[Capacity, list[Job], list[Job]]


def needs(
    cores: int = 1, memory: int = 0, disk: int = 0, systems: int = 0, seconds: float | None = None, **others: float
) -> Needs:
    return Needs(cores, memory, disk, systems, seconds, **others)


def capacity(cores: int = 2, memory: int = 100, disk: int = 100, systems: int = 4) -> Capacity:
    return Capacity(tuple(range(cores)), memory, disk, systems)


def amounts(of: Needs) -> tuple[int, int, int, int]:
    return of.cores, of.memory_bytes, of.disk_bytes, of.systems


def all_of(of: Capacity) -> tuple[int, int, int, int]:
    return len(of.cpus), of.memory_bytes, of.disk_bytes, of.systems


def is_enough(free: Sequence[int], wanted: Sequence[int]) -> bool:
    return all(have >= want for have, want in zip(free, wanted, strict=True))


def waiting_job(name: str, priority: str, number: int, wanted: Needs, preempts: bool = False) -> Job:
    return Job(number, name, priority=priority, needs=wanted, preempts=preempts)


def running_job(
    name: str, priority: str, number: int, wanted: Needs, cpus: tuple[int, ...], end: float | None = None, **more: Any
) -> Job:
    return Job(number, name, priority=priority, needs=wanted, cpus=cpus, expected_end=end, phase=RUNNING, **more)


def order(job: Job) -> tuple[str, int]:
    return job.priority, job.number


@st.composite
def situations(draw: st.DrawFn, known: bool = False, most: int = 6, preempts: bool = True) -> Situation:
    """Whole seconds, from 0 on; a few jobs that run and some that wait.

    Args:
        known: whether it is known how long each takes, and none is late or stopping
        most: jobs that wait
        preempts: whether jobs may have others stopped
    """
    whole = Capacity(tuple(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4))), *draw(_AMOUNTS))
    numbers = iter(draw(st.permutations(range(20))))
    free, cpus = list(all_of(whole)), sorted(whole.cpus)
    running: list[Job] = []
    for number in range(draw(st.integers(0, 4))):
        wanted = draw(_needs(whole, known))
        if not is_enough(free, amounts(wanted)):
            continue
        free = [have - take for have, take in zip(free, amounts(wanted), strict=True)]
        mine, cpus = tuple(cpus[: wanted.cores]), cpus[wanted.cores :]
        end = draw(st.integers(1, 10)) if known else draw(st.none() | st.integers(-3, 10))
        stops = not known and draw(st.integers(0, 3)) == 0
        more = {"preemptible": draw(st.booleans()), "asked": CANCEL if stops else ""}
        job = running_job(f"r{number}", draw(_PRIORITY), next(numbers), wanted, mine, end, **more)
        running.append(job)
    waiting = [
        waiting_job(
            f"w{number}", draw(_PRIORITY), next(numbers), draw(_needs(whole, known)), preempts and draw(st.booleans())
        )
        for number in range(draw(st.integers(0, most)))
    ]
    return whole, running, waiting


_AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))
_PRIORITY = st.sampled_from(PRIORITIES)


@st.composite
def _needs(draw: st.DrawFn, whole: Capacity, known: bool) -> Needs:
    more = 1 if draw(st.integers(0, 9)) == 0 else 0
    most = [have + more for have in all_of(whole)]
    seconds = st.integers(1, 10)
    return Needs(
        draw(st.integers(1, most[0])),
        *(draw(st.integers(0, each)) for each in most[1:]),
        draw(seconds if known else st.none() | seconds),
        draw(st.none() | seconds),
    )


def duration(of: Needs) -> int:
    """Seconds; HORIZON is for ever."""
    return min([HORIZON, *(each for each in (of.seconds, of.limit_s) if each is not None)])


def twin_places(whole: Capacity, running: Sequence[Job], queue: Sequence[Job]) -> list[int]:
    """When each of the jobs starts, second by second from 0 on; HORIZON is never."""
    late = [list(all_of(whole)) for _ in range(HORIZON)]
    early = [list(all_of(whole)) for _ in range(HORIZON)]
    for job in running:
        for second in range(HORIZON):
            is_late = job.expected_end is not None and job.expected_end <= 0
            about_to_end = is_late or job.is_stopping
            if second < (1 if about_to_end else HORIZON if job.expected_end is None else job.expected_end):
                _subtract(late[second], amounts(job.needs))
                if not about_to_end and job.expected_end is not None:
                    _subtract(early[second], amounts(job.needs))
    begins = []
    for job in queue:
        wanted, seconds = amounts(job.needs), duration(job.needs)
        at_best, begin = _first(early, wanted, seconds), _first(late, wanted, seconds)
        for second in range(at_best, begin):
            _subtract(late[second], [min(max(0, have), want) for have, want in zip(late[second], wanted, strict=True)])
        for second in range(begin, min(HORIZON, begin + seconds)):
            _subtract(late[second], wanted)
        if seconds < HORIZON:
            for second in range(at_best, min(HORIZON, at_best + seconds)):
                _subtract(early[second], wanted)
        begins.append(begin)
    return begins


def _first(free: Sequence[Sequence[int]], wanted: Sequence[int], seconds: int) -> int:
    for begin in range(HORIZON):
        if all(is_enough(free[second], wanted) for second in range(begin, min(HORIZON, begin + seconds))):
            return begin
    return HORIZON


def _subtract(free: list[int], wanted: Sequence[int]) -> None:
    for which, want in enumerate(wanted):
        free[which] -= want


def twin_plan(whole: Capacity, running: Sequence[Job], waiting: Sequence[Job]) -> tuple[Plan, list[str]]:
    """What is planned at 0, without reasons; and the order of those that fit."""
    queue = sorted((job for job in waiting if is_enough(all_of(whole), amounts(job.needs))), key=order)
    begins = twin_places(whole, running, queue)
    stopped = _twin_stopped(whole, running, queue, begins)
    if stopped:
        stopping = [replace(job, asked=PREEMPT) if job.name in stopped else job for job in running]
        begins = twin_places(whole, stopping, queue)
    starts, cpus = [], sorted(set(whole.cpus) - {cpu for job in running for cpu in job.cpus})
    expected: dict[str, tuple[float | None, float | None]] = {job.name: (None, None) for job in waiting}
    for job, begin in zip(queue, begins, strict=True):
        end = begin + duration(job.needs)
        expected[job.name] = (begin if begin < HORIZON else None, end if end < HORIZON else None)
        if begin == 0:
            starts.append((job.name, tuple(cpus[: job.needs.cores])))
            cpus = cpus[job.needs.cores :]
    return Plan(tuple(starts), stopped, expected, {}), [job.name for job in queue]


def _twin_stopped(
    whole: Capacity, running: Sequence[Job], queue: Sequence[Job], begins: Sequence[int]
) -> tuple[str, ...]:
    asking = [number for number, job in enumerate(queue) if job.preempts and begins[number] > 0]
    stays = [job for job in running if not job.is_stopping]
    for number in asking[:4]:
        for chosen in _choices([job for job in stays if job.preemptible and job.priority > queue[number].priority]):
            left = [job for job in stays if job not in chosen]
            if twin_places(whole, left, queue[: number + 1])[-1] == 0:
                if chosen:
                    return tuple(job.name for job in chosen)
                break
    return ()


def _choices(victims: Sequence[Job]) -> Iterator[list[Job]]:
    """All sets: fewer first, then those whose most important is less important, then their second most, ..."""
    ranked = sorted(victims, key=lambda job: (job.priority, job.number), reverse=True)
    for size in range(len(ranked) + 1):
        for numbers in sorted(combinations(range(len(ranked)), size), key=lambda each: each[::-1]):
            yield [ranked[number] for number in numbers]
