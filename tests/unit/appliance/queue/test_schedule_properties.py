"""What holds for every schedule; a slow twin finds the same."""

import random
from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from cstool.appliance.queue.schedule import plan
from tests.examples import examples
from tests.unit.appliance.queue.schedules import (
    all_of,
    amounts,
    duration,
    is_enough,
    order,
    running_job,
    situations,
    twin_plan,
)


@examples(150)
@given(situations(), st.randoms(use_true_random=False))
def test_the_twin_plans_the_same_whatever_the_order_of_lists(situation, chance: random.Random) -> None:
    found, (twin, _) = plan(0, *situation), twin_plan(*situation)
    assert (found.starts, found.preempts, found.expected) == (twin.starts, twin.preempts, twin.expected)
    whole, running, waiting = situation
    chance.shuffle(running)
    chance.shuffle(waiting)
    assert plan(0, whole, running, waiting) == found


@examples(150)
@given(situations())
def test_never_more_than_there_is_and_no_core_twice_and_who_does_not_start_is_told_why(situation) -> None:
    whole, running, waiting = situation
    by_name = {job.name: job for job in waiting}
    found = plan(0, *situation)
    holds = [amounts(each.needs) for each in (*running, *(by_name[name] for name, _ in found.starts))]
    assert is_enough(all_of(whole), [sum(each) for each in zip(*holds, strict=True)] or [0] * 4)
    cpus = [cpu for job in running for cpu in job.cpus] + [cpu for _, mine in found.starts for cpu in mine]
    assert len(set(cpus)) == len(cpus)
    assert set(cpus) <= set(whole.cpus)
    assert all(len(mine) == by_name[name].needs.cores for name, mine in found.starts)
    assert set(found.reasons) == set(by_name) - {name for name, _ in found.starts}
    places = {job.name: place for place, job in enumerate(sorted(waiting, key=order))}
    for name, reason in found.reasons.items():
        assert reason.startswith(("waits for ", "behind ", "the job must fit the appliance: at most "))
        if reason.startswith("behind "):
            before = reason.removeprefix("behind ")
            assert before in found.reasons
            assert places[before] < places[name]


@examples(150)
@given(situations(), st.integers(1, 2_000_000_000))
def test_only_times_from_now_on_matter(situation, now: int) -> None:
    whole, running, waiting = situation
    later = lambda time: None if time is None else time + now  # noqa: E731
    late = [replace(job, expected_end=later(job.expected_end)) for job in running]
    found, then = plan(0, *situation), plan(now, whole, late, waiting)
    assert (then.starts, then.preempts, then.reasons) == (found.starts, found.preempts, found.reasons)
    assert then.expected == {name: tuple(map(later, times)) for name, times in found.expected.items()}


@examples(150)
@given(situations(most=8))
def test_who_comes_first_and_needs_no_more_is_not_left_behind(situation) -> None:
    found = plan(0, *situation)
    jobs = sorted((job for job in situation[2] if is_enough(all_of(situation[0]), amounts(job.needs))), key=order)
    begins = {name: inf if begin is None else begin for name, (begin, _) in found.expected.items()}
    for number, one in enumerate(jobs):
        for other in jobs[number + 1 :]:
            if is_enough(amounts(other.needs), amounts(one.needs)) and duration(one.needs) <= duration(other.needs):
                assert begins[one.name] <= begins[other.name]


@examples(150)
@given(situations(preempts=False, most=8))
def test_those_behind_change_nothing_for_those_before(situation) -> None:
    whole, running, waiting = situation
    queue = sorted(waiting, key=order)
    found = plan(0, *situation)
    for count in range(len(queue)):
        before = plan(0, whole, running, queue[:count])
        assert before.expected.items() <= found.expected.items()
        assert before.starts == found.starts[: len(before.starts)]


@examples(150)
@given(situations())
def test_the_first_starts_where_nothing_runs(situation) -> None:
    whole, _, waiting = situation
    found, (_, queue) = plan(0, whole, [], waiting), twin_plan(whole, [], waiting)
    assert [name for name, _ in found.starts[:1]] == queue[:1]


@examples(150)
@given(situations(known=True, preempts=False))
def test_where_times_are_exact_everybody_starts_as_promised(situation) -> None:
    """Also where jobs join behind everybody else: they may only fill gaps."""
    whole, running, waiting = situation
    joins = {4: [replace(job, name=f"late {job.name}", priority="p4") for job in waiting[:3]]}
    promised = dict(plan(0, *situation).expected)
    started: dict[str, float] = {}
    for now in range(100):
        waiting = waiting + joins.get(now, [])
        running = [job for job in running if job.expected_end is not None and job.expected_end > now]
        found = plan(now, whole, running, waiting)
        assert {name: found.expected[name] for name in promised if name in found.expected} == {
            name: times for name, times in promised.items() if name not in started
        }
        for name, cpus in found.starts:
            job = next(job for job in waiting if job.name == name)
            started[name] = now
            waiting = [each for each in waiting if each is not job]
            end = now + duration(job.needs)
            running = [*running, running_job(job.name, job.priority, job.number, job.needs, cpus, end)]
    assert all(started.get(name) == begin for name, (begin, _) in promised.items())
    assert not [job for job in waiting if is_enough(all_of(whole), amounts(job.needs))]


@examples(150)
@given(situations())
def test_only_lower_priorities_are_stopped_for_somebody_who_starts_then(situation) -> None:
    whole, running, waiting = situation
    found = plan(0, *situation)
    stopped = [job for job in running if job.name in found.preempts]
    assert len(stopped) == len(found.preempts)
    if stopped:
        assert all(job.preemptible and not job.is_stopping for job in stopped)
        left = [job for job in running if job not in stopped and not job.is_stopping]
        before = {name for name, _ in plan(0, whole, [job for job in running if not job.is_stopping], waiting).starts}
        then = {name for name, _ in plan(0, whole, left, waiting).starts}
        gains = [job for job in waiting if job.name in then - before and job.preempts]
        assert any(all(job.priority < other.priority for other in stopped) for job in gains)
        # What they leave goes to nobody behind: asked again before they ended, nobody else is let in.
        asked = [replace(job, asked="preempt") if job in stopped else job for job in running]
        again = plan(0, whole, asked, waiting)
        assert again.starts == found.starts
