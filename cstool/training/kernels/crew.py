"""Threads that execute tables together: lane by lane, leg by leg, without the interpreter and without falling asleep.

A *program* has legs, one after the other, each with a part of a table for every lane. A leg begins once all lanes have
finished the one before; after a part that failed nothing more is executed. Lanes belong to no thread: each thread
begins with its own lane, then takes one that no other has begun. So no work waits for a thread that is asleep, that has
no core, or that a fork has left behind.

Threads tell each other only numbers in memory, most of which only grow. Legs are counted from the first program on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from cstool.foundation.compiled.atomics import claim, load, store, take
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.driver import NativeError, Table, execute, thread_clock, words_at
from cstool.training.kernels.recording import address_of
from cstool.training.kernels.spin import wait, wait_for

IDLE_ROUNDS = 150
"""rounds of `wait_for` before a thread without work falls asleep: some 300 µs, the time of the interpreter between two
programs of a small model"""
_WORDS = 16
"""words from one shared number to the next, two cache lines, since neighbours are fetched together"""
_BYTES = 8 * _WORDS
_ORDERED, _FINISHED, _BROKEN, _FIRST, _PARTS, _CLAIMS = range(6)
"""places of shared numbers: legs that may begin; parts that are finished; whether one of this program failed; its first
leg; address of its parts; from here on, for each lane, legs that a thread has begun"""
_PART = 5
"""words of a part: address of its table, first word, end, address of the time of its records, and where it ended"""
_BASE, _START, _STOP, _SPENT, _ENDED = range(_PART)


@elementwise
def _take_part(shared, member, lanes, leg, clock, time):  # type: ignore[no-untyped-def]
    """Execute parts of a leg that no other thread has begun, once the leg before is over."""
    wait(shared + _BYTES * _FINISHED, leg * lanes)
    for turn in range(lanes):
        lane = (member + turn) % lanes
        if not claim(shared + _BYTES * (_CLAIMS + lane), leg, leg + 1):
            continue
        place = load(shared + _BYTES * _PARTS)
        place += 8 * _PART * ((leg - load(shared + _BYTES * _FIRST)) * lanes + lane)
        part = carray(words_at(place), (_PART,))
        part[_ENDED] = part[_STOP]
        if load(shared + _BYTES * _BROKEN) == 0:
            part[_ENDED] = execute(part[_BASE], part[_START], part[_STOP], part[_SPENT], clock, time)
            if part[_ENDED] != part[_STOP]:
                store(shared + _BYTES * _BROKEN, 1)
        take(shared + _BYTES * _FINISHED, 1)


@elementwise
def _lead(shared, lanes, parts, legs, clock, time):  # type: ignore[no-untyped-def]
    """Let a program begin, take part in it, and wait for its end."""
    first = load(shared + _BYTES * _ORDERED)
    store(shared + _BYTES * _BROKEN, 0)
    store(shared + _BYTES * _FIRST, first)
    store(shared + _BYTES * _PARTS, parts)
    store(shared + _BYTES * _ORDERED, first + legs)
    for leg in range(first, first + legs):
        _take_part(shared, 0, lanes, leg, clock, time)
    wait(shared + _BYTES * _FINISHED, (first + legs) * lanes)


@elementwise
def _follow(shared, member, lanes, leg, rounds, clock, time):  # type: ignore[no-untyped-def]
    """Take part in programs, from a leg on, until none comes for a while; return the leg that is next."""
    while wait_for(shared + _BYTES * _ORDERED, leg + 1, rounds):
        # Others may have finished some legs meanwhile.
        leg = max(leg, load(shared + _BYTES * _FINISHED) // lanes)
        if leg < load(shared + _BYTES * _ORDERED):
            _take_part(shared, member, lanes, leg, clock, time)
            leg += 1
    return leg


Array = np.ndarray[Any, Any]
Context = Callable[[], AbstractContextManager[object]]
"""makes a context in which a thread may execute tables"""
_Wake = queue.SimpleQueue[bool]
"""where a thread sleeps: False ends it"""


class Part(NamedTuple):
    """Records of a table, from a word to another."""

    table: Table
    start: int
    stop: int


class Failure(NamedTuple):
    """A part that did not come to its end."""

    leg: int
    lane: int
    error: NativeError


class Program:
    """Parts of tables for a crew.

    Args:
        legs: for each leg, the part of each lane
    """

    def __init__(self, legs: Sequence[Sequence[Part]]) -> None:
        self.legs = legs
        rows = [
            [[address_of(table.words), start, stop, address_of(table.nanoseconds), stop] for table, start, stop in leg]
            for leg in legs
        ]
        self.words = np.array(rows, np.int64)
        """(legs, lanes, words of a part)"""
        self.address = address_of(self.words)
        self.contexts = {context for leg in legs for part in leg for context in part.table.threads}

    def failures(self) -> list[Failure]:
        """The parts that failed when it was last executed, in order."""
        ended, stops = self.words[..., _ENDED], self.words[..., _STOP]
        return [
            Failure(leg, lane, self.legs[leg][lane].table.error(int(ended[leg, lane])))
            for leg, lane in np.argwhere(ended != stops).tolist()
        ]


class Crew:
    """As many threads as lanes, the caller's among them. It holds no core while there are no programs.

    Args:
        contexts: of all programs, made once in each thread but the caller's
    """

    def __init__(self, lanes: int, contexts: set[Context]) -> None:
        self._lanes = lanes
        self._shared = np.zeros(_WORDS * (_CLAIMS + lanes), np.int64)
        self.address = address_of(self._shared)
        """of the shared numbers"""
        self._sleepers = queue.SimpleQueue[_Wake]()
        """threads that are asleep, or about to be"""
        self._wakes = [_Wake() for _ in range(lanes - 1)]
        for member, wake in enumerate(self._wakes, start=1):
            arguments = self._shared, self._sleepers, wake, member, lanes, contexts
            threading.Thread(target=_serve, args=arguments, name=f"crew-{member}", daemon=True).start()

    def run(self, program: Program) -> list[Failure]:
        """Execute a program; return the parts that failed."""
        while not self._sleepers.empty():
            self._sleepers.get().put(True)
        with ExitStack() as stack:
            for context in program.contexts:
                stack.enter_context(context())
            _lead(self.address, self._lanes, program.address, len(program.legs), *thread_clock())
        return program.failures() if self._shared[_WORDS * _BROKEN] else []

    def close(self) -> None:
        """Let the threads end."""
        for wake in self._wakes:
            wake.put(False)


def compile_crew(table: Table) -> None:
    """Compile the kernels of a crew, and execute a table by a crew of one."""
    crew = Crew(1, set())
    crew.run(Program([[Part(table, 0, table.length)]]))
    _follow(crew.address, 0, 1, 0, 0, *thread_clock())


def _serve(
    shared: Array,
    sleepers: queue.SimpleQueue[_Wake],
    wake: _Wake,
    member: int,
    lanes: int,
    contexts: set[Context],
) -> None:
    """Take part in programs until the crew is closed."""
    leg, address = 0, address_of(shared)
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        while True:
            sleepers.put(wake)
            # The caller may have looked for sleepers just before.
            if shared[_WORDS * _ORDERED] == leg and not wake.get():
                return
            leg = _follow(address, member, lanes, leg, IDLE_ROUNDS, *thread_clock())
