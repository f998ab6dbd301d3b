"""Measures of a gradient: its sum of squares, and whether all of it is finite."""

import math

import numpy as np

from cstool.training.kernels._jit import elementwise, reduction
from cstool.training.kernels.bfloat16 import number_for, widen

_SEARCH = 1024
"""elements that `first_non_finite` looks at together"""


@reduction
def sum_squares(x):  # type: ignore[no-untyped-def]
    """Return the sum of squares of (n,) float32, in float64."""
    total = 0.0
    for i in range(x.shape[0]):
        value = np.float64(x[i])
        total += value * value
    return total


@reduction
def first_non_finite(x):  # type: ignore[no-untyped-def]
    """Return the index of the first NaN or infinity of (n,) float32 or bfloat16, -1 if there is none."""
    size = x.shape[0]
    zero = number_for(0, x)
    for start in range(0, size, _SEARCH):
        part = x[start : start + _SEARCH]
        total = zero
        for i in range(part.shape[0]):
            # 0, or NaN where x is not finite
            total += widen(part[i]) * zero
        if total != zero:
            for i in range(part.shape[0]):
                if not math.isfinite(widen(part[i])):
                    return start + i
    return -1


@elementwise
def check_finite(figures):  # type: ignore[no-untyped-def]
    """Raise an exception if a loss of (n, 2) float64, as `Call.figures` has them, is not finite."""
    for i in range(figures.shape[0]):
        if not math.isfinite(figures[i, 0]):
            raise FloatingPointError("a loss is not finite")
