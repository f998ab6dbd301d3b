"""Gradients that wait in MemoryX, for a global norm or for those of a tied weight's other op.

In memory, or in scratch arrays of its store: then only those on their way there and back take memory, within a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from cstool.ir import Panel
from cstool.machine.buffers import BufferPool
from cstool.store import Store

Array = np.ndarray[Any, Any]


class Room:
    """A limit for what may be under way at a time.

    Args:
        limit_bytes: None for no limit; what is larger by itself may go alone
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.waited_s = 0.0
        """time that was waited for room, summed over those who did [s]"""
        self._used_bytes = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take it.

        Raises:
            BaseException: what went wrong where room would have been given back
        """
        began = time.perf_counter()
        with self._changed:
            while self._error is None and self._is_full(size_bytes):
                self._changed.wait()
            self.waited_s += time.perf_counter() - began
            if self._error is not None:
                raise self._error
            self._used_bytes += size_bytes

    def _is_full(self, size_bytes: int) -> bool:
        limit_bytes = self.limit_bytes
        return limit_bytes is not None and self._used_bytes > 0 and self._used_bytes + size_bytes > limit_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give room back."""
        with self._changed:
            self._used_bytes -= size_bytes
            self._changed.notify_all()

    @contextmanager
    def closed_by_errors(self) -> Iterator[None]:
        """Do within the context what gives room back; if it fails, nobody waits for that, but hears of the error."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            raise


class WaitingGradients:
    """The gradients that wait, by panel. Whoever gives one takes room for it first.

    Args:
        store: where they wait if there is a limit
        buffers: where their buffers come from and go
        workers: write them to the store
        room: for those on their way; without a limit they wait in memory
    """

    def __init__(self, store: Store, buffers: BufferPool, workers: Executor, room: Room) -> None:
        self._store, self._buffers, self._workers, self._room = store, buffers, workers, room
        self._in_memory: dict[Panel, Array] = {}
        self._in_store: dict[Panel, tuple[tuple[int, int], Future[None]]] = {}
        self._made: set[str] = set()

    def reserve(self, weight: str, shape: Sequence[int]) -> None:
        """Make room in the store for the gradient of a weight."""
        if self._room.limit_bytes is not None and weight not in self._made:
            self._store.create(_array(weight), shape, scratch=True)
            self._made.add(weight)

    def keep(self, panel: Panel, span: tuple[int, int], gradient: Array) -> None:
        """Keep a gradient; its buffer is no longer the caller's.

        Args:
            panel: whose it is
            span: its rows (of a sparse weight: elements) in the arrays of the weight
            gradient: float32, of the rows of the span
        """
        if panel.weight not in self._made:
            self._in_memory[panel] = gradient
            return
        self._in_store[panel] = span, self._workers.submit(self._write, panel, span, gradient)

    def sources(self, panel: Panel) -> tuple[str, ...]:
        """Name of the array of the store in which a gradient waits; none if it waits in memory."""
        if panel not in self._in_store:
            return ()
        self._in_store[panel][1].result()
        return (_array(panel.weight),)

    def take(self, panel: Panel) -> Array | None:
        """Hand out a gradient that waits in memory; None where it waits in the store."""
        return self._in_memory.pop(panel, None)

    def drop(self, panel: Panel) -> None:
        """Let go of a gradient that waits in the store."""
        del self._in_store[panel]

    def fetch(self, panel: Panel) -> Array:
        """Hand out a gradient, wherever it waits."""
        gradient = self._in_memory.pop(panel, None)
        if gradient is not None:
            self._room.give_back(gradient.nbytes)
            return gradient
        (start, stop), written = self._in_store.pop(panel)
        written.result()
        shape = self._store.shape(_array(panel.weight))
        # The caller takes no room for it: what it gave back when it went to the store is enough for a while.
        buffer = self._buffers.take((stop - start, *shape[1:]))
        self._store.read(_array(panel.weight), start, buffer)
        return buffer

    def _write(self, panel: Panel, span: tuple[int, int], gradient: Array) -> None:
        with self._room.closed_by_errors():
            self._store.write(_array(panel.weight), span[0], gradient)
            self._buffers.give_back(gradient)
            self._room.give_back(gradient.nbytes)


def _array(weight: str) -> str:
    return f"gradient.{weight}"
