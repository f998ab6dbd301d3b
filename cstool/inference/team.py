"""Threads that share the work of one op: where a pass has a token or two, there are no grains to deal out.

A pass that is written down is shared, too: each op that all members work on becomes a leg of a program for a crew
(`training/kernels/crew.py`), what lies between two of them a leg of the first lane alone.
"""

import queue
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from cstool.training.kernels.crew import Crew, Part, Program
from cstool.training.kernels.driver import Table
from cstool.training.kernels.recording import Recording, needs_interpreter, recording
from cstool.training.kernels.spin import publish, spin

Work = Callable[[int, int], None]
"""does the share of a member: called with its number, and the number of members"""

TAKEN_APART = 16
"""distance between the counters of two products, of the rows that members have taken: two cache lines"""
_LINE = 16
"""numbers of a member: two cache lines, since neighbours are fetched together"""
SPINS = 200_000
"""times that a thread looks for its next order, or for the others to be done, before it falls asleep: a fraction of a
millisecond, some ops of a pass over one token. A wake-up takes a fifth of the time of such an op"""
WORTH_SHARING = 256 * 1024
"""numbers read, from which on a second thread pays: waking one takes about as long as reading so many"""
BY_CREW = 4
"""times as few numbers are worth sharing in a pass that is written down: members of a crew are awake, and a leg of it
takes a microsecond or two"""


class SharedRecording(Recording):
    """Records of a pass, with legs: in a shared one each member has records of its own, in any other the first alone.

    Args:
        members: of the team
    """

    def __init__(self, members: int) -> None:
        super().__init__()
        self._members = members
        self._legs: list[list[tuple[int, int]]] = []
        self._closed = 0
        """first word behind the legs so far"""

    def share(self, work: Work) -> None:
        """Write down a leg that all members share."""
        self._close()
        leg = []
        for member in range(self._members):
            start = len(self.words)
            work(member, self._members)
            leg.append((start, len(self.words)))
        self._legs.append(leg)
        self._closed = len(self.words)

    def _close(self) -> None:
        stop = len(self.words)
        if stop > self._closed:
            self._legs.append([(self._closed, stop), *[(stop, stop)] * (self._members - 1)])
            self._closed = stop

    def program(self, table: Table) -> Program | None:
        """The legs of the table of these records; None where no leg is shared."""
        if not self._legs:
            return None
        self._close()
        return Program([[Part(table, start, stop) for start, stop in leg] for leg in self._legs])


class Team:
    """So many threads, the caller's among them.

    Results must not depend on the member that computes them: then nothing depends on the number of threads.

    Args:
        size: of the team, at least 1
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._orders = [queue.SimpleQueue[Any]() for _ in range(size - 1)]
        self._done = queue.SimpleQueue[BaseException | None]()
        self._given = [0] * (size - 1)
        """orders that each thread has been given so far"""
        self._numbers = np.zeros(_LINE * size, np.int64)
        """of each member, on lines of its own: number of orders given, and of orders done"""
        for member, orders in enumerate(self._orders, start=1):
            threading.Thread(target=self._serve, args=(member, orders), name=f"team-{member}", daemon=True).start()

    def _serve(self, member: int, orders: queue.SimpleQueue[Any]) -> None:
        served = 0
        while True:
            # Most orders come while it looks for them; else `get` sleeps.
            spin(self._numbers, _LINE * member, served + 1, SPINS)
            if (order := orders.get()) is None:
                return
            work, members = order
            try:
                work(member, members)
                self._done.put(None)
            except BaseException as error:
                self._done.put(error)
            served += 1
            publish(self._numbers, _LINE * member + _LINE // 2, served)

    def shares(self, numbers: int, *, by_crew: bool = False) -> bool:
        """Whether more than the caller work where so many numbers are read.

        Args:
            by_crew: in a pass that is written down, as every pass is while it is recorded
        """
        least = WORTH_SHARING // BY_CREW if by_crew or recording() is not None else WORTH_SHARING
        return self.size > 1 and numbers >= least

    def run(self, work: Work, numbers: int) -> None:
        """Let all members work, or the caller alone where there is too little to do.

        Args:
            work: does the share of a member
            numbers: that are read in all
        """
        members = self.size if self.shares(numbers) else 1
        if members > 1 and (into := recording()) is not None:
            if isinstance(into, SharedRecording):
                into.share(work)
                return
            needs_interpreter()
        for member in range(1, members):
            self._orders[member - 1].put((work, members))
            self._given[member - 1] += 1
            publish(self._numbers, _LINE * member, self._given[member - 1])
        error: BaseException | None = None
        try:
            work(0, members)
        finally:
            # Even after an error, no member is still at work in arrays that the caller takes back.
            for member in range(1, members):
                spin(self._numbers, _LINE * member + _LINE // 2, self._given[member - 1], SPINS)
            for _ in range(members - 1):
                error = self._done.get() or error
        if error is not None:
            raise error

    def counters(self, count: int) -> np.ndarray[Any, Any]:
        """Counters of items that members have taken, all 0: (n,) int64, one at each multiple of `TAKEN_APART`.

        Where a pass is written down, they become 0 at each execution.
        """
        taken = np.zeros(count * TAKEN_APART, np.int64)
        for k in range(count if recording() is not None else 0):
            publish(taken, k * TAKEN_APART, 0)
        return taken

    @cached_property
    def crew(self) -> Crew:
        """As many threads that execute programs."""
        return Crew(self.size, set())

    def close(self) -> None:
        """Let the threads end."""
        if "crew" in self.__dict__:
            self.crew.close()
        for orders in self._orders:
            orders.put(None)
