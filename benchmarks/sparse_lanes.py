"""What a lane of the benchmark of sparse layers holds and calls: a grain, and the kernels on it, panel by panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from cstool.model.ir import Initializer, Weight, panels_of
from cstool.training.kernels.linear import linear_backward_delta, linear_backward_weight, linear_forward
from cstool.training.kernels.sparse import (
    TILE_TOKENS,
    Pattern,
    make_pattern,
    sparse_linear_delta,
    sparse_linear_forward,
    sparse_linear_gradient,
    transpose_values,
)
from cstool.training.kernels.sparse.crossover import random_aligned
from cstool.training.kernels.sparse.linear import _pack, _unpack
from cstool.training.kernels.sparse.pattern import CHUNK_ROWS
from cstool.training.machine.csx import Scratch


@dataclass(frozen=True)
class Case:
    """A matrix, and how many tokens each lane has."""

    name: str
    rows: int
    columns: int
    tokens: int


@njit(nogil=True)
def _turn(array, tiles, columns, back, add):  # type: ignore[no-untyped-def]
    """Turn an array into tiles, or back, as many columns at a time as a kernel does."""
    for token in range(0, array.shape[0], TILE_TOKENS):
        for first in range(0, array.shape[1], columns):
            part = array[:, first : first + columns]
            if back:
                _unpack(tiles, part, token, add)
            else:
                _pack(part, token, tiles)


@dataclass(frozen=True)
class SparsePanel:
    """Rows of the weight: where they are, and their non-zeros."""

    rows: slice
    pattern: Pattern
    values: np.ndarray
    transposed: np.ndarray
    """the same values in the order of the transposed pattern"""


class Lane:
    """A grain and what its lane calls for it."""

    def __init__(self, case: Case, weight: np.ndarray, panels: Sequence[SparsePanel], seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.weight, self.panels, self.scratch = weight, panels, Scratch()
        self.x, self.delta_y = (
            random_aligned(generator, case.tokens, case.columns),
            random_aligned(generator, case.tokens, case.rows),
        )
        self.y, self.delta_x = (
            random_aligned(generator, case.tokens, case.rows),
            random_aligned(generator, case.tokens, case.columns),
        )
        self.grad_weight = random_aligned(generator, case.rows, case.columns)
        self.grads = [random_aligned(generator, panel.pattern.count) for panel in panels]

    def dense(self, product: str) -> None:
        for number, panel in enumerate(self.panels):
            rows = panel.rows
            if product == "forward":
                linear_forward(self.x, self.weight[rows], None, self.y[:, rows])
            elif product == "delta":
                part = self.delta_y[:, rows]
                linear_backward_delta(part, self.weight[rows], self.delta_x, number > 0, self.scratch)
            else:
                linear_backward_weight(self.x, self.delta_y[:, rows], self.grad_weight[rows])

    def sparse(self, product: str) -> None:
        for number, (panel, gradients) in enumerate(zip(self.panels, self.grads, strict=True)):
            pattern, delta_y = panel.pattern, self.delta_y[:, panel.rows]
            if product == "forward":
                sparse_linear_forward(self.x, pattern, panel.values, None, self.y[:, panel.rows], self.scratch)
            if product in ("delta", "backward"):
                to = self.delta_x, number > 0
                sparse_linear_delta(delta_y, pattern.transposed, panel.transposed, *to, self.scratch)
            if product in ("gradient", "backward"):
                sparse_linear_gradient(self.x, delta_y, pattern, gradients, self.scratch)

    def turn(self, product: str) -> None:
        """Do what `sparse` does before and after its loops."""
        tiles = self.scratch("tiles", (CHUNK_ROWS, TILE_TOKENS))
        for number, panel in enumerate(self.panels):
            pattern, y, delta_y = panel.pattern, self.y[:, panel.rows], self.delta_y[:, panel.rows]
            if product in ("forward", "gradient", "backward"):
                for _ in range(0, pattern.shape[0], CHUNK_ROWS):
                    _turn(self.x, tiles, pattern.width, False, False)
            if product == "forward":
                _turn(y, tiles, CHUNK_ROWS, True, False)
            if product in ("delta", "backward"):
                for _ in range(0, pattern.shape[1], CHUNK_ROWS):
                    _turn(delta_y, tiles, pattern.width, False, False)
                _turn(self.delta_x, tiles, CHUNK_ROWS, True, number > 0)
            if product in ("gradient", "backward"):
                _turn(delta_y, tiles, CHUNK_ROWS, False, False)


def make_weight(case: Case, sparsity_percent: int) -> tuple[np.ndarray, list[SparsePanel]]:
    """Return the weight with its zeros, and its panels without."""
    generator = np.random.default_rng(sparsity_percent)
    weight = random_aligned(generator, case.rows, case.columns)
    weight[generator.random(weight.shape, dtype=np.float32) < sparsity_percent / 100] = 0
    panels = []
    for panel in panels_of(Weight("weight", weight.shape, Initializer("constant"))):
        rows = slice(panel.start, panel.stop)
        indices = np.flatnonzero(weight[rows])
        pattern, places = make_pattern(indices, (rows.stop - rows.start, case.columns))
        values = weight[rows].ravel()[indices[places]]
        transposed = np.empty_like(values)
        transpose_values(pattern, values, transposed)
        panels.append(SparsePanel(rows, pattern, values, transposed))
    return weight, panels
