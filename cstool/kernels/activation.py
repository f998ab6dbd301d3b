"""Element-wise functions, with the bias before and the dropout after them."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from cstool.activations import ACTIVATIONS
from cstool.kernels import exponential  # noqa: F401  (what formulas call compiles to its polynomials)
from cstool.kernels._jit import Kernel, elementwise, inlined
from cstool.kernels.random import Dropout, draws_of, mask_memory, mask_row

FUNCTIONS = {name: number for number, name in enumerate(ACTIVATIONS)}
"""the functions by name, with the number by which the kernels know them"""
_FORMULAS = {name: inlined(row.formula) for name, row in ACTIVATIONS.items()}


@lru_cache(maxsize=64)
def zero_bias(width: int, dtype: np.dtype) -> np.ndarray:
    """Return the bias of a layer without one, only to be read: kernels add zeros rather than exist twice."""
    return np.zeros(width, dtype)


def by_function(part: Callable[[int, Kernel, Kernel], Kernel], names: Iterable[str]) -> Kernel:
    """One part of a kernel for several functions, to be told by number at each call which of them is meant.

    Args:
        part: makes that of one function from its number, its formula and the part of those that come after it
        names: of the functions
    """
    found: Kernel = _no_function
    for name in reversed(tuple(names)):
        found = part(FUNCTIONS[name], _FORMULAS[name], found)
    return found


@inlined
def _no_function(*_arguments):  # type: ignore[no-untyped-def]
    """End the chain: names become numbers where a name that is none is found."""


def _value_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @inlined
    def value_part(function, x, bias, factor, y):  # type: ignore[no-untyped-def]
        if function == number:
            for j in range(x.shape[0]):
                y[j] = factor[j] * formula(x[j] + bias[j], x)[0]
        else:
            others(function, x, bias, factor, y)

    return value_part


def _slope_part(number: int, formula: Kernel, others: Kernel) -> Kernel:
    @inlined
    def slope_part(function, x, bias, factor, delta, y):  # type: ignore[no-untyped-def]
        if function == number:
            for j in range(x.shape[0]):
                y[j] = factor[j] * delta[j] * formula(x[j] + bias[j], x)[1]
        else:
            others(function, x, bias, factor, delta, y)

    return slope_part


_values: Any = by_function(_value_part, FUNCTIONS)
_slopes: Any = by_function(_slope_part, FUNCTIONS)


@elementwise
def times_value(function, x, bias, factor, y):  # type: ignore[no-untyped-def]
    """Write factor * function(x + bias) to y, apart from the others; all are rows. To be called from kernels."""
    _values(function, x, bias, factor, y)


@elementwise
def _times_slope(function, x, bias, factor, delta, y):  # type: ignore[no-untyped-def]
    """Write factor * delta * (slope of function at x + bias) to y, apart from the others; all are rows."""
    _slopes(function, x, bias, factor, delta, y)


@elementwise
def _forward(function, x, bias, y, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    for t in range(tokens):
        times_value(function, x[t], bias, mask_row(memory, draws, t, width), y[t])


@elementwise
def _backward(function, x, bias, delta_y, delta_x, grad_bias, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    grad_bias[:] = 0
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, so that delta_x may be delta_y and still every loop vectorises.
        _times_slope(function, x[t], bias, mask, delta_y[t], row)
        if grad_bias.shape[0] > 0:
            for j in range(width):
                grad_bias[j] += row[j]
        for j in range(width):
            delta_x[t, j] = row[j]


def activation_forward(
    function: str, x: np.ndarray, bias: np.ndarray | None, y: np.ndarray, dropout: Dropout | None
) -> None:
    """Compute y = dropout(function(x + bias)).

    Args:
        function: a key of `FUNCTIONS`
        x: (T, F) float32
        bias: (F,) float32 or None
        y: (T, F) float32, written; apart from x in memory
        dropout: None for none

    Raises:
        KeyError: for an unknown function
    """
    width = x.shape[1]
    _forward(FUNCTIONS[function], x, zero_bias(width, x.dtype) if bias is None else bias, y, draws_of(dropout))


def activation_backward(
    function: str,
    x: np.ndarray,
    bias: np.ndarray | None,
    delta_y: np.ndarray,
    delta_x: np.ndarray,
    grad_bias: np.ndarray | None,
    dropout: Dropout | None,
) -> None:
    """Compute the delta of x and the gradient of the bias, which is the sum of the former's rows.

    Args:
        function, x, bias, dropout: as in forward
        delta_y: (T, F) float32
        delta_x: (T, F) float32, written; may be delta_y
        grad_bias: (F,) float32, written, or None

    Raises:
        KeyError: for an unknown function
    """
    width = x.shape[1]
    offset = zero_bias(width, x.dtype) if bias is None else bias
    grad = np.empty(0, x.dtype) if grad_bias is None else grad_bias
    _backward(FUNCTIONS[function], x, offset, delta_y, delta_x, grad, draws_of(dropout))
