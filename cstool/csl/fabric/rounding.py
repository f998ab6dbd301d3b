"""Fused multiply-add with one rounding, on floats and arrays.

`a + b * c` of float16 or float32 is computed in float64 and rounded to odd (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", IEEE Transactions on Computers 57(4), 2008): one more rounding, to the short format, then gives
the correctly rounded result. The product is exact in float64 (2 * 24 bits fit 53).
"""

import numpy as np
from numpy.typing import NDArray

_bits = memoryview(bytearray(8))
_as_float = _bits.cast("d")
_as_int = _bits.cast("Q")


def fused(a: float, b: float, c: float) -> float:
    """`a + b * c`, rounded to odd in float64."""
    product = b * c
    total = product + a
    back = total - product
    error = (product - (total - back)) + (a - back)
    if error == 0.0 or error != error:
        return total
    _as_float[0] = total
    if not _as_int[0] & 1:
        # The exact sum lies between two floats; the odd one of them says that it is neither, nor halfway.
        _as_int[0] += 1 if (error > 0) == (total > 0) else -1
        total = _as_float[0]
    return total


def fused_arrays(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """`a + b * c` element by element, rounded to odd in float64."""
    product = b * c
    total = np.asarray(product + a)
    back = total - product
    error = np.asarray((product - (total - back)) + (a - back))
    bits = total.view(np.int64)
    move = (error != 0.0) & ~np.isnan(error) & (bits & 1 == 0)
    bits[move] += np.where((error[move] > 0) == (total[move] > 0), 1, -1)
    return total
