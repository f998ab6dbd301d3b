"""Threads that share the work of one op: where a pass has a token or two, there are no grains to deal out."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cstool.training.kernels.spin import publish, spin

Work = Callable[[int, int], None]
"""does the share of a member: called with its number, and the number of members"""

_LINE = 16
"""numbers of a member: two cache lines, since neighbours are fetched together"""
SPINS = 200_000
"""times that a thread looks for its next order, or for the others to be done, before it falls asleep: a fraction of a
millisecond, some ops of a pass over one token. A wake-up takes a fifth of the time of such an op"""
WORTH_SHARING = 256 * 1024
"""numbers read, from which on a second thread pays: waking one takes about as long as reading so many"""


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

    def shares(self, numbers: int) -> bool:
        """Whether more than the caller work where so many numbers are read."""
        return self.size > 1 and numbers >= WORTH_SHARING

    def run(self, work: Work, numbers: int) -> None:
        """Let all members work, or the caller alone where there is too little to do.

        Args:
            work: does the share of a member
            numbers: that are read in all
        """
        members = self.size if self.shares(numbers) else 1
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

    def close(self) -> None:
        """Let the threads end."""
        for orders in self._orders:
            orders.put(None)
