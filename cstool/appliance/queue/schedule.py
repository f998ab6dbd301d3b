"""Schedule of the jobs: starts of now, their cores, stops in favour of others, and expected starts of the rest.

Jobs are served by (priority, number). Each in turn gets the earliest place for its whole time, among running jobs and
the places of jobs before it; it starts if that is now. This is conservative backfill: a short job fills a gap, and no
job before it starts later for that (Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime
estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001).

Some ends are in doubt: of jobs with an unknown run time, of jobs that were asked to stop, of jobs that have overrun
their time. Two profiles account for them. In the late one unknown times last for ever, and jobs that are about to end
do so in `SOON_S`: places are found there, so promises hold. In the early one ends that are in doubt come at once. From
the time when a job could start by the early profile, until it does by the late one, its needs are kept for it as far
as they are free. So no job slips in before a job whose turn may come any moment; and amounts that other jobs give up
for a job are left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from cstool.appliance.queue.job import NEVER_FITS, PREEMPT, Capacity, Job, Needs
from cstool.appliance.queue.preemption import fewest
from cstool.appliance.queue.profile import Amounts, Profile, fits, minus, plus
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import bytes_text, counted

SOON_S = 1.0
"""expected time until the end of a job that is about to end; and the least run time of a job [s]"""
MOST_PREEMPTING = 4
"""number of waiting jobs, the first ones, that others may be stopped for; this is checked often"""


_KINDS = ("core", "memory", "disk", "system")


@dataclass(frozen=True)
class Plan:
    """The result of `plan`.

    Args:
        starts: (name, cores that it is pinned to) of each job that starts now, first things first
        preempts: names of running jobs to stop
        expected: name of each waiting job -> when it starts, when it ends [s]; None: unknown
        reasons: name of each waiting job that does not start now -> why not, in a line
    """

    starts: tuple[tuple[str, tuple[int, ...]], ...]
    preempts: tuple[str, ...]
    expected: Mapping[str, tuple[float | None, float | None]]
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class _Place:
    """When a job is expected to execute; unknown times are `math.inf`.

    Args:
        job: that waits
        at_best: when it could start, if all ends that are in doubt came at once
        begin, end: when it starts and ends, for all we know
        blocked: when one of its needs is not free, were it to start now, and the index of that need
    """

    job: Job
    at_best: float
    begin: float
    end: float
    blocked: tuple[float, int] | None


def plan(now: float, capacity: Capacity, running: Sequence[Job], waiting: Sequence[Job]) -> Plan:
    """Plan the starts and stops of now.

    The order of the lists does not matter. Amounts that jobs give up for a job are its own once they are free; until
    then the job keeps its turn. Where a job before it could use them as well, enough jobs stop for both, or none.

    Args:
        now: by any clock that `Job.expected_end` is of [s]
        capacity: of the appliance
        running: all jobs that hold a part of it, each until its expected end, as far as that is known
        waiting: all jobs that could start, if there is room
    """
    unfit = {job.name: text for job in waiting if (text := _misfit(job.needs, capacity)) is not None}
    queue = sorted((job for job in waiting if job.name not in unfit), key=lambda job: (job.priority, job.number))
    places = _places(now, capacity, running, queue)
    stopped = _to_stop(now, capacity, running, places)
    if stopped:
        running = [replace(job, asked=PREEMPT) if job.name in stopped else job for job in running]
        places = _places(now, capacity, running, queue)
    starts = [place.job for place in places if place.begin == now]
    expected = {place.job.name: (_known(place.begin), _known(place.end)) for place in places}
    return Plan(
        starts=tuple(_pinned(capacity, running, starts)),
        preempts=stopped,
        expected={**expected, **dict.fromkeys(unfit, (None, None))},
        reasons={**_reasons(capacity, running, places), **unfit},
    )


def check_fits(needs: Needs, capacity: Capacity) -> None:
    """Refuse needs that an appliance of that capacity could never serve.

    Raises:
        CstoolError: with all amounts that are too large or too small
    """
    text = _misfit(needs, capacity)
    if text is not None:
        raise CstoolError(text, "--lanes, --memory, --disk and --num_csx say what a job takes")


def _misfit(needs: Needs, capacity: Capacity) -> str | None:
    wrong = []
    for which, (got, low, high) in enumerate(zip(_amounts(needs), (1, 0, 0, 0), _amounts_of(capacity), strict=True)):
        if not low <= got <= high:
            bound, rule = (low, "at least") if got < low else (high, "at most")
            text, got_text = _text(which, bound), _text(which, got)
            if text == got_text:  # in three digits
                text, got_text = f"{bound:,} bytes of {_KINDS[which]}", f"{got:,} bytes"
            wrong.append(f"{rule} {text}, got {got_text.partition(' of ')[0]}")
    return f"{NEVER_FITS}: {'; '.join(wrong)}" if wrong else None


def _places(now: float, capacity: Capacity, running: Iterable[Job], queue: Iterable[Job]) -> list[_Place]:
    """Find places for jobs, in order."""
    late, early = Profile(now, _amounts_of(capacity)), Profile(now, _amounts_of(capacity))
    for holding in running:
        held = _held(holding, capacity)
        end, is_in_doubt = _end(holding, now)
        late.take(held, now, end)
        early.take(held, now, now if is_in_doubt else end)
    places = []
    for job in queue:
        amounts, seconds = _amounts(job.needs), _seconds(job.needs)
        at_best, begin, blocked = early.place(amounts, seconds), late.place(amounts, seconds), None
        if begin > now:
            blocked = late.lack(amounts, seconds)
        late.keep(amounts, at_best, begin)
        late.take(amounts, begin, begin + seconds)
        early.take(amounts, at_best, at_best + (seconds if isfinite(seconds) else 0.0))
        places.append(_Place(job, at_best, begin, begin + seconds, blocked))
    return places


def _to_stop(now: float, capacity: Capacity, running: Sequence[Job], places: Sequence[_Place]) -> tuple[str, ...]:
    """Name the jobs to stop for the first job that may have others stopped, and would start then."""
    stays = [job for job in running if not job.is_stopping]
    free = _free(capacity, stays)
    asking = [number for number, place in enumerate(places) if place.job.preempts and place.begin > now]
    for number in asking[:MOST_PREEMPTING]:
        job, queue = places[number].job, [place.job for place in places[: number + 1]]
        victims = [other for other in stays if other.preemptible and other.priority > job.priority]
        victims.sort(key=lambda other: (other.priority, other.number), reverse=True)
        gains = [_held(other, capacity) for other in victims]
        lacking = minus(_amounts(job.needs), free)
        if not victims or not fits(lacking, _sum(gains)):
            continue

        def starts(chosen: Iterable[int], queue: list[Job] = queue, victims: list[Job] = victims) -> bool:
            gone = {victims[each].name for each in chosen}
            return _places(now, capacity, (each for each in stays if each.name not in gone), queue)[-1].begin == now

        if not starts(()):
            chosen = fewest(lacking, gains, starts)
            if chosen:
                return tuple(victims[each].name for each in chosen)
    return ()


def _pinned(capacity: Capacity, running: Iterable[Job], starts: Iterable[Job]) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Give the jobs that start cores of their own, the cores with small numbers first."""
    free = sorted({*capacity.cpus} - {cpu for job in running for cpu in job.cpus})
    for job in starts:
        cpus, free = free[: job.needs.cores], free[job.needs.cores :]
        yield job.name, tuple(cpus)


