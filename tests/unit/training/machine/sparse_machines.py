"""MemoryX with sparse weights for tests, and its slow twin: whole arrays, a mask, and NumPy."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Graph, Panel
from cstool.model.optimizers import Optimizer, Step
from cstool.model.params import SparsityParams
from cstool.model.sparsity import initial_mask, next_mask
from cstool.training.kernels.sparse import SparseMatrix, collect
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.swarmx import held
from cstool.training.store import FileStore, RamStore, Store

Array = np.ndarray
WIDE, SMALL = "fc_layers.0.weight", "fc_layers.1.weight"
"""of fc_mnist(12, 8)"""
ONE_PANEL, SIX_PANELS = 2**25, 2 * 4 * 784
CUTS = pytest.mark.parametrize("panel_bytes", [ONE_PANEL, SIX_PANELS], ids=["one panel", "six panels"])
SEED = 5
WAITING_BYTES = 64 * 2**10
"""for gradients on their way to an update, where the store is a file [bytes]"""
FILE_ROOM = 256 * 2**10
"""for rows in memory: a few panels of the models of these tests [bytes]"""

_makers: list[Callable[[], Store]] = [RamStore]


def make_store() -> Store:
    """Return an empty store of the kind that the test asks for, in memory if it asks for none."""
    return _makers[-1]()


@pytest.fixture(params=["ram", "file"])
def each_store(request, tmp_path) -> Iterator[str]:
    numbers = itertools.count()
    kind: str = request.param
    _makers.append(RamStore if kind == "ram" else lambda: FileStore(tmp_path / f"{next(numbers)}.h5", FILE_ROOM))
    yield kind
    _makers.pop()


def rules(groups: Mapping[str, SparsityParams], **keys: Any) -> SparsityRules:
    return SparsityRules(groups, **{"seed": SEED, "last_step": 10, **keys})


def make_memory(graph: Graph, optimizer: Optimizer | None, **settings: Any) -> MemoryX:
    store = make_store()
    waiting_bytes = None if isinstance(store, RamStore) else WAITING_BYTES
    return MemoryX(KeptModel(graph, optimizer, **settings), store=store, waiting_bytes=waiting_bytes)


@contextmanager
def sparse_memory(graph, optimizer, groups, max_gradient_norm=None, **keys):
    """Lend a MemoryX with first weights; keywords are those of `SparsityRules`."""
    with make_memory(graph, optimizer, max_gradient_norm=max_gradient_norm, sparsity=rules(groups, **keys)) as made:
        made.initialize(SEED)
        made.reserve()
        yield made


def random_gradients(graph: Graph, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(weight.shape).astype(np.float32) for name, weight in graph.weights.items()}


def hand_in(memoryx: MemoryX, panel: Panel, gradient: Array) -> None:
    """Give MemoryX the rows of a panel's gradient as a lane would: of a sparse panel what its stream asks for."""
    with held(memoryx, panel) as weights:
        if isinstance(weights, SparseMatrix):
            buffer = memoryx.buffers.take(weights.gradient_shape, weights.room)
            if weights.dense_gradient:
                np.copyto(buffer, gradient)
            else:
                collect(weights.pattern, gradient, buffer)
        else:
            buffer = memoryx.buffers.take(panel.shape)
            np.copyto(buffer, gradient)
    [op] = [op.name for op in memoryx.arrays.graph.ops if panel.weight in op.weights]
    memoryx.receive(panel, op, buffer)


def train_step(memoryx: MemoryX, step: int, gradients: Mapping[str, Array], order: Sequence[Panel]) -> float | None:
    """Run a step with gradients of whole weights, whose panels arrive in some order."""
    memoryx.begin_step(step, 0.01)
    for panel in order:
        hand_in(memoryx, panel, gradients[panel.weight][panel.start : panel.stop])
    norm = memoryx.finish_step()
    memoryx.drain()
    return norm


def all_panels(memoryx: MemoryX) -> list[Panel]:
    return [panel for panels in memoryx.arrays.panels.values() for panel in panels]


class Twin:
    """What MemoryX is to be the same as: every array whole, and zero where the mask says so.

    Args:
        graph: the model
        optimizer: its rule, applied to whole arrays
        groups: of the sparse weights
        first: the weights before any mask
        max_gradient_norm: as in MemoryX
    """

    def __init__(self, graph, optimizer, groups, first, max_gradient_norm):
        self.graph, self.optimizer, self.groups = graph, optimizer, groups
        self.max_gradient_norm = max_gradient_norm
        self.masks = {
            name: initial_mask(groups[name], weight, SEED, name) if name in groups else np.full(weight.shape, True)
            for name, weight in first.items()
        }
        self.arrays = {
            name: [weight.copy(), *(np.zeros_like(weight) for _ in optimizer.states(weight.shape))]
            for name, weight in first.items()
        }
        self._prune()

    def _prune(self) -> None:
        for name, arrays in self.arrays.items():
            for array in arrays:
                array[~self.masks[name]] = 0

    def norm(self, gradients: Mapping[str, Array]) -> float:
        left = [gradients[name][mask].astype(np.float64) for name, mask in self.masks.items()]
        return math.sqrt(math.fsum(float(np.sum(part * part)) for part in left))

    def step(self, number: int, gradients: Mapping[str, Array], norm: float | None) -> None:
        """Do what a step does, given the norm to the bits that MemoryX found."""
        scale = 1.0
        if self.max_gradient_norm is not None:
            scale = min(1.0, self.max_gradient_norm / (norm + 1e-6))
        for name, gradient in gradients.items():
            mask, (weight, *states) = self.masks[name], self.arrays[name]
            masked = np.where(mask, gradient, np.float32(0))
            flat = [state.reshape(-1) for state in states]
            decays = self.graph.weights[name].decays
            self.optimizer.update(weight.reshape(-1), masked.reshape(-1), flat, Step(number, 0.01, scale), decays)
        self._prune()
        for name, group in self.groups.items():
            self.masks[name] = next_mask(
                group, number, self.arrays[name][0], self.masks[name], SEED, name, gradients[name]
            )
        self._prune()
