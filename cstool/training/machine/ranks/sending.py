"""SwarmX at a node of MemoryX: its panels leave for the other ranks, and sums of their gradients come back."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Weights
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.memoryx.gradients import Room
from cstool.training.machine.ranks.link import Form, Link, place_anew
from cstool.training.machine.ranks.wire import PanelSent, SumSent, pack_weights, unpack_gradient
from cstool.training.machine.recorder import OFF, LaneTape
from cstool.training.machine.swarmx import SwarmX

Array = np.ndarray[Any, Any]
WINDOW_BYTES = 64 * 2**20
"""largest size of the panels of all nodes that are on their way or in use at the slowest rank; of each node, a panel
larger than its part goes alone [bytes]"""
NOTHING = np.empty(0, np.float32)
"""placeholder that the feeder gets for a panel that another node sends"""


class Broadcast(SwarmX):
    """The `SwarmX` of the feeder, a lane without slots: each panel that it acquires is sent to all other ranks.

    So panels leave in the order in which the systems need them, and no further ahead than lanes may be apart. The other
    ranks say when they are through with a panel; while too many bytes are in use there, the feeder waits. Vectors do
    not count: a rank keeps the vectors of an op until the last panel of its matrix has come, which must not wait for
    them.
    """

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self.buffers = memoryx.buffers
        self.to = [rank for rank in range(link.ranks) if rank != link.rank]
        """ranks that panels are sent to"""
        self._link, self._memoryx = link, memoryx
        self._window = Room(WINDOW_BYTES // memoryx.arrays.shards.nodes)
        self._number = 0
        self._in_use: dict[int, tuple[int, int, str]] = {}
        """number of a sent panel -> number of ranks that still use it, its size [bytes], its weight"""
        self._on_the_way = 0
        """panels that have not left for all ranks"""
        self._is_closed = False
        self._error: BaseException | None = None
        self._lock = threading.Condition()
        link.listen("passed", self._passed)
        link.on_failure(self._fail)

    def acquire(self, panel: Panel) -> Weights:
        """Send a panel to the other ranks, if it is one of this node."""
        if not self._memoryx.keeps(panel):
            return NOTHING
        weights = self._memoryx.acquire(panel)
        try:
            form, arrays = pack_weights(weights)
            size_bytes = sum(array.nbytes for array in arrays) if len(panel.shape) > 1 else 0
            self._window.take(size_bytes)
            with self._lock:
                number = self._number = self._number + 1
                self._in_use[number] = len(self.to), size_bytes, panel.weight
                self._on_the_way += 1
            on_the_way = [self._link.send(rank, "panel", PanelSent(panel, number, form), arrays) for rank in self.to]
        except BaseException:
            self._memoryx.release(panel)
            raise
        left = len(on_the_way)

        def release(_: Future[None]) -> None:
            # By the thread of the link, or by this one where a panel has left already.
            nonlocal left
            with self._lock:
                left -= 1
                if left:
                    return
                if not self._is_closed:
                    self._memoryx.release(panel)
                self._on_the_way -= 1
                self._lock.notify_all()

        for sent in on_the_way:
            sent.add_done_callback(release)
        return weights

    def release(self, panel: Panel) -> None:
        """Do nothing: MemoryX has the panel back once it has left for all ranks."""

    def reduce(self, *_: Any) -> None:
        """Not to be called: the feeder has no grains."""
        raise AssertionError("a lane without grains has no gradients")

    def finish(self) -> None:
        """Wait until MemoryX has all panels back: an earlier reader would get a panel as it was before an update.

        All other ranks have received the panels that they computed with, so this takes no longer than this rank needs
        to hear of that.

        Raises:
            BaseException: the link is broken
        """
        with self._lock:
            self._lock.wait_for(lambda: self._error is not None or not self._on_the_way)
            if self._error is not None:
                raise self._error

    def _fail(self, error: BaseException) -> None:
        self._window.close(error)
        with self._lock:
            self._error = error
            self._lock.notify_all()

    def _passed(self, rank: int, number: int, _: Sequence[Array]) -> None:
        """Hear that a rank is through with a panel."""
        with self._lock:
            ranks, size_bytes, weight = self._in_use.pop(number)
            self._link.activity.passed[rank] = weight
            if ranks > 1:
                self._in_use[number] = ranks - 1, size_bytes, weight
                return
        self._window.give_back(size_bytes)

    def close(self) -> None:
        """Give no panel back any more: messages on their way leave without MemoryX, which may be gone by then."""
        with self._lock:
            self._is_closed = True


class ArrivingSums:
    """Takes the sums of gradients that other ranks send, and hands them to SwarmX in a thread of its own."""

    def __init__(self, link: Link, memoryx: MemoryX) -> None:
        self._memoryx = memoryx
        self._tape = LaneTape(OFF, link.ranks, [])
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="swarmx")
        self._swarmx: SwarmX | None = None
        self._taken: list[Future[None]] = []
        link.listen("sum", self._hear, self._place)

    def begin(self, swarmx: SwarmX) -> None:
        """Hand sums from now on to this SwarmX, the one of the systems that run."""
        self._swarmx = swarmx

    def _place(self, sent: SumSent, forms: Sequence[Form]) -> Sequence[Array]:
        if len(forms) > 1:
            return place_anew(sent, forms)
        sparse = self._memoryx.arrays.sparse.get(sent.panel.weight)
        room = 0 if sparse is None else sparse.room(sent.panel)
        return [self._memoryx.buffers.take(forms[0].shape, room)]

    def _hear(self, _: int, sent: SumSent, arrays: Sequence[Array]) -> None:
        self._taken.append(self._thread.submit(self._take, sent, unpack_gradient(arrays)))

    def _take(self, sent: SumSent, payload: Payload) -> None:
        assert self._swarmx is not None, "sums arrive while a step runs"
        self._swarmx.reduce(sent.panel, sent.op, sent.node, payload, self._tape)

    def finish(self) -> None:
        """Wait until all that arrived has been taken.

        Raises:
            BaseException: the error with which the addition of a sum failed
        """
        while self._taken:
            self._taken.pop(0).result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)
