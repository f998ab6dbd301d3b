"""Several low-rank adapters over one base: the base streams once for all sequences, each has an adapter or none.

Beside y = x W^T comes s x A^T B^T, for the rows of the sequences that have that adapter. A row's result depends on its
own row and adapter alone: the same bits beside any other sequences and adapters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.errors import CheckpointError
from cstool.model.ir import Graph, Op, OpKind
from cstool.model.params.sections.tuning import LORA_WEIGHTS
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.rowwise import linear
from cstool.training.store import ADAPTERS, CheckpointReader, adapters_of, weights_digest

Array = NDArray[np.float32]
_MODEL = "model."


class LowRank(NamedTuple):
    """An adapter of a linear layer."""

    a: Array
    """(rank, inputs) float32"""
    b: Array
    """(outputs, rank) float32, times the scale"""


class AdapterSet:
    """Adapters that sequences choose from.

    Args:
        adapters: of each, by the name of the weight beside which it is
    """

    def __init__(self, adapters: Sequence[Mapping[str, LowRank]] = ()) -> None:
        self._adapters = adapters
        self._rows: list[tuple[int, NDArray[np.int64]]] = []

    def __len__(self) -> int:
        return len(self._adapters)

    def with_none(self) -> AdapterSet:
        """The same adapters from number 1 on; 0 is for none of them."""
        return AdapterSet([{}, *self._adapters]) if self._adapters else self

    def choose(self, chosen: Sequence[int], news: News) -> None:
        """Set the adapter of each row of the next pass.

        Args:
            chosen: by sequence, in the order of the news
            news: the rows of each
        """
        rows = np.repeat(np.array(chosen, np.int64), news.counts)
        self._rows = [(number, np.flatnonzero(rows == number)) for number in dict.fromkeys(chosen)]

    def add(self, op: Op, x: Array, y: Array) -> None:
        """Add the products of the adapters beside a linear op.

        Args:
            x: (T, inputs), of the op
            y: (T, outputs), of the op; written
        """
        for number, rows in self._rows:
            found = self._adapters[number].get(op.weights[0])
            if found is None:
                continue
            few = np.empty((len(rows), len(found.a)), np.float32)
            many = np.empty((len(rows), len(found.b)), np.float32)
            linear(np.ascontiguousarray(x[rows]), found.a, None, few)
            linear(few, found.b, None, many)
            y[rows] += many


NO_ADAPTERS = AdapterSet()


def read_adapters(paths: Sequence[Path], base: Path, graph: Graph) -> AdapterSet:
    """Read checkpoints of adapters that are for a base.

    Args:
        base: the checkpoint with the weights
        graph: the model, without adapters

    Raises:
        CheckpointError: one cannot be read, has other weights than adapters of linear layers, or is of another base
    """
    if not paths:
        return NO_ADAPTERS
    with CheckpointReader(base) as reader:
        if adapters_of(reader) is not None:
            raise CheckpointError(f"{base}: must be a base for --adapter, got adapters", "--adapter takes these, too")
        digest = weights_digest(reader)
    shapes = {
        op.weights[0]: graph.weights[op.weights[0]].shape
        for op in graph.ops
        if op.kind is OpKind.LINEAR and op.weights and op is not graph.ops[-1]
    }
    return AdapterSet([_read(path, base, digest, shapes) for path in paths])


def _read(path: Path, base: Path, digest: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, LowRank]:
    with CheckpointReader(path) as reader:
        found = adapters_of(reader)
        if found is None:
            raise CheckpointError(f"{path}: must have adapters, as --adapter takes them, it has none")
        if found.get("base") is None or found["base"]["digest"] != digest:
            rule = f"must be adapters of {base}"
            of = found["base"]["path"] if found.get("base") else "weights that are in the same file"
            raise CheckpointError(f"{path}: {rule}, got adapters of {of}", _first_difference(base, found.get("base")))
        adapters = {}
        for module, scale in found["scales"].items():
            weight = f"{module}.weight"
            names = [f"{_MODEL}{module}{part}" for part in LORA_WEIGHTS]
            others = [name for name in reader.tensor_names() if name.startswith(f"{_MODEL}{module}.lora_")]
            if weight not in shapes or not {*names}.issuperset(others):
                raise CheckpointError(
                    f"{path}: --adapter takes low-rank adapters of linear layers inside the model, got one of {module}",
                    "cstool checkpoint merge folds it into the weights",
                )
            a, b = map(reader.read, names)
            adapters[weight] = LowRank(a, (np.float64(scale) * b).astype(np.float32))
        return adapters


def _first_difference(base: Path, of: Mapping[str, str] | None) -> str:
    """Name the first tensor in which two bases differ, if the other one is there."""
    if of is None or not Path(of["path"]).is_file():
        return f"the digest of its base is {of['digest'][:16]}..." if of else f"a value {ADAPTERS} without a base"
    with CheckpointReader(base) as ours, CheckpointReader(of["path"]) as theirs:
        names = {each: set(each.tensor_names()) for each in (ours, theirs)}
        for name in ours.tensor_names():
            places = [each.place(name)._replace(offset=0) for each in (ours, theirs) if name in names[each]]
            if name.startswith(_MODEL) and (len(places) < 2 or places[0] != places[1]):
                return f"{name} is the first weight that differs"
    return "the other one has more weights"
