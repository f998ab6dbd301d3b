"""The weight stream: panels out of the store as they are asked for, each lent once to all lanes."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.bfloat16 import BFLOAT16, convert
from cstool.training.kernels.call import Weights
from cstool.training.kernels.sparse import Pattern, SparseMatrix
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.dropconnect import Draw, DroppedWeight
from cstool.training.machine.memoryx.step_statistics import StepStatistics

Array = np.ndarray[Any, Any]


class _Loan:
    """A panel that is out. Its mask may change before the last lane gives it back."""

    def __init__(self) -> None:
        self.users = 0
        """number of lanes that hold it, or wait for it"""
        self.out: Future[tuple[tuple[int, int], Array, Weights]] = Future()
        """span of the lent array in the store, the array, and its weights as they stream; the first reader sets it"""


class WeightStream:
    """Lends panels of weights.

    Args:
        updates: under way, by panel: the reader of a panel waits for its own
        buffers: lend the buffers into which sparse weights are expanded
        trains: whether sparse weights may be asked for the gradients of their zeros
    """

    def __init__(
        self,
        arrays: ModelArrays,
        updates: Mapping[Panel, Future[None]],
        buffers: BufferPool,
        statistics: StepStatistics,
        *,
        trains: bool,
    ) -> None:
        self.step = 0
        """the step that runs"""
        self.draw: Draw | None = None
        """the draw of DropConnect masks; None: no weight is dropped"""
        self.waited_s = 0.0
        """time that lanes waited for a panel [s], summed over the lanes"""
        self._arrays, self._updates, self._buffers, self._trains = arrays, updates, buffers, trains
        self._statistics = statistics
        self._loans: dict[Panel, _Loan] = {}
        self._standing: dict[Panel, Array | None] = {}
        """panels so far, with the array of the store where it streams as it stands: lanes are pointed at it"""
        self._lock = threading.Lock()

    def expect(self, stream: Sequence[Panel], apart: int, *, skips: bool) -> None:
        """Announce the order in which panels will be acquired, so that the store can fetch them ahead.

        Args:
            stream: all panels of a batch, each as often as it streams; panels of other nodes do not count
            apart: largest lead of the fastest lane over the slowest [panels]
            skips: whether panels of experts are acquired only once `want` has named them
        """
        arrays = self._arrays
        if arrays.store.in_place:
            return
        own = (panel for panel in stream if arrays.shards.node_of(panel) == arrays.node)
        order = [self._rows(panel) for panel in own]
        doubtful = frozenset(map(arrays.streamed, arrays.of_experts)) if skips else frozenset()
        arrays.store.expect(order, apart, doubtful)

    def want(self, panels: Sequence[Panel], times: int) -> None:
        """Announce the panels of experts that will be acquired, and the number of times of each."""
        if not self._arrays.store.in_place:
            self._arrays.store.want([self._rows(panel) for panel in panels], times)

    def _rows(self, panel: Panel) -> tuple[str, int, int]:
        """Rows of the store that an own panel streams from."""
        return self._arrays.streamed(panel.weight), *self._arrays.span(panel)

    def panel_bytes(self, panel: Panel) -> int:
        """Traffic of a panel that is sent out [bytes]."""
        pattern = self._pattern(panel)
        number_bytes = 2 if panel.weight in self._arrays.narrow else 4
        return number_bytes * panel.size if pattern is None else number_bytes * pattern.count + pattern.size_bytes

    def gradient_bytes(self, panel: Panel) -> int:
        """Traffic of a sum of gradients of a panel, if all rows have one and zeros need none [bytes]."""
        pattern = self._pattern(panel)
        return 4 * (panel.size if pattern is None else pattern.count)

    def _pattern(self, panel: Panel) -> Pattern | None:
        """Where the non-zeros of a panel are as it streams now; None of a dense one."""
        if self.draw is not None and panel.weight in self._arrays.dropped:
            return self._arrays.dropped[panel.weight].pattern(panel, self.draw)
        sparse = self._arrays.sparse.get(panel.weight)
        return None if sparse is None else sparse.pattern(panel)

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`; waits for an update that is under way."""
        began = time.perf_counter()
        if (update := self._updates.get(panel)) is not None:
            update.result()
        standing = self.where_it_stands(panel)
        if standing is None:
            weights = self._lend(panel)
        else:
            self._look_at(panel, standing)
            weights = standing
        with self._lock:
            self.waited_s += time.perf_counter() - began
        return weights

    def where_it_stands(self, panel: Panel) -> Array | None:
        """The array of the store that a panel streams as; None if it is fetched, or made from stored arrays."""
        if panel not in self._standing:
            self._standing[panel] = self._find_standing(panel)
        return self._standing[panel]

    def forget(self, weight: str) -> None:
        """Let go of the arrays of a weight that nobody will acquire again."""
        self._standing = {panel: array for panel, array in self._standing.items() if panel.weight != weight}

    def _find_standing(self, panel: Panel) -> Array | None:
        arrays, name = self._arrays, self._arrays.streamed(panel.weight)
        if not arrays.store.in_place or panel.weight in arrays.sparse or panel.weight in arrays.dropped:
            return None
        array = arrays.store.borrow(name, *arrays.span(panel))
        arrays.store.give_back(name, *arrays.span(panel), array, changed=False)
        return array if panel.weight not in arrays.narrow or array.dtype == BFLOAT16 else None

    def _lend(self, panel: Panel) -> Weights:
        """Lend a panel to all lanes that ask before the last of them has given it back."""
        with self._lock:
            loan = self._loans.setdefault(panel, _Loan())
            loan.users += 1
            is_first = loan.users == 1
        if is_first:
            # Not under the lock: this may wait until another lane gives something back.
            try:
                span = self._arrays.span(panel)
                array = self._arrays.store.borrow(self._arrays.streamed(panel.weight), *span)
                self._look_at(panel, array)
                loan.out.set_result((span, array, self._as_streamed(panel, array)))
            except BaseException as error:
                loan.out.set_exception(error)
        try:
            _, _, weights = loan.out.result()
        except BaseException:
            with self._lock:
                self._returned(panel, loan)
            raise
        return weights

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        if self._standing.get(panel) is not None:
            return
        with self._lock:
            loan = self._loans[panel]
            if not self._returned(panel, loan):
                return
        span, array, weights = loan.out.result()
        numbers, made = (weights.values, weights.made) if isinstance(weights, SparseMatrix) else (weights, {})
        assert isinstance(numbers, np.ndarray)
        for lent in (*made.values(), *(() if numbers is array else (numbers,))):
            self._buffers.give_back(lent)
        self._arrays.store.give_back(self._arrays.streamed(panel.weight), *span, array, changed=False)

    def _returned(self, panel: Panel, loan: _Loan) -> bool:
        """Count one user less, and return whether it was the last."""
        loan.users -= 1
        if not loan.users:
            del self._loans[panel]
        return not loan.users

    def _as_streamed(self, panel: Panel, array: Array) -> Weights:
        if self.draw is not None and panel.weight in self._arrays.dropped:
            return self._without_dropped(self._arrays.dropped[panel.weight], panel, array, self.draw)
        sparse = self._arrays.sparse.get(panel.weight)
        if sparse is None:
            return self._narrowed(panel, array)
        wants_dense = self._trains and sparse.wants_dense_gradient(self.step)
        pattern, room = sparse.pattern(panel), sparse.room(panel)
        values = self._narrowed(panel, array, room)
        return SparseMatrix(pattern, values, sparse.choice(panel), wants_dense, room, self._buffers.take)

    def _without_dropped(self, dropped: DroppedWeight, panel: Panel, array: Array, draw: Draw) -> SparseMatrix:
        """A panel without the weights that are left out; its values are lent."""
        numbers = dropped.values(panel, array, draw)
        values, pattern = self._narrowed(panel, numbers, panel.size), dropped.pattern(panel, draw)
        if values is not numbers:
            self._buffers.give_back(numbers)
        return SparseMatrix(pattern, values, dropped.choice(panel, draw), False, panel.size, self._buffers.take)

    def _narrowed(self, panel: Panel, array: Array, room: int = 0) -> Array:
        """Numbers of a panel in the precision in which it streams: these, or rounded in memory that is lent."""
        if panel.weight not in self._arrays.narrow or array.dtype == BFLOAT16:
            return array
        rounded = self._buffers.take(array.shape, room, BFLOAT16)
        convert(np.atleast_2d(array), np.atleast_2d(rounded))
        return rounded

    def _look_at(self, panel: Panel, array: Array) -> None:
        """Add a panel to the statistics; for norms the float32 numbers that updates change, not rounded ones."""
        if not self._statistics.looks:
            return
        if array.dtype != BFLOAT16 or not self._statistics.looks_at_norms:
            self._statistics.add_weights(panel, array)
            return
        name, store, span = f"model.{panel.weight}", self._arrays.store, self._arrays.span(panel)
        numbers = store.borrow(name, *span)
        self._statistics.add_weights(panel, numbers)
        store.give_back(name, *span, numbers, changed=False)
