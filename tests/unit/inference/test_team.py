"""Threads that share work: every member does its share once, whoever fails, and nobody is left at work."""

import threading

import numpy as np
import pytest

from cstool.inference import team as team_module
from cstool.inference.team import BY_CREW, WORTH_SHARING, Team
from cstool.training.kernels.bfloat16 import narrowed
from cstool.training.kernels.rowwise import NEAR_TOKENS, linear_by_turns


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("spins", [0, 1000])
def test_every_member_works_once_each_time(size, spins, monkeypatch):
    monkeypatch.setattr(team_module, "SPINS", spins)
    team = Team(size)
    seen: list[tuple[int, int]] = []
    for _ in range(20):
        team.run(lambda member, members: seen.append((member, members)), WORTH_SHARING)
        assert sorted(seen) == [(member, size) for member in range(size)]
        seen.clear()
    team.close()


def test_little_work_stays_with_the_caller():
    threads = []
    team = Team(3)
    team.run(lambda member, members: threads.append((threading.get_ident(), member, members)), WORTH_SHARING - 1)
    team.close()
    assert threads == [(threading.get_ident(), 0, 1)]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_the_callers_once_all_are_done(failing):
    done, gone = [], threading.Event()

    def work(member: int, _members: int) -> None:
        if member == failing:
            gone.set()
            raise ValueError(f"member {member}")
        assert gone.wait(10)
        done.append(member)

    team = Team(2)
    with pytest.raises(ValueError, match=f"member {failing}"):
        team.run(work, WORTH_SHARING)
    assert done == [1 - failing]
    # The team goes on.
    team.run(lambda member, members: done.append(10 + member), WORTH_SHARING)
    assert sorted(done[1:]) == [10, 11]
    team.close()


def test_threads_end_when_the_team_is_closed():
    before = set(threading.enumerate())
    team = Team(3)
    ours = set(threading.enumerate()) - before
    team.close()
    for thread in ours:
        thread.join(10)
    assert [thread.is_alive() for thread in ours] == [False, False]


@pytest.mark.parametrize("rows", [1, 7, 8, 1000])
@pytest.mark.parametrize(("tokens", "narrow"), [(3, False), (3, True), (NEAR_TOKENS + 1, True)])
def test_a_product_by_turns_has_the_bits_of_the_whole(rows, tokens, narrow):
    rng = np.random.default_rng(rows)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((tokens, 300), (rows, 300)))
    weight = narrowed(weight) if narrow else weight
    bias = rng.standard_normal(rows).astype(np.float32)
    whole, turns = (np.full((tokens, rows), np.nan, np.float32) for _ in range(2))
    linear_by_turns(x, weight, bias, whole, np.zeros(1, np.int64), 0)
    taken, team = np.zeros(1, np.int64), Team(3)
    team.run(lambda member, members: linear_by_turns(x, weight, bias, turns, taken, 0), WORTH_SHARING)
    team.close()
    np.testing.assert_array_equal(turns, whole)


def test_a_crew_shares_smaller_ops():
    team, pair = Team(1), Team(2)
    assert [pair.shares(n) for n in (WORTH_SHARING - 1, WORTH_SHARING)] == [False, True]
    assert [pair.shares(n // BY_CREW, by_crew=True) for n in (WORTH_SHARING - 1, WORTH_SHARING)] == [False, True]
    assert not team.shares(WORTH_SHARING, by_crew=True)
    pair.close()
