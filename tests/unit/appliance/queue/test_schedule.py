"""Schedules to read: who starts, who waits for what, who is stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cstool.appliance.queue.job import Capacity, Job, Needs
from cstool.appliance.queue.preemption import MOST_TRIES, fewest
from cstool.appliance.queue.schedule import Plan, check_fits, plan
from tests.unit.appliance.queue.queues import refusal
from tests.unit.appliance.queue.schedules import amounts, capacity, needs, running_job, waiting_job

GB = 10**9


def waits(name: str, number: int, wanted: Needs, priority: str = "p2", preempts: bool = False) -> Job:
    return waiting_job(name, priority, number, wanted, preempts)


def runs(name: str, cpus: tuple[int, ...], end: float | None, priority: str = "p2", number: int = 0, **more) -> Job:
    return running_job(name, priority, number, more.pop("wanted", needs(len(cpus))), cpus, end, **more)


def planned(cores: int, running: list[Job], waiting: list[Job]) -> Plan:
    return plan(0.0, capacity(cores), running, waiting)


def test_nothing_to_do() -> None:
    assert plan(5.0, capacity(), [], []) == Plan((), (), {}, {})
    assert plan(5.0, capacity(), [runs("r", (0,), 9.0)], []) == Plan((), (), {}, {})


def test_jobs_start_by_priority_then_as_they_came_on_cores_of_their_own() -> None:
    waiting = [
        waits("c", 3, needs(1, seconds=10), "p3"),
        waits("b", 2, needs(1, seconds=10)),
        waits("a", 1, needs(1, seconds=20)),
        waits("d", 4, needs(1, seconds=5), "p1"),
    ]
    found = plan(100.0, Capacity((3, 7), 0, 0, 0), [], waiting)
    assert found.starts == (("d", (3,)), ("a", (7,)))
    assert found.expected == {"d": (100.0, 105.0), "a": (100.0, 120.0), "b": (105.0, 115.0), "c": (115.0, 125.0)}
    assert found.reasons == {"b": "waits for 1 core", "c": "waits for 1 core"}


def test_a_short_job_fills_the_gap_before_a_large_one_a_long_one_does_not() -> None:
    running = [runs("r", (0,), 30.0)]
    large = waits("large", 1, needs(2, seconds=10))
    found = planned(2, running, [large, waits("long", 2, needs(seconds=31)), waits("short", 3, needs(seconds=30))])
    assert found.starts == (("short", (1,)),)
    assert found.expected == {"large": (30.0, 40.0), "long": (40.0, 71.0), "short": (0.0, 30.0)}
    assert found.reasons == {"large": "waits for 1 core", "long": "behind large"}
    # A limit is as good as an estimate.
    for wanted in (needs(limit_s=20), needs(seconds=99, limit_s=20)):
        assert planned(2, running, [large, waits("b", 2, wanted)]).expected["b"] == (0.0, 20.0)


def test_each_of_four_resources_is_waited_for_in_words() -> None:
    whole = Capacity((0, 1, 2, 3), 8 * GB, 100 * GB, 4)
    running = [runs("r", (0,), None, wanted=needs(1, 6 * GB, 90 * GB, 3))]
    waiting = [
        waits("memory", 1, needs(1, 2 * GB + 500_000_000)),
        waits("most", 2, needs(1, 4 * GB, 12 * GB, 3)),
        waits("all", 3, needs(4, 8 * GB, 100 * GB, 4)),
        waits("behind", 4, needs(1, 1)),
    ]
    assert plan(0.0, whole, running, waiting).reasons == {
        "memory": "waits for 500 MB of memory",
        "most": "waits for 2 GB of memory, 2 GB of disk and 2 systems",
        "all": "waits for 1 core, 6 GB of memory, 90 GB of disk and 3 systems",
        "behind": "behind memory",
    }


def test_behind_names_the_first_who_has_what_is_needed() -> None:
    running = [runs("r", (0, 1), 30.0, wanted=needs(2, systems=4))]
    waiting = [
        waits("systems", 1, needs(1, systems=1, seconds=10)),
        waits("cores", 2, needs(3, seconds=10)),
        waits("long", 3, needs(2, seconds=50)),
    ]
    found = planned(4, running, waiting)
    assert found.expected == {"systems": (30.0, 40.0), "cores": (30.0, 40.0), "long": (40.0, 90.0)}
    assert found.reasons["long"] == "behind systems"
    first_has_cores = [*waiting[1:], waits("other", 4, needs(1, systems=3, seconds=50))]
    assert planned(4, running, first_has_cores).reasons["other"] == "waits for 3 systems"
    # Who has it at the time.
    running = [runs("r", (0,), 40.0), runs("s", (1,), 10.0, wanted=needs(1, systems=4))]
    soon = waits("soon over", 1, needs(1, systems=1, seconds=5))
    found = planned(3, running, [soon, waiting[1], waits("long", 3, needs(1, seconds=45))])
    assert found.expected == {"soon over": (10.0, 15.0), "cores": (40.0, 50.0), "long": (50.0, 95.0)}
    assert found.reasons["long"] == "behind cores"


@pytest.mark.parametrize(
    ("missing", "kept"),
    [
        (needs(1, systems=1), needs(1, memory=1)),
        (needs(1, systems=1), needs(1, disk=1)),
        (needs(1, memory=1), needs(1, systems=1)),
        (needs(1, memory=1), needs(3)),
    ],
)
def test_all_that_a_job_needs_is_kept_while_its_turn_may_come_any_moment(missing: Needs, kept: Needs) -> None:
    both = Needs(*(max(one, other) for one, other in zip(amounts(missing), amounts(kept), strict=True)), 5)
    waiting = [
        waits("a", 1, both),
        waits("takes of it", 2, replace(kept, seconds=5)),
        waits("other", 3, needs(1, seconds=5)),
    ]
    found = plan(0.0, Capacity((0, 1, 2, 3, 4), 1, 1, 1), [runs("unknown", (0,), None, wanted=missing)], waiting)
    assert found.reasons["takes of it"] == "behind a"
    assert [name for name, _ in found.starts] == ["other"]


def test_behind_whose_time_nobody_knows_nothing_is_promised_but_on_what_it_leaves() -> None:
    waiting = [
        waits("unknown", 1, needs(2)),
        waits("needs three", 2, needs(3, seconds=5)),
        waits("short", 3, needs(1, seconds=5)),
        waits("needs one", 4, needs(1, seconds=5), "p3"),
    ]
    found = planned(3, [], waiting)
    assert found.starts == (("unknown", (0, 1)),)
    # When unknown ends the three cores are free: nobody is let in before.
    never = dict.fromkeys(("needs three", "short", "needs one"), (None, None))
    assert found.expected == {"unknown": (0.0, None), **never}
    assert found.reasons["short"] == found.reasons["needs one"] == "behind needs three"
    less = planned(3, [], [waiting[0], waiting[2], waiting[3]])
    assert less.starts == (("unknown", (0, 1)), ("short", (2,)))
    assert less.expected["needs one"] == (5.0, 10.0)


def test_what_has_overrun_ends_soon_and_nobody_slips_in() -> None:
    running = [runs("r", (0,), 90.0)]
    waiting = [waits("large", 1, needs(2, seconds=10)), waits("short", 2, needs(1, seconds=1))]
    found = plan(100.0, capacity(), running, waiting)
    assert found.starts == ()
    assert found.expected == {"large": (101.0, 111.0), "short": (111.0, 112.0)}


def test_a_time_of_nothing_still_takes_its_place() -> None:
    waiting = [waits("a", 1, needs(2, seconds=0)), waits("b", 2, needs(2, seconds=0))]
    found = plan(1.9e9, capacity(), [], waiting)
    assert found.starts == (("a", (0, 1)),)
    assert found.expected["b"] == (1.9e9 + 1, 1.9e9 + 2)


@pytest.mark.parametrize("strange", [float("inf"), float("nan")])
def test_an_estimate_that_is_none_counts_as_unknown(strange: float) -> None:
    found = planned(1, [], [waits("a", 1, needs(1, seconds=strange))])
    assert (found.starts, found.expected) == ((("a", (0,)),), {"a": (0.0, None)})
    assert planned(1, [runs("r", (0,), strange)], [waits("a", 1, needs())]).expected["a"] == (None, None)


def test_what_never_fits_says_so_and_is_in_nobodys_way() -> None:
    found = planned(2, [], [waits("huge", 1, needs(3), "p1"), waits("b", 2, needs(2))])
    assert found.starts == (("b", (0, 1)),)
    assert found.expected["huge"] == (None, None)
    assert found.reasons == {"huge": "the job must fit the appliance: at most 2 cores, got 3 cores"}


def test_a_capacity_that_became_smaller_starts_nothing_until_there_is_room() -> None:
    running = [runs("r", (0, 1, 2), 10.0), runs("s", (5,), 20.0)]
    found = plan(0.0, Capacity((0, 1), 0, 0, 0), running, [waits("a", 1, needs(1, seconds=1))])
    assert (found.expected, found.reasons) == ({"a": (10.0, 11.0)}, {"a": "waits for 1 core"})


def test_preemption_takes_as_few_as_possible() -> None:
    running = [runs(*each) for each in (("two", (0, 1), 99.0, "p3", 1), ("one", (2,), 99.0, "p3", 2))]
    running.append(runs("another", (3,), 99.0, "p3", 3))
    urgent = waits("a", 9, needs(2, seconds=5), "p1", preempts=True)
    found = planned(4, running, [urgent])
    assert (found.preempts, found.starts) == (("two",), ())
    assert (found.expected, found.reasons) == ({"a": (1.0, 6.0)}, {"a": "waits for 2 cores"})
    # Jobs behind it do not count.
    assert planned(4, running, [urgent, waits("behind", 10, needs(4, seconds=5), "p1")]).preempts == ("two",)


OLD, YOUNG = runs("old p3", (0,), 99.0, "p3", 1), runs("young p3", (1,), 99.0, "p3", 2)
P2, P1 = runs("p2", (2,), 99.0, "p2", 3), runs("p1", (3,), 99.0, "p1", 4)


@pytest.mark.parametrize(
    ("cores", "running", "wanted", "priority", "stopped"),
    [
        # Of those of one size the lowest priority goes, then the youngest.
        (3, [OLD, YOUNG, P2], 1, "p1", ["young p3"]),
        (3, [OLD, P2], 2, "p1", ["old p3"]),
        (3, [OLD, YOUNG, P2], 3, "p1", ["young p3", "old p3", "p2"]),
        # Who may not be stopped is not.
        (1, [OLD], 1, "p2", ["old p3"]),
        (1, [replace(P2, cpus=(0,))], 1, "p2", []),
        (1, [replace(P1, cpus=(0,))], 1, "p2", []),
        (1, [replace(OLD, preemptible=False)], 1, "p2", []),
        # Nobody is stopped where that does not suffice or is not needed.
        (2, [OLD, replace(P1, cpus=(1,))], 2, "p1", []),
        (3, [OLD, replace(P1, cpus=(1,))], 1, "p1", []),
        # Those who stop already count.
        (2, [replace(OLD, asked="preempt"), YOUNG], 1, "p1", []),
        (2, [replace(OLD, asked="preempt"), YOUNG], 2, "p1", ["young p3"]),
    ],
)
def test_who_is_stopped(cores: int, running: list[Job], wanted: int, priority: str, stopped: list[str]) -> None:
    assert [*planned(cores, running, [waits("a", 9, needs(wanted), priority, preempts=True)]).preempts] == stopped
    assert planned(cores, running, [waits("a", 9, needs(wanted), priority)]).preempts == ()


def test_what_is_stopped_for_a_job_is_left_to_it() -> None:
    waiting = [waits("x", 9, needs(2, seconds=50), "p1", preempts=True), waits("short", 2, needs(1, seconds=1), "p3")]
    found = planned(2, [replace(OLD, asked="preempt")], waiting)
    assert found.starts == ()  # a core is free, and the short job would end as soon as the other is expected to
    assert found.reasons == {"x": "waits for 1 core", "short": "behind x"}
    assert plan(0.3, capacity(2), [], waiting).starts == (("x", (0, 1)),)


def test_who_is_before_the_one_that_preempts_is_served_first() -> None:
    """Both start, or nobody is stopped: a job that came first is not passed by one that needs as much."""
    waiting = [waits("first", 5, needs(1, seconds=9), "p1"), waits("x", 9, needs(1, seconds=9), "p1", preempts=True)]
    assert planned(2, [OLD, YOUNG], waiting).preempts == ("young p3", "old p3")
    assert planned(1, [OLD], waiting).preempts == ()


def test_one_that_nothing_helps_does_not_keep_the_next_from_being_helped() -> None:
    waiting = [waits(name, n, needs(c, seconds=9), "p1", preempts=True) for name, n, c in (("x", 8, 2), ("y", 9, 1))]
    running = [OLD, runs("b", (1,), 20.0, "p1", 2)]
    assert planned(2, running, waiting).preempts == ("old p3",)  # y is done before x can start


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (needs(3, 8 * GB, 10 * GB, 2), "at most 2 cores, got 3 cores"),
        (needs(1, 9_500_000_000, 10 * GB, 2), "at most 8 GB of memory, got 9.5 GB"),
        (needs(1, 8 * GB + 1, 0, 0), "at most 8,000,000,000 bytes of memory, got 8,000,000,001 bytes"),
        (needs(1, 0, 2 * 10**12, 0), "at most 10 GB of disk, got 2 TB"),
        (needs(1, 0, 0, 3), "at most 2 systems, got 3 systems"),
        (needs(0, 0, 0, 0), "at least 1 core, got 0 cores"),
        (
            needs(-1, 0, -5, 3),
            "at least 1 core, got -1 cores; at least 0 B of disk, got -5 B; at most 2 systems, got 3 systems",
        ),
    ],
)
def test_what_does_not_fit_is_refused(wanted: Needs, message: str) -> None:
    assert refusal(check_fits, wanted, Capacity((0, 4), 8 * GB, 10 * GB, 2)) == (
        f"the job must fit the appliance: {message}\nhint: --lanes, --memory, --disk and --num_csx say what a job takes"
    )


def test_what_just_fits_is_not_refused() -> None:
    check_fits(needs(2, 8 * GB, 10 * GB, 2), Capacity((0, 4), 8 * GB, 10 * GB, 2))
    check_fits(needs(1), Capacity((0,), 0, 0, 0))


def test_a_search_for_the_fewest_ends_and_then_nobody_can_be_spared() -> None:
    """Each of many is asked in vain: only a few together suffice, which nobody could know."""
    asked = 0

    def suffices(chosen: Iterable[int]) -> bool:
        nonlocal asked
        asked += 1
        return {3, 30, 50} <= set(chosen)

    assert fewest((1, 0, 0, 0), [(1, 0, 0, 0)] * 64, suffices) == (3, 30, 50)
    assert asked <= 1 + MOST_TRIES + 7 + 64
    many, least = [(1, each, 64 - each, 0) for each in range(64)], (9, 300, 300, 0)

    def is_enough(chosen: Iterable[int]) -> bool:
        return all(sum(many[each][which] for each in chosen) >= least[which] for which in range(4))

    chosen = fewest(least, many, is_enough)
    assert is_enough(chosen)
    assert not any(is_enough([each for each in chosen if each != spared]) for spared in chosen)
