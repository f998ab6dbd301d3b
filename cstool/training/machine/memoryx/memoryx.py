"""MemoryX: where the weights and the optimizer state live; it streams the former and applies the optimizer.

`stream.py` lends panels, `gradients.py` sums the returned gradients, `updates.py` applies the optimizer, `commits.py`
makes a step last. A gradient is complete when every op that uses the weight has sent its part for every grain. A grain
sends it when it runs such an op backward, and a layer that is recomputed has run it forward again before that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from cstool.model.ir import Panel
from cstool.model.optimizers import Step
from cstool.training.kernels.call import Payload, Weights
from cstool.training.machine.buffers import BufferPool, in_flight_bytes
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.commits import Commits
from cstool.training.machine.memoryx.dropconnect import Draw
from cstool.training.machine.memoryx.elsewhere import NOWHERE, Elsewhere
from cstool.training.machine.memoryx.gradients import ArrivingGradients, WaitingGradients
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.owed import ExpertUse
from cstool.training.machine.memoryx.shards import Shards
from cstool.training.machine.memoryx.step_statistics import StepStatistics
from cstool.training.machine.memoryx.stream import WeightStream
from cstool.training.machine.memoryx.updates import Beside, Updates
from cstool.training.machine.recorder import Recorder
from cstool.training.store import RamStore, Store

Array = np.ndarray[Any, Any]


class MemoryX:
    """Owns the arrays of a model behind a `Store`; of several nodes, each has the arrays of its own panels.

    The first node begins, saves and loads for all of them. A step has each node do its part.

    Args:
        store: an empty store, in which MemoryX creates its arrays, and which it closes; None for memory
        threads: number of threads that run updates beside the systems
        waiting_bytes: limit of gradients that wait for their update; None for no limit: gradients that wait for long
            are in the store, then
        shards, node, elsewhere: see `ModelArrays`
    """

    def __init__(
        self,
        kept: KeptModel,
        *,
        store: Store | None = None,
        threads: int = 2,
        waiting_bytes: int | None = None,
        shards: Shards | None = None,
        node: int = 0,
        elsewhere: Elsewhere = NOWHERE,
    ) -> None:
        store = RamStore() if store is None else store
        buffers = BufferPool(None if waiting_bytes is None else waiting_bytes + in_flight_bytes(kept.graph))
        workers = ThreadPoolExecutor(threads, thread_name_prefix="memoryx")
        self.arrays = ModelArrays(kept, store, buffers, shards, node, elsewhere)
        self.optimizer = kept.optimizer
        self.buffers = buffers
        """of gradients"""
        self.statistics = StepStatistics()
        """of the step, if it is observed"""
        self.elsewhere = elsewhere
        self._workers = workers
        self._under_way: dict[Panel, Future[None]] = {}
        """updates, by panel"""
        self._waiting = WaitingGradients(self.arrays, buffers, workers, waiting_bytes)
        self._stream = WeightStream(self.arrays, self._under_way, buffers, self.statistics, trains=bool(kept.optimizer))
        self._gradients = ArrivingGradients(self.arrays, self._waiting)
        self.commits = Commits(self.arrays, elsewhere)
        self._updates = None
        if kept.optimizer is not None:
            beside = self._under_way, self.commits, workers, self._waiting, self.statistics
            self._updates = Updates(self.arrays, kept.optimizer, *beside)

    def __enter__(self) -> MemoryX:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def initialize(self, seed: int) -> None:
        """Fill the weights as the graph says, each element from its own random number."""
        wait = self.elsewhere.initialize(seed)
        self.arrays.initialize(seed, self._workers)
        wait()

    def reserve(self) -> None:
        """Make room in the store for gradients that will wait there; the weights are there already."""
        if self._updates is None:
            return
        self.elsewhere.reserve()
        arrays, kept = self.arrays, self.arrays.kept
        for name, weight in arrays.graph.trained_weights.items():
            if not arrays.own[name]:
                continue
            sparse = arrays.sparse.get(name)
            gathers = len(arrays.panels[name]) > 1 and kept.whole_optimizer is not None
            is_tied = len(self._gradients.uses[name]) > 1 and sparse is None and name not in arrays.dropped
            if kept.gradients_wait or gathers or is_tied or (sparse and sparse.group.is_dynamic):
                shape = (arrays.rows(name), *weight.shape[1:]) if sparse is None else (sparse.capacity or 1,)
                self._waiting.reserve(name, shape)

    # A step, in its order.

    def begin_step(self, step: int, learning_rate: float, loss_scale: float = 1.0, skipped: int = 0) -> None:
        """Begin a step: gradients that arrive from now on belong to it.

        Args:
            step: from 1
            loss_scale: factor on its gradients as they come
            skipped: number of skipped steps before it, which updated nothing
        """
        if self._updates is not None:
            self._updates.begin_step(step, learning_rate, loss_scale, skipped)
        self._stream.step, self._stream.draw = step, Draw(step)

    def begin_evaluation(self, step: int, sample: int | None) -> None:
        """Stream from now on all of every weight, or with one of the masks that an evaluation averages over."""
        self._stream.draw = None if sample is None else Draw(step, sample)

    def expect(self, stream: Sequence[Panel], apart: int, *, skips: bool = False) -> None:
        """Announce the own panels of a batch in order; see `WeightStream.expect`."""
        self._stream.expect(stream, apart, skips=skips)
        if self._updates is not None:
            self._updates.owed.wait = skips and not self.arrays.store.in_place

    def want(self, panels: Sequence[Panel], times: int) -> None:
        """Announce which panels of experts will be acquired; updates that they are owed begin."""
        for panel in panels:
            self._catch_up(panel)
        self._stream.want(panels, times)

    def _catch_up(self, panel: Panel) -> None:
        if self._updates is not None:
            self._updates.owed.catch_up(panel)

    def keeps(self, panel: Panel) -> bool:
        """Whether a panel is kept here."""
        return self.arrays.shards.node_of(panel) == self.arrays.node

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`; waits for an update that is under way."""
        self._catch_up(panel)
        return self._stream.acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._stream.release(panel)

    def forget(self, weight: str) -> None:
        """Let go of a dense weight in main memory that nobody will ask for again, where nothing is trained."""
        self._stream.forget(weight)
        if isinstance(self.arrays.store, RamStore):
            self.arrays.store.drop(self.arrays.streamed(weight))

    def receive(self, panel: Panel, op: str, payload: Payload) -> None:
        """Take the sum of a panel's gradient from one op, with its buffer; update the panel once all are there."""
        assert self._updates is not None, "who sends gradients trains"
        gradient = self._gradients.add(panel, op, payload, self._stream.draw)
        if gradient is not None:
            self._updates.take(panel, gradient)

    # For records that read panels and update them, see `tables.py`.

    def standing(self, panel: Panel) -> Array | None:
        """The array that a panel streams as in every step; None where it is fetched, or made from stored arrays."""
        return self._stream.where_it_stands(panel)

    def uses(self, weight: str) -> Sequence[str]:
        """Names of the ops that send gradients of a weight."""
        return self._gradients.uses[weight]

    def updated(self, panel: Panel) -> tuple[Array, list[Array], Array | None]:
        """What the update of a panel changes: its numbers, its state, and a copy that streams in bfloat16, if any."""
        arrays, store = self.arrays, self.arrays.store
        names, copy, span = arrays.of(panel.weight), arrays.streamed(panel.weight), arrays.span(panel)

        def view(name: str) -> Array:
            found = store.borrow(name, *span)
            store.give_back(name, *span, found, changed=False)
            return found

        numbers, *states = map(view, names)
        return numbers, states, None if copy == names[0] else view(copy)

    def settle(self, panels: Container[Panel]) -> None:
        """Wait for the updates of some panels."""
        for panel, update in list(self._under_way.items()):
            if panel in panels:
                update.result()

    def update_beside(self, beside: Beside | None) -> None:
        """Leave the updates of some panels in this step to others; None for no panels."""
        if self._updates is not None:
            self._updates.beside = beside

    def count_idle(self, panel: Panel) -> None:
        """Count a panel of an expert that no token chose, and that others have updated."""
        assert self._updates is not None, "who updates trains"
        self._updates.owed.count(panel)

    def take_squares(self, squares: Mapping[Panel, float]) -> None:
        """Take the sums of squares of gradients that others keep."""
        assert self._updates is not None, "who sends gradients trains"
        self._updates.take_squares(squares)

    @property
    def step(self) -> Step | None:
        """The step as updates see it whose gradients do not wait; None where they wait."""
        assert self._updates is not None, "who asks trains"
        return None if self._updates.gradients_wait else self._updates.step

    def finish_step(self) -> float | None:
        """End a step; see `Updates.finish_step`."""
        norm = self._updates.finish_step() if self._updates else None
        for seen in self.elsewhere.seen() if self.wants_to_see else ():
            self.statistics.add(seen)
        return norm

    @property
    def wants_to_see(self) -> bool:
        """Whether the statistics of the running step are wanted from the nodes."""
        return self.statistics.looks and (self.statistics.with_norms or bool(self.arrays.sparse))

    def commit(self, values: Callable[[], Mapping[str, Any]]) -> None:
        """Let the step that has just been finished be committed, once its last update is; the next may begin meanwhile.

        Values are the further contents of a checkpoint, when all updates have been applied.

        Raises:
            StoreError: the commit before could not be made
        """
        self.commits.begin(self._stream.step, self._all_updates(), values)

    def expect_commit(self) -> None:
        """Know, at another node than the first, that the step which was just finished will be committed."""
        self.commits.expect(self._stream.step, self._all_updates())

    def _all_updates(self) -> list[Future[None]]:
        """All updates of the steps so far, which have begun."""
        if self._updates is not None:
            self._updates.owed.catch_up_all()
        return list(self._under_way.values())

    def drain(self) -> None:
        """Wait until every update that is under way has been applied, and every commit been made, by all nodes."""
        for update in self._all_updates():
            update.result()
        self._under_way.clear()
        self.commits.drain()
        self.elsewhere.drain()

    def close(self) -> None:
        """Wait for a commit that is under way, drop updates of a step that will not be finished, close the store."""
        self.commits.close()
        self._workers.shutdown(cancel_futures=True)
        self.arrays.store.close()

    # Measurements of it.

    def memory_account(self) -> dict[str, int]:
        """Memory by purpose, of this node [bytes]."""
        arrays = self.arrays
        found = {"weights": arrays.weights_bytes, "optimizer_state": arrays.state_bytes}
        if arrays.file is not None:
            found = {"memoryx_buffers": arrays.file.allocated_bytes}
        if arrays.sparse:
            trains = self.optimizer is not None
            found["sparse_patterns"] = sum(sparse.pattern_bytes(trains) for sparse in arrays.own_sparse())
        return {**found, "gradients": self.buffers.allocated_bytes}

    def record(self, recorder: Recorder) -> None:
        """Have updates, commits and the requests to a file recorded from now on."""
        self.commits.recorder = recorder
        if self._updates is not None:
            self._updates.recorder = recorder
        if self.arrays.file is not None:
            self.arrays.file.observe(recorder.request)

    def stream_bytes(self, panel: Panel) -> int:
        """Traffic of a panel that is sent out [bytes]."""
        return self._stream.panel_bytes(panel)

    def gradient_bytes(self, panel: Panel) -> int:
        """Traffic of the gradient of a panel, if all its rows have gradients and its zeros need none [bytes]."""
        return self._stream.gradient_bytes(panel)

    @property
    def expert_use(self) -> ExpertUse | None:
        """Statistics of the gradients of experts that no token chose; None without training."""
        return None if self._updates is None else self._updates.owed.use

    @property
    def lanes_waited_s(self) -> float:
        """Time that lanes waited for panels, updates and room for gradients [s], summed over the lanes."""
        return self._stream.waited_s + self._waiting.room.waited_s
