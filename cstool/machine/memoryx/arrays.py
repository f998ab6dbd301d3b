"""The arrays of a model in a store: weights and optimizer state, cut into panels; of sparse weights the non-zeros."""

from collections.abc import Callable, Generator
from concurrent.futures import Executor
from typing import Any

import numpy as np

from cstool.ir import Graph, Panel, panels_of
from cstool.kernels.random import fill
from cstool.machine.buffers import BufferPool
from cstool.machine.memoryx.dropconnect import DroppedWeight
from cstool.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.optimizers import Optimizer, state_numbers
from cstool.random_keys import key_of
from cstool.store import FileStore, Store

Array = np.ndarray[Any, Any]


class ModelArrays:
    """Creates the arrays of a model in a store, fills them and reads them.

    Args:
        optimizer: has arrays beside each weight; None for a run that only evaluates
        buffers: lend the numbers of weights that are dropped from
    """

    def __init__(
        self, graph: Graph, store: Store, optimizer: Optimizer | None, sparsity: SparsityRules, buffers: BufferPool
    ) -> None:
        self.graph = graph
        self.store = store
        self.file = store if isinstance(store, FileStore) else None
        """the store where it is a file, which can commit"""
        self._optimizer = optimizer
        self.panels = {name: panels_of(weight) for name, weight in graph.weights.items()}
        self.sparse: dict[str, SparseWeight] = {}
        """weights of which the non-zeros alone are kept"""
        self.dropped: dict[str, DroppedWeight] = {}
        """weights of which another part streams at every step"""
        for name, weight in graph.weights.items():
            group = sparsity.groups.get(name)
            if group is not None and group.algorithm != "dropconnect":
                self.sparse[name] = SparseWeight(weight, self.panels[name], sparsity, store, self.of(name))
                continue
            if group is not None:
                self.dropped[name] = DroppedWeight(weight, self.panels[name], sparsity, buffers.take)
            for array, shape in self._shapes(name).items():
                store.create(array, shape)

    def of(self, weight: str) -> list[str]:
        """Names of a weight's arrays in the store, the weight itself first."""
        return [*self._shapes(weight)]

    def _shapes(self, weight: str) -> dict[str, tuple[int, ...]]:
        shape = self.graph.weights[weight].shape
        states = self._optimizer.states(shape) if self._optimizer else {}
        return {f"model.{weight}": shape, **{f"optimizer.{weight}.{state}": of for state, of in states.items()}}

    @property
    def names(self) -> list[str]:
        """Names of all arrays, weight by weight."""
        return [array for weight in self.graph.weights for array in self.of(weight)]

    @property
    def stored_names(self) -> list[str]:
        """The same with the indices of sparse weights, as a store that outlives the process has them."""
        return [
            name
            for weight in self.graph.weights
            for name in (*((self.sparse[weight].indices_array,) if weight in self.sparse else ()), *self.of(weight))
        ]

    def room(self, weight: str) -> int:
        """Numbers that each array of a weight has room for."""
        sparse = self.sparse.get(weight)
        return self.graph.weights[weight].size if sparse is None else sparse.capacity or 0

    @property
    def state_bytes(self) -> int:
        """Size of the optimizer state, with the room that is made for more [bytes]."""
        return sum(4 * state_numbers(self._optimizer, w.shape, self.room(n)) for n, w in self.graph.weights.items())

    @property
    def kept_bytes(self) -> int:
        """Size of all numbers, weights and optimizer state, without the room that is made for more [bytes]."""
        numbers = {n: s.count for n, s in self.sparse.items()}
        kept = ((w.shape, numbers.get(n, w.size)) for n, w in self.graph.weights.items())
        return sum(4 * (n + state_numbers(self._optimizer, s, n)) for s, n in kept)

    def span(self, panel: Panel) -> tuple[int, int]:
        """Rows (of a sparse weight: elements) of a panel in the arrays of its weight: start and stop."""
        sparse = self.sparse.get(panel.weight)
        return (panel.start, panel.stop) if sparse is None else sparse.span(panel)

    def sparse_shapes(self) -> list[tuple[int, int]]:
        """(rows, columns) of all panels that stream without their zeros."""
        panels = [panel for name in (*self.sparse, *self.dropped) for panel in self.panels[name]]
        return [(p.stop - p.start, p.size // (p.stop - p.start)) for p in panels]

    def initialize(self, seed: int, workers: Executor) -> None:
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
        filling = [workers.submit(fill_panel, panel) for panel in dense_panels]
        filling += [workers.submit(begin, sparse) for sparse in self.sparse.values()]
        for future in filling:
            future.result()

    def chunks(self, array: str) -> Generator[Array, None, None]:
        """Yield an array by panels, for a checkpoint, once all updates are applied; close it if it is not used up.

        One of a sparse weight comes without its zeros, in the order of `SparseWeight.indices`.
        """
        weight = self._weight_of(array)
        if weight in self.sparse:
            yield from self.sparse[weight].read(array)
            return
        for start, stop in self._parts(array, weight):
            part = self.store.borrow(array, start, stop)
            try:
                yield part
            finally:
                self.store.give_back(array, start, stop, part, changed=False)

    def load(self, array: str, read: Callable[[Array, int, int], object]) -> None:
        """Fill an array by panels with read(out, start, stop), rows of a dense weight, elements of a sparse one."""
        weight = self._weight_of(array)
        if weight in self.sparse:
            sparse = self.sparse[weight]
            numbers = np.empty(sparse.count, np.float32)
            read(numbers, 0, sparse.count)
            sparse.write(array, numbers)
            return
        for start, stop in self._parts(array, weight):
            part = self.store.borrow(array, start, stop, fresh=True)
            read(part, start, stop)
            self.store.give_back(array, start, stop, part, changed=True)

    def _parts(self, array: str, weight: str) -> list[tuple[int, int]]:
        """Ranges of rows of an array: the panels of its weight, or all of one that has another shape."""
        shape = self.store.shape(array)
        has_panels = shape == self.graph.weights[weight].shape
        return [(p.start, p.stop) for p in self.panels[weight]] if has_panels else [(0, shape[0])]

    def _weight_of(self, array: str) -> str:
        weight = array.removeprefix("model.")
        return weight if weight in self.panels else array.removeprefix("optimizer.").rpartition(".")[0]
