"""Threads that share the work of one op: where a pass has a token or two, there are no grains to deal out."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

Part = Callable[[int, int, int], None]
"""does the part from `start` to `stop`, as a member of that number"""

WORTH_SHARING = 256 * 1024
"""numbers read, from which on a second thread pays: waking one takes about as long as reading so many"""


class Team:
    """So many threads, the caller's among them.

    What a part computes must not depend on where the parts are cut: then nothing depends on the number of threads.

    Args:
        size: of the team, at least 1
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._orders = [queue.SimpleQueue[Any]() for _ in range(size - 1)]
        self._done = queue.SimpleQueue[BaseException | None]()
        for member, orders in enumerate(self._orders, start=1):
            threading.Thread(target=self._serve, args=(member, orders), name=f"team-{member}", daemon=True).start()

    def _serve(self, member: int, orders: queue.SimpleQueue[Any]) -> None:
        while (order := orders.get()) is not None:
            part, start, stop = order
            try:
                part(start, stop, member)
                self._done.put(None)
            except BaseException as error:
                self._done.put(error)

    def share(self, part: Part, count: int, numbers: int, unit: int = 1) -> None:
        """Do `part` for the range from 0 to `count`, cut evenly at multiples of `unit` if there is enough to do.

        Args:
            part: of the work
            count: of what is shared out
            numbers: that are read in all
            unit: what is not cut
        """
        units = -(-count // unit)
        shares = min(self.size, max(units, 1)) if numbers >= WORTH_SHARING else 1
        edges = [min(count, unit * (units * k // shares)) for k in range(shares + 1)]
        for orders, start, stop in zip(self._orders, edges[1:], edges[2:], strict=False):
            orders.put((part, start, stop))
        error: BaseException | None = None
        try:
            part(edges[0], edges[1], 0)
        finally:
            # Whatever happens, nobody is still at work in arrays that the caller takes back.
            for _ in range(shares - 1):
                error = self._done.get() or error
        if error is not None:
            raise error

    def close(self) -> None:
        """Let the threads end."""
        for orders in self._orders:
            orders.put(None)
