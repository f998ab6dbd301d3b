"""A sparse panel as kernels take it: its pattern, its values, and which kernels are to compute with it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cstool.kernels.gemm import Scratch
from cstool.kernels.linear import linear_backward_delta, linear_backward_weight, linear_forward
from cstool.kernels.sparse.linear import sparse_linear_backward, sparse_linear_forward
from cstool.kernels.sparse.pattern import Pattern, collect, expand


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
        room: non-zeros that the panel may come to have, for buffers that last
        lend: lends (rows, columns) float32 for the panel written out, for those kernels that are dense
    """

    pattern: Pattern
    values: np.ndarray
    choice: KernelChoice
    dense_gradient: bool
    room: int
    lend: Callable[[tuple[int, int]], np.ndarray]
    written_out: np.ndarray | None = None
    """the panel with its zeros, once a dense kernel has asked for it"""
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

    def forward(self, x: np.ndarray, bias: np.ndarray | None, y: np.ndarray, scratch: Scratch) -> None:
        """Compute y = x weight^T + bias; arguments as in `sparse_linear_forward`."""
        if self.choice.forward:
            sparse_linear_forward(x, self.pattern, self.values, bias, y, scratch)
        else:
            linear_forward(x, self.dense(), bias, y)

    def backward(
        self,
        x: np.ndarray,
        delta_y: np.ndarray,
        delta_x: np.ndarray | None,
        accumulate: bool,
        grad: np.ndarray,
        scratch: Scratch,
    ) -> None:
        """Compute the delta of x and the gradient.

        Args:
            x, delta_y, delta_x, accumulate, scratch: as in `sparse_linear_backward`
            grad: of `gradient_shape`, written
        """
        sparse_grad = self.choice.gradient and not self.dense_gradient
        sparse_delta = self.choice.delta and delta_x is not None
        if sparse_grad or sparse_delta:
            to = (delta_x if sparse_delta else None), accumulate, (grad if sparse_grad else None)
            sparse_linear_backward(x, delta_y, self.pattern, self.values, *to, scratch)
        if delta_x is not None and not sparse_delta:
            linear_backward_delta(delta_y, self.dense(), delta_x, accumulate, scratch)
        if self.dense_gradient:
            linear_backward_weight(x, delta_y, grad)
        elif not sparse_grad:
            whole = scratch("sparse.grad", self.pattern.shape)
            linear_backward_weight(x, delta_y, whole)
            collect(self.pattern, whole, grad)
