"""The arrays of a model: weights and optimizer state, cut into panels; of sparse weights the non-zeros.

A node has the arrays of its own panels in its store; of a weight that is dealt out, their rows one after the other.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from cstool.foundation.random_keys import key_of
from cstool.model.ir import Panel, matrices_of, panels_of, rules_of
from cstool.model.optimizers import state_numbers, updates
from cstool.training.kernels.bfloat16 import BFLOAT16, convert, widened
from cstool.training.kernels.random import fill
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx.dropconnect import DroppedWeight
from cstool.training.machine.memoryx.elsewhere import NOWHERE, Elsewhere, Piece
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import Shards, deal_panels
from cstool.training.machine.memoryx.sparse_weights import SparseWeight
from cstool.training.store import SHARD, FileStore, Store

Array = np.ndarray[Any, Any]
WRITTEN_AHEAD = 2
"""pieces that are on their way to other nodes at a time"""


class ModelArrays:
    """Creates the arrays of a model in a store, fills them and reads them.

    Args:
        kept: dense matrices that stream as bfloat16 are kept so alone where nothing is trained and no commit has
            them, and beside the float32 in memory where something is. From a file they are rounded as they are lent
        buffers: lend the numbers of weights with DropConnect
        shards: the panels of each node; None for one node
        node: number of this node
        elsewhere: the others, at the first node
    """

    def __init__(
        self,
        kept: KeptModel,
        store: Store,
        buffers: BufferPool,
        shards: Shards | None = None,
        node: int = 0,
        elsewhere: Elsewhere = NOWHERE,
    ) -> None:
        self.kept, self.store = kept, store
        self.graph = graph = kept.graph
        self.file = store if isinstance(store, FileStore) else None
        """the store where it is a file, which can commit, and has weights that lie in a checkpoint"""
        self.shards = shards or deal_panels(kept, 1)
        self.node, self.elsewhere = node, elsewhere
        optimizer, sparsity = kept.optimizer, kept.sparsity
        self.panels = {name: panels_of(weight) for name, weight in graph.weights.items()}
        self.own = {
            name: tuple(panel for panel in panels if self.shards.node_of(panel) == node)
            for name, panels in self.panels.items()
        }
        """panels that are kept here, by weight"""
        self._firsts: dict[str, dict[int, int]] = {}
        """of each weight: first row of an own panel -> its row in the store"""
        self.sparse: dict[str, SparseWeight] = {}
        """weights of which the non-zeros alone are kept, here or elsewhere"""
        experts = (op for op in graph.ops if rules_of(op).matrix_per_expert)
        self.of_experts = frozenset(name for op in experts for name in matrices_of(op))
        """matrices that stream only where tokens chose their expert"""
        self.narrow = kept.narrow.weights
        """matrices that stream as bfloat16"""
        self._narrow_copies: dict[str, str] = {}
        """weight -> array of the weight as it streams, if one is kept"""
        self._number_bytes: dict[str, int] = {}
        """bytes per number of a weight, with its copy, if they are not float32's"""
        self.dropped: dict[str, DroppedWeight] = {}
        """weights of which another part streams at every step"""
        for name, weight in graph.weights.items():
            ends = np.cumsum([0, *(panel.stop - panel.start for panel in self.own[name])]).tolist()
            self._firsts[name] = dict(zip((panel.start for panel in self.own[name]), ends, strict=False))
            if kept.is_sparse(name):
                panels, owner = self.panels[name], self.shards.node_of(self.panels[name][0])
                found = (
                    SparseWeight(weight, panels, sparsity, store, self.of(name))
                    if owner == node
                    else elsewhere.sparse_weight(owner, weight, panels, sparsity)
                )
                if found is not None:
                    self.sparse[name] = found
                continue
            if name in sparsity.groups:
                self.dropped[name] = DroppedWeight(weight, self.panels[name], sparsity, buffers.take)
            is_narrow = name in self.narrow and name not in self.dropped and bool(self.own[name])
            is_committed = self.file is not None and self.file.record is not None
            dtype = "float32"
            if is_narrow and optimizer is None and not is_committed:
                dtype, self._number_bytes[name] = BFLOAT16.name, BFLOAT16.itemsize
            for array, shape in self._shapes(name).items() if self.own[name] else ():
                shape = (ends[-1], *shape[1:]) if shape == weight.shape else shape
                store.create(array, shape, dtype, fixed=weight.frozen)
            if is_narrow and optimizer is not None and store.in_place:
                self._narrow_copies[name], self._number_bytes[name] = f"stream.{name}", 4 + BFLOAT16.itemsize
                store.create(self._narrow_copies[name], (ends[-1], *weight.shape[1:]), BFLOAT16.name)

    def streamed(self, weight: str) -> str:
        """Name of the array that a dense weight streams from: the weight, or a copy of it in bfloat16."""
        return self._narrow_copies.get(weight, f"model.{weight}")

    def of(self, weight: str) -> list[str]:
        """Names of a weight's arrays in the store, the weight itself first."""
        return [*self._shapes(weight)]

    def _shapes(self, weight: str) -> dict[str, tuple[int, ...]]:
        shape, optimizer = self.graph.weights[weight].shape, updates(self.kept.optimizer, self.graph.weights[weight])
        states = optimizer.states(shape) if optimizer else {}
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

    def shape(self, array: str) -> tuple[int, ...]:
        """Shape of an array of a dense weight, as all nodes together have it."""
        return self._shapes(self._weight_of(array))[array]

    @property
    def shard_values(self) -> dict[str, Any]:
        """Values of the shard in the next commit of this node; nothing where it is the only one."""
        shards = self.shards
        if shards.nodes == 1:
            return {}
        rows = {name: [[p.start, p.stop] for p in panels] for name, panels in self.own.items() if panels}
        of_set = {"set": shards.name, "nodes": shards.nodes, "weights": list(self.graph.weights)}
        pending = {"pending": True} if self.file is not None and self.file.record is None else {}
        return {SHARD: {**of_set, "node": self.node, "rows": rows, **pending}}

    @property
    def is_for_one_state(self) -> bool:
        """Whether the arrays have room for the numbers of one checkpoint alone, or weights that lie in it."""
        return bool(self.sparse) or (self.file is not None and self.file.lent_bytes > 0)

    @property
    def keeps_any(self) -> bool:
        """Whether this node has panels at all."""
        return any(self.own.values())

    def own_sparse(self) -> list[SparseWeight]:
        """The sparse weights that are kept here."""
        return [sparse for name, sparse in self.sparse.items() if self.own[name]]

    def rows(self, weight: str) -> int:
        """Rows of a dense weight that are kept here."""
        return sum(panel.stop - panel.start for panel in self.own[weight])

    def room(self, weight: str) -> int:
        """Numbers that each array of a weight has room for here."""
        if weight in self.sparse:
            return (self.sparse[weight].capacity or 0) if self.own[weight] else 0
        return sum(panel.size for panel in self.own[weight])

    @property
    def state_bytes(self) -> int:
        """Size of the optimizer state that is kept here, with the room that is made for more [bytes]."""
        kept = ((w, self.room(n)) for n, w in self.graph.weights.items() if self.own[n])
        return sum(4 * state_numbers(updates(self.kept.optimizer, weight), weight.shape, room) for weight, room in kept)

    @property
    def weights_bytes(self) -> int:
        """Size of the weights kept here, with the room that is made for more and the copies that stream [bytes]."""
        return sum(self._number_bytes.get(name, 4) * self.room(name) for name in self.graph.weights)

    @property
    def kept_bytes(self) -> int:
        """Size of all numbers of all nodes, weights and optimizer state, without the room made for more [bytes]."""
        numbers = {n: s.count for n, s in self.sparse.items()}
        kept = ((w, numbers.get(n, w.size)) for n, w in self.graph.weights.items())
        return sum(4 * (n + state_numbers(updates(self.kept.optimizer, w), w.shape, n)) for w, n in kept)

    def span(self, panel: Panel) -> tuple[int, int]:
        """Rows (of a sparse weight: elements) of an own panel in the arrays of the store: start and stop."""
        if panel.weight in self.sparse:
            return self.sparse[panel.weight].span(panel)
        first = self._firsts[panel.weight][panel.start]
        return first, first + panel.stop - panel.start

    @property
    def sparse_names(self) -> list[str]:
        """Weights that stream without their zeros, here or elsewhere."""
        return [*self.sparse, *self.dropped]

    def sparse_shapes(self) -> list[tuple[int, int, float]]:
        """(rows, columns, share of the tokens that it meets) of all panels that stream without their zeros."""
        panels = [panel for name in self.sparse_names for panel in self.panels[name]]
        rows = [panel.stop - panel.start for panel in panels]
        share = self.kept.sparsity.token_share
        return [(n, panel.size // n, share(panel.weight)) for n, panel in zip(rows, panels, strict=True)]

    def initialize(self, seed: int, workers: Executor) -> None:
        """Fill the own weights as the graph says, each element from its own random number."""

        def fill_rows(panel: Panel, array: Array) -> None:
            weight = self.graph.weights[panel.weight]
            key, start = key_of(seed, weight.begins_as or weight.name), panel.start * (weight.size // weight.shape[0])
            fill(weight.initializer, key, start, array.reshape(-1))

        def fill_panel(panel: Panel) -> None:
            self._write(f"model.{panel.weight}", self.span(panel), partial(fill_rows, panel))

        def begin(sparse: SparseWeight) -> None:
            dense = np.empty(sparse.shape, np.float32)
            for panel in sparse.panels:
                fill_rows(panel, dense[panel.start : panel.stop])
            sparse.begin(dense)

        dense = (name for name in self.own if name not in self.sparse and not self._is_lent(f"model.{name}"))
        dense_panels = [panel for name in dense for panel in self.own[name]]
        filling = [workers.submit(fill_panel, panel) for panel in dense_panels]
        filling += [workers.submit(begin, sparse) for sparse in self.own_sparse()]
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
        pieces = self._pieces(array, weight)
        with closing(self.elsewhere.read([piece for piece in pieces if piece.node != self.node])) as others:
            for piece in pieces:
                if piece.node != self.node:
                    yield next(others)
                    continue
                start, stop = self._stored(piece, weight)
                part = self.store.borrow(array, start, stop)
                try:
                    yield widened(part) if part.dtype == BFLOAT16 else part
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
        on_the_way: deque[Future[Any]] = deque()
        for piece in self._pieces(array, weight):
            if self._is_lent(array):
                # It is there; reading it checks it.
                read(np.empty((piece.stop - piece.start, *self.shape(array)[1:]), np.float32), piece.start, piece.stop)
                continue
            if piece.node == self.node:
                self._fill(piece, weight, read)
                continue
            rows = np.empty((piece.stop - piece.start, *self.shape(array)[1:]), np.float32)
            read(rows, piece.start, piece.stop)
            on_the_way.append(self.elsewhere.write(piece, rows))
            if len(on_the_way) > WRITTEN_AHEAD:
                on_the_way.popleft().result()
        for written in on_the_way:
            written.result()

    def read_piece(self, piece: Piece) -> Array:
        """A copy of rows that are kept here."""
        rows = np.empty((piece.stop - piece.start, *self.shape(piece.array)[1:]), self.store.dtype(piece.array))
        self.store.read(piece.array, self._stored(piece, self._weight_of(piece.array))[0], rows)
        return widened(rows) if rows.dtype == BFLOAT16 else rows

    def write_piece(self, piece: Piece, rows: Array) -> None:
        """Fill rows that are kept here."""
        self._fill(piece, self._weight_of(piece.array), lambda out, *_: np.copyto(out, rows))

    def _fill(self, piece: Piece, weight: str, read: Callable[[Array, int, int], object]) -> None:
        self._write(piece.array, self._stored(piece, weight), lambda rows: read(rows, piece.start, piece.stop))

    def _write(self, array: str, span: tuple[int, int], write: Callable[[Array], object]) -> None:
        """Have rows written in float32, and rounded where they are kept in bfloat16, alone or a second time."""
        part = self.store.borrow(array, *span, fresh=True)
        rows = np.empty(part.shape, np.float32) if part.dtype == BFLOAT16 else part
        write(rows)
        if rows is not part:
            convert(rows, part)
        copy = self._narrow_copies.get(array.removeprefix("model.")) if array.startswith("model.") else None
        if copy is not None:
            beside = self.store.borrow(copy, *span, fresh=True)
            convert(rows, beside)
            self.store.give_back(copy, *span, beside, changed=True)
        self.store.give_back(array, *span, part, changed=True)

    def _is_lent(self, array: str) -> bool:
        return self.file is not None and self.file.lends(array)

    def _stored(self, piece: Piece, weight: str) -> tuple[int, int]:
        """Rows of an own piece in the store: start and stop."""
        is_panel = self.shape(piece.array) == self.graph.weights[weight].shape
        first = self._firsts[weight][piece.start] if is_panel else piece.start
        return first, first + piece.stop - piece.start

    def _pieces(self, array: str, weight: str) -> list[Piece]:
        """The pieces of an array of a dense weight, in order."""
        shape = self.shape(array)
        if shape == self.graph.weights[weight].shape:
            return [Piece(array, p.start, p.stop, self.shards.node_of(p)) for p in self.panels[weight]]
        # An optimizer with arrays of another shape needs all of the weight, so that it is at one node.
        return [Piece(array, 0, shape[0], self.shards.node_of(self.panels[weight][0]))]

    def _weight_of(self, array: str) -> str:
        weight = array.removeprefix("model.")
        return weight if weight in self.panels else array.removeprefix("optimizer.").rpartition(".")[0]
