"""The weights of which MemoryX keeps the non-zeros alone: their places, and the changes of these.

The arrays of a sparse weight (values, optimizer state) lie in the store panel after panel, in the order of the panels'
patterns, with room for as many non-zeros as the schedule ever asks for. Outside, in checkpoints, they are in the order
of the weight laid out row by row.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import Panel, Weight
from cstool.model.params import SparsityParams
from cstool.model.sparsity import initial_mask, is_update_step, most_kept, next_mask
from cstool.training.kernels.magnitudes import first_non_finite
from cstool.training.kernels.sparse import KernelChoice, Pattern, collect, expand, make_pattern, positions
from cstool.training.store import INDICES, Store, find_checkpoint, index_kind

Array = np.ndarray[Any, Any]
UNEVEN = 1.05
"""factor by which a panel may be denser than its weight before its buffers grow"""


def _read_nothing(path: Path, weight: Weight) -> Array:
    raise ValueError(f"{path}: there is no way to read {weight.name} from it")


def _sparse_kernels(_: Pattern, __: float) -> KernelChoice:
    return KernelChoice(forward=True, delta=True, gradient=True)


@dataclass(frozen=True)
class SparsityRules:
    """The sparse weights, and the rules of their sparsity.

    Args:
        groups: by the name of the weight; a weight that is not there is dense
        seed: of the run, which masks drawn at random come from
        last_step: of the run; None where it is not known
        choose: chooses kernels for a panel that meets a share of the tokens
        token_shares: of weights that do not meet all tokens: average share of the tokens that they meet, as for experts
        read_weight: reads a weight with its zeros from a checkpoint, (rows, columns) float32
        read_mask: reads which numbers of a weight a checkpoint keeps, (rows, columns) bool
    """

    groups: Mapping[str, SparsityParams] = field(default_factory=dict)
    seed: int = 0
    last_step: int | None = None
    choose: Callable[[Pattern, float], KernelChoice] = _sparse_kernels
    token_shares: Mapping[str, float] = field(default_factory=dict)
    read_weight: Callable[[Path, Weight], Array] = _read_nothing
    read_mask: Callable[[Path, Weight], Array] = _read_nothing

    def token_share(self, weight: str) -> float:
        """Which share of the tokens a weight meets on average."""
        return self.token_shares.get(weight, 1.0)

    def choice(self, weight: str, pattern: Pattern) -> KernelChoice:
        """Kernels that compute with a panel of a weight."""
        return self.choose(pattern, self.token_share(weight))


DENSE = SparsityRules()
"""no weight is sparse"""


class SparseWeight:
    """One of them: the patterns of its panels, and its arrays in the store.

    Args:
        store: has its arrays, once `place` has made them
        arrays: their names, the values first
    """

    def __init__(
        self, weight: Weight, panels: Sequence[Panel], rules: SparsityRules, store: Store, arrays: Sequence[str]
    ) -> None:
        self.weight = weight
        self.panels = panels
        self.group = rules.groups[weight.name]
        self.arrays = tuple(arrays)
        self._rules = rules
        self._store = store
        self._patterns: dict[Panel, Pattern] = {}
        self._starts: dict[Panel, int] = {}
        self.capacity: int | None = None
        """non-zeros that there is room for; None before the first `place`"""

    @property
    def count(self) -> int:
        """Non-zeros."""
        return sum(pattern.count for pattern in self._patterns.values())

    @property
    def density(self) -> float:
        """Share of the non-zeros."""
        return self.count / self.weight.size

    @property
    def indices_array(self) -> str:
        """Name of the array with the places of the other arrays' numbers, in a store that outlives the process."""
        return f"{self.arrays[0]}{INDICES}"

    def pattern_bytes(self, trains: bool) -> int:
        """Of the patterns, and of the transposed ones, which deltas that sparse kernels compute are for [bytes]."""
        deltas = (p.transposed_bytes for panel, p in self._patterns.items() if trains and self.choice(panel).delta)
        return sum(pattern.size_bytes for pattern in self._patterns.values()) + sum(deltas)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the weight."""
        return self.weight.matrix_shape

    def pattern(self, panel: Panel) -> Pattern:
        """Pattern of the non-zeros of a panel."""
        return self._patterns[panel]

    def span(self, panel: Panel) -> tuple[int, int]:
        """Elements of a panel in the arrays of the store: start and stop."""
        return self._starts[panel], self._starts[panel] + self._patterns[panel].count

    def room(self, panel: Panel) -> int:
        """Most non-zeros of a panel, if they stay about evenly spread over the weight."""
        share = math.ceil((self.capacity or 0) * panel.size / self.weight.size * UNEVEN)
        return min(panel.size, self.capacity or 0, share)

    def choice(self, panel: Panel) -> KernelChoice:
        """Kernels that compute with a panel."""
        return self._rules.choice(self.weight.name, self._patterns[panel])

    @property
    def asked_density(self) -> float | None:
        """The density that the params ask for, where that is a number and no mask ever changes it."""
        if self.group.algorithm != "static" or self.group.init_method not in ("random", "topk"):
            return None
        return most_kept(self.group, self.shape) / self.weight.size

    def changes_after(self, step: int) -> bool:
        """Return whether the mask changes after the update of a step."""
        return self.group.is_dynamic and is_update_step(self.group.update, step)

    def wants_dense_gradient(self, step: int) -> bool:
        """Return whether the gradient of the zeros is needed in a step."""
        return self.group.algorithm == "rigl" and self.changes_after(step)

    def begin(self, dense: Array) -> None:
        """Choose the first mask for a weight, and keep the numbers within it.

        Args:
            dense: (rows, columns) float32, as initialised

        Raises:
            CheckpointError: the one that the mask or the weights are from lacks the weight
        """
        name, group = self.weight.name, self.group
        if group.rewind_checkpoint is not None:
            dense = self._rules.read_weight(find_checkpoint(group.rewind_checkpoint.now), self.weight)
        if group.mask_checkpoint is not None:
            # A weight that has only just grown is kept, and zero.
            mask = self._rules.read_mask(find_checkpoint(group.mask_checkpoint.now), self.weight)
        else:
            mask = initial_mask(group, dense, self._rules.seed, name)
        indices = np.flatnonzero(mask)
        self.place(indices)
        self.write(self.arrays[0], dense.reshape(-1)[indices])

    def place(self, indices: Array, *, is_stored: bool = False) -> None:
        """Set the places of the non-zeros; the contents of the arrays have no meaning until they are written.

        Args:
            indices: (n,) int64, ascending, in the weight laid out row by row
            is_stored: whether the arrays of the store are there already, and as these indices say
        """
        if self.capacity is None:
            changes = self.group.algorithm != "static"
            most = most_kept(self.group, self.shape, self._rules.last_step) if changes else 0
            self.capacity = max(most, len(indices), 1)
            for name in self.arrays:
                self._store.create(name, (self.capacity,))
            if self._store.outlives:
                self._store.create(self.indices_array, (self.capacity,), index_kind(self.weight.size).name)
        columns = self.shape[1]
        for panel in self.panels:
            start, stop = np.searchsorted(indices, (panel.start * columns, panel.stop * columns))
            rows = panel.stop - panel.start
            self._patterns[panel], _ = make_pattern(indices[start:stop] - panel.start * columns, (rows, columns))
            self._starts[panel] = int(start)
            if self._store.outlives and not is_stored and self._patterns[panel].count:
                found = positions(self._patterns[panel]) + panel.start * columns
                self._store.write(self.indices_array, int(start), found.astype(index_kind(self.weight.size)))

    def indices(self) -> Iterator[Array]:
        """Yield, panel by panel, (n,) int64: the ascending positions of its non-zeros in the weight."""
        for panel in self.panels:
            yield self.indices_of(panel)

    def indices_of(self, panel: Panel) -> Array:
        """Return (n,) int64: the ascending positions of the non-zeros of a panel in the weight."""
        return np.flatnonzero(self._mask(panel)) + panel.start * self.shape[1]

    def read(self, array: str) -> Iterator[Array]:
        """Yield, panel by panel, (n,) float32: the numbers of an array in the order of `indices`."""
        for panel in self.panels:
            yield self.read_of(array, panel)

    def read_of(self, array: str, panel: Panel) -> Array:
        """Return (n,) float32: the numbers of an array in the order of `indices_of`."""
        numbers: Array = self._written_out(array, panel)[self._mask(panel)]
        return numbers

    def write(self, array: str, numbers: Array) -> None:
        """Fill an array from (n,) float32 in the order of `indices`."""
        for panel in self.panels:
            start, stop = self.span(panel)
            whole = np.empty(self._patterns[panel].shape, np.float32)
            whole[self._mask(panel)] = numbers[start:stop]
            part = self._store.borrow(array, start, stop)
            collect(self._patterns[panel], whole, part)
            self._store.give_back(array, start, stop, part, changed=True)

    def dense(self, array: str) -> Array:
        """An array with its zeros, (rows, columns) float32."""
        whole = np.empty(self.shape, np.float32)
        for panel in self.panels:
            whole[panel.start : panel.stop] = self._written_out(array, panel)
        return whole

    def change_mask(self, step: int, dense_gradient: Array | None) -> None:
        """Choose another mask after the update of a step. New non-zeros begin with zeros, optimizer state and all.

        Args:
            dense_gradient: (rows, columns) float32, for the algorithms that ask for it

        Raises:
            NonFiniteError: the gradient of a zero is not finite
        """
        name = self.weight.name
        if dense_gradient is not None and first_non_finite(dense_gradient.reshape(-1)) >= 0:
            raise NonFiniteError(f"step {step}: the gradient of {name} is not finite where the weight is zero")
        mask = np.concatenate([self._mask(panel) for panel in self.panels])
        weight = self.dense(self.arrays[0])
        changed = next_mask(self.group, step, weight, mask, self._rules.seed, name, dense_gradient)
        indices = np.flatnonzero(changed)
        states = [self.dense(array).reshape(-1)[indices] for array in self.arrays[1:]]
        self.place(indices)
        for array, numbers in zip(self.arrays, [weight.reshape(-1)[indices], *states], strict=True):
            self.write(array, numbers)

    def _mask(self, panel: Panel) -> Array:
        mask = np.zeros(math.prod(self._patterns[panel].shape), np.bool_)
        mask[positions(self._patterns[panel])] = True
        return mask.reshape(self._patterns[panel].shape)

    def _written_out(self, array: str, panel: Panel) -> Array:
        start, stop = self.span(panel)
        part = self._store.borrow(array, start, stop)
        whole = np.empty(self._patterns[panel].shape, np.float32)
        expand(self._patterns[panel], part, whole)
        self._store.give_back(array, start, stop, part, changed=False)
        return whole
