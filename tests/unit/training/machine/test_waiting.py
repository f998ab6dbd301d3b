"""The room for gradients on their way: a limit, and no wait for what never comes."""

import threading

import pytest

from cstool.training.machine.memoryx.gradients import Room

PATIENCE_S = 30.0


def taker(room: Room, size_bytes: int) -> tuple[threading.Thread, list[BaseException | None]]:
    """Take room in a thread; the list has what came of it."""
    came: list[BaseException | None] = []

    def take() -> None:
        try:
            room.take(size_bytes)
            came.append(None)
        except ValueError as error:
            came.append(error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, came


@pytest.mark.parametrize(
    ("taken", "more", "returned"), [((6, 4), 5, (4, 6)), ((11,), 1, (11,))], ids=["full", "larger than all of it"]
)
def test_whoever_comes_when_it_is_full_waits_until_enough_was_given_back(taken, more, returned):
    room = Room(10)
    for size_bytes in taken:
        room.take(size_bytes)
    thread, came = taker(room, more)
    for size_bytes in returned:
        assert not came
        room.give_back(size_bytes)
    thread.join(PATIENCE_S)
    assert came == [None]


def test_without_a_limit_nobody_waits():
    room = Room(None)
    for _ in range(3):
        room.take(2**60)


@pytest.mark.parametrize("limit_bytes", [10, None])
def test_what_went_wrong_elsewhere_is_raised_to_whoever_waits_or_comes(limit_bytes):
    room = Room(limit_bytes)
    room.take(10)
    thread, came = taker(room, 1) if limit_bytes else (None, [])
    error = ValueError("disk full")
    with pytest.raises(ValueError, match=r"^disk full$"), room.closed_by_errors():
        raise error
    if thread is not None:
        thread.join(PATIENCE_S)
        assert came == [error]
    with pytest.raises(ValueError, match=r"^disk full$"):
        room.take(1)
