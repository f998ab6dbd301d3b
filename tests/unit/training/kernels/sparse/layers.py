"""Sparse linear layers to try the kernels on, and what they compute, said in one line of NumPy each."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cstool.training.kernels.sparse import (
    Pattern,
    make_pattern,
    sparse_linear_delta,
    sparse_linear_forward,
    sparse_linear_gradient,
    transpose_values,
)
from tests.unit.training.kernels.tolerances import TOLERANCE, Scratch

AROUND = 3
"""numbers on each side of what a kernel writes that it has to leave alone"""
UNTOUCHED = np.float32(12345.0)


@dataclass(frozen=True)
class Layer:
    """A layer with all that its kernels read.

    `before` is what the delta of x is added to, `bias` what outputs begin with.
    """

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    delta_y: np.ndarray
    before: np.ndarray
    pattern: Pattern
    at: tuple[np.ndarray, np.ndarray]
    """rows and columns of the non-zeros, in the order of the pattern"""

    @property
    def values(self) -> np.ndarray:
        return self.weight[self.at]

    @property
    def transposed_values(self) -> np.ndarray:
        return transposed(self.pattern, self.values)


def transposed(pattern: Pattern, values: np.ndarray) -> np.ndarray:
    """Values of a pattern in the order of the transposed one."""
    out = np.empty_like(values)
    transpose_values(pattern, values, out)
    return out


def make_layer(tokens: int, rows: int, columns: int, density: float, *, seed: int = 1, holes: bool = False) -> Layer:
    """Return a layer of random numbers, if asked for with a row and a column that are empty, and ones that are full."""
    rng = np.random.default_rng(seed)
    shapes = (tokens, columns), (rows, columns), (rows,), (tokens, rows), (tokens, columns)
    x, weight, bias, delta_y, before = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    kept = rng.random((rows, columns)) < density
    if holes:
        kept[rows // 2], kept[:, columns // 2] = True, True
        kept[rows // 3], kept[:, columns // 3] = False, False
    return with_pattern(x, np.where(kept, weight, 0), bias, delta_y, before, kept)


def with_pattern(x, weight, bias, delta_y, before, kept):
    indices = np.flatnonzero(kept)
    pattern, places = make_pattern(indices, kept.shape)
    at = np.divmod(indices[places], kept.shape[1])
    return Layer(x, weight.astype(np.float32), bias, delta_y, before, pattern, at)


def outputs(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return x @ weight.T + bias


def deltas(delta_y: np.ndarray, weight: np.ndarray, before: np.ndarray) -> np.ndarray:
    return delta_y @ weight + before


def gradients(delta_y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return delta_y.T @ x


def assert_sums(actual: np.ndarray, twin: Callable[..., np.ndarray], *arrays: np.ndarray, at: object = ...) -> None:
    """Compare sums of products with their float64 twin, each by the size of its terms.

    What the twin computes of absolute values is that size. Where it is 0 there is nothing to add up, and so no error.
    """
    exact = [array.astype(np.float64) for array in arrays]
    error, size = np.abs(actual - twin(*exact)[at]), twin(*map(np.abs, exact))[at]
    assert np.all(error <= TOLERANCE[np.dtype(np.float32)] * size), f"error {np.max(error / np.maximum(size, 1e-30))}"


def assert_products(layer: Layer, scratch: Scratch, *, more: bool = True) -> None:
    """Compare the kernels with their twins, with a bias and what a delta is added to, or without."""
    y, (delta_x, grad) = forward(layer, scratch, bias=more), backward(layer, scratch, accumulate=more)
    assert_sums(y, outputs, layer.x, layer.weight, layer.bias if more else np.zeros_like(layer.bias))
    before = layer.before if more else np.zeros_like(layer.before)
    assert_sums(delta_x, deltas, layer.delta_y, layer.weight, before)
    assert_sums(grad, gradients, layer.delta_y, layer.x, at=layer.at)


def framed(rows: int, columns: int, *, misalignment: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a column slice full of NaN of an array, and the array, whose other numbers say whether one was written."""
    width = columns + 2 * AROUND
    memory = np.full((rows + 2 * AROUND) * width + misalignment, UNTOUCHED)
    whole = memory[misalignment:].reshape(-1, width)
    part = whole[AROUND : AROUND + rows, AROUND : AROUND + columns]
    part.fill(np.nan)
    return part, whole


def assert_framed(part: np.ndarray, whole: np.ndarray) -> None:
    assert np.sum(whole == UNTOUCHED) == whole.size - part.size


def forward(layer: Layer, scratch: Scratch, *, bias: bool = True) -> np.ndarray:
    """Return the outputs, after a look at what lies around them."""
    y, whole = framed(*layer.delta_y.shape)
    sparse_linear_forward(layer.x, layer.pattern, layer.values, layer.bias if bias else None, y, scratch)
    assert_framed(y, whole)
    return y


def backward(layer: Layer, scratch: Scratch, *, accumulate: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the delta of x and the gradient, after a look at what lies around them."""
    tokens, columns = layer.x.shape
    memory = np.full((tokens + 2 * AROUND, columns), UNTOUCHED)
    delta_x = memory[AROUND : AROUND + tokens]
    delta_x[:] = layer.before if accumulate else np.nan
    grad, grads = framed(1, layer.pattern.count)
    delta_y, _ = framed(*layer.delta_y.shape)
    delta_y[:] = layer.delta_y
    values = layer.transposed_values
    sparse_linear_delta(delta_y, layer.pattern.transposed, values, delta_x, accumulate, scratch)
    sparse_linear_gradient(layer.x, delta_y, layer.pattern, grad[0], scratch)
    assert_framed(delta_x, memory)
    assert_framed(grad, grads)
    return delta_x, grad[0]
