"""Rows in memory: never more than the limit, never a wait without end, always what the file holds."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from cstool.foundation.errors import StoreError
from cstool.training.machine.lanes import Pace
from cstool.training.store.panel_cache import STAYS_BYTES, PanelCache, Rows, buffer_bytes
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.patience import PATIENCE_S, in_thread, wait_until
from tests.unit.training.store.stored import Array

LARGE = STAYS_BYTES + 1


class File:
    """Rows of uint8 that are all the number of their array, plus how often it has changed."""

    def __init__(self, sizes: Sequence[int], limit_bytes: int) -> None:
        self.sizes = sizes
        self.changes = [0] * len(sizes)
        self.failures: dict[int, int] = {}
        """by the number of the array: how often reading it fails from now on"""
        self.reads: list[int] = []
        self.cache = PanelCache(limit_bytes, self.layout, self.read)

    def rows(self, number: int) -> Rows:
        return Rows(str(number), 0, self.sizes[number])

    def layout(self, rows: Rows) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (rows.stop - rows.start,), np.dtype(np.uint8)

    def read(self, rows: Rows, array: Array) -> None:
        assert self.cache.allocated_bytes <= self.cache.limit_bytes
        number = int(rows.name)
        self.reads.append(number)
        if self.failures.get(number, 0):
            self.failures[number] -= 1
            raise StoreError(f"{number}: cannot be read")
        array[:] = self.value(number)

    def value(self, number: int) -> int:
        return (7 * number + self.changes[number]) % 256

    def check(self, number: int, array: Array) -> None:
        assert self.cache.allocated_bytes <= self.cache.limit_bytes
        assert (array == self.value(number)).all()


@pytest.fixture
def make_file() -> Iterator[Callable[..., File]]:
    files: list[File] = []

    def make(sizes: Sequence[int], limit_bytes: int) -> File:
        files.append(File(sizes, limit_bytes))
        return files[-1]

    yield make
    for file in files:
        file.cache.close()


def run_lanes(walks: Sequence[Callable[[], None]]) -> None:
    """Run functions in threads of their own, and fail if one fails, or they wait without end."""
    for lane in [in_thread(walk) for walk in walks]:
        lane.result(PATIENCE_S)


def least_bytes(sizes: Sequence[int], lanes: int) -> int:
    """Return what `cstool.training.machine.memoryx_store` gives to rows at the least."""
    small = sum(size for size in sizes if size <= STAYS_BYTES)
    return buffer_bytes(max(sizes)) * (2 if lanes == 1 else lanes + 3) + small


sizes_of_panels = st.sampled_from([1, 1000, STAYS_BYTES, LARGE, LARGE + 9, 2 * LARGE - 5, 3 * LARGE])


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[tuple[tuple[int, ...], int]]]:
    """Draw the sizes of panels, and the stages of a pass, forward and back: small vectors that are held, a matrix."""
    vectors = draw(st.lists(st.integers(1, STAYS_BYTES), max_size=4))
    matrices = draw(st.lists(sizes_of_panels, min_size=1, max_size=8))
    numbers = range(len(vectors), len(vectors) + len(matrices))
    held = st.lists(st.sampled_from(range(len(vectors))), max_size=3, unique=True) if vectors else st.just([])
    forward = [(tuple(draw(held)), number) for number in numbers]
    return vectors + matrices, forward + forward[::-1]


@given(
    stream=streams(), lanes=st.integers(1, 3), spare=st.sampled_from([0, 0, LARGE, 9 * LARGE]), fast=st.integers(0, 2)
)
@example(stream=([LARGE] * 6, [((), n) for n in (0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0)]), lanes=3, spare=0, fast=0)
@examples(200)
def test_lanes_go_through_the_stream_in_the_least_memory(stream, lanes, spare, fast):
    """Twice over; between two passes all panels change in the file. The lanes are at most one stage apart."""
    sizes, stages = stream
    file = File(sizes, least_bytes(sizes, lanes) + spare)
    order = [file.rows(number) for vectors, matrix in stages for number in (*vectors, matrix)]

    def walk(lane: int, pace: Pace) -> None:
        for vectors, matrix in stages:
            held = [(number, file.cache.hold(file.rows(number), fresh=False)) for number in vectors]
            pace.step(lane)
            held.append((matrix, file.cache.hold(file.rows(matrix), fresh=False)))
            if lane == fast:
                threading.Event().wait(1e-4)
            for number, array in held:
                file.check(number, array)
                file.cache.let_go(file.rows(number))
        pace.leave(lane)

    for _ in range(2):
        file.cache.expect(order, 1 if lanes > 1 else 0)
        pace = Pace(lanes, 1)
        run_lanes([lambda lane=lane, pace=pace: walk(lane, pace) for lane in range(lanes)])
        for number in range(len(sizes)):
            rows = file.rows(number)
            held = file.cache.claim(rows)
            file.changes[number] += 1
            if held is not None:
                held[:] = file.value(number)
            file.cache.disclaim(rows, held)
            file.cache.forget(rows.name, rows.start, rows.stop, but=rows)
    assert file.cache.allocated_bytes <= file.cache.limit_bytes
    file.cache.close()


@given(
    sizes=st.lists(sizes_of_panels, min_size=1, max_size=6),
    asked=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=30),
    expected=st.lists(st.integers(0, 5), max_size=8),
)
@examples(200)
def test_whatever_is_asked_for_one_by_one_is_there_in_room_for_the_largest(sizes, asked, expected):
    """Also what the stream does not have, and what changes in the file in between."""
    file = File(sizes, buffer_bytes(max(sizes)))
    file.cache.expect([file.rows(number % len(sizes)) for number in expected], 0)
    for number, fresh, changes in asked:
        number %= len(sizes)
        array = file.cache.hold(file.rows(number), fresh=fresh)
        if fresh:
            array[:] = file.value(number)
        file.check(number, array)
        if changes:
            file.changes[number] += 1
            array[:] = file.value(number)
            file.cache.forget(str(number), 0, sizes[number], but=file.rows(number))
        file.cache.let_go(file.rows(number))
    file.cache.close()


def ask(file: File, *numbers: int) -> None:
    """Hold rows one after the other, and look at them."""
    for number in numbers:
        file.check(number, file.cache.hold(file.rows(number), fresh=False))
        file.cache.let_go(file.rows(number))


@pytest.mark.parametrize("of_stream", [range(200, 203), range(203)], ids=["lacked", "had"])
def test_small_rows_that_the_stream_has_or_lacks_make_room_before_anybody_waits_for_ever(make_file, of_stream):
    """As those of optimizer state, which a checkpoint asks for once, or of weights sparser than was counted on."""
    file = make_file([1000] * 200 + [LARGE] * 3, 2 * buffer_bytes(LARGE))
    file.cache.expect([file.rows(number) for number in of_stream], 0)
    ask(file, *range(203))


def test_what_is_fetched_ahead_is_what_comes_next(make_file):
    file = make_file([LARGE] * 6, 6 * buffer_bytes(LARGE))
    file.cache.expect([file.rows(number) for number in (3, 1, 4, 0, 5, 2)], 0)
    ask(file, 3, 1, 4, 0, 5, 2)
    assert sorted(file.reads) == [0, 1, 2, 3, 4, 5]


def test_of_doubtful_rows_those_alone_are_fetched_that_are_wanted(make_file):
    """As the panels of experts, of which it is known late which are needed."""
    file = make_file([LARGE] * 6, 6 * buffer_bytes(LARGE))
    order = [file.rows(number) for number in (0, 1, 2, 3, 4, 5)]
    for _ in range(2):
        file.reads.clear()
        file.cache.expect(order, 0, doubtful={"1", "2", "3", "4"})
        for rows in order:
            file.cache.forget(rows.name, 0, LARGE)
        file.check(0, file.cache.hold(file.rows(0), fresh=False))
        file.cache.want([file.rows(2), file.rows(4)], 2)
        ask(file, 2, 4, 5, 4, 2)
        file.cache.let_go(file.rows(0))
        wait_until(lambda: not file.cache._loading, "it is fetched over and over")
        assert {0, 2, 4, 5} == {*file.reads}
        # Nobody will ask for them again: they make room first.
        assert [file.cache._next_use(file.rows(number)) for number in (2, 4)] == [math.inf, math.inf]
    # Whoever asks without a word before is served all the same.
    file.check(3, file.cache.hold(file.rows(3), fresh=False))


def test_an_error_reaches_whoever_asks_and_does_not_stick(make_file):
    file = make_file([LARGE] * 3, 3 * buffer_bytes(LARGE))
    file.failures = {1: 2}
    for _ in range(2):
        with refusal(StoreError, "1: cannot be read"):
            file.cache.hold(file.rows(1), fresh=False)
    file.check(1, file.cache.hold(file.rows(1), fresh=False))
    assert file.reads == [1, 1, 1]


def test_an_error_of_fetching_ahead_is_not_tried_over_and_over(make_file):
    file = make_file([LARGE] * 3, 3 * buffer_bytes(LARGE))
    file.failures = {0: 10**9}
    file.cache.expect([file.rows(number) for number in (0, 1, 2)], 0)
    ask(file, 1, 2, 1, 2)
    assert file.reads.count(0) < 20
    wait_until(lambda: not file.cache._loading, "it is fetched over and over")
    file.failures = {}
    file.check(0, file.cache.hold(file.rows(0), fresh=False))


def test_all_who_wait_for_rows_get_the_error(make_file):
    file = make_file([LARGE], 2 * buffer_bytes(LARGE))
    waiting, begun = threading.Barrier(3), threading.Event()
    read, found = file.cache._read, []

    def slow(rows: Rows, array: Array) -> None:
        begun.set()
        threading.Event().wait(0.05)
        read(rows, array)

    file.cache._read = slow
    file.failures = {0: 1}

    def hold() -> None:
        waiting.wait()
        try:
            file.check(0, file.cache.hold(file.rows(0), fresh=False))
        except StoreError as error:
            found.append(str(error))

    run_lanes([hold] * 3)
    # Who comes late has it read again.
    assert 1 <= len(found) <= 3
    assert {*found} == {"0: cannot be read"}
    assert file.cache.allocated_bytes <= file.cache.limit_bytes


def test_rows_that_change_are_not_fetched_meanwhile(make_file):
    file = make_file([LARGE] * 2, 2 * buffer_bytes(LARGE))
    rows = file.rows(0)
    assert file.cache.claim(rows) is None
    file.cache.expect([rows], 0)
    held = in_thread(lambda: file.cache.hold(rows, fresh=False))
    assert not wait([held], 0.05).done
    assert file.reads == []
    file.changes[0] += 1
    file.cache.disclaim(rows, None)
    file.check(0, held.result(PATIENCE_S))


def test_a_buffer_is_at_most_a_sixteenth_larger_than_its_rows_and_shared_by_nearly_alike_ones():
    for size_bytes in (1, STAYS_BYTES, LARGE, 2**20, 2**20 + 1, 32 * 2**20 - 4, 10**9 + 7):
        assert size_bytes <= buffer_bytes(size_bytes) <= size_bytes * 17 // 16 + 1
    rounded = {buffer_bytes(size) for size in range(2**20 + 1, 2**21, 997)}
    assert len(rounded) == 16
    assert all(later - earlier == 2**16 for earlier, later in itertools.pairwise(sorted(rounded)))
