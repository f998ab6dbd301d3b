"""A sparse panel as kernels take it: its pattern, its values, and which kernels are to compute with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cstool.kernels.sparse.pattern import Pattern, expand


class KernelChoice(NamedTuple):
    """For each of the three products of a linear layer, whether the sparse kernel computes it."""

    forward: bool
    delta: bool
    gradient: bool


@dataclass
class SparseMatrix:
    """Rows of a weight, streamed without their zeros; shared by all lanes that hold it.

    Args:
        pattern: where the non-zeros are
        values: (n,) float32, in the order of the pattern
        choice: which kernels compute with it
        dense_gradient: whether the gradient of the zeros is asked for, too
        lend: lends (rows, columns) float32 for the panel written out, for those kernels that are dense
    """

    pattern: Pattern
    values: np.ndarray
    choice: KernelChoice
    dense_gradient: bool
    lend: Callable[[tuple[int, int]], np.ndarray]
    written_out: np.ndarray | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def gradient_shape(self) -> tuple[int, ...]:
        """Shape of the buffer in which backward leaves the gradient."""
        return self.pattern.shape if self.dense_gradient else (self.pattern.count,)

    def dense(self) -> np.ndarray:
        """Return the panel with its zeros, (rows, columns) float32, written out by the first who asks."""
        with self._lock:
            if self.written_out is None:
                written = self.lend(self.pattern.shape)
                expand(self.pattern, self.values, written)
                self.written_out = written
            return self.written_out
