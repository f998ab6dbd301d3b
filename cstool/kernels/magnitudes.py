"""What is measured of a gradient: its sum of squares, and whether all of it is finite."""

import math

import numpy as np

from cstool.kernels._jit import reduction

_SEARCH = 1024
"""elements that `first_non_finite` looks at together"""


@reduction
def _sum_squares(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(x.shape[0]):
        value = np.float64(x[i])
        total += value * value
    return total


@reduction
def _first_non_finite(x):  # type: ignore[no-untyped-def]
    size = x.shape[0]
    for start in range(0, size, _SEARCH):
        part = x[start : start + _SEARCH]
        total = x.dtype.type(0)
        for i in range(part.shape[0]):
            # 0, or NaN where x is not finite
            total += part[i] * x.dtype.type(0)
        if total != x.dtype.type(0):
            for i in range(part.shape[0]):
                if not math.isfinite(part[i]):
                    return start + i
    return -1


def sum_squares(x: np.ndarray) -> float:
    """Return the sum of squares in float64.

    Args:
        x: (n,) float32
    """
    return float(_sum_squares(x))


def first_non_finite(x: np.ndarray) -> int:
    """Return the index of the first NaN or infinity, -1 if there is none.

    Args:
        x: (n,) float32
    """
    return int(_first_non_finite(x))
