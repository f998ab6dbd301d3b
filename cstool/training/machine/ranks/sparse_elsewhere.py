"""Sparse weights that another node keeps, as the first node sees them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel, Weight
from cstool.training.kernels.sparse import Pattern
from cstool.training.machine.memoryx.sparse_weights import SparseWeight, SparsityRules
from cstool.training.machine.ranks.calls import Answer
from cstool.training.store import RamStore

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PatternSize:
    """The pattern of a panel, as known at another node: its size alone; see `Pattern`."""

    shape: tuple[int, int]
    count: int
    size_bytes: int

    @property
    def density(self) -> float:
        """Share of the non-zeros."""
        return self.count / max(1, self.shape[0] * self.shape[1])


class SparseSize(NamedTuple):
    """A sparse weight, as known at another node: its sizes alone; see `SparseWeight`."""

    capacity: int | None
    patterns: Mapping[Panel, PatternSize]


class SparseElsewhere(SparseWeight):
    """A sparse weight that another node keeps: its size, as of the last call, and its numbers by calls."""

    def __init__(self, weight: Weight, panels: Sequence[Panel], rules: SparsityRules, call: Callable[..., Answer]):
        super().__init__(weight, panels, rules, RamStore(), [f"model.{weight.name}"])
        self._call = partial(call, weight.name)

    def see(self, size: SparseSize) -> None:
        """Take note of its size."""
        self.capacity, self._patterns = size.capacity, size.patterns  # type: ignore[assignment]

    def begin(self, dense: Array) -> None:
        """See `SparseWeight.begin`."""
        self.see(self._call("begin", arrays=[dense]).result)

    def place(self, indices: Array, *, is_stored: bool = False) -> None:
        """See `SparseWeight.place`."""
        assert not is_stored, "who has the store looks there"
        self.see(self._call("place", arrays=[indices]).result)

    def write(self, array: str, numbers: Array) -> None:
        """See `SparseWeight.write`."""
        self._call("write", array, arrays=[numbers])

    def indices(self) -> Generator[Array, None, None]:
        """See `SparseWeight.indices`."""
        for panel in self.panels:
            yield self._call("indices", panel).arrays[0]

    def read(self, array: str) -> Generator[Array, None, None]:
        """See `SparseWeight.read`."""
        for panel in self.panels:
            yield self._call("read", array, panel).arrays[0]


def size_of(sparse: SparseWeight) -> SparseSize:
    """The size of a sparse weight that is kept here."""

    def of(pattern: Pattern) -> PatternSize:
        return PatternSize(pattern.shape, pattern.count, pattern.size_bytes)

    patterns = {} if sparse.capacity is None else {panel: of(sparse.pattern(panel)) for panel in sparse.panels}
    return SparseSize(sparse.capacity, patterns)
