"""A sparse panel as kernels take it: its pattern, its values, and the choice of kernels."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from cstool.training.kernels.gemm import NUMPY, Gemm, Scratch
from cstool.training.kernels.linear import linear_backward_delta, linear_backward_weight, linear_forward
from cstool.training.kernels.sparse.linear import sparse_linear_delta, sparse_linear_forward, sparse_linear_gradient
from cstool.training.kernels.sparse.pattern import Pattern, collect, expand, transpose_values

Lend = Callable[[tuple[int, ...], int, np.dtype], np.ndarray]
"""(shape, room in numbers, dtype) -> lent memory"""


class KernelChoice(NamedTuple):
    """For each of the three products of a linear layer, whether the sparse kernel computes it."""

    forward: bool
    delta: bool
    gradient: bool


@dataclass
class SparseMatrix:
    """Rows of a weight, streamed without their zeros; shared by all lanes that hold it.

    Args:
        pattern: places of the non-zeros
        values: (n,) float32 or bfloat16, in the order of the pattern
        choice: kernels that compute with it
        dense_gradient: whether the gradient of the zeros is asked for, too
        room: non-zeros that the panel may come to have, for buffers that last
        lend: lends memory for arrays made of the values
    """

    pattern: Pattern
    values: np.ndarray
    choice: KernelChoice
    dense_gradient: bool
    room: int
    lend: Lend
    made: dict[str, np.ndarray] = field(default_factory=dict)
    """arrays made of the values, in lent memory, which the maker of the matrix gives back"""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return self.values.dtype

    @property
    def gradient_shape(self) -> tuple[int, ...]:
        """Shape of the buffer in which backward leaves the gradient."""
        return self.pattern.shape if self.dense_gradient else (self.pattern.count,)

    def dense(self) -> np.ndarray:
        """Return the panel with its zeros, (rows, columns) of the values' dtype."""
        return self._make("dense", self.pattern.shape, 0, partial(expand, self.pattern, self.values))

    def transposed_values(self) -> np.ndarray:
        """Return (n,) the values in the order of the transposed pattern."""
        write = partial(transpose_values, self.pattern, self.values)
        return self._make("transposed", self.values.shape, self.room, write)

    def _make(self, name: str, shape: tuple[int, ...], room: int, write: Callable[[np.ndarray], None]) -> np.ndarray:
        """Have an array written by the first lane that asks for it."""
        with self._lock:
            if name not in self.made:
                array = self.lend(shape, room, self.dtype)
                write(array)
                self.made[name] = array
            return self.made[name]

    def forward(
        self, x: np.ndarray, bias: np.ndarray | None, y: np.ndarray, scratch: Scratch, gemm: Gemm = NUMPY
    ) -> None:
        """Compute y = x weight^T + bias.

        Args:
            x, bias, y, scratch: as in `sparse_linear_forward`; x is of the values' dtype
            gemm: provider of products, for dense kernels
        """
        if self.choice.forward:
            sparse_linear_forward(x, self.pattern, self.values, bias, y, scratch)
        else:
            linear_forward(x, self.dense(), bias, y, gemm)

    def backward(
        self,
        x: np.ndarray,
        delta_y: np.ndarray,
        delta_x: np.ndarray | None,
        accumulate: bool,
        grad: np.ndarray | None,
        scratch: Scratch,
        gemm: Gemm = NUMPY,
    ) -> None:
        """Compute the delta of x and the gradient.

        Args:
            x: (T, in) of the values' dtype
            delta_y: (T, rows) of the values' dtype
            delta_x: (T, in) float32 or bfloat16, or None: not computed
            accumulate: add to delta_x instead of overwriting it
            grad: of `gradient_shape`, written; None: not computed
            scratch: see `sparse_linear_forward`
            gemm: provider of products, for dense kernels
        """
        if delta_x is not None and self.choice.delta:
            values = self.transposed_values()
            sparse_linear_delta(delta_y, self.pattern.transposed, values, delta_x, accumulate, scratch)
        elif delta_x is not None:
            linear_backward_delta(delta_y, self.dense(), delta_x, accumulate, scratch, gemm)
        if grad is None:
            return
        if self.dense_gradient:
            linear_backward_weight(x, delta_y, grad, gemm)
        elif self.choice.gradient:
            sparse_linear_gradient(x, delta_y, self.pattern, grad, scratch)
        else:
            whole = scratch("sparse.grad", self.pattern.shape)
            linear_backward_weight(x, delta_y, whole, gemm)
            collect(self.pattern, whole, grad)
