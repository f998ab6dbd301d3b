"""Gradients on their way in: complete once every op that uses the weight has sent the gradient of every grain.

They wait for a tied weight's other op, and for all other panels: in memory, or in scratch arrays of the store; then
only gradients on their way there and back take memory, within a limit.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from enum import Enum
from typing import Any

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, add_to_dense
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.dropconnect import Draw

Array = np.ndarray[Any, Any]


class Room:
    """A limit for the bytes under way at a time.

    Args:
        limit_bytes: None for no limit; a larger item may go alone
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.waited_s = 0.0
        """time waited for room, summed over the waiting threads [s]"""
        self._used_bytes = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take it.

        Raises:
            BaseException: the error of a thread that would have given room back
        """
        began = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or not self._is_full(size_bytes))
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
        """Give room back within the context; if that fails, waiting threads get the error instead of room."""
        try:
            yield
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException) -> None:
        """End all waiting: every present and later caller gets the error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()


class WaitingGradients:
    """The gradients that wait, by panel. A thread takes room for a gradient before it gives it.

    Args:
        arrays: of the model; their store has the waiting gradients if there is a limit
        buffers: pool of their buffers
        limit_bytes: of `Room`; without one they wait in memory
    """

    def __init__(
        self, arrays: ModelArrays, buffers: BufferPool, workers: Executor, limit_bytes: int | None = None
    ) -> None:
        self.buffers, self.room = buffers, Room(limit_bytes)
        self._arrays, self._store, self._workers = arrays, arrays.store, workers
        self._in_memory: dict[Panel, Array] = {}
        self._in_store: dict[Panel, tuple[tuple[int, int], Future[None]]] = {}
        self._made: set[str] = set()

    def reserve(self, weight: str, shape: Sequence[int]) -> None:
        """Make room in the store for the gradient of a weight."""
        if self.room.limit_bytes is not None and weight not in self._made:
            self._store.create(_array(weight), shape, scratch=True)
            self._made.add(weight)

    def keep(self, panel: Panel, gradient: Array) -> None:
        """Keep a gradient, float32, of the rows of a panel; its buffer is no longer the caller's."""
        if panel.weight not in self._made:
            self._in_memory[panel] = gradient
            return
        span = self._arrays.span(panel)
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

    def let_go(self, panel: Panel, gradient: Array | None) -> None:
        """Let go of a gradient that is done with; None where it waits in the store."""
        if gradient is None:
            del self._in_store[panel]
        else:
            # The room last: a thread that waits for it takes the buffer, too.
            self.buffers.give_back(gradient)
            self.room.give_back(gradient.nbytes)

    def drop(self, panel: Panel) -> None:
        """Let go of a gradient that is not to be applied, wherever it waits."""
        gradient = self.take(panel)
        if gradient is None:
            # The sources must not write there any more when the gradient of the next step does.
            self.sources(panel)
        self.let_go(panel, gradient)

    def fetch(self, panel: Panel) -> Array:
        """Hand out a gradient, wherever it waits."""
        gradient = self.take(panel)
        if gradient is not None:
            self.room.give_back(gradient.nbytes)
            return gradient
        (start, stop), written = self._in_store.pop(panel)
        written.result()
        shape = self._store.shape(_array(panel.weight))
        # The caller takes no room for it: the room given back when it went to the store is enough for a while.
        buffer = self.buffers.take((stop - start, *shape[1:]))
        self._store.read(_array(panel.weight), start, buffer)
        return buffer

    def _write(self, panel: Panel, span: tuple[int, int], gradient: Array) -> None:
        with self.room.closed_by_errors():
            self._store.write(_array(panel.weight), span[0], gradient)
            self.let_go(panel, gradient)


def _array(weight: str) -> str:
    return f"gradient.{weight}"


class NoGradient(Enum):
    """A gradient that is zero, as for an expert that no token chose: it takes no memory."""

    ZERO = "zero"


class ArrivingGradients:
    """Puts the sums that ops send together to the gradient of a panel."""

    def __init__(self, arrays: ModelArrays, waiting: WaitingGradients) -> None:
        self._arrays, self._waiting = arrays, waiting
        self._takes_none = arrays.kept.whole_optimizer is None
        """whether `NoGradient` is taken, or zeros"""
        graph = arrays.graph
        self.uses = {name: [op.name for op in reversed(graph.ops) if name in op.weights] for name in graph.weights}
        """ops that send gradients of a weight, in the order in which their sums are added"""
        self._arrived: dict[Panel, dict[str, Payload | None]] = {}
        """sums of panels that other ops use, too; None for one that waits with the others"""
        self._lock = threading.Lock()

    def add(self, panel: Panel, op: str, payload: Payload, draw: Draw | None) -> Array | NoGradient | None:
        """Take the sum of one op, with its buffer; give the gradient of the panel once it is complete, else None.

        Of a sparse weight it has the numbers of the non-zeros, or all where RigL asks for them.
        """
        arrived = self._complete(panel, op, payload)
        if arrived is None:
            return None
        sums = [arrived[use] for use in self.uses[panel.weight]]
        gradient, *others = [self._waiting.fetch(panel) if found is None else found for found in sums]
        if panel.weight in self._arrays.dropped and draw is not None and isinstance(gradient, np.ndarray):
            numbers, gradient = gradient, self._arrays.dropped[panel.weight].gradient(panel, gradient, draw)
            self._waiting.buffers.give_back(numbers)
        if not isinstance(gradient, np.ndarray):
            if self._takes_none and not others and not len(gradient.indices):
                return NoGradient.ZERO
            rows, gradient = gradient, self._waiting.buffers.take(panel.shape)
            gradient.fill(0)
            add_to_dense(rows, gradient)
        for other in others:
            add_to_dense(other, gradient)
            self._waiting.buffers.give_back(other)
        return gradient

    def _complete(self, panel: Panel, op: str, payload: Payload) -> dict[str, Payload | None] | None:
        """Keep the sum of an op; give the sums of all its ops once they are there."""
        uses = self.uses[panel.weight]
        if len(uses) == 1:
            return {op: payload}
        waits = payload if isinstance(payload, np.ndarray) else None
        if waits is not None:
            self._waiting.room.take(waits.nbytes)
        with self._lock:
            arrived = self._arrived.setdefault(panel, {})
            is_complete = len(arrived) + 1 == len(uses)
            keeps = waits is not None and not is_complete and all(found is not None for found in arrived.values())
            arrived[op] = None if keeps else payload
            if is_complete:
                del self._arrived[panel]
            if waits is not None and keeps:
                self._waiting.keep(panel, waits)
        if waits is not None and not keeps:
            self._waiting.room.give_back(waits.nbytes)
        return arrived if is_complete else None
