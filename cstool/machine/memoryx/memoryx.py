"""MemoryX: where the weights and the optimizer state live; it streams the former and applies the optimizer.

Two paths of update. Without a global norm a panel is updated as soon as its gradient is complete, while backward still
runs. With one, gradients wait here; each panel is updated in the order of the next stream, which overlaps the next
forward pass, and whoever acquires a panel waits for its update alone.

Either way nobody reads a panel between its update and the end of the step. A gradient is complete when every op that
uses the weight has sent that of every grain; a grain sends it when it runs such an op backward, and a layer that is
recomputed has run it forward again before that.

Of a sparse weight it keeps, streams and updates the non-zeros alone; `SparseWeight` says where they are. All else is
the same for dense and sparse.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cstool.errors import NonFiniteError
from cstool.ir import Graph, Panel, panels_of
from cstool.kernels.optimizer import first_non_finite, sum_squares
from cstool.kernels.payload import Payload, Weights, add_to_dense
from cstool.kernels.random import fill
from cstool.kernels.sparse import SparseMatrix, collect
from cstool.machine.memoryx.dropconnect import Draw, DroppedWeight
from cstool.machine.memoryx.optimizer import Optimizer, Step
from cstool.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.machine.memoryx.step_statistics import StepStatistics
from cstool.machine.memoryx.waiting import Room, WaitingGradients
from cstool.machine.recorder import NOTHING, Recorder
from cstool.machine.swarmx import BufferPool
from cstool.random_keys import key_of
from cstool.store import FileStore, Store, write_snapshot

Array = np.ndarray[Any, Any]


DENSE = SparsityRules()
"""no weight is sparse"""


class _Loan:
    """A panel that is out. Its mask may change before the last lane gives it back."""

    def __init__(self) -> None:
        self.users = 0
        """how many hold it, or wait for it"""
        self.out: Future[tuple[tuple[int, int], Array, Weights]] = Future()
        """the span of the store that was lent, its array, and that as it streams; once whoever came first has it"""


class MemoryX:
    """Owns the arrays of a model behind a `Store`.

    Args:
        graph: names and shapes of the weights, and which ops use them
        store: an empty store; MemoryX creates its arrays in it
        optimizer: None for a run that only evaluates
        max_gradient_norm: clip the gradients to this global norm; None for not at all
        learning_rate_scales: what the learning rate is multiplied by, for weights where that is not 1
        buffers: where gradient buffers go when they are used up
        workers: run updates beside the systems
        sparsity: which weights are sparse
        waiting_bytes: what gradients that wait for their update may take; None for no limit: those that wait for long
            are in the store, then
    """

    def __init__(
        self,
        graph: Graph,
        store: Store,
        optimizer: Optimizer | None,
        max_gradient_norm: float | None,
        learning_rate_scales: Mapping[str, float],
        buffers: BufferPool,
        workers: Executor,
        sparsity: SparsityRules = DENSE,
        waiting_bytes: int | None = None,
    ) -> None:
        self.graph = graph
        self.store = store
        self.optimizer = optimizer
        self.max_gradient_norm = max_gradient_norm
        self.learning_rate_scales = learning_rate_scales
        self.panels: Mapping[str, tuple[Panel, ...]] = {n: panels_of(w) for n, w in graph.weights.items()}
        self.buffers = buffers
        self.waited_s = 0.0
        """time that lanes waited for a panel [s], summed over the lanes"""
        self.commit_waited_s = 0.0
        """time that steps waited for the commit before the last one [s]"""
        self.recorder: Recorder | None = None
        """takes down updates and commits; None where nobody wants to know"""
        self.statistics = StepStatistics()
        """of the step, where anybody looks at it"""
        self._workers = workers
        self._uses = {name: [op.name for op in reversed(graph.ops) if name in op.weights] for name in graph.weights}
        """ops that send gradients of a weight, in the order in which their sums are added"""
        self._lock = threading.Lock()
        self._loans: dict[Panel, _Loan] = {}
        """what is out"""
        self._arrived: dict[Panel, dict[str, Payload | None]] = {}
        """sums of panels that other ops use, too; None for one that waits with the others"""
        self._room = Room(waiting_bytes)
        self._waiting = WaitingGradients(store, buffers, workers, self._room)
        self._sum_squares: dict[Panel, float] = {}
        self._updates: dict[Panel, Future[None]] = {}
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._commit: Future[None] | None = None
        """the last commit, under way or done"""
        self._whole: dict[str, dict[Panel, Array | None]] = {}
        """gradients of weights whose mask changes after the step, until those of all panels are there"""
        self._dense_gradients: dict[Panel, Array] = {}
        """of sparse weights whose mask changes by them"""
        self._step = Step(0, 0.0, 1.0)
        self._draw: Draw | None = None
        """what is left out of the weights that are dropped from; None: nothing"""
        self.sparse: dict[str, SparseWeight] = {}
        """weights of which the non-zeros alone are kept"""
        self.dropped: dict[str, DroppedWeight] = {}
        """weights of which another part streams at every step"""
        for name, weight in graph.weights.items():
            arrays = self.arrays_of(name)
            group = sparsity.groups.get(name)
            if group is not None and group.algorithm != "dropconnect":
                self.sparse[name] = SparseWeight(weight, self.panels[name], sparsity, store, arrays)
                continue
            if group is not None:
                self.dropped[name] = DroppedWeight(weight, self.panels[name], sparsity, buffers.take)
            for array in arrays:
                store.create(array, weight.shape)

    def arrays_of(self, weight: str) -> list[str]:
        """Return the names of a weight's arrays in the store, the weight itself first."""
        states = self.optimizer.states if self.optimizer else ()
        return [f"model.{weight}", *(f"optimizer.{weight}.{state}" for state in states)]

    @property
    def array_names(self) -> list[str]:
        """Names of all arrays, weight by weight."""
        return [array for weight in self.graph.weights for array in self.arrays_of(weight)]

    def room(self, weight: str) -> int:
        """Return how many numbers each array of a weight has room for."""
        sparse = self.sparse.get(weight)
        return self.graph.weights[weight].size if sparse is None else sparse.capacity or 0

    @property
    def kept_bytes(self) -> int:
        """Of all numbers, weights and optimizer state, without the room that is made for more [bytes]."""
        numbers = {n: s.count for n, s in self.sparse.items()}
        return sum(4 * numbers.get(n, w.size) * len(self.arrays_of(n)) for n, w in self.graph.weights.items())

    def initialize(self, seed: int) -> None:
        """Fill the weights as the graph says, each element from its own random number."""

        def fill_rows(panel: Panel, array: Array) -> None:
            weight = self.graph.weights[panel.weight]
            how, start = weight.initializer, panel.start * (weight.size // weight.shape[0])
            fill(how.name, key_of(seed, panel.weight), start, array.reshape(-1), how.mean, how.std, how.low, how.high)

        def fill_panel(panel: Panel) -> None:
            array = self.store.borrow(f"model.{panel.weight}", panel.start, panel.stop, fresh=True)
            fill_rows(panel, array)
            self.store.give_back(f"model.{panel.weight}", panel.start, panel.stop, array, changed=True)

        def begin(sparse: SparseWeight) -> None:
            dense = np.empty(sparse.shape, np.float32)
            for panel in sparse.panels:
                fill_rows(panel, dense[panel.start : panel.stop])
            sparse.begin(dense)

        dense_panels = [p for name, panels in self.panels.items() if name not in self.sparse for p in panels]
        filling = [self._workers.submit(fill_panel, panel) for panel in dense_panels]
        filling += [self._workers.submit(begin, sparse) for sparse in self.sparse.values()]
        for future in filling:
            future.result()

    @property
    def room_waited_s(self) -> float:
        """Time that lanes waited until gradients before theirs had gone [s], summed over the lanes."""
        return self._room.waited_s

    @property
    def lanes_waited_s(self) -> float:
        """Time that lanes waited for panels, updates and room for gradients [s], summed over the lanes."""
        return self.waited_s + self.room_waited_s

    def reserve(self) -> None:
        """Make room in the store for gradients that will wait there; the weights are there already."""
        if self.optimizer is None:
            return
        for name, weight in self.graph.weights.items():
            sparse = self.sparse.get(name)
            if self.max_gradient_norm is not None or (sparse is not None and sparse.group.is_dynamic):
                self._waiting.reserve(name, weight.shape if sparse is None else (sparse.capacity or 1,))
            elif len(self._uses[name]) > 1 and sparse is None and name not in self.dropped:
                self._waiting.reserve(name, weight.shape)

    def span(self, panel: Panel) -> tuple[int, int]:
        """Return which rows (of a sparse weight: elements) of its arrays in the store are those of a panel."""
        sparse = self.sparse.get(panel.weight)
        return (panel.start, panel.stop) if sparse is None else sparse.span(panel)

    def sparse_shapes(self) -> list[tuple[int, int]]:
        """Return (rows, columns) of all panels that stream without their zeros."""
        panels = [panel for name in (*self.sparse, *self.dropped) for panel in self.panels[name]]
        return [(p.stop - p.start, p.size // (p.stop - p.start)) for p in panels]

    def stream_bytes(self, panel: Panel) -> int:
        """Return what streams when a panel is sent out [bytes]."""
        if self._draw is not None and panel.weight in self.dropped:
            pattern = self.dropped[panel.weight].pattern(panel, self._draw)
            return 4 * pattern.count + pattern.size_bytes
        sparse = self.sparse.get(panel.weight)
        if sparse is None:
            return 4 * panel.size
        return 4 * sparse.pattern(panel).count + sparse.pattern(panel).size_bytes

    def acquire(self, panel: Panel) -> Weights:
        """Return the weights of a panel, to be read until `release`; waits for an update that is under way."""
        began = time.perf_counter()
        if (update := self._updates.get(panel)) is not None:
            update.result()
        with self._lock:
            loan = self._loans.setdefault(panel, _Loan())
            loan.users += 1
            is_first = loan.users == 1
        if is_first:
            # Not under the lock: this may wait until another lane gives something back.
            try:
                span = self.span(panel)
                array = self.store.borrow(f"model.{panel.weight}", *span)
                self.statistics.add_weights(panel, array)
                loan.out.set_result((span, array, self._as_streamed(panel, array)))
            except BaseException as error:
                loan.out.set_exception(error)
        try:
            _, _, weights = loan.out.result()
        except BaseException:
            with self._lock:
                self._returned(panel, loan)
            raise
        with self._lock:
            self.waited_s += time.perf_counter() - began
        return weights

    def _returned(self, panel: Panel, loan: _Loan) -> bool:
        """Count one user less, and say whether it was the last."""
        loan.users -= 1
        if not loan.users:
            del self._loans[panel]
        return not loan.users

    def _as_streamed(self, panel: Panel, array: Array) -> Weights:
        if self._draw is not None and panel.weight in self.dropped:
            return self.dropped[panel.weight].as_streamed(panel, array, self._draw)
        sparse = self.sparse.get(panel.weight)
        if sparse is None:
            return array
        wants_dense = self.optimizer is not None and sparse.wants_dense_gradient(self._step.number)
        pattern, room = sparse.pattern(panel), sparse.room(panel)
        return SparseMatrix(pattern, array, sparse.choice(panel), wants_dense, room, self.buffers.take)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        with self._lock:
            loan = self._loans[panel]
            if not self._returned(panel, loan):
                return
        span, array, weights = loan.out.result()
        if isinstance(weights, SparseMatrix) and weights.written_out is not None:
            self.buffers.give_back(weights.written_out)
        if isinstance(weights, SparseMatrix) and panel.weight in self.dropped:
            self.buffers.give_back(weights.values)
        self.store.give_back(f"model.{panel.weight}", *span, array, changed=False)

    @contextmanager
    def held(self, panel: Panel) -> Iterator[Weights]:
        """Lend the weights of a panel for the length of a context."""
        weights = self.acquire(panel)
        try:
            yield weights
        finally:
            self.release(panel)

    def expect(self, stream: Sequence[Panel], apart: int) -> None:
        """Say in which order panels will be acquired, so that the store can fetch them ahead.

        Args:
            stream: all panels of a batch, each as often as it streams
            apart: how many panels the fastest lane may be ahead of the slowest
        """
        self.store.expect([(f"model.{panel.weight}", *self.span(panel)) for panel in stream], apart)

    def begin_step(self, step: int, learning_rate: float) -> None:
        """Say which step the gradients that arrive from now on belong to (steps count from 1)."""
        self._step = Step(step, learning_rate, 1.0)
        self._draw = Draw(step)

    def begin_evaluation(self, step: int, sample: int | None) -> None:
        """Say what streams from now on: all of every weight, or one of the masks that an evaluation averages over."""
        self._draw = None if sample is None else Draw(step, sample)

    def receive(self, panel: Panel, op: str, payload: Payload) -> None:
        """Take the sum of a panel's gradient from one op; MemoryX owns its buffer from now on."""
        uses = self._uses[panel.weight]
        waits = payload if len(uses) > 1 and isinstance(payload, np.ndarray) else None
        if waits is not None:
            self._room.take(waits.nbytes)
        with self._lock:
            arrived = self._arrived.setdefault(panel, {})
            complete = len(arrived) + 1 == len(uses)
            keeps = waits is not None and not complete and all(found is not None for found in arrived.values())
            arrived[op] = None if keeps else payload
            if complete:
                del self._arrived[panel]
            if waits is not None and keeps:
                self._waiting.keep(panel, self.span(panel), waits)
        if waits is not None and not keeps:
            self._room.give_back(waits.nbytes)
        if not complete:
            return
        sums = [arrived[use] for use in uses]
        gradient, *others = [self._waiting.fetch(panel) if found is None else found for found in sums]
        if panel.weight in self.dropped and self._draw is not None and isinstance(gradient, np.ndarray):
            numbers, gradient = gradient, self.dropped[panel.weight].gradient(panel, gradient, self._draw)
            self.buffers.give_back(numbers)
        if not isinstance(gradient, np.ndarray):
            rows, gradient = gradient, self.buffers.take(panel.shape)
            gradient.fill(0)
            add_to_dense(rows, gradient)
        for other in others:
            add_to_dense(other, gradient)
            self.buffers.give_back(other)
        sparse = self.sparse.get(panel.weight)
        if sparse is not None and sparse.wants_dense_gradient(self._step.number):
            self._dense_gradients[panel] = gradient
            gradient = self.buffers.take((sparse.pattern(panel).count,), sparse.room(panel))
            collect(sparse.pattern(panel), self._dense_gradients[panel], gradient)
        self._room.take(gradient.nbytes)
        if self.max_gradient_norm is not None or self.statistics.looks_at_norms:
            self._sum_squares[panel] = sum_squares(gradient.reshape(-1))
            self.statistics.add_gradient(panel, self._sum_squares[panel])
        if self.max_gradient_norm is not None:
            self._waiting.keep(panel, self.span(panel), gradient)
        elif sparse is not None and sparse.changes_after(self._step.number):
            # It waits for those of the other panels, which need room, too.
            self._waiting.keep(panel, self.span(panel), gradient)
            self._begin_update(panel, self._waiting.take(panel), self._step)
        else:
            self._begin_update(panel, gradient, self._step)

    def finish_step(self) -> float | None:
        """End a step: with clipping, compute the global norm and let the updates begin.

        Returns:
            the global norm of the gradient before clipping, or None where nobody asked for it

        Raises:
            NonFiniteError: naming the first gradient that has NaN or infinity
        """
        if self.max_gradient_norm is None:
            return None
        order = [panel for panels in self.panels.values() for panel in panels]
        norm = math.sqrt(math.fsum(self._sum_squares[panel] for panel in order))
        if not math.isfinite(norm):
            # A sum of squares of finite float32 numbers does not overflow in float64: one of them is not.
            bad = next(panel for panel in order if not math.isfinite(self._sum_squares[panel]))
            raise NonFiniteError(f"step {self._step.number}: the gradient of {bad.weight} is not finite")
        # Source: torch.nn.utils.clip_grad_norm_, whose small constant is kept for equal numbers.
        scale = min(1.0, self.max_gradient_norm / (norm + 1e-6))
        step = Step(self._step.number, self._step.learning_rate, scale)
        for panel in order:
            self._begin_update(panel, self._waiting.take(panel), step)
        self._sum_squares.clear()
        return norm

    def commit(self, values: Callable[[], Mapping[str, Any]]) -> None:
        """Let the step that has just been finished be committed, once its last update is; the next may begin meanwhile.

        Args:
            values: returns what else a checkpoint would hold, when all updates have been applied

        Raises:
            StoreError: the commit before could not be made
        """
        if self._commit is not None:
            began = time.perf_counter()
            self._commit.result()
            self.commit_waited_s += time.perf_counter() - began
        updates = list(self._updates.values())
        self._commit = self._committer.submit(self._make_commit, self._step.number, updates, values)

    def _make_commit(self, step: int, updates: Sequence[Future[None]], values: Callable[[], Mapping[str, Any]]) -> None:
        assert isinstance(self.store, FileStore), "who asks for commits has a store that can"
        with self._recorded_commit(step, "wait"):
            for update in updates:
                update.result()
        links = {f"model.{alias}": f"model.{weight}" for alias, weight in self.graph.aliases.items()}
        with self._recorded_commit(step, "commit"):
            self.store.commit(values(), links)

    def _recorded_commit(self, step: int, name: str) -> AbstractContextManager[None]:
        return NOTHING if self.recorder is None else self.recorder.commit(step, name)

    def snapshot(self, path: Path) -> Future[tuple[int, float]]:
        """Let a checkpoint be written from the last commit asked for; the next steps may begin meanwhile.

        The commit after it waits for it, and the updates after that for that commit: until then nobody overwrites what
        is copied.

        Returns:
            bytes of its tensors, and the seconds that it took
        """
        assert isinstance(self.store, FileStore), "who asks for snapshots has a store that can"
        names = [
            name
            for weight in self.graph.weights
            for name in (
                *((self.sparse[weight].indices_array,) if weight in self.sparse else ()),
                *self.arrays_of(weight),
            )
        ]
        return self._committer.submit(self._write_snapshot, path, self.store.path, names)

    @staticmethod
    def _write_snapshot(path: Path, store: Path, names: Sequence[str]) -> tuple[int, float]:
        began = time.perf_counter()
        return write_snapshot(path, store, names), time.perf_counter() - began

    def drain(self) -> None:
        """Wait until every update that is under way has been applied, and every commit been made."""
        for update in self._updates.values():
            update.result()
        self._updates.clear()
        if self._commit is not None:
            self._commit.result()

    def close(self) -> None:
        """Wait for a commit that is under way, and end the thread that makes them."""
        self._committer.shutdown()

    def chunks(self, array: str) -> Generator[Array, None, None]:
        """Yield an array by panels, for a checkpoint; `drain` first, close it if it is not used up.

        One of a sparse weight comes without its zeros, in the order of `SparseWeight.indices`.
        """
        weight = self._weight_of(array)
        if weight in self.sparse:
            yield from self.sparse[weight].read(array)
            return
        for panel in self.panels[weight]:
            part = self.store.borrow(array, panel.start, panel.stop)
            try:
                yield part
            finally:
                self.store.give_back(array, panel.start, panel.stop, part, changed=False)

    def load(self, array: str, read: Callable[[Array, int, int], object]) -> None:
        """Fill an array by panels with read(out, start, stop), rows of a dense weight, elements of a sparse one."""
        weight = self._weight_of(array)
        if weight in self.sparse:
            sparse = self.sparse[weight]
            numbers = np.empty(sparse.count, np.float32)
            read(numbers, 0, sparse.count)
            sparse.write(array, numbers)
            return
        for panel in self.panels[weight]:
            part = self.store.borrow(array, panel.start, panel.stop, fresh=True)
            read(part, panel.start, panel.stop)
            self.store.give_back(array, panel.start, panel.stop, part, changed=True)

    def _weight_of(self, array: str) -> str:
        weight = array.removeprefix("model.")
        return weight if weight in self.panels else array.removeprefix("optimizer.").rpartition(".")[0]

    def _begin_update(self, panel: Panel, gradient: Array | None, step: Step) -> None:
        """Let a panel be updated; where the mask of its weight changes then, once all its panels can be.

        The gradient is None where it waits in the store. The slots that an update writes to are free once the step
        before has been committed.
        """
        sparse, committed = self.sparse.get(panel.weight), self._commit
        if sparse is None or not sparse.changes_after(step.number):
            self._updates[panel] = self._workers.submit(self._update, panel, gradient, step, committed)
            return
        with self._lock:
            gradients = self._whole.setdefault(panel.weight, {})
            gradients[panel] = gradient
            if len(gradients) < len(sparse.panels):
                return
            del self._whole[panel.weight]
        update = self._workers.submit(self._update_and_change, sparse, gradients, step, committed)
        self._updates.update(dict.fromkeys(gradients, update))

    def _update_and_change(
        self, sparse: SparseWeight, gradients: Mapping[Panel, Array | None], step: Step, committed: Future[None] | None
    ) -> None:
        """Apply the optimizer to all panels of a weight, then change its mask."""
        with self._room.closed_by_errors():
            for panel in sparse.panels:
                self._apply(panel, gradients[panel], step, committed)
            dense = None
            if sparse.wants_dense_gradient(step.number):
                parts = [self._dense_gradients.pop(panel) for panel in sparse.panels]
                dense = np.concatenate(parts)
                for part in parts:
                    self.buffers.give_back(part)
            with self._recorded_update(step, sparse.panels[0], "mask"):
                sparse.change_mask(step.number, dense)

    def _update(self, panel: Panel, gradient: Array | None, step: Step, committed: Future[None] | None) -> None:
        """Apply the optimizer to one panel."""
        with self._room.closed_by_errors():
            self._apply(panel, gradient, step, committed)

    def _apply(self, panel: Panel, gradient: Array | None, step: Step, committed: Future[None] | None) -> None:
        optimizer = self.optimizer
        assert optimizer is not None
        if committed is not None:
            began = time.perf_counter()
            committed.result()
            if self.recorder is not None:
                self.recorder.waited_for_commit(step.number, began)
        start, stop = self.span(panel)
        scale, decays = self.learning_rate_scales.get(panel.weight, 1.0), self.graph.weights[panel.weight].decays
        step = step._replace(learning_rate=step.learning_rate * scale)

        def change(tiles: list[Array], first: int, last: int) -> None:
            rows = tiles.pop() if gradient is None else gradient[first - start : last - start]
            weight, *states = (tile.reshape(-1) for tile in tiles)
            optimizer.update(weight, rows.reshape(-1), states, step, decays)
            if self.store.outlives and first_non_finite(weight) >= 0:
                # Before it is committed: who goes on from a commit must be able to.
                raise NonFiniteError(
                    f"step {step.number}: the weight {panel.weight} is not finite after its update",
                    "a lower learning rate, max_gradient_norm or a longer warm-up may help",
                )

        with self._recorded_update(step, panel, "update"):
            self.store.rewrite(self.arrays_of(panel.weight), start, stop, change, self._waiting.sources(panel))
        if gradient is None:
            self._waiting.drop(panel)
        else:
            # The room last: whoever waits for it takes the buffer, too.
            self.buffers.give_back(gradient)
            self._room.give_back(gradient.nbytes)

    def _recorded_update(self, step: Step, panel: Panel, what: str) -> AbstractContextManager[None]:
        return NOTHING if self.recorder is None else self.recorder.update(step.number, panel, what)
