"""The simulation of tasks, against cases worked out by hand and a twin that steps through time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.plan.timing.events import Simulation, Timeline


def test_a_flow_begins_behind_its_source_and_ends_no_earlier_than_its_last_byte():
    simulation = Simulation()
    slow = simulation.add("slow", 10.0)
    fast = simulation.add("fast", 1.0, along=[(slow, 2.0)])
    slower = simulation.add("slower", 20.0, along=[(slow, 2.0)])
    timeline = simulation.run()
    assert (timeline.span(fast), timeline.span(slower)) == ((2.0, 12.0), (2.0, 22.0))
    # The fast one works for a second and waits for the rest.
    assert simulation.busy_s() == {"slow": 10.0, "fast": 1.0, "slower": 20.0}
    with pytest.raises(ValueError, match=r"^a task of -1 s$"):
        simulation.add("x", -1)
    with pytest.raises(ValueError, match=r"^a flow that arrives 2 s before it leaves$"):
        simulation.add("y", 1, along=[(slow, -2)])


Tasks = list[tuple[int, int, list[tuple[int, int]], list[tuple[int, int]]]]


@st.composite
def tasks(draw: st.DrawFn) -> Tasks:
    """Return (resource, duration, after, along) of some tasks, in whole seconds."""
    found: Tasks = []
    for number in range(draw(st.integers(1, 12))):
        others = st.integers(0, max(0, number - 1))
        edges = st.lists(st.tuples(others, st.integers(0, 3)), max_size=2 if number else 0)
        late = st.lists(st.tuples(others, st.integers(-3, 3)), max_size=2 if number else 0)
        found.append((draw(st.integers(0, 2)), draw(st.integers(0, 5)), draw(late), draw(edges)))
    return found


def simulated(found: Tasks) -> tuple[Simulation, Timeline]:
    simulation = Simulation()
    for resource, duration, after, along in found:
        simulation.add(str(resource), duration, after=after, along=along)
    return simulation, simulation.run()


def stepped(found: Tasks) -> list[tuple[int, int]]:
    """Return when tasks run, second by second: whoever has been ready longest gets a free resource."""
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    ready_at: dict[int, int] = {}
    free = [0, 0, 0]
    for now in range(500):
        moved = True
        while moved:
            moved = False
            for task, (_, _, after, along) in enumerate(found):
                if task in ready_at or any(other not in starts for other, _ in (*after, *along)):
                    continue
                moments = [
                    0,
                    *(max(starts[o], ends[o] + lag) for o, lag in after),
                    *(starts[o] + lag for o, lag in along),
                ]
                if max(moments) <= now:
                    ready_at[task] = max(moments)
                    moved = True
            waiting = sorted((at, task) for task, at in ready_at.items() if task not in starts)
            for _, task in waiting:
                resource, duration, _, along = found[task]
                if free[resource] <= now:
                    starts[task] = now
                    ends[task] = max([now + duration, *(ends[o] + lag for o, lag in along)])
                    free[resource] = ends[task]
                    moved = True
                    break
    return [(starts[task], ends[task]) for task in range(len(found))]


@given(tasks())
def test_it_is_what_stepping_through_time_gives(found):
    _, timeline = simulated(found)
    assert [timeline.span(task) for task in range(len(found))] == stepped(found)


@given(tasks(), st.data())
def test_many_simulations_at_once_are_those_alone_where_resources_serve_in_the_same_order(found, data):
    other = [(resource, data.draw(st.integers(0, 5)), *edges) for resource, _, *edges in found]
    alone = [simulated(each)[1] for each in (found, other)]
    lanes = Simulation()
    for (resource, duration, after, along), (_, second, *_) in zip(found, other, strict=True):
        lanes.add(str(resource), np.array([duration, second], float), after=after, along=along)
    ends = [np.broadcast_to(each, 2).tolist() for each in lanes.ends_of_lanes()]
    assert [first for first, _ in ends] == alone[0].ends
    served = [sorted(range(len(found)), key=lambda task: (each.starts[task], each.ends[task])) for each in alone]
    of = [[[task for task in order if found[task][0] == resource] for resource in range(3)] for order in served]
    if of[0] == of[1]:
        assert [second for _, second in ends] == alone[1].ends


def test_time_is_spent_on_what_all_else_waits_for():
    """The reader is faster than the link behind it, so of its 2 s only the first is waited for."""
    simulation = Simulation()
    read = simulation.add("reader", 2.0)
    send = simulation.add("link", 6.0, along=[(read, 1.0)])
    work = simulation.add("cores", 3.0, after=[(send, -2.0)])
    done = simulation.add("cores", 1.0, along=[(send, 0.5)])
    timeline = simulation.run()
    assert [timeline.span(task) for task in (send, done, work)] == [(1.0, 7.0), (1.5, 7.5), (7.5, 10.5)]
    # The link begins a second behind the reader, then counts until its last byte has come half a second later.
    assert simulation.spent(timeline, work) == {"cores": 3.0, "lag": 1.5, "link": 6.0}
    assert simulation.spent(timeline, work, since=6.5) == {"cores": 3.0, "lag": 0.5, "link": 0.5}
    assert simulation.spent(timeline, read) == {"reader": 2.0}


@given(tasks(), st.integers(0, 10))
def test_what_time_is_spent_on_adds_up_to_it(found, since):
    simulation, timeline = simulated(found)
    busy = simulation.busy_s()
    for task in range(len(found)):
        spent = simulation.spent(timeline, task, since)
        assert sum(spent.values()) == max(0.0, timeline.ends[task] - since)
        assert all(0 < seconds <= busy.get(name, 500.0) for name, seconds in spent.items())