def _reasons(capacity: Capacity, running: Iterable[Job], places: Sequence[_Place]) -> dict[str, str]:
    """Give the reason why each job does not start now: the amount that is not free, or the job whose turn it is."""
    free, waits = _free(capacity, running), list[_Place]()
    reasons = {}
    for place in places:
        amounts = _amounts(place.job.needs)
        if place.blocked is None:
            free = minus(free, amounts)
            continue
        what = [_text(which, count) for which, count in enumerate(minus(amounts, free)) if count > 0]
        reasons[place.job.name] = f"waits for {_and(what)}" if what else f"behind {_holder(*place.blocked, waits)}"
        waits.append(place)
    return reasons


def _holder(time: float, which: int, waits: Iterable[_Place]) -> str:
    """Name the first job for which an amount is kept at a time."""
    return next(
        place.job.name for place in waits if place.at_best <= time < place.end and _amounts(place.job.needs)[which] > 0
    )


def _free(capacity: Capacity, running: Iterable[Job]) -> Amounts:
    return minus(_amounts_of(capacity), _sum(_held(job, capacity) for job in running))


def _held(job: Job, capacity: Capacity) -> Amounts:
    """Return the part of the capacity that a job holds; the capacity may have changed since it got its cores."""
    of_others = len({*job.cpus} - {*capacity.cpus})
    return (max(len(job.cpus), job.needs.cores) - of_others, *_amounts(job.needs)[1:])


def _end(job: Job, now: float) -> tuple[float, bool]:
    """Return when a job ends, for all we know, and whether that is in doubt: it may as well end at any moment."""
    end = inf if job.expected_end is None or not isfinite(job.expected_end) else job.expected_end
    if job.is_stopping or end <= now:
        return now + SOON_S, True
    return end, end == inf


def _seconds(needs: Needs) -> float:
    """Return the longest run time of a job, as far as is known [s]."""
    known = [each for each in (needs.seconds, needs.limit_s) if each is not None and isfinite(each)]
    return max(SOON_S, min(known)) if known else inf


def _known(time: float) -> float | None:
    return time if isfinite(time) else None


def _amounts(needs: Needs) -> Amounts:
    return needs.cores, needs.memory_bytes, needs.disk_bytes, needs.systems


def _amounts_of(capacity: Capacity) -> Amounts:
    return len({*capacity.cpus}), capacity.memory_bytes, capacity.disk_bytes, capacity.systems


def _sum(each: Iterable[Amounts]) -> Amounts:
    total = (0, 0, 0, 0)
    for amounts in each:
        total = plus(total, amounts)
    return total


def _text(which: int, count: int) -> str:
    """Return an amount in words."""
    if which in (1, 2):
        return f"{bytes_text(count)} of {_KINDS[which]}"
    return counted(count, _KINDS[which])


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
