"""Links between ranks that are threads of one process, for tests: messages are copied, as a network does."""

from __future__ import annotations

import pickle
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from cstool.foundation.errors import ToldElsewhere
from cstool.training.machine.ranks.link import Activity, Form, Hear, Place, place_anew
from cstool.training.machine.ranks.mpi import packed


class ThreadLink:
    """See `Link`. A thread of each rank delivers what is sent to it."""

    def __init__(self, rank: int, world: list[ThreadLink]) -> None:
        self.rank, self.host_ranks, self.sent_bytes = rank, 1, 0
        self.activity = Activity()
        self.hosts: dict[int, str] = {}
        self.late_s = 0.0
        """after which a sender hears that its message is here"""
        self._world = world
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[Hear, Place]] = {}
        self._inboxes: defaultdict[tuple[int, str], queue.SimpleQueue[Any]] = defaultdict(queue.SimpleQueue)
        self._told: list[Callable[[BaseException], None]] = []
        self._error: BaseException | None = None
        self._thread = ThreadPoolExecutor(1)

    @property
    def ranks(self) -> int:
        return len(self._world)

    def send(self, to: int, kind: str, body: Any = None, arrays: Sequence[np.ndarray] = ()) -> Future[None]:
        left: Future[None] = Future()
        with self._lock:  # several lanes send at a time
            self.sent_bytes += sum(array.nbytes for array in arrays)
        self._world[to]._thread.submit(self._world[to]._take, self.rank, kind, packed(body), arrays, left)
        return left

    def _take(self, sender: int, kind: str, body: bytes, arrays: Sequence[np.ndarray], left: Future[None]) -> None:
        said = pickle.loads(body)
        with self._lock:
            hear, place = self._heard.get(kind, (None, place_anew))
            if hear is None:
                self._inboxes[sender, kind].put(said)
                left.set_result(None)
                return
        placed = place(said, [Form(array.shape, array.dtype.name) for array in arrays])
        for to, array in zip(placed, arrays, strict=True):
            np.copyto(to, array)
        if self.late_s:
            threading.Timer(self.late_s, left.set_result, [None]).start()
        else:
            left.set_result(None)
        hear(sender, said, placed)

    def listen(self, kind: str, hear: Hear, place: Place = place_anew) -> None:
        with self._lock:
            self._heard[kind] = hear, place

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        self._told.append(tell)

    def receive(self, sender: int, kind: str) -> Any:
        with self._lock:
            inbox = self._inboxes[sender, kind]
            if self._error is not None:
                raise self._error
        found = inbox.get(timeout=60)
        if isinstance(found, BaseException):
            raise found
        return found

    def fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = error
            for inbox in self._inboxes.values():
                inbox.put(error)
        for tell in self._told:
            tell(error)

    def close(self) -> None:
        self._thread.shutdown()


@contextmanager
def serving(links: list[ThreadLink], serve: Callable[[ThreadLink], object]) -> Iterator[None]:
    """Have the other ranks serve, each in a thread, and let them go."""
    with ThreadPoolExecutor(max(1, len(links) - 1)) as threads:
        working = [threads.submit(serve, link) for link in links[1:]]
        try:
            yield
        finally:
            for link in links[1:]:
                link.fail(ToldElsewhere(0))
            for each in working:
                each.result()
            for link in links:
                link.close()


def linked(ranks: int) -> list[ThreadLink]:
    world: list[ThreadLink] = []
    world += [ThreadLink(rank, world) for rank in range(ranks)]
    for link in world:
        link.hosts = dict.fromkeys(range(ranks), "here")
    return world
