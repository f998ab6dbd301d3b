"""Threads that share a range: every part is done once, whoever fails, and nobody is left at work."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.inference.team import WORTH_SHARING, Team


@given(st.integers(1, 4), st.integers(0, 40), st.integers(1, 9))
def test_parts_cover_the_range_once_and_are_cut_at_units(size: int, count: int, unit: int) -> None:
    parts: list[tuple[int, int, int]] = []
    team = Team(size)
    team.share(lambda start, stop, member: parts.append((start, stop, member)), count, WORTH_SHARING, unit)
    team.close()
    covered = [i for start, stop, _ in sorted(parts) for i in range(start, stop)]
    assert covered == list(range(count))
    assert all(start % unit == 0 or start == count for start, _, _ in parts)
    members = [member for _, _, member in parts]
    assert len(set(members)) == len(members) <= size


def test_little_work_stays_with_the_caller() -> None:
    threads = []
    team = Team(3)
    team.share(lambda start, stop, member: threads.append(threading.get_ident()), 30, WORTH_SHARING - 1)
    team.close()
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_the_callers_once_all_are_done(failing: int) -> None:
    done = []

    def part(start: int, stop: int, member: int) -> None:
        if member == failing:
            raise ValueError(f"{start} to {stop}")
        time.sleep(0.02)
        done.append(member)

    team = Team(2)
    with pytest.raises(ValueError, match=("0 to 5", "5 to 10")[failing]):
        team.share(part, 10, WORTH_SHARING)
    assert done == [1 - failing]
    # The team goes on.
    team.share(lambda start, stop, member: done.append(stop), 10, WORTH_SHARING)
    assert sorted(done[1:]) == [5, 10]
    team.close()
