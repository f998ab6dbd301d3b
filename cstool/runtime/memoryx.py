"""MemoryX: where the weights and the optimizer state live; it streams the former and applies the optimizer.

Two paths of update. Without a global norm a panel is updated as soon as its gradient is complete, while backward still
runs. With one, gradients wait here; each panel is updated in the order of the next stream, which overlaps the next
forward pass, and whoever acquires a panel waits for its update alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from cstool.errors import NonFiniteError
from cstool.ir import Graph, Panel, panels_of
from cstool.kernels.optimizer import first_non_finite, sum_squares
from cstool.kernels.payload import Payload, add_to_dense
from cstool.kernels.random import fill
from cstool.philox import key_of
from cstool.runtime.optimizer import Optimizer, Step
from cstool.runtime.swarmx import BufferPool
from cstool.store import Store

Array = np.ndarray[Any, Any]


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
        self._workers = workers
        self._uses = {name: [op.name for op in reversed(graph.ops) if name in op.weights] for name in graph.weights}
        """ops that send gradients of a weight, in the order in which their sums are added"""
        self._lock = threading.Lock()
        self._borrowed: dict[Panel, tuple[Array, int]] = {}
        self._arrived: dict[Panel, dict[str, Payload]] = {}
        self._gradients: dict[Panel, Array] = {}
        self._sum_squares: dict[Panel, float] = {}
        self._updates: dict[Panel, Future[None]] = {}
        self._step = Step(0, 0.0, 1.0)
        for name, weight in graph.weights.items():
            store.create(f"model.{name}", weight.shape)
            for state in optimizer.states if optimizer else ():
                store.create(f"optimizer.{name}.{state}", weight.shape)

    @property
    def array_names(self) -> list[str]:
        """Names of all arrays, weights first."""
        return self.store.names()

    def initialize(self, seed: int) -> None:
        """Fill the weights as the graph says, each element from its own random number."""

        def fill_panel(panel: Panel) -> None:
            weight = self.graph.weights[panel.weight]
            how, width = weight.initializer, weight.size // weight.shape[0]
            array = self.store.borrow(f"model.{panel.weight}", panel.start, panel.stop)
            start = panel.start * width
            fill(how.name, key_of(seed, panel.weight), start, array.reshape(-1), how.mean, how.std, how.low, how.high)
            self.store.give_back(f"model.{panel.weight}", panel.start, panel.stop, array, changed=True)

        for future in [self._workers.submit(fill_panel, p) for panels in self.panels.values() for p in panels]:
            future.result()

    def acquire(self, panel: Panel) -> Array:
        """Return the weights of a panel, to be read until `release`; waits for an update that is under way."""
        began = time.perf_counter()
        if (update := self._updates.get(panel)) is not None:
            update.result()
        with self._lock:
            self.waited_s += time.perf_counter() - began
            array, users = self._borrowed.get(panel, (None, 0))
            if array is None:
                array = self.store.borrow(f"model.{panel.weight}", panel.start, panel.stop)
            self._borrowed[panel] = (array, users + 1)
            return array

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        with self._lock:
            array, users = self._borrowed.pop(panel)
            if users > 1:
                self._borrowed[panel] = (array, users - 1)
            else:
                self.store.give_back(f"model.{panel.weight}", panel.start, panel.stop, array, changed=False)

    @contextmanager
    def held(self, panel: Panel) -> Iterator[Array]:
        """Lend the weights of a panel for the length of a context."""
        array = self.acquire(panel)
        try:
            yield array
        finally:
            self.release(panel)

    def begin_step(self, step: int, learning_rate: float) -> None:
        """Say which step the gradients that arrive from now on belong to (steps count from 1)."""
        self._step = Step(step, learning_rate, 1.0)

    def receive(self, panel: Panel, op: str, payload: Payload) -> None:
        """Take the sum of a panel's gradient from one op; MemoryX owns its buffer from now on."""
        uses = self._uses[panel.weight]
        with self._lock:
            arrived = self._arrived.setdefault(panel, {})
            arrived[op] = payload
            if len(arrived) < len(uses):
                return
            del self._arrived[panel]
        gradient = arrived[uses[0]]
        if not isinstance(gradient, np.ndarray):
            rows, gradient = gradient, self.buffers.take(panel.shape)
            gradient.fill(0)
            add_to_dense(rows, gradient)
        for other in uses[1:]:
            add_to_dense(arrived[other], gradient)
            self.buffers.give_back(arrived[other])
        if self.max_gradient_norm is None:
            self._updates[panel] = self._workers.submit(self._update, panel, gradient, self._step)
        else:
            self._gradients[panel] = gradient
            self._sum_squares[panel] = sum_squares(gradient.reshape(-1))

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
            bad = next(panel for panel in order if first_non_finite(self._gradients[panel].reshape(-1)) >= 0)
            raise NonFiniteError(f"step {self._step.number}: the gradient of {bad.weight} is not finite")
        # Source: torch.nn.utils.clip_grad_norm_, whose small constant is kept for equal numbers.
        scale = min(1.0, self.max_gradient_norm / (norm + 1e-6))
        step = Step(self._step.number, self._step.learning_rate, scale)
        for panel in order:
            self._updates[panel] = self._workers.submit(self._update, panel, self._gradients.pop(panel), step)
        self._sum_squares.clear()
        return norm

    def drain(self) -> None:
        """Wait until every update that is under way has been applied."""
        for update in self._updates.values():
            update.result()
        self._updates.clear()

    def chunks(self, array: str) -> Generator[Array, None, None]:
        """Yield an array of the store by panels, for a checkpoint; `drain` first, close it if it is not used up."""
        for start, stop in self._cuts(array):
            part = self.store.borrow(array, start, stop)
            try:
                yield part
            finally:
                self.store.give_back(array, start, stop, part, changed=False)

    def load(self, array: str, read: Callable[[Array, int, int], object]) -> None:
        """Fill an array of the store by panels with read(out, start, stop)."""
        for start, stop in self._cuts(array):
            part = self.store.borrow(array, start, stop)
            read(part, start, stop)
            self.store.give_back(array, start, stop, part, changed=True)

    def _cuts(self, array: str) -> list[tuple[int, int]]:
        weight = array.removeprefix("model.")
        if weight not in self.panels:
            weight = array.removeprefix("optimizer.").rpartition(".")[0]
        return [(panel.start, panel.stop) for panel in self.panels[weight]]

    def _update(self, panel: Panel, gradient: Array, step: Step) -> None:
        """Apply the optimizer to one panel."""
        assert self.optimizer is not None
        names = [f"model.{panel.weight}", *(f"optimizer.{panel.weight}.{s}" for s in self.optimizer.states)]
        arrays = [self.store.borrow(name, panel.start, panel.stop) for name in names]
        weight, *states = (array.reshape(-1) for array in arrays)
        scale = self.learning_rate_scales.get(panel.weight, 1.0)
        step = step._replace(learning_rate=step.learning_rate * scale)
        self.optimizer.update(weight, gradient.reshape(-1), states, step, self.graph.weights[panel.weight].decays)
        for name, array in zip(names, arrays, strict=True):
            self.store.give_back(name, panel.start, panel.stop, array, changed=True)
        self.buffers.give_back(gradient)
