"""A mixture of experts for tests of those that no token of a batch chose."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.ir import Graph
from cstool.machine.appliance import Appliance
from cstool.optimizers import make_optimizer
from cstool.params import AdamW
from cstool.store import FileStore
from tests.models import FAMILIES
from tests.unit.machine.machines import random_batch

BATCH, EXPERTS, LAYERS = 4, 5, 2
GRAPH: dict[str, Any] = {
    **FAMILIES["mixtral"],
    "layers": LAYERS,
    "moe": {"num_experts": EXPERTS, "top_k": 2, "router_use_bias": True},
}
USED: Sequence[tuple[int, ...]] = [(0, 1, 2, 3, 4), (0, 1), (0, 1), (1, 2), (0, 1), (2, 3), (0, 1)]
"""experts that the tokens of a step may choose; 4 is idle after the first"""
RATES = (0.01, 0.02, 0.004, 0.008, 0.03, 0.001, 0.01)
MEMORY_BYTES = 2**16
"""for rows: the matrices of a few experts"""
ADAMW = make_optimizer(AdamW.model_validate({"weight_decay": 0.1}), None)


def use(appliance: Appliance, experts: Sequence[int]) -> None:
    """Have tokens choose among some experts alone. Of updates that wait none is hurried."""
    arrays = appliance.memoryx.arrays
    for layer in range(LAYERS):
        bias = np.full(EXPERTS, -1e6, np.float32)
        bias[list(experts)] = 0.0
        name = f"transformer_decoder.layers.{layer}.ffn.gate.bias"
        if (update := appliance.memoryx._under_way.get(arrays.panels[name][0])) is not None:
            update.result()
        arrays.load(f"model.{name}", lambda out, start, stop, bias=bias: np.copyto(out, bias[start:stop]))


def steps(appliance: Appliance, graph: Graph, used: Sequence[Sequence[int]] = USED) -> list[float]:
    """The losses of steps whose tokens choose among some experts."""
    losses = []
    for number, experts in enumerate(used):
        use(appliance, experts)
        found = appliance.train_step(random_batch(graph, BATCH, seed=number), number + 1, RATES[number])
        losses.append(found.loss)
    return losses


def in_file(path: Path) -> dict[str, Any]:
    """Settings of a machine whose MemoryX is in a file."""
    return {"store": FileStore(path, MEMORY_BYTES), "waiting_bytes": 2**20}


def forget_all(store: FileStore) -> None:
    """Have the store keep nothing in memory."""
    for name in store.names():
        store.cache.forget(name, 0, store.shape(name)[0])


class Reads:
    """Counts the bytes of arrays that a store reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        read, write = FileStore._read_rows, FileStore._write_tile

        def read_rows(store: FileStore, rows: Any, array: Any) -> None:
            self.read[rows.name] += array.nbytes
            read(store, rows, array)

        def write_tile(store: FileStore, name: str, first: int, tile: Any) -> None:
            self.written[name] += tile.nbytes
            write(store, name, first, tile)

        monkeypatch.setattr(FileStore, "_read_rows", read_rows)
        monkeypatch.setattr(FileStore, "_write_tile", write_tile)

    def experts(self, counts: Counter[str]) -> set[int]:
        """Experts whose matrices, moments or gradients are among those."""
        return {int(name.partition(".experts.experts.")[2].partition(".")[0]) for name in counts if is_matrix(name)}

    def clear(self) -> None:
        """Begin to count."""
        self.read.clear()
        self.written.clear()


def is_matrix(name: str) -> bool:
    """Whether an array is of a matrix of an expert."""
    return ".experts.experts." in name and ".weight" in name
