"""The room for gradients on their way: a limit, and no wait for what never comes."""

import pytest

from cstool.training.machine.memoryx.gradients import Room
from tests.patience import PATIENCE_S, in_thread


@pytest.mark.parametrize(
    ("taken", "more", "returned"), [((6, 4), 5, (4, 6)), ((11,), 1, (11,))], ids=["full", "larger than all of it"]
)
def test_whoever_comes_when_it_is_full_waits_until_enough_was_given_back(taken, more, returned):
    room = Room(10)
    for size_bytes in taken:
        room.take(size_bytes)
    came = in_thread(lambda: room.take(more))
    for size_bytes in returned:
        assert not came.done()
        room.give_back(size_bytes)
    came.result(PATIENCE_S)


def test_without_a_limit_nobody_waits():
    room = Room(None)
    for _ in range(3):
        room.take(2**60)


@pytest.mark.parametrize("limit_bytes", [10, None])
def test_what_went_wrong_elsewhere_is_raised_to_whoever_waits_or_comes(limit_bytes):
    room = Room(limit_bytes)
    room.take(10)
    waiting = in_thread(lambda: room.take(1)) if limit_bytes else None
    error = ValueError("disk full")
    with pytest.raises(ValueError, match=r"^disk full$"), room.closed_by_errors():
        raise error
    assert waiting is None or waiting.exception(PATIENCE_S) is error
    with pytest.raises(ValueError, match=r"^disk full$"):
        room.take(1)
